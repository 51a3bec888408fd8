//! Who asks: a readable label and a random part that is never used twice.

use std::fmt;
use std::sync::Arc;

/// The longest label, in bytes. The label is read by people; the nonce is what counts.
pub const LABEL_BYTES_MAX: usize = 200;

/// One attempt to hold a lock: `label:32hex`, printable ASCII.
///
/// The hex part is 128 bits drawn afresh for every acquire, so a holder that gave up or released
/// can never be mistaken for a later one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(Arc<str>);

/// Why a text cannot be a holder's label, or is not a holder at all.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HolderError {
    /// The label is empty.
    Empty,
    /// The label is longer than [`LABEL_BYTES_MAX`].
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The label has something other than printable ASCII.
    NotPrintable {
        /// The first such character.
        character: char,
    },
    /// The text does not end in a colon and 32 hexadecimal digits.
    NoNonce,
}

/// Hexadecimal digits of the nonce: 128 bits.
const NONCE_DIGITS: usize = 32;

impl Holder {
    /// A holder from a label and 128 fresh random bits, which the caller draws.
    pub fn new(label: &str, nonce: u128) -> Result<Self, HolderError> {
        Self::check_label(label)?;
        // Made for each acquire, so without the detour of formatting.
        let mut text = [b':'; LABEL_BYTES_MAX + 1 + NONCE_DIGITS];
        let end = label.len() + 1 + NONCE_DIGITS;
        text[..label.len()].copy_from_slice(label.as_bytes());
        for (at, digit) in text[label.len() + 1..end].iter_mut().enumerate() {
            let nibble = (nonce >> (4 * (NONCE_DIGITS - 1 - at))) & 0xf;
            *digit = b"0123456789abcdef"[nibble as usize];
        }
        let text = std::str::from_utf8(&text[..end]).expect("a label is ASCII");
        Ok(Self(text.into()))
    }

    /// Whether `label` may stand before the nonce.
    pub fn check_label(label: &str) -> Result<(), HolderError> {
        if label.is_empty() {
            return Err(HolderError::Empty);
        }
        if label.len() > LABEL_BYTES_MAX {
            return Err(HolderError::TooLong { bytes: label.len() });
        }
        match label.chars().find(|c| !(' '..='~').contains(c)) {
            Some(character) => Err(HolderError::NotPrintable { character }),
            None => Ok(()),
        }
    }

    /// Reads a holder back from what a node stores.
    pub fn parse(text: &str) -> Result<Self, HolderError> {
        let (label, nonce) = text.rsplit_once(':').ok_or(HolderError::NoNonce)?;
        let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if nonce.len() != NONCE_DIGITS || !nonce.bytes().all(is_hex) {
            return Err(HolderError::NoNonce);
        }
        Self::check_label(label)?;
        Ok(Self(text.into()))
    }

    /// The value as it stands on the nodes.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first half of the random part. The asker may put there what tells its holders from
    /// those of others.
    pub fn mark(&self) -> u64 {
        let at = self.0.len() - NONCE_DIGITS;
        u64::from_str_radix(&self.0[at..at + NONCE_DIGITS / 2], 16).expect("hexadecimal digits")
    }

    /// The part for people: `user@host:pid`, or what the caller gave.
    pub fn label(&self) -> &str {
        &self.0[..self.0.len() - NONCE_DIGITS - 1]
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", &self.0)
    }
}

impl fmt::Display for HolderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a holder's label must not be empty"),
            Self::TooLong { bytes } => {
                write!(
                    f,
                    "a holder's label has at most {LABEL_BYTES_MAX} bytes, this one has {bytes}"
                )
            }
            Self::NotPrintable { character } => {
                write!(f, "a holder's label is printable ASCII, this one has {character:?}")
            }
            Self::NoNonce => f.write_str("not a holder: it does not end in `:` and 32 hex digits"),
        }
    }
}

impl std::error::Error for HolderError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_reads_back_as_written() {
        let holder = Holder::new("ana@db1:4711", 0xfeed).unwrap();
        assert_eq!(holder.as_str(), "ana@db1:4711:0000000000000000000000000000feed");
        assert_eq!(holder.label(), "ana@db1:4711");
        assert_eq!(Holder::parse(holder.as_str()), Ok(holder));
    }

    #[test]
    fn another_librarys_value_is_not_a_holder() {
        for foreign in [
            "",
            "f00",
            "x:123",
            ":0000000000000000000000000000feed",
            "a:0000000000000000000000000000FEED",
        ] {
            assert!(Holder::parse(foreign).is_err(), "{foreign:?}");
        }
    }

    #[test]
    fn labels_are_printable_and_short() {
        assert_eq!(Holder::new("", 1), Err(HolderError::Empty));
        assert_eq!(Holder::new(&"x".repeat(201), 1), Err(HolderError::TooLong { bytes: 201 }));
        assert_eq!(Holder::new("é", 1), Err(HolderError::NotPrintable { character: 'é' }));
        assert!(Holder::new("a\nb", 1).is_err());
    }
}
