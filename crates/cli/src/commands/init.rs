//! `leasehold init`: admit the nodes of a new cluster at once, on the word of a person.

use serde_json::json;

use crate::context::Context;
use crate::duration::{millis, short};
use crate::exit::{Exit, Failure};

/// Admit new nodes at once that never held a lock
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A node without a memory may be new, or may have lost it; by itself it does not \
                  vote until every lease that it may have forgotten is over. This command is a \
                  person's word that the nodes are new. All of them must answer and none may know \
                  the cluster; otherwise nothing is changed. To run it again is harmless: nodes that \
                  were members before wait all the same.\n\n\
                  Example:\n  leasehold --backend redis://a,b,c init\n\n\
                  Exit codes: 0 the nodes vote; 69 a node does not answer; 77 a node belongs to \
                  another cluster or was a member before, or some know this cluster and others do \
                  not."
)]
pub(crate) struct Args {}

pub(crate) async fn exec(_: &Args, context: &Context) -> Result<Exit, Failure> {
    if is_server(&context.backend) {
        return Err(Failure::Usage(format!(
            "{} is a lock server: its nodes are its own\n\
             hint: run `leasehold init` with the nodes' backend URL, or `leasehold serve \
             --trust-new-nodes`",
            leasehold::without_password(&context.backend)
        )));
    }
    let locks = context.open().await?;
    locks.init().await?;
    let nodes: Vec<String> = locks.nodes().iter().map(|health| health.node.to_string()).collect();
    let (count, quorum, max_ttl) = (nodes.len(), locks.quorum(), locks.max_ttl());
    if context.output.json {
        context.output.object(&json!({
            "schema": "leasehold/init/v1",
            "nodes": nodes,
            "quorum": quorum,
            "max_ttl_ms": max_ttl.map(millis),
        }))?;
    } else {
        let limit = max_ttl.map_or(String::new(), |ttl| format!(", ttl at most {}", short(ttl)));
        context.output.text(&format!("{count} node(s) vote, {quorum} needed{limit}"))?;
    }
    Ok(Exit::Success)
}

fn is_server(backend: &str) -> bool {
    ["http://", "https://"].iter().any(|scheme| backend.starts_with(scheme))
}
