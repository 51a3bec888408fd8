//! Requests of the core as calls of the lock server's interface.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::Method;
use leasehold_core::{Fence, Holder, LockName, Ttl};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use crate::LeaseToken;

/// So many locks on a page: the most that the server gives.
const PAGE: usize = 1000;
/// The longest reason that a server takes, in characters.
const REASON_MOST: usize = 500;

/// A lease id tells name, holder, number and Ttl. A release goes by name and holder alone, so it
/// says the least.
const ANY_FENCE: u64 = 1;
const ANY_TTL: std::time::Duration = leasehold_core::TTL_MIN;

/// One HTTP request, without what all have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Option<String>,
}

impl Call {
    pub(super) fn get(path: impl Into<String>) -> Self {
        Self { method: Method::GET, path: path.into(), body: None }
    }

    fn post(path: String, body: &serde_json::Value) -> Self {
        Self { method: Method::POST, path, body: Some(body.to_string()) }
    }

    pub(super) fn acquire(lock: &LockName, holder: &Holder, ttl: Ttl) -> Self {
        let nonce = holder.as_str().rsplit_once(':').map_or("", |(_, nonce)| nonce);
        let body = json!({
            "holder": holder.label(),
            "nonce": nonce,
            "ttl_ms": ttl.get().as_millis() as u64,
            "wait_ms": 0,
        });
        Self::post(format!("{}/leases", lock_path(lock)), &body)
    }

    pub(super) fn renew(lease_id: &str) -> Self {
        Self::post(format!("/v1/leases/{lease_id}/renew"), &json!({}))
    }

    pub(super) fn release(lock: &LockName, holder: &Holder) -> Self {
        let fence = Fence::new(ANY_FENCE).unwrap_or(Fence::ZERO);
        let id = lease_id(lock, holder, fence, fence, ANY_TTL);
        Self { method: Method::DELETE, path: format!("/v1/leases/{id}"), body: None }
    }

    /// `label` says who asks: the server knows only the token.
    pub(super) fn force_release(
        lock: &LockName,
        fence: Fence,
        label: &str,
        reason: Option<&str>,
    ) -> Self {
        let by = format!("by {label}");
        let reason = match reason {
            // What is too long for the record is cut off, not refused.
            Some(reason) => {
                let room = REASON_MOST - by.len() - " ()".len();
                let reason: String = reason.chars().take(room).collect();
                format!("{reason} ({by})")
            }
            None => format!("through the leasehold library {by}"),
        };
        let body = json!({ "expected_fence": fence.get(), "reason": reason });
        Self::post(format!("{}/force-release", lock_path(lock)), &body)
    }

    pub(super) fn inspect(lock: &LockName) -> Self {
        Self::get(lock_path(lock))
    }

    pub(super) fn list(prefix: &str, cursor: Option<&str>) -> Self {
        let mut path = format!("/v1/locks?limit={PAGE}&prefix={}", encoded(prefix));
        if let Some(cursor) = cursor {
            path.push_str("&cursor=");
            path.push_str(&encoded(cursor));
        }
        Self::get(path)
    }

    pub(super) fn events(lock: &LockName) -> Self {
        Self::get(format!("{}/events", lock_path(lock)))
    }
}

/// The id that the server gives to a lease: its token as text, fit for a path.
pub(super) fn lease_id(
    lock: &LockName,
    holder: &Holder,
    fence: Fence,
    token: Fence,
    ttl: std::time::Duration,
) -> String {
    let token = LeaseToken { name: lock.clone(), holder: holder.clone(), fence, token, ttl };
    URL_SAFE_NO_PAD.encode(token.to_string())
}

fn lock_path(lock: &LockName) -> String {
    format!("/v1/locks/{}", encoded(lock.as_str()))
}

/// One segment of a path, or one value of a query. Dots too: `..` would mean something else.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~');

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn lock(name: &str) -> LockName {
        LockName::new(name).unwrap()
    }

    #[test]
    fn calls_are_what_the_interface_says() {
        let (lock, holder) = (lock("invoice/42"), Holder::new("billing@host1", 0xfeed).unwrap());
        let ttl = Ttl::new(Duration::from_secs(10)).unwrap();
        let call = Call::acquire(&lock, &holder, ttl);
        assert_eq!(
            (call.method, call.path.as_str()),
            (Method::POST, "/v1/locks/invoice%2F42/leases")
        );
        let body: serde_json::Value = serde_json::from_str(&call.body.unwrap()).unwrap();
        let nonce = "0000000000000000000000000000feed";
        let expected =
            json!({"holder": "billing@host1", "nonce": nonce, "ttl_ms": 10_000, "wait_ms": 0});
        assert_eq!(body, expected);
        for (reason, expected) in [
            (None, "through the leasehold library by ana".to_owned()),
            (Some("db1 is dead".to_owned()), "db1 is dead (by ana)".to_owned()),
            (Some("é".repeat(501)), format!("{} (by ana)", "é".repeat(491))),
        ] {
            let fence = Fence::new(7).unwrap();
            let call = Call::force_release(&lock, fence, "ana", reason.as_deref());
            assert_eq!(call.path, "/v1/locks/invoice%2F42/force-release");
            let body: serde_json::Value = serde_json::from_str(&call.body.unwrap()).unwrap();
            assert_eq!(body, json!({"expected_fence": 7, "reason": expected}));
        }
        assert_eq!(
            Call::list("a b/", Some("x=&")).path,
            "/v1/locks?limit=1000&prefix=a%20b%2F&cursor=x%3D%26"
        );
        assert_eq!(Call::inspect(&lock), Call::get("/v1/locks/invoice%2F42"));
    }

    #[test]
    fn no_name_leaves_its_segment() {
        for name in [".", "..", "a/../b", "a?b#c", "é ☂", "%2F", "a\\b", ";x"] {
            let path = Call::inspect(&lock(name)).path;
            let segment = path.strip_prefix("/v1/locks/").unwrap();
            assert!(
                segment.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_~%".contains(&b)),
                "{path}"
            );
            let decoded = percent_encoding::percent_decode_str(segment).decode_utf8().unwrap();
            assert_eq!(decoded, name);
        }
    }

    #[test]
    fn a_lease_id_is_the_token_of_the_lease_and_fit_for_a_path() {
        let (lock, holder) = (lock("a/b"), Holder::new("ana", 7).unwrap());
        let fence = Fence::new(1_700_000_000_000_001).unwrap();
        let id = lease_id(&lock, &holder, fence, fence, Duration::from_secs(10));
        assert!(id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)), "{id}");
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(&id).unwrap()).unwrap();
        let token: LeaseToken = text.parse().unwrap();
        assert_eq!((token.name, token.holder.clone()), (lock.clone(), holder.clone()));
        assert_eq!((token.fence, token.token, token.ttl.as_secs()), (fence, fence, 10));
        // What releases is readable, too, whatever the lease was.
        let path = Call::release(&lock, &holder).path;
        let id = path.strip_prefix("/v1/leases/").unwrap();
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(id).unwrap()).unwrap();
        let token: LeaseToken = text.parse().unwrap();
        assert_eq!((token.name, token.holder), (lock, holder));
    }
}
