//! A queue of ours, for commands of the packet processor. No kernel runs on it.

use crate::layout::{QueuePointer, Signal};
use crate::packet::{self, Packet};
use midair_sdk_hot::wrappers::original;
use std::ffi::c_void;

/// Packets in its ring: what every agent offers.
const SIZE: u32 = 64;
/// `HSA_QUEUE_TYPE_MULTI`.
const MULTI: u32 = 0;

/// The queue. It is used by one thread at a time. Whoever drops it leaves it to the runtime; see
/// [`OwnQueue::destroy`].
#[derive(Debug)]
pub struct OwnQueue(QueuePointer);

impl OwnQueue {
    /// Has the runtime make it, with times in the signals of its packets.
    ///
    /// # Errors
    /// The runtime refuses: all hardware queues of the process are used, for example.
    pub fn create(agent: u64) -> Result<OwnQueue, &'static str> {
        let mut queue: *mut c_void = std::ptr::null_mut();
        // SAFETY: the runtime's own function, by way of the saved originals, while it is open (a
        // shut-down waits for the session's end); a valid out pointer; no callback.
        let status = unsafe {
            original::hsa_queue_create(
                agent,
                SIZE,
                MULTI,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                0,
                0,
                (&raw mut queue).cast(),
            )
        };
        if status != 0 || queue.is_null() {
            return Err("the runtime gives no queue");
        }
        // SAFETY: the queue that was just made.
        unsafe { original::hsa_amd_profiling_set_profiler_enabled(queue, 1) };
        Ok(OwnQueue(QueuePointer(queue.addr() as u64)))
    }

    fn raw(&self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.0.0 as usize)
    }

    /// Has commands carried out behind all before them; `signal` tells when. False where the ring is
    /// full.
    ///
    /// The commands must stay where they are until the signal fires, or the queue is destroyed.
    pub fn submit(&mut self, (address, words): (u64, u32), signal: Signal) -> bool {
        let queue = self.raw();
        // SAFETY: our own live queue, which nobody else uses; the packet was passed by the device,
        // since there is room.
        unsafe {
            let (ring, size) = (self.0.ring(), u64::from(self.0.size()));
            let index = original::hsa_queue_load_write_index_relaxed(queue);
            let read = original::hsa_queue_load_read_index_scacquire(queue);
            if index.wrapping_sub(read) >= size {
                return false;
            }
            let next = index.wrapping_add(1);
            original::hsa_queue_cas_write_index_scacq_screl(queue, index, next);
            let packet = Packet::at(ring, size, index);
            packet.set_body(address, words, signal);
            packet::flush();
            packet.set_commands_header();
            packet::flush();
            original::hsa_signal_store_screlease(self.0.doorbell().0, index as i64);
        }
        true
    }

    /// Gives it back. The device carries out nothing of it any more. False where the runtime does not
    /// say so: what its packets refer to must then stay.
    pub fn destroy(self) -> bool {
        // SAFETY: our own queue, which nobody uses any more.
        unsafe { original::hsa_queue_destroy(self.raw()) == 0 }
    }
}
