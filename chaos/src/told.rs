//! What the library tells of its ballots and of the nodes' records, written into the history of the
//! holder whose library it is. Programs that use the library tell it in their logs.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event as Told, Metadata, Subscriber};

use crate::clock::HolderClock;
use crate::history::{Ballot, Event, Log, Vote};

const BALLOT: &str = "leasehold::ballot";
const RECORD: &str = "leasehold::record";
const CLOCK: &str = "leasehold::clock";

/// Writes down from now on what the library of this process tells.
/// The library goes by `clock`; what is written down is in true time.
pub fn listen(log: Log, clock: Arc<HolderClock>) -> io::Result<()> {
    tracing::subscriber::set_global_default(Scribe { log: Mutex::new(log), clock })
        .map_err(io::Error::other)
}

struct Scribe {
    log: Mutex<Log>,
    clock: Arc<HolderClock>,
}

impl Subscriber for Scribe {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Also asked by `tracing::enabled!`, of what is neither a span nor an event.
        !metadata.is_span() && [BALLOT, RECORD, CLOCK].contains(&metadata.target())
    }

    fn event(&self, told: &Told<'_>) {
        let mut words = Words::default();
        told.record(&mut words);
        let event = match told.metadata().target() {
            BALLOT => words.ballot(&self.clock).map(Event::Ballot),
            RECORD => words.record(),
            CLOCK => words.reading(&self.clock),
            _ => None,
        };
        if let Some(event) = event {
            // Without its history a holder is of no use, and the run ends with it.
            let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            log.now(event).expect("the history can be written");
        }
    }

    // Spans are not listened to.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The fields of an event.
#[derive(Debug, Default)]
struct Words(Vec<(String, String)>);

impl Words {
    /// `name=value name="value with spaces"`.
    fn of_fields(mut fields: &str) -> Option<Self> {
        let mut words = Vec::new();
        while let Some((name, rest)) = fields.trim_start().split_once('=') {
            let (value, after) = match rest.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"')?,
                None => rest.split_once(' ').unwrap_or((rest, "")),
            };
            words.push((name.to_owned(), value.to_owned()));
            fields = after;
        }
        Some(Self(words))
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(field, _)| *field == name)?;
        Some(self.0.swap_remove(at).1)
    }

    fn moment(&mut self, name: &str) -> Option<u64> {
        self.take(name)?.parse().ok()
    }

    fn ballot(mut self, clock: &HolderClock) -> Option<Ballot> {
        Some(Ballot {
            kind: self.take("kind")?,
            lock: self.take("lock")?,
            holder: self.take("holder")?,
            fence: self.take("fence")?.parse().ok()?,
            asked_at: clock.past(self.moment("asked_at_ns")?),
            votes: votes(&self.take("votes")?)?,
        })
    }

    fn reading(mut self, clock: &HolderClock) -> Option<Event> {
        let (sent, received) = (self.moment("sent_ns")?, self.moment("received_ns")?);
        let (node, took) = (self.take("node")?, received.saturating_sub(sent));
        Some(Event::Reading { node, sent: clock.past(sent), took })
    }

    fn record(mut self) -> Option<Event> {
        Some(Event::Record {
            node: self.take("node")?,
            record: self.take("record")?,
            expected: self.take("expected")?,
            replaced: self.take("replaced")? == "true",
        })
    }
}

/// The log filter with which a program tells it.
pub const FILTER: &str = "leasehold::ballot=trace,leasehold::record=trace,leasehold::clock=trace";

/// What a line of such a log tells; nothing if it is another line.
pub fn of_line(line: &str) -> Option<Event> {
    let (_, rest) = line.split_once(" TRACE ")?;
    let rest = [BALLOT, RECORD, CLOCK]
        .iter()
        .find_map(|target| rest.strip_prefix(target)?.strip_prefix(": "))
        .unwrap_or(rest);
    let (message, fields) = rest.split_once(' ')?;
    let (words, clock) = (Words::of_fields(fields)?, HolderClock::start());
    match message {
        "ballot" => words.ballot(&clock).map(Event::Ballot),
        "record" => words.record(),
        "reading" => words.reading(&clock),
        _ => None,
    }
}

/// `<node>|<life>|<run>|<word>`, with a space between two.
fn votes(text: &str) -> Option<Vec<Vote>> {
    let vote = |text: &str| {
        let mut words = text.split('|').map(str::to_owned);
        let mut next = || words.next();
        Some(Vote { node: next()?, life: next()?, run: next()?, word: next()? })
    };
    text.split_whitespace().map(vote).collect()
}

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push((field.name().into(), format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.name().into(), value.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{At, read_lines};

    #[test]
    fn a_log_line_tells_the_same() {
        let ballot = r#"2026-11-19T04:41:21.123456Z TRACE leasehold::ballot: ballot kind="extend" lock="l" holder=h:1 fence=7 asked_at_ns=5 votes="n1|0a|f00|extended n2|0b|f01|healed""#;
        let Some(Event::Ballot(ballot)) = of_line(ballot) else { panic!("{ballot}") };
        assert_eq!((ballot.fence, ballot.asked_at, ballot.votes.len()), (7, 5, 2));
        // The command line leaves the target out.
        let reading = "2026-11-19T04:41:21.123456Z TRACE reading node=n2 sent_ns=3 received_ns=7";
        let expected = Event::Reading { node: "n2".into(), sent: 3, took: 4 };
        assert_eq!(of_line(reading), Some(expected));
        let record = r#"x TRACE leasehold::record: record node=n1 record="leasehold2 a=b" expected="" replaced=true"#;
        assert!(matches!(of_line(record), Some(Event::Record { replaced: true, .. })));
        assert_eq!(of_line("2026-11-19T04:41:21Z  WARN leasehold: a node changed node=n1"), None);
    }

    #[test]
    fn ballots_records_and_readings_are_written_down_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let log = Mutex::new(Log::open(&path).unwrap());
        let clock = Arc::new(HolderClock::start());
        tracing::subscriber::with_default(Scribe { log, clock }, || {
            tracing::trace!(
                target: "leasehold::ballot", kind = "extend", lock = "l", holder = %"h:1",
                fence = 7_u64, asked_at_ns = 5_u64, votes = "n1|0a|f00|extended n2|0b|f01|healed",
                "ballot"
            );
            tracing::trace!(
                target: "leasehold::record", node = "n1", record = "leasehold2 a=b", expected = "",
                replaced = true, "record"
            );
            tracing::trace!(
                target: "leasehold::clock", node = "n2", sent_ns = 3_u64, received_ns = 7_u64,
                "reading"
            );
            tracing::error!(target: "leasehold", "not this");
        });
        let told: Vec<At<Event>> = read_lines(&path).unwrap();
        let vote = |node: &str, life: &str, run: &str, word: &str| Vote {
            node: node.into(),
            life: life.into(),
            run: run.into(),
            word: word.into(),
        };
        let ballot = Ballot {
            kind: "extend".into(),
            lock: "l".into(),
            holder: "h:1".into(),
            fence: 7,
            asked_at: 5,
            votes: vec![vote("n1", "0a", "f00", "extended"), vote("n2", "0b", "f01", "healed")],
        };
        let record = Event::Record {
            node: "n1".into(),
            record: "leasehold2 a=b".into(),
            expected: String::new(),
            replaced: true,
        };
        let told: Vec<_> = told.into_iter().map(|line| line.what).collect();
        let reading = Event::Reading { node: "n2".into(), sent: 3, took: 4 };
        assert_eq!(told, [Event::Ballot(ballot), record, reading]);
    }
}
