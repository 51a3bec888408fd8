//! `leasehold plan`: how many nodes, what they survive and what they cost. The sums are in
//! `plan/sums`; nothing here asks any node.

mod sums;

use std::time::Duration;

use leasehold::{Drift, MAX_CLOCK_SKEW, quarantine};
use serde_json::{Value, json};

use crate::context::Context;
use crate::duration::{self, millis, short};
use crate::exit::{Exit, Failure};
use crate::output::{Output, Tone, heading};
use sums::Unavailability;

/// Plan a cluster: quorum, what it survives, downtime and cost
#[derive(Debug, clap::Args)]
#[command(
    after_help = "No quorum means that fewer than N/2+1 nodes are up; its probability is the \
                  binomial tail, for nodes that fail independently of each other: nodes on one \
                  host, in one rack or of one version do not. A year has 365 days. Whatever is \
                  on its disk, a node that restarted does not vote before every lease that it may \
                  have forgotten is over: max_ttl, the drift allowance and twice the clock skew.\n\n\
                  Example:\n  leasehold plan --nodes 5 --availability 99.9% --price 480\n  \
                  leasehold plan --ttl 5s --round-trip 20ms --json\n\n\
                  Exit codes: 0; 64 usage."
)]
pub(crate) struct Args {
    /// How many nodes
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    nodes: u32,
    /// How much of the time one node is up
    #[arg(long, value_name = "PERCENT", default_value = "99.9%")]
    availability: Unavailability,
    /// How long a lease lasts [default: the ttl in force]
    #[arg(short = 't', long, value_name = "DURATION", value_parser = duration::parse)]
    ttl: Option<Duration>,
    /// How long the slowest node of a quorum takes to answer
    #[arg(long, value_name = "DURATION", default_value = "1ms", value_parser = duration::parse)]
    round_trip: Duration,
    /// The cluster's longest lease, which a node that restarted sits out
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    max_ttl: Duration,
    /// What a node costs a month, in whatever you pay with
    #[arg(long, value_name = "AMOUNT", value_parser = price)]
    price: Option<f64>,
}

/// What a number of nodes comes to.
struct Row {
    nodes: u32,
    quorum: u32,
    no_quorum: f64,
    cost: Option<f64>,
}

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// The table goes this far, so that a plan stands among its alternatives.
const NODES_SHOWN: u32 = 7;

pub(crate) fn exec(args: &Args, context: &Context) -> Result<Exit, Failure> {
    let ttl = context.settings.ttl_or(args.ttl);
    let drift = Drift::DEFAULT.allowance(ttl);
    let validity = ttl.checked_sub(drift + args.round_trip).filter(|left| !left.is_zero());
    let mut rows: Vec<Row> = (1..=NODES_SHOWN).map(|nodes| row(args, nodes)).collect();
    if args.nodes > NODES_SHOWN {
        rows.push(row(args, args.nodes));
    }
    let output = context.output;
    if output.json {
        for row in &rows {
            output.object(&row.json(args, ttl, drift, validity))?;
        }
        return Ok(Exit::Success);
    }
    let left = validity.map_or("nothing".into(), short);
    output.text(&format!(
        "a lease of {}: {} for drift, {} for the round trip, {left} left to work with",
        short(ttl),
        short(drift),
        short(args.round_trip)
    ))?;
    if validity.is_none() {
        output.note("no lease would ever be granted: use a longer --ttl");
    }
    output.text(&output.table(&table(&rows, args)))?;
    if output.is_terminal() {
        output.text(&chart(&rows, args.nodes, output))?;
    }
    output.note("for nodes that fail independently of each other");
    if args.nodes > 1 {
        output.text(&format!(
            "a node that restarted, or may have forgotten for another reason, does not vote for {}; \
             after a power cut of all nodes nobody gets a lock for as long",
            short(quarantine_of(args))
        ))?;
    }
    Ok(Exit::Success)
}

