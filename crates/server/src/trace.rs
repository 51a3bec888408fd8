//! W3C trace context: whoever traces its requests finds them in our logs by its own ids.

use std::borrow::Cow;

use hyper::Method;
use hyper::http::request::Parts;
use tracing::{Span, debug_span};

/// The span of a request.
pub(crate) fn span(head: &Parts) -> Span {
    let parent = head.headers.get("traceparent").and_then(|value| value.to_str().ok());
    let context = parent.and_then(parse);
    let (method, path) = (&head.method, head.uri.path());
    // The path is worked out only if somebody reads it.
    match context {
        Some((trace, parent)) => {
            debug_span!("http", %method, path = %without_lease_id(path), trace_id = trace, parent_id = parent)
        }
        None => debug_span!("http", %method, path = %without_lease_id(path)),
    }
}

/// A path for logs: whoever knows a lease id can release the lease.
fn without_lease_id(path: &str) -> Cow<'_, str> {
    const BEFORE: &str = "/v1/leases/";
    let Some(rest) = path.strip_prefix(BEFORE) else { return path.into() };
    let after = rest.find('/').map_or("", |at| &rest[at..]);
    format!("{BEFORE}…{after}").into()
}

/// The trace and the span that a header names: `00-<32 hex>-<16 hex>-<2 hex>`, not all zeros.
fn parse(header: &str) -> Option<(&str, &str)> {
    let mut parts = header.trim().split('-');
    let (version, trace, parent, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_hex = |text: &str, length: usize| {
        text.len() == length
            && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let is_given = |text: &str| text.bytes().any(|b| b != b'0');
    // Later versions may say more.
    let is_whole = version != "00" || parts.next().is_none();
    (is_hex(version, 2)
        && version != "ff"
        && is_hex(trace, 32)
        && is_hex(parent, 16)
        && is_hex(flags, 2)
        && is_given(trace)
        && is_given(parent)
        && is_whole)
        .then_some((trace, parent))
}

/// A method as a label: there must not be as many labels as somebody can think up.
pub(crate) fn method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_ids_do_not_get_into_logs() {
        for (path, shown) in [
            ("/v1/leases/bGVhc2Ux", "/v1/leases/…"),
            ("/v1/leases/bGVhc2Ux/renew", "/v1/leases/…/renew"),
            ("/v1/locks/l/leases", "/v1/locks/l/leases"),
        ] {
            assert_eq!(without_lease_id(path), shown);
        }
    }

    #[test]
    fn only_a_whole_trace_context_counts() {
        let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        assert_eq!(parse(&format!("00-{trace}-{span}-01")), Some((trace, span)));
        assert_eq!(parse(&format!("01-{trace}-{span}-01-more")), Some((trace, span)));
        let zeros = "0".repeat(32);
        for bad in [
            "".to_owned(),
            format!("00-{trace}-{span}"),
            format!("00-{trace}-{span}-01-more"),
            format!("ff-{trace}-{span}-01"),
            format!("00-{zeros}-{span}-01"),
            format!("00-{}-{span}-01", trace.to_uppercase()),
            format!("00-{trace}x-{span}-01"),
        ] {
            assert_eq!(parse(&bad), None, "{bad}");
        }
    }
}
