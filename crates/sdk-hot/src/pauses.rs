//! What is kept of pauses in a session, and how calls change it. What that means for a recording is
//! [`crate::pause`]'s.

use crate::clock::now;
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
pub(crate) struct Moment {
    /// The recording is paused.
    pub(crate) paused: bool,
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
    pub(crate) fn paused(self, counted: bool) -> Moment {
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
    pub(crate) fn resumed(self, counted: bool) -> Moment {
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
    pub(crate) shared: AtomicBool,
    /// One of the calls named a thread other than the main one.
    pub(crate) named_thread: AtomicBool,
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

    pub(crate) fn mode(&self) -> Mode {
        Mode::of_word(self.mode.load(Acquire))
    }

    pub(crate) fn moment(&self) -> Moment {
        Moment::of(self.moment.load(SeqCst))
    }

    pub(crate) fn begin(&self, mode: Mode) {
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
    pub(crate) fn change(&self, next: impl Fn(Moment, bool) -> Moment) -> bool {
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

    /// See [`crate::pause::is_recording_wanted`].
    #[inline]
    pub(crate) fn is_recording_wanted(&self) -> bool {
        !self.moment().paused
    }

    /// See [`crate::pause::is_written`].
    #[inline]
    pub(crate) fn is_written(&self, flags: u8) -> bool {
        flags & flag::PAUSED == 0 || self.is_shared()
    }

    /// Others than the session's own tool want what begins in a pause.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.load(Relaxed)
    }

    /// See [`crate::pause::left_out`].
    pub(crate) fn left_out(&self, record_kind: u8) {
        if let Some(at) = COUNTS.iter().position(|(known, _)| *known == record_kind)
            && let Some(count) = self.left_out.get(at)
        {
            count.fetch_add(1, Relaxed);
        }
    }

    /// In words, what the user must know at the end of a recording, and takes the counts.
    pub(crate) fn notes(&self) -> Vec<String> {
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