fn quarantine_of(args: &Args) -> Duration {
    quarantine(args.max_ttl, Drift::DEFAULT, MAX_CLOCK_SKEW)
}

fn row(args: &Args, nodes: u32) -> Row {
    Row {
        nodes,
        quorum: nodes / 2 + 1,
        no_quorum: sums::no_quorum(nodes, args.availability.0),
        cost: args.price.map(|price| price * f64::from(nodes)),
    }
}

impl Row {
    fn survives(&self) -> u32 {
        self.nodes - self.quorum
    }

    fn downtime(&self) -> Duration {
        YEAR.mul_f64(self.no_quorum)
    }

    /// `leasehold/plan/v1`.
    fn json(
        &self,
        args: &Args,
        ttl: Duration,
        drift: Duration,
        validity: Option<Duration>,
    ) -> Value {
        json!({
            "schema": "leasehold/plan/v1",
            "nodes": self.nodes,
            "chosen": self.nodes == args.nodes,
            "quorum": self.quorum,
            "failures_survived": self.survives(),
            "node_unavailability": args.availability.0,
            "no_quorum_probability": self.no_quorum,
            "downtime_seconds_per_year": YEAR.as_secs_f64() * self.no_quorum,
            "ttl_ms": millis(ttl),
            "drift_allowance_ms": drift.as_secs_f64() * 1e3,
            "round_trip_ms": args.round_trip.as_secs_f64() * 1e3,
            "max_ttl_ms": millis(args.max_ttl),
            // With one node there is nobody to vote meanwhile, so by default it does not sit out.
            "quarantine_ms": (self.nodes > 1).then(|| millis(quarantine_of(args))),
            "validity_ms": validity.map(|left| left.as_secs_f64() * 1e3),
            "cost_per_month": self.cost,
        })
    }
}

fn table(rows: &[Row], args: &Args) -> Vec<Vec<(Tone, String)>> {
    let mut lines = vec![heading([
        "nodes",
        "quorum",
        "survives",
        "P(no quorum)",
        "down a year",
        "cost a month",
        "",
    ])];
    for row in rows {
        let is_chosen = row.nodes == args.nodes;
        let tone = if is_chosen { Tone::Good } else { Tone::Plain };
        let remark = match (is_chosen, row.nodes.is_multiple_of(2)) {
            (true, false) => "◄ this plan".to_owned(),
            (true, true) => format!("◄ this plan; survives no more than {}", row.nodes - 1),
            (false, true) => format!("survives no more than {}", row.nodes - 1),
            (false, false) => String::new(),
        };
        lines.push(vec![
            (tone, row.nodes.to_string()),
            (tone, row.quorum.to_string()),
            (tone, row.survives().to_string()),
            (tone, sums::probability(row.no_quorum)),
            (tone, downtime(row.downtime())),
            (tone, row.cost.map_or("-".into(), |cost| format!("{cost:.2}"))),
            (Tone::Dim, remark),
        ]);
    }
    lines
}

fn downtime(time: Duration) -> String {
    if time.is_zero() { "0s".into() } else { short(time) }
}

/// A bar for each number of nodes: as long as its availability has nines.
fn chart(rows: &[Row], chosen: u32, output: Output) -> String {
    let bar = |row: &Row| {
        let nines = sums::nines(row.no_quorum);
        // Two blocks for a nine, and never more than a line of a small terminal.
        let blocks = "█".repeat(((nines * 2.0).round() as usize).clamp(1, 60));
        let tone = if row.nodes == chosen { Tone::Good } else { Tone::Dim };
        format!("{:>3}  {}  {nines:.1} nines", row.nodes, output.paint(tone, &blocks))
    };
    rows.iter().map(bar).collect::<Vec<_>>().join("\n")
}

fn price(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|price: &f64| price.is_finite() && *price >= 0.0)
        .ok_or_else(|| format!("`{text}` is not an amount; write it like 480 or 12.50"))
}
