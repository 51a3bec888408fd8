//! What a person sees meanwhile; nothing unless standard error is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar for one scenario.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Of `turns` turns.
    pub fn new(scenario: &str, turns: usize) -> Progress {
        let bar = ProgressBar::new(turns as u64).with_prefix(scenario.to_owned());
        let style = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {eta} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Progress { bar }
    }

    /// Whose turn it is.
    pub fn at(&self, what: &str) {
        self.bar.set_message(what.to_owned());
        self.bar.tick();
    }

    /// A turn is over.
    pub fn step(&self) {
        self.bar.inc(1);
    }

    /// Says something above the bar, or plainly where there is none.
    pub fn note(&self, text: &str) {
        self.bar.suspend(|| eprintln!("{text}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
