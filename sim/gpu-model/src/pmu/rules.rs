//! What each counter counts.
//!
//! # Where a kernel runs
//! The workgroups of a kernel are numbered from 0. Workgroup *n* runs on XCC *n mod X*, where it is
//! that XCC's workgroup *m = n / X*. It runs on shader engine *m mod S* of the XCC, where it is
//! that engine's workgroup *k = m / S*, and on compute unit *k mod C* of the engine. Compute unit
//! *c* is instance *c / A* of array *c mod A*. Each workgroup has ⌈work-items / 64⌉ waves.
//!
//! On devices with WGPs, WGP *w* of an array has the units whose instances are 2*w* and 2*w* + 1. On
//! gfx12, `GRBM_GFX_INDEX` names instance *i* as 4 ⌊*i* / 2⌋ + *i* mod 2.
//!
//! # What counts
//! Let *f(block, event)* be 1 + event mod 7, unless a [`Rate`] says otherwise for the kernel's
//! grid.
//!
//! | block | event | value |
//! |---|---|---|
//! | SQ | 4 (SQ_WAVES) | waves on the engine |
//! | SQ | 3 (SQ_BUSY_CYCLES) | cycles of the kernels that had a wave on the engine |
//! | SQ | 184 (SQ_ACCUM_PREV_HIRES) | 16 x the value of the event in the counter before it |
//! | SQ | others | *f* x waves on the engine |
//! | SPI | 47, 48 (SPI_CSN_WINDOW_VALID, SPI_CSN_BUSY) | cycles of the kernels that had a wave on the engine |
//! | SPI | 49 (SPI_CSN_NUM_THREADGROUPS) | workgroups on the engine |
//! | SPI | 52 (SPI_CSN_WAVE) | waves on the engine |
//! | SPI | others | *f* x workgroups on the engine |
//! | TA, TD, TCP | all | *f* x waves on the compute unit |
//! | TCC, TCA | all | *f* x waves on the XCC, dealt to the channels one by one from channel 0 on |
//! | CPC, CPF | all | *f* x kernels |
//! | GRBM | 0 (GRBM_COUNT) | cycles from run to sample or stop |
//! | GRBM | others | cycles of those in which a kernel of any queue ran |
//!
//! On devices with WGPs, SQ's "engine" is a WGP: what its two compute units have.
//!
//! A cycle is 1000 / clock ns; a time is turned into cycles once, when it is read, and cut to whole
//! ones. SQ and SPI count only kernels of queues with `COMPUTE_PERFCOUNT_ENABLE`, the others count
//! all.
//!
//! # When
//! A kernel's counts accrue evenly over its time: a sample in its middle sees half of them, and
//! what accrued before a reset is gone. So a window that holds whole kernels holds exact values.
//!
//! A read while `GRBM_GFX_INDEX` names all engines, arrays or instances gives the first one's
//! value.

use super::gpu::{Family, Gpu};
use super::registers::{Block, Place, Unit, block};
use std::collections::BTreeMap;

/// The number of work-items in a wave.
const WAVE: u64 = 64;
/// The amount that each unit of a level adds to the accumulated value.
const ACCUMULATED: u64 = 16;
/// The clock of the modelled device in MHz, unless the settings change it.
pub const CLOCK_MHZ: u64 = 2100;

/// The properties of a kernel on which counts depend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Work {
    /// Work-items of the first dimension of its grid, by which [`Rate`]s are selected.
    pub grid_x: u32,
    /// Workgroups.
    pub workgroups: u64,
    /// Waves of each workgroup.
    pub waves: u64,
    /// Whether its queue has `COMPUTE_PERFCOUNT_ENABLE`.
    pub enabled: bool,
}

impl Work {
    /// Creates it for a grid of work-items.
    pub fn new(grid: [u32; 3], workgroup: [u16; 3], enabled: bool) -> Work {
        let sizes = workgroup.map(|size| u64::from(size.max(1)));
        let groups = std::array::from_fn::<u64, 3, _>(|n| u64::from(grid[n]).div_ceil(sizes[n]));
        Work {
            grid_x: grid[0],
            workgroups: groups.iter().product(),
            waves: sizes.iter().product::<u64>().div_ceil(WAVE),
            enabled,
        }
    }
}

