//! The copy of the source tree in which bugs are planted, so that the real one is never touched.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What is built, fetched or remembered there is not source.
const NOT_SOURCE: [&str; 2] = ["target", ".git"];

/// The copy.
#[derive(Debug)]
pub(crate) struct Tree {
    from: PathBuf,
    to: PathBuf,
}

impl Tree {
    /// Brings the copy at `to` up to date with `from`. A file that is the same stays untouched, so
    /// that cargo builds only what changed.
    pub(crate) fn copy(from: &Path, to: &Path) -> io::Result<Self> {
        let tree = Self { from: from.to_owned(), to: to.to_owned() };
        let mut files = BTreeSet::new();
        collect(from, Path::new(""), &mut files)?;
        let mut old = BTreeSet::new();
        if to.exists() {
            collect(to, Path::new(""), &mut old)?;
        }
        for gone in old.difference(&files) {
            fs::remove_file(to.join(gone))?;
        }
        for file in &files {
            tree.restore(file)?;
        }
        Ok(tree)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.to
    }

    /// Puts `files` into the copy.
    pub(crate) fn plant(&self, files: &BTreeMap<String, String>) -> io::Result<()> {
        files.iter().try_for_each(|(file, text)| fs::write(self.to.join(file), text))
    }

    /// Takes the bug out again.
    pub(crate) fn heal(&self, files: &BTreeMap<String, String>) -> io::Result<()> {
        files.keys().try_for_each(|file| self.restore(Path::new(file)))
    }

    fn restore(&self, file: &Path) -> io::Result<()> {
        let (from, to) = (self.from.join(file), self.to.join(file));
        let content = fs::read(&from)?;
        if fs::read(&to).is_ok_and(|there| there == content) {
            return Ok(());
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&to, content)?;
        fs::set_permissions(&to, fs::metadata(&from)?.permissions())
    }
}

fn collect(root: &Path, folder: &Path, files: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if NOT_SOURCE.iter().any(|name| path == Path::new(name)) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            collect(root, &path, files)?;
        } else {
            files.insert(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_follows_the_source_and_is_healed_after_a_bug() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("src")).unwrap();
        fs::create_dir_all(from.join("target")).unwrap();
        fs::write(from.join("src/a"), "a").unwrap();
        fs::write(from.join("b"), "b").unwrap();
        fs::write(from.join("target/huge"), "x").unwrap();
        let tree = Tree::copy(&from, &to).unwrap();
        assert!(!to.join("target").exists());
        let written = fs::metadata(to.join("b")).unwrap().modified().unwrap();

        let bug = BTreeMap::from([("src/a".to_owned(), "bug".to_owned())]);
        tree.plant(&bug).unwrap();
        assert_eq!(fs::read_to_string(to.join("src/a")).unwrap(), "bug");
        assert_eq!(
            fs::read_to_string(from.join("src/a")).unwrap(),
            "a",
            "the source is left alone"
        );
        tree.heal(&bug).unwrap();
        assert_eq!(fs::read_to_string(to.join("src/a")).unwrap(), "a");

        tree.plant(&bug).unwrap();
        fs::remove_file(from.join("b")).unwrap();
        fs::write(from.join("c"), "c").unwrap();
        Tree::copy(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("src/a")).unwrap(), "a", "also after an abort");
        assert!(!to.join("b").exists() && to.join("c").exists());
        fs::write(from.join("b"), "b").unwrap();
        Tree::copy(&from, &to).unwrap();
        let first = fs::metadata(to.join("c")).unwrap().modified().unwrap();
        Tree::copy(&from, &to).unwrap();
        assert_eq!(fs::metadata(to.join("c")).unwrap().modified().unwrap(), first);
        assert!(fs::metadata(to.join("b")).unwrap().modified().unwrap() >= written);
    }
}
