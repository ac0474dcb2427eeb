//! One thread per queue.

use super::{RAISED, Shared};
use crate::engine::{Engine, Place, Step};
use crate::log::Event;
use crate::machine::Machine;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The shortest and the longest time between two looks at a queue.
const SHORTEST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_millis(2);

/// The thread of a queue. ROCr holds this value.
pub struct Worker {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    pid: u32,
    /// Ring of an AQL queue.
    aql_ring: Option<u64>,
}

impl Worker {
    pub(super) fn start(shared: Arc<Shared>, sdma: bool, place: Place) -> io::Result<Worker> {
        let size = if sdma {
            place.ring_bytes
        } else {
            place.ring_bytes / 64
        };
        let (ring, doorbell_at) = (place.ring, place.doorbell_at);
        let (write_index_at, read_index_at) = (place.write_index_at, place.read_index_at);
        shared.log(
            place.number,
            &Event::Queue {
                sdma,
                ring,
                size,
                write_index_at,
                read_index_at,
                doorbell_at,
            },
        );
        let engine = Engine::new(sdma, place, Arc::clone(&shared.settings), &*shared);
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let name = format!("gpu-model-{}", place.number);
        let thread = without_signals(|| {
            std::thread::Builder::new()
                .name(name)
                .spawn(move || serve(&shared, engine, &asked))
        })?;
        Ok(Worker {
            stop,
            thread,
            pid: std::process::id(),
            aql_ring: (!sdma).then_some(ring),
        })
    }

    /// Returns the ring, if this is an AQL queue.
    pub(super) fn aql_ring(&self) -> Option<u64> {
        self.aql_ring
    }

    /// Ends the thread. Returns when it has ended.
    pub(super) fn stop(self) {
        self.stop.store(true, Ordering::Release);
        // In a forked child there is no such thread to wait for.
        if self.pid == std::process::id() {
            self.thread.thread().unpark();
            // A thread that panicked has reported it on stderr.
            let _ = self.thread.join();
        }
    }
}

/// Runs `act` with all signals blocked, since a device's threads must never run a handler of the
/// application.
fn without_signals<T>(act: impl FnOnce() -> T) -> T {
    // SAFETY: sigset_t is plain data. Both calls write only our own sets and this thread's mask.
    let before = unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    };
    let result = act();
    // SAFETY: this restores the mask that was saved above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    result
}

/// Raises events again, some time after they were raised.
///
/// ROCr 7.2's model mode sets an event's flag and wakes the waiters without holding their lock. So
/// a thread that has just looked at the flag and is about to sleep misses the wake-up, and sleeps
/// forever (found by reading what its function does). Raising the event again finds that thread
/// asleep. For all other threads it is a spurious wake-up, after which they look at their signal.
/// This is done only while the queue lives, since ROCr destroys its events after its queues.
///
/// Each event has its own repetitions: when several threads use a queue, the next one's event comes
/// long before the last repetition.
#[derive(Default)]
struct Echo(Vec<Raised>);

/// An event that is to be raised again.
struct Raised {
    event: u32,
    since: Instant,
    stage: usize,
}

impl Echo {
    /// The times after the event was raised.
    const AFTER: [Duration; 5] = [
        Duration::from_micros(200),
        Duration::from_millis(3),
        Duration::from_millis(40),
        // For a thread that had no processor in its wrong moment for as long as that.
        Duration::from_millis(500),
        Duration::from_secs(5),
    ];

    /// Notes that an event was raised at this time.
    fn raised(&mut self, event: u32, since: Instant) {
        self.0.retain(|raised| raised.event != event);
        self.0.push(Raised {
            event,
            since,
            stage: 0,
        });
    }

