//! Odd inputs for what callers and other processes hand in as text: tokens, URLs, settings. What may
//! be a password is never shown.

use std::fmt::Debug;

use leasehold_core::{Fence, Holder, LockName, Ttl};
use leasehold_testkit::{Input, fuzz};

use crate::options::Builder;
use crate::{LeaseToken, Locks, without_password};

#[test]
fn any_text_is_a_token_or_is_not_and_a_token_prints_back_to_itself() {
    let good = b"lease1:1800000000000001:30000:ana%40db:1:0000000000000000000000000000feed/nightly";
    fuzz(5000, &[good, b"lease1:1:100:h/n", b"lease1:::/"], |input| {
        if let Ok(token) = input.rest_as_text().parse::<LeaseToken>() {
            assert_eq!(token.to_string().parse::<LeaseToken>(), Ok(token));
        }
    });
}

#[test]
fn any_lease_reads_back_from_its_token_which_needs_no_quotes() {
    fuzz(5000, &[], |input| {
        let printable = |byte: &u8| char::from(b' ' + byte % 95);
        let label: String = input.bytes().iter().map(printable).take(200).collect();
        let name: String = input.bytes().iter().map(|byte| char::from(byte | 0x20)).collect();
        let (nonce, fence) = (u128::from(input.number()), Fence::new(input.number() >> 11));
        let token = Fence::new(input.number() >> 11);
        let ttl = Ttl::new(std::time::Duration::from_millis(100 + (input.number() >> 30)));
        let (Ok(holder), Ok(name), Ok(ttl)) =
            (Holder::new(&label, nonce), LockName::new(&name), ttl)
        else {
            return;
        };
        let (Some(fence), Some(token)) = (fence, token) else { return };
        let token = LeaseToken { name, holder, fence, token, ttl: ttl.get() };
        let text = token.to_string();
        assert!(text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.@:/%".contains(&b)));
        assert_eq!(text.parse(), Ok(token));
    });
}

/// URLs of all backends, right and wrong.
const URLS: [&[u8]; 10] = [
    b"redis://u:pass@10.0.0.1:6379,10.0.0.2,[::1]:7/3?timeout=50ms&max_ttl=30s&prefix=x",
    b"rediss://a?ca=/ca.pem&cert=/c.pem&key=/k.pem&protocol=2",
    b"unix:///run/redis.sock?db=4&strict=on",
    b"redis://a redis://b:1,redis://c",
    b"memory:?nodes=5&drift=1%25%2B2ms&quarantine=off&max_clock_skew=1s",
    b"sqlite:///var/lib/locks.db?fence_retention=7days",
    b"memory:?max_ttl=18446744073709551615s&max_clock_skew=18446744073709551615s",
    b"redis+unix://u@/x?db=99999999999",
    b"https://:token@locks.example:7717/?ca=/ca.pem&token_file=/t&timeout=1s",
    b"http://[::1]?drift=1%25",
];

/// Everything that becomes of a URL before a connection is opened.
fn read(url: &str) -> Vec<String> {
    fn shown<T: Debug, E: Debug + std::fmt::Display>(result: Result<T, E>) -> String {
        match result {
            Ok(value) => format!("{value:?}"),
            Err(error) => format!("{error:?} {error}"),
        }
    }
    vec![
        shown(Locks::builder().url(url).check()),
        shown(crate::nodes::redis::parse_url(url).map(|(nodes, _)| nodes)),
        shown(crate::nodes::http::parse_url(url).map(|(server, _)| server)),
        format!("{:?}", Locks::builder().url(url)),
        without_password(url),
    ]
}

#[test]
fn any_text_is_a_url_or_is_refused() {
    fuzz(4000, &URLS, |input| {
        let url = input.rest_as_text();
        read(&url);
        if let Ok((nodes, _)) = crate::nodes::redis::parse_url(&url) {
            assert!(!nodes.is_empty());
        }
    });
}

#[test]
fn a_password_is_never_shown_whatever_is_wrong_with_its_url() {
    const SECRET: &str = "Hunter2Hunter2";
    // Nothing that would end a line or a password for good: whoever writes an @ into a host means it.
    let junk = [
        "", "a", ":", "/", "?", "#", "%", "%zz", "%ff", ",", "@", " ", "é", "=", "&", "[", "x://",
        "1", "timeout=",
    ];
    fuzz(6000, &[], |input| {
        let mut some = |most: usize| -> String {
            let count = input.below(most + 1);
            (0..count).map(|_| input.pick(&junk)).collect()
        };
        let (before, after, tail) = (some(4), some(4), some(6));
        let user = ["", "u", "%00", "us er"][some(3).len() % 4];
        let scheme = ["redis", "rediss", "unix", "redis+unix", "http", "sqlite", "https"];
        let scheme = scheme[some(6).len() % scheme.len()];
        let host = ["a", "a:1,b", "", "[::1", "a:x", "a,,b"][some(5).len() % 6];
        // `unix://u:@/path` is right, and shows its path.
        let before = if scheme.contains("unix") { before.replace('@', "") } else { before };
        let scheme = if some(3).contains('@') { String::new() } else { format!("{scheme}://") };
        let url = format!("{scheme}{user}:{before}{SECRET}{after}@{host}{tail}");
        for text in read(&url) {
            assert!(!text.contains(SECRET), "`{url}` is shown as `{text}`");
        }
    });
}

#[test]
fn a_builder_with_any_settings_is_opened_or_refused() {
    fuzz(3000, &[], |input| {
        let duration = |input: &mut Input<'_>| {
            std::time::Duration::new(input.number(), input.number() as u32 % 1_000_000_000)
        };
        let builder: Builder = Locks::builder()
            .url(input.pick(&["memory:", "memory:?nodes=3", "redis://a,b,c"]))
            .max_ttl(duration(input))
            .timeout(duration(input))
            .max_clock_skew(duration(input))
            .fence_retention(duration(input))
            .drift(leasehold_core::Drift {
                parts_per_million: input.number() as u32,
                fixed: duration(input),
            });
        let _ = builder.check();
    });
}
