//! One shared object per question: the links count, the asker waits.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

#[derive(Debug)]
pub(super) struct Tally {
    needed: usize,
    nodes: usize,
    yes: AtomicUsize,
    no: AtomicUsize,
    asker: Mutex<Option<Waker>>,
}

impl Tally {
    pub(super) fn new(needed: usize, nodes: usize) -> Arc<Tally> {
        let count = || AtomicUsize::new(0);
        Arc::new(Tally { needed, nodes, yes: count(), no: count(), asker: Mutex::new(None) })
    }

    /// Counts a node's answer, and wakes the asker with the one that decides.
    pub(super) fn count(&self, yes: bool) {
        let (counter, decides) =
            if yes { (&self.yes, self.needed) } else { (&self.no, self.nodes - self.needed + 1) };
        if counter.fetch_add(1, Ordering::AcqRel) + 1 == decides {
            let asker = self.asker.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(asker) = asker {
                asker.wake();
            }
        }
    }

    /// Waits for the q-th yes (true), or until there cannot be one (false).
    pub(super) async fn decided(&self) -> bool {
        poll_fn(|context| {
            let mut asker = self.asker.lock().unwrap_or_else(PoisonError::into_inner);
            if self.yes.load(Ordering::Acquire) >= self.needed {
                Poll::Ready(true)
            } else if self.no.load(Ordering::Acquire) > self.nodes - self.needed {
                Poll::Ready(false)
            } else {
                *asker = Some(context.waker().clone());
                Poll::Pending
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn verdict(answers: &[bool]) -> bool {
        let tally = Tally::new(3, 5);
        let waiting = tokio::spawn({
            let tally = tally.clone();
            async move { tally.decided().await }
        });
        tokio::task::yield_now().await;
        for (given, &answer) in answers.iter().enumerate() {
            assert!(!waiting.is_finished(), "decided after {given} answers");
            tally.count(answer);
        }
        let limit = Duration::from_secs(10);
        tokio::time::timeout(limit, waiting).await.expect("a verdict").unwrap()
    }

    #[tokio::test]
    async fn the_third_of_five_decides() {
        assert!(verdict(&[true, true, true]).await);
        assert!(verdict(&[true, false, true, false, true]).await);
        assert!(!verdict(&[false, false, false]).await);
        assert!(!verdict(&[true, false, true, false, false]).await);
    }
}
