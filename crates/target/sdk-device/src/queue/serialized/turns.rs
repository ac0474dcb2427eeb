//! The thread that gives turns.
//!
//! The thread watches the signals of all gates that have dispatches on their way. A queue that has
//! reached a dispatch waits in line, and a queue that has the turn keeps it until its dispatch has
//! ended. The thread sleeps on a futex while nothing is on its way, and otherwise polls with short
//! sleeps ("naps"). It lives as long as the process: queues that wait for a turn need it even after
//! a session has ended.

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

/// The name of the thread.
const NAME: &str = "midair-turns";
/// The size of its stack in bytes.
const STACK: usize = 256 << 10;
/// How often it looks without a nap in between while nothing has changed.
const LOOKS: u32 = 20;
/// The shortest nap. Together with the slack below, it is the latency of a turn.
const NAP: Duration = Duration::from_micros(15);
/// The longest nap. A nap is a sixteenth of the time in which nothing has happened, within these
/// limits: during a kernel of a minute there is no need to look 60,000 times a second.
const LONGEST_NAP: Duration = Duration::from_millis(1);
/// How many nanoseconds longer than asked its naps may be.
const SLACK: libc::c_ulong = 1000;

/// Returns whether the thread runs; the first call starts it.
pub(super) fn is_there() -> bool {
    let mut made = STATE
        .serialized
        .turns
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if !*made {
        *made = quiet_thread(NAME, STACK, serve).is_ok();
    }
    *made
}

/// Wakes the thread, since a dispatch is on its way or a gate has changed.
pub(super) fn wake() {
    let serialized = &STATE.serialized;
    if serialized.sleeps.load(SeqCst) != 0 {
        serialized.wanted.fetch_add(1, SeqCst);
        futex(libc::FUTEX_WAKE, 1);
    }
}

/// Runs `act`, in which the application shuts its runtime down, possibly for good. The thread does
/// not look at signals during that time, nor afterwards if the signals are gone.
pub fn while_shut_down<T>(act: impl FnOnce() -> T) -> T {
    if !is_asked() {
        return act();
    }
    let serialized = &STATE.serialized;
    let held = serialized
        .looking
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let result = act();
    if !symbols::runtime_is_open() {
        for gate in serialized.gates() {
            lose(gate);
        }
    }
    drop(held);
    wake();
    result
}

/// Gives the signals of all gates without dispatches on their way back, at the end of a session.
pub(super) fn park() {
    let held = STATE
        .serialized
        .looking
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    for gate in STATE
        .serialized
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
    // SAFETY: the futex is a static word, and a null time-out is allowed.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            STATE.serialized.wanted.as_ptr(),
            operation | libc::FUTEX_PRIVATE_FLAG,
            value,
            std::ptr::null::<libc::timespec>(),
        )
    };
}

fn serve() {
    // SAFETY: the call takes a number, and affects only the calling thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, SLACK) };
    let serialized = &STATE.serialized;
    let mut turns = Turns::default();
    let mut looks = 0;
    let mut since = Instant::now();
    loop {
        let seen = serialized.wanted.load(SeqCst);
        match turns.look() {
            Look::Changed => looks = 0,
            Look::Same if looks < LOOKS => {
                looks += 1;
                since = Instant::now();
                std::thread::yield_now();
            }
            // Only the device changes these signals, and they wake no thread, so poll them.
            Look::Same => std::thread::sleep((since.elapsed() / 16).clamp(NAP, LONGEST_NAP)),
            Look::Idle => {
                serialized.sleeps.store(1, SeqCst);
                if turns.look() == Look::Idle {
                    futex(libc::FUTEX_WAIT, seen);
                }
                serialized.sleeps.store(0, SeqCst);
                looks = 0;
            }
        }
    }
}

/// The result of one look at all gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// No dispatch is on its way.
    Idle,
    /// A dispatch is on its way, but nothing has changed.
    Same,
    /// A queue has reached a dispatch, has ended one, was given the turn, or is gone.
    Changed,
}

/// The line of queues that wait for their turn on an agent.
#[derive(Debug, Default)]
struct Line {
    /// The gate that has the turn.
    holder: Option<u32>,
    /// The gates that wait, the longest-waiting first.
    waiting: VecDeque<u32>,
}

