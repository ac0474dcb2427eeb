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

/// Raises an event again, some time after it was raised.
///
/// ROCr 7.2's model mode sets an event's flag and wakes the waiters without holding their lock. So
/// a thread that has just looked at the flag and is about to sleep misses the wake-up, and sleeps
/// forever (found by reading what its function does). Raising the event again finds that thread
/// asleep. For all other threads it is a spurious wake-up, after which they look at their signal.
/// This is done only while the queue lives, since ROCr destroys its events after its queues.
pub(super) struct Echo {
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

    fn new() -> Echo {
        Echo {
            event: 0,
            since: Instant::now(),
            stage: Self::AFTER.len(),
        }
    }
    /// Looks at the clock. Returns how long until the next repetition, if there is one.
    fn look(&mut self, shared: &Shared) -> Option<Duration> {
        let raised = RAISED.take();
        if raised != 0 {
            *self = Echo {
                event: raised,
                since: Instant::now(),
                stage: 0,
            };
        }
        let after = *Self::AFTER.get(self.stage)?;
        let left = after.saturating_sub(self.since.elapsed());
        if left.is_zero() {
            self.stage += 1;
            shared.interrupt(self.event);
        }
        Some(left.max(SHORTEST))
    }
}

fn serve(shared: &Shared, mut engine: Engine, stop: &AtomicBool) {
    // SAFETY: the call takes a number and affects only this thread. Without it each nap would be 50
    // us too long.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000u64) };
    let mut active = Instant::now();
    let mut looks = 0u32;
    let mut echo = Echo::new();
    while !stop.load(Ordering::Acquire) {
        let echo_in = echo.look(shared).unwrap_or(Duration::MAX);
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
