//! When to extend a lease, and when it is lost. Policy only: sending is the driver's work.

use std::fmt;
use std::time::Duration;

use crate::hold::Reserved;
use crate::quorum::{Belief, ExtendRound, ExtendStep, ReleaseRound};
use crate::{Drift, Fence, Lease, Moment, Quorum};

/// Why a holder may no longer believe that it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossReason {
    /// The deadline passed and no quorum had extended the lease.
    Expired {
        /// What the last failed extension met with, if one was tried.
        last: Option<String>,
    },
    /// The clocks of its nodes went ahead, so they ended it early. If all of them did, it was this
    /// machine that stood still.
    ClocksAhead {
        /// How much earlier than it would have ended.
        by: Duration,
    },
    /// Its nodes do not know of it any more, and may have granted the lock to another.
    Forgotten {
        /// What became of them.
        reason: String,
    },
    /// Another process holds it, of which this one is a fork.
    Forked,
    /// The longest time that the caller allowed is over.
    MaxHold {
        /// That time.
        limit: Duration,
    },
}

/// Keeps one lease.
#[derive(Debug, Clone)]
pub struct Keeper {
    lease: Lease,
    pub(crate) extends: bool,
    max_hold: Option<(Moment, Duration)>,
    next_extend: Moment,
    /// Many others may have been taken, or extended, at the same moment.
    is_in_a_burst: bool,
    /// The next extension was put off already.
    gave_way: bool,
    /// What a refresh has to go beyond, if one is due.
    refresh_above: Option<Fence>,
    /// Fences for those of its process who wait.
    pub(crate) reserved: Option<Reserved>,
    last_failure: Option<String>,
    /// How much earlier the lease ends than it would have, because clocks went ahead.
    cut_by: Duration,
    /// Why no node keeps it any more.
    forgotten: Option<String>,
}

/// What a keeper wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeeperStep {
    /// Nothing until then.
    WaitUntil(Moment),
    /// Ask all nodes to extend, now.
    Extend,
    /// Tell the holder.
    Lost(LossReason),
}

impl Keeper {
    /// Keeps `lease`, acquired at `now`. With `extends` off it only watches the deadline.
    pub fn new(lease: Lease, now: Moment, extends: bool, max_hold: Option<Duration>) -> Self {
        let next_extend = now.plus(Self::extend_every(&lease));
        let max_hold = max_hold.map(|limit| (now.plus(limit), limit));
        Self {
            lease,
            extends,
            max_hold,
            next_extend,
            is_in_a_burst: true,
            gave_way: false,
            refresh_above: None,
            reserved: None,
            last_failure: None,
            cut_by: Duration::ZERO,
            forgotten: None,
        }
    }

    /// A third of the Ttl: two whole extensions may fail before the deadline is near.
    fn extend_every(lease: &Lease) -> Duration {
        lease.ttl.get() / 3
    }

    /// Extends sooner than it would have, so that the nodes are not asked for all leases at once. In a
    /// crowd by up to three quarters of the time: it dissolves with the next extension. Otherwise by
    /// up to one, so that none forms: each extension that comes sooner is one more to pay for.
    pub fn spread(&mut self, jitter: u32) {
        let quarters = if self.is_in_a_burst { 3 } else { 1 };
        let most = Self::extend_every(&self.lease) * quarters / 4;
        let sooner = most.mul_f64(f64::from(jitter) / f64::from(u32::MAX));
        self.next_extend = self.next_extend.less(sooner);
    }

    /// Puts off an extension that is due with very many others, because the process stood still: sent
    /// together they would keep the nodes from answering. Once, by an eighth of the time at most, and
    /// only if it is no later than that yet. Says whether it was put off.
    pub fn give_way(&mut self, now: Moment, jitter: u32) -> bool {
        let most = Self::extend_every(&self.lease) / 8;
        let late = now.since(self.next_extend);
        if self.gave_way || self.lease.uncertain || now < self.next_extend || late > most {
            return false;
        }
        self.gave_way = true;
        let later = most.mul_f64(f64::from(jitter) / f64::from(u32::MAX));
        self.next_extend = now.plus(later);
        true
    }

