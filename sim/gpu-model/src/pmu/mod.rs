//! Performance counters: the registers by which PM4 commands select, start, sample and read them,
//! and what they count.
//!
//! * [`Gpu`]: the numbers of the device's units.
//! * [`rules`]: **what each counter counts.** Tests compare with these rules, so they are stated
//!   there and nowhere else.
//! * [`registers`]: addresses, and which write to a register counts for which unit.
//! * [`pm4`]: the commands of an indirect buffer.
//! * [`trace`]: **what a thread trace has.**
//!
//! As on the device, there is one set of counters for all queues and processes. A reset by one
//! queue's commands destroys what another queue was counting, and its selects replace the other's.
//! A read returns what the last sample latched.

pub mod gpu;
pub mod pm4;
pub mod registers;
pub mod rules;
#[cfg(test)]
mod tests;
pub mod trace;

pub use gpu::{Family, Gpu};
pub use rules::{Rate, Rules, Work};

use crate::log::Dispatch;
use crate::machine::Machine;
use registers::{Banked, Counter};
use rules::Tally;
use std::sync::{Mutex, MutexGuard, PoisonError};
use trace::Traced;

/// The counters of one device, which all its queues share.
#[derive(Debug)]
pub struct Pmu(Mutex<Device>);

/// A running kernel.
#[derive(Debug)]
struct Running {
    queue: u32,
    work: Work,
    start: u64,
    /// How long it takes, in ns.
    takes: u64,
}

#[derive(Debug)]
pub(crate) struct Device {
    rules: Rules,
    xccs: Vec<Xcc>,
    running: Vec<Running>,
}

/// The state that each accelerator complex die has for itself.
#[derive(Debug, Default)]
struct Xcc {
    /// `GRBM_GFX_INDEX`: which units the next register access refers to.
    index: u32,
    registers: Banked,
    /// The time since which the counters count, or `None` while they are stopped.
    since: Option<u64>,
    /// The queue whose commands started the counters.
    owner: Option<u32>,
    tally: Tally,
    /// The values at the last sample.
    latched: Tally,
    traced: Traced,
}

/// `CP_PERFMON_CNTL` as it is written: bits 0-3 are the state, bit 10 takes a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Control(u32);

impl Control {
    const SAMPLE: u32 = 1 << 10;
    const RESET: u32 = 0;
    const RUN: u32 = 1;

    fn state(self) -> u32 {
        self.0 & 0xf
    }
}

impl Pmu {
    /// Creates the counters of a device that count by these rules. Nothing is selected or counted
    /// yet.
    pub fn new(rules: Rules) -> Pmu {
        let xcc = |_| Xcc {
            traced: Traced::new(&rules.gpu, rules.trace_detail),
            ..Xcc::default()
        };
        let xccs = (0..rules.gpu.xccs).map(xcc).collect();
        Pmu(Mutex::new(Device {
            rules,
            xccs,
            running: Vec::new(),
        }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Device> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a kernel of `queue` at `start`, which will take `takes` ns.
    pub fn begin(&self, queue: u32, work: Work, start: u64, takes: u64) {
        let mut device = self.lock();
        device.running.push(Running {
            queue,
            work,
            start,
            takes: takes.max(1),
        });
    }

    /// Writes what traces have of a kernel that ends.
    pub fn trace(&self, machine: &impl Machine, dispatch: &Dispatch) {
        let work = Work::new(dispatch.grid, dispatch.workgroup, true);
        let device = &mut *self.lock();
        for (xcc, of) in (0..).zip(&mut device.xccs) {
            of.traced
                .ends(machine, &device.rules, xcc, (dispatch, &work));
        }
    }

    /// Ends the kernel of `queue` now, by `clock`. Returns the time. In this model a queue runs one
    /// kernel at a time.
    ///
    /// The time is read while no other thread can access the counters. With an earlier time,
    /// commands of another queue could come in between, and count a kernel that had ended when they
    /// started.
    pub fn end(&self, queue: u32, clock: impl FnOnce() -> u64) -> u64 {
        let mut device = self.lock();
        let end = clock();
        let Some(at) = device.running.iter().position(|r| r.queue == queue) else {
            return end;
        };
        let ended = device.running.swap_remove(at);
        let takes = end.saturating_sub(ended.start).max(1);
        let others: Vec<u64> = device.running.iter().map(|r| r.start).collect();
        for xcc in &mut device.xccs {
            if let Some(since) = xcc.since {
                let seen = end.saturating_sub(ended.start.max(since)).min(takes);
                xcc.tally.add(&ended.work, seen, takes);
                xcc.tally.busy(ended.start.max(since), end, &others);
            }
        }
        end
    }
}

impl Device {
    /// Writes `CP_PERFMON_CNTL` of one XCC. Returns the queue whose counting this destroyed.
    fn control(&mut self, xcc: usize, queue: u32, value: u32, now: u64) -> Option<u32> {
        let control = Control(value);
        if value & Control::SAMPLE != 0 {
            self.xccs[xcc].latched = self.tally(xcc, now);
        }
        match control.state() {
            Control::RESET => {
                let xcc = &mut self.xccs[xcc];
                let destroyed = xcc.owner.take().filter(|owner| *owner != queue);
                xcc.tally = Tally::default();
                xcc.latched = Tally::default();
                xcc.since = None;
                destroyed
            }
            Control::RUN => {
                let xcc = &mut self.xccs[xcc];
                // A sample during counting also writes "run", and changes nothing.
                if xcc.since.is_none() {
                    xcc.owner = Some(queue);
                    xcc.since = Some(now);
                }
                None
            }
            // Every other state stops the counters. What was counted stays.
            _ => {
                let tally = self.tally(xcc, now);
                let xcc = &mut self.xccs[xcc];
                xcc.tally = tally;
                xcc.since = None;
                if xcc.owner == Some(queue) {
                    xcc.owner = None;
                }
                None
            }
        }
    }

    /// Returns what one XCC has counted until now, including the shares of kernels that are still
    /// running.
    fn tally(&self, xcc: usize, now: u64) -> Tally {
        let xcc = &self.xccs[xcc];
        let mut tally = xcc.tally.clone();
        let Some(since) = xcc.since else {
            return tally;
        };
        let starts: Vec<u64> = self.running.iter().map(|r| r.start).collect();
        for running in &self.running {
            let from = running.start.max(since);
            let seen = now.saturating_sub(from).min(running.takes);
            tally.add(&running.work, seen, running.takes);
        }
        if let Some(first) = starts.iter().min() {
            tally.busy((*first).max(since), now, &[]);
        }
        tally.count(since, now);
        tally
    }

    /// Returns what a read of a register gives: the latched value's low or high half for a counter,
    /// otherwise the value that was written.
    fn read(&self, xcc: usize, register: u32) -> u32 {
        let x = &self.xccs[xcc];
        let unit = registers::Unit::of(x.index);
        if let Some(value) = x.traced.read(register, unit) {
            return value;
        }
        let Some((counter, high)) = Counter::read_by(self.rules.gpu.family, register) else {
            return x.registers.get(register, unit).unwrap_or(0);
        };
        let select = |slot: usize| {
            let register = counter.block.slots.get(slot)?.select;
            Some(x.registers.get(register, unit)? & counter.block.events)
        };
        let value = select(counter.slot).map_or(0, |event| {
            let before = counter.slot.checked_sub(1).and_then(select);
            self.rules
                .value(&x.latched, counter.block, event, before, xcc as u32, unit)
        });
        (if high { value >> 32 } else { value }) as u32
    }
}
