//! Counters that are ready to be counted on an agent: commands and their output, in memory that the
//! device can access.

use midair_sdk_hot::wrappers::original;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A group of counters, ready for an agent. It has only one output: an agent runs one dispatch at a
/// time, and the values are taken before the next dispatch gets its turn. Dropping the group frees
/// its memory, so dispatches on their way hold a reference to it.
#[derive(Debug)]
pub struct Prepared {
    pub(super) agent: u64,
    pub(super) node: u32,
    pub(super) number: u32,
    /// The address of the memory from the runtime, by which it is freed.
    pub(super) memory: u64,
    /// The address and the number of words of the commands that start the counters.
    pub(super) start: (u64, u32),
    /// The same for the commands that read and stop the counters.
    pub(super) read: (u64, u32),
    /// The address and the number of 64-bit words of the output.
    pub(super) output: (u64, usize),
}

impl Prepared {
    /// Returns the handle of its agent.
    pub fn agent(&self) -> u64 {
        self.agent
    }

    /// Returns the KFD node of its agent.
    pub fn node(&self) -> u32 {
        self.node
    }

    /// Returns `Group::number`.
    pub fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn start(&self) -> (u64, u32) {
        self.start
    }

    pub(super) fn read(&self) -> (u64, u32) {
        self.read
    }

    /// Returns what the device has written.
    pub(super) fn words(&self) -> Box<[u64]> {
        let (at, count) = self.output;
        let word = |number: usize| {
            let at = std::ptr::with_exposed_provenance::<AtomicU64>(at as usize + 8 * number);
            // SAFETY: this is an aligned word of the output, in memory that `self` owns.
            unsafe { (*at).load(Relaxed) }
        };
        (0..count).map(word).collect()
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        let at = std::ptr::with_exposed_provenance_mut(self.memory as usize);
        // SAFETY: the memory was allocated for this group, and nothing refers to it any more. A
        // runtime that was shut down has freed it already, and then refuses the call.
        unsafe { original::hsa_amd_memory_pool_free(at) };
    }
}
