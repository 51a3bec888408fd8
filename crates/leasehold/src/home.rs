//! In which process something was opened. After `fork()` the child has copies of everything, and
//! shares the sockets and files; but the threads that serve them stayed in the parent. So whatever
//! was opened before belongs to the parent, and the child may neither use it nor tidy it up.

use leasehold_core::NodeError;

use crate::error::OptionsError;

/// The process in which something was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Home(u32);

impl Home {
    pub(crate) fn here() -> Self {
        Self(std::process::id())
    }

    /// Whether this is another process: a fork of it. Costs a system call.
    pub(crate) fn is_elsewhere(self) -> bool {
        Self::here() != self
    }

    pub(crate) fn check(self) -> Result<(), OptionsError> {
        if self.is_elsewhere() { Err(OptionsError::Forked { opened_in: self.0 }) } else { Ok(()) }
    }

    /// What each node would say.
    pub(crate) fn refusal(self) -> NodeError {
        NodeError::Rejected { reason: OptionsError::Forked { opened_in: self.0 }.to_string() }
    }

    /// `work`, which stands still in another process: a runtime that is copied by a fork would have
    /// it read what is the parent's.
    #[cfg(feature = "redis")]
    pub(crate) async fn only_here<T>(self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        std::future::poll_fn(|context| match self.is_elsewhere() {
            true => std::task::Poll::Pending,
            false => work.as_mut().poll(context),
        })
        .await
    }
}
