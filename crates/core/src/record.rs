//! The identity record: one line of text on each node that tells whose node it is, which life of
//! it this is, and above which number its fences may be trusted.

use std::fmt;
use std::time::Duration;

use crate::{Facts, Fence, WallMicros};

/// Stands first in each record; the number goes up when the format changes.
const FORMAT: &str = "leasehold1";

/// Which nodes belong together: a hash of the member list and its length.
///
/// Two member lists have disjoint majorities and break everything without any fault, so a node
/// serves one list only.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(u64);

/// The identity record of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Whose node this is.
    pub cluster: Fingerprint,
    /// How many nodes the cluster has.
    pub nodes: usize,
    /// The longest Ttl in this cluster; it belongs to the cluster, not to a client.
    pub max_ttl: Duration,
    /// Random; another one each time the node may have forgotten something.
    pub life: u128,
    /// The server process that was running when this was written.
    pub run_id: String,
    /// Whether the node votes.
    pub state: RecordState,
    /// An absent fence counts as this.
    pub floor: Fence,
    /// When this life began, by the node's clock.
    pub born: WallMicros,
}

/// Whether a node votes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordState {
    /// It does.
    Admitted,
    /// Not before everything that it may have forgotten is over.
    Quarantined,
    /// Not before all members have left their old list; never ends by itself.
    Barred,
}

/// Why a text is not a record that this version understands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordError {
    /// Written by a newer version.
    Newer {
        /// The format it names.
        format: String,
    },
    /// Not a record at all.
    Malformed,
}

impl Fingerprint {
    /// The fingerprint of a member list; the order does not matter.
    pub fn of_members<'a>(members: impl IntoIterator<Item = &'a str>) -> Self {
        let mut members: Vec<&str> = members.into_iter().collect();
        members.sort_unstable();
        let mut hash = Fnv::new();
        hash.write(&(members.len() as u64).to_le_bytes());
        for member in members {
            hash.write(&(member.len() as u64).to_le_bytes());
            hash.write(member.as_bytes());
        }
        Self(hash.0)
    }

    /// The fingerprint of every list of one. It needs no name: no other list of one that has this
    /// node in it can differ, and a file may be moved or a host called by another name.
    pub fn of_one() -> Self {
        Self::of_members(["the only node"])
    }
}

/// FNV-1a: the standard library promises no hash that is the same in every build.
struct Fnv(u64);

impl Fnv {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

impl Record {
    /// The record that stands on a node and one with its floor raised to what has been idle for
    /// `retention`, if that is worth a new record: each change costs every client one more question.
    ///
    /// First the floor goes up, then what lies below it may be forgotten: so nothing that is
    /// dropped can be given again.
    pub fn raised(facts: &Facts, retention: Duration) -> Option<(String, Self)> {
        let text = facts.record.clone()?;
        let record = Self::parse(&text).ok()?;
        let retention = u64::try_from(retention.as_micros()).ok()?;
        let floor = Fence::new(facts.clock.0.checked_sub(retention)?)?;
        let worth = record.floor.get().saturating_add(retention / 8);
        (floor.get() > worth).then_some((text, Self { floor, ..record }))
    }

    /// Reads a record back.
    pub fn parse(text: &str) -> Result<Self, RecordError> {
        let mut words = text.split(' ');
        let format = words.next().unwrap_or_default();
        if format != FORMAT {
            let is_ours = format
                .strip_prefix("leasehold")
                .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
            return Err(if is_ours {
                RecordError::Newer { format: format.to_owned() }
            } else {
                RecordError::Malformed
            });
        }
        Self::parse_fields(&mut words).ok_or(RecordError::Malformed)
    }

    fn parse_fields<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut field = |name: &str| words.next()?.strip_prefix(name)?.strip_prefix('=');
        let record = Self {
            cluster: Fingerprint(u64::from_str_radix(field("cluster")?, 16).ok()?),
            nodes: field("nodes")?.parse().ok()?,
            max_ttl: Duration::from_millis(field("max_ttl")?.parse().ok()?),
            life: u128::from_str_radix(field("life")?, 16).ok()?,
            run_id: field("run")?.to_owned(),
            state: match field("state")? {
                "admitted" => RecordState::Admitted,
                "quarantined" => RecordState::Quarantined,
                "barred" => RecordState::Barred,
                _ => return None,
            },
            floor: Fence::new(field("floor")?.parse().ok()?)?,
            born: WallMicros(field("born")?.parse().ok()?),
        };
        words.next().is_none().then_some(record)
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            RecordState::Admitted => "admitted",
            RecordState::Quarantined => "quarantined",
            RecordState::Barred => "barred",
        };
        write!(
            f,
            "{FORMAT} cluster={} nodes={} max_ttl={} life={:032x} run={} state={state} floor={} born={}",
            self.cluster,
            self.nodes,
            self.max_ttl.as_millis(),
            self.life,
            self.run_id,
            self.floor,
            self.born.0,
        )
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newer { format } => {
                write!(f, "its identity record has the newer format `{format}`")
            }
            Self::Malformed => f.write_str("its identity record is not one of ours"),
        }
    }
}

impl std::error::Error for RecordError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            cluster: Fingerprint::of_members(["a:6379/0", "b:6379/0", "c:6379/0"]),
            nodes: 3,
            max_ttl: Duration::from_secs(30),
            life: 0xabc,
            run_id: "f00".into(),
            state: RecordState::Quarantined,
            floor: Fence::new(12).unwrap(),
            born: WallMicros(1_700_000_000_000_000),
        }
    }

    #[test]
    fn a_record_reads_back_as_written() {
        let text = record().to_string();
        assert_eq!(Record::parse(&text), Ok(record()), "{text}");
    }

    #[test]
    fn every_truncation_and_every_foreign_text_is_refused() {
        let text = record().to_string();
        for cut in 0..text.len() - 16 {
            assert!(Record::parse(&text[..cut]).is_err(), "{}", &text[..cut]);
        }
        for bad in [format!("{text} more"), text.replace("admitted", "x"), "1".into()] {
            if bad != text {
                assert_eq!(Record::parse(&bad), Err(RecordError::Malformed), "{bad}");
            }
        }
        let newer = text.replace(FORMAT, "leasehold2");
        assert_eq!(Record::parse(&newer), Err(RecordError::Newer { format: "leasehold2".into() }));
    }

    #[test]
    fn a_fingerprint_is_of_the_set_and_not_of_the_order_or_the_joined_text() {
        let print = |members: &[&'static str]| Fingerprint::of_members(members.iter().copied());
        assert_eq!(print(&["a", "b", "c"]), print(&["c", "a", "b"]));
        assert_ne!(print(&["a", "b"]), print(&["a", "b", "c"]));
        assert_ne!(print(&["ab", "c"]), print(&["a", "bc"]));
        assert_eq!(print(&["a", "b", "c"]).to_string(), print(&["a", "b", "c"]).to_string());
    }
}
