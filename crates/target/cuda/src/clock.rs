//! Conversion from CUPTI's timestamps to CLOCK_BOOTTIME.
//!
//! CUPTI takes its times from the wall clock, or from a function that a profiler registers. PyTorch's
//! profiler registers the processor's time stamp counter at its first run: all times of CUPTI count
//! ticks then, also after that run, until CUPTI is finalized and used again (H100, CUPTI 13.0,
//! PyTorch 2.11). So each [`Reading`] has all of these clocks at one moment, which tells where CUPTI
//! takes its times from at that moment; and a time that makes no sense on that clock is tried on the
//! others, since a record may be older than the change.
//!
//! Readings are made at the start of a session, at each flush, and at the end.
//!
//! Decisions: CUDA-016 (`docs/deviations/cuda.md`).

mod line;
mod wall;

use line::Line;
use std::sync::OnceLock;
use wall::{Pair, Wall};

/// The number of readings from which the one with the narrowest bracket is used.
const READINGS: usize = 5;
/// A bracket that is not narrower was interrupted. Further readings are made then, up to a limit, since
/// the clocks seem to have been set against each other otherwise. In ns.
const NARROW: u64 = 200_000;
const MOST_READINGS: usize = 50;
/// CUPTI's time is the wall clock's if both differ by less, in ns.
const NEAR: u64 = 1_000_000;
/// A record is not older than the first reading by more, in ns.
const BEFORE: u64 = 1_000_000_000;
/// A record is not newer than the newest reading by more, in ns: CUPTI is flushed each second.
const AFTER: u64 = 5_000_000_000;

/// One moment, on all clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// CUPTI's clock, in units of its own.
    pub cupti: u64,
    /// CLOCK_BOOTTIME, ns.
    pub boot: u64,
    /// CLOCK_REALTIME, ns.
    pub wall: u64,
    /// The processor's time stamp counter before and after CUPTI's clock was read; 0 if the processor
    /// has none.
    pub ticks: (u64, u64),
}

impl Reading {
    /// Reads CUPTI's clock between two readings of the others. `None` when CUPTI returns no time.
    pub fn read(
        mut cupti: impl FnMut() -> Option<u64>,
        mut boot: impl FnMut() -> u64,
    ) -> Option<Reading> {
        let mut best: Option<(u64, Reading)> = None;
        for number in 0..MOST_READINGS {
            let is_narrow = best.is_some_and(|(narrowest, _)| narrowest < NARROW);
            if number >= READINGS && is_narrow {
                break;
            }
            let before = boot();
            let first = ticks();
            let there = cupti()?;
            let second = ticks();
            let wall = wall_clock();
            let width = boot().saturating_sub(before);
            if best.is_none_or(|(narrowest, _)| width < narrowest) {
                let reading = Reading {
                    cupti: there,
                    boot: before + width / 2,
                    wall,
                    ticks: (first, second),
                };
                best = Some((width, reading));
            }
        }
        best.map(|(_, reading)| reading)
    }

    /// Where CUPTI takes its times from.
    fn source(&self) -> Source {
        if self.ticks.0 != 0 && (self.ticks.0..=self.ticks.1).contains(&self.cupti) {
            Source::Ticks
        } else if self.cupti.abs_diff(self.wall) < NEAR {
            Source::Wall
        } else {
            Source::Unknown
        }
    }
}

/// Where times may come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Source {
    #[default]
    Wall,
    Ticks,
    /// A function that a profiler registered, of which nothing is known but what it returned.
    Unknown,
}

/// What a session knows about the clocks.
#[derive(Debug, Default)]
pub struct Clock {
    wall: Wall,
    ticks: Line,
    unknown: Line,
    /// Where CUPTI took its times from at the newest reading.
    source: Source,
    /// CLOCK_BOOTTIME of the first and the newest reading.
    from: u64,
    to: u64,
    /// How many times were of no clock that is known.
    pub foreign: u64,
}

impl Clock {
    /// Adds a reading.
    pub fn add(&mut self, reading: Reading) {
        let Reading { boot, wall, .. } = reading;
        if self.to == 0 {
            self.from = boot;
        }
        self.to = boot;
        self.wall.add(Pair { wall, boot });
        let (first, second) = reading.ticks;
        if first != 0 {
            let middle = first + (second - first) / 2;
            self.ticks.add(middle, boot, Some(earliest((middle, boot))));
        }
        self.source = reading.source();
        match self.source {
            Source::Unknown => self.unknown.add(reading.cupti, boot, None),
            Source::Wall | Source::Ticks => self.unknown = Line::default(),
        }
    }

    /// Forgets everything: CUPTI may choose another clock when it is used again.
    pub fn restart(&mut self) {
        let foreign = self.foreign;
        *self = Clock {
            foreign,
            ..Clock::default()
        };
    }

    /// Whether there is any reading.
    pub fn is_set(&self) -> bool {
        self.to != 0
    }

    /// How many times the wall clock was set while CUPTI took its times from it.
    pub fn steps(&self) -> u32 {
        match self.source {
            Source::Wall => self.wall.steps,
            Source::Ticks | Source::Unknown => 0,
        }
    }

    /// Converts CUPTI's `time` to CLOCK_BOOTTIME; `None` if it is of no clock that is known. 0 means
    /// "no time" and stays 0.
    #[inline]
    pub fn convert(&mut self, time: u64) -> Option<u64> {
        if time == 0 {
            return Some(0);
        }
        let first = self.on(self.source, time);
        if first.is_some() {
            return first;
        }
        let others = [Source::Wall, Source::Ticks, Source::Unknown];
        let found = others.into_iter().find_map(|source| self.on(source, time));
        self.foreign += u64::from(found.is_none());
        found
    }

    /// `time` on one of the clocks, if that is a moment of this session.
    #[inline]
    fn on(&mut self, source: Source, time: u64) -> Option<u64> {
        let boot = match source {
            Source::Wall => self.wall.convert(time),
            Source::Ticks => self.ticks.convert(time)?,
            Source::Unknown => self.unknown.convert(time)?,
        };
        let (from, to) = (self.from.saturating_sub(BEFORE), self.to + AFTER);
        (from..to).contains(&boot).then_some(boot)
    }
}

/// Returns the ticks and the time of the process's first reading, which may be this one.
#[cfg(not(test))]
fn earliest(now: (u64, u64)) -> (u64, u64) {
    static EARLIEST: OnceLock<(u64, u64)> = OnceLock::new();
    *EARLIEST.get_or_init(|| now)
}

/// Tests have times of their own, in one process: each has a first reading.
#[cfg(test)]
fn earliest(now: (u64, u64)) -> (u64, u64) {
    thread_local!(static EARLIEST: OnceLock<(u64, u64)> = const { OnceLock::new() });
    EARLIEST.with(|earliest| *earliest.get_or_init(|| now))
}

/// CLOCK_REALTIME, ns.
fn wall_clock() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(target_arch = "x86_64")]
fn ticks() -> u64 {
    // SAFETY: the instruction reads a register. A process that forbids it to itself
    // (PR_SET_TSC) cannot use the C library's clocks, either.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// No profiler registers the counter of other processors.
#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    0
}

#[cfg(test)]
mod tests;
