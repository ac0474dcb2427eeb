//! Waiting closely: while a thread of the target is held, every microsecond on our side is one on its side.

use std::io;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Makes the calling thread quick to be scheduled until it is dropped: real-time priority where that is allowed, and exact
/// timers. On a machine whose processors are all busy the kernel would else run somebody else between any two steps.
#[derive(Debug)]
pub struct Urgent {
    /// Policy and priority to go back to; None when nothing was changed.
    scheduling: Option<(i32, libc::sched_param)>,
    /// Timer slack to go back to, ns; 0 when it was not changed.
    slack: i32,
    /// Both belong to the thread that asked.
    here: PhantomData<*const ()>,
}

impl Urgent {
    /// Begins. What is not allowed is left out.
    pub fn begin() -> Urgent {
        // Asked for before anything stands still.
        let _known = spin();
        // SAFETY: all three act on the calling thread; `param` is live for each call that takes it.
        let (scheduling, slack) = unsafe {
            let mut before: libc::sched_param = std::mem::zeroed();
            let policy = libc::sched_getscheduler(0);
            let known = policy >= 0 && libc::sched_getparam(0, &raw mut before) == 0;
            let mut wanted: libc::sched_param = std::mem::zeroed();
            wanted.sched_priority = 1;
            let raised = known
                && policy & !libc::SCHED_RESET_ON_FORK == libc::SCHED_OTHER
                && libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const wanted) == 0;
            // A real-time thread has none anyway.
            let slack = if raised {
                0
            } else {
                libc::prctl(libc::PR_GET_TIMERSLACK)
            };
            if slack > 0 {
                libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64);
            }
            (raised.then_some((policy, before)), slack)
        };
        Urgent {
            scheduling,
            slack,
            here: PhantomData,
        }
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        // SAFETY: acts on the calling thread, which is the one that began; the parameter is live.
        unsafe {
            if let Some((policy, param)) = &self.scheduling {
                libc::sched_setscheduler(0, *policy, &raw const *param);
            }
            if self.slack > 0 {
                libc::prctl(libc::PR_SET_TIMERSLACK, self.slack as u64);
            }
        }
    }
}

/// Keeps the calling thread, and threads that it makes, off a processor for as long as it lives, if it may use another one. A
/// thread that is let go on begins where it last ran: if we wait for it there, each waits for the other's turn.
pub fn keep_off(processor: u64) {
    let Ok(processor) = usize::try_from(processor) else {
        return;
    };
    // SAFETY: cpu_set_t is plain data of the size given, filled for the calling thread before it is used; the number is checked
    // against its room.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of::<libc::cpu_set_t>();
        if processor >= size * 8 || libc::sched_getaffinity(0, size, &raw mut set) != 0 {
            return;
        }
        libc::CPU_CLR(processor, &mut set);
        if libc::CPU_COUNT(&set) > 0 {
            // Where it fails all is as it was.
            libc::sched_setaffinity(0, size, &raw const set);
        }
    }
}

/// How long a wait may spin. A processor that goes to sleep between two looks wakes up late, and whoever is waited for stands
/// still meanwhile; but where there is only one, the other side needs it.
fn spin() -> Duration {
    static SPIN: OnceLock<Duration> = OnceLock::new();
    *SPIN.get_or_init(|| {
        // SAFETY: cpu_set_t is plain data, filled for the calling thread; its size is given.
        let processors = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            match libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) {
                0 => libc::CPU_COUNT(&set),
                _ => 1,
            }
        };
        Duration::from_micros(if processors > 1 { 100 } else { 5 })
    })
}

/// The pace of a loop that asks again and again: spins for an instant (the answer usually comes within microseconds from
/// another processor), then sleeps in steps that grow, so that the other side gets the processor even where there is one.
#[derive(Debug)]
pub struct Pace {
    began: Instant,
}

impl Pace {
    /// Begins.
    #[expect(
        clippy::new_without_default,
        reason = "it begins to count: that is no default value"
    )]
    pub fn new() -> Pace {
        Pace {
            began: Instant::now(),
        }
    }

    /// Rests until it is time to ask again.
    pub fn rest(&mut self) {
        match self.began.elapsed() {
            spent if spent < spin() => std::hint::spin_loop(),
            spent if spent < Duration::from_millis(3) => doze(Duration::from_micros(10)),
            _ => doze(Duration::from_micros(100)),
        }
    }
}

fn doze(span: Duration) {
    let request = libc::timespec {
        tv_sec: 0,
        tv_nsec: i64::from(span.subsec_nanos()),
    };
    // SAFETY: `request` is live; no remainder is asked for. A signal may end it early, which does no harm.
    let result = unsafe { libc::nanosleep(&raw const request, std::ptr::null_mut()) };
    debug_assert!(result == 0 || io::Error::last_os_error().kind() == io::ErrorKind::Interrupted);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_before_comes_back() {
        // SAFETY: asks about the calling thread.
        let state = || unsafe {
            (
                libc::sched_getscheduler(0),
                libc::prctl(libc::PR_GET_TIMERSLACK),
            )
        };
        let before = state();
        {
            let _urgent = Urgent::begin();
            assert!(state().1 <= 1);
        }
        assert_eq!(state(), before);
    }
}
