//! Rings that the processor reads over the bus, since they are in device memory.
//!
//! The hook at a doorbell reads each packet once. From host memory that takes some nanoseconds, and
//! from device memory about a microsecond, so a launch takes a multiple of its time while it is
//! recorded. The user is told so. Where a ring is does not say what reading it takes, so that is
//! measured, by the thread that is the first to use the queue in a session.
//!
//! Decision: AMD-128 (`docs/deviations/amd.md`).

use crate::packet::Packet;
use midair_sdk_hot::clock::now;

/// Nanoseconds that a read takes at least if it goes over the bus. From host memory even a line that
/// another processor has just written takes less.
const SLOW: u32 = 400;
/// How many packets are read, each once: a second read of one could be served by the processor's
/// buffer. The quickest read counts. At the others the thread may have lost its processor, or the
/// line may not have been in the cache.
const READS: u64 = 4;

/// Measures how many nanoseconds it takes to read a packet.
///
/// # Safety
/// `ring` must be the ring, of `size` packets, of a live queue.
pub(super) unsafe fn nanoseconds_of_a_read(ring: u64, size: u64) -> u32 {
    let read = |index| {
        let began = now();
        // SAFETY: the caller's promise. What is there does not matter.
        let _ = std::hint::black_box(unsafe { Packet::at(ring, size, index).read() });
        now().saturating_sub(began)
    };
    let quickest = (0..READS).map(read).min().unwrap_or_default();
    u32::try_from(quickest).unwrap_or(u32::MAX)
}

/// The queues of a session whose rings are read over the bus.
#[derive(Debug, Default)]
pub(super) struct SlowRings {
    queues: u64,
    /// Nanoseconds that reading a packet takes on the slowest of them.
    longest: u32,
}

impl SlowRings {
    /// Adds a queue if reading a packet of it takes long.
    pub(super) fn add(&mut self, nanoseconds: u32) {
        if nanoseconds >= SLOW {
            self.queues += 1;
            self.longest = self.longest.max(nanoseconds);
        }
    }

    /// Returns the note about them, if there are any.
    pub(super) fn note(&self) -> Option<String> {
        let (queues, longest) = (self.queues, self.longest);
        (queues > 0).then(|| {
            format!(
                "the packets of {queues} queues are in device memory, where reading one takes up to {longest} ns: each launch on them took that much longer while it was recorded (--no-entry records kernels without that, where the driver has a dispatch log)"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_slow_reads_are_told() {
        let mut rings = SlowRings::default();
        rings.add(SLOW - 1);
        assert_eq!(rings.note(), None);
        rings.add(900);
        rings.add(1300);
        let note = rings.note().unwrap();
        assert!(
            note.contains(" 2 queues ") && note.contains(" 1300 ns"),
            "{note}"
        );
    }
}