/// An event that a kernel raises a different number of times per wave than other kernels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rate {
    /// Work-items of the first dimension of the kernel's grid.
    pub grid_x: u32,
    /// Block.
    pub block: &'static str,
    /// Event.
    pub event: u32,
    /// The *f* of the rules.
    pub factor: u64,
}

impl Rate {
    /// Reads `GRID_X:BLOCK:EVENT:FACTOR`.
    pub fn parse(text: &str) -> Option<Rate> {
        let mut words = text.split(':');
        let rate = Rate {
            grid_x: words.next()?.parse().ok()?,
            block: block(Family::Gfx9, words.next()?)?.name,
            event: words.next()?.parse().ok()?,
            factor: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(rate)
    }
}

/// What was counted: kernels, parts of kernels, and times.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Whole kernels: how many, and their ns in total.
    whole: BTreeMap<Work, (u64, u64)>,
    /// Parts: ns seen, and ns that the whole kernel takes.
    parts: Vec<(Work, u64, u64)>,
    /// ns in which a kernel ran.
    busy_ns: u64,
    /// The time until which `busy_ns` is known.
    busy_until: u64,
    /// How long the counters counted, in ns.
    counted_ns: u64,
}

impl Tally {
    /// Adds `seen` of the `takes` ns of a kernel.
    pub fn add(&mut self, work: &Work, seen: u64, takes: u64) {
        if seen >= takes {
            let (count, ns) = self.whole.entry(*work).or_default();
            *count += 1;
            *ns += takes;
        } else if seen > 0 {
            self.parts.push((*work, seen, takes));
        }
    }

    /// Adds the time from `from` to `until`, in which a kernel ran. While a kernel that started at
    /// one of `others` is still running, the time is added at that kernel's end.
    pub fn busy(&mut self, from: u64, until: u64, others: &[u64]) {
        let until = others.iter().fold(until, |until, start| until.min(*start));
        let from = from.max(self.busy_until);
        if until > from {
            self.busy_ns += until - from;
            self.busy_until = until;
        }
    }

    /// Adds the time from `from` to `until`, in which the counters counted.
    pub fn count(&mut self, from: u64, until: u64) {
        self.counted_ns += until.saturating_sub(from);
    }

    /// Returns the sum over the kernels; `of` returns a whole kernel's value for its work.
    fn sum(&self, of: impl Fn(&Work) -> u64) -> u64 {
        let whole = self.whole.iter().map(|(work, (count, _))| of(work) * count);
        let part = |(work, seen, takes): &(Work, u64, u64)| {
            (u128::from(of(work)) * u128::from(*seen) / u128::from(*takes)) as u64
        };
        whole.sum::<u64>() + self.parts.iter().map(part).sum::<u64>()
    }

    /// Returns the time of the kernels that `of` selects, in ns.
    fn time(&self, of: impl Fn(&Work) -> bool) -> u64 {
        let whole = self.whole.iter().filter(|(work, _)| of(work));
        let parts = self.parts.iter().filter(|(work, ..)| of(work));
        whole.map(|(_, (_, ns))| ns).sum::<u64>() + parts.map(|(_, seen, _)| seen).sum::<u64>()
    }
}

/// Returns how many of `all` things go to place number `at` if they are dealt one by one to `among`
/// places.
fn dealt(all: u64, among: u64, at: u64) -> u64 {
    all / among + u64::from(at < all % among)
}

/// The rules for one device.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The device.
    pub gpu: Gpu,
    /// Its clock in MHz.
    pub clock_mhz: u64,
    /// Exceptions to the rules.
    pub rates: Vec<Rate>,
    /// How many blocks of a thread trace tell of the steps of a wave ([`super::trace`]).
    pub trace_detail: u32,
}

impl Rules {
    fn cycles(&self, ns: u64) -> u64 {
        ns * self.clock_mhz / 1000
    }

    fn factor(&self, work: &Work, block: &Block, event: u32) -> u64 {
        let rate = self
            .rates
            .iter()
            .find(|r| r.grid_x == work.grid_x && r.block == block.name && r.event == event);
        rate.map_or(1 + u64::from(event) % 7, |rate| rate.factor)
    }

