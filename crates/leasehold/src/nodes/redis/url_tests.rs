//! What URLs mean, and how wrong ones are refused.

use super::*;

fn ids(url: &str) -> Vec<String> {
    parse_url(url).unwrap().0.iter().map(|node| node.id().to_string()).collect()
}

fn one(url: &str) -> RedisConfig {
    let (mut nodes, _) = parse_url(url).unwrap();
    assert_eq!(nodes.len(), 1, "{url}");
    nodes.remove(0)
}

#[test]
fn each_host_is_a_node() {
    assert_eq!(ids("redis://a"), ["a:6379/0"]);
    assert_eq!(
        ids("redis://A:7001,b,10.0.0.1:7003/2"),
        ["a:7001/2", "b:6379/2", "10.0.0.1:7003/2"]
    );
    assert_eq!(
        ids("redis://[::1]:7000,[2001:DB8:0:0:0:0:0:1]"),
        ["[::1]:7000/0", "[2001:db8::1]:6379/0"]
    );
    assert_eq!(ids("redis://a:80,b:443"), ["a:80/0", "b:443/0"]);
    assert_eq!(ids("unix:///run/redis.sock?db=3"), ["unix:/run/redis.sock/3"]);
    assert_eq!(ids("redis+unix:///a%20b.sock"), ["unix:/a b.sock/0"]);
}

#[test]
fn a_list_of_urls_is_as_good() {
    assert_eq!(
        ids("redis://a/1,redis://b,c/2, unix:///s"),
        ["a:6379/1", "b:6379/2", "c:6379/2", "unix:/s/0"]
    );
    assert_eq!(ids("redis://a redis://b\nredis://c"), ["a:6379/0", "b:6379/0", "c:6379/0"]);
}

#[test]
fn credentials_are_decoded_and_shared() {
    let (nodes, _) = parse_url("redis://al%69ce:p%40%2C%3A%20x:y@a,b").unwrap();
    for node in &nodes {
        assert_eq!(node.user.as_deref(), Some("alice"));
        assert_eq!(node.password.as_deref(), Some("p@,: x:y"));
    }
    let node = one("redis://:secret@a");
    assert_eq!((node.user, node.password.as_deref()), (None, Some("secret")));
    let node = one("redis://alice@a");
    assert_eq!((node.user.as_deref(), node.password), (Some("alice"), None));
    let node = one("unix://alice:secret@/run/s");
    assert_eq!((node.user.as_deref(), node.password.as_deref()), (Some("alice"), Some("secret")));
}

#[test]
fn parameters_of_the_connection_are_kept_and_others_handed_back() {
    let (nodes, others) =
        parse_url("rediss://a,b/1?prefix=x%26y&ca=/ca.pem&cert=c&key=k&strict&protocol=2").unwrap();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(others, [pair("prefix", "x&y"), pair("strict", "")]);
    for node in nodes {
        let tls = node.tls.unwrap();
        assert_eq!(tls.ca, Some("/ca.pem".into()));
        assert_eq!((tls.cert, tls.key), (Some("c".into()), Some("k".into())));
        assert!(node.resp2);
    }
    assert!(one("redis://a").tls.is_none());
}

#[test]
fn wrong_urls_are_refused_with_a_sentence_that_keeps_the_password() {
    for (url, words) in [
        ("a:6379", "not a URL"),
        ("http://hunter2@a", "unknown scheme `http`"),
        ("redis://", "host number 1 is empty"),
        ("redis://a,,b", "host number 2 is empty"),
        ("redis://u:hunter2@", "host number 1 is empty"),
        ("redis://:7000", "host number 1 is empty"),
        ("redis://a:99999", "`a:99999` is not a host"),
        ("redis://a:0", "`a:0` is not a host"),
        ("redis://a:", "`a:` is not a host"),
        ("redis://a:b", "`a:b` is not a host"),
        ("redis://a b", "`a b` is not a host"),
        ("redis://u:hunter2@a,u:hunter2@b", "before the first host"),
        ("redis://u:hun,ter2@a", "before the first host"),
        ("redis://u:%FF@a", "must be UTF-8"),
        ("redis://a/x", "database `x` is not a number"),
        ("redis://a/-1", "database `-1` is not a number"),
        ("redis://a?db=one", "database `one` is not a number"),
        ("redis://u:hunter2/@a", "before the first host"),
        ("redis://u:hunter2#@a", "before the first host"),
        ("redis://u:hunter2?@a", "before the first host"),
        ("unix://", "absolute path"),
        ("unix://run/redis.sock", "absolute path"),
        ("redis://a?ca=x", "needs rediss://"),
        ("rediss://a?cert=x", "go together"),
        ("rediss://a?ca=", "cannot be ``"),
        ("redis://a?protocol=4", "cannot be `4`"),
    ] {
        let error = parse_url(url).expect_err(url).to_string();
        assert!(error.contains(words), "{url}: {error}");
        assert!(!error.contains("hunter2") && !error.contains("ter2"), "{url}: {error}");
    }
}

#[test]
fn debug_does_not_show_the_password() {
    let shown = format!("{:?}", one("redis://alice:hunter2@a"));
    assert!(shown.contains("alice") && !shown.contains("hunter2"), "{shown}");
}
