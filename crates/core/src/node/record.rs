//! The identity record: one line of text on each node that tells whose node it is, which life of
//! it this is, and above which number its fences may be trusted.

use std::fmt;
use std::time::Duration;

use crate::{Facts, Fence, ServerFacts, WallMicros};

/// Stands first in each record; the number goes up when the format changes.
const FORMAT: &str = "leasehold2";
/// The format before: no member, no replication id, no origin.
const FORMAT_BEFORE: &str = "leasehold1";

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
    /// Which member of the list this server is. Empty in a record of the format before.
    pub member: MemberName,
    /// The longest Ttl in this cluster; it belongs to the cluster, not to a client.
    pub max_ttl: Duration,
    /// Random; another one each time the node may have forgotten something.
    pub life: u128,
    /// The server process that was running when this was written.
    pub run_id: String,
    /// The history of writes that this server had then, in its own word; see
    /// [`ServerFacts::replication_id`](crate::ServerFacts::replication_id). Empty in a record of
    /// the format before.
    pub replication_id: String,
    /// What came before this life.
    pub origin: Origin,
    /// Whether the node votes.
    pub state: RecordState,
    /// An absent fence counts as this.
    pub floor: Fence,
    /// When this life began, by the node's clock.
    pub born: WallMicros,
    /// How long this life must wait before it votes, where that is longer than `max_ttl` says: the
    /// list before it had a longer one.
    pub waits: Option<Duration>,
    /// What the clocks of the members showed when this life began to wait, at most, by the order of
    /// their names; empty where too few agreed with this node's. How long it waited is told by all of
    /// them together.
    pub clocks: Vec<Option<WallMicros>>,
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

/// The name of a member as one word: what would end a word, or cannot be seen, is written as `%xx`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MemberName(String);

/// What came before a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Nothing that anybody knows of: the node had no record.
    First,
    /// An earlier life, which it may have forgotten.
    Later,
    /// Another member list.
    Succession,
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

    /// The fingerprint of every list of one whose node sits out a quarantine. A client that lets it
    /// vote at once would undo that for all others, so it is another list.
    pub fn of_one_that_waits() -> Self {
        Self::of_members(["the only node, which waits when it forgot"])
    }
}

impl MemberName {
    /// The word for a member's name, as it stands in the list.
    pub fn new(name: &str) -> Self {
        let mut word = String::with_capacity(name.len());
        for byte in name.bytes() {
            match byte {
                b'%' => word.push_str("%25"),
                0x21..=0x7e => word.push(char::from(byte)),
                other => word.push_str(&format!("%{other:02x}")),
            }
        }
        Self(word)
    }

    /// The name of the only member of a list of one, whatever it is called; see
    /// [`Fingerprint::of_one`].
    pub fn of_one() -> Self {
        Self("only".to_owned())
    }

    /// The word.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn parse(word: &str) -> Option<Self> {
        let is_word = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_graphic());
        is_word.then(|| Self(word.to_owned()))
    }
}

