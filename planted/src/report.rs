//! What came of it: a line per bug on the terminal, and a page in `docs/`.

use std::fmt::Write as _;

use crate::bugs::{Bug, Kind};
use crate::catchers::{self, Verdict};

/// A bug and what the catchers said of it, in the order of the catchers.
#[derive(Debug)]
pub(crate) struct Result {
    pub(crate) bug: Bug,
    pub(crate) verdicts: Vec<(&'static str, Verdict)>,
}

impl Result {
    /// How many caught it.
    pub(crate) fn caught(&self) -> usize {
        self.verdicts.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Caught(_))).count()
    }

    /// Whether enough of them did.
    pub(crate) fn is_caught(&self, demands: usize) -> bool {
        self.caught() >= demands
    }
}

/// One line of the summary.
pub(crate) fn line(result: &Result, demands: usize) -> String {
    let mark = if result.is_caught(demands) { "caught " } else { "ESCAPED" };
    let mut line = format!("{mark}  {:<34}", result.bug.name);
    for (name, verdict) in &result.verdicts {
        let said = match verdict {
            Verdict::Caught(evidence) => evidence.clone(),
            Verdict::Missed => "nothing".into(),
            Verdict::Unclear(_) => "unclear".into(),
            Verdict::Interrupted => "interrupted".into(),
        };
        let _ = write!(line, "  {name}: {said}");
    }
    line
}

/// The page.
pub(crate) fn page(results: &[Result]) -> String {
    let titles: Vec<_> = catchers::ALL.iter().map(|catcher| catcher.title).collect();
    let mut page = format!(
        "# Planted bugs\n\n\
         Made by `./test planted`; do not edit. Each of these {} bugs is put into a copy of the source, one at a time, \
         and whatever should catch it is run. A bug that escapes fails the command; a bug of the protocol must be \
         caught by two that look in different ways. The list is in [planted/bugs](../planted/bugs): a bug is a text \
         to find, a text to put there instead, and who should notice. Without a bug all of them are green, which is \
         checked first.\n\n\
         * *model*: the promise that is broken, how many steps it takes, and in which case ([model](../model))\n\
         * *simulation*: seeds from 1 on, until the first that is found out ([sim](../sim))\n\
         * *simulated driver*: the scenario that fails, of the whole library in simulated time, and its first seed \
         ([simulation](../crates/leasehold/src/simulation))\n\
         * *tests*: the tests that fail, of those that were run\n\
         * *chaos*: the promise that is broken on real servers, and after how many seconds ([chaos](../chaos))\n\n\
         An empty field: was not asked. A dash: noticed nothing. `model.md`, `model2.md`, `peers.md` and `safety.md` are \
         the notes of the research that came before the code.\n",
        results.len()
    );
    for kind in Kind::ALL {
        let _ = write!(page, "\n## {}\n\n| bug | known from |", kind.title());
        titles.iter().for_each(|title| page.push_str(&format!(" {title} |")));
        page.push_str("\n|---|---|");
        titles.iter().for_each(|_| page.push_str("---|"));
        page.push('\n');
        for result in results.iter().filter(|result| result.bug.kind == kind) {
            let Bug { name, what, known, .. } = &result.bug;
            let _ = write!(page, "| **{name}**: {what} | {known} |");
            for catcher in catchers::ALL {
                let verdict = result.verdicts.iter().find(|(name, _)| *name == catcher.name);
                match verdict {
                    Some((_, Verdict::Caught(evidence))) => {
                        page.push_str(&format!(" {evidence} |"))
                    }
                    Some(_) => page.push_str(" – |"),
                    None => page.push_str(" |"),
                }
            }
            page.push('\n');
        }
    }
    page
}
