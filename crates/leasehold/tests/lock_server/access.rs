//! Tokens, certificates, and what is said to those who have none.

use std::path::Path;

use leasehold::{ForceReleaseError, Locks, NodeState, ReleaseOutcome};
use leasehold_server::{Settings, TlsFiles as ServerTls, Tokens};
use leasehold_testkit::TlsFiles;

use super::LONG;
use super::served::Served;

/// A file of tokens with one for each of these scopes, and what they are.
fn tokens<const N: usize>(folder: &Path, scopes: [&str; N]) -> (Settings, [String; N]) {
    let mut tokens = Tokens::default();
    let mut number = 0;
    let made = scopes.map(|scope| {
        let scopes = scope.split(' ').map(|scope| scope.parse().unwrap()).collect();
        number += 1;
        tokens.create(&format!("token{number}"), scopes, None).unwrap()
    });
    let path = folder.join("tokens.toml");
    std::fs::write(&path, tokens.to_text()).unwrap();
    let mut settings = Settings::default();
    settings.tokens = Some(path);
    (settings, made)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_for_some_locks_is_enough_for_those_and_for_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (settings, [some, admin]) = tokens(folder.path(), ["lock:jobs/*", "lock:* admin"]);
    let served = Served::with("memory:", settings);
    let ours = Locks::builder().url(served.url()).token(&some).open().await.unwrap();
    assert_eq!(ours.nodes()[0].state, NodeState::Up, "{:?}", ours.nodes());
    let guard = ours.lock("jobs/1").ttl(LONG).acquire().await.unwrap();
    guard.extend().await.unwrap();
    assert!(ours.inspect("jobs/1").await.unwrap().owner().is_some());
    let error = ours.lock("other").ttl(LONG).try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("lacks the scope"), "{error}");
    let error = ours.force_release("jobs/1", guard.fence()).await.unwrap_err();
    assert!(matches!(error, ForceReleaseError::NoQuorum { .. }), "{error:?}");
    assert!(error.to_string().contains("lacks the scope admin"), "{error}");
    assert!(ours.list("").await.unwrap_err().to_string().contains("lacks the scope"));
    let theirs = Locks::open(served.url().replace("://", &format!("://:{admin}@"))).await.unwrap();
    assert!(theirs.force_release("jobs/1", guard.fence()).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_token_and_a_missing_one_are_told_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let (settings, [good]) = tokens(folder.path(), ["lock:*"]);
    let served = Served::with("memory:", settings);
    let wrong = Locks::builder().url(served.url()).token("lh_wrong").open().await.unwrap();
    for locks in [wrong, served.open().await] {
        let error = locks.lock("l").try_acquire().await.unwrap_err().to_string();
        assert!(error.contains("LEASEHOLD_TOKEN") && !error.contains("lh_wrong"), "{error}");
    }
    let file = folder.path().join("token");
    std::fs::write(&file, format!("{good}\n")).unwrap();
    let url = format!("{}?token_file={}", served.url(), file.display());
    let locks = Locks::builder().url(url).token("lh_wrong").open().await.unwrap();
    let guard = locks.lock("l").ttl(LONG).acquire().await.expect("the URL goes first");
    assert_eq!(guard.release().await, ReleaseOutcome::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_are_had_over_tls_by_those_who_trust_the_server_and_are_trusted() {
    let (folder, files) = (tempfile::tempdir().unwrap(), TlsFiles::generate());
    let (mut settings, [token]) = tokens(folder.path(), ["lock:*"]);
    let client_ca = Some(files.ca());
    settings.tls =
        Some(ServerTls { cert: files.server_cert(), key: files.server_key(), client_ca });
    let served = Served::with("memory:", settings);
    let url = served.url().replace("://", &format!("://:{token}@"));
    let (ca, cert, key) = (files.ca(), files.client_cert(), files.client_key());
    let (ca, cert, key) = (ca.display(), cert.display(), key.display());
    let locks = Locks::open(format!("{url}?ca={ca}&cert={cert}&key={key}")).await.unwrap();
    let theirs = Locks::open(format!("{url}?ca={ca}&cert={cert}&key={key}")).await.unwrap();
    let guard = locks.lock("l").ttl(LONG).acquire().await.unwrap();
    guard.extend().await.unwrap();
    let waiter = super::waiter(&theirs, "l").await;
    assert_eq!(guard.release().await, ReleaseOutcome::Released);
    drop(waiter.await.unwrap().unwrap());

    for (parameters, words) in
        [(format!("?cert={cert}&key={key}"), "TLS"), (format!("?ca={ca}"), "TLS")]
    {
        let locks = Locks::open(format!("{url}{parameters}")).await.unwrap();
        let error = locks.lock("l").try_acquire().await.unwrap_err().to_string();
        assert!(error.contains(words) && !error.contains(&token), "{error}");
    }
    let clear = Locks::open(url.replace("https", "http")).await.unwrap();
    assert!(clear.lock("l").try_acquire().await.is_err(), "TLS is not spoken in clear");
    let missing = Locks::open(format!("{url}?ca=/nowhere/ca.pem")).await.unwrap_err().to_string();
    assert!(missing.contains("/nowhere/ca.pem") && !missing.contains(&token), "{missing}");
}
