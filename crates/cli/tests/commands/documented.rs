//! docs/cli.md says what the binary does: every schema with exactly its fields.

use std::collections::BTreeSet;

use crate::harness::Desk;

const TEXT: &str = include_str!("../../../../docs/cli.md");

/// The fields of a schema as documented. What stands in brackets explains values.
fn fields(schema: &str) -> BTreeSet<String> {
    let row = TEXT.lines().find(|line| line.starts_with(&format!("| `{schema}` |")));
    let row = row.unwrap_or_else(|| panic!("{schema} is not documented"));
    let (mut depth, mut plain) = (0_usize, String::new());
    for c in row.rsplit_once(" | ").expect("a column").1.chars() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    plain.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_object_has_exactly_the_documented_fields() {
    let desk = Desk::sqlite();
    let token = desk.acquire("job");
    let mut seen = BTreeSet::new();
    for arguments in [
        &["acquire", "other", "--ttl", "9s"][..],
        &["extend", &token],
        &["status", "job"],
        &["status", "none"],
        &["list"],
        &["watch", "job", "--count", "1"],
        &["nodes"],
        &["doctor", "--watch", "10ms"],
        &["init"],
        &["plan", "--price", "1"],
        &["bench", "--secs", "10ms", "--concurrency", "2"],
        &["config"],
        &["release", &token],
        &[
            "force-release",
            "job",
            "--fence",
            &desk.fence("job").to_string(),
            "--reason",
            "x",
            "--yes",
        ],
    ] {
        for object in desk.run(&[arguments, &["--json"]].concat()).expect(0).objects() {
            let object = object.as_object().unwrap();
            let schema = object["schema"].as_str().unwrap().to_owned();
            let found = object.keys().filter(|key| *key != "schema").cloned();
            assert_eq!(found.collect::<BTreeSet<_>>(), fields(&schema), "{schema}");
            seen.insert(schema);
        }
    }
    // On the command line there would be a warning before it.
    let file = desk.home().join("token");
    std::fs::write(&file, &token).unwrap();
    let file = format!("@{}", file.display());
    let error = desk.run(&["extend", &file, "--json"]).expect(79).err;
    let error: serde_json::Value = serde_json::from_str(error.trim()).unwrap();
    assert_eq!((&error["schema"], &error["exit_code"]), (&"leasehold/error/v1".into(), &79.into()));
    let documented = TEXT.lines().filter(|line| line.starts_with("| `leasehold/")).count();
    assert_eq!(seen.len() + 1, documented, "all but the error were seen: {seen:?}");
}

#[test]
fn every_setting_and_every_command_is_documented() {
    let desk = Desk::sqlite();
    for object in desk.run(&["config", "--json"]).expect(0).objects() {
        let name = object["name"].as_str().unwrap();
        let row = match name.strip_prefix("serve.") {
            Some(key) => format!("| `{key}` | `--{key}"),
            None => format!("| `{name}` | `LEASEHOLD_"),
        };
        assert!(TEXT.contains(&row), "{row}");
    }
    let help = desk.run(&["--help"]).expect(0).out;
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    for line in commands.take_while(|line| !line.is_empty()) {
        let command = line.split_whitespace().next().unwrap();
        let is_documented = TEXT.contains(&format!("| `{command}"));
        assert!(is_documented || command == "help", "{command}");
    }
}
