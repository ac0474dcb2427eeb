//! The thread that gives turns.
//!
//! It follows the signals of all gates with dispatches on their way: who has come to one waits in
//! line, who has the turn keeps it until it has ended. It sleeps while there is nothing on its way,
//! and takes short naps otherwise. It lives as long as the process: queues that wait for a turn need
//! it, whatever becomes of sessions.

use super::afterwards::{self, Gone};
use super::gate::{Ended, Gate};
use super::users::is_asked;
use crate::layout::Signal;
use crate::state::STATE;
use crate::symbols;
use midair_capi_build::quiet_thread;
use midair_sdk_hot::wrappers::original;
use std::collections::{HashMap, VecDeque};
use std::sync::PoisonError;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// Its name.
const NAME: &str = "midair-turns";
/// Bytes of its stack.
const STACK: usize = 256 << 10;
/// How often it looks without a nap where nothing has changed.
const LOOKS: u32 = 20;
/// The first nap. With the slack below, the latency of a turn.
const NAP: Duration = Duration::from_micros(15);
/// Naps grow to a sixteenth of the time in which nothing has happened, and no further than this: a
/// kernel of a minute is no reason to look 60,000 times a second.
const LONGEST_NAP: Duration = Duration::from_millis(1);
/// Nanoseconds by which its naps may be longer.
const SLACK: libc::c_ulong = 1000;

/// Whether the thread is there; makes it at first.
pub(super) fn is_there() -> bool {
    let mut made = STATE
        .alone
        .turns
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if !*made {
        *made = quiet_thread(NAME, STACK, serve).is_ok();
    }
    *made
}

/// Something is on its way, or has changed.
pub(super) fn wake() {
    let alone = &STATE.alone;
    if alone.sleeps.load(SeqCst) != 0 {
        alone.wanted.fetch_add(1, SeqCst);
        futex(libc::FUTEX_WAKE, 1);
    }
}

/// The application shuts its runtime down, maybe for good: nobody looks at signals meanwhile, nor
/// afterwards where they are gone.
pub fn while_shut_down<T>(act: impl FnOnce() -> T) -> T {
    if !is_asked() {
        return act();
    }
    let alone = &STATE.alone;
    let held = alone.looking.lock().unwrap_or_else(PoisonError::into_inner);
    let result = act();
    if !symbols::runtime_is_open() {
        for gate in alone.gates() {
            lose(gate);
        }
    }
    drop(held);
    wake();
    result
}

/// The session is over: gates give their signals back where nothing is on its way.
pub(super) fn park() {
    let held = STATE
        .alone
        .looking
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    for gate in STATE
        .alone
        .gates()
        .filter(|gate| !gate.is_gone.load(SeqCst))
    {
        if gate.open.load(SeqCst) == 0 {
            gate.park();
        }
    }
    drop(held);
}

fn futex(operation: libc::c_int, value: u32) {
    // SAFETY: a static word, which the call waits on or wakes; no time-out.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            STATE.alone.wanted.as_ptr(),
            operation | libc::FUTEX_PRIVATE_FLAG,
            value,
            std::ptr::null::<libc::timespec>(),
        )
    };
}

fn serve() {
    // SAFETY: a number for the calling thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, SLACK) };
    let alone = &STATE.alone;
    let mut turns = Turns::default();
    let mut looks = 0;
    let mut since = Instant::now();
    loop {
        let seen = alone.wanted.load(SeqCst);
        match turns.look() {
            Look::Changed => looks = 0,
            Look::Same if looks < LOOKS => {
                looks += 1;
                since = Instant::now();
                std::thread::yield_now();
            }
            // Signals that only the device changes: there is nothing to be woken by.
            Look::Same => std::thread::sleep((since.elapsed() / 16).clamp(NAP, LONGEST_NAP)),
            Look::Idle => {
                alone.sleeps.store(1, SeqCst);
                if turns.look() == Look::Idle {
                    futex(libc::FUTEX_WAIT, seen);
                }
                alone.sleeps.store(0, SeqCst);
                looks = 0;
            }
        }
    }
}

/// What one look at all gates came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// Nothing is on its way.
    Idle,
    /// Something is.
    Same,
    /// Somebody has come to a dispatch, or ended one, or was given the turn.
    Changed,
}

/// An agent's line.
#[derive(Debug, Default)]
struct Line {
    /// The gate that has the turn.
    holder: Option<u32>,
    /// Those that wait, the longest first.
    waiting: VecDeque<u32>,
}

/// How far a gate is.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    /// Dispatches that its queue has come to.
    reached: u64,
    /// Dispatches that have ended.
    done: u64,
    /// It is gone, and nothing of it is left.
    is_over: bool,
}

/// What the thread knows.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// By agent.
    lines: HashMap<u64, Line>,
    /// By number of the gate, from 1.
    progress: Vec<Progress>,
}

