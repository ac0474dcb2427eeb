//! A queue of our own, for commands to the packet processor. No kernel runs on it.

use crate::layout::{QueuePointer, Signal};
use crate::packet::{self, Packet};
use midair_sdk_hot::wrappers::original;
use std::ffi::c_void;

/// The size of its ring in packets; every agent offers this size.
const SIZE: u32 = 64;
/// `HSA_QUEUE_TYPE_MULTI`.
const MULTI: u32 = 0;

/// The queue. Only one thread uses it at a time. Dropping the value leaves the queue to the
/// runtime; see [`OwnQueue::destroy`].
#[derive(Debug)]
pub struct OwnQueue(QueuePointer);

impl OwnQueue {
    /// Has the runtime make the queue, with times in the signals of its packets.
    ///
    /// # Errors
    /// Fails if the runtime refuses, for example because all hardware queues of the process are in
    /// use.
    pub fn create(agent: u64) -> Result<OwnQueue, &'static str> {
        let mut queue: *mut c_void = std::ptr::null_mut();
        // SAFETY: this is the runtime's own function, called by its saved address while the runtime
        // is open (a shut-down waits for the session's end). The out pointer is valid, and there is
        // no callback.
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
            return Err("the runtime provides no queue");
        }
        // SAFETY: the queue was just made, so it is alive.
        unsafe { original::hsa_amd_profiling_set_profiler_enabled(queue, 1) };
        Ok(OwnQueue(QueuePointer(queue.addr() as u64)))
    }

    fn raw(&self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.0.0 as usize)
    }

    /// Has commands executed after all earlier ones. `signal` fires when they have been. Returns
    /// false if the ring is full.
    ///
    /// The commands must stay where they are until the signal fires, or the queue is destroyed.
    pub fn submit(&mut self, (address, words): (u64, u32), signal: Signal) -> bool {
        let queue = self.raw();
        // SAFETY: this is our own live queue, which nothing else uses. There is room, so the device
        // has passed this packet's place.
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

    /// Destroys the queue, so that the device executes nothing of it any more. Returns false if the
    /// runtime does not confirm that: then what its packets refer to must stay.
    pub fn destroy(self) -> bool {
        // SAFETY: this is our own queue, which nothing uses any more.
        unsafe { original::hsa_queue_destroy(self.raw()) == 0 }
    }
}