    /// The lease as it stands.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// The highest number that was ever sent for this lease, by a refresh that failed or is still
    /// under way as well. Whoever asks with the same holder again must go beyond it.
    pub fn highest_sent(&self) -> Fence {
        self.refresh_above.map_or(self.lease.token, |above| above.max(self.lease.token))
    }

    /// The lease as whoever keeps it from now on has to know it. Nodes that took a refresh no longer
    /// know the old number, whether or not they were heard.
    pub fn detached(&self) -> Lease {
        Lease { token: self.highest_sent(), ..self.lease.clone() }
    }

    /// A release about to be sent at `now`; `is_held` unless it is known to be lost. While the lease is
    /// good, a quorum has its token and keeps it: a node that took a later number and lost it again has
    /// it from somebody else.
    pub fn release(&self, quorum: Quorum, now: Moment, is_held: bool) -> ReleaseRound {
        let is_valid = is_held && now < self.lease.deadline;
        let belief = if is_valid { Belief::Valid } else { Belief::Over };
        ReleaseRound::new(self.lease.holder.clone(), self.lease.token, quorum, belief, now)
    }

    /// What to do at `now`.
    pub fn step(&self, now: Moment) -> KeeperStep {
        if let Some((end, limit)) = self.max_hold
            && now >= end
        {
            return KeeperStep::Lost(LossReason::MaxHold { limit });
        }
        if now >= self.lease.deadline {
            return KeeperStep::Lost(self.reason());
        }
        if self.extends && now >= self.next_extend {
            return KeeperStep::Extend;
        }
        let mut wake = self.lease.deadline;
        if self.extends {
            wake = wake.min(self.next_extend);
        }
        if let Some((end, _)) = self.max_hold {
            wake = wake.min(end);
        }
        KeeperStep::WaitUntil(wake)
    }

    fn reason(&self) -> LossReason {
        match (&self.forgotten, self.cut_by) {
            (Some(reason), _) => LossReason::Forgotten { reason: reason.clone() },
            (None, Duration::ZERO) => LossReason::Expired { last: self.last_failure.clone() },
            (None, by) => LossReason::ClocksAhead { by },
        }
    }

    /// The nodes forgot the lease: it is over.
    pub fn forgotten(&mut self, now: Moment, reason: String) {
        if now < self.lease.deadline {
            self.lease.deadline = now;
            self.forgotten = Some(reason);
        }
    }

    /// The nodes keep the lease until `deadline` only, because their clocks went ahead.
    pub fn cut(&mut self, deadline: Moment) {
        if deadline < self.lease.deadline {
            let by = self.lease.deadline.since(deadline);
            // No lease can end earlier than it began.
            self.cut_by = self.cut_by.saturating_add(by).min(self.lease.ttl.get());
            self.lease.deadline = deadline;
            // At once, if it extends: the nodes that still keep it can keep it from now on.
            self.next_extend = self.next_extend.min(deadline.less(self.lease.ttl.get()));
        }
    }

    /// An answer showed a fence above our token. So says a node that forgot and is back, with a floor
    /// above every older lease: it cannot be healed with this token, but with a fresh one.
    pub fn superseded(&mut self, fence: Fence) {
        if fence > self.lease.token {
            self.refresh_above = self.refresh_above.max(Some(fence));
        }
    }

    /// The next extension is a refresh that raises the token by more than `numbers`.
    pub(crate) fn refresh_beyond(&mut self, numbers: u64) {
        let above = Fence::new(self.lease.token.get() + numbers).unwrap_or(Fence::MAX);
        self.refresh_above = self.refresh_above.max(Some(above));
    }

    /// The next extension, about to be sent at `now`; a refresh if one is due, for which `propose`
    /// makes a number above a given one.
    pub fn round(
        &mut self,
        quorum: Quorum,
        drift: Drift,
        now: Moment,
        propose: impl FnOnce(Fence) -> Fence,
    ) -> ExtendRound {
        let round = ExtendRound::new(&self.lease, quorum, drift, now);
        let Some(above) = self.refresh_above else {
            return round;
        };
        let next = propose(above.max(self.lease.token));
        // Nodes that take it no longer know the old token. Unless a quorum does, only another
        // refresh, above this one, can keep the lease.
        self.refresh_above = Some(next);
        round.refresh(next)
    }