impl fmt::Display for MemberName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
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
    pub(crate) fn raised(facts: &Facts, retention: Duration) -> Option<(String, Self)> {
        let text = facts.record.clone()?;
        let record = Self::parse(&text).ok().filter(|record| !record.is_of_the_format_before())?;
        let retention = u64::try_from(retention.as_micros()).ok()?;
        let floor = Fence::new(facts.clock.0.checked_sub(retention)?)?;
        let worth = record.floor.get().saturating_add(retention / 8);
        (floor.get() > worth).then_some((text, Self { floor, ..record }))
    }

    /// Reads a record back.
    pub fn parse(text: &str) -> Result<Self, RecordError> {
        let mut words = text.split(' ');
        let format = words.next().unwrap_or_default();
        if format != FORMAT && format != FORMAT_BEFORE {
            let is_ours = format
                .strip_prefix("leasehold")
                .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
            return Err(if is_ours {
                RecordError::Newer { format: format.to_owned() }
            } else {
                RecordError::Malformed
            });
        }
        Self::parse_fields(&mut words, format == FORMAT_BEFORE).ok_or(RecordError::Malformed)
    }

    fn parse_fields<'a>(
        words: &mut impl Iterator<Item = &'a str>,
        is_before: bool,
    ) -> Option<Self> {
        let mut field = |name: &str| words.next()?.strip_prefix(name)?.strip_prefix('=');
        let record = Self {
            cluster: Fingerprint(u64::from_str_radix(field("cluster")?, 16).ok()?),
            nodes: field("nodes")?.parse().ok()?,
            member: match is_before {
                true => MemberName::default(),
                false => MemberName::parse(field("member")?)?,
            },
            max_ttl: Duration::from_millis(field("max_ttl")?.parse().ok()?),
            life: u128::from_str_radix(field("life")?, 16).ok()?,
            run_id: word(field("run")?)?,
            replication_id: match is_before {
                true => String::new(),
                false => word(field("replid")?)?,
            },
            origin: match is_before {
                // It may have had any number of lives, and nobody wrote that down.
                true => Origin::Later,
                false => Origin::parse(field("origin")?)?,
            },
            state: RecordState::parse(field("state")?)?,
            floor: Fence::new(field("floor")?.parse().ok()?)?,
            born: WallMicros(field("born")?.parse().ok()?),
            waits: None,
            clocks: Vec::new(),
        };
        words.try_fold(record, |record, word| match word.split_once('=')? {
            ("waits", millis) if record.waits.is_none() && record.clocks.is_empty() => {
                Some(Self { waits: Some(Duration::from_millis(millis.parse().ok()?)), ..record })
            }
            ("clocks", clocks) if record.clocks.is_empty() => {
                let clock = |text: &str| match text {
                    "-" => Some(None),
                    micros => Some(Some(WallMicros(micros.parse().ok()?))),
                };
                let clocks = clocks.split(',').map(clock).collect::<Option<Vec<_>>>()?;
                (clocks.len() == record.nodes).then_some(Self { clocks, ..record })
            }
            _ => None,
        })
    }

    /// Whether `server` is the one that had this record written, with the memory that it had then.
    /// A server that is not began another life: it restarted, copied another, or is another.
    pub fn is_by(&self, server: &ServerFacts) -> bool {
        self.run_id == server.run_id
            && (self.is_of_the_format_before() || self.replication_id == server.replication_id)
    }

    /// Whether it was written by a version that knew neither members nor replication ids. Such a
    /// record is upgraded before anything else is made of it, and is never written again.
    pub fn is_of_the_format_before(&self) -> bool {
        self.member == MemberName::default()
    }
}

