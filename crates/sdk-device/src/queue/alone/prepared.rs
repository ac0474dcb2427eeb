//! Counters that are ready to be counted on an agent: commands and their output in memory that the
//! device reaches.

use midair_sdk_hot::wrappers::original;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A group of counters, ready for an agent. There is one output: an agent runs one dispatch at a
/// time, and its values are taken before the next has its turn. Dropping it gives the memory back:
/// dispatches on their way hold it.
#[derive(Debug)]
pub struct Prepared {
    pub(super) agent: u64,
    pub(super) node: u32,
    pub(super) number: u32,
    /// Address of the runtime's memory, which is given back with this.
    pub(super) memory: u64,
    /// Address and number of words of the commands that start.
    pub(super) start: (u64, u32),
    /// The same of those that read and stop.
    pub(super) read: (u64, u32),
    /// Address and number of 64-bit words of the output.
    pub(super) output: (u64, usize),
}

impl Prepared {
    /// Handle of its agent.
    pub fn agent(&self) -> u64 {
        self.agent
    }

    /// KFD node of its agent.
    pub fn node(&self) -> u32 {
        self.node
    }

    /// `Group::number`.
    pub fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn start(&self) -> (u64, u32) {
        self.start
    }

    pub(super) fn read(&self) -> (u64, u32) {
        self.read
    }

    /// What the device has written.
    pub(super) fn words(&self) -> Box<[u64]> {
        let (at, count) = self.output;
        let word = |number: usize| {
            let at = std::ptr::with_exposed_provenance::<AtomicU64>(at as usize + 8 * number);
            // SAFETY: an aligned word of the output, in memory that this value keeps.
            unsafe { (*at).load(Relaxed) }
        };
        (0..count).map(word).collect()
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        let at = std::ptr::with_exposed_provenance_mut(self.memory as usize);
        // SAFETY: memory that was allocated for this, and that nothing refers to any more. A runtime
        // that was shut down has taken it back itself, and refuses.
        unsafe { original::hsa_amd_memory_pool_free(at) };
    }
}