    /// A quorum extended the lease to `deadline`, which began to count when the question was sent,
    /// and has `token` for it.
    ///
    /// An answer that comes after the old deadline is too late: lost is for ever.
    pub fn extended(&mut self, now: Moment, deadline: Moment, token: Fence) {
        if now >= self.lease.deadline {
            return;
        }
        if self.refresh_above.is_some_and(|above| above <= token) {
            self.refresh_above = None;
        }
        self.lease.token = self.lease.token.max(token);
        if deadline > self.lease.deadline {
            self.cut_by = Duration::ZERO;
            self.lease.deadline = deadline;
        }
        let every = Self::extend_every(&self.lease);
        // Nodes or a process that stood still make many leases late, and then extend them together.
        self.is_in_a_burst = self.lease.uncertain || now.since(self.next_extend) > every / 8;
        self.lease.uncertain = false;
        self.gave_way = false;
        self.last_failure = None;
        self.next_extend = now.plus(every);
    }

    /// Looks again at the last extension, which failed: answers that came since then are as good as
    /// any, as the deadline counts from when the question was sent. Says whether they are a quorum.
    pub fn heed(&mut self, now: Moment, last: &ExtendRound) -> bool {
        match last.step() {
            ExtendStep::Extended { deadline }
                if self.lease.uncertain && now < self.lease.deadline =>
            {
                self.extended(now, deadline, last.next());
                true
            }
            _ => false,
        }
    }

