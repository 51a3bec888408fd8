//! Several faults in a certain order, which chance alone hardly ever finds.

use super::{Event, World};
use crate::clock::{MILLIS, SECOND, Time};
use crate::faults::Fault;
use crate::scenario::Plot;

impl World {
    /// Two quorums that share only `node`: the first with those whose numbers are in the first set, the
    /// second with those in the second.
    fn quorums_around(&mut self, node: usize) -> (u64, u64) {
        let (nodes, needed) = (self.scenario.nodes, self.scenario.nodes / 2 + 1);
        let first = self.chance.index(nodes);
        let others = (first..first + nodes).map(|other| other % nodes).filter(|it| *it != node);
        let bits = |bits: u64, node: usize| bits | 1 << node;
        let mut others = others.collect::<Vec<_>>();
        let second = others.split_off(needed - 1);
        (others.into_iter().fold(0, bits), second.into_iter().fold(0, bits))
    }

    pub(super) fn plot(&mut self, plot: Plot, node: usize, client: usize) {
        let (first, second) = self.quorums_around(node);
        match plot {
            Plot::Forgotten => {
                let all = u64::MAX;
                self.cut_off(0, all, second, 2 * SECOND);
                // Before what is on its way to the second quorum arrives there.
                let forgets = 2 * SECOND - MILLIS;
                self.restart_all_but(forgets, None);
                self.later(forgets, Fault::StepAll { by: -(12 * SECOND as i64) });
                self.later(forgets, Fault::Flush { node });
                // Its quarantine is over, and nobody knows more than the nodes do.
                let is_back = forgets + 7 * SECOND;
                self.restart_all_but(is_back, None);
                self.cut_off(is_back, all, first, 2 * SECOND);
            }
            Plot::Behind => {
                self.later(0, Fault::Step { node, by: -(5 * SECOND as i64) });
                // The lease of a holder that lives in this process rests on the first quorum. It does not
                // look at the second within this time, so that it still believes its clocks.
                let (rests, its) = (self.chance.within(2 * SECOND..3 * SECOND), 1 << client);
                self.cut_off(rests, its, second, 4 * SECOND);
                let put_right = rests + 900 * MILLIS;
                self.cut_off(put_right, its, 1 << node, 3 * SECOND);
                self.cut_off(put_right, !its, first, 3 * SECOND);
                self.later(put_right, Fault::PutRight { node });
                self.restart_all_but(put_right, Some(client));
            }
        }
    }

    fn later(&mut self, after: Time, fault: Fault) {
        self.after(after, Event::Inflict(fault));
    }

    fn cut_off(&mut self, after: Time, clients: u64, nodes: u64, time: Time) {
        self.later(after, Fault::Partition { clients, nodes, way: None, time });
    }

    fn restart_all_but(&mut self, after: Time, but: Option<usize>) {
        for client in (0..self.scenario.clients).filter(|client| Some(*client) != but) {
            self.later(after, Fault::Crash { client, time: 50 * MILLIS });
        }
    }
}