impl Turns {
    /// One look at all gates.
    pub(super) fn look(&mut self) -> Look {
        let _held = STATE
            .alone
            .looking
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut came_to = Look::Idle;
        for gate in STATE.alone.gates() {
            let index = gate.number as usize - 1;
            if self.progress.len() <= index {
                self.progress.resize(index + 1, Progress::default());
            }
            let Some(progress) = self.progress.get_mut(index) else {
                continue;
            };
            if progress.is_over {
                continue;
            }
            let line = self.lines.entry(gate.agent).or_default();
            if gate.is_gone.load(SeqCst) {
                leave(gate, line);
                progress.is_over = true;
                came_to = Look::Changed;
                continue;
            }
            if gate.open.load(SeqCst) == 0 {
                continue;
            }
            if came_to == Look::Idle {
                came_to = Look::Same;
            }
            match follow(gate, line, progress) {
                Ok(false) => {}
                Ok(true) => came_to = Look::Changed,
                Err(Gone) => lose(gate),
            }
        }
        for line in self.lines.values_mut().filter(|line| line.holder.is_none()) {
            if let Some(next) = line.waiting.pop_front()
                && let Some(gate) = STATE.alone.gate(next)
                && let Some(progress) = self.progress.get(next as usize - 1)
            {
                line.holder = Some(next);
                open(gate, progress.done);
                came_to = Look::Changed;
            }
        }
        came_to
    }
}

/// How often the device has counted a signal of a gate down from 0.
fn count(signal: Signal) -> Result<u64, Gone> {
    let value = if STATE.alone.is_over.load(SeqCst) {
        afterwards::value(signal)?
    } else {
        // SAFETY: a signal of a gate that is not gone; only this thread ends it.
        unsafe { signal.value() }
    };
    Ok(value.unsigned_abs())
}

/// Whether the gate's queue has come any further.
fn follow(gate: &Gate, line: &mut Line, progress: &mut Progress) -> Result<bool, Gone> {
    let mut has_changed = false;
    let (done, reached) = (count(gate.signals.done)?, count(gate.signals.reached)?);
    if done > progress.done {
        progress.done += 1;
        let pending = gate.pending().pop_front();
        let ended = if STATE.alone.is_over.load(SeqCst) {
            // Nobody asks for values, and the runtime, to which memory would go back, may be half gone.
            std::mem::forget(pending);
            None
        } else {
            pending.map(|pending| {
                let chosen = pending.chosen.as_ref();
                let words = chosen.map(|chosen| chosen.counters.words());
                let [begin, end] = times(gate.signals.started);
                let [read, read_end] = times(gate.signals.done);
                Ended {
                    pending,
                    words,
                    ticks: [begin, end, read, read_end],
                }
            })
        };
        STATE.alone.end(ended);
        gate.open.fetch_sub(1, SeqCst);
        if line.holder == Some(gate.number) {
            line.holder = None;
        }
        has_changed = true;
    }
    if reached > progress.reached {
        progress.reached += 1;
        line.waiting.push_back(gate.number);
        has_changed = true;
    }
    Ok(has_changed)
}

fn times(signal: Signal) -> [u64; 2] {
    // SAFETY: a signal of a gate, which is not destroyed.
    unsafe { [signal.start_ticks(), signal.end_ticks()] }
}

/// Lets a gate's next dispatch go: `turn` is its number on the queue.
fn open(gate: &Gate, turn: u64) {
    let [this, next] = [turn, turn + 1].map(|turn| gate.signals.open[(turn % 2) as usize]);
    // The one behind stays held: it waits for the other signal, which is closed before this one opens.
    if STATE.alone.is_over.load(SeqCst) {
        let opened = afterwards::set_value(next, 1).and_then(|()| afterwards::set_value(this, 0));
        if opened.is_err() {
            lose(gate);
        }
        return;
    }
    // SAFETY: signals of ours, alive; the runtime's own function.
    unsafe {
        original::hsa_signal_store_screlease(next.0, 1);
        original::hsa_signal_store_screlease(this.0, 0);
    }
}

/// The gate's signals are no more.
fn lose(gate: &Gate) {
    gate.is_lost.store(true, SeqCst);
    gate.is_gone.store(true, SeqCst);
    gate.is_parked.store(false, SeqCst);
}

/// The gate's queue is gone: nothing of it has a turn any more.
fn leave(gate: &Gate, line: &mut Line) {
    line.waiting.retain(|number| *number != gate.number);
    if line.holder == Some(gate.number) {
        line.holder = None;
    }
    let pending = std::mem::take(&mut *gate.pending());
    STATE.alone.end(pending.into_iter().map(|pending| Ended {
        pending,
        words: None,
        ticks: [0; 4],
    }));
    gate.open.store(0, SeqCst);
    if !gate.is_lost.load(SeqCst) && !STATE.alone.is_over.load(SeqCst) {
        gate.signals.destroy();
    }
}
