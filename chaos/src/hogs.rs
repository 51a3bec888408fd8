//! Busy loops beside a run: processes that want a processor and do nothing with it, for half of the time.
//! Whoever takes part then comes late to everything, which no server fault makes happen.

use std::hint::black_box;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::setpriority_process;

use crate::holders::Process;

/// A stretch with them, then one without. Longer than any lease, so that leases come and go in each.
const STRETCH: Duration = Duration::from_secs(4);

/// How the niced ones are: they get only what nobody else wants, and still empty the caches.
const NICE: i32 = 10;

/// The processes of a run that are busy loops.
#[derive(Debug)]
pub struct Hogs {
    count: usize,
    running: Vec<Process>,
}

impl Hogs {
    /// So many at a time. Every second one is nice to the others.
    pub fn new(count: usize) -> Self {
        Self { count, running: Vec::new() }
    }

    /// Starts or ends them by the time since the run began. Says how many run from now on, if that
    /// changed.
    pub fn tend(&mut self, passed: Duration, ends: Duration) -> io::Result<Option<usize>> {
        let wanted = if is_busy(passed, ends) { self.count } else { 0 };
        if wanted == self.running.len() {
            return Ok(None);
        }
        self.running.clear();
        for number in 0..wanted {
            let nice = if number % 2 == 1 { NICE } else { 0 };
            self.running.push(Process::start("hog", &[&nice.to_string()], Stdio::null(), None)?);
        }
        Ok(Some(wanted))
    }
}

/// Every second stretch; a run that is shorter than two of them has two all the same.
fn is_busy(passed: Duration, ends: Duration) -> bool {
    let stretch = STRETCH.min(ends / 2).as_millis().max(1);
    passed < ends && (passed.as_millis() / stretch) % 2 == 1
}

/// Is busy until it is killed.
pub fn spin(nice: i32) -> io::Result<()> {
    setpriority_process(None, nice)?;
    let mut count = 0_u64;
    loop {
        count = black_box(count.wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hogs_are_there_for_half_of_the_time_and_not_after_it() {
        for seconds in [1, 8, 16, 40] {
            let ends = Duration::from_secs(seconds);
            let moments = || (0..2_000).map(|part| ends * part / 1_000);
            let busy = moments().filter(|passed| is_busy(*passed, ends));
            assert_eq!(busy.count(), 500, "of a thousand moments of {seconds} s");
        }
    }
}
