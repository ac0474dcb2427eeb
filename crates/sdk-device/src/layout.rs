//! The parts of AMD's in-memory structures that we read or write directly, by offset (source:
//! api/hsa_types.json and the public `amd_hsa_signal.h`, `amd_hsa_queue.h`, `hsa.h`). Raw pointers
//! with typed accessors: the memory is shared with the application, the runtime and the device, so
//! nothing here makes a Rust reference to it.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI64, AtomicU16, AtomicU64};

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
    /// The handle must be a live signal; so for every accessor here.
    pub unsafe fn kind(self) -> i64 {
        // SAFETY: the caller's promise; offset 0 of amd_signal_t.
        unsafe { (*self.word(0)).load(Relaxed) as i64 }
    }
    /// `value` of a user signal.
    ///
    /// # Safety
    /// A live user signal.
    pub unsafe fn value(self) -> i64 {
        // SAFETY: the caller's promise; offset 8.
        unsafe { (*self.word(8).cast::<AtomicI64>()).load(Acquire) }
    }
    /// `start_ts`, device ticks.
    ///
    /// # Safety
    /// A live user signal.
    pub unsafe fn start_ticks(self) -> u64 {
        // SAFETY: the caller's promise; offset 32.
        unsafe { (*self.word(32)).load(Acquire) }
    }
    /// `end_ts`, device ticks.
    ///
    /// # Safety
    /// A live user signal.
    pub unsafe fn end_ticks(self) -> u64 {
        // SAFETY: the caller's promise; offset 40.
        unsafe { (*self.word(40)).load(Acquire) }
    }
    /// `queue_ptr` of a doorbell: the `hsa_queue_t` behind it.
    ///
    /// # Safety
    /// A live doorbell signal.
    pub unsafe fn queue(self) -> QueuePointer {
        // SAFETY: the caller's promise; offset 48.
        QueuePointer(unsafe { (*self.word(48)).load(Relaxed) })
    }
    /// Sets a signal of our own back for its next use: value 1, no times.
    ///
    /// # Safety
    /// A signal of our pool that nothing in flight refers to.
    pub unsafe fn rearm(self) {
        // SAFETY: the caller's promise; the fields are plain words of amd_signal_t, and publishing
        // the packet that names the signal (a release) orders these stores before the device's use.
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

impl QueuePointer {
    unsafe fn read<T: Copy>(self, offset: u64) -> T {
        // SAFETY: callers promise a live queue and use offsets inside it.
        unsafe {
            std::ptr::read_volatile(std::ptr::with_exposed_provenance(
                (self.0 + offset) as usize,
            ))
        }
    }
    /// `base_address`.
    ///
    /// # Safety
    /// A live queue; so for every accessor here.
    pub unsafe fn ring(self) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { self.read(8) }
    }
    /// `doorbell_signal`.
    ///
    /// # Safety
    /// A live queue.
    pub unsafe fn doorbell(self) -> Signal {
        // SAFETY: the caller's promise.
        Signal(unsafe { self.read(16) })
    }
    /// `size` in packets, a power of two.
    ///
    /// # Safety
    /// A live queue.
    pub unsafe fn size(self) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { self.read(24) }
    }
    /// `id`, which no other queue of the process ever has.
    ///
    /// # Safety
    /// A live queue.
    pub unsafe fn id(self) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { self.read(32) }
    }
    /// Whether the packet processor writes times.
    ///
    /// # Safety
    /// A live queue that is an `amd_queue_t` (its doorbell is of a doorbell kind).
    pub unsafe fn profiled(self) -> bool {
        // SAFETY: the caller's promise; offset 180 of amd_queue_t.
        unsafe { self.read::<u32>(180) & ENABLE_PROFILING != 0 }
    }
}

/// An AQL packet in a ring.
#[derive(Debug, Clone, Copy)]
pub struct Packet(u64);

/// AQL packet type: nothing there, or not written yet.
pub const PACKET_INVALID: u8 = 1;
/// AQL packet type: kernel dispatch.
pub const PACKET_DISPATCH: u8 = 2;
/// Bit of a packet header: it begins only when all packets before it have ended (`HSA_PACKET_HEADER_BARRIER`).
pub const PACKET_BARRIER: u16 = 1 << 8;

/// What a kernel dispatch packet says.
#[derive(Debug, Clone, Copy, Default)]
pub struct Dispatch {
    /// Workgroup size.
    pub workgroup: [u32; 3],
    /// Grid size in work items.
    pub grid: [u32; 3],
    /// Private segment bytes.
    pub private_segment: u32,
    /// Group segment bytes.
    pub group_segment: u32,
    /// Kernel object.
    pub kernel_object: u64,
}

impl Packet {
    /// Packet `index` of a ring of `size` packets at `ring`.
    pub fn at(ring: u64, size: u64, index: u64) -> Packet {
        Packet(ring + 64 * (index & (size - 1)))
    }
    /// Packet header, with acquire: what follows in the packet is then visible. Its low byte is the
    /// packet's type.
    ///
    /// # Safety
    /// A packet of a live ring; so for every accessor here.
    pub unsafe fn header(self) -> u16 {
        // SAFETY: the caller's promise; the header is an aligned u16.
        unsafe { (*std::ptr::with_exposed_provenance::<AtomicU16>(self.0 as usize)).load(Acquire) }
    }
    /// The completion signal's handle.
    ///
    /// # Safety
    /// A packet of a live ring.
    pub unsafe fn completion(self) -> Signal {
        // SAFETY: the caller's promise; offset 56, aligned.
        Signal(unsafe {
            (*std::ptr::with_exposed_provenance::<AtomicU64>(self.0 as usize + 56)).load(Relaxed)
        })
    }
    /// Puts a completion signal in.
    ///
    /// # Safety
    /// A packet of a live ring that was not rung yet, or that may be taken with or without it.
    pub unsafe fn set_completion(self, signal: Signal) {
        // SAFETY: the caller's promise; one aligned 8-byte store: the device sees the old handle or
        // the new one.
        unsafe {
            (*std::ptr::with_exposed_provenance::<AtomicU64>(self.0 as usize + 56))
                .store(signal.0, Release)
        };
    }
    /// The dispatch fields.
    ///
    /// # Safety
    /// A dispatch packet of a live ring.
    pub unsafe fn dispatch(self) -> Dispatch {
        let at = self.0 as usize;
        // SAFETY: the caller's promise; offsets of hsa_kernel_dispatch_packet_t.
        unsafe {
            let half = |offset: usize| {
                u32::from(std::ptr::read_volatile(
                    std::ptr::with_exposed_provenance::<u16>(at + offset),
                ))
            };
            let word = |offset: usize| {
                std::ptr::read_volatile(std::ptr::with_exposed_provenance::<u32>(at + offset))
            };
            Dispatch {
                workgroup: [half(4), half(6), half(8)],
                grid: [word(12), word(16), word(20)],
                private_segment: word(24),
                group_segment: word(28),
                kernel_object: std::ptr::read_volatile(std::ptr::with_exposed_provenance::<u64>(
                    at + 32,
                )),
            }
        }
    }
}
