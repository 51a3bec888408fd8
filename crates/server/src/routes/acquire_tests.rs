//! What becomes of a grant between the nodes' answer and ours.

use super::*;
use crate::settings::Settings;

/// The nodes keep it, so that it shows whether it is given back.
#[tokio::test]
async fn a_grant_of_which_nothing_is_left_is_given_back_and_not_told() {
    let locks = leasehold::Locks::open("memory:").await.unwrap();
    let app = Arc::new(App::new(locks.clone(), Settings::default(), None));
    let asked = Asked { at: Instant::now(), from: "here".into(), delivery: Arc::default() };
    let ttl = Duration::from_millis(200);
    let guard = locks.lock("l").holder("ana").ttl(ttl).manual().acquire().await.unwrap();
    let (lock, fence, holder) = (guard.name().clone(), guard.fence(), guard.holder().clone());
    let token: LeaseToken = format!("lease1:{fence}:60000:{holder}/{lock}").parse().unwrap();
    locks.extend(&token).await.unwrap();
    tokio::time::sleep(ttl).await;

    let attempt = Attempt::new(&app, &lock, None);
    let Err(problem) = grant(&app, &asked, attempt, guard, None, None) else {
        panic!("it was told of");
    };
    assert_eq!(problem.kind, Kind::TooSlow);
    assert!(problem.detail().contains("nothing was left"), "{problem:?}");
    app.tasks.end();
    app.tasks.ended().await;
    assert!(locks.inspect("l").await.unwrap().owner().is_none(), "it is given back");
    let past = lease_json(&app, &token, "id", &asked, None, Instant::now());
    assert_eq!(past, None, "nor is a repeat told of it");
}
