//! Queues whose profiling was switched on too late.
//!
//! A device reads a queue's profiling bit at the first dispatch after the queue was mapped, and
//! then keeps that setting. HIP sets the bit when it makes a queue. A program's own HSA queues, and
//! the queues that the runtime uses for copies by kernels, have it off. Newer runtimes map a queue
//! again when the bit changes. For other runtimes we cause that ourselves: where the driver
//! schedules queues (all but the newest devices), it unmaps all queues of a device and maps them
//! again whenever a queue is made. So when work is seen to have ended without times, the worker
//! thread makes a queue and destroys it again. The driver saves and resumes what runs meanwhile.
//!
//! Decisions: AMD-063 (`docs/deviations/amd.md`).

use midair_sdk_hot::clock::now;
use midair_sdk_hot::wrappers::original;
use std::collections::{HashMap, HashSet};
use std::ffi::c_void;

/// The size in packets of the queue that is made; every device accepts this size.
const SIZE: u32 = 256;
/// `HSA_QUEUE_TYPE_MULTI`.
const MULTI: u32 = 0;

/// The work whose times are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owner {
    /// Dispatches on the application's queue for which we have this number.
    Queue(u32),
    /// Copies that the runtime does on its own queues.
    Copies,
}

/// What the worker thread knows about mappings during a session.
#[derive(Debug, Default)]
pub struct Remap {
    /// Agents whose queues are to be remapped.
    wanted: HashSet<u64>,
    /// When the queues of each agent were last remapped.
    done: HashMap<u64, u64>,
    /// The work for which that was done.
    tried: HashSet<(u64, Owner)>,
    /// The agents for which it does not help: for queues (false), for copies (true).
    in_vain: HashSet<(u64, bool)>,
    /// Whether the session ends.
    closed: bool,
}

impl Remap {
    /// Notes that work that was requested at `since` has ended on `agent` and has no times.
    pub fn untimed(&mut self, agent: u64, owner: Owner, since: u64) {
        let sort = (agent, owner == Owner::Copies);
        let old = self.done.get(&agent).is_some_and(|done| since <= *done);
        if self.closed || agent == 0 || old || self.in_vain.contains(&sort) {
            return;
        }
        if self.tried.insert((agent, owner)) {
            self.wanted.insert(agent);
        } else {
            self.in_vain.insert(sort);
        }
    }

    /// Remaps the queues that need it. On the worker thread, at the end of a round.
    pub fn run(&mut self) {
        for agent in std::mem::take(&mut self.wanted) {
            if self.closed || !map_anew(agent) {
                self.in_vain.extend([(agent, false), (agent, true)]);
            }
            self.done.insert(agent, now());
        }
    }

    /// Stops remapping queues, since the session ends.
    pub fn close(&mut self) {
        self.closed = true;
    }
}

/// Remaps all queues of an agent. Returns false if the runtime makes no queue.
fn map_anew(agent: u64) -> bool {
    let mut queue: *mut c_void = std::ptr::null_mut();
    // SAFETY: these are the runtime's own functions, called by their saved addresses while the
    // runtime is open (a shut-down waits for the session's end). The out pointer is valid, and
    // there is no callback. The queue is ours alone, never used, and destroyed at once.
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

    /// Does the same as [`Remap::run`], without a runtime.
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
        remap.untimed(GPU, Owner::Queue(1), 100);
        assert!(ran(&mut remap, 200));
        // The doorbell was rung before the queues were remapped.
        remap.untimed(GPU, Owner::Queue(1), 150);
        assert!(!ran(&mut remap, 250));
        // Another queue, whose bit was set later.
        remap.untimed(GPU, Owner::Queue(2), 300);
        assert!(ran(&mut remap, 400));
        // It did not help, so neither this queue nor others are remapped.
        remap.untimed(GPU, Owner::Queue(2), 500);
        remap.untimed(GPU, Owner::Queue(3), 600);
        assert!(!ran(&mut remap, 700));
        remap.untimed(GPU, Owner::Copies, 800);
        assert!(ran(&mut remap, 900));
        remap.close();
        remap.untimed(9, Owner::Queue(4), 1000);
        assert!(remap.wanted.is_empty());
    }
}
