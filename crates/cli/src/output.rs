//! How the program speaks: data on stdout, everything else on stderr, no panic whoever closed
//! either of them.

use std::io::{self, IsTerminal, Write};

use serde_json::{Value, json};

use crate::exit::{Exit, Failure};

/// When to use colors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    Always,
    Never,
}

/// What a word means to the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Good,
    Warning,
    Bad,
    Dim,
}

/// Where data and remarks go, and how they look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    /// Data as JSON, one object per line.
    pub(crate) json: bool,
    /// Nothing but data and errors.
    pub(crate) quiet: bool,
    color: ColorChoice,
}

impl Output {
    pub(crate) fn new(json: bool, quiet: bool, color: ColorChoice) -> Self {
        Self { json, quiet, color }
    }

    /// Whether a person looks at stdout.
    pub(crate) fn is_terminal(self) -> bool {
        io::stdout().is_terminal()
    }

    pub(crate) fn paints_stderr(self) -> bool {
        self.paints(io::stderr().is_terminal())
    }

    fn paints(self, is_terminal: bool) -> bool {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        match self.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => {
                let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
                is_terminal && !is_dumb && !set("NO_COLOR")
            }
        }
    }

    /// One object of data.
    pub(crate) fn object(self, value: &Value) -> Result<(), Failure> {
        self.write(&format!("{value}\n"))
    }

    /// Data for people; ends the line.
    pub(crate) fn text(self, text: &str) -> Result<(), Failure> {
        self.write(&format!("{text}\n"))
    }

    /// Data as they are.
    pub(crate) fn write(self, text: &str) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(Failure::Output)
    }

    /// A remark, unless nobody wants any.
    pub(crate) fn note(self, text: &str) {
        if !self.quiet {
            say(text);
        }
    }

    /// What another program wrote, without what would move a cursor; in color where that is wanted.
    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        let text = printable(text);
        let code = match tone {
            Tone::Plain => return text,
            Tone::Good => "32",
            Tone::Warning => "33",
            Tone::Bad => "31",
            Tone::Dim => "2",
        };
        if self.paints(self.is_terminal()) { format!("\x1b[{code}m{text}\x1b[0m") } else { text }
    }

    /// Rows in columns that stand below each other; the first row is the heading.
    pub(crate) fn table(self, rows: &[Vec<(Tone, String)>]) -> String {
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|(_, text)| text.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<(Tone, String)>| {
            let mut line = String::new();
            for (index, (tone, text)) in row.iter().enumerate() {
                line.push_str(&self.paint(*tone, text));
                if index + 1 < row.len() {
                    let pad = widths[index] - text.chars().count() + 2;
                    line.extend(std::iter::repeat_n(' ', pad));
                }
            }
            line.truncate(line.trim_end().len());
            line
        };
        rows.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// A heading of a table.
pub(crate) fn heading<const N: usize>(names: [&str; N]) -> Vec<(Tone, String)> {
    names.map(|name| (Tone::Dim, name.to_owned())).into()
}

/// A line on stderr. Nobody may be left to read it.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr().lock(), "leasehold: {}", printable(text));
}

/// One object that is not data: what happened.
pub(crate) fn event(value: &Value) {
    let _ = writeln!(io::stderr().lock(), "{value}");
}

/// The last words of a program that failed.
pub(crate) fn complain(json: bool, failure: &Failure, exit: Exit) {
    if exit == Exit::ClosedOutput {
        return;
    }
    let hint = failure.hint().map_or(String::new(), |hint| format!("\nhint: {hint}"));
    let text = format!("{failure}{hint}");
    if json {
        let code = exit.code();
        let value = json!({"schema": "leasehold/error/v1", "exit_code": code, "error": text});
        event(&value);
    } else {
        say(&text);
    }
}

fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other_and_no_cell_can_move_the_cursor() {
        let output = Output::new(false, false, ColorChoice::Never);
        let plain = |text: &str| (Tone::Bad, text.to_owned());
        let rows = [heading(["a", "b"]), vec![plain("lång"), plain("x\x1b[2Jy")]];
        assert_eq!(output.table(&rows), "a     b\nlång  x\u{fffd}[2Jy");
    }
}
