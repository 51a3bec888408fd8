//! Answers that a proxy makes up in the server's place. They say nothing of the lease: the server may
//! have carried the request out, or never have seen it.

use hyper::StatusCode;
use leasehold_core::NodeError;
use serde_json::Value;

use super::answer::Response;

/// Why an answer with a status that would settle something, or that only proxies give, is not the
/// server's.
pub(super) fn by_a_proxy(response: &Response) -> Option<NodeError> {
    if is_a_problem(&response.body) {
        return None;
    }
    let status = response.status;
    if lost_its_server(response) {
        let reason = format!("a proxy answered {status}: what became of the request is unknown");
        return Some(NodeError::Unreachable { reason });
    }
    let settles = status == StatusCode::GONE;
    let reason = || format!("it answered {status}: is this a lock server?");
    settles.then(|| NodeError::Garbled { reason: reason() })
}

/// Whether a proxy found no server, or waited too long for its answer.
pub(super) fn lost_its_server(response: &Response) -> bool {
    matches!(response.status, StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT)
        && !is_a_problem(&response.body)
}

fn is_a_problem(body: &[u8]) -> bool {
    let document: Option<Value> = serde_json::from_slice(body).ok();
    let kind = document.as_ref().and_then(|document| document.get("type")).and_then(Value::as_str);
    kind.is_some_and(|kind| kind.starts_with("urn:leasehold:problem:"))
}
