//! What `INFO` says of a server.

use leasehold_core::{Role, ServerFacts};

/// Which of the two families a server belongs to, and its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Edition {
    is_valkey: bool,
    major: u32,
    minor: u32,
}

/// A native compare-and-delete: a script costs the server five times as much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CompareAndDelete {
    /// `DELIFEQ key value`, since Valkey 9.0.
    DelIfEq,
    /// `DELEX key IFEQ value`, since Redis 8.4.
    DelEx,
}

impl Edition {
    /// `ZADD … GT` came with 6.2.
    pub(super) fn is_too_old(self) -> bool {
        !self.is_valkey && (self.major, self.minor) < (6, 2)
    }

    /// Until 7.0 a server wrote its scripts to its disk, and found them again.
    pub(super) fn keeps_scripts(self) -> bool {
        !self.is_valkey && self.major < 7
    }

    pub(super) fn compare_and_delete(self) -> Option<CompareAndDelete> {
        let version = (self.major, self.minor);
        if self.is_valkey {
            (version >= (9, 0)).then_some(CompareAndDelete::DelIfEq)
        } else {
            (version >= (8, 4)).then_some(CompareAndDelete::DelEx)
        }
    }
}

/// Reads `INFO`: the server, its edition, and whether it keeps a log for replicas. `None` if it is not
/// the `INFO` of any such server.
pub(super) fn read(info: &str) -> Option<(ServerFacts, Edition, bool)> {
    let field = |name: &str| {
        info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
    };
    let valkey = field("valkey_version");
    let version = valkey.or_else(|| field("redis_version"))?;
    let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
    let edition = Edition {
        is_valkey: valkey.is_some(),
        major: numbers.next()?,
        minor: numbers.next().unwrap_or(0),
    };
    let in_cluster =
        field("cluster_enabled") == Some("1") || field("redis_mode") == Some("cluster");
    let role = match field("role")? {
        _ if in_cluster => Role::ClusterMember,
        "master" => Role::Primary,
        _ => Role::Replica,
    };
    let has_memory_limit = field("maxmemory").is_some_and(|bytes| bytes != "0");
    let policy = field("maxmemory_policy").filter(|policy| *policy != "noeviction");
    let facts = ServerFacts {
        version: format!("{} {version}", if edition.is_valkey { "valkey" } else { "redis" }),
        run_id: field("run_id").filter(|id| is_id(id))?.to_owned(),
        replication_id: field("master_replid").filter(|id| is_id(id))?.to_owned(),
        role,
        evicts: policy.filter(|_| has_memory_limit).map(str::to_owned),
        persists: field("aof_enabled") == Some("1"),
        expires_by_wall: true,
    };
    Some((facts, edition, field("repl_backlog_active") != Some("0")))
}

/// A word of the identity record, and of a script's text: nothing that could end either.
fn is_id(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REDIS: &str = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:f00\r\n\
        maxmemory:100\r\nmaxmemory_policy:allkeys-lru\r\naof_enabled:1\r\nrole:master\r\n\
        master_replid:ba5\r\ncluster_enabled:0\r\n";

    #[test]
    fn a_primary_with_its_dangers() {
        let (facts, edition, _) = read(REDIS).unwrap();
        assert_eq!(facts.version, "redis 7.0.15");
        assert_eq!((facts.run_id.as_str(), facts.replication_id.as_str()), ("f00", "ba5"));
        assert_eq!(facts.role, Role::Primary);
        assert_eq!(facts.evicts.as_deref(), Some("allkeys-lru"));
        assert!(facts.persists);
        assert_eq!(edition.compare_and_delete(), None);
    }

    #[test]
    fn nothing_evicts_without_a_limit_and_nothing_persists_by_guess() {
        let (facts, ..) = read(&REDIS.replace("maxmemory:100", "maxmemory:0")).unwrap();
        assert_eq!(facts.evicts, None);
        for off in [REDIS.replace("aof_enabled:1", "aof_enabled:0"), REDIS.replace("aof", "x")] {
            assert!(!read(&off).unwrap().0.persists, "{off}");
        }
    }

    #[test]
    fn replicas_and_shards_are_told_apart() {
        let role = |from, to| read(&REDIS.replace(from, to)).unwrap().0.role;
        assert_eq!(role("role:master", "role:slave"), Role::Replica);
        assert_eq!(role("cluster_enabled:0", "cluster_enabled:1"), Role::ClusterMember);
        assert_eq!(role("standalone", "cluster"), Role::ClusterMember);
    }

    #[test]
    fn versions_decide_what_can_be_used() {
        let edition = |text: String| read(&text).unwrap().1;
        let redis = |version: &str| edition(REDIS.replace("7.0.15", version));
        let valkey = |version: &str| edition(format!("{REDIS}valkey_version:{version}\r\n"));
        assert!(redis("6.0.16").is_too_old() && redis("5.0").is_too_old());
        assert!(!redis("6.2.0").is_too_old() && !valkey("7.2.4").is_too_old());
        assert_eq!(redis("8.4.0").compare_and_delete(), Some(CompareAndDelete::DelEx));
        assert_eq!(redis("8.2.9").compare_and_delete(), None);
        assert_eq!(valkey("9.0.0").compare_and_delete(), Some(CompareAndDelete::DelIfEq));
        assert_eq!(valkey("8.1.4").compare_and_delete(), None);
        assert!(redis("6.2.14").keeps_scripts());
        assert!(!redis("7.0.0").keeps_scripts() && !valkey("7.2.4").keeps_scripts());
        let (facts, ..) = read(&format!("{REDIS}valkey_version:9.1.2\r\n")).unwrap();
        assert_eq!(facts.version, "valkey 9.1.2");
    }

    #[test]
    fn a_server_that_does_not_say_otherwise_may_have_had_replicas() {
        let has_backlog = |line: &str| read(&format!("{REDIS}{line}\r\n")).unwrap().2;
        assert!(!has_backlog("repl_backlog_active:0"));
        assert!(has_backlog("repl_backlog_active:1") && has_backlog(""));
    }

    #[test]
    fn what_is_no_info_is_refused() {
        for text in ["", "hello", "redis_version:7\r\n", "run_id:x\r\nrole:master\r\n"] {
            assert!(read(text).is_none(), "{text}");
        }
        for id in ["", "a b", "\u{a0}", "a'", "a\\"] {
            assert!(read(&REDIS.replace("f00", id)).is_none(), "{id:?}");
            assert!(read(&REDIS.replace("ba5", id)).is_none(), "{id:?}");
        }
    }
}
