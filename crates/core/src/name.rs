//! Lock names: one set of rules that is valid in every backend.

use std::fmt;
use std::sync::Arc;

/// The longest name, in bytes: long enough for any path-like name, short enough for a URL segment
/// and a log line.
pub const NAME_BYTES_MAX: usize = 512;

/// Which lock. 1 to 512 bytes of UTF-8 without control characters; cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(Arc<str>);

/// Why a text is not a lock name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameError {
    /// The text is empty.
    Empty,
    /// The text is longer than [`NAME_BYTES_MAX`].
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The text has a control character, which no log, key or URL shows faithfully.
    ControlCharacter {
        /// The character.
        character: char,
        /// Where it stands, in bytes from the start.
        at: usize,
    },
}

impl LockName {
    /// Checks `name` and keeps it, byte for byte.
    pub fn new(name: impl AsRef<str>) -> Result<Self, NameError> {
        let name = name.as_ref();
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong { bytes: name.len() });
        }
        if let Some((at, character)) = name.char_indices().find(|(_, c)| c.is_control()) {
            return Err(NameError::ControlCharacter { character, at });
        }
        Ok(Self(name.into()))
    }

    /// The name as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", &self.0)
    }
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a lock name must not be empty"),
            Self::TooLong { bytes } => {
                write!(f, "a lock name has at most {NAME_BYTES_MAX} bytes, this one has {bytes}")
            }
            Self::ControlCharacter { character, at } => write!(
                f,
                "a lock name must not have control characters, this one has U+{:04X} at byte {at}",
                u32::from(*character)
            ),
        }
    }
}

impl std::error::Error for NameError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_bytes() {
        for good in ["a", "invoice/42", "émile ☂", " leading and trailing ", "-dash"] {
            assert_eq!(LockName::new(good).unwrap().as_str(), good);
        }
        assert!(LockName::new("x".repeat(NAME_BYTES_MAX)).is_ok());
    }

    #[test]
    fn a_bad_name_says_what_is_wrong_with_it() {
        assert_eq!(LockName::new(""), Err(NameError::Empty));
        assert_eq!(LockName::new("x".repeat(513)), Err(NameError::TooLong { bytes: 513 }));
        let newline = LockName::new("ab\ncd").unwrap_err();
        assert_eq!(newline, NameError::ControlCharacter { character: '\n', at: 2 });
        assert!(newline.to_string().contains("U+000A at byte 2"), "{newline}");
        assert!(LockName::new("\u{7f}").is_err() && LockName::new("\u{85}").is_err());
    }
}