    /// Returns how many workgroups of a kernel run on an XCC.
    fn on_xcc(&self, work: &Work, xcc: u32) -> u64 {
        dealt(work.workgroups, u64::from(self.gpu.xccs), u64::from(xcc))
    }

    /// Returns how many workgroups of a kernel run on an engine of an XCC.
    fn on_engine(&self, work: &Work, xcc: u32, engine: u32) -> u64 {
        let engines = u64::from(self.gpu.engines_of_xcc());
        dealt(self.on_xcc(work, xcc), engines, u64::from(engine))
    }

    /// Returns how many workgroups of a kernel run on a compute unit of an engine; 0 on a unit that
    /// does not exist.
    fn on_unit(&self, work: &Work, xcc: u32, engine: u32, unit: u32) -> u64 {
        let units = self
            .gpu
            .units_of_engine(xcc * self.gpu.engines_of_xcc() + engine);
        if unit >= units {
            return 0;
        }
        dealt(
            self.on_engine(work, xcc, engine),
            u64::from(units),
            u64::from(unit),
        )
    }

    /// Returns how many waves of a kernel run on an engine of an XCC, or on one compute unit of it.
    pub fn waves_on(&self, work: &Work, xcc: u32, engine: u32, unit: Option<u32>) -> u64 {
        let groups = match unit {
            None => self.on_engine(work, xcc, engine),
            Some(unit) => self.on_unit(work, xcc, engine, unit),
        };
        groups * work.waves
    }

    /// Returns the value of an event; `before` is the event of the counter before it.
    pub fn value(
        &self,
        tally: &Tally,
        block: &Block,
        event: u32,
        before: Option<u32>,
        xcc: u32,
        unit: Unit,
    ) -> u64 {
        let engine = unit.engine.unwrap_or(0);
        let instance = unit.instance.unwrap_or(0);
        let there = match block.place {
            Place::Xcc => true,
            Place::Channels(channels) => instance < channels,
            Place::Engine | Place::Wgp | Place::Unit => engine < self.gpu.engines_of_xcc(),
        };
        if !there {
            return 0;
        }
        let on_engine = |work: &Work| {
            if work.enabled {
                self.on_engine(work, xcc, engine)
            } else {
                0
            }
        };
        let array = unit.array.unwrap_or(0);
        let on = |work: &Work, place: u32| {
            let there = array < self.gpu.arrays;
            let unit = place * self.gpu.arrays + array;
            u64::from(there) * self.on_unit(work, xcc, engine, unit)
        };
        // The workgroups that the block's counter is notified of.
        let seen = |work: &Work| match block.place {
            Place::Wgp if work.enabled => Gpu::units_of_wgp(instance >> 2)
                .into_iter()
                .map(|unit| on(work, unit))
                .sum(),
            Place::Wgp => 0,
            _ => on_engine(work),
        };
        let waves = |work: &Work| seen(work) * work.waves;
        let time = || self.cycles(tally.time(|work| seen(work) > 0));
        let f = |work: &Work| self.factor(work, block, event);
        match (block.name, event) {
            ("SQ", 3) => time(),
            ("SQ", 4) => tally.sum(waves),
            ("SQ", 184) => before.filter(|event| *event != 184).map_or(0, |event| {
                ACCUMULATED * self.value(tally, block, event, None, xcc, unit)
            }),
            ("SQ", _) => tally.sum(|work| f(work) * waves(work)),
            ("SPI", 47 | 48) => time(),
            ("SPI", 49) => tally.sum(on_engine),
            ("SPI", 52) => tally.sum(waves),
            ("SPI", _) => tally.sum(|work| f(work) * on_engine(work)),
            ("GRBM", 0) => self.cycles(tally.counted_ns),
            ("GRBM", _) => self.cycles(tally.busy_ns),
            ("CPC" | "CPF", _) => tally.sum(f),
            _ => match block.place {
                Place::Channels(channels) => tally.sum(|work| {
                    let all = f(work) * self.on_xcc(work, xcc) * work.waves;
                    dealt(all, u64::from(channels), u64::from(instance))
                }),
                _ => {
                    let unit = self.gpu.unit_named(instance);
                    tally.sum(|work| f(work) * on(work, unit) * work.waves)
                }
            },
        }
    }
}
