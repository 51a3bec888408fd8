//! Lock names: one set of rules that is valid in every backend.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The longest name, in bytes: long enough for any path-like name, short enough for a URL segment
/// and a log line.
pub const NAME_BYTES_MAX: usize = 512;

/// Which lock. 1 to 512 bytes of UTF-8 without control characters, characters of no width and marks of
/// direction; cheap to clone.
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
    /// The text has a character that nobody sees, or that turns the text around: it could look like
    /// another name.
    Unseen {
        /// The character.
        character: char,
        /// Where it stands, in bytes from the start.
        at: usize,
    },
}

/// Characters without a width, and those that change the direction of others: Unicode's
/// `Default_Ignorable_Code_Point`, the line and paragraph separators, and the interlinear marks.
const UNSEEN: [RangeInclusive<char>; 18] = [
    '\u{ad}'..='\u{ad}',
    '\u{34f}'..='\u{34f}',
    '\u{61c}'..='\u{61c}',
    '\u{115f}'..='\u{1160}',
    '\u{17b4}'..='\u{17b5}',
    '\u{180b}'..='\u{180f}',
    '\u{200b}'..='\u{200f}',
    '\u{2028}'..='\u{202e}',
    '\u{2060}'..='\u{206f}',
    '\u{3164}'..='\u{3164}',
    '\u{fe00}'..='\u{fe0f}',
    '\u{feff}'..='\u{feff}',
    '\u{ffa0}'..='\u{ffa0}',
    '\u{fff0}'..='\u{fffb}',
    '\u{1bca0}'..='\u{1bca3}',
    '\u{1d173}'..='\u{1d17a}',
    '\u{e0000}'..='\u{e007f}',
    '\u{e0080}'..='\u{e0fff}',
];

fn is_unseen(character: char) -> bool {
    !character.is_ascii() && UNSEEN.iter().any(|range| range.contains(&character))
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
        if let Some((at, character)) = name.char_indices().find(|(_, c)| is_unseen(*c)) {
            return Err(NameError::Unseen { character, at });
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
            Self::Unseen { character, at } => write!(
                f,
                "a lock name must not have characters that nobody sees or that change its direction, this \
                 one has U+{:04X} at byte {at}",
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

    #[test]
    fn no_name_can_look_like_another_because_of_what_nobody_sees() {
        // Zero-width, bidirectional, separators, selectors, tags.
        for unseen in [
            '\u{200b}',
            '\u{200d}',
            '\u{200e}',
            '\u{202e}',
            '\u{2066}',
            '\u{2069}',
            '\u{61c}',
            '\u{2028}',
            '\u{2060}',
            '\u{feff}',
            '\u{ad}',
            '\u{fe0f}',
            '\u{3164}',
            '\u{e0041}',
        ] {
            let name = format!("pay{unseen}roll");
            let refused = LockName::new(&name).expect_err(&name.escape_unicode().to_string());
            assert_eq!(refused, NameError::Unseen { character: unseen, at: 3 });
            let code = format!("U+{:04X} at byte 3", u32::from(unseen));
            assert!(refused.to_string().contains(&code), "{refused}");
        }
        // Letters of all scripts, accents of their own, and pictures stay.
        for good in ["שלום", "عقد", "e\u{301}mile", "नमस्ते", "한글", "🔒", "a\u{a0}b"]
        {
            assert_eq!(LockName::new(good).unwrap().as_str(), good);
        }
    }
}
