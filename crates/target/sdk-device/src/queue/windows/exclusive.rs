//! Windows that have the device for themselves, as far as a short wait allows (`--exclusive`).
//!
//! A thread that is to open a window takes its agent's *turn*. From then on launches on other
//! queues of the agent wait, for at most [`LIMIT`]. The thread waits, for at most [`DRAIN`], for
//! the work that these queues already run. If that does not end in time, the thread gives the turn
//! back, and the launch has no window. The turn is over when the device has read the window, or
//! after [`LIMIT`], whichever comes first.
//!
//! Kernels of a batch that are counted one by one ([`super::guard`]) have one turn together, which
//! is taken when the application rings the doorbell for them. If the turn cannot be had, they are
//! not moved.
//!
//! Only threads wait, during a launch and for a bounded time. No packet in any ring waits for
//! another packet, so kernels that need each other go on. Whether a window was alone is judged
//! later by its times, as it is without `--exclusive`: a window whose kernel takes longer than
//! [`LIMIT`] may be shared.
//!
//! Of two threads on different queues at least one sees the other. A thread that rings a doorbell
//! has entered its dispatches as under way before it looks for a turn, and a thread that takes a
//! turn looks for dispatches afterwards.
//!
//! Decisions: AMD-142 (`docs/deviations/amd.md`).

use crate::layout::Signal;
use crate::queue::flight::{Flight, Stage};
use crate::queue::queue_state::{Life, QueueState};
use crate::queue::state;
use crate::queue::window::Word;
use crate::state::STATE;
use midair_sdk_hot::clock::now;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::time::Duration;

/// How many nanoseconds a launch on another queue waits at most, and a turn lasts at most.
pub(super) const LIMIT: u64 = 200_000;
/// How many nanoseconds the launch with the window waits at most for the work of other queues.
pub(super) const DRAIN: u64 = 100_000;
/// How many dispatches of a queue are looked at; a queue with more of them counts as busy.
const LOOK: u64 = 1024;
/// How often a thread looks before it yields its processor.
const SPINS: u32 = 64;
/// How often it yields before it sleeps between its looks. On a machine with fewer processors than
/// threads that launch, those that wait would keep the one that has the turn from a processor.
const YIELDS: u32 = 8;
/// How long it sleeps between two looks, as far as the timer's slack allows.
const NAP: Duration = Duration::from_micros(10);

/// Returns whether windows are to be exclusive. This is a single load.
#[inline]
pub(crate) fn is_on() -> bool {
    STATE.windows.exclusive.load(Relaxed)
}

fn micros(time: u64) -> u32 {
    (time / 1000) as u32
}

/// Returns whether a turn still lasts.
fn lasts(word: u64, time: u64) -> bool {
    let left = ((word >> 32) as u32)
        .wrapping_sub(micros(time))
        .cast_signed();
    if word == 0 || left <= 0 {
        return false;
    }
    let window = STATE.windows.numbered(word as u16);
    window.is_none_or(|window| {
        let [_, was_read] = &window.signals;
        // SAFETY: this is a midair signal. It is alive until the session is over, and the end of
        // the session waits for this thread.
        unsafe { Signal(was_read.load(Relaxed)).value() >= 1 }
    })
}

fn queue_of(word: u64) -> u32 {
    (word >> 16) as u32 & 0xffff
}

/// A turn that the calling thread holds. It is given back when dropped, unless a window was opened.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    of: &'a Word,
    word: u64,
}

impl<'a> Turn<'a> {
    /// Takes the turn of an agent for a queue, and waits for the work of the agent's other queues.
    /// Returns `None` if another queue has the turn, or if that work does not end in time.
    pub(super) fn take(agent: usize, queue: &QueueState) -> Option<Turn<'a>> {
        let of = &STATE.windows.agents.get(agent)?.turn;
        let began = now();
        let before = of.0.load(Acquire);
        if lasts(before, began) && queue_of(before) != queue.id.load(Relaxed) {
            return None;
        }
        let id = u64::from(queue.id.load(Relaxed) & 0xffff);
        let word = u64::from(micros(began + LIMIT)) << 32 | id << 16;
        of.0.compare_exchange(before, word, SeqCst, Relaxed).ok()?;
        let turn = Turn { of, word };
        let mut spins = 0;
        while others_run(agent, queue) {
            if now().wrapping_sub(began) >= DRAIN {
                return None;
            }
            relax(&mut spins);
        }
        Some(turn)
    }

    /// Keeps the turn for a window, which is in the ring now.
    pub(super) fn opened(self, window: u16) {
        let opened = self.word | u64::from(window);
        let _ = self
            .of
            .0
            .compare_exchange(self.word, opened, SeqCst, Relaxed);
        std::mem::forget(self);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let _ = self.of.0.compare_exchange(self.word, 0, SeqCst, Relaxed);
    }
}

fn relax(spins: &mut u32) {
    *spins += 1;
    if !spins.is_multiple_of(SPINS) {
        std::hint::spin_loop();
    } else if *spins <= SPINS * YIELDS {
        std::thread::yield_now();
    } else {
        std::thread::sleep(NAP);
    }
}

/// Returns whether another queue of the agent has a dispatch under way.
fn others_run(agent: usize, queue: &QueueState) -> bool {
    state::all().any(|other| {
        !std::ptr::eq(other, queue)
            && other.windows_of.load(Acquire) as usize == agent + 1
            && other.life.load(Acquire) != Life::Gone
            && is_busy(other)
    })
}

