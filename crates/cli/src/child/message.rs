//! What supervisor, warden and guardian say to each other, over a socket that keeps messages apart.
//!
//! All are the same build of the same program, so the layout may change freely: a tag, then
//! numbers of eight bytes, then at most one text.

/// When the command and its descendants are to be ended if nothing newer is heard. Nanoseconds on the
/// clock that leases are judged by, which all processes of a machine share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    /// From then on the stop signal, once.
    pub(crate) stop_at: u64,
    /// From then on SIGKILL.
    pub(crate) kill_at: u64,
}

impl Plan {
    /// The command may run for as long as its supervisor lives.
    pub(crate) const NEVER: Self = Self { stop_at: u64::MAX, kill_at: u64::MAX };
}

/// From the supervisor to the guardian, and `Extend` to the warden; the first of these comes with
/// the guardian's socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Order {
    /// The lock is held: start the command, unless it is `start_by` already. Its standard input comes
    /// with this message.
    Start { plan: Plan, start_by: u64, fence: u64, holder: String },
    /// The lease was extended.
    Extend(Plan),
}

/// From the guardian to the supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum News {
    /// The guardian is there, and this is its number.
    Watching { pid: i32 },
    /// Guardian or warden cannot do their work; the number is the system's error.
    CannotWatch { errno: i32 },
    /// The command runs, and leads the process group of the same number.
    Started { pid: i32 },
    /// It cannot be started; the number is the system's error.
    CannotStart { errno: i32 },
    /// It was not started: its time was over before it began.
    TooLate,
    /// It was stopped, as by Ctrl-Z.
    Suspended { signal: i32 },
    /// Time is over: the guardian sent this signal.
    Ending { signal: i32 },
    /// The command ended and left descendants, so its process group may be empty by now.
    LeaderEnded,
    /// The guardian sent the stop signal to these, which the command left.
    Leftovers { who: String },
    /// This process stays in spite of all signals.
    Defies { who: String, is_forbidden: bool },
    /// No descendant is left.
    Ended(End),
}

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    /// As a shell says it: its code, or 128 + the signal.
    pub(crate) code: u8,
    /// Whether the guardian had to end it.
    pub(crate) forced: bool,
    /// When the last descendant was gone, on the clock that leases are judged by.
    pub(crate) at: u64,
}

/// Longer than every message: a holder has at most 233 bytes, other texts are cut to 400.
pub(crate) const MESSAGE_BYTES_MAX: usize = 512;

const TEXT_BYTES_MAX: usize = 400;

impl Order {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let (tag, numbers, text) = match self {
            Self::Start { plan, start_by, fence, holder } => {
                (b'S', [plan.stop_at, plan.kill_at, *start_by, *fence], holder.as_str())
            }
            Self::Extend(plan) => (b'E', [plan.stop_at, plan.kill_at, 0, 0], ""),
        };
        let mut bytes = vec![tag];
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        bytes.extend_from_slice(text.as_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&tag, rest) = bytes.split_first()?;
        let (numbers, text) = rest.split_at_checked(32)?;
        let number = |index: usize| {
            let bytes = numbers.get(8 * index..8 * index + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        let plan = Plan { stop_at: number(0)?, kill_at: number(1)? };
        match tag {
            b'S' => {
                let holder = String::from_utf8(text.to_vec()).ok()?;
                Some(Self::Start { plan, start_by: number(2)?, fence: number(3)?, holder })
            }
            b'E' => Some(Self::Extend(plan)),
            _ => None,
        }
    }
}

impl News {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let (tag, number, flag, text) = match self {
            Self::Watching { pid } => (b'n', *pid, false, ""),
            Self::CannotWatch { errno } => (b'w', *errno, false, ""),
            Self::Started { pid } => (b's', *pid, false, ""),
            Self::CannotStart { errno } => (b'c', *errno, false, ""),
            Self::TooLate => (b'l', 0, false, ""),
            Self::Suspended { signal } => (b'z', *signal, false, ""),
            Self::Ending { signal } => (b'k', *signal, false, ""),
            Self::LeaderEnded => (b'g', 0, false, ""),
            Self::Leftovers { who } => (b'r', 0, false, who.as_str()),
            Self::Defies { who, is_forbidden } => (b'd', 0, *is_forbidden, who.as_str()),
            Self::Ended(End { code, forced, .. }) => (b'e', i32::from(*code), *forced, ""),
        };
        let at = if let Self::Ended(end) = self { end.at } else { 0 };
        let mut bytes = vec![tag, u8::from(flag)];
        bytes.extend(number.to_le_bytes());
        bytes.extend(at.to_le_bytes());
        bytes.extend(text.bytes().take(TEXT_BYTES_MAX));
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&[tag, flag], rest) = bytes.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (at, text) = rest.split_first_chunk()?;
        let (number, at, flag) = (i32::from_le_bytes(*number), u64::from_le_bytes(*at), flag != 0);
        let who = || String::from_utf8_lossy(text).into_owned();
        Some(match tag {
            b'n' => Self::Watching { pid: number },
            b'w' => Self::CannotWatch { errno: number },
            b's' => Self::Started { pid: number },
            b'c' => Self::CannotStart { errno: number },
            b'l' => Self::TooLate,
            b'z' => Self::Suspended { signal: number },
            b'k' => Self::Ending { signal: number },
            b'g' => Self::LeaderEnded,
            b'r' => Self::Leftovers { who: who() },
            b'd' => Self::Defies { who: who(), is_forbidden: flag },
            b'e' => Self::Ended(End { code: u8::try_from(number).ok()?, forced: flag, at }),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_back_as_written() {
        let plan = Plan { stop_at: 1, kill_at: u64::MAX };
        let holder = format!("{}:{:032x}", "x".repeat(200), u128::MAX);
        for order in
            [Order::Extend(plan), Order::Start { plan, start_by: 7, fence: 1 << 52, holder }]
        {
            let bytes = order.to_bytes();
            assert!(bytes.len() < MESSAGE_BYTES_MAX);
            assert_eq!(Order::from_bytes(&bytes), Some(order));
        }
        for news in [
            News::Watching { pid: 7 },
            News::CannotWatch { errno: 24 },
            News::Started { pid: i32::MAX },
            News::CannotStart { errno: 2 },
            News::TooLate,
            News::Suspended { signal: 20 },
            News::Ending { signal: 15 },
            News::LeaderEnded,
            News::Leftovers { who: "4711 (sleep), 4712 (sh)".into() },
            News::Defies { who: "4711 (sudo)".into(), is_forbidden: true },
            News::Ended(End { code: 255, forced: true, at: u64::MAX }),
            News::Ended(End { code: 0, forced: false, at: 1 }),
        ] {
            assert_eq!(News::from_bytes(&news.to_bytes()), Some(news));
        }
        assert_eq!(Order::from_bytes(b""), None);
        assert_eq!(Order::from_bytes(b"Sxx"), None);
        assert_eq!(News::from_bytes(b"s"), None);
    }
}
