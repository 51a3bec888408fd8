//! Which part of the library may use which, read from the sources. The compiler does not mind a
//! module that uses its users, but parts that use each other can only be read together.
//!
//! A part is a module of the crate's root, with all that is below it. What the root exports counts
//! as the part that has it. Simulations and fuzz targets are no parts: they may use everything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, iter};

/// What each of these may use besides itself. The others are what callers see, and may use all of
/// these.
const MAY_USE: [(&str, &[&str]); 11] = [
    ("node", &[]),
    ("clock", &[]),
    ("chance", &[]),
    ("error", &["node"]),
    ("home", &["error"]),
    ("background", &["home"]),
    ("redaction", &[]),
    ("token", &["error"]),
    ("nodes", &["background", "chance", "clock", "home", "node", "redaction", "token"]),
    ("driver", &["chance", "clock", "error", "home", "node"]),
    ("guard", &["driver", "error", "token"]),
];

const NO_PARTS: [&str; 3] = ["lib", "simulation", "fuzz"];

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn is_rust(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs")
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let below = folders.iter().flat_map(|folder| files_below(folder));
    files.into_iter().filter(|path| is_rust(path)).chain(below).collect()
}

/// The modules from the root down to this file.
fn module(path: &Path) -> Vec<String> {
    let inside = path.strip_prefix(sources()).unwrap().with_extension("");
    let names = inside.iter().map(|name| name.to_str().unwrap().to_owned());
    names.filter(|name| name != "mod").collect()
}

/// A source without its comments, which may point anywhere.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let code = |line: &str| !line.trim_start().starts_with("//");
    text.lines().filter(|line| code(line)).flat_map(|line| [line, "\n"]).collect()
}

fn ident(text: &str) -> &str {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    &text[..text.find(|c| !is_part(c)).unwrap_or(text.len())]
}

/// What stands first in each branch of a path that begins here: `a::b` or `{a::b, c::{d, e}}`.
fn heads(path: &str) -> Vec<&str> {
    let Some(group) = path.strip_prefix('{') else { return vec![ident(path)] };
    let (mut heads, mut depth, mut from) = (Vec::new(), 0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                heads.push(ident(group[from..at].trim_start()));
                from = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    heads.retain(|head| !head.is_empty());
    heads
}

/// What a file at this depth below the root names of the root.
fn named_of_the_root(code: &str, depth: usize) -> BTreeSet<String> {
    let climb = "super::".repeat(depth);
    let roots = ["crate::", &*climb];
    let named = roots.into_iter().flat_map(|root| {
        let ends = code.match_indices(root).map(move |(at, _)| at + root.len());
        ends.flat_map(|end| heads(&code[end..]))
    });
    named.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Which part has what the root exports, by its name.
fn exports() -> BTreeMap<String, String> {
    let code = code(&sources().join("lib.rs"));
    let mut exports = BTreeMap::new();
    for (at, exported) in code.match_indices("pub use ") {
        let path = &code[at + exported.len()..];
        let part = ident(path);
        let names = path[part.len()..].strip_prefix("::").unwrap();
        exports.extend(heads(names).into_iter().map(|name| (name.to_owned(), part.to_owned())));
    }
    exports
}

/// What each part uses of the others, and where.
fn uses() -> BTreeMap<String, BTreeMap<String, PathBuf>> {
    let (exports, files) = (exports(), files_below(&sources()));
    let parts: BTreeSet<_> = files.iter().map(|path| module(path).swap_remove(0)).collect();
    let mut uses = BTreeMap::<String, BTreeMap<_, _>>::new();
    for path in &files {
        let module = module(path);
        let part = &module[0];
        if NO_PARTS.contains(&part.as_str()) {
            continue;
        }
        let used = uses.entry(part.clone()).or_default();
        for name in named_of_the_root(&code(path), module.len()) {
            let name = exports.get(&name).cloned().unwrap_or(name);
            if name != *part && parts.contains(&name) {
                used.insert(name, path.clone());
            }
        }
    }
    uses
}

#[test]
fn nothing_below_uses_what_is_above_it() {
    let uses = uses();
    for (part, may_use) in MAY_USE {
        let used = uses.get(part).unwrap_or_else(|| panic!("there is no `{part}` any more"));
        for (other, path) in used {
            let path = path.strip_prefix(sources()).unwrap().display();
            assert!(may_use.contains(&other.as_str()), "`{part}` uses `{other}`, in {path}");
        }
        let idle: Vec<_> = may_use.iter().filter(|other| !used.contains_key(**other)).collect();
        assert!(
            idle.is_empty(),
            "`{part}` does not use {idle:?} any more: strike it from the list"
        );
    }
}

#[test]
fn the_directions_allow_no_circle() {
    let mut known = BTreeSet::new();
    for (part, may_use) in MAY_USE {
        let above: Vec<_> = may_use.iter().filter(|other| !known.contains(*other)).collect();
        assert!(above.is_empty(), "`{part}` stands before {above:?}");
        known.extend(iter::once(part));
    }
}

#[test]
fn uses_are_found_however_they_are_written() {
    let code =
        "use crate::{lock::{A, B}, Guard};\nuse super::super::status::C;\ncrate::chance::x()";
    let named = named_of_the_root(code, 2);
    assert_eq!(named.into_iter().collect::<Vec<_>>(), ["Guard", "chance", "lock", "status"]);
    assert_eq!(exports()["Guard"], "guard");
    assert_eq!(heads("{\n    Acquiring, Turn,\n};"), ["Acquiring", "Turn"]);
}