/// How far the queue of a gate has come.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    /// The number of dispatches that its queue has reached.
    reached: u64,
    /// The number of its dispatches that have ended.
    done: u64,
    /// Whether the gate is gone, and nothing is left to do for it.
    is_over: bool,
}

/// What the thread knows about lines and gates.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The lines by agent.
    lines: HashMap<u64, Line>,
    /// The progress by number of the gate, from 1.
    progress: Vec<Progress>,
}

impl Turns {
    /// Returns how many dispatches of a gate were seen to end.
    #[cfg(test)]
    pub(super) fn done(&self, gate: &Gate) -> u64 {
        self.progress
            .get(gate.number as usize - 1)
            .map_or(0, |progress| progress.done)
    }

    /// Looks at all gates once.
    pub(super) fn look(&mut self) -> Look {
        let _held = STATE
            .serialized
            .looking
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut came_to = Look::Idle;
        for gate in STATE.serialized.gates() {
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
                // What the device has read before the queue was destroyed has its values.
                while has_signals(gate) && follow(gate, line, progress) == Ok(true) {}
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
                && let Some(gate) = STATE.serialized.gate(next)
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

/// Returns how often the device has decremented a signal of a gate from 0.
fn count(signal: Signal) -> Result<u64, Gone> {
    let value = if STATE.serialized.is_over.load(SeqCst) {
        afterwards::value(signal)?
    } else {
        // SAFETY: the gate is not gone, so its signals exist: they are destroyed only under the
        // lock that this thread holds.
        unsafe { signal.value() }
    };
    Ok(value.unsigned_abs())
}

/// Updates the progress of a gate. Returns whether its queue has advanced.
fn follow(gate: &Gate, line: &mut Line, progress: &mut Progress) -> Result<bool, Gone> {
    let mut has_changed = false;
    let (done, reached) = (count(gate.signals.done)?, count(gate.signals.reached)?);
    if done > progress.done {
        progress.done += 1;
        let pending = gate.pending().pop_front();
        let ended = if STATE.serialized.is_over.load(SeqCst) {
            // Nothing asks for the values any more, and the runtime, to which the memory would be
            // given back, may be partly shut down.
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
        STATE.serialized.end(ended);
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
    // SAFETY: the signal belongs to a gate whose signals are not destroyed.
    unsafe { [signal.start_ticks(), signal.end_ticks()] }
}

/// Lets a gate's next dispatch go. `turn` is the number of this dispatch on the queue.
fn open(gate: &Gate, turn: u64) {
    let [this, next] = [turn, turn + 1].map(|turn| gate.signals.open[(turn % 2) as usize]);
    // The dispatch behind it stays held: it waits on the other signal, which is closed before this
    // one is opened.
    if STATE.serialized.is_over.load(SeqCst) {
        let opened = afterwards::set_value(next, 1).and_then(|()| afterwards::set_value(this, 0));
        if opened.is_err() {
            lose(gate);
        }
        return;
    }
    // SAFETY: the signals are ours and alive, and this is the runtime's own function.
    unsafe {
        original::hsa_signal_store_screlease(next.0, 1);
        original::hsa_signal_store_screlease(this.0, 0);
    }
}

/// Marks the gate as gone, since its signals no longer exist.
fn lose(gate: &Gate) {
    gate.is_lost.store(true, SeqCst);
    gate.is_gone.store(true, SeqCst);
    gate.is_parked.store(false, SeqCst);
}

/// Returns whether a gate has dispatches on their way, and signals that tell of them.
fn has_signals(gate: &Gate) -> bool {
    !gate.is_lost.load(SeqCst) && gate.open.load(SeqCst) != 0
}

/// Removes a gate from its line, since its queue is gone and gets no turn any more.
fn leave(gate: &Gate, line: &mut Line) {
    line.waiting.retain(|number| *number != gate.number);
    if line.holder == Some(gate.number) {
        line.holder = None;
    }
    let pending = std::mem::take(&mut *gate.pending());
    STATE
        .serialized
        .end(pending.into_iter().map(|pending| Ended {
            pending,
            words: None,
            ticks: [0; 4],
        }));
    gate.open.store(0, SeqCst);
    if !gate.is_lost.load(SeqCst) && !STATE.serialized.is_over.load(SeqCst) {
        gate.signals.destroy();
    }
}
