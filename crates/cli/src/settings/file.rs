//! The settings file: where it is, and what stands in it. A typo in it is named with its line.
//!
//! Nothing of the file's text goes into an error except keys: a value may be a password.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::{KEYS, Lookup, Source, serve};
use crate::exit::Failure;

/// The one table.
const TABLE: &str = "serve";

/// What a file says, by key; those of the table `[serve]` are called `serve.KEY`.
#[derive(Debug, Default)]
pub(crate) struct File {
    pub(crate) path: Option<PathBuf>,
    values: BTreeMap<String, Given>,
}

/// A value: its text, or the texts of its list, and the line it stands in.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) texts: Vec<String>,
    line: usize,
}

impl Given {
    pub(super) fn text(&self) -> &str {
        self.texts.first().map_or("", String::as_str)
    }
}

/// What a key may have as its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Switch,
    List,
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
        let mut reading = Reading { path: &path, text, values: BTreeMap::new() };
        let table = DeTable::parse(text).map_err(|error| {
            reading.wrong(error.span().unwrap_or_default(), error.message().to_owned())
        })?;
        for (key, value) in table.get_ref() {
            match (key.get_ref().as_ref(), value.get_ref()) {
                (TABLE, DeValue::Table(table)) => {
                    for (key, value) in table {
                        reading.take(Some(TABLE), key, value)?;
                    }
                }
                (TABLE, _) => {
                    let reason = "`serve` must be a table: [serve], and its keys below it";
                    return Err(reading.wrong(value.span(), reason.into()));
                }
                _ => reading.take(None, key, value)?,
            }
        }
        let values = reading.values;
        Ok(Self { path: Some(path), values })
    }

    /// A value, and where it stands.
    pub(super) fn get(&self, name: &str) -> Option<(&Given, Source)> {
        let given = self.values.get(name)?;
        let path = self.path.clone().unwrap_or_default();
        Some((given, Source::File { path, line: given.line }))
    }
}

/// A file that is being read.
struct Reading<'a> {
    path: &'a Path,
    text: &'a str,
    values: BTreeMap<String, Given>,
}

impl Reading<'_> {
    fn wrong(&self, at: Range<usize>, reason: String) -> Failure {
        let line = self.line_of(at);
        Failure::Config(format!("{}, line {line}: {reason}", self.path.display()))
    }

    fn line_of(&self, at: Range<usize>) -> usize {
        self.text.bytes().take(at.start).filter(|byte| *byte == b'\n').count() + 1
    }

    /// Notes a value, of a key at the top or in the table.
    fn take(
        &mut self,
        table: Option<&str>,
        key: &Spanned<DeString<'_>>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<(), Failure> {
        let name = key.get_ref().as_ref();
        let kind =
            kind_of(table, name).ok_or_else(|| self.wrong(key.span(), unknown(name, table)))?;
        let name = table.map_or_else(|| name.to_owned(), |table| format!("{table}.{name}"));
        let texts =
            texts_of(kind, value).ok_or_else(|| self.wrong(value.span(), wanted(&name, kind)))?;
        let line = self.line_of(key.span());
        self.values.insert(name, Given { texts, line });
        Ok(())
    }
}

/// What a key may have, if it is known.
fn kind_of(table: Option<&str>, name: &str) -> Option<Kind> {
    match table {
        Some(_) => serve::KEYS.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind),
        None => KEYS.iter().any(|(known, _)| *known == name).then_some(Kind::Text),
    }
}

/// A folder that is a file, or has none, holds no settings either.
fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

/// What a value says, if it is what its key may have.
fn texts_of(kind: Kind, value: &Spanned<DeValue<'_>>) -> Option<Vec<String>> {
    match (kind, value.get_ref()) {
        (Kind::List, DeValue::Array(values)) => values.iter().map(text_of).collect(),
        (Kind::Switch, DeValue::Boolean(value)) => Some(vec![value.to_string()]),
        (Kind::Switch, _) => None,
        _ => Some(vec![text_of(value)?]),
    }
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

fn wanted(name: &str, kind: Kind) -> String {
    let key = name.rsplit('.').next().unwrap_or(name);
    match kind {
        Kind::Text => format!("`{name}` must be a text in quotes, like {key} = \"…\""),
        Kind::Switch => format!("`{name}` must be true or false, without quotes"),
        Kind::List => format!("`{name}` must be a list of texts, like {key} = [\"…\", \"…\"]"),
    }
}

/// A key that is not known at the top of the file, or in a table.
fn unknown(name: &str, table: Option<&str>) -> String {
    let in_table = serve::KEYS.map(|(known, _)| known);
    let at_top = KEYS.map(|(known, _)| known).into_iter().chain([TABLE]);
    let known: Vec<&str> = match table {
        Some(_) => in_table.to_vec(),
        None => at_top.collect(),
    };
    let prefix = table.map_or(String::new(), |table| format!("{table}."));
    if table.is_none() && in_table.contains(&name) {
        return format!("unknown setting `{name}`; it belongs below [{TABLE}]");
    }
    let near = known
        .iter()
        .map(|known| (strsim::damerau_levenshtein(&name.to_lowercase(), known), known))
        .min()
        .filter(|(distance, known)| *distance <= known.len().div_ceil(2));
    match near {
        Some((_, near)) => {
            format!("unknown setting `{prefix}{name}`; did you mean `{prefix}{near}`?")
        }
        None => format!("unknown setting `{prefix}{name}`; known are {}", known.join(", ")),
    }
}
