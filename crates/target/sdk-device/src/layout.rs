//! The parts of AMD's in-memory structures that we read or write directly, by offset (source:
//! api/hsa_types.json and the public `amd_hsa_signal.h`, `amd_hsa_queue.h`, `hsa.h`). Raw pointers
//! with typed accessors: the memory is shared with the application, the runtime and the device, so
//! nothing here makes a Rust reference to it.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI64, AtomicU64};

/// An `hsa_signal_t` handle, which is the address of an `amd_signal_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signal(pub u64);

/// `amd_signal_kind64_t`: a user signal.
pub const KIND_USER: i64 = 1;
/// `amd_signal_kind64_t`: a doorbell.
pub const KIND_DOORBELL: i64 = -1;
/// `amd_signal_kind64_t`: a legacy doorbell.
pub const KIND_LEGACY_DOORBELL: i64 = -2;

impl Signal {
    fn word(self, offset: u64) -> *const AtomicU64 {
        std::ptr::with_exposed_provenance((self.0 + offset) as usize)
    }
    /// `kind`.
    ///
    /// # Safety
    /// The handle must be a live signal. This holds for every accessor here.
    pub unsafe fn kind(self) -> i64 {
        // SAFETY: the caller's promise; offset 0 of amd_signal_t.
        unsafe { (*self.word(0)).load(Relaxed) as i64 }
    }
    /// `value` of a user signal.
    ///
    /// # Safety
    /// The handle must be a live user signal.
    pub unsafe fn value(self) -> i64 {
        // SAFETY: the caller's promise; offset 8.
        unsafe { (*self.word(8).cast::<AtomicI64>()).load(Acquire) }
    }
    /// Returns the number of a doorbell among the process's doorbells on a device, as waves have it:
    /// `hardware_doorbell_ptr` points to 8 bytes in a region of 1,024 doorbells (source:
    /// `docs/sources.md#samples`).
    ///
    /// # Safety
    /// The handle must be a live doorbell signal.
    pub unsafe fn doorbell_number(self) -> u32 {
        // SAFETY: the caller's promise; offset 8.
        let at = unsafe { (*self.word(8)).load(Relaxed) };
        (at >> 3) as u32 & 0x3ff
    }
    /// `start_ts`, device ticks.
    ///
    /// # Safety
    /// The handle must be a live user signal.
    pub unsafe fn start_ticks(self) -> u64 {
        // SAFETY: the caller's promise; offset 32.
        unsafe { (*self.word(32)).load(Acquire) }
    }
    /// `end_ts`, device ticks.
    ///
    /// # Safety
    /// The handle must be a live user signal.
    pub unsafe fn end_ticks(self) -> u64 {
        // SAFETY: the caller's promise; offset 40.
        unsafe { (*self.word(40)).load(Acquire) }
    }
    /// `queue_ptr` of a doorbell: the `hsa_queue_t` behind it.
    ///
    /// # Safety
    /// The handle must be a live doorbell signal.
    pub unsafe fn queue(self) -> QueuePointer {
        // SAFETY: the caller's promise; offset 48.
        QueuePointer(unsafe { (*self.word(48)).load(Relaxed) })
    }
    /// Resets a signal of our own for its next use: value 1, no times.
    ///
    /// # Safety
    /// It must be a signal of our own that nothing in flight refers to.
    pub unsafe fn rearm(self) {
        // SAFETY: the caller promises a live midair signal. The fields are plain words of
        // amd_signal_t, and the release store that publishes the packet with this signal orders
        // these stores before the device's use.
        unsafe {
            (*self.word(32)).store(0, Relaxed);
            (*self.word(40)).store(0, Relaxed);
            (*self.word(8)).store(1, Release);
        }
    }
}

/// An `hsa_queue_t*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePointer(pub u64);

/// Bit 3 of `amd_queue_properties32_t`: the packet processor writes times into completion signals.
const ENABLE_PROFILING: u32 = 1 << 3;

/// `HSA_QUEUE_TYPE_MULTI`: any thread may put packets in.
const MULTI: u32 = 0;

