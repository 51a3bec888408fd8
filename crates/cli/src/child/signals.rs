//! Signals: which are passed on to the command, how they are called, and which the one who started
//! us wants to be ignored.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// Passed on to the command's process group.
pub(crate) const FORWARDED: [Signal; 8] = [
    Signal::TERM,
    Signal::INT,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::CONT,
    Signal::WINCH,
];

/// Names for `--stop-signal`, and for messages.
const NAMES: [(&str, Signal); 12] = [
    ("TERM", Signal::TERM),
    ("INT", Signal::INT),
    ("HUP", Signal::HUP),
    ("QUIT", Signal::QUIT),
    ("KILL", Signal::KILL),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
    ("ALRM", Signal::ALARM),
    ("ABRT", Signal::ABORT),
    ("CONT", Signal::CONT),
    ("WINCH", Signal::WINCH),
    ("TSTP", Signal::TSTP),
];

/// Reads `TERM`, `SIGTERM` or `15`.
pub(crate) fn parse(text: &str) -> Result<Signal, String> {
    let upper = text.to_ascii_uppercase();
    let wanted = upper.strip_prefix("SIG").unwrap_or(&upper);
    let ends_programs =
        |signal: &Signal| ![Signal::CONT, Signal::WINCH, Signal::TSTP].contains(signal);
    NAMES
        .iter()
        .find(|(name, signal)| *name == wanted || signal.as_raw().to_string() == wanted)
        .map(|(_, signal)| *signal)
        .filter(ends_programs)
        .ok_or_else(|| "known are TERM, INT, HUP, QUIT, KILL, USR1, USR2, ALRM, ABRT".to_owned())
}

/// `SIGTERM`, or the number.
pub(crate) fn name(signal: Signal) -> String {
    let known = NAMES.iter().find(|(_, candidate)| *candidate == signal);
    known.map_or_else(|| format!("signal {}", signal.as_raw()), |(name, _)| format!("SIG{name}"))
}

/// The signals that were ignored when this process was started, as under `nohup`. They must stay
/// ignored: a handler of ours would become the default action in whatever we execute.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ignored(u64);

impl Ignored {
    /// Must be asked before the first handler is set.
    pub(crate) fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        Self(mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0))
    }

    pub(crate) fn contains(self, signal: Signal) -> bool {
        self.0 >> (signal.as_raw() - 1) & 1 == 1
    }
}

/// The signals that this process was sent.
#[derive(Debug)]
pub(crate) struct Signals {
    ignored: Ignored,
    streams: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    pub(crate) fn listen(wanted: &[Signal]) -> io::Result<Self> {
        let mut signals = Self { ignored: Ignored::now(), streams: Vec::new() };
        for signal in wanted {
            signals.also(*signal)?;
        }
        Ok(signals)
    }

    pub(crate) fn also(&mut self, signal: Signal) -> io::Result<()> {
        if !self.ignored.contains(signal) {
            let stream = unix::signal(SignalKind::from_raw(signal.as_raw()))?;
            self.streams.push((signal, stream));
        }
        Ok(())
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.streams {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next one that asks this process to end.
    pub(crate) async fn next_end(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT].contains(&signal) {
                return signal;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_and_numbers() {
        assert_eq!(parse("TERM"), Ok(Signal::TERM));
        assert_eq!(parse("sigint"), Ok(Signal::INT));
        assert_eq!(parse("9"), Ok(Signal::KILL));
        for bad in ["", "SIG", "CONT", "STOP", "0", "99", "-9"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert_eq!(name(Signal::USR1), "SIGUSR1");
        assert_eq!(name(Signal::PIPE), "signal 13");
    }
}
