//! Packets and queues, over the [`Machine`] trait and without C.
//!
//! An engine never blocks. [`Engine::step`] does one piece of work, or returns what it waits for.
//! So its thread can be stopped at any moment, and tests can interleave queues as they like.

mod aql;
mod blit;
mod rect;
mod sdma;

pub use aql::AqlQueue;
pub use sdma::SdmaQueue;

use crate::machine::Machine;
use crate::settings::Settings;
use std::sync::Arc;

/// The memory of a queue. Addresses are as the application sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Number of the queue, for the log.
    pub number: u32,
    /// The ring.
    pub ring: u64,
    /// Its size in bytes, a power of two.
    pub ring_bytes: u64,
    /// The write index (packets for AQL, bytes for SDMA).
    pub write_index_at: u64,
    /// The read index.
    pub read_index_at: u64,
    /// The doorbell that the runtime named when it created the queue, or 0.
    pub doorbell_at: u64,
}

/// The result of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Something was done, so step again.
    Progress,
    /// The runtime has not finished creating the queue, so look again at once.
    Unready,
    /// There is nothing to do until memory changes. `near` means that a packet is being written or
    /// waits for its doorbell, so it pays to look again at once.
    Idle {
        /// See above.
        near: bool,
    },
    /// A kernel is running for this many more ns.
    Busy(u64),
    /// A packet was not understood: the queue takes no more packets.
    Halted,
}

/// A queue of either kind.
#[derive(Debug)]
pub enum Engine {
    /// Packets of the HSA architected queueing language.
    Aql(AqlQueue),
    /// Packets of the DMA engines.
    Sdma(SdmaQueue),
}

impl Engine {
    /// Creates the engine of a queue, which starts at the queue's read index.
    pub fn new(
        sdma: bool,
        place: Place,
        settings: Arc<Settings>,
        machine: &impl Machine,
    ) -> Engine {
        if sdma {
            Engine::Sdma(SdmaQueue::new(place, settings, machine))
        } else {
            Engine::Aql(AqlQueue::new(place, settings, machine))
        }
    }
    /// Does one piece of work.
    pub fn step(&mut self, machine: &impl Machine) -> Step {
        match self {
            Engine::Aql(queue) => queue.step(machine),
            Engine::Sdma(queue) => queue.step(machine),
        }
    }
    /// Ends a queue that is destroyed: writes its last records.
    pub fn end(&mut self, machine: &impl Machine) {
        match self {
            Engine::Aql(queue) => queue.end(machine),
            Engine::Sdma(queue) => queue.end(machine),
        }
    }
}

/// Layout of `amd_signal_t` (source: hsa/amd_hsa_signal.h).
pub mod signal {
    use crate::machine::Machine;

    /// The value, or the address of the doorbell for a doorbell signal.
    pub const VALUE: u64 = 8;
    /// The address to which the event id is written when the signal changes, or 0.
    pub const MAILBOX: u64 = 16;
    /// The event to raise, 0 for none (for signals that only the device and active waiters watch).
    pub const EVENT: u64 = 24;
    /// When the packet started.
    pub const START: u64 = 32;
    /// When it ended.
    pub const END: u64 = 40;

    /// Sets a signal to `value` and raises its interrupt.
    pub(crate) fn set(machine: &impl Machine, signal: u64, value: u64) {
        let (mailbox, event) = (
            machine.load_u64(signal + MAILBOX),
            machine.load_u32(signal + EVENT),
        );
        machine.store_u64(signal + VALUE, value);
        if mailbox != 0 {
            machine.store_u64(mailbox, u64::from(event));
        }
        if event != 0 {
            machine.raise(event);
        }
    }

    /// Completes a packet: first the times if they are requested, then the value, then the
    /// interrupt.
    pub(super) fn complete(machine: &impl Machine, signal: u64, times: Option<(u64, u64)>) {
        if signal == 0 {
            return;
        }
        // Read these first: a thread that waits for the value may free the signal as soon as it
        // changes.
        let (mailbox, event) = (
            machine.load_u64(signal + MAILBOX),
            machine.load_u32(signal + EVENT),
        );
        if let Some((start, end)) = times {
            machine.store_u64(signal + START, start);
            machine.store_u64(signal + END, end);
        }
        machine.add_u64(signal + VALUE, u64::MAX);
        if mailbox != 0 {
            machine.store_u64(mailbox, u64::from(event));
        }
        // A device raises the id that it finds in the mailbox. ROCr's model mode creates events
        // without mailboxes, and uses the id.
        if event != 0 {
            machine.raise(event);
        }
    }
}

/// Random numbers for the moments of the eager mode: splitmix64, one stream per queue.
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn new(seed: u64, queue: u32) -> Dice {
        Dice(seed ^ (u64::from(queue) + 1).wrapping_mul(0xd1b5_4a32_d192_ed03))
    }
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn coin(&mut self) -> bool {
        self.roll() & 1 == 1
    }
    /// Returns a random time around `ns`, spread by `percent`. It is about log-normal, like the
    /// times of kernels on a shared machine.
    fn spread(&mut self, ns: u64, percent: u32) -> u64 {
        if percent == 0 {
            return ns;
        }
        // The sum of four uniform numbers in [0, 1) is about normal, with variance 4/12.
        let sum: f64 = (0..4)
            .map(|_| (self.roll() >> 11) as f64 / (1u64 << 53) as f64)
            .sum();
        let normal = (sum - 2.0) * 3f64.sqrt();
        (ns as f64 * (normal * f64::from(percent) / 100.0).exp()) as u64
    }
}

#[cfg(test)]
pub(crate) mod tests;
