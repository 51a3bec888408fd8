//! The settings file: where it is, and what stands in it. A typo in it is named with its line.
//!
//! Nothing of the file's text goes into an error except keys: a value may be a password.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{KEYS, Lookup};
use crate::exit::Failure;

/// What a file says: texts, and the lines they stand in.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) path: Option<PathBuf>,
    pub(super) values: BTreeMap<String, (String, usize)>,
}

impl File {
    /// The file that was named, which must be there, or the first in the usual places.
    pub(super) fn find(named: Option<&Path>, environment: Lookup<'_>) -> Result<Self, Failure> {
        let set = |name| environment(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let named = named.map(Path::to_owned).or_else(|| set("LEASEHOLD_CONFIG"));
        let unreadable = |path: &Path, error| {
            Failure::Config(format!("cannot read the settings file {}: {error}", path.display()))
        };
        if let Some(path) = named {
            let text = std::fs::read_to_string(&path).map_err(|error| unreadable(&path, error))?;
            return Self::read(path, &text);
        }
        // XDG: a relative path is to be ignored.
        let home = set("XDG_CONFIG_HOME")
            .filter(|path| path.is_absolute())
            .or_else(|| set("HOME").map(|home| home.join(".config")));
        for folder in home.into_iter().chain([PathBuf::from("/etc")]) {
            let path = folder.join("leasehold/leasehold.toml");
            match std::fs::read_to_string(&path) {
                Ok(text) => return Self::read(path, &text),
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(unreadable(&path, error)),
            }
        }
        Ok(Self::default())
    }

    fn read(path: PathBuf, text: &str) -> Result<Self, Failure> {
        let wrong = |at: Range<usize>, reason: String| {
            let line = line_of(text, at.start);
            Failure::Config(format!("{}, line {line}: {reason}", path.display()))
        };
        let table = DeTable::parse(text)
            .map_err(|error| wrong(error.span().unwrap_or_default(), error.message().to_owned()))?;
        let mut values = BTreeMap::new();
        for (key, value) in table.get_ref() {
            let name = key.get_ref().as_ref();
            if !KEYS.iter().any(|(known, _)| *known == name) {
                return Err(wrong(key.span(), unknown(name)));
            }
            let text_of = text_of(value).ok_or_else(|| {
                let reason = format!("`{name}` must be a text in quotes, like {name} = \"…\"");
                wrong(value.span(), reason)
            })?;
            values.insert(name.to_owned(), (text_of, line_of(text, key.span().start)));
        }
        Ok(Self { path: Some(path), values })
    }
}

/// A folder that is a file, or has none, holds no settings either.
fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

/// Texts, and numbers for whoever writes `ttl = 30`.
fn text_of(value: &Spanned<DeValue<'_>>) -> Option<String> {
    match value.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        _ => None,
    }
}

fn unknown(name: &str) -> String {
    let known = KEYS.map(|(known, _)| known);
    let near = known
        .iter()
        .map(|known| (strsim::damerau_levenshtein(&name.to_lowercase(), known), known))
        .min()
        .filter(|(distance, known)| *distance <= known.len().div_ceil(2));
    match near {
        Some((_, near)) => format!("unknown setting `{name}`; did you mean `{near}`?"),
        None => format!("unknown setting `{name}`; known are {}", known.join(", ")),
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}
