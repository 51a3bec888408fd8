//! Who asks, and what they may.

use std::sync::Arc;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, ORIGIN};
use leasehold::LockName;
use serde_json::json;

use crate::access::UnderWay;
use crate::app::App;
use crate::problem::{Kind, Problem};
use crate::tokens::Token;

/// Whoever sent a request, known and within its limits.
pub(crate) struct Caller {
    pub(crate) name: Arc<str>,
    /// The address it came from.
    from: Arc<str>,
    /// None where no tokens are asked for.
    token: Option<Arc<Token>>,
    _under_way: UnderWay,
}

impl Caller {
    /// Whoever sent these headers from this address.
    pub(crate) fn of(app: &App, headers: &HeaderMap, from: &Arc<str>) -> Result<Self, Problem> {
        let refuse = |kind, why| {
            app.ledger.denied((from, from), None, why);
            Problem::new(kind, why)
        };
        let begin = |name| app.access.begin(name, app.limits().max_requests_per_token);
        is_own_page(headers).map_err(|why| refuse(Kind::Forbidden, why))?;
        let access = app.access.rules();
        let Some(tokens) = &access.tokens else {
            if !is_plain_host(headers) {
                let why = "without tokens the server must be called by its address or as localhost";
                return Err(refuse(Kind::Forbidden, why));
            }
            let under_way = begin(from)?;
            let (name, from) = (from.clone(), from.clone());
            return Ok(Self { name, from, token: None, _under_way: under_way });
        };
        let presented = presented(headers);
        let found = presented.as_deref().and_then(|text| tokens.find(text, SystemTime::now()));
        let Some(token) = found.cloned() else {
            return Err(match presented {
                Some(_) => {
                    refuse(Kind::Unauthorized, "this token is not known here, or has expired")
                }
                // Our own page asks before anybody could type one.
                None if says_own_page(headers) => Problem::new(Kind::Unauthorized, NO_TOKEN),
                None => refuse(Kind::Unauthorized, NO_TOKEN),
            });
        };
        let name = token.name.clone();
        let under_way = begin(&name)?;
        Ok(Self { name, from: from.clone(), token: Some(token), _under_way: under_way })
    }

    /// Refuses, for the record.
    fn refuse(&self, app: &App, needs: String, lock: Option<&LockName>) -> Problem {
        let detail = format!("`{}` lacks the scope {needs}", self.name);
        app.ledger.denied(self.who(), lock, &detail);
        Problem::new(Kind::Forbidden, detail).with("needs", json!(needs))
    }

    /// May it take and keep this lock?
    pub(crate) fn may_lock(&self, app: &App, lock: &LockName) -> Result<(), Problem> {
        match &self.token {
            Some(token) if !token.may_lock(lock.as_str()) => {
                Err(self.refuse(app, format!("lock:{lock}"), Some(lock)))
            }
            _ => Ok(()),
        }
    }

    /// May it look at everything?
    pub(crate) fn may_read(&self, app: &App) -> Result<(), Problem> {
        match &self.token {
            Some(token) if !token.may_read() => Err(self.refuse(app, "read".into(), None)),
            _ => Ok(()),
        }
    }

    /// May it look at this lock?
    pub(crate) fn may_see(&self, app: &App, lock: &LockName) -> Result<(), Problem> {
        match &self.token {
            Some(token) if !token.may_read() && !token.may_lock(lock.as_str()) => {
                Err(self.refuse(app, "read".into(), Some(lock)))
            }
            _ => Ok(()),
        }
    }

    /// May it take locks away?
    pub(crate) fn must_be_admin(&self, app: &App, lock: &LockName) -> Result<(), Problem> {
        if self.is_admin() { Ok(()) } else { Err(self.refuse(app, "admin".into(), Some(lock))) }
    }

