//! The way of an alert with the real programs: servers on real nodes, a Prometheus that scrapes them,
//! an Alertmanager, and somebody who is told.
//!
//! The files are those of deploy/prometheus; only addresses and waiting times are replaced, because a
//! test cannot wait for minutes. Each replacement is checked to have happened.

use std::time::Duration;

use leasehold_testkit::{Daemon, Need, eventually, http_get, skip};
use serde_json::Value;

use crate::files::{board_expressions, replaced, rules, text};
use crate::serve::{Server, five_quick_nodes};
use crate::support::{Place, five_nodes};
use crate::webhook::Webhook;

/// Scrapes, evaluations and deliveries are fractions of a second; the rest is for a busy machine.
const TOLD_WITHIN: Duration = Duration::from_secs(60);

/// A Prometheus that scrapes these servers, with this token.
fn prometheus(servers: &[&Server], token: &str, alertmanager: &str) -> Daemon {
    let targets: Vec<_> = servers.iter().map(|server| format!("{:?}", server.addr())).collect();
    let mut config = text("deploy/prometheus/prometheus.yml");
    for (from, to) in [
        ("scrape_interval: 15s", "scrape_interval: 200ms"),
        ("evaluation_interval: 15s", "evaluation_interval: 200ms"),
        ("alertmanager:9093", alertmanager),
        (r#""leasehold-1:7717", "leasehold-2:7717""#, &targets.join(", ")),
    ] {
        config = replaced(&config, from, to);
    }
    Daemon::prometheus(&[
        ("prometheus.yml", &config),
        ("alerts.yml", &quick_rules()),
        ("secrets/leasehold.token", token),
    ])
}

/// The rules, with a second in place of each of their waits.
fn quick_rules() -> String {
    let text = text("deploy/prometheus/alerts.yml");
    let waits = text.matches("\n        for: ").count();
    let quick = text.lines().map(|line| match line.starts_with("        for: ") {
        true => "        for: 1s\n".to_owned(),
        false => format!("{line}\n"),
    });
    let quick: String = quick.collect();
    assert!(waits > 2 && quick.matches("\n        for: 1s\n").count() == waits);
    quick
}

fn alertmanager(webhook: &Webhook) -> Daemon {
    let mut config = text("deploy/prometheus/alertmanager.yml");
    for (from, to) in [
        ("group_wait: 10s", "group_wait: 100ms"),
        ("group_interval: 1m", "group_interval: 200ms"),
        ("http://alerts.example/", &format!("http://{}/", webhook.addr())),
    ] {
        config = replaced(&config, from, to);
    }
    Daemon::alertmanager(&config)
}

/// How many series Prometheus finds, or what it says against the expression.
fn series(prometheus: &Daemon, expression: &str) -> Result<usize, String> {
    let encoded: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let answer = http_get(&prometheus.addr(), &format!("/api/v1/query?query={encoded}"));
    let answer = answer.map_err(|error| error.to_string())?;
    let found: Value = serde_json::from_str(&answer.body).map_err(|error| error.to_string())?;
    found["data"]["result"].as_array().map(Vec::len).ok_or(answer.body)
}

#[test]
fn the_loss_of_three_of_five_nodes_is_told_to_the_pager_and_so_is_the_end_of_it() {
    if skip(Need::Redis) || skip(Need::Prometheus) || skip(Need::Alertmanager) {
        return;
    }
    let (nodes, url) = five_quick_nodes();
    let place = Place::new();
    let token = place.run(&["token", "new", "--file", "tokens", "--name", "p", "--scope", "read"]);
    let token = String::from_utf8(token.stdout).expect("a token");
    let tokens = place.file("tokens");
    let options = ["--tokens", tokens.to_str().expect("a path")];
    let servers = [Server::start_with(&url, &options), Server::start_with(&url, &options)];
    assert_eq!(servers[0].get("/metrics").status, 401, "nobody else sees them");
    let webhook = Webhook::start();
    let alertmanager = alertmanager(&webhook);
    let prometheus = prometheus(&servers.each_ref(), &token, &alertmanager.addr());
    eventually(TOLD_WITHIN, "both servers are scraped", || {
        series(&prometheus, "redis_instances_available == 5") == Ok(2)
    });
    assert!(webhook.told("RedLockQuorumLoss", "firing").is_empty(), "{}", webhook.all());

    nodes[..3].iter().for_each(|node| node.kill());
    for alert in ["RedLockQuorumLoss", "RedLockBelowQuorum"] {
        for server in &servers {
            eventually(TOLD_WITHIN, alert, || {
                webhook.told(alert, "firing").iter().any(|told| is_of(&told.alert, server))
            });
        }
    }
    let told = webhook.told("RedLockBelowQuorum", "firing").remove(0);
    assert_eq!(told.path, "/pager");
    let description = told.alert["annotations"]["description"].as_str().expect("a description");
    assert!(description.contains("2 nodes that vote; 3 are needed"), "{description}");

    nodes[..3].iter().for_each(|node| node.restart());
    eventually(TOLD_WITHIN, "the end of it", || {
        !webhook.told("RedLockBelowQuorum", "resolved").is_empty()
            && !webhook.told("RedLockQuorumLoss", "resolved").is_empty()
    });
}

fn is_of(alert: &Value, server: &Server) -> bool {
    alert["labels"]["instance"] == *server.addr()
}

#[test]
fn a_server_that_dies_is_told() {
    if skip(Need::Prometheus) || skip(Need::Alertmanager) {
        return;
    }
    let mut servers = [Server::start("memory:"), Server::start("memory:")];
    let webhook = Webhook::start();
    let alertmanager = alertmanager(&webhook);
    let prometheus = prometheus(&servers.each_ref(), "none", &alertmanager.addr());
    eventually(TOLD_WITHIN, "both servers are scraped", || {
        series(&prometheus, "redis_instances_available") == Ok(2)
    });
    servers[0].kill();
    eventually(TOLD_WITHIN, "RedLockServerDown", || {
        let told = webhook.told("RedLockServerDown", "firing");
        told.iter().any(|told| told.path == "/team" && is_of(&told.alert, &servers[0]))
    });
    assert!(webhook.told("RedLockMetricsAbsent", "firing").is_empty(), "{}", webhook.all());
    servers[1].kill();
    eventually(TOLD_WITHIN, "RedLockMetricsAbsent", || {
        webhook.told("RedLockMetricsAbsent", "firing").iter().any(|told| told.path == "/pager")
    });
}

#[test]
fn a_lease_that_nobody_renews_is_told_and_the_server_is_not_blamed() {
    if skip(Need::Prometheus) || skip(Need::Alertmanager) {
        return;
    }
    let servers = [Server::start("memory:")];
    let webhook = Webhook::start();
    let alertmanager = alertmanager(&webhook);
    let prometheus = prometheus(&servers.each_ref(), "none", &alertmanager.addr());
    let lost = r#"redlock_leases_lost_total{reason="expired"}"#;
    eventually(TOLD_WITHIN, "the server is scraped", || series(&prometheus, lost) == Ok(1));
    let lease = servers[0].post("/v1/locks/left/leases", r#"{"ttl_ms": 500}"#);
    assert_eq!(lease.status, 201, "{}", lease.body);
    eventually(TOLD_WITHIN, "RedLockLeaseLost", || {
        let told = webhook.told("RedLockLeaseLost", "firing");
        told.iter().any(|told| told.path == "/team" && told.alert["labels"]["reason"] == "expired")
    });
    assert!(webhook.told("RedLockServerDown", "firing").is_empty(), "{}", webhook.all());
}

#[test]
fn prometheus_understands_every_expression_and_every_panel_shows_something() {
    if skip(Need::Redis) || skip(Need::Prometheus) {
        return;
    }
    let (_nodes, url) = five_nodes();
    let servers = [Server::start(&url), Server::start(&url)];
    let prometheus = prometheus(&servers.each_ref(), "none", "127.0.0.1:9");
    eventually(TOLD_WITHIN, "both servers are scraped", || {
        series(&prometheus, "redlock_build_info") == Ok(2)
    });
    servers.iter().for_each(Server::bustle);
    for rule in rules() {
        series(&prometheus, &rule.expression).unwrap_or_else(|why| panic!("{}: {why}", rule.name));
    }
    // A node is one, whoever looks at it, because the servers' word for it stays apart from theirs.
    let nodes = "count by (exported_instance) (redis_instance_up) == 2";
    assert_eq!(series(&prometheus, nodes), Ok(5));
    for expression in board_expressions() {
        let filters = expression.contains("changes(process_start_time_seconds");
        let mut last = Ok(0);
        eventually(TOLD_WITHIN, &expression, || {
            last = series(&prometheus, &expression);
            matches!(last, Ok(found) if found > 0 || filters)
        });
    }
}
