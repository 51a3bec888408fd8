//! Routine work, as docs/operations.md tells it.

use std::time::Duration;

use leasehold_testkit::{Need, eventually, skip};
use serde_json::Value;

use crate::serve::{Server, five_quick_nodes};
use crate::support::{Place, code};

/// A probe a second; the rest is for a busy machine.
const NOTICED_WITHIN: Duration = Duration::from_secs(30);

#[test]
fn a_lease_survives_the_restart_of_every_node_one_after_the_other() {
    if skip(Need::Redis) {
        return;
    }
    let (nodes, url) = five_quick_nodes();
    let server = Server::start(&url);
    let granted = server.post("/v1/locks/long/leases", r#"{"ttl_ms": 5000}"#);
    assert_eq!(granted.status, 201, "{}", granted.body);
    let lease: Value = serde_json::from_str(&granted.body).unwrap();
    let renew = format!("/v1/leases/{}/renew", lease["lease_id"].as_str().unwrap());
    let place = Place::new();
    let keep = || {
        let renewed = server.post(&renew, "{}");
        assert_eq!(renewed.status, 200, "{}", renewed.body);
    };
    for node in &nodes {
        node.restart();
        eventually(NOTICED_WITHIN, "it is noticed", || {
            keep();
            server.get("/readyz").body.contains(r#""available":4"#)
        });
        // It sits out its quarantine, and the next may be restarted after that.
        eventually(NOTICED_WITHIN, "all nodes vote, as `leasehold nodes` says", || {
            keep();
            let said = place.run(&["--backend", &url, "--json", "nodes"]);
            let said = String::from_utf8(said.stdout).unwrap();
            said.lines().filter(|line| line.contains(r#""state":"up""#)).count() == nodes.len()
        });
        eventually(NOTICED_WITHIN, "all nodes vote, as the server says", || {
            keep();
            server.get("/readyz").body.contains(r#""available":5"#)
        });
    }
    let rival = ["--backend", &url, "run", "--ttl", "5s", "-n", "long", "--", "true"];
    assert_eq!(code(&place.run(&rival)), 75);
}
