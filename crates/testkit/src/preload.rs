//! Libraries that are preloaded into a program: compiled once, with the system's `cc`.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::locate::servers_dir;

/// The library made of `source`. Its file name carries a hash of the source, and it is moved into
/// place whole, so test processes that compile it at the same time cannot hurt each other.
pub(crate) fn library(name: &str, source: &str) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    source.hash(&mut hasher);
    let dir = servers_dir();
    let library = dir.join(format!("{name}-{:016x}.so", hasher.finish()));
    if !library.exists() {
        fs::create_dir_all(&dir).expect("a folder for the library");
        compile(&dir, &library, name, source);
    }
    fs::canonicalize(library).expect("the library is there")
}

/// Has `program` load `library` before all others.
pub(crate) fn preload(program: &mut Command, library: &Path) {
    let mut preload = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    if !preload.is_empty() {
        preload.push(":");
    }
    preload.push(library);
    program.env("LD_PRELOAD", preload);
}

fn compile(dir: &Path, library: &Path, name: &str, text: &str) {
    let work = tempfile::tempdir_in(dir).expect("a folder to compile in");
    let source = work.path().join(format!("{name}.c"));
    let built = work.path().join(format!("{name}.so"));
    fs::write(&source, text).expect("the source can be written");
    let cc = Command::new("cc")
        .args(["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o"])
        .args([&built, &source])
        .output()
        .unwrap_or_else(|error| panic!("cc cannot be run ({error}): install gcc"));
    assert!(
        cc.status.success(),
        "cc could not compile {name}.c:\n{}",
        String::from_utf8_lossy(&cc.stderr)
    );
    fs::rename(&built, library).expect("the library can be moved into place");
}