    /// Ready when it may not take this lock any more: its token expired, or was revoked or changed.
    pub(crate) async fn denied(&self, app: &App, lock: &LockName) {
        let Some(token) = &self.token else { return std::future::pending().await };
        loop {
            let (rules, now) = (app.access.rules(), SystemTime::now());
            let same = rules.tokens.as_ref().and_then(|tokens| tokens.same(token, now));
            let Some(same) = same.filter(|token| token.may_lock(lock.as_str())) else { return };
            let left = same.expires.and_then(|end| end.duration_since(now).ok());
            let expired = async {
                match left {
                    Some(left) => tokio::time::sleep(left).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = rules.replaced.cancelled() => {}
                () = expired => {}
            }
        }
    }

    /// For the record: its name, and the address it came from.
    pub(crate) fn who(&self) -> (&str, &str) {
        (&self.name, &self.from)
    }

    /// Whether its token has expired since.
    pub(crate) fn is_over(&self, now: SystemTime) -> bool {
        self.token.as_ref().and_then(|token| token.expires).is_some_and(|end| end <= now)
    }

    pub(crate) fn is_admin(&self) -> bool {
        self.token.as_ref().is_none_or(|token| token.is_admin())
    }
}

const NO_TOKEN: &str = "send a token: Authorization: Bearer TOKEN";

/// Whether a browser says that this comes from a page of ours.
fn says_own_page(headers: &HeaderMap) -> bool {
    headers.get("sec-fetch-site").is_some_and(|site| site == "same-origin")
}

/// The token of a request: as a bearer, or as the password of whomever.
fn presented(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, rest) = text.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.trim().to_owned());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(rest.trim()).ok()?).ok()?;
    decoded.split_once(':').map(|(_, password)| password.to_owned())
}

/// Another site's page must not ask in the name of whoever looks at it. Browsers say where a request
/// comes from; programs do not.
fn is_own_page(headers: &HeaderMap) -> Result<(), &'static str> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(site) = text("sec-fetch-site")
        && !matches!(site, "same-origin" | "none")
    {
        return Err("this request comes from another site's page");
    }
    if let Some(origin) = text(ORIGIN.as_str()) {
        let host = origin.split_once("://").map_or(origin, |(_, host)| host);
        if text(HOST.as_str()) != Some(host) {
            return Err("this request comes from another site's page");
        }
    }
    Ok(())
}

/// Where nobody needs a token, a name that somebody else's DNS points at us must not be one to reach us
/// by.
fn is_plain_host(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST).and_then(|value| value.to_str().ok()) else {
        return true;
    };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_token_comes_as_a_bearer_or_as_a_password() {
        let of = |value| presented(&headers(&[("authorization", value)]));
        assert_eq!(of("Bearer lh_x").as_deref(), Some("lh_x"));
        assert_eq!(of("bearer  lh_x ").as_deref(), Some("lh_x"));
        assert_eq!(of("Basic dXNlcjpsaF94").as_deref(), Some("lh_x"));
        for none in ["lh_x", "Basic ???", "Basic eA==", "Digest lh_x"] {
            assert_eq!(of(none), None, "{none}");
        }
    }

    #[test]
    fn another_sites_page_is_refused() {
        assert!(is_own_page(&headers(&[])).is_ok());
        assert!(is_own_page(&headers(&[("sec-fetch-site", "same-origin")])).is_ok());
        assert!(is_own_page(&headers(&[("sec-fetch-site", "cross-site")])).is_err());
        let own = [("origin", "http://a:1"), ("host", "a:1")];
        assert!(is_own_page(&headers(&own)).is_ok());
        for origin in ["http://b:1", "http://a:2", "null"] {
            assert!(is_own_page(&headers(&[("origin", origin), ("host", "a:1")])).is_err());
        }
    }

    #[test]
    fn without_tokens_only_addresses_and_localhost_are_hosts() {
        for (host, expected) in [
            ("localhost:7717", true),
            ("127.0.0.1", true),
            ("[::1]:7717", true),
            ("evil.example:7717", false),
            ("127.0.0.1.evil.example", false),
        ] {
            assert_eq!(is_plain_host(&headers(&[("host", host)])), expected, "{host}");
        }
    }
}