impl QueuePointer {
    unsafe fn read<T: Copy>(self, offset: u64) -> T {
        // SAFETY: callers promise a live queue and use offsets inside it.
        unsafe {
            std::ptr::read_volatile(std::ptr::with_exposed_provenance(
                (self.0 + offset) as usize,
            ))
        }
    }
    /// `type`: whether any thread may put packets in.
    ///
    /// # Safety
    /// The queue must be alive. This holds for every accessor here.
    pub unsafe fn is_for_all_threads(self) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.read::<u32>(0) == MULTI }
    }
    /// `base_address`.
    ///
    /// # Safety
    /// The queue must be alive.
    pub unsafe fn ring(self) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { self.read(8) }
    }
    /// `doorbell_signal`.
    ///
    /// # Safety
    /// The queue must be alive.
    pub unsafe fn doorbell(self) -> Signal {
        // SAFETY: the caller's promise.
        Signal(unsafe { self.read(16) })
    }
    /// `size` in packets, a power of two.
    ///
    /// # Safety
    /// The queue must be alive.
    pub unsafe fn size(self) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { self.read(24) }
    }
    /// `id`, which no other queue of the process ever has.
    ///
    /// # Safety
    /// The queue must be alive.
    pub unsafe fn id(self) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { self.read(32) }
    }
    /// Returns whether the packet processor writes times.
    ///
    /// # Safety
    /// The queue must be alive and an `amd_queue_t` (its doorbell is of a doorbell kind).
    pub unsafe fn profiled(self) -> bool {
        // SAFETY: the caller's promise; offset 180 of amd_queue_t.
        unsafe { self.read::<u32>(180) & ENABLE_PROFILING != 0 }
    }
}

/// A queue that `hsa_amd_queue_create` has made (`hsa_amd_queue_create_desc_t`, source:
/// `docs/sources.md#hsa-newer`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueDescriptor {
    /// The queue.
    pub queue: QueuePointer,
    /// The engine that processes it (`hsa_amd_queue_engine_t`).
    pub engine: u32,
}

impl QueueDescriptor {
    /// The version that we understand, and its size in bytes.
    const VERSION: (u16, u64) = (1, 96);

    /// Returns which of the `count` descriptors at `at` have a queue. It ends at the first
    /// descriptor of another version, since its length is not known.
    ///
    /// # Safety
    /// `at` must be null or the address of `count` descriptors.
    pub unsafe fn all(at: u64, count: u32) -> impl Iterator<Item = QueueDescriptor> {
        let (version, bytes) = QueueDescriptor::VERSION;
        let count = if at == 0 { 0 } else { u64::from(count) };
        (0..count)
            .map(move |number| at + number * bytes)
            .map_while(move |at| {
                let word =
                    |offset: u64| std::ptr::with_exposed_provenance::<u64>((at + offset) as usize);
                // SAFETY: the caller promises `count` descriptors. Both words are aligned, and
                // inside a descriptor of that version. Of another version, only the first two bytes
                // are read.
                unsafe {
                    let first = word(0);
                    let found = first.cast::<u16>().read_volatile();
                    (found == version).then(|| (first.read_volatile(), word(32).read_volatile()))
                }
            })
            .filter(|(_, queue)| *queue != 0)
            .map(|(first, queue)| QueueDescriptor {
                queue: QueuePointer(queue),
                engine: u32::from(first.to_le_bytes()[4]),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_end_at_the_first_of_another_version() {
        let mut words = [0_u64; 4 * 12];
        for (number, (version, engine, queue)) in
            [(1, 0, 0x1000), (1, 1, 0x2000), (1, 0, 0), (2, 0, 0x4000)]
                .into_iter()
                .enumerate()
        {
            words[12 * number] = version | engine << 32;
            words[12 * number + 4] = queue;
        }
        let at = words.as_ptr().expose_provenance() as u64;
        // SAFETY: four descriptors of our own.
        let all = |count| unsafe { QueueDescriptor::all(at, count) }.collect::<Vec<_>>();
        let expected = [(0x1000, 0), (0x2000, 1)].map(|(queue, engine)| QueueDescriptor {
            queue: QueuePointer(queue),
            engine,
        });
        assert_eq!(all(4), expected);
        assert_eq!(all(1), expected[..1]);
        // SAFETY: no descriptor.
        assert_eq!(unsafe { QueueDescriptor::all(0, 4) }.count(), 0);
    }
}