    /// No quorum extended the lease. The old deadline stands, and it is tried again: soon, but not
    /// so often that a struggling node is drowned. `jitter` keeps many leases apart.
    pub fn failed(&mut self, now: Moment, evidence: String, jitter: u32) {
        self.lease.uncertain = true;
        self.last_failure = Some(evidence);
        let pause = self.lease.ttl.get() / 30;
        let pause = pause + pause.mul_f64(f64::from(jitter) / f64::from(u32::MAX));
        self.next_extend = now.plus(pause);
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired { last: None } => f.write_str("its deadline passed"),
            Self::Expired { last: Some(last) } => {
                write!(f, "its deadline passed and it could not be extended: {last}")
            }
            Self::ClocksAhead { by } => write!(
                f,
                "the clocks of its nodes went ahead, or this machine stood still, so it ended {by:.1?} early"
            ),
            Self::Forgotten { reason } => f.write_str(reason),
            Self::Forked => f.write_str(
                "this process is a fork of the one that holds it\nhint: open `Locks` anew in the fork",
            ),
            Self::MaxHold { limit } => write!(f, "it was held for max_hold, {limit:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Holder, LockName, Ttl};

    fn ms(ms: u64) -> Moment {
        Moment::from_millis(ms)
    }

    const SEVEN: Fence = Fence::new(7).unwrap();

    fn lease() -> Lease {
        let ttl = Ttl::new(Duration::from_millis(3000)).unwrap();
        Lease {
            lock: LockName::new("l").unwrap(),
            holder: Holder::new("h", 1).unwrap(),
            fence: SEVEN,
            token: SEVEN,
            ttl,
            deadline: Lease::deadline(
                ms(0),
                ttl,
                Drift { parts_per_million: 0, fixed: Duration::ZERO },
            ),
            uncertain: false,
        }
    }

    #[test]
    fn it_extends_at_a_third_and_is_lost_at_the_deadline() {
        let mut keeper = Keeper::new(lease(), ms(0), true, None);
        assert_eq!(keeper.step(ms(999)), KeeperStep::WaitUntil(ms(1000)));
        assert_eq!(keeper.step(ms(1000)), KeeperStep::Extend);
        keeper.extended(ms(1010), ms(4000), SEVEN);
        assert_eq!(keeper.step(ms(1010)), KeeperStep::WaitUntil(ms(2010)));
        assert_eq!(keeper.lease().deadline, ms(4000));
        let lost = KeeperStep::Lost(LossReason::Expired { last: None });
        assert_eq!(keeper.step(ms(4000)), lost);
    }

    #[test]
    fn spreading_brings_the_first_extension_forward_by_three_quarters_and_others_by_one() {
        for (jitter, first, second) in [(0, 1000, 2000), (u32::MAX, 250, 1000)] {
            let mut keeper = Keeper::new(lease(), ms(0), true, None);
            keeper.spread(jitter);
            assert_eq!(keeper.step(ms(0)), KeeperStep::WaitUntil(ms(first)));
            keeper.extended(ms(first), ms(first + 3000), SEVEN);
            keeper.spread(jitter);
            assert_eq!(keeper.step(ms(first)), KeeperStep::WaitUntil(ms(second)));
        }
    }

    /// How often each 100 ms of a minute have leases extended that were taken at one moment, of
    /// which those that fall into `outage` are `met` with what happened there.
    fn extensions(
        outage: std::ops::Range<u64>,
        met: impl Fn(&mut Keeper, Moment, u32),
    ) -> Vec<f64> {
        const LEASES: usize = 20_000;
        let mut chance = leasehold_judge::Chance::new(7);
        let mut looks = vec![0.0; 600];
        let long = Lease { ttl: Ttl::new(Duration::from_secs(30)).unwrap(), ..lease() };
        for _ in 0..LEASES {
            let mut keeper = Keeper::new(long.clone(), ms(0), true, None);
            keeper.lease.deadline = Moment::MAX;
            keeper.spread(chance.jitter());
            while let KeeperStep::WaitUntil(due) = keeper.step(ms(0)) {
                let at = due.as_nanos() / 1_000_000;
                let Some(look) = looks.get_mut(at as usize / 100) else {
                    break;
                };
                if outage.contains(&at) {
                    met(&mut keeper, due, chance.jitter());
                    continue;
                }
                *look += 1.0;
                keeper.extended(due, Moment::MAX, SEVEN);
                keeper.spread(chance.jitter());
            }
        }
        looks
    }

    /// The most in one look, in terms of the mean.
    fn burst(looks: &[f64]) -> f64 {
        let mean = looks.iter().sum::<f64>() / looks.len() as f64;
        looks.iter().copied().fold(0.0, f64::max) / mean
    }

    #[test]
    fn leases_that_were_taken_at_one_moment_are_extended_apart() {
        let looks = extensions(0..0, |_, _, _| unreachable!("nothing fails"));
        assert!(looks.iter().sum::<f64>() > 100_000.0, "six rounds of all of them");
        let burst = burst(&looks);
        assert!(burst < 2.0, "{burst} times the mean");
    }

    #[test]
    fn leases_come_apart_again_after_nodes_were_away_and_after_a_pause() {
        let away = extensions(15_000..25_000, |keeper, due, jitter| {
            keeper.failed(due, "no quorum".into(), jitter);
        });
        // They come back within the two seconds of a pause between attempts.
        let burst_after = burst(&away[280..]);
        assert!(burst_after < 2.0, "{burst_after} times the mean after an outage");
        let paused = extensions(15_000..25_000, |keeper, _, jitter| {
            keeper.extended(ms(25_000), Moment::MAX, SEVEN);
            keeper.spread(jitter);
        });
        let burst_after = burst(&paused[251..]);
        assert!(burst_after < 2.0, "{burst_after} times the mean after a pause");
    }

    #[test]
    fn whoever_gives_way_does_so_once_and_for_an_eighth_of_the_time_at_most() {
        let mut keeper = Keeper::new(lease(), ms(0), true, None);
        assert!(!keeper.give_way(ms(999), 0), "not due yet");
        let mut late = keeper.clone();
        assert!(!late.give_way(ms(1126), 0), "too late to wait any longer");
        assert!(keeper.give_way(ms(1100), u32::MAX));
        assert_eq!(keeper.step(ms(1100)), KeeperStep::WaitUntil(ms(1225)));
        assert!(!keeper.give_way(ms(1225), u32::MAX), "once");
        assert_eq!(keeper.step(ms(1225)), KeeperStep::Extend);
        keeper.extended(ms(1225), ms(4225), SEVEN);
        assert!(keeper.give_way(ms(2225), 0), "once for each extension");
        late.failed(ms(1126), "silence".into(), 0);
        let KeeperStep::WaitUntil(again) = late.step(ms(1126)) else { panic!() };
        assert!(!late.give_way(again, 0), "it is uncertain");
    }

    #[test]
    fn a_failed_extension_changes_nothing_and_is_tried_again() {
        let mut keeper = Keeper::new(lease(), ms(0), true, None);
        keeper.failed(ms(1000), "no quorum".into(), 0);
        assert_eq!(keeper.lease().deadline, ms(3000));
        assert!(keeper.lease().uncertain);
        assert_eq!(keeper.step(ms(1000)), KeeperStep::WaitUntil(ms(1100)));
        assert_eq!(keeper.step(ms(1100)), KeeperStep::Extend);
        keeper.extended(ms(1200), ms(4100), SEVEN);
        assert!(!keeper.lease().uncertain);
    }

    #[test]
    fn late_answers_keep_a_lease_until_its_deadline_and_not_beyond() {
        let one = Quorum::majority_of(std::num::NonZeroUsize::MIN);
        let drift = Drift { parts_per_million: 0, fixed: Duration::ZERO };
        let mut keeper = Keeper::new(lease(), ms(0), true, None);
        let mut round = keeper.round(one, drift, ms(1000), Fence::next);
        round.time_up(ms(1050));
        keeper.failed(ms(1050), "silence".into(), 0);
        assert!(!keeper.heed(ms(1100), &round), "nothing came");
        let clock = crate::WallMicros(1);
        round.answer(ms(1300), 0, Ok(crate::Reply::Extended { clock }));
        let mut too_late = keeper.clone();
        assert!(!too_late.heed(ms(3000), &round));
        assert!(matches!(too_late.step(ms(3000)), KeeperStep::Lost(_)));
        assert!(keeper.heed(ms(1310), &round));
        assert_eq!((keeper.lease().deadline, keeper.lease().uncertain), (ms(4000), false));
        assert!(!keeper.heed(ms(1320), &round), "once");
    }

    #[test]
    fn no_answer_turns_lost_into_held() {
        let mut keeper = Keeper::new(lease(), ms(0), true, None);
        keeper.extended(ms(3000), ms(9000), SEVEN);
        assert_eq!(keeper.lease().deadline, ms(3000));
        assert!(matches!(keeper.step(ms(3000)), KeeperStep::Lost(_)));
    }

    #[test]
    fn an_older_answer_never_shortens_the_lease() {
        let mut keeper = Keeper::new(lease(), ms(0), true, None);
        keeper.extended(ms(1000), ms(3900), SEVEN);
        keeper.extended(ms(1001), ms(3800), SEVEN);
        assert_eq!(keeper.lease().deadline, ms(3900));
    }

    #[test]
    fn max_hold_ends_even_a_lease_that_could_be_kept() {
        let limit = Duration::from_millis(1500);
        let mut keeper = Keeper::new(lease(), ms(0), true, Some(limit));
        keeper.extended(ms(1000), ms(4000), SEVEN);
        assert_eq!(keeper.step(ms(1400)), KeeperStep::WaitUntil(ms(1500)));
        assert_eq!(keeper.step(ms(1500)), KeeperStep::Lost(LossReason::MaxHold { limit }));
    }

    #[test]
    fn a_manual_lease_is_watched_but_not_extended() {
        let keeper = Keeper::new(lease(), ms(0), false, None);
        assert_eq!(keeper.step(ms(2000)), KeeperStep::WaitUntil(ms(3000)));
    }

    fn next_round(keeper: &mut Keeper) -> (Fence, Fence) {
        let quorum = Quorum::majority_of(std::num::NonZeroUsize::new(3).unwrap());
        let request = |round: ExtendRound| match round.request(&lease()) {
            crate::Request::Extend { token, next, .. } => (token, next),
            other => panic!("{other:?}"),
        };
        request(keeper.round(quorum, Drift::DEFAULT, ms(10), Fence::next))
    }

    #[test]
    fn a_fence_above_the_token_makes_the_next_extension_a_refresh_until_one_succeeds() {
        let number = |n| Fence::new(n).unwrap();
        let mut keeper = Keeper::new(lease(), ms(0), true, None);
        assert_eq!(next_round(&mut keeper), (SEVEN, SEVEN));
        keeper.superseded(number(5));
        assert_eq!(next_round(&mut keeper), (SEVEN, SEVEN), "5 is below the token");
        assert_eq!(keeper.highest_sent(), SEVEN);
        keeper.superseded(number(20));
        assert_eq!(next_round(&mut keeper), (SEVEN, number(21)));
        keeper.failed(ms(1000), "no quorum".into(), 0);
        assert_eq!(next_round(&mut keeper), (SEVEN, number(22)), "some nodes may have 21");
        assert_eq!(keeper.highest_sent(), number(22));
        keeper.extended(ms(1010), ms(4000), number(22));
        assert_eq!(next_round(&mut keeper), (number(22), number(22)));
        assert_eq!((keeper.lease().fence, keeper.lease().token), (SEVEN, number(22)));
        keeper.superseded(number(20));
        assert_eq!(next_round(&mut keeper), (number(22), number(22)), "20 is below it by now");
    }

    #[test]
    fn clocks_that_went_ahead_end_a_lease_early_and_that_is_said() {
        let mut keeper = Keeper::new(lease(), ms(0), true, None);
        keeper.cut(ms(3500));
        assert_eq!(keeper.lease().deadline, ms(3000), "never later");
        keeper.cut(ms(2500));
        keeper.cut(ms(2400));
        assert_eq!(keeper.lease().deadline, ms(2400));
        let by = Duration::from_millis(600);
        let reason = LossReason::ClocksAhead { by };
        assert_eq!(keeper.step(ms(2400)), KeeperStep::Lost(reason.clone()));
        assert!(reason.to_string().contains("ended 600.0ms early"), "{reason}");
        // An answer cannot bring it back.
        keeper.extended(ms(2400), ms(5400), SEVEN);
        assert_eq!(keeper.lease().deadline, ms(2400));
    }

    #[test]
    fn a_lease_that_its_nodes_forgot_is_over_at_once_and_no_answer_brings_it_back() {
        let mut keeper = Keeper::new(lease(), ms(0), true, None);
        let reason = "the file was removed".to_owned();
        keeper.forgotten(ms(500), reason.clone());
        let lost = KeeperStep::Lost(LossReason::Forgotten { reason });
        assert_eq!(keeper.step(ms(500)), lost);
        keeper.extended(ms(501), ms(4000), SEVEN);
        keeper.forgotten(ms(600), "again".into());
        assert_eq!((keeper.lease().deadline, keeper.step(ms(601))), (ms(500), lost));
    }

    #[test]
    fn a_lease_that_was_extended_after_its_clocks_went_ahead_ends_like_any_other() {
        let mut keeper = Keeper::new(lease(), ms(0), true, None);
        keeper.cut(ms(2500));
        keeper.extended(ms(1000), ms(4000), SEVEN);
        assert_eq!(keeper.lease().deadline, ms(4000));
        let lost = KeeperStep::Lost(LossReason::Expired { last: None });
        assert_eq!(keeper.step(ms(4000)), lost);
    }

    #[test]
    fn a_lease_that_is_cut_is_extended_at_once_or_ends_in_time() {
        let mut kept = Keeper::new(lease(), ms(0), true, None);
        kept.cut(ms(700));
        assert_eq!(kept.step(ms(500)), KeeperStep::Extend);
        let mut manual = Keeper::new(lease(), ms(0), false, None);
        manual.cut(ms(700));
        assert_eq!(manual.step(ms(500)), KeeperStep::WaitUntil(ms(700)));
    }
}
