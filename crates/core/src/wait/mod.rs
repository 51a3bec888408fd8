//! Waiting for a lock that another holds: when to ask for it again.
//!
//! * [`Line`] has no clock: a waiter's place among those of all processes, and what follows from it.
//! * [`Waiting`] adds time: hints that do not come, backing off, and giving up.

mod backoff;
mod line;
mod waiting;

pub use backoff::RetryPolicy;
pub use line::{Heard, InLine, Line, Move, Ticket, Watched, affinity};
pub use waiting::{WaitEnd, WaitStep, Waiting};
