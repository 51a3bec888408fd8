//! The list: what is wrong, where it is known from, how to plant it, and who should catch it.
//!
//! A change is a text to find and a text to put there instead, not a diff, so that it survives
//! edits elsewhere in the file. Where the text is not found exactly once, the list is out of date.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::catchers;

/// A known bug.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bug {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// One sentence.
    pub(crate) what: String,
    /// Whose bug it was, or which document names it.
    pub(crate) known: String,
    /// By catcher: what it is to be told.
    pub(crate) catch: BTreeMap<String, String>,
    pub(crate) change: Vec<Change>,
}

/// Which part is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// A rule of nodes, rounds, leases or admission.
    Protocol,
    /// How the rules are carried out.
    Driver,
    /// How one kind of node is spoken to.
    Backend,
    /// What users and programs see.
    Edge,
}

/// A text in a file, and what stands there once the bug is planted.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    pub(crate) file: String,
    pub(crate) find: String,
    pub(crate) replace: String,
}

/// What is wrong with the list.
#[derive(Debug)]
pub(crate) struct ListError(pub(crate) String);

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Protocol, Self::Driver, Self::Backend, Self::Edge];

    /// How many catchers must catch it. A hole in the protocol must not rest on one of them.
    pub(crate) fn demands(self) -> usize {
        match self {
            Self::Protocol => 2,
            Self::Driver | Self::Backend | Self::Edge => 1,
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Protocol => "The protocol",
            Self::Driver => "The driver",
            Self::Backend => "The backends",
            Self::Edge => "The edges",
        }
    }
}

/// Reads the list: every `*.toml` in `folder`, in the order of their names.
pub(crate) fn read(folder: &Path) -> Result<Vec<Bug>, ListError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        bug: Vec<Bug>,
    }
    let system = |error: std::io::Error| ListError(format!("{}: {error}", folder.display()));
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(system)? {
        files.push(entry.map_err(system)?.path());
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    let mut bugs = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).map_err(system)?;
        let parsed: File = toml::from_str(&text)
            .map_err(|error| ListError(format!("{}: {error}", file.display())))?;
        bugs.extend(parsed.bug);
    }
    check(&bugs)?;
    Ok(bugs)
}

fn check(bugs: &[Bug]) -> Result<(), ListError> {
    let mut names = BTreeSet::new();
    for bug in bugs {
        let wrong = |what: String| Err(ListError(format!("bug `{}`: {what}", bug.name)));
        if !names.insert(&bug.name) {
            return wrong("the name is used twice".into());
        }
        if bug.change.is_empty() {
            return wrong("it changes nothing".into());
        }
        if let Some(unknown) = bug.catch.keys().find(|name| catchers::by_name(name).is_none()) {
            return wrong(format!("there is no catcher `{unknown}`"));
        }
        let (has, needs) = (bug.catch.len(), bug.kind.demands());
        if has < needs {
            return wrong(format!("{has} catcher(s) named, {needs} needed"));
        }
    }
    Ok(())
}

impl Bug {
    /// The files of the tree at `root` as they are with the bug planted.
    pub(crate) fn plant(&self, root: &Path) -> Result<BTreeMap<String, String>, ListError> {
        let mut files = BTreeMap::new();
        for change in &self.change {
            let text = match files.remove(&change.file) {
                Some(text) => text,
                None => fs::read_to_string(root.join(&change.file)).map_err(|error| {
                    ListError(format!("bug `{}`: {}: {error}", self.name, change.file))
                })?,
            };
            files.insert(change.file.clone(), self.apply(change, &text)?);
        }
        Ok(files)
    }

    fn apply(&self, change: &Change, text: &str) -> Result<String, ListError> {
        let Change { file, find, replace } = change;
        match text.matches(find.as_str()).count() {
            1 => Ok(text.replacen(find, replace, 1)),
            count => Err(ListError(format!(
                "bug `{}`: its text is in {file} {count} times instead of once:\n{find}",
                self.name
            ))),
        }
    }
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root;

    /// Below this the list is not worth its name.
    const BUGS_MIN: usize = 30;

    #[test]
    fn every_bug_of_the_list_can_be_planted_in_the_tree_as_it_is() {
        let bugs = read(&root().join("planted/bugs")).unwrap_or_else(|error| panic!("{error}"));
        assert!(bugs.len() >= BUGS_MIN, "{} bugs", bugs.len());
        for bug in &bugs {
            let files = bug.plant(&root()).unwrap_or_else(|error| panic!("{error}"));
            for (file, text) in files {
                assert_ne!(text, fs::read_to_string(root().join(&file)).unwrap(), "{}", bug.name);
            }
        }
        for kind in Kind::ALL {
            assert!(bugs.iter().any(|bug| bug.kind == kind), "{kind:?}");
        }
    }

    fn bug(find: &str) -> Bug {
        let change = Change { file: "f".into(), find: find.into(), replace: "new".into() };
        Bug {
            name: "b".into(),
            kind: Kind::Edge,
            what: String::new(),
            known: String::new(),
            catch: BTreeMap::from([("tests".into(), String::new())]),
            change: vec![change],
        }
    }

    #[test]
    fn a_text_that_is_not_there_exactly_once_names_the_bug() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("f"), "old old older").unwrap();
        assert_eq!(bug("older").plant(folder.path()).unwrap()["f"], "old old new");
        for find in ["ol", "missing"] {
            let error = bug(find).plant(folder.path()).unwrap_err().to_string();
            assert!(error.contains("bug `b`"), "{error}");
        }
    }

    #[test]
    fn a_hole_in_the_protocol_needs_two_catchers_that_exist() {
        assert!(check(&[bug("x")]).is_ok());
        let protocol = Bug { kind: Kind::Protocol, ..bug("x") };
        assert!(check(&[protocol]).unwrap_err().0.contains("2 needed"));
        assert!(check(&[bug("x"), bug("x")]).unwrap_err().0.contains("twice"));
        let mut unknown = bug("x");
        unknown.catch.insert("luck".into(), String::new());
        assert!(check(&[unknown]).unwrap_err().0.contains("no catcher `luck`"));
    }
}
