//! `roctxProfilerPause` and `roctxProfilerResume`, where the session's own tool honours them.
//!
//! **[`is_recording_wanted`] is the one place that says whether a recording is paused.**
//!
//! A pause holds from the beginning of the call, a resume from its return, and both hold for all
//! threads, whichever thread they name (source: `docs/sources.md#rocprofv3`). What began in a pause
//! is left out, whenever it ends; what began outside is recorded, also where it ends in a pause. So
//! the decision is made once, at the beginning, and is carried as [`flag::PAUSED`].
//!
//! Hooks stay, queues are followed so that their counts add up, and so are the ranges of a thread,
//! so that each end finds its beginning.
//!
//! Other tools of the process are not concerned: they get their records and callbacks as always
//! (`roctxProfilerPause` is for them to interpret). While there are such, everything is written with
//! its flag, and left out on the way to the attacher; otherwise it is not written at all.

use crate::clock::now;
use crate::probe;
use crate::state::STATE;
use midair_record::event::{flag, kind};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// How a session takes the two calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mode {
    /// They are honoured at all.
    pub honoured: bool,
    /// The recording begins paused.
    pub selected: bool,
    /// Nested pairs are counted.
    pub counted: bool,
}

impl Mode {
    /// As a word: [`midair_abi::private::pauses`].
    pub fn of_word(word: u32) -> Mode {
        use midair_abi::private::pauses::{COUNTED, HONOURED, SELECTED};
        Mode {
            honoured: word & HONOURED != 0,
            selected: word & SELECTED != 0,
            counted: word & COUNTED != 0,
        }
    }

    fn word(self) -> u32 {
        use midair_abi::private::pauses::{COUNTED, HONOURED, SELECTED};
        let bit = |on: bool, bit: u32| if on { bit } else { 0 };
        bit(self.honoured, HONOURED) | bit(self.selected, SELECTED) | bit(self.counted, COUNTED)
    }
}

/// What decides, in one word, so that calls of several threads cannot tear it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Moment {
    /// The recording is paused.
    paused: bool,
    /// There was a call of either.
    called: bool,
    /// Resumes less pauses, where they are counted.
    count: i32,
}

impl Moment {
    fn of(word: u64) -> Moment {
        Moment {
            paused: word & 1 != 0,
            called: word & 2 != 0,
            count: (word >> 32) as u32 as i32,
        }
    }

    fn word(self) -> u64 {
        u64::from(self.paused) | u64::from(self.called) << 1 | u64::from(self.count as u32) << 32
    }

    /// A pause begins. The first call of all is never counted: programs pause what began by itself.
    fn paused(self, counted: bool) -> Moment {
        let count = if counted && self.called {
            self.count.saturating_sub(1)
        } else {
            self.count
        };
        Moment {
            paused: self.paused || !counted || !self.called || count == 0,
            called: true,
            count,
        }
    }

    /// A resume returns.
    fn resumed(self, counted: bool) -> Moment {
        Moment {
            paused: self.paused && counted && self.count != 0,
            called: true,
            count: if counted {
                self.count.saturating_add(1)
            } else {
                0
            },
        }
    }
}

/// Kinds of work of which those that were left out are counted, and their names.
const COUNTS: [(u8, &str); 4] = [
    (kind::KERNEL_DISPATCH, "dispatches"),
    (kind::MEMORY_COPY, "copies"),
    (kind::MEMORY_ALLOCATION, "allocations and releases"),
    (kind::SCRATCH_MEMORY, "changes of scratch memory"),
];

/// What is kept of the two calls in a session.
#[derive(Debug)]
pub(crate) struct Pause {
    /// [`Mode::word`].
    mode: AtomicU32,
    /// [`Moment::word`].
    moment: AtomicU64,
    /// Others want what begins in a pause.
    shared: AtomicBool,
    /// One of the calls named a thread other than the main one.
    named_thread: AtomicBool,
    /// Pauses that took effect, that at the beginning not counted.
    pauses: AtomicU64,
    /// When the last one did; 0: it ended.
    since: AtomicU64,
    /// How long those took that have ended, in ns.
    total: AtomicU64,
    /// What was left out, as [`COUNTS`].
    left_out: [AtomicU64; COUNTS.len()],
}

impl Pause {
    pub(crate) const fn new() -> Pause {
        Pause {
            mode: AtomicU32::new(0),
            moment: AtomicU64::new(0),
            shared: AtomicBool::new(false),
            named_thread: AtomicBool::new(false),
            pauses: AtomicU64::new(0),
            since: AtomicU64::new(0),
            total: AtomicU64::new(0),
            left_out: [const { AtomicU64::new(0) }; COUNTS.len()],
        }
    }

