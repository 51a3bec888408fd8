//! The connections there are, and which of them do nothing. When there are too many, the one that has
//! done nothing for longest makes room: idle ones, and those that never finish their request, cannot keep
//! others out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// All connections.
#[derive(Default)]
pub(crate) struct Connections(Mutex<State>);

#[derive(Default)]
struct State {
    open: usize,
    /// Counts changes: who became idle earlier has a lower number.
    last: u64,
    idle: BTreeMap<u64, CancellationToken>,
}

impl Connections {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a connection in; `None` if there are `most` and none of them is idle.
    pub(crate) fn enter(self: &Arc<Self>, most: usize) -> Option<Connection> {
        let mut state = self.state();
        if state.open >= most {
            // It counts until it is gone, which takes a moment; the bound is for good.
            let (_, idle) = state.idle.pop_first()?;
            idle.cancel();
        }
        state.open += 1;
        let close = CancellationToken::new();
        let connection = Connection { all: self.clone(), close, idle: Mutex::new(None) };
        state.last += 1;
        let number = state.last;
        state.idle.insert(number, connection.close.clone());
        *connection.idle.lock().unwrap_or_else(PoisonError::into_inner) = Some(number);
        Some(connection)
    }

    /// Closes those that have been idle for longest, until there are `most` or none is idle.
    pub(crate) fn shrink(&self, most: usize) {
        let mut state = self.state();
        for _ in most..state.open {
            let Some((_, idle)) = state.idle.pop_first() else { return };
            idle.cancel();
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.state().open
    }
}

/// A connection that is counted.
pub(crate) struct Connection {
    all: Arc<Connections>,
    /// Cancelled when it has to make room.
    pub(crate) close: CancellationToken,
    idle: Mutex<Option<u64>>,
}

impl Connection {
    /// A request has come in.
    pub(crate) fn busy(&self) {
        let number = self.idle.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(number) = number {
            self.all.state().idle.remove(&number);
        }
    }

    /// It has been answered.
    pub(crate) fn idle(&self) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.is_none() {
            let mut state = self.all.state();
            state.last += 1;
            let number = state.last;
            state.idle.insert(number, self.close.clone());
            *idle = Some(number);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.busy();
        self.all.state().open -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_idle_makes_room_and_a_busy_one_never_does() {
        let all = Arc::new(Connections::default());
        let (first, second) = (all.enter(2).unwrap(), all.enter(2).unwrap());
        first.busy();
        first.idle();
        let third = all.enter(2).expect("the second makes room");
        assert!(second.close.is_cancelled() && !first.close.is_cancelled());
        drop(second);
        first.busy();
        third.busy();
        assert!(all.enter(2).is_none(), "all are busy");
        assert!(!first.close.is_cancelled() && !third.close.is_cancelled());
        drop((first, third));
        assert_eq!(all.count(), 0);
        assert!(all.state().idle.is_empty());
    }

    #[test]
    fn a_lower_bound_closes_the_longest_idle_and_none_that_is_busy() {
        let all = Arc::new(Connections::default());
        let four: [_; 4] = std::array::from_fn(|_| all.enter(4).unwrap());
        four[0].busy();
        let closed = || four.each_ref().map(|connection| connection.close.is_cancelled());
        all.shrink(4);
        assert_eq!(closed(), [false; 4]);
        all.shrink(2);
        assert_eq!(closed(), [false, true, true, false]);
        all.shrink(0);
        assert_eq!(closed(), [false, true, true, true]);
        drop(four);
        assert_eq!(all.count(), 0);
    }
}
