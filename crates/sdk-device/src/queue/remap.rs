//! Queues whose profiling was switched on too late.
//!
//! A device looks at a queue's profiling bit at the first dispatch after the queue was mapped, and
//! keeps to that. HIP sets the bit when it makes a queue; a program's own HSA queues, and the
//! runtime's own for copies by kernels, have it off. Newer runtimes map a queue anew when the bit
//! changes; for the others we have it done: where the driver schedules queues (all but the newest
//! devices), it takes all queues of a device off and maps them again whenever one is made. So the
//! worker thread makes a queue and destroys it, once something that ended is seen to have no times.
//! What runs meanwhile is saved and resumed by the driver.
//!
//! Decisions: AMD-063 (`docs/deviations/amd.md`).

use midair_sdk_hot::clock::now;
use midair_sdk_hot::wrappers::original;
use std::collections::{HashMap, HashSet};
use std::ffi::c_void;

/// Packets of the queue that is made: any device takes this size.
const SIZE: u32 = 256;
/// `HSA_QUEUE_TYPE_MULTI`.
const MULTI: u32 = 0;

/// Whose times are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Whose {
    /// Dispatches on the application's queue with this number of ours.
    Queue(u32),
    /// Copies that the runtime does on queues of its own.
    Copies,
}

/// What the worker thread knows of mappings, in a session.
#[derive(Debug, Default)]
pub struct Remap {
    /// Agents whose queues are to be mapped anew.
    wanted: HashSet<u64>,
    /// When they last were.
    done: HashMap<u64, u64>,
    /// For whom it was done.
    tried: HashSet<(u64, Whose)>,
    /// Agents where it does not help: queues (false), copies (true).
    in_vain: HashSet<(u64, bool)>,
    /// The session ends.
    closed: bool,
}

impl Remap {
    /// Work that was asked for at `since` has ended on `agent` and has no times.
    pub fn untimed(&mut self, agent: u64, whose: Whose, since: u64) {
        let sort = (agent, whose == Whose::Copies);
        let old = self.done.get(&agent).is_some_and(|done| since <= *done);
        if self.closed || agent == 0 || old || self.in_vain.contains(&sort) {
            return;
        }
        if self.tried.insert((agent, whose)) {
            self.wanted.insert(agent);
        } else {
            self.in_vain.insert(sort);
        }
    }

    /// Has the queues mapped anew that need it. On the worker thread, at the end of a round.
    pub fn run(&mut self) {
        for agent in std::mem::take(&mut self.wanted) {
            if self.closed || !map_anew(agent) {
                self.in_vain.extend([(agent, false), (agent, true)]);
            }
            self.done.insert(agent, now());
        }
    }

    /// The session ends: nothing is mapped anew from here on.
    pub fn close(&mut self) {
        self.closed = true;
    }
}

/// False when the runtime makes no queue.
fn map_anew(agent: u64) -> bool {
    let mut queue: *mut c_void = std::ptr::null_mut();
    // SAFETY: the runtime's own functions, by way of the saved originals, while it is open (a
    // shut-down waits for the session's end); a valid out pointer; no callback. The queue is ours
    // alone, never used, and destroyed at once.
    unsafe {
        let status = original::hsa_queue_create(
            agent,
            SIZE,
            MULTI,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            0,
            0,
            (&raw mut queue).cast(),
        );
        status == 0 && !queue.is_null() && original::hsa_queue_destroy(queue) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: u64 = 7;

    /// As [`Remap::run`], without a runtime.
    fn ran(remap: &mut Remap, at: u64) -> bool {
        let wanted = remap.wanted.remove(&GPU);
        if wanted {
            remap.done.insert(GPU, at);
        }
        wanted
    }

    #[test]
    fn each_queue_is_mapped_anew_once() {
        let mut remap = Remap::default();
        remap.untimed(GPU, Whose::Queue(1), 100);
        assert!(ran(&mut remap, 200));
        // Rung before it was done.
        remap.untimed(GPU, Whose::Queue(1), 150);
        assert!(!ran(&mut remap, 250));
        // Another queue, whose bit was set later.
        remap.untimed(GPU, Whose::Queue(2), 300);
        assert!(ran(&mut remap, 400));
        // It did not help: neither this queue nor others.
        remap.untimed(GPU, Whose::Queue(2), 500);
        remap.untimed(GPU, Whose::Queue(3), 600);
        assert!(!ran(&mut remap, 700));
        remap.untimed(GPU, Whose::Copies, 800);
        assert!(ran(&mut remap, 900));
        remap.close();
        remap.untimed(9, Whose::Queue(4), 1000);
        assert!(remap.wanted.is_empty());
    }
}
