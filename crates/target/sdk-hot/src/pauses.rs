//! The state of pauses in a session, and how calls change it. [`crate::pause`] decides what this
//! means for a recording.

use crate::clock::now;
use midair_record::event::{flag, kind};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// How a session reacts to the two calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mode {
    /// Whether it reacts to them at all.
    pub honoured: bool,
    /// Whether the recording starts paused.
    pub selected: bool,
    /// Whether nested pairs are counted.
    pub counted: bool,
    /// Whether only what starts in a collection period is recorded.
    pub periods: bool,
    /// Whether only what starts in a burst is recorded ([`crate::pause::set_period`] starts and ends
    /// them).
    pub bursts: bool,
}

impl Mode {
    /// Creates it from a word: [`midair_abi::private::pauses`].
    pub fn of_word(word: u32) -> Mode {
        use midair_abi::private::pauses::{BURSTS, COUNTED, HONOURED, PERIODS, SELECTED};
        Mode {
            honoured: word & HONOURED != 0,
            selected: word & SELECTED != 0,
            counted: word & COUNTED != 0,
            periods: word & PERIODS != 0,
            bursts: word & BURSTS != 0,
        }
    }

    /// Whether something of midair's starts and ends the recording, again and again.
    fn is_switched(self) -> bool {
        self.periods || self.bursts
    }

    fn word(self) -> u32 {
        use midair_abi::private::pauses::{BURSTS, COUNTED, HONOURED, PERIODS, SELECTED};
        let bit = |on: bool, bit: u32| if on { bit } else { 0 };
        bit(self.honoured, HONOURED)
            | bit(self.selected, SELECTED)
            | bit(self.counted, COUNTED)
            | bit(self.periods, PERIODS)
            | bit(self.bursts, BURSTS)
    }
}

/// The values that decide, in one word, so that calls of several threads cannot tear it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Moment {
    /// Whether the program has paused the recording.
    pub(crate) paused: bool,
    /// Whether the session has collection periods or bursts and none of them is on.
    closed: bool,
    /// Whether either function was called.
    called: bool,
    /// The number of resumes minus the number of pauses, where they are counted.
    count: i32,
}

impl Moment {
    fn of(word: u64) -> Moment {
        Moment {
            paused: word & 1 != 0,
            called: word & 2 != 0,
            closed: word & 4 != 0,
            count: (word >> 32) as u32 as i32,
        }
    }

    fn word(self) -> u64 {
        u64::from(self.paused)
            | u64::from(self.called) << 1
            | u64::from(self.closed) << 2
            | u64::from(self.count as u32) << 32
    }

    /// Whether what starts now is recorded.
    fn is_recording(self) -> bool {
        !self.paused && !self.closed
    }

    /// Returns the state after a pause starts. The very first call is never counted, since programs
    /// pause a recording that started by itself.
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
            ..self
        }
    }

    /// Returns the state after a resume returns.
    pub(crate) fn resumed(self, counted: bool) -> Moment {
        Moment {
            paused: self.paused && counted && self.count != 0,
            called: true,
            count: if counted {
                self.count.saturating_add(1)
            } else {
                0
            },
            ..self
        }
    }
}

/// The kinds of work for which we count what is left out, and their names.
const COUNTS: [(u8, &str); 4] = [
    (kind::KERNEL_DISPATCH, "dispatches"),
    (kind::MEMORY_COPY, "copies"),
    (kind::MEMORY_ALLOCATION, "allocations and releases"),
    (kind::SCRATCH_MEMORY, "changes of scratch memory"),
];