    fn mode(&self) -> Mode {
        Mode::of_word(self.mode.load(Acquire))
    }

    fn moment(&self) -> Moment {
        Moment::of(self.moment.load(SeqCst))
    }

    fn begin(&self, mode: Mode) {
        let moment = Moment {
            paused: mode.honoured && mode.selected,
            ..Moment::default()
        };
        for count in [&self.pauses, &self.total]
            .into_iter()
            .chain(&self.left_out)
        {
            count.store(0, Relaxed);
        }
        self.named_thread.store(false, Relaxed);
        let since = if moment.paused { now() } else { 0 };
        self.since.store(since, Relaxed);
        self.moment.store(moment.word(), SeqCst);
        self.mode.store(mode.word(), SeqCst);
    }

    /// Whether this changes what is recorded.
    fn change(&self, next: impl Fn(Moment, bool) -> Moment) -> bool {
        let mode = self.mode();
        if !mode.honoured {
            return false;
        }
        let step = |word| Some(next(Moment::of(word), mode.counted).word());
        let Ok(before) = self.moment.fetch_update(AcqRel, Acquire, step) else {
            return false;
        };
        let (before, after) = (
            Moment::of(before).paused,
            next(Moment::of(before), mode.counted).paused,
        );
        match (before, after) {
            (false, true) => {
                self.pauses.fetch_add(1, Relaxed);
                self.since.store(now(), Relaxed);
            }
            (true, false) => {
                let took = now().saturating_sub(self.since.swap(0, Relaxed));
                self.total.fetch_add(took, Relaxed);
            }
            _ => {}
        }
        before != after
    }

    /// In words, what the user must know at the end of a recording, and takes the counts.
    fn notes(&self) -> Vec<String> {
        let (mode, moment) = (self.mode(), self.moment());
        let mut notes = Vec::new();
        if !mode.honoured || !(moment.called || mode.selected) {
            return notes;
        }
        let open = match self.since.load(Relaxed) {
            0 => 0,
            since => now().saturating_sub(since),
        };
        let seconds = (self.total.swap(0, Relaxed) + open) as f64 / 1e9;
        let pauses = self.pauses.swap(0, Relaxed);
        let left_out: Vec<String> = COUNTS
            .iter()
            .zip(&self.left_out)
            .map(|((_, name), count)| (count.swap(0, Relaxed), *name))
            .filter(|(count, _)| *count > 0)
            .map(|(count, name)| format!("{count} {name}"))
            .collect();
        let from_the_start = if mode.selected {
            ", and from the start, as was asked for"
        } else {
            ""
        };
        let what = if left_out.is_empty() {
            "no dispatches and copies".to_owned()
        } else {
            left_out.join(", ")
        };
        notes.push(format!(
            "the program paused the recording {pauses} times{from_the_start}, for {seconds:.3} s in all (roctxProfilerPause): {what} that began then are left out, and calls and markers"
        ));
        if mode.selected && !moment.called {
            notes.push(
                "nothing was selected: the program did not call roctxProfilerResume".to_owned(),
            );
        } else if moment.paused {
            notes.push("the recording was paused when it ended".to_owned());
        }
        if moment.count < 0 {
            notes.push(format!(
                "roctxProfilerPause was called {} times more than roctxProfilerResume: resumes without effect are the consequence",
                -i64::from(moment.count)
            ));
        }
        if self.named_thread.swap(false, Relaxed) {
            notes.push(
                "a pause or resume named one thread: it was taken for all threads, as rocprofv3 does"
                    .to_owned(),
            );
        }
        notes
    }
}

/// Whether what begins now is to be recorded, of whatever kind. Any thread may ask.
#[inline]
pub fn is_recording_wanted() -> bool {
    !STATE.pause.moment().paused
}

/// The bits of [`flag`] for work that begins now and that no thread of the application launches.
pub fn flags_now() -> u8 {
    if is_recording_wanted() {
        0
    } else {
        flag::PAUSED
    }
}

/// Whether something with these flags is written into records at all.
#[inline]
pub fn is_written(flags: u8) -> bool {
    flags & flag::PAUSED == 0 || is_shared()
}

/// Others than the session's own tool want what begins in a pause.
#[inline]
pub(crate) fn is_shared() -> bool {
    STATE.pause.shared.load(Relaxed)
}

/// A session takes the calls so from now on; what was counted is forgotten. On the worker thread.
pub fn begin(mode: Mode) {
    STATE.pause.begin(mode);
    probe::apply_pause();
}

/// Whether the collecting that is about to begin serves others as well. On the worker thread, while
/// nothing is recorded.
pub fn set_shared(shared: bool) {
    STATE.pause.shared.store(shared, SeqCst);
}