fn word(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

impl Origin {
    fn parse(word: &str) -> Option<Self> {
        match word {
            "first" => Some(Self::First),
            "later" => Some(Self::Later),
            "succession" => Some(Self::Succession),
            _ => None,
        }
    }
}

impl RecordState {
    fn parse(word: &str) -> Option<Self> {
        match word {
            "admitted" => Some(Self::Admitted),
            "quarantined" => Some(Self::Quarantined),
            "barred" => Some(Self::Barred),
            _ => None,
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            RecordState::Admitted => "admitted",
            RecordState::Quarantined => "quarantined",
            RecordState::Barred => "barred",
        };
        let origin = match self.origin {
            Origin::First => "first",
            Origin::Later => "later",
            Origin::Succession => "succession",
        };
        write!(f, "{FORMAT} cluster={} nodes={} ", self.cluster, self.nodes)?;
        write!(f, "member={} max_ttl={} ", self.member, self.max_ttl.as_millis())?;
        write!(f, "life={:032x} run={} replid={} ", self.life, self.run_id, self.replication_id)?;
        write!(f, "origin={origin} state={state} floor={} born={}", self.floor, self.born.0)?;
        // Not a moment shorter.
        let millis = |waits: Duration| waits.as_micros().div_ceil(1000);
        if let Some(waits) = self.waits {
            write!(f, " waits={}", millis(waits))?;
        }
        for (index, clock) in self.clocks.iter().enumerate() {
            f.write_str(if index == 0 { " clocks=" } else { "," })?;
            match clock {
                Some(clock) => write!(f, "{}", clock.0)?,
                None => f.write_str("-")?,
            }
        }
        Ok(())
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
            member: MemberName::new("b:6379/0"),
            max_ttl: Duration::from_secs(30),
            life: 0xabc,
            run_id: "f00".into(),
            replication_id: "ba5".into(),
            origin: Origin::Later,
            state: RecordState::Quarantined,
            floor: Fence::new(12).unwrap(),
            born: WallMicros(1_700_000_000_000_000),
            waits: None,
            clocks: Vec::new(),
        }
    }

    #[test]
    fn a_record_reads_back_as_written() {
        let waiting = Record { waits: Some(Duration::from_secs(300)), ..record() };
        let clocks = vec![Some(WallMicros(5)), None, Some(WallMicros(7))];
        let compared = Record { clocks: clocks.clone(), ..record() };
        let both = Record { clocks, ..waiting.clone() };
        for record in [record(), waiting, compared, both] {
            let text = record.to_string();
            assert_eq!(Record::parse(&text), Ok(record), "{text}");
        }
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
        let newer = text.replace(FORMAT, "leasehold3");
        assert_eq!(Record::parse(&newer), Err(RecordError::Newer { format: "leasehold3".into() }));
        for empty in ["member=b:6379/0", "run=f00", "replid=ba5"] {
            let (name, _) = empty.split_once('=').unwrap();
            let bad = text.replace(empty, &format!("{name}="));
            assert_eq!(Record::parse(&bad), Err(RecordError::Malformed), "{bad}");
        }
    }

    #[test]
    fn a_record_has_a_clock_for_each_member_or_none_at_all() {
        let clocks = vec![Some(WallMicros(5)), None, Some(WallMicros(u64::MAX))];
        let waits = Some(Duration::from_secs(300));
        let text = Record { clocks, waits, ..record() }.to_string();
        assert!(text.ends_with(" waits=300000 clocks=5,-,18446744073709551615"), "{text}");
        for (from, to) in [
            ("clocks=5,-,", "clocks=5,"),
            ("clocks=5,-,", "clocks=5,-,7,"),
            ("clocks=5", "clocks="),
            ("clocks=5", "clocks=x"),
            ("clocks=5,-,18446744073709551615", "clocks="),
            ("18446744073709551615", "18446744073709551616"),
            ("clocks=", "clocks=1,2,3 clocks="),
            ("waits=300000", "waits=300000 waits=300000"),
            ("waits=300000 clocks=5,-,18446744073709551615", "clocks=5,-,7 waits=300000"),
        ] {
            let bad = text.replace(from, to);
            assert_eq!(Record::parse(&bad), Err(RecordError::Malformed), "{bad}");
        }
    }

    #[test]
    fn a_record_of_the_format_before_is_read_and_knows_no_member() {
        let text = "leasehold1 cluster=0123456789abcdef nodes=3 max_ttl=30000 \
                    life=00000000000000000000000000000abc run=f00 state=admitted floor=12 born=5";
        let record = Record::parse(text).unwrap();
        assert!(record.is_of_the_format_before());
        assert_eq!((record.life, record.run_id.as_str(), record.floor.get()), (0xabc, "f00", 12));
        assert_eq!((record.origin, record.state), (Origin::Later, RecordState::Admitted));
        for bad in [text.replace("nodes=3 ", ""), format!("{text} more"), text.replace("f00", "")] {
            assert_eq!(Record::parse(&bad), Err(RecordError::Malformed), "{bad}");
        }
    }

    #[test]
    fn a_members_name_is_one_word_and_names_stay_apart() {
        for (name, word) in [
            ("10.0.0.1:6379/0", "10.0.0.1:6379/0"),
            ("unix:/a b/c", "unix:/a%20b/c"),
            ("a%20b", "a%2520b"),
            ("\u{fc}\n", "%c3%bc%0a"),
        ] {
            assert_eq!(MemberName::new(name).as_str(), word);
            let member = MemberName::new(name);
            let text = Record { member: member.clone(), ..record() }.to_string();
            assert_eq!(Record::parse(&text).unwrap().member, member);
        }
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