fn is_busy(queue: &QueueState) -> bool {
    let range = queue.flights.range();
    let dispatches = (range.end - range.start).saturating_sub(queue.flights.barriers());
    dispatches > LOOK || range.rev().any(|at| runs(queue.flights.at(at)))
}

/// Returns whether a dispatch may still run. A dispatch with a signal of the application counts as
/// ended only when the worker thread has seen that: we cannot look here, since the signal may be
/// gone.
fn runs(flight: &Flight) -> bool {
    match flight.stage.load(Acquire) {
        Stage::UnderWay => {
            let facts = flight.facts();
            if facts.is_barrier {
                // It uses nothing, and may wait for the very dispatch that asks.
                return false;
            }
            // SAFETY: this is a signal of our pool. It is alive until the session is over, and the
            // end of the session waits for this thread.
            !facts.ours || unsafe { Signal(facts.signal).value() >= 1 }
        }
        Stage::Reading => !flight.facts().is_barrier,
        Stage::Seen | Stage::Untimed | Stage::Written => false,
    }
}

/// Waits while another queue of the agent has the turn. Called when a doorbell of this queue is
/// about to be rung, and its dispatches are entered as under way.
pub(crate) fn wait(queue: &QueueState) {
    let Some(agent) = (queue.windows_of.load(Relaxed) as usize).checked_sub(1) else {
        return;
    };
    let Some(known) = STATE.windows.agents.get(agent) else {
        return;
    };
    let began = now();
    let mut spins = 0;
    loop {
        let (word, time) = (known.turn.0.load(SeqCst), now());
        let is_others = queue_of(word) != queue.id.load(Relaxed) & 0xffff;
        if !is_on() || !is_others || !lasts(word, time) || time.wrapping_sub(began) >= LIMIT {
            return;
        }
        relax(&mut spins);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Counting;
    use super::*;
    use crate::queue::model::DISPATCH;
    use crate::queue::scan::Ring;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Release;
    use std::time::Instant;

    fn begin() -> Counting {
        let counting = Counting::begin();
        STATE.windows.exclusive.store(true, Release);
        counting
    }

    fn end(counting: Counting) {
        counting.end();
        assert!(!is_on(), "the session's end");
    }

    /// While another queue's dispatch runs, there is no window; when the dispatch has ended, there
    /// is one.
    #[test]
    fn a_window_is_opened_when_no_other_queue_runs_anything() {
        let mut counting = begin();
        let (one, other) = (counting.queue, counting.session.queue());
        counting.session.count();
        other.state.watches_room.store(1, Release);
        other.reserve(1);
        other.write(0, DISPATCH, 0);
        assert_eq!(other.ring(0), Ring::Value(0));
        let time = Instant::now();
        assert_eq!((one.reserve_one(), one.written()), (0, 1), "no window");
        assert!(
            u128::from(DRAIN) <= time.elapsed().as_nanos(),
            "it has waited"
        );
        assert_eq!(STATE.windows.not_alone.load(Relaxed), 1);
        one.write(0, DISPATCH, 0);
        assert_eq!(one.ring(0), Ring::Value(0));
        other.signal(0).fire(100, 140);
        assert_eq!((one.reserve_one(), one.written()), (2, 4), "a window");
        one.write(2, DISPATCH, 0);
        end(counting);
    }

    /// A launch on another queue waits while the window is open, and rings when the window was
    /// read.
    #[test]
    fn a_launch_on_another_queue_waits_until_the_window_was_read() {
        let mut counting = begin();
        let (one, other) = (counting.queue, counting.session.queue());
        counting.session.count();
        assert_eq!(one.reserve_one(), 1);
        one.write(1, DISPATCH, 0);
        assert_eq!(one.ring(1), Ring::Value(2));
        // Its own queue goes on.
        wait(one.state);
        // Let the turn last as long as this test takes, however slow the machine is.
        let word = &STATE.windows.agents[0].turn.0;
        let until =
            |turn: u64| turn & 0xffff_ffff | u64::from(micros(now() + 60_000_000_000)) << 32;
        word.store(until(word.load(SeqCst)), SeqCst);
        assert!(lasts(word.load(SeqCst), now()));
        let has_rung = AtomicBool::new(false);
        let time = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                wait(other.state);
                has_rung.store(true, SeqCst);
            });
            while !has_rung.load(SeqCst) {
                std::thread::yield_now();
            }
        });
        // No thread reads the window: the wait has its own limit.
        assert!(u128::from(LIMIT) <= time.elapsed().as_nanos());
        counting.count(1, 100, 150, 7);
        assert!(!lasts(word.load(SeqCst), now()), "it was read");
        counting.pass();
        assert_eq!(word.load(SeqCst), 0, "and may be used again");
        end(counting);
    }

    /// Only one queue holds the turn at a time, and it is given back when the thread has found no
    /// window.
    #[test]
    fn a_turn_is_held_by_one_queue() {
        let mut counting = begin();
        let (one, other) = (counting.queue, counting.session.queue());
        counting.session.count();
        let turn = Turn::take(0, one.state).unwrap();
        assert!(Turn::take(0, other.state).is_none());
        drop(turn);
        assert!(Turn::take(0, other.state).is_some());
        end(counting);
    }
}
