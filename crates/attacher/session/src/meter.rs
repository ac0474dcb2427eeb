//! The processor time that a session costs: our thread's in the process, and this
//! program's.

use crate::target::Target;
use midair_results::Cost;
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The readings at the start of a session.
#[derive(Debug)]
pub(crate) struct Meter {
    worker: Option<Duration>,
    own: Option<Duration>,
}

impl Meter {
    /// Reads the times at the start of a session.
    pub(crate) fn begin(target: &Target) -> Meter {
        Meter {
            worker: target.worker_time(),
            own: own_time(),
        }
    }

    /// Returns the cost at the end of the session. `stopped` is the longest time for which a thread
    /// of the process stood still. The worker thread's time is not known where the process has
    /// ended.
    pub(crate) fn cost(&self, target: &Target, stopped: Duration) -> Cost {
        let since =
            |now: Option<Duration>, then: Option<Duration>| Some(now?.saturating_sub(then?));
        Cost {
            longest_stop: Some(stopped),
            in_process: since(target.worker_time(), self.worker),
            beside: since(own_time(), self.own),
        }
    }
}

/// Returns the processor time of all threads of this program.
fn own_time() -> Option<Duration> {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).ok()?;
    Some(Duration::from(time))
}
