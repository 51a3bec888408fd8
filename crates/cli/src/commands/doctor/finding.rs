//! One thing that `doctor` has to say: what was found, what it endangers, what fixes it.

use leasehold::NodeHealth;
use serde_json::{Value, json};

use crate::output::{Output, Tone};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Ok,
    Warning,
    Error,
}

impl Level {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One thing to know.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) level: Level,
    pub(super) check: &'static str,
    pub(super) node: Option<String>,
    pub(super) found: String,
    pub(super) endangers: Option<String>,
    pub(super) fix: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, node: &NodeHealth, found: impl Into<String>) -> Self {
        let node = Some(node.node.to_string());
        Self { level: Level::Ok, check, node, found: found.into(), endangers: None, fix: None }
    }

    pub(super) fn bad(
        level: Level,
        check: &'static str,
        found: impl Into<String>,
        endangers: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        let (endangers, fix) = (Some(endangers.into()), Some(fix.into()));
        Self { level, check, node: None, found: found.into(), endangers, fix }
    }

    pub(super) fn at(mut self, node: &NodeHealth) -> Self {
        self.node = Some(node.node.to_string());
        self
    }
}

impl Finding {
    /// `leasehold/finding/v1`.
    pub(super) fn json(&self) -> Value {
        json!({
            "schema": "leasehold/finding/v1",
            "level": self.level.word(),
            "check": self.check,
            "node": self.node,
            "found": self.found,
            "endangers": self.endangers,
            "fix": self.fix,
        })
    }

    pub(super) fn text(&self, output: Output) -> String {
        let tone = match self.level {
            Level::Ok => Tone::Good,
            Level::Warning => Tone::Warning,
            Level::Error => Tone::Bad,
        };
        let node = self.node.as_ref().map_or(String::new(), |node| format!("{node}: "));
        let level = output.paint(tone, &format!("{:<7}", self.level.word()));
        // The nodes' own words: nothing in them may move the cursor.
        let found = output.paint(Tone::Plain, &format!("{node}{}", self.found));
        let mut text = format!("{level}  {:<11}  {found}", self.check);
        for (name, line) in [("endangers", &self.endangers), ("fix", &self.fix)] {
            if let Some(line) = line {
                text.push_str(&format!("\n{:22}{name}: {line}", ""));
            }
        }
        text
    }
}
