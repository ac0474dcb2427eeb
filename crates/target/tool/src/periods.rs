//! Collection periods: a midair thread starts and ends them.

use crate::collector;
use crate::sdk::{Sdk, SessionKind};
use midair_capi_build::quiet_thread;
use midair_settings::{COLLECTION_PERIOD, Period};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The name of the thread.
const NAME: &str = "midair-periods";
const STACK: usize = 128 << 10;

/// When the process was started with the tool: the first period's delay counts from then. In a
/// process that was attached to, it counts from the start of the recording.
static STARTED: OnceLock<Instant> = OnceLock::new();
static RUNNING: Mutex<Option<Running>> = Mutex::new(None);

/// The thread of a session's periods.
struct Running {
    /// Dropping it ends the thread.
    stop: Sender<()>,
    /// Tells that the thread has ended.
    ended: Receiver<()>,
}

/// How long the end of the thread is waited for. It only has to wake up.
const PATIENCE: Duration = Duration::from_secs(1);

/// Notes the time from which the first period counts.
pub(crate) fn started() {
    STARTED.get_or_init(Instant::now);
}

/// Returns the session's periods; none where all of it is recorded. A meaningless value is reported
/// and counts as none.
pub(crate) fn of(sdk: Sdk) -> Vec<Period> {
    let settings = collector::settings(sdk);
    if settings.text(COLLECTION_PERIOD).is_none() {
        return Vec::new();
    }
    settings.collection_periods().unwrap_or_else(|bad| {
        sdk.note(&bad.to_string());
        Vec::new()
    })
}

/// Starts and ends these periods on a thread of its own, until [`end`]. Call it when the pauses of
/// the session are set.
pub(crate) fn begin(sdk: Sdk, periods: Vec<Period>) {
    if periods.is_empty() {
        return;
    }
    let (stop, stopped) = channel();
    let (ending, ended) = channel();
    let running = Running { stop, ended };
    *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
    let from = match sdk.session_kind() {
        SessionKind::Engine | SessionKind::Attached => Instant::now(),
        SessionKind::Launched | SessionKind::Becoming => *STARTED.get_or_init(Instant::now),
    };
    let body = move || {
        follow(&periods, from, &stopped, |open| sdk.set_period(open));
        drop(ending);
    };
    if let Err(error) = quiet_thread(NAME, STACK, body) {
        sdk.note(&format!(
            "cannot record: cannot create a thread for the collection periods ({error})"
        ));
    }
}

/// Ends the periods, with the session. After this nothing of midair's runs for them.
pub(crate) fn end() {
    let running = RUNNING
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    if let Some(Running { stop, ended }) = running {
        drop(stop);
        // The other end is dropped at the thread's end, or if there is no thread.
        let _ = ended.recv_timeout(PATIENCE);
    }
}

/// Starts and ends the periods, whose delays and lengths follow one another from this time on.
/// Returns when the last is over or the session is.
fn follow(periods: &[Period], from: Instant, stopped: &Receiver<()>, set: impl Fn(bool)) {
    // What lies beyond the range of clocks never comes.
    let mut at = Some(from);
    let mut wait_for = |time: Duration| {
        at = at.and_then(|at| at.checked_add(time));
        let ended = match at {
            Some(at) => stopped.recv_timeout(at.saturating_duration_since(Instant::now())),
            None => stopped.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        matches!(ended, Err(RecvTimeoutError::Timeout))
    };
    for period in periods {
        for _ in 0..period.repeat {
            if !wait_for(period.delay) {
                return;
            }
            set(true);
            let over = wait_for(period.length);
            if !over {
                return;
            }
            set(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn periods_follow_one_another_from_the_start_of_the_program() {
        let period = |delay, length, repeat| Period {
            delay: Duration::from_millis(delay),
            length: Duration::from_millis(length),
            repeat,
        };
        let (_running, stopped) = channel();
        let from = Instant::now();
        let told = RefCell::new(Vec::new());
        follow(
            &[period(3, 2, 2), period(0, 1, 1)],
            from,
            &stopped,
            |open| told.borrow_mut().push((open, from.elapsed())),
        );
        let told = told.into_inner();
        let opens: Vec<bool> = told.iter().map(|(open, _)| *open).collect();
        assert_eq!(opens, [true, false, true, false, true, false]);
        // Not one comes early, and a late one does not delay those behind it for good.
        for ((_, at), due) in told.iter().zip([3, 5, 8, 10, 10, 11]) {
            assert!(*at >= Duration::from_millis(due), "{told:?}");
        }
        // A time that has passed comes at once; one that never comes ends with the session.
        let (running, stopped) = channel();
        drop(running);
        let none = RefCell::new(0);
        let never = Period {
            delay: Duration::MAX,
            ..period(0, 1, 1)
        };
        follow(&[never], from, &stopped, |_| *none.borrow_mut() += 1);
        assert_eq!(none.into_inner(), 0);
    }
}