/// The state of the two calls in a session.
#[derive(Debug)]
pub(crate) struct Pause {
    /// [`Mode::word`].
    mode: AtomicU32,
    /// [`Moment::word`].
    moment: AtomicU64,
    /// Whether others want what starts during a pause.
    pub(crate) shared: AtomicBool,
    /// Whether one of the calls named a thread other than the main one.
    pub(crate) named_thread: AtomicBool,
    /// The number of pauses that took effect, without the one at the start.
    pauses: AtomicU64,
    /// When the last pause took effect; 0: it has ended.
    since: AtomicU64,
    /// How long the ended pauses took together, in ns.
    total: AtomicU64,
    /// The number of collection periods or bursts that started.
    periods: AtomicU64,
    /// When the current period started; 0: none is on.
    open_since: AtomicU64,
    /// How long the ended periods took together, in ns.
    open_total: AtomicU64,
    /// The moments at which the recording went on, minus those at which it went off, in ns. Such a
    /// sum does not depend on the order in which threads add to it.
    off: AtomicU64,
    /// How much was left out, in the order of [`COUNTS`].
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
            periods: AtomicU64::new(0),
            open_since: AtomicU64::new(0),
            open_total: AtomicU64::new(0),
            off: AtomicU64::new(0),
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
            closed: mode.is_switched(),
            ..Moment::default()
        };
        let of_periods = [&self.periods, &self.open_since, &self.open_total];
        for count in [&self.pauses, &self.total]
            .into_iter()
            .chain(of_periods)
            .chain(&self.left_out)
        {
            count.store(0, Relaxed);
        }
        self.named_thread.store(false, Relaxed);
        let since = if moment.paused { now() } else { 0 };
        self.since.store(since, Relaxed);
        self.off.store(0, Relaxed);
        self.switch(Moment::default(), moment);
        self.moment.store(moment.word(), SeqCst);
        self.mode.store(mode.word(), SeqCst);
    }

    /// Applies a call. Returns whether this changes what is recorded.
    pub(crate) fn change(&self, next: impl Fn(Moment, bool) -> Moment) -> bool {
        let mode = self.mode();
        if !mode.honoured {
            return false;
        }
        let step = |word| Some(next(Moment::of(word), mode.counted).word());
        let Ok(before) = self.moment.fetch_update(AcqRel, Acquire, step) else {
            return false;
        };
        let before = Moment::of(before);
        let after = next(before, mode.counted);
        self.switch(before, after);
        match (before.paused, after.paused) {
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
        before.paused != after.paused
    }

    /// Adds the present to the sum of switches, if the recording goes on or off.
    fn switch(&self, before: Moment, after: Moment) {
        match (before.is_recording(), after.is_recording()) {
            (true, false) => self.off.fetch_sub(now(), Relaxed),
            (false, true) => self.off.fetch_add(now(), Relaxed),
            _ => return,
        };
    }

    /// See [`crate::pause::off_time`].
    pub(crate) fn off_time(&self) -> u64 {
        let is_on = self.is_recording_wanted();
        let sum = self.off.load(Relaxed);
        let time = if is_on { sum } else { sum.wrapping_add(now()) };
        // A thread may be between its two steps now.
        if time > i64::MAX as u64 { 0 } else { time }
    }

    /// Starts or ends a collection period or a burst. Returns whether this changes what is recorded.
    pub(crate) fn set_period(&self, open: bool) -> bool {
        if !self.mode().is_switched() {
            return false;
        }
        let step = |word| {
            let moment = Moment::of(word);
            (moment.closed == open).then(|| {
                Moment {
                    closed: !open,
                    ..moment
                }
                .word()
            })
        };
        let Ok(before) = self.moment.fetch_update(AcqRel, Acquire, step) else {
            return false;
        };
        let before = Moment::of(before);
        self.switch(
            before,
            Moment {
                closed: !open,
                ..before
            },
        );
        if open {
            self.periods.fetch_add(1, Relaxed);
            self.open_since.store(now(), Relaxed);
        } else {
            let took = now().saturating_sub(self.open_since.swap(0, Relaxed));
            self.open_total.fetch_add(took, Relaxed);
        }
        true
    }

    /// See [`crate::pause::is_recording_wanted`].
    #[inline]
    pub(crate) fn is_recording_wanted(&self) -> bool {
        self.moment().is_recording()
    }

    /// See [`crate::pause::is_written`].
    #[inline]
    pub(crate) fn is_written(&self, flags: u8) -> bool {
        flags & flag::PAUSED == 0 || self.is_shared()
    }

    /// Whether others than the session's own tool want what starts during a pause.
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

    /// Returns notes for the user at the end of a recording, and resets the counts.
    pub(crate) fn notes(&self) -> Vec<String> {
        let (mode, moment) = (self.mode(), self.moment());
        let mut notes = Vec::new();
        let has_pauses = mode.honoured && (moment.called || mode.selected);
        if !has_pauses && !mode.is_switched() {
            return notes;
        }
        let left_out: Vec<String> = COUNTS
            .iter()
            .zip(&self.left_out)
            .map(|((_, name), count)| (count.swap(0, Relaxed), *name))
            .filter(|(count, _)| *count > 0)
            .map(|(count, name)| format!("{count} {name}"))
            .collect();
        let what = if left_out.is_empty() {
            "no dispatches and copies".to_owned()
        } else {
            left_out.join(", ")
        };
        if mode.is_switched() {
            let seconds = seconds_of(&self.open_total, &self.open_since);
            let periods = self.periods.swap(0, Relaxed);
            let (name, option) = match mode.bursts {
                true => ("bursts", "--max-overhead"),
                false => ("periods", "--collection-period"),
            };
            notes.push(format!(
                "recorded in {periods} {name}, {seconds:.3} s in total ({option}): {what} that started outside them are excluded, and calls and markers"
            ));
        }
        if !has_pauses {
            return notes;
        }
        let seconds = seconds_of(&self.total, &self.since);
        let pauses = self.pauses.swap(0, Relaxed);
        let what = if mode.is_switched() {
            "the numbers above include".to_owned()
        } else {
            format!("{what} that started then")
        };
        let from_the_start = if mode.selected {
            ", and from the start, as requested"
        } else {
            ""
        };
        let rest = if mode.is_switched() {
            "these pauses"
        } else {
            "are excluded, and calls and markers"
        };
        notes.push(format!(
            "the program paused recording {pauses} times{from_the_start}, for {seconds:.3} s in total (roctxProfilerPause): {what} {rest}"
        ));
        if mode.selected && !moment.called {
            notes.push(
                "no region was selected: the program did not call roctxProfilerResume".to_owned(),
            );
        } else if moment.paused {
            notes.push("the recording was paused when it ended".to_owned());
        }
        if moment.count < 0 {
            notes.push(format!(
                "roctxProfilerPause was called {} times more than roctxProfilerResume: some resumes had no effect",
                -i64::from(moment.count)
            ));
        }
        if self.named_thread.swap(false, Relaxed) {
            notes.push(
                "a pause or resume named one thread: midair applies it to all threads, as rocprofv3 does"
                    .to_owned(),
            );
        }
        notes
    }
}