    /// Raises what is due at this time. Returns how long until the next repetition, if there is one.
    fn look(&mut self, now: Instant, mut raise: impl FnMut(u32)) -> Option<Duration> {
        let mut next = None;
        self.0.retain_mut(|raised| {
            let passed = now.saturating_duration_since(raised.since);
            if Self::AFTER
                .get(raised.stage)
                .is_some_and(|it| *it <= passed)
            {
                raised.stage += 1;
                raise(raised.event);
            }
            let Some(after) = Self::AFTER.get(raised.stage) else {
                return false;
            };
            let left = after.saturating_sub(passed).max(SHORTEST);
            next = Some(next.map_or(left, |next: Duration| next.min(left)));
            true
        });
        next
    }
}

fn serve(shared: &Shared, mut engine: Engine, stop: &AtomicBool) {
    // SAFETY: the call takes a number and affects only this thread. Without it each nap would be 50
    // us too long.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000u64) };
    let mut active = Instant::now();
    let mut looks = 0u32;
    let mut echo = Echo::default();
    while !stop.load(Ordering::Acquire) {
        let raised = RAISED.take();
        if raised != 0 {
            echo.raised(raised, Instant::now());
        }
        let echo_in = echo
            .look(Instant::now(), |event| shared.interrupt(event))
            .unwrap_or(Duration::MAX);
        match engine.step(shared) {
            Step::Progress => {
                active = Instant::now();
                looks = 0;
            }
            Step::Busy(ns) => {
                std::thread::park_timeout(Duration::from_nanos(ns).min(echo_in));
                active = Instant::now();
            }
            // The first packet may follow at once, and the doorbell has to be known before that.
            Step::Unready if looks < 100_000 => {
                looks += 1;
                std::thread::yield_now();
            }
            // In eager mode a packet that is being written is taken the moment it is valid, which
            // is the hardest case for code that edits it. This is bounded, so that a producer that
            // was descheduled in the middle does not occupy a core.
            Step::Idle { near: true } if shared.settings.eager && looks < 2_000 => {
                looks += 1;
                std::hint::spin_loop();
            }
            // The longer nothing has happened, the longer the nap, so that it adds at most a half
            // to any silence. These looks were half of the processor time of many tests: a queue
            // that gets work every 2 ms is looked at a dozen times between, not thirty times.
            Step::Idle { .. } | Step::Unready => {
                std::thread::park_timeout((active.elapsed() / 2).clamp(SHORTEST, LONGEST))
            }
            Step::Halted => std::thread::park(),
        }
    }
    engine.end(shared);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_raised_again_whatever_comes_after_it() {
        let (mut echo, began) = (Echo::default(), Instant::now());
        let mut all = Vec::new();
        let mut at = |echo: &mut Echo, us: u64| {
            let left = echo.look(began + Duration::from_micros(us), |event| {
                all.push((us, event))
            });
            left.map(|left| left.as_micros() as u64)
        };
        assert_eq!(at(&mut echo, 0), None);
        echo.raised(7, began);
        assert_eq!(at(&mut echo, 0), Some(200));
        // Another thread's event, before the first repetition.
        echo.raised(8, began + Duration::from_micros(100));
        assert_eq!(at(&mut echo, 100), Some(100));
        assert_eq!(at(&mut echo, 200), Some(100));
        assert_eq!(at(&mut echo, 300), Some(2700));
        for us in [3_000, 3_100, 40_000, 40_100, 500_000, 500_100, 5_000_000] {
            assert!(at(&mut echo, us).is_some());
        }
        assert_eq!(at(&mut echo, 5_000_100), None);
        for event in [7, 8] {
            assert_eq!(all.iter().filter(|(_, it)| *it == event).count(), 5);
        }
    }

    #[test]
    fn an_event_that_is_raised_anew_begins_anew() {
        let (mut echo, began) = (Echo::default(), Instant::now());
        echo.raised(7, began);
        echo.raised(7, began + Duration::from_secs(4));
        let mut count = 0;
        let left = echo.look(began + Duration::from_secs(5), |_| count += 1);
        assert_eq!((left, count), (Some(SHORTEST), 1));
    }
}
