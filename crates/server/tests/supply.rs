//! What is linked: its licences and where it comes from, as deny.toml says. Known holes are for
//! `cargo deny check advisories`, which needs a network.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The packages that are built here, as cargo knows them.
fn packages() -> Vec<Value> {
    let host = Command::new("rustc").arg("-vV").output().expect("rustc runs").stdout;
    let host = String::from_utf8(host).expect("text");
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--offline", "--format-version", "1"])
        .args(["--filter-platform", host])
        .current_dir(ROOT)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].take();
    packages.as_array().expect("packages").clone()
}

fn allowed() -> BTreeSet<String> {
    let text = std::fs::read_to_string(format!("{ROOT}/deny.toml")).expect("deny.toml");
    let config: toml::Table = text.parse().expect("TOML");
    let list = config["licenses"]["allow"].as_array().expect("a list");
    list.iter().map(|licence| licence.as_str().expect("a name").to_owned()).collect()
}

/// Whether an expression can be met: `AND` binds stronger than `OR`, and `/` is an old `OR`.
fn is_met(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &words[..];
    let met = any(&mut rest, allowed);
    met && rest.is_empty()
}

fn any(rest: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let mut met = all(rest, allowed);
    while let ["OR", more @ ..] = rest {
        *rest = more;
        met |= all(rest, allowed);
    }
    met
}

fn all(rest: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let mut met = one(rest, allowed);
    while let ["AND", more @ ..] = rest {
        *rest = more;
        met &= one(rest, allowed);
    }
    met
}

fn one(rest: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    match *rest {
        ["(", more @ ..] => {
            *rest = more;
            let met = any(rest, allowed);
            let closed = rest.first() == Some(&")");
            *rest = rest.get(1..).unwrap_or_default();
            met && closed
        }
        // An exception gives more rights, never fewer.
        [licence, "WITH", _, more @ ..] | [licence, more @ ..] => {
            *rest = more;
            allowed.contains(*licence)
        }
        [] => false,
    }
}

#[test]
fn every_licence_of_what_is_linked_is_allowed() {
    let (packages, allowed) = (packages(), allowed());
    assert!(packages.len() > 100, "{} packages", packages.len());
    let refused: Vec<_> = packages
        .iter()
        .filter(|package| !package["license"].as_str().is_some_and(|it| is_met(it, &allowed)))
        .map(|package| {
            format!("{} {}: {}", package["name"], package["version"], package["license"])
        })
        .collect();
    assert!(refused.is_empty(), "not allowed by deny.toml: {refused:#?}");
}

#[test]
fn every_licence_that_is_allowed_is_one_of_those() {
    let (packages, allowed) = (packages(), allowed());
    for licence in &allowed {
        let mut fewer = allowed.clone();
        fewer.remove(licence);
        let is_met = |package: &Value| is_met(package["license"].as_str().unwrap_or(""), &fewer);
        assert!(!packages.iter().all(is_met), "{licence} is allowed, and nothing needs it");
    }
}

#[test]
fn all_of_it_comes_from_one_registry_with_a_checksum() {
    let lock = std::fs::read_to_string(format!("{ROOT}/Cargo.lock")).expect("Cargo.lock");
    let lock: toml::Table = lock.parse().expect("TOML");
    let mut registries = BTreeSet::new();
    for package in lock["package"].as_array().expect("packages") {
        let Some(source) = package.get("source").and_then(|source| source.as_str()) else {
            assert!(
                package["name"].as_str().expect("a name").starts_with("leasehold"),
                "{package}"
            );
            continue;
        };
        assert!(source.starts_with("registry+https://github.com/rust-lang/"), "{package}");
        let checksum = package.get("checksum").and_then(|checksum| checksum.as_str());
        assert!(checksum.is_some_and(|checksum| checksum.len() == 64), "{package}");
        registries.insert(source.to_owned());
    }
    assert_eq!(registries.len(), 1, "{registries:?}");
}

#[test]
fn an_expression_is_met_by_what_it_says() {
    let allowed: BTreeSet<_> = ["MIT", "Apache-2.0"].map(str::to_owned).into();
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0-only", false),
        ("", false),
        ("MIT/GPL-3.0-only", true),
        ("MIT OR GPL-3.0-only", true),
        ("MIT AND GPL-3.0-only", false),
        ("GPL-3.0-only OR MIT AND Apache-2.0", true),
        ("(GPL-3.0-only OR MIT) AND Apache-2.0", true),
        ("(MIT OR Apache-2.0) AND GPL-3.0-only", false),
        ("(MIT", false),
        ("MIT MIT", false),
        ("Apache-2.0 WITH LLVM-exception", true),
    ] {
        assert_eq!(is_met(expression, &allowed), expected, "{expression}");
    }
}