/// Whether the session honours the calls.
pub fn is_honoured() -> bool {
    STATE.pause.mode().honoured
}

/// Whether the session's recording began paused, for regions to be selected.
pub fn is_selected() -> bool {
    let mode = STATE.pause.mode();
    mode.honoured && mode.selected
}

/// Something of this kind began in a pause and is left out.
pub fn left_out(record_kind: u8) {
    if let Some(at) = COUNTS.iter().position(|(known, _)| *known == record_kind)
        && let Some(count) = STATE.pause.left_out.get(at)
    {
        count.fetch_add(1, Relaxed);
    }
}

/// What the user must know at the end of a recording.
pub fn notes() -> Vec<String> {
    STATE.pause.notes()
}

/// `roctxProfilerPause`.
const PAUSE: u32 = 0;
/// `roctxProfilerResume`.
const RESUME: u32 = 1;

/// Before a call of the control table that names this thread (0: all).
#[inline(never)]
pub(crate) fn before(operation: u32, thread: u64) {
    if !is_honoured() {
        return;
    }
    // SAFETY: takes nothing, cannot fail.
    if thread != 0 && thread != unsafe { libc::getpid() } as u64 {
        STATE.pause.named_thread.store(true, Relaxed);
    }
    if operation == PAUSE && STATE.pause.change(Moment::paused) {
        probe::apply_pause();
    }
}

/// After such a call.
#[inline(never)]
pub(crate) fn after(operation: u32) {
    if operation == RESUME && STATE.pause.change(Moment::resumed) {
        probe::apply_pause();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What calls do: `p`, `r`; `+` recorded, `-` not, `!` changed.
    fn with(mode: Mode, calls: &str) -> String {
        let pause = Pause::new();
        pause.begin(mode);
        let mut text = String::from(if pause.moment().paused { "off " } else { "on " });
        for call in calls.chars() {
            let changed = match call {
                'p' => pause.change(Moment::paused),
                _ => pause.change(Moment::resumed),
            };
            text.push(if pause.moment().paused { '-' } else { '+' });
            if changed {
                text.push('!');
            }
        }
        text
    }

    const PLAIN: Mode = Mode {
        honoured: true,
        selected: false,
        counted: false,
    };

    #[test]
    fn pairs_are_honoured_as_amds_tool_does() {
        assert_eq!(with(PLAIN, "prrp"), "on -!+!+-!");
        assert_eq!(with(PLAIN, "pprp"), "on -!-+!-!");
        assert_eq!(with(Mode::default(), "prp"), "on +++");
        let selected = Mode {
            selected: true,
            ..PLAIN
        };
        // A program pauses first, to record only between a resume and the next pause.
        assert_eq!(with(selected, "prprrpp"), "off -+!-!+!+-!-");
    }

    #[test]
    fn nested_pairs_are_counted_where_that_is_asked_for() {
        let counted = Mode {
            selected: true,
            counted: true,
            ..PLAIN
        };
        // The first pause does not count; inner pairs change nothing.
        assert_eq!(with(counted, "prrppr"), "off -+!++-!+!");
        // Without that first pause.
        assert_eq!(with(counted, "rrpp"), "off +!++-!");
        // Pauses without a resume: the count has to come up again.
        assert_eq!(with(counted, "pprrp"), "off ---+!-!");
        // Counted without a beginning in a pause: the first pause takes effect, whatever the count.
        let counted = Mode {
            counted: true,
            ..PLAIN
        };
        assert_eq!(with(counted, "prrppr"), "on -!+!++-!+!");
    }

    #[test]
    fn calls_of_several_threads_leave_what_their_count_says() {
        let pause = Pause::new();
        pause.begin(Mode {
            selected: true,
            counted: true,
            ..PLAIN
        });
        pause.change(Moment::paused);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        pause.change(Moment::resumed);
                        pause.change(Moment::paused);
                    }
                });
            }
        });
        assert_eq!(
            pause.moment(),
            Moment {
                paused: true,
                called: true,
                count: 0
            }
        );
    }

    #[test]
    fn what_was_left_out_is_said_once() {
        let pause = Pause::new();
        pause.begin(PLAIN);
        assert!(pause.notes().is_empty());
        pause.change(Moment::paused);
        pause.left_out[0].store(7, Relaxed);
        let notes = pause.notes();
        assert!(notes[0].contains("paused the recording 1 times, for 0.00"));
        assert!(notes[0].contains(": 7 dispatches that began then are left out"));
        assert_eq!(notes[1], "the recording was paused when it ended");
        assert!(pause.notes()[0].contains("no dispatches and copies"));
        pause.begin(Mode {
            selected: true,
            ..PLAIN
        });
        assert!(pause.notes()[1].contains("did not call roctxProfilerResume"));
    }
}
