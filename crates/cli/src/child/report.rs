//! What `run` says on standard error while it works: sentences for people, or with `--json` one
//! object per line.
//!
//! Every object has `schema` (`leasehold/run/v1`), `event` and `name`, the lock. The others:
//!
//! | event       | fields                                                                        |
//! |-------------|-------------------------------------------------------------------------------|
//! | `acquired`  | `fence`, `holder`, `ttl_ms`, `waited_ms`                                      |
//! | `uncertain` | `left_ms`: an extension failed; until then the lease is still good            |
//! | `kept`      | `left_ms`: a later extension succeeded                                        |
//! | `ending`    | `signal`, `left_ms`: the command was sent this signal, the lease is near its end |
//! | `lost`      | `reason`                                                                      |
//! | `ended`     | `code`: as a shell says it, 128 + N for signal N                              |
//! | `released`  | `outcome`: `released`, `already_expired`, `taken_over` or `unknown`           |
//!
//! Fields may be added; none is removed or changes its meaning without another `schema`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use leasehold::{Guard, Loss, ReleaseOutcome};
use rustix::process::Signal;

use super::signals;

/// Who is told, and how much.
#[derive(Debug, Clone)]
pub(crate) struct Reporter {
    pub(crate) name: String,
    pub(crate) json: bool,
    pub(crate) quiet: bool,
}

impl Reporter {
    pub(crate) fn acquired(&self, guard: &Guard, ttl: Duration, waited: Duration) {
        if self.json {
            Line::event(&self.name, "acquired")
                .number("fence", guard.fence().get())
                .text("holder", guard.holder().as_str())
                .millis("ttl_ms", ttl)
                .millis("waited_ms", waited)
                .print();
        }
    }

    pub(crate) fn uncertain(&self, left: Duration) {
        if self.json {
            Line::event(&self.name, "uncertain").millis("left_ms", left).print();
        } else {
            self.say(&format!("could not be extended, good for {left:.1?} more; trying again"));
        }
    }

    pub(crate) fn kept(&self, left: Duration) {
        if self.json {
            Line::event(&self.name, "kept").millis("left_ms", left).print();
        } else {
            self.say("extended again");
        }
    }

    pub(crate) fn ending(&self, signal: Signal, left: Duration) {
        let signal = signals::name(signal);
        if self.json {
            let line = Line::event(&self.name, "ending").text("signal", &signal);
            line.millis("left_ms", left).print();
        } else {
            let left = match left {
                Duration::ZERO => "nothing".to_owned(),
                left => format!("{left:.1?}"),
            };
            self.say(&format!("{left} of the lease left: {signal} sent to the command"));
        }
    }

    pub(crate) fn lost(&self, loss: &Loss, goes_on: bool) {
        if self.json {
            Line::event(&self.name, "lost").text("reason", &loss.reason.to_string()).print();
        } else if goes_on {
            self.say(&format!("lost: {}; the command goes on without it", loss.reason));
        }
    }

    pub(crate) fn ended(&self, code: u8) {
        if self.json {
            Line::event(&self.name, "ended").number("code", u64::from(code)).print();
        }
    }

    pub(crate) fn released(&self, outcome: &ReleaseOutcome) {
        if self.json {
            let outcome = match outcome {
                ReleaseOutcome::Released => "released",
                ReleaseOutcome::AlreadyExpired => "already_expired",
                ReleaseOutcome::TakenOver { .. } => "taken_over",
                _ => "unknown",
            };
            Line::event(&self.name, "released").text("outcome", outcome).print();
        }
    }

    fn say(&self, text: &str) {
        if !self.quiet {
            say(&format!("lock `{}`: {text}", self.name));
        }
    }
}

/// One sentence on standard error. Nobody there to read it is no reason to fail.
pub(crate) fn say(text: &str) {
    let _ = std::io::stderr().write_all(format!("leasehold: {text}\n").as_bytes());
}

/// A JSON object on one line.
#[derive(Debug)]
pub(crate) struct Line(String);

impl Line {
    fn event(name: &str, event: &str) -> Self {
        Self::new("leasehold/run/v1").text("event", event).text("name", name)
    }

    pub(crate) fn new(schema: &str) -> Self {
        Self("{".to_owned()).text("schema", schema)
    }

    fn key(&mut self, key: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        let _ = write!(self.0, "\"{key}\":");
    }

    pub(crate) fn number(mut self, key: &str, value: u64) -> Self {
        self.key(key);
        let _ = write!(self.0, "{value}");
        self
    }

    pub(crate) fn millis(self, key: &str, value: Duration) -> Self {
        self.number(key, u64::try_from(value.as_millis()).unwrap_or(u64::MAX))
    }

    pub(crate) fn text(mut self, key: &str, value: &str) -> Self {
        self.key(key);
        self.0.push('"');
        for character in value.chars() {
            match character {
                '"' | '\\' => self.0.extend(['\\', character]),
                '\u{0}'..='\u{1f}' => {
                    let _ = write!(self.0, "\\u{:04x}", u32::from(character));
                }
                _ => self.0.push(character),
            }
        }
        self.0.push('"');
        self
    }

    /// The line, with its end.
    pub(crate) fn finish(mut self) -> String {
        self.0.push_str("}\n");
        self.0
    }

    fn print(self) {
        let _ = std::io::stderr().write_all(self.finish().as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        let line = Line::new("s").text("name", "a\"b\\c\nd").number("n", 7).finish();
        assert_eq!(line, "{\"schema\":\"s\",\"name\":\"a\\\"b\\\\c\\u000ad\",\"n\":7}\n");
    }
}
