//! Limits how long a tracer with more rights than its user can be kept from running.
//!
//! A traced thread may stand still at any moment until its tracer acts. The user of a set-uid
//! attacher, or of one with file capabilities, could stop the attacher (SIGSTOP) while it holds a
//! thread of another user, and so hold that thread for as long as they like. No other process
//! can be relied on to prevent that: the same user may stop it as well. So the kernel does it, by
//! two timers of this process. Its user can neither stop nor delete them, and the tracer puts them
//! off while it runs. The first timer continues the process (SIGCONT), [`RESUME`] after the tracer
//! last ran. The second one kills the process when the tracer did not get to run for [`LIMIT`],
//! because it was stopped again and again. When a process ends, the kernel lets go of the threads
//! that it traced, and what is on the stack of such a thread by then restores it.
//!
//! A tracer that gets no processor for long cannot be distinguished from one that is stopped, so the second
//! limit is not shorter.
//!
//! Decisions: ENG-051 (`docs/deviations/engine.md`).
//!
//! This costs some system calls for each traced thread, and two more each millisecond. For an
//! attacher without such rights nothing is done: its user may trace those threads by other means.

use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use crate::sys;

/// The process is continued this long after the tracer last ran.
pub(crate) const RESUME: Duration = Duration::from_millis(10);
/// The process is killed this long after the tracer last ran as it should.
pub(crate) const LIMIT: Duration = Duration::from_millis(250);
/// The shortest time between two occasions on which the timers are put off.
const PERIOD: Duration = Duration::from_millis(1);

/// A timer of this process that sends it a signal.
#[derive(Debug, Clone, Copy)]
struct Timer(libc::timer_t);

impl Timer {
    fn new(signal: i32) -> io::Result<Timer> {
        // SAFETY: sigevent and timer_t are plain data; both live for the call.
        unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_SIGNAL;
            event.sigev_signo = signal;
            let mut timer: libc::timer_t = std::mem::zeroed();
            match libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) {
                0 => Ok(Timer(timer)),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    /// Restarts the timer: it fires once, after `span`, which is less than a second.
    fn put_off(self, span: Duration) -> io::Result<()> {
        // SAFETY: itimerspec is plain data and live; a timer that does not exist is refused.
        unsafe {
            let mut when: libc::itimerspec = std::mem::zeroed();
            when.it_value.tv_nsec = i64::from(span.subsec_nanos());
            match libc::timer_settime(self.0, 0, &raw const when, std::ptr::null_mut()) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    fn delete(self) {
        // SAFETY: timer_delete takes a number; a timer that does not exist is refused.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// Both timers, and when they were last put off.
#[derive(Debug, Clone, Copy)]
struct Timers {
    resumes: Timer,
    kills: Timer,
    last: Instant,
}

thread_local! {
    /// The calling thread's timers, while it traces something and is watched.
    static TIMERS: Cell<Option<Timers>> = const { Cell::new(None) };
}

/// Watches the calling thread while it traces: as long as this lives, the thread must report that
/// it runs ([`alive`]).
#[derive(Debug)]
pub(crate) struct Watch {
    /// False if no timer watches the thread, and inside another watch of this thread.
    watches: bool,
    /// The timers are found by the thread.
    here: PhantomData<*const ()>,
}

impl Watch {
    /// Starts to watch, if the attacher has more rights than its user.
    ///
    /// # Errors
    /// The kernel's: nothing may be traced without timers. (The reason may be the user's own limit
    /// of pending signals.)
    pub(crate) fn begin() -> io::Result<Watch> {
        if sys::is_secure() {
            Watch::over_this_thread()
        } else {
            Ok(Watch {
                watches: false,
                here: PhantomData,
            })
        }
    }

    fn over_this_thread() -> io::Result<Watch> {
        let mut watch = Watch {
            watches: false,
            here: PhantomData,
        };
        if TIMERS.get().is_some() {
            return Ok(watch);
        }
        let resumes = Timer::new(libc::SIGCONT)?;
        let kills = Timer::new(libc::SIGKILL).inspect_err(|_| resumes.delete())?;
        TIMERS.set(Some(Timers {
            resumes,
            kills,
            last: Instant::now(),
        }));
        // From here on the drop of `watch` deletes the timers.
        watch.watches = true;
        kills.put_off(LIMIT)?;
        resumes.put_off(RESUME)?;
        Ok(watch)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.watches
            && let Some(timers) = TIMERS.take()
        {
            timers.kills.delete();
            timers.resumes.delete();
        }
    }
}

/// Reports that the calling thread runs, by putting off its timers.
pub(crate) fn alive() {
    let Some(mut timers) = TIMERS.get() else {
        return;
    };
    let now = Instant::now();
    let since = now.saturating_duration_since(timers.last);
    if since < PERIOD {
        return;
    }
    // The timers exist, so this cannot fail. If it did, the process would be killed.
    let _fires = timers.resumes.put_off(RESUME);
    // A tracer that had to be continued gets no more time for that.
    if since < RESUME {
        let _fires = timers.kills.put_off(LIMIT);
    }
    timers.last = now;
    TIMERS.set(Some(timers));
}

/// Sleeps while a traced thread runs, and reports meanwhile that the caller is alive.
pub fn sleep_beside(span: Duration) {
    let end = Instant::now() + span;
    loop {
        alive();
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(match TIMERS.get() {
            Some(_) => left.min(RESUME / 4),
            None => left,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    /// Runs the case in a process of its own, which is the test's program again.
    fn ends_by(case: &str) -> Option<i32> {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "watch::tests::the_process_itself", "--nocapture"]);
        command.env("MIDAIR_WATCH_CASE", case);
        command.output().unwrap().status.signal()
    }

    fn stop() {
        // SAFETY: takes a number.
        unsafe { libc::raise(libc::SIGSTOP) };
    }

    /// What [`ends_by`] runs; nothing by itself.
    #[test]
    fn the_process_itself() {
        let Ok(case) = std::env::var("MIDAIR_WATCH_CASE") else {
            return;
        };
        let watch = Watch::over_this_thread().unwrap();
        match case.as_str() {
            "stopped once" => stop(),
            "stopped again and again" => loop {
                stop();
                // It runs between two stops, but does nothing else.
                alive();
            },
            "asleep" => std::thread::sleep(Duration::from_secs(60)),
            "at work" => sleep_beside(LIMIT * 2),
            "done" => {
                drop(watch);
                std::thread::sleep(LIMIT * 2);
            }
            other => panic!("{other}"),
        }
    }

    #[test]
    fn who_is_stopped_is_continued_and_then_killed() {
        assert_eq!(ends_by("stopped once"), None);
        assert_eq!(ends_by("stopped again and again"), Some(libc::SIGKILL));
        assert_eq!(ends_by("asleep"), Some(libc::SIGKILL));
        assert_eq!(ends_by("done"), None);
        // It needs processor time regularly, which an overloaded machine may not give.
        assert!((0..5).any(|_| ends_by("at work").is_none()));
    }

    #[test]
    fn without_more_rights_nobody_watches() {
        assert!(!Watch::begin().unwrap().watches);
        assert!(TIMERS.get().is_none());
    }
}
