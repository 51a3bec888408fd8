//! The files for systemd, containers and Kubernetes: what can be said of them without running any.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::files::{path, replaced, text, yaml};

/// The arguments after `serve` in each of the files.
fn arguments() -> Vec<(&'static str, Vec<String>)> {
    let mut found = Vec::new();
    for file in ["deploy/compose.yml", "deploy/kubernetes.yaml"] {
        let mut lists = Vec::new();
        yaml(file).iter().for_each(|document| serve_lists(document, &mut lists));
        assert!(!lists.is_empty(), "{file}: nobody serves");
        found.extend(lists.into_iter().map(|list| (file, list)));
    }
    let unit = text("deploy/leasehold.service").replace("\\\n", " ");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a start");
    found.push(("deploy/leasehold.service", words_after_serve(start.split_whitespace())));
    let image = text("deploy/Dockerfile");
    let command = image.lines().find_map(|line| line.strip_prefix("CMD ")).expect("a command");
    let command: Vec<String> = serde_json::from_str(command).expect("a list");
    found.push(("deploy/Dockerfile", words_after_serve(command.iter().map(String::as_str))));
    found
}

fn words_after_serve<'a>(words: impl Iterator<Item = &'a str>) -> Vec<String> {
    words.skip_while(|word| *word != "serve").skip(1).map(str::to_owned).collect()
}

/// Lists at any depth in which `serve` stands.
fn serve_lists(value: &Value, found: &mut Vec<Vec<String>>) {
    match value {
        Value::Array(items) if items.contains(&Value::from("serve")) => {
            found.push(words_after_serve(items.iter().filter_map(Value::as_str)));
        }
        Value::Array(items) => items.iter().for_each(|item| serve_lists(item, found)),
        Value::Object(fields) => fields.values().for_each(|value| serve_lists(value, found)),
        _ => {}
    }
}

/// The options of a command, as its help says.
fn options(command: &[&str]) -> BTreeSet<String> {
    let mut leasehold = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    let output = leasehold.args(command).arg("--help").output().expect("leasehold runs");
    assert!(output.status.success(), "{command:?} is not a command");
    let help = String::from_utf8(output.stdout).expect("text");
    let words = help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    words.filter(|word| word.starts_with("--")).map(str::to_owned).collect()
}

/// What follows `leasehold` where it begins a line of code or stands in backticks.
fn invocations(text: &str) -> Vec<Vec<&str>> {
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line.trim_start_matches(['#', ' ']);
        let codes = line.split('`').skip(1).step_by(2).chain([line]);
        for code in codes.chain(line.split_once(" -- ").map(|(_, code)| code)) {
            let Some(rest) = code.strip_prefix("leasehold ") else { continue };
            let words = rest.split_whitespace().take_while(|word| !word.starts_with('#'));
            let words: Vec<_> = words.map(|word| word.trim_end_matches('`')).collect();
            found.extend(words.first().is_some_and(|word| is_plain(word)).then_some(words));
        }
    }
    found
}

fn is_plain(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_lowercase() || c == '-')
}

#[test]
fn every_command_in_the_texts_is_one_with_these_options() {
    let mut seen = 0;
    for file in ["docs/operations.md", "deploy/compose.yml", "deploy/leasehold.service"] {
        for words in invocations(&text(file)) {
            let has_second = words[0] == "token" && words.get(1).is_some_and(|word| is_plain(word));
            let known = options(&words[..1 + usize::from(has_second)]);
            for option in words.iter().filter(|word| word.starts_with("--")) {
                assert!(known.contains(*option), "{file}: {option} in {words:?}");
            }
            seen += 1;
        }
    }
    assert!(seen > 20, "only {seen} commands were found");
}

#[test]
fn every_option_in_the_files_is_one_of_the_server() {
    let known = options(&["serve"]);
    let mut seen = 0;
    for (file, arguments) in arguments() {
        for option in arguments.iter().filter(|argument| argument.starts_with("--")) {
            let name = option.split('=').next().expect("a name");
            assert!(known.contains(name), "{file}: {name} is not an option of `leasehold serve`");
            seen += 1;
        }
    }
    assert!(seen > 10, "only {seen} options were found");
}

#[test]
fn two_servers_stand_before_five_nodes_that_keep_everything() {
    let compose = yaml("deploy/compose.yml").remove(0);
    let services = compose["services"].as_object().expect("services");
    let nodes: Vec<_> = services.keys().filter(|name| name.starts_with("redis-")).collect();
    assert_eq!(nodes.len(), 5);
    let backend = compose["x-server"]["environment"]["LEASEHOLD_BACKEND"].as_str().unwrap();
    let listed: Vec<_> = backend.strip_prefix("redis://").unwrap().split(',').collect();
    assert_eq!(listed, nodes);
    let command = compose["x-redis"]["command"].as_array().expect("a command");
    let command: Vec<_> = command.iter().filter_map(Value::as_str).collect();
    for option in ["--appendonly yes", "--appendfsync always", "--maxmemory-policy noeviction"] {
        assert!(command.join(" ").contains(option), "{option}");
    }
    // Whoever is named by the load balancer and by Prometheus is there.
    for name in ["leasehold-1", "leasehold-2"] {
        assert!(services.contains_key(name));
        assert!(text("deploy/haproxy.cfg").contains(&format!("server {name} {name}:7717")));
        assert!(text("deploy/prometheus/prometheus.yml").contains(&format!("\"{name}:7717\"")));
    }
}

