//! What of a backend URL may stand in a log or an error. A password never may, however malformed
//! the URL is; where it is unclear what is a password, more is hidden.

/// A backend URL as it may be shown: nobody finds a password in a log.
pub fn without_password(url: &str) -> String {
    let urls = split_urls(url);
    let is_known = |url: &&str| SCHEMES.iter().any(|scheme| url.starts_with(scheme));
    // Where only some have credentials, a password may hold what looks like a URL.
    if urls.len() > 1 && urls.iter().all(|url| url.contains('@') && is_known(url)) {
        return urls.into_iter().map(hide_password).collect();
    }
    hide_password(url)
}

const SCHEMES: [&str; 6] =
    ["redis://", "rediss://", "unix://", "redis+unix://", "http://", "https://"];

/// A part of a URL as it may stand in an error: what comes before the last `@` may be a password.
pub(crate) fn quotable(part: &str, url: &str) -> String {
    match url.rsplit_once('@') {
        Some((_, after)) if !after.contains(part) => "…".to_owned(),
        _ => part.to_owned(),
    }
}

/// Whether a text can stand before `://`.
pub(crate) fn is_scheme(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+')
}

/// Cuts before each further URL of a list; the separators stay with the one before.
fn split_urls(text: &str) -> Vec<&str> {
    let (mut urls, mut rest, mut from) = (Vec::new(), text, 0);
    while let Some(at) = rest[from..].find([',', ' ', '\t', '\n', '\r']).map(|at| at + from + 1) {
        let scheme = rest[at..].split_once("://").map_or("", |(scheme, _)| scheme);
        if is_scheme(scheme) {
            urls.push(&rest[..at]);
            (rest, from) = (&rest[at..], 0);
        } else {
            from = at;
        }
    }
    urls.push(rest);
    urls
}

/// A password may hold an `@` by mistake: everything up to the last one is hidden.
fn hide_password(url: &str) -> String {
    match url.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) {
        Some((scheme, rest)) => match rest.rfind('@') {
            Some(at) => {
                // Nobody but a lock server takes a token; one without its colon is none the less one.
                let has_users = !matches!(scheme, "http" | "https");
                let user = rest[..at].split(':').next().filter(|_| has_users).unwrap_or_default();
                format!("{scheme}://{user}:***@{}", &rest[at + 1..])
            }
            None => format!("{scheme}://{}", hide_odd_port(rest)),
        },
        // Somebody forgot the scheme. The path of a file may well have an `@` in it.
        None => match url.rsplit_once('@') {
            Some((_, after)) if !url.starts_with("sqlite:") => format!("***@{after}"),
            _ => url.to_owned(),
        },
    }
}

/// A password whose `@` got lost stands where a port should.
fn hide_odd_port(rest: &str) -> String {
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let mut from = 0;
    for address in authority.split(',') {
        // The colons of an IPv6 address stand in brackets.
        let bracket = address.rfind(']').map_or(0, |at| at + 1);
        if let Some(colon) = address[bracket..].find(':') {
            let port = from + bracket + colon + 1;
            if !address[bracket + colon + 1..].bytes().all(|byte| byte.is_ascii_digit()) {
                return format!("{}***", &rest[..port]);
            }
        }
        from += address.len() + 1;
    }
    rest.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_never_shown() {
        for (url, shown) in [
            ("redis://u:secret@a:1,b/0", "redis://u:***@a:1,b/0"),
            ("redis://:secret@a", "redis://:***@a"),
            ("redis://u:se@cret@a", "redis://u:***@a"),
            ("redis://u:se/cret@a", "redis://u:***@a"),
            ("redis://a,b", "redis://a,b"),
            ("redis://a:secret@x,redis://b:secret@y/1", "redis://a:***@x,redis://b:***@y/1"),
            ("redis://x redis://b:secret@y", "redis://x redis:***@y"),
            ("redis://b:secret@y redis://x", "redis://b:***@y redis://x"),
            ("redis://u:secret,x://secret@a", "redis://u:***@a"),
            ("redis://u:secret?secret@a", "redis://u:***@a"),
            ("sqlite:x@y", "sqlite:x@y"),
            ("u:secret@a", "***@a"),
            ("u:secret@x://a", "***@x://a"),
            ("redis://u:@,secret://@a", "redis://u:***@a"),
            ("https://:secret@a:1/?ca=x", "https://:***@a:1/?ca=x"),
            ("https://secret@a", "https://:***@a"),
            ("http://secret:secret@a", "http://:***@a"),
            // Its end got lost.
            ("redis://u:se#cret", "redis://u:***"),
            ("redis://a:1,u:secret", "redis://a:1,u:***"),
            ("redis://[::1]:6379,b:1/0?x=a:b", "redis://[::1]:6379,b:1/0?x=a:b"),
            ("unix:///run/a:b.sock", "unix:///run/a:b.sock"),
            ("https://:secret@a,https://:secret@b", "https://:***@a,https://:***@b"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }
}
