//! A limit to how long a tracer with more rights than its user may not run.
//!
//! A thread that is traced may stand at any moment until its tracer acts. The user of a set-uid
//! attacher, or of one with file capabilities, could stop it (SIGSTOP) while it holds a thread of
//! somebody else's, and so hold that thread for as long as they like. No other process can be
//! relied on to prevent that: the same user may stop it as well. So the kernel does it: a timer of
//! this process, which its user can neither stop nor delete, sends it SIGKILL unless the tracer
//! says in time that it runs. The kernel lets go of the threads that a process traced when that
//! process ends, and what is on such a thread's stack by then restores it.
//!
//! Decisions: ENG-051 (`docs/deviations/engine.md`).
//!
//! It costs two system calls for each thread that is traced, and one more each millisecond. For an
//! attacher without such rights nothing is done: its user may trace those threads by other means.

use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use crate::sys;

/// After so long without a word of the tracer the process is killed. What is not stopped is heard
/// from every few hundred microseconds.
pub(crate) const LIMIT: Duration = Duration::from_millis(40);
/// How often the timer is put off at most.
const PERIOD: Duration = Duration::from_millis(1);

thread_local! {
    /// The calling thread's timer, and when it was put off last.
    static TIMER: Cell<Option<(libc::timer_t, Instant)>> = const { Cell::new(None) };
}

/// The calling thread traces something: while this lives it must say at least every [`LIMIT`] that
/// it runs ([`alive`]).
#[derive(Debug)]
pub(crate) struct Watch {
    /// None where nobody watches, and inside another one of this thread.
    timer: Option<libc::timer_t>,
    /// The timer is known by the thread.
    here: PhantomData<*const ()>,
}

impl Watch {
    /// Begins, where the attacher has more rights than its user.
    ///
    /// # Errors
    /// The kernel's: without a timer nothing must be traced. (The user's own limit of pending
    /// signals may be the reason.)
    pub(crate) fn begin() -> io::Result<Watch> {
        if sys::is_secure() {
            Watch::over_this_thread()
        } else {
            Ok(Watch {
                timer: None,
                here: PhantomData,
            })
        }
    }

    fn over_this_thread() -> io::Result<Watch> {
        let mut watch = Watch {
            timer: None,
            here: PhantomData,
        };
        if TIMER.get().is_some() {
            return Ok(watch);
        }
        // SAFETY: sigevent and timer_t are plain data; both live for the call.
        let timer = unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_SIGNAL;
            event.sigev_signo = libc::SIGKILL;
            let mut timer: libc::timer_t = std::mem::zeroed();
            if libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) != 0 {
                return Err(io::Error::last_os_error());
            }
            timer
        };
        watch.timer = Some(timer);
        put_off(timer)?;
        TIMER.set(Some((timer, Instant::now())));
        Ok(watch)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            TIMER.set(None);
            // SAFETY: made by this value and deleted once.
            unsafe { libc::timer_delete(timer) };
        }
    }
}

/// Has the timer begin anew.
fn put_off(timer: libc::timer_t) -> io::Result<()> {
    // SAFETY: itimerspec is plain data and live; the timer is one that was made and not deleted.
    unsafe {
        let mut when: libc::itimerspec = std::mem::zeroed();
        when.it_value.tv_nsec = i64::from(LIMIT.subsec_nanos());
        match libc::timer_settime(timer, 0, &raw const when, std::ptr::null_mut()) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// The calling thread runs.
pub(crate) fn alive() {
    let Some((timer, last)) = TIMER.get() else {
        return;
    };
    let now = Instant::now();
    if now.saturating_duration_since(last) >= PERIOD {
        // It exists, so that it cannot fail; if it did, the timer would end this process.
        let _ends = put_off(timer);
        TIMER.set(Some((timer, now)));
    }
}

/// Sleeps, while a thread that is traced runs.
pub fn sleep_beside(span: Duration) {
    let end = Instant::now() + span;
    loop {
        alive();
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(if TIMER.get().is_some() {
            left.min(LIMIT / 8)
        } else {
            left
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    /// In a process of its own, which is the test's program again.
    fn ends_by(case: &str) -> Option<i32> {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "watch::tests::the_process_itself", "--nocapture"]);
        command.env("MIDAIR_WATCH_CASE", case);
        command.output().unwrap().status.signal()
    }

    /// What [`ends_by`] runs; nothing by itself.
    #[test]
    fn the_process_itself() {
        let Ok(case) = std::env::var("MIDAIR_WATCH_CASE") else {
            return;
        };
        let watch = Watch::over_this_thread().unwrap();
        match case.as_str() {
            // SAFETY: takes a number.
            "stopped" => unsafe {
                libc::raise(libc::SIGSTOP);
            },
            "asleep" => std::thread::sleep(Duration::from_secs(60)),
            "at work" => sleep_beside(LIMIT * 3),
            "done" => {
                drop(watch);
                std::thread::sleep(LIMIT * 3);
            }
            other => panic!("{other}"),
        }
    }

    #[test]
    fn who_does_not_run_is_killed() {
        assert_eq!(ends_by("stopped"), Some(libc::SIGKILL));
        assert_eq!(ends_by("asleep"), Some(libc::SIGKILL));
        assert_eq!(ends_by("done"), None);
        // It needs a turn every few milliseconds, which a machine with too much to do may not give.
        assert!((0..5).any(|_| ends_by("at work").is_none()));
    }

    #[test]
    fn without_more_rights_nobody_watches() {
        assert!(Watch::begin().unwrap().timer.is_none());
        assert!(TIMER.get().is_none());
    }
}