#[test]
fn kubernetes_restarts_nobody_for_a_lost_quorum() {
    let documents = yaml("deploy/kubernetes.yaml");
    let kinds: Vec<_> = documents.iter().filter_map(|document| document["kind"].as_str()).collect();
    assert_eq!(kinds, ["Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"]);
    let pod = &documents[0]["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/healthz");
    assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz?ignore=quorum");
    let labels = &documents[0]["spec"]["template"]["metadata"]["labels"];
    assert_eq!(&documents[1]["spec"]["selector"], labels);
    assert_eq!(&documents[2]["spec"]["selector"]["matchLabels"], labels);
    assert_eq!(&documents[3]["spec"]["podSelector"]["matchLabels"], labels);
    let spread = pod["topologySpreadConstraints"].as_array().expect("a spread");
    let over: Vec<_> = spread.iter().map(|it| it["topologyKey"].as_str().unwrap()).collect();
    assert_eq!(over, ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]);
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
}

/// `leasehold token` puts another file in the place of the old one. A mount of the file itself would show
/// the old one for ever, and a revoked token would go on to be good.
#[test]
fn the_servers_of_compose_see_tokens_that_are_revoked() {
    let compose = yaml("deploy/compose.yml").remove(0);
    let server = &compose["x-server"];
    let words: Vec<_> =
        server["command"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let at = words.iter().position(|word| *word == "--tokens").expect("tokens");
    let folder = std::path::Path::new(words[at + 1]).parent().unwrap().to_str().unwrap();
    let mounts = server["volumes"].as_array().expect("a folder");
    let mounted = format!(":{folder}:ro");
    assert!(mounts.iter().any(|it| it.as_str().unwrap().ends_with(&mounted)), "{mounts:?}");
    assert!(server["secrets"].is_null() && compose["secrets"].is_null());
    assert!(
        !text("deploy/compose.yml").contains("chmod"),
        "secrets are for their containers alone"
    );
}

#[test]
fn the_service_cannot_write_its_tokens() {
    let unit = text("deploy/leasehold.service");
    let tokens = unit.split("--tokens ").nth(1).expect("tokens").split_whitespace().next().unwrap();
    assert!(tokens.starts_with("/etc/"), "{tokens}");
    assert!(unit.contains("\nProtectSystem=strict\n") && !unit.contains("ReadWritePaths"));
}

/// The words of the image's health check, run by a real bash against real servers.
#[test]
fn the_image_is_healthy_while_its_server_answers() {
    let image = text("deploy/Dockerfile");
    let check = image.lines().find_map(|line| line.split_once(" CMD [\"bash\"").map(|it| it.1));
    let check: Vec<String> =
        serde_json::from_str(&format!("[\"bash\"{}", check.expect("a check"))).expect("a list");
    let is_healthy = |addr: &str| {
        let port = addr.rsplit_once(':').expect("a port").1;
        let words = replaced(&check[2], "/7717", &format!("/{port}"));
        Command::new(&check[0]).args([&check[1], &words]).status().expect("bash").success()
    };
    let mut server = crate::serve::Server::start("memory:");
    assert!(is_healthy(server.addr()));
    let addr = server.addr().to_owned();
    // A port that listens and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(!is_healthy(&silent.local_addr().unwrap().to_string()));
    server.kill();
    assert!(!is_healthy(&addr));
}

#[test]
fn systemd_understands_the_unit() {
    let unit = text("deploy/leasehold.service");
    for line in ["Type=notify", "ExecReload=/bin/kill -HUP $MAINPID", "User=leasehold"] {
        assert!(unit.lines().any(|found| found == line), "{line}");
    }
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!(
            "systemd-analyze is not on this machine: only the text of the unit was looked at"
        );
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let copy = place.path().join("leasehold.service");
    let binary = env!("CARGO_BIN_EXE_leasehold");
    fs::write(&copy, replaced(&unit, "/usr/local/bin/leasehold", binary)).unwrap();
    let mut command = Command::new("systemd-analyze");
    let output = command.args(["verify", "--man=no"]).arg(&copy).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    // It looks at the whole machine's units on the way; only ours matter.
    let of_ours: Vec<_> = said.lines().filter(|line| line.contains("leasehold.service")).collect();
    assert!(output.status.success() && of_ours.is_empty(), "{said}");
}

#[test]
fn what_the_texts_link_to_is_there() {
    for file in ["docs/operations.md", "deploy/README.md"] {
        let folder = path(file).parent().expect("a folder").to_owned();
        let text = text(file);
        let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        for (link, _) in links {
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            assert!(folder.join(target).exists(), "{file}: {link}");
            let has_heading = text
                .lines()
                .filter_map(|line| line.strip_prefix('#'))
                .any(|line| line.trim_start_matches('#').trim().to_lowercase() == anchor);
            assert!(anchor.is_empty() || !target.is_empty() || has_heading, "{file}: #{anchor}");
        }
    }
}
