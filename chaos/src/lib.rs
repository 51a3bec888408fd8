//! Leasehold on real servers that are killed, stopped and lied to, with its history checked.
//!
//! A run starts servers behind proxies, a fenced store, and holders, each a process of its own that
//! uses the library as anybody would. A schedule drawn from a seed says what goes wrong and when.
//! Everybody writes down what it did and when, by the machine's one boot clock, which no fault
//! touches; afterwards the [`check`]s judge the history alone, so that a saved one can be judged
//! again.
//!
//! The library tells every ballot that it wins, with the lives of the servers whose votes it
//! counted. The run knows what really became of each server process. So a vote of a server that had
//! forgotten is seen also where nobody else happened to get the lock.
//!
//! # What is judged, and when
//!
//! A run keeps one assumption about clocks: no majority of the nodes agrees upon a time that is wrong
//! by more than `max_clock_skew`. Within it clocks do what they like. They are wrong from the start;
//! they step by milliseconds to minutes, one of them or a majority, each by another amount; they step
//! while the node waits in quarantine, or come back minutes behind and are put right meanwhile; they
//! run too fast or too slowly. Holders start right after a step, or stand still around it, or stand
//! still without their own clocks knowing. Everything is judged then, in true time.
//!
//! Two holders at once are excused only by the remainder that DESIGN.md states under "By whose
//! clock", as [`check`] defines it: a server that voted for the second had gone ahead, or the first
//! had stood still, and the first had not read that server's clock since; the second did not know;
//! and it lasts no longer than the clock went ahead. The report says how many there were, for how
//! long at most, and how many of them rest on a step that was undone before anybody read it.
//!
//! With `--beyond` the clocks of a majority jump by the same amount at once, and locks are evicted:
//! exclusion may break and is only reported, but fences and the fenced store are still judged. No
//! node forgets or restarts in such a run: where too few others remember, the floor of a node that
//! forgot is its clock, so that a lost memory *and* a time upon which a majority is wrong are more
//! than fences survive; and a client that starts later cannot tell from such clocks for how long a
//! node has waited. For the same reason only keys with a TTL are evicted: a node that silently
//! forgets its fences is not covered by any promise.
//!
//! With `--through-servers` two lock servers stand before the nodes, and most holders are callers of
//! these and of the command line. What they are told is judged like what guards believe, by [`check`].
//!
//! Somebody who says that the cluster is new is wrong if every node has just lost everything, and
//! no node can tell. So that is said only while one that was admitted remembers.

pub mod caller;
pub mod check;
pub mod clock;
pub mod cluster;
pub mod fault;
pub mod history;
pub mod hogs;
pub mod holder;
pub mod holders;
pub mod http;
pub mod instances;
pub mod picture;
pub mod report;
pub mod run;
pub mod schedule;
pub mod script;
pub mod store;
pub mod timeline;
pub mod told;
pub mod watch;
