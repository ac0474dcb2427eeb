//! What a session costs in processor time: our thread in the process, and this program beside it.

use crate::target::Target;
use midair_results::Cost;
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Readings at a session's begin.
#[derive(Debug)]
pub(crate) struct Meter {
    worker: Option<Duration>,
    own: Option<Duration>,
}

impl Meter {
    /// At the begin of a session.
    pub(crate) fn begin(target: &Target) -> Meter {
        Meter {
            worker: target.worker_time(),
            own: own_time(),
        }
    }

    /// At its end. `stopped` is the longest time for which a thread of the process stood still.
    /// The worker's time is not known where the process has ended.
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

/// Processor time of this program, all its threads.
fn own_time() -> Option<Duration> {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).ok()?;
    Some(Duration::from(time))
}
