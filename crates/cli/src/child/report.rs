//! What `run` says on standard error while it works: sentences for people, or with `--json` one
//! object per line.
//!
//! Every object has `schema` (`leasehold/run/v1`), `event` and `name`, the lock. The others:
//!
//! | event       | fields                                                                        |
//! |-------------|-------------------------------------------------------------------------------|
//! | `no_quorum` | `error`: too few nodes answer, and the lock is waited for; told once          |
//! | `acquired`  | `fence`, `holder`, `ttl_ms`, `waited_ms`                                      |
//! | `uncertain` | `left_ms`: an extension failed; until then the lease is still good            |
//! | `kept`      | `left_ms`: a later extension succeeded                                        |
//! | `ending`    | `signal`, `left_ms`: the command was sent this signal, the lease is near its end |
//! | `not_passed_on` | `signal`: it came to us, and the command belongs to another user          |
//! | `lost`      | `reason`                                                                      |
//! | `leftovers` | `signal`, `processes`: it was sent to these, which the command left           |
//! | `defies`    | `process`, `reason`: it stays in spite of all signals                         |
//! | `ended`     | `code`: as a shell says it, 128 + N for signal N                              |
//! | `released`  | `outcome`: `released`, `already_expired`, `taken_over`, `superseded`, `unknown` |
//!
//! Fields may be added; none is removed or changes its meaning without another `schema`.

use std::time::Duration;

use leasehold::{Guard, Loss, ReleaseOutcome};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::signals;
use crate::duration::millis;
use crate::exit::Failure;
use crate::output::{self, Output};

/// Who is told, and how much.
#[derive(Debug, Clone)]
pub(crate) struct Reporter {
    pub(super) name: String,
    output: Output,
}

impl Reporter {
    pub(crate) fn new(name: &str, output: Output) -> Self {
        Self { name: name.to_owned(), output }
    }

    /// With `--json`, an object; otherwise a sentence, if there is one.
    fn tell(&self, event: &str, fields: Value, sentence: Option<String>) {
        if !self.output.json {
            if let Some(sentence) = sentence {
                self.output.note(&format!("lock `{}`: {sentence}", self.name));
            }
            return;
        }
        let mut object = json!({ "schema": "leasehold/run/v1", "event": event, "name": self.name });
        if let (Value::Object(object), Value::Object(fields)) = (&mut object, fields) {
            object.extend(fields);
        }
        output::event(&object);
    }

    pub(crate) fn acquired(&self, guard: &Guard, ttl: Duration, waited: Duration) {
        let fields = json!({
            "fence": guard.fence().get(),
            "holder": guard.holder().as_str(),
            "ttl_ms": millis(ttl),
            "waited_ms": millis(waited),
        });
        self.tell("acquired", fields, None);
    }

    /// Nobody can tell whether the lock is free, and we go on waiting.
    pub(crate) fn no_quorum(&self, failure: &Failure) {
        let hint = failure.hint().map_or(String::new(), |hint| format!("\nhint: {hint}"));
        if self.output.json {
            return self.tell("no_quorum", json!({ "error": format!("{failure}{hint}") }), None);
        }
        self.output.note(&format!("{failure}; still waiting{hint}"));
    }

    pub(crate) fn uncertain(&self, left: Duration) {
        let text = format!("could not be extended, good for {left:.1?} more; trying again");
        self.tell("uncertain", json!({ "left_ms": millis(left) }), Some(text));
    }

    pub(crate) fn kept(&self, left: Duration) {
        self.tell("kept", json!({ "left_ms": millis(left) }), Some("extended again".into()));
    }

    pub(crate) fn ending(&self, signal: Signal, left: Duration) {
        let signal = signals::name(signal);
        let shown = match left {
            Duration::ZERO => "nothing".to_owned(),
            left => format!("{left:.1?}"),
        };
        let text = format!("{shown} of the lease left: {signal} sent to the command");
        self.tell("ending", json!({ "signal": signal, "left_ms": millis(left) }), Some(text));
    }

    pub(crate) fn leftovers(&self, who: &str, signal: Signal) {
        let signal = signals::name(signal);
        let text = format!("{signal} sent to what the command left running: {who}");
        self.tell("leftovers", json!({ "signal": signal, "processes": who }), Some(text));
    }

    pub(crate) fn defies(&self, who: &str, is_forbidden: bool) {
        let reason = match is_forbidden {
            true => "it belongs to another user",
            false => "SIGKILL was sent a second ago, so it hangs in the kernel",
        };
        let text = format!(
            "process {who} cannot be ended: {reason}; the lock is kept until it ends or the lease is \
             over"
        );
        self.tell("defies", json!({ "process": who, "reason": reason }), Some(text));
    }

    pub(crate) fn not_passed_on(&self, signal: Signal) {
        let text = format!(
            "{} does not reach the command: it belongs to another user",
            signals::name(signal)
        );
        self.tell("not_passed_on", json!({ "signal": signals::name(signal) }), Some(text));
    }

    pub(crate) fn lost(&self, loss: &Loss, goes_on: bool) {
        let reason = loss.reason.to_string();
        let text = format!("lost: {reason}; the command goes on without it");
        self.tell("lost", json!({ "reason": reason }), goes_on.then_some(text));
    }

    pub(crate) fn ended(&self, code: u8) {
        self.tell("ended", json!({ "code": code }), None);
    }

    pub(crate) fn released(&self, outcome: &ReleaseOutcome) {
        let outcome = match outcome {
            ReleaseOutcome::Released => "released",
            ReleaseOutcome::HandedOver => "handed_over",
            ReleaseOutcome::AlreadyExpired => "already_expired",
            ReleaseOutcome::TakenOver { .. } => "taken_over",
            ReleaseOutcome::Superseded { .. } => "superseded",
            _ => "unknown",
        };
        self.tell("released", json!({ "outcome": outcome }), None);
    }
}
