//! Rings that the processor reads over the bus, since they are in device memory.
//!
//! The hook at a doorbell reads each packet once. From host memory that takes some nanoseconds, and
//! from device memory about a microsecond, so a launch takes a multiple of its time while it is
//! recorded. A note says so. Where a ring is does not say what reading it takes, so that is
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
    measured(now, |index| {
        // SAFETY: the caller's promise. What is there does not matter.
        let _ = std::hint::black_box(unsafe { Packet::at(ring, size, index).read() });
    })
}

/// Returns how long the quickest read takes, without what the clock takes: where the clock is a
/// system call, that is a microsecond itself.
fn measured(now: impl Fn() -> u64, read: impl Fn(u64)) -> u32 {
    let quickest = |work: &dyn Fn(u64)| {
        let once = |index| {
            let began = now();
            work(index);
            now().saturating_sub(began)
        };
        (0..READS).map(once).min().unwrap_or_default()
    };
    let (nothing, reading) = (quickest(&|_| ()), quickest(&read));
    u32::try_from(reading.saturating_sub(nothing)).unwrap_or(u32::MAX)
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
                "reading a packet takes up to {longest} ns on {queues} of the queues (as of rings in device memory): each launch there took that much longer while recorded; --no-entry avoids this if the driver has a dispatch log"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_clock_takes_is_not_counted() {
        use std::cell::Cell;
        let time = Cell::new(0);
        let slow_clock = || time.replace(time.get() + 1000) + 1000;
        assert_eq!(measured(slow_clock, |_| ()), 0);
        // The quickest of the reads counts.
        let read = |index| time.set(time.get() + if index == 1 { 700 } else { 900 });
        assert_eq!(measured(slow_clock, read), 700);
    }

    #[test]
    fn only_slow_rings_are_reported() {
        let mut rings = SlowRings::default();
        rings.add(SLOW - 1);
        assert_eq!(rings.note(), None);
        rings.add(900);
        rings.add(1300);
        let note = rings.note().unwrap();
        assert!(note.contains("1300 ns on 2 of the queues"), "{note}");
    }
}
