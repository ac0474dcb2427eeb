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

/// A queue that `hsa_amd_queue_create` has made (`hsa_amd_queue_create_desc_t`, source:
/// `docs/sources.md#hsa-newer`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueDescriptor {
    /// The queue.
    pub queue: QueuePointer,
    /// The engine that works it off (`hsa_amd_queue_engine_t`).
    pub engine: u32,
}

impl QueueDescriptor {
    /// The version that is understood, and its bytes.
    const VERSION: (u16, u64) = (1, 96);

    /// Those of `count` descriptors at `at` for which there is a queue. Ends at the first of another
    /// version: how long that is is not known.
    ///
    /// # Safety
    /// `at` is null or the address of `count` descriptors.
    pub unsafe fn all(at: u64, count: u32) -> impl Iterator<Item = QueueDescriptor> {
        let (version, bytes) = QueueDescriptor::VERSION;
        let count = if at == 0 { 0 } else { u64::from(count) };
        (0..count)
            .map(move |number| at + number * bytes)
            .map_while(move |at| {
                let word =
                    |offset: u64| std::ptr::with_exposed_provenance::<u64>((at + offset) as usize);
                // SAFETY: the caller's promise; both words are aligned, and inside a descriptor of
                // that version. Of another, only the first two bytes are looked at.
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

/// An AQL packet in a ring.
#[derive(Debug, Clone, Copy)]
pub struct Packet(u64);

/// AQL packet type: a vendor's own, told by its third byte ([`VendorFormat`]).
pub const PACKET_VENDOR: u8 = 0;
/// AQL packet type: nothing there, or not written yet.
pub const PACKET_INVALID: u8 = 1;
/// AQL packet type: kernel dispatch.
pub const PACKET_DISPATCH: u8 = 2;
/// Bit of a packet header: it begins only when all packets before it have ended (`HSA_PACKET_HEADER_BARRIER`).
pub const PACKET_BARRIER: u16 = 1 << 8;

/// What a vendor packet of AMD's is (source: `docs/sources.md#hsa-newer`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VendorFormat {
    /// It dispatches a kernel: how gfx1250 is given its work.
    Dispatch,
    /// It dispatches none: PM4 commands (1), a barrier on a value (2), a mark of an intercept queue (254).
    NoDispatch,
    /// Nobody said what it does.
    Unknown(u8),
}

impl VendorFormat {
    fn of(format: u8) -> VendorFormat {
        match format {
            3 => VendorFormat::Dispatch,
            1 | 2 | 0xFE => VendorFormat::NoDispatch,
            other => VendorFormat::Unknown(other),
        }
    }
}

/// What a kernel dispatch packet says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
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
    /// What a vendor packet is.
    ///
    /// # Safety
    /// A packet of a live ring; its header was read, and says that it is a vendor packet.
    pub unsafe fn vendor_format(self) -> VendorFormat {
        // SAFETY: the caller's promise.
        VendorFormat::of(unsafe { self.second_half() } as u8)
    }
    /// Whether a packet without its header was AMD's dispatch as a vendor packet: there the byte
    /// behind the format has the number of dimensions, which AQL's own dispatch has in the format's
    /// place, with a zero behind it.
    ///
    /// # Safety
    /// A packet of a live ring; it may be stale.
    pub unsafe fn was_vendor_dispatch(self) -> bool {
        // SAFETY: the caller's promise.
        let [format, dimensions] = unsafe { self.second_half() }.to_le_bytes();
        VendorFormat::of(format) == VendorFormat::Dispatch && dimensions != 0
    }
    /// What follows the header in its word: the setup of a dispatch, or a vendor's format.
    ///
    /// # Safety
    /// A packet of a live ring.
    unsafe fn second_half(self) -> u16 {
        // SAFETY: the caller's promise; an aligned u16.
        unsafe {
            std::ptr::read_volatile(std::ptr::with_exposed_provenance::<u16>(
                self.0 as usize + 2,
            ))
        }
    }
    /// The fields of a dispatch as a vendor packet. Its completion signal is where AQL's own has it.
    ///
    /// # Safety
    /// A packet of [`VendorFormat::Dispatch`] of a live ring.
    pub unsafe fn vendor_dispatch(self) -> Dispatch {
        // SAFETY: the caller's promise. Both layouts have the same workgroup, segments and kernel.
        let (aql, clusters_yz, cluster) = unsafe {
            let word = |offset: usize| {
                std::ptr::read_volatile(std::ptr::with_exposed_provenance::<u32>(
                    self.0 as usize + offset,
                ))
            };
            (self.dispatch(), word(16), word(20))
        };
        // The grid in clusters, x in a word of its own; a cluster in workgroups.
        let clusters = [aql.grid[0], clusters_yz & 0xffff, clusters_yz >> 16];
        let size = |axis: usize| cluster >> (8 * axis) & 0xff;
        Dispatch {
            grid: std::array::from_fn(|axis| {
                let [clusters, workgroup] = [clusters, aql.workgroup].map(|of| of[axis]);
                clusters
                    .saturating_mul(size(axis))
                    .saturating_mul(workgroup)
            }),
            ..aql
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C, align(64))]
    struct Slot([u8; 64]);

    fn slot(header: u16, fields: &[(usize, &[u8])]) -> (Box<Slot>, Packet) {
        let mut slot = Box::new(Slot([0; 64]));
        slot.0[..2].copy_from_slice(&header.to_le_bytes());
        for (at, bytes) in fields {
            slot.0[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        let packet = Packet((&raw const *slot).expose_provenance() as u64);
        (slot, packet)
    }

    #[test]
    fn a_dispatch_as_a_vendor_packet_has_its_grid_in_clusters() {
        let (_slot, packet) = slot(
            0x0100,
            &[
                (2, &[3, 3]),
                (4, &[64, 0, 2, 0, 1, 0]),
                (12, &5_u32.to_le_bytes()),
                (16, &[7, 0, 1, 0]),
                (20, &[2, 3, 1, 0]),
                (24, &16_u32.to_le_bytes()),
                (28, &128_u32.to_le_bytes()),
                (32, &0xabcd_0040_u64.to_le_bytes()),
                (56, &0x7f00_u64.to_le_bytes()),
            ],
        );
        // SAFETY: a packet of our own.
        unsafe {
            assert_eq!(packet.header() as u8, PACKET_VENDOR);
            assert_eq!(packet.vendor_format(), VendorFormat::Dispatch);
            assert!(packet.was_vendor_dispatch());
            assert_eq!(packet.completion(), Signal(0x7f00));
            let expected = Dispatch {
                workgroup: [64, 2, 1],
                grid: [5 * 2 * 64, 7 * 3 * 2, 1],
                private_segment: 16,
                group_segment: 128,
                kernel_object: 0xabcd_0040,
            };
            assert_eq!(packet.vendor_dispatch(), expected);
        }
    }

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

    #[test]
    fn a_dispatch_of_three_dimensions_is_no_vendor_packet() {
        let (_slot, packet) = slot(0x0102, &[(2, &[3, 0])]);
        // SAFETY: a packet of our own.
        unsafe { assert!(!packet.was_vendor_dispatch()) };
    }

    #[test]
    fn formats_that_nobody_explained_are_told_by_their_number() {
        for (format, what) in [
            (1, VendorFormat::NoDispatch),
            (2, VendorFormat::NoDispatch),
            (0xFE, VendorFormat::NoDispatch),
            (0, VendorFormat::Unknown(0)),
            (4, VendorFormat::Unknown(4)),
            (200, VendorFormat::Unknown(200)),
        ] {
            let (_slot, packet) = slot(0, &[(2, &[format, 0])]);
            // SAFETY: a packet of our own.
            unsafe { assert_eq!(packet.vendor_format(), what) };
        }
    }
}
