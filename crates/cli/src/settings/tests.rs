use std::collections::HashMap;
use std::os::unix::ffi::OsStringExt as _;

use leasehold_testkit::fuzz;

use super::*;

/// Resolves with a file of this text, these variables and `--backend`.
fn resolve(
    text: &str,
    variables: &[(&str, &str)],
    flag: Option<&str>,
) -> Result<Settings, Failure> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leasehold.toml");
    std::fs::write(&path, text).unwrap();
    let global =
        Global { backend: flag.map(str::to_owned), config: Some(path), ..Global::default() };
    let variables: HashMap<&str, &str> = variables.iter().copied().collect();
    Settings::resolve(&global, |name| variables.get(name).map(OsString::from))
}

fn error(text: &str, variables: &[(&str, &str)]) -> String {
    resolve(text, variables, None).unwrap_err().to_string()
}

#[test]
fn flags_go_before_the_environment_before_the_file_before_the_default() {
    let file = "# locks\nbackend = \"redis://file\"\nttl = 20\n";
    let variable = [("LEASEHOLD_BACKEND", "redis://variable")];
    let backend = |variables, flag| {
        let settings = resolve(file, variables, flag).unwrap();
        (settings.backend.value, settings.backend.source)
    };
    assert_eq!(backend(&variable, Some("redis://flag")), ("redis://flag".into(), Source::Flag));
    let (value, source) = backend(&variable, None);
    assert_eq!(
        (value.as_str(), source),
        ("redis://variable", Source::Environment("LEASEHOLD_BACKEND"))
    );
    let (value, source) = backend(&[("LEASEHOLD_BACKEND", "")], None);
    assert_eq!(value, "redis://file");
    assert!(matches!(source, Source::File { line: 2, .. }), "{source:?}");
    let settings = resolve(file, &[], None).unwrap();
    assert_eq!(settings.ttl.value, Duration::from_secs(20));
    assert_eq!((settings.wait.value, settings.wait.source), (None, Source::Default));
}

#[test]
fn a_typo_is_named_with_its_line_and_the_nearest_key() {
    let said = error("ttl = \"5s\"\n\nbakend = \"redis://a\"\n", &[]);
    assert!(said.contains("leasehold.toml, line 3: unknown setting `bakend`"), "{said}");
    assert!(said.ends_with("did you mean `backend`?"), "{said}");
    let said = error("zebra = 1", &[]);
    assert!(said.contains("known are backend, ttl, wait"), "{said}");
    let said = error("[backend]\nurl = \"x\"", &[]);
    assert!(said.contains("line 1: `backend` must be a text"), "{said}");
    let said = error("\nttl = \"5x\"", &[]);
    assert!(said.contains("line 2: `ttl`: `5x` is not a duration"), "{said}");
    let said = error("", &[("LEASEHOLD_TTL", "soon")]);
    assert!(said.starts_with("LEASEHOLD_TTL: `soon` is not a duration"), "{said}");
    let said = error("", &[("LEASEHOLD_COLOR", "pink")]);
    assert!(said.starts_with("LEASEHOLD_COLOR: "), "{said}");
}

#[test]
fn a_broken_file_does_not_give_away_a_password() {
    for text in [
        "backend = \"redis://:hunter2@a",
        "backend = redis://:hunter2@a",
        "backend = [\"redis://:hunter2@a\"]",
        "\"redis://:hunter2@a\"",
    ] {
        let said = error(text, &[]);
        assert!(said.contains("line 1") && !said.contains("hunter2"), "{said}");
    }
}

#[test]
fn shown_values_hide_passwords() {
    let settings = resolve("backend = \"redis://u:hunter2@a\"", &[], None).unwrap();
    let (_, backend, _) = &settings.shown()[0];
    assert_eq!(backend, "redis://u:***@a");
    assert!(has_password("redis://u:p@a") && !has_password("redis://a,b"));
}

#[test]
fn any_file_and_any_variables_are_settings_or_are_refused() {
    let good = b"backend = \"redis://u:p@a,b\"\nttl = 20\nwait = \"1h30m\"\ncolor = \"never\"\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leasehold.toml");
    let global = Global { config: Some(path.clone()), ..Global::default() };
    let serve = b"[serve]\nlisten = \"a\"\ninsecure = true\nmetrics-lock = [\"a\"]\nmax-wait = 5\n";
    let seeds: [&[u8]; 5] =
        [good, serve, b"[backend]\nx = 1", b"ttl = 1e400\nttl = 2", b"log = 'a"];
    fuzz(2000, &seeds, |input| {
        let is_set = |input: &mut leasehold_testkit::Input<'_>| input.below(6) == 5;
        let variables = KEYS.map(|(_, name)| (name, is_set(input).then(|| input.bytes().to_vec())));
        std::fs::write(&path, input.rest()).unwrap();
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.and_then(|(_, value)| value.clone()).map(OsString::from_vec)
        };
        match Settings::resolve(&global, variable) {
            Ok(settings) => {
                let backend = leasehold::without_password(&settings.backend.value);
                assert_eq!(settings.shown()[0].1, backend);
                let serve = Serve::resolve(&crate::commands::serve::Args::default(), &settings);
                assert!(!matches!(serve, Err(error) if !matches!(error, Failure::Config(_))));
            }
            Err(error) => assert!(matches!(error, Failure::Config(_)), "{error}"),
        }
    });
}

#[test]
fn a_password_in_a_broken_file_is_never_shown() {
    const SECRET: &str = "Hunter2Hunter2";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leasehold.toml");
    let global = Global { config: Some(path.clone()), ..Global::default() };
    let junk = ["", "\"", "'", "\\", "[", "]", "{", "#", "=", "é", "\0", "\\u00", "ttl", " ", "@"];
    fuzz(2000, &[], |input| {
        let mut some = |most: usize| -> String {
            let count = input.below(most + 1);
            (0..count).map(|_| input.pick(&junk)).collect()
        };
        let (before, after, lines) = (some(4), some(4), some(6));
        let quotes = ["\"", "'", ""];
        let (open, close) = (quotes[some(2).len() % 3], quotes[some(2).len() % 3]);
        let url = format!("redis://u:{before}{SECRET}{after}@a");
        let text = format!("ttl = 5\nbackend = {open}{url}{close}\n{lines}");
        std::fs::write(&path, &text).unwrap();
        let said = match Settings::resolve(&global, |_| None) {
            Ok(settings) => format!("{:?}", settings.shown()),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(!said.contains(SECRET), "{text}\n{said}");
    });
}
