//! A lease written down as text, for those who extend or release it from another process.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use leasehold_core::{Fence, Holder, Lease, LockName, Ttl};

use crate::error::OptionsError;

/// A lease as text: `lease1:FENCE:TTL_MS:HOLDER/NAME`, percent-encoded where needed; `FENCE-TOKEN`
/// if it was refreshed while somebody kept it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseToken {
    /// Which lock.
    pub name: LockName,
    /// Who holds it.
    pub holder: Holder,
    /// The fencing token.
    pub fence: Fence,
    /// What the nodes have for it: the fence, or a higher number since it was refreshed.
    pub token: Fence,
    /// How long the nodes keep it after each extension.
    pub ttl: Duration,
}

/// Stands first in each token; the number goes up when the format changes.
const FORMAT: &str = "lease1";

impl LeaseToken {
    pub(crate) fn of(lease: &Lease) -> Self {
        Self {
            name: lease.lock.clone(),
            holder: lease.holder.clone(),
            fence: lease.fence,
            token: lease.token,
            ttl: lease.ttl.get(),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(FORMAT)?.strip_prefix(':')?;
        let (fence, rest) = rest.split_once(':')?;
        let (ttl, rest) = rest.split_once(':')?;
        let (holder, name) = rest.split_once('/')?;
        let plain = |text: &str| {
            let decoded = percent_encoding::percent_decode_str(text).decode_utf8().ok()?;
            Some(decoded.into_owned())
        };
        let ttl = Duration::from_millis(ttl.parse().ok()?);
        let (fence, token) = fence.split_once('-').unwrap_or((fence, fence));
        let number = |text: &str| Fence::new(text.parse().ok()?);
        Some(Self {
            name: LockName::new(plain(name)?).ok()?,
            holder: Holder::parse(&plain(holder)?).ok()?,
            fence: number(fence)?,
            token: number(token)?,
            ttl: Ttl::new(ttl).ok()?.get(),
        })
    }
}

impl fmt::Display for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let encode = |text| percent_encoding::utf8_percent_encode(text, ENCODED);
        let (holder, name) = (encode(self.holder.as_str()), encode(self.name.as_str()));
        write!(f, "{FORMAT}:{}", self.fence)?;
        if self.token != self.fence {
            write!(f, "-{}", self.token)?;
        }
        write!(f, ":{}:{holder}/{name}", self.ttl.as_millis())
    }
}

/// Everything that a shell, a URL or our own separators would trip over.
const ENCODED: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'@')
    .remove(b':');

impl FromStr for LeaseToken {
    type Err = OptionsError;

    fn from_str(text: &str) -> Result<Self, OptionsError> {
        Self::parse(text).ok_or_else(|| OptionsError::Value {
            name: "lease token".into(),
            value: text.chars().take(40).collect(),
            reason: "it is not one that `acquire` prints".into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(name: &str) -> LeaseToken {
        let lease = Lease {
            lock: LockName::new(name).unwrap(),
            holder: Holder::new("ana@db 1:7", 5).unwrap(),
            fence: Fence::new(1_700_000_000_000_001).unwrap(),
            token: Fence::new(1_700_000_000_000_001).unwrap(),
            ttl: Ttl::new(Duration::from_secs(30)).unwrap(),
            deadline: leasehold_core::Moment::default(),
            uncertain: false,
        };
        LeaseToken::of(&lease)
    }

    #[test]
    fn a_token_reads_back_as_written_and_needs_no_quotes() {
        for name in ["nightly", "a/b:c", "émile ☂", "x'\"$(rm)", "%41"] {
            let text = token(name).to_string();
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.@:/%".contains(&b);
            assert!(text.bytes().all(plain), "{text}");
            assert_eq!(text.parse::<LeaseToken>(), Ok(token(name)), "{text}");
        }
        let mut refreshed = token("l");
        refreshed.token = refreshed.fence.next();
        let text = refreshed.to_string();
        assert!(text.starts_with("lease1:1700000000000001-1700000000000002:30000:"), "{text}");
        assert_eq!(text.parse::<LeaseToken>(), Ok(refreshed));
    }

    #[test]
    fn what_is_no_token_is_refused_with_a_sentence() {
        let good = token("l").to_string();
        for bad in
            ["", "lease1", "lease2:1:2:h/n", &good[..good.len() - 1], &good.replace("30000", "1")]
        {
            let error = bad.parse::<LeaseToken>().unwrap_err().to_string();
            assert!(error.contains("not one that `acquire` prints"), "{error}");
        }
    }
}