/// Returns a time in seconds: the sum so far, which is reset, and what has passed since a moment,
/// if there is one.
fn seconds_of(total: &AtomicU64, since: &AtomicU64) -> f64 {
    let open = match since.load(Relaxed) {
        0 => 0,
        since => now().saturating_sub(since),
    };
    (total.swap(0, Relaxed) + open) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what calls do: `p`, `r`; `+` recorded, `-` not recorded, `!` changed.
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
        periods: false,
        bursts: false,
    };

    #[test]
    fn only_what_begins_in_a_period_is_recorded() {
        let pause = Pause::new();
        pause.begin(PLAIN);
        // A session without periods.
        assert!(!pause.set_period(false) && pause.is_recording_wanted());
        pause.begin(Mode {
            bursts: true,
            ..Mode::default()
        });
        assert!(!pause.is_recording_wanted());
        assert!(pause.set_period(true) && pause.is_recording_wanted());
        assert!(
            pause.notes()[0].contains("in 1 bursts, 0.00"),
            "and the option"
        );
        pause.begin(Mode {
            periods: true,
            ..PLAIN
        });
        assert!(!pause.is_recording_wanted());
        assert!(!pause.set_period(false), "it begins outside of a period");
        assert!(pause.set_period(true) && !pause.set_period(true));
        assert!(pause.is_recording_wanted());
        // The program's pause holds in a period, and a period does not end it.
        pause.change(Moment::paused);
        assert!(!pause.is_recording_wanted());
        assert!(pause.set_period(false) && pause.set_period(true));
        assert!(!pause.is_recording_wanted());
        pause.change(Moment::resumed);
        assert!(pause.is_recording_wanted());
        assert!(pause.set_period(false));
        pause.left_out(kind::KERNEL_DISPATCH);
        let notes = pause.notes();
        assert!(
            notes[0].starts_with("recorded in 2 periods, 0.00"),
            "{notes:?}"
        );
        assert!(
            notes[0].contains(": 1 dispatches that started outside"),
            "{notes:?}"
        );
        assert!(
            notes[1].contains("the numbers above include these pauses"),
            "{notes:?}"
        );
    }

    /// The time off consists of pauses and of what is outside of periods, each instant once.
    #[test]
    fn the_time_off_is_what_neither_a_pause_nor_a_period_leaves() {
        let pause = Pause::new();
        pause.begin(PLAIN);
        assert_eq!(pause.off_time(), 0);
        pause.begin(Mode {
            periods: true,
            ..PLAIN
        });
        let wait = || {
            let until = now() + 1_000_000;
            while now() < until {
                std::hint::spin_loop();
            }
        };
        let off = |act: &dyn Fn()| {
            let before = pause.off_time();
            act();
            pause.off_time() - before
        };
        assert!(off(&wait) >= 1_000_000, "no period has begun");
        pause.set_period(true);
        assert_eq!(off(&wait), 0);
        pause.change(Moment::paused);
        let began = now();
        let both = off(&|| {
            wait();
            pause.set_period(false);
            wait();
            pause.change(Moment::resumed);
            wait();
        });
        let took = now() - began;
        assert!((3_000_000..=took).contains(&both), "{both} of {took}");
        pause.set_period(true);
        assert_eq!(off(&wait), 0);
        pause.begin(PLAIN);
        assert_eq!(pause.off_time(), 0);
    }

    #[test]
    fn pairs_are_honoured_as_amds_tool_does() {
        assert_eq!(with(PLAIN, "prrp"), "on -!+!+-!");
        assert_eq!(with(PLAIN, "pprp"), "on -!-+!-!");
        assert_eq!(with(Mode::default(), "prp"), "on +++");
        let selected = Mode {
            selected: true,
            ..PLAIN
        };
        // A program pauses first, so that only what is between a resume and the next pause is
        // recorded.
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
        // The same without that first pause.
        assert_eq!(with(counted, "rrpp"), "off +!++-!");
        // Pauses without a resume: the count has to rise to zero again.
        assert_eq!(with(counted, "pprrp"), "off ---+!-!");
        // Pairs are counted, and the recording does not start paused: the first pause takes effect,
        // whatever the count.
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
                ..Moment::default()
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
        assert!(notes[0].contains("paused recording 1 times, for 0.00"));
        assert!(notes[0].contains(": 7 dispatches that started then are excluded"));
        assert_eq!(notes[1], "the recording was paused when it ended");
        assert!(pause.notes()[0].contains("no dispatches and copies"));
        pause.begin(Mode {
            selected: true,
            ..PLAIN
        });
        assert!(pause.notes()[1].contains("did not call roctxProfilerResume"));
    }
}
