//! AQL packets in a ring: the only code that touches a ring's memory.
//!
//! A ring may be in device memory. There the processor's reads are not cached, so each goes over
//! the bus (about a microsecond), and writes are combined. So a packet is read once and as a whole
//! ([`Packet::read`]), what was read is kept in an [`Image`], and the only write to a packet of the
//! application is one store of eight bytes ([`Packet::set_completion`]). Nothing is read back.
//!
//! Decisions: AMD-062, AMD-128 (`docs/deviations/amd.md`).

use crate::layout::Signal;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// An AQL packet in a ring.
#[derive(Debug, Clone, Copy)]
pub struct Packet(u64);

/// AQL packet type: a packet of the vendor, whose third byte says what it is ([`VendorFormat`]).
pub const PACKET_VENDOR: u8 = 0;
/// AQL packet type: there is no packet, or it is not written yet.
pub const PACKET_INVALID: u8 = 1;
/// AQL packet type: kernel dispatch.
pub const PACKET_DISPATCH: u8 = 2;
/// AQL packet type: waits until the values of up to five signals are 0.
pub const PACKET_BARRIER_AND: u8 = 3;
/// AQL packet type: waits until the value of one of up to five signals is 0.
pub const PACKET_BARRIER_OR: u8 = 5;
/// The bit of a packet header that makes the packet start only when all packets before it have
/// ended (`HSA_PACKET_HEADER_BARRIER`).
pub const PACKET_BARRIER: u16 = 1 << 8;

/// What a vendor packet of AMD does (source: `docs/sources.md#hsa-newer`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VendorFormat {
    /// It dispatches a kernel. gfx1250 gets its work in this way.
    Dispatch,
    /// A barrier on the value of a signal.
    Barrier,
    /// It dispatches no kernel: PM4 commands (1), a mark of an intercept queue (254).
    NoDispatch,
    /// It is not known what a packet of this format does.
    Unknown(u8),
}

impl VendorFormat {
    fn of(format: u8) -> VendorFormat {
        match format {
            3 => VendorFormat::Dispatch,
            2 => VendorFormat::Barrier,
            1 | 0xFE => VendorFormat::NoDispatch,
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

/// The contents of a packet when it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Image([u64; 8]);

impl Image {
    /// Makes an image of a packet that was read elsewhere.
    pub const fn of(words: [u64; 8]) -> Image {
        Image(words)
    }

    /// Returns the packet header. Its low byte is the packet's type.
    pub fn header(&self) -> u16 {
        self.0[0] as u16
    }

    /// Returns the packet's type.
    pub fn kind(&self) -> u8 {
        self.header() as u8
    }

    /// Returns whether the packet starts only when all packets before it have ended.
    pub fn is_after_all(&self) -> bool {
        self.header() & PACKET_BARRIER != 0
    }

    /// Returns the completion signal's handle.
    pub fn completion(&self) -> Signal {
        Signal(self.0[7])
    }

    /// Returns what a vendor packet does, if the packet is one.
    pub fn vendor_format(&self) -> VendorFormat {
        let [_, _, format, ..] = self.0[0].to_le_bytes();
        VendorFormat::of(format)
    }

    /// Returns whether the packet is a barrier of any kind. Each has its completion signal at the
    /// same place as a dispatch.
    pub fn is_barrier(&self) -> bool {
        match self.kind() {
            PACKET_BARRIER_AND | PACKET_BARRIER_OR => true,
            PACKET_VENDOR => self.vendor_format() == VendorFormat::Barrier,
            _ => false,
        }
    }

    /// Returns whether a packet whose header is gone was a dispatch in AMD's vendor format. In that
    /// format the byte behind the format has the number of dimensions. AQL's own dispatch has this
    /// number in the format's place, with a zero behind it.
    pub fn was_vendor_dispatch(&self) -> bool {
        let [_, _, _, dimensions, ..] = self.0[0].to_le_bytes();
        self.vendor_format() == VendorFormat::Dispatch && dimensions != 0
    }

    /// Returns the fields of a dispatch in the vendor format, [`VendorFormat::Dispatch`]. Its
    /// completion signal is at the same place as in AQL's own dispatch.
    pub fn vendor_dispatch(&self) -> Dispatch {
        // Both layouts have the same workgroup, segments and kernel.
        let aql = self.dispatch();
        let [clusters_yz, cluster] = [self.0[2] as u32, (self.0[2] >> 32) as u32];
        // The grid is given in clusters, with x in a word of its own, and the cluster's size in
        // workgroups.
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

    /// Returns the fields of a dispatch packet (`hsa_kernel_dispatch_packet_t`).
    pub fn dispatch(&self) -> Dispatch {
        let half = |word: u64, n: u32| word as u32 >> (16 * n) & 0xffff;
        let [first, second, third, fourth, kernel_object, ..] = self.0;
        let upper = |word: u64| (word >> 32) as u32;
        Dispatch {
            workgroup: [half(first >> 32, 0), half(first >> 32, 1), half(second, 0)],
            grid: [upper(second), third as u32, upper(third)],
            private_segment: fourth as u32,
            group_segment: upper(fourth),
            kernel_object,
        }
    }
}

impl Packet {
    /// Returns packet `index` of a ring of `size` packets at `ring`.
    pub fn at(ring: u64, size: u64, index: u64) -> Packet {
        Packet(ring + 64 * (index & (size - 1)))
    }

    /// Reads the packet once, as a whole. If its header is valid, the rest is what its writer
    /// published with the header.
    ///
    /// # Safety
    /// The packet must be in the ring of a live queue. This holds for every accessor here.
    #[inline]
    pub unsafe fn read(self) -> Image {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if is_x86_feature_detected!("sse4.1") {
            // SAFETY: the caller promises a live ring, and the processor has the instruction.
            return unsafe { self.stream() };
        }
        // SAFETY: the caller promises a live ring, and a packet is eight aligned words, of which
        // the first has the header.
        unsafe {
            let word = |n: usize, order| {
                (*std::ptr::with_exposed_provenance::<AtomicU64>(self.0 as usize + 8 * n))
                    .load(order)
            };
            let first = word(0, Acquire);
            Image([
                first,
                word(1, Relaxed),
                word(2, Relaxed),
                word(3, Relaxed),
                word(4, Relaxed),
                word(5, Relaxed),
                word(6, Relaxed),
                word(7, Relaxed),
            ])
        }
    }

    /// Reads the packet by streaming loads. From device memory, the first load fetches the line
    /// into a buffer of the processor, from which the others are served. From other memory they are
    /// ordinary loads. The fence keeps the header's load before the others, which device memory
    /// would not do by itself.
    ///
    /// # Safety
    /// The same as for [`Packet::read`], and the processor must have SSE 4.1.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline]
    unsafe fn stream(self) -> Image {
        use std::arch::x86_64::__m128i;
        let (a, b, c, d): (__m128i, __m128i, __m128i, __m128i);
        // SAFETY: this reads the 64 bytes of the packet, which are aligned to 64.
        unsafe {
            std::arch::asm!(
                "movntdqa {a}, [{at}]",
                "lfence",
                "movntdqa {b}, [{at} + 16]",
                "movntdqa {c}, [{at} + 32]",
                "movntdqa {d}, [{at} + 48]",
                at = in(reg) self.0,
                a = lateout(xmm_reg) a,
                b = lateout(xmm_reg) b,
                c = lateout(xmm_reg) c,
                d = lateout(xmm_reg) d,
                options(nostack, readonly, preserves_flags),
            );
            // Any bits are valid for eight words.
            Image(std::mem::transmute::<[__m128i; 4], [u64; 8]>([a, b, c, d]))
        }
    }

    /// Writes all but the header of a packet with commands (`words` of them, at `address`), and
    /// leaves it invalid.
    ///
    /// # Safety
    /// The packet must be in the ring of a live queue, reserved by the caller, and free.
    pub unsafe fn set_body(self, address: u64, words: u32, signal: Signal) {
        let packet = commands(address, words, signal);
        for (n, word) in packet.into_iter().enumerate().skip(1) {
            // SAFETY: the caller's promise; an aligned word of the packet.
            unsafe {
                (*std::ptr::with_exposed_provenance::<AtomicU64>(self.0 as usize + 8 * n))
                    .store(word, Relaxed);
            };
        }
    }

    /// Makes a packet with commands valid. It starts when all packets before it have ended, and
    /// neither empties caches nor waits for that.
    ///
    /// # Safety
    /// The same as for [`Packet::set_body`], which must have been called for this packet.
    pub unsafe fn set_commands_header(self) {
        // SAFETY: the caller's promise.
        unsafe { self.set_header_word(COMMANDS_HEADER) };
    }

    /// The same for commands that wait for nothing, and that nothing waits for.
    ///
    /// # Safety
    /// The same as for [`Packet::set_body`], which must have been called for this packet.
    pub unsafe fn set_commands_header_at_once(self) {
        // SAFETY: the caller's promise.
        unsafe { self.set_header_word(COMMANDS_HEADER & !u64::from(PACKET_BARRIER)) };
    }

    /// # Safety
    /// The same as for [`Packet::set_body`], which must have been called for this packet.
    unsafe fn set_header_word(self, word: u64) {
        // SAFETY: the caller promises that it may write this packet, and one aligned 8-byte store
        // makes the packet valid as a whole.
        unsafe {
            (*std::ptr::with_exposed_provenance::<AtomicU64>(self.0 as usize)).store(word, Release);
        };
    }

    /// Writes all but the first word of a packet.
    ///
    /// # Safety
    /// The same as for [`Packet::set_body`].
    pub unsafe fn set_rest(self, rest: [u64; 7]) {
        for (n, word) in (1..).zip(rest) {
            // SAFETY: the caller's promise; an aligned word of the packet.
            unsafe {
                (*std::ptr::with_exposed_provenance::<AtomicU64>(self.0 as usize + 8 * n))
                    .store(word, Relaxed);
            };
        }
    }

    /// Writes a whole packet, its header last.
    ///
    /// # Safety
    /// The packet must be in the ring of a live queue, and the caller may write it, since the
    /// device stands before it.
    pub unsafe fn put(self, Image([first, rest @ ..]): Image) {
        // SAFETY: the caller promises that it may write this packet, and one aligned 8-byte store
        // makes the packet valid as a whole.
        unsafe {
            self.set_rest(rest);
            flush();
            (*std::ptr::with_exposed_provenance::<AtomicU64>(self.0 as usize))
                .store(first, Release);
        };
    }

    /// Stores a completion signal in the packet.
    ///
    /// # Safety
    /// The packet must be in the ring of a live queue. Its doorbell must not have been rung yet, or
    /// the device may take the packet with or without the signal.
    pub unsafe fn set_completion(self, signal: Signal) {
        // SAFETY: the caller promises a live ring, and this is one aligned 8-byte store, so the
        // device sees either the old handle or the new one.
        unsafe {
            (*std::ptr::with_exposed_provenance::<AtomicU64>(self.0 as usize + 56))
                .store(signal.0, Release)
        };
    }
}

/// The first word of a packet with commands, which starts when all packets before it have ended,
/// and has no fences.
const COMMANDS_HEADER: u64 = {
    /// The packet processor's command `INDIRECT_BUFFER`.
    const INDIRECT_BUFFER: u64 = 0xc002_3f00;
    /// AMD's format number of a vendor packet with commands.
    const COMMANDS: u64 = 1;
    PACKET_BARRIER as u64 | PACKET_VENDOR as u64 | COMMANDS << 16 | INDIRECT_BUFFER << 32
};

/// Returns a packet with `words` words of commands at `address`.
pub fn commands(address: u64, words: u32, completion: Signal) -> [u64; 8] {
    /// Bits of the length's word: the buffer contains commands, and has no virtual machine of its
    /// own.
    const LENGTH: u32 = 0x1080_0000;
    /// The word behind it: how much of the packet is left.
    const REST: u64 = 10;
    let length = u64::from(words | LENGTH) | REST << 32;
    [COMMANDS_HEADER, address, length, 0, 0, 0, 0, completion.0]
}

/// Returns a packet that starts when all packets before it have ended, waits until the value of
/// `until` is 0, if there is such a signal, and does nothing else. It has no fences.
pub fn barrier(until: Option<Signal>, completion: Signal) -> [u64; 8] {
    let header = u64::from(PACKET_BARRIER | u16::from(PACKET_BARRIER_AND));
    let until = until.map_or(0, |signal| signal.0);
    [header, until, 0, 0, 0, 0, 0, completion.0]
}

/// Sends what was stored in packets out to the device now. If the application rings the doorbell
/// afterwards, that has the same effect.
#[inline]
pub fn flush() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction only orders stores, and every x86-64 processor has it.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the instruction only orders stores. A fence of the language orders them for other
    // processors (`ish`), and the device is outside their domain.
    unsafe {
        std::arch::asm!("dmb oshst", options(nostack, preserves_flags));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_read_as_it_lies_in_the_ring() {
        #[repr(C, align(64))]
        struct Ring([[u64; 8]; 2]);
        let ring = Ring([
            [1; 8],
            [
                0x0040_0100_0003_1102 | 1 << 16,
                0x0000_1000_0000_0004,
                0x0000_0002_0000_0003,
                0x0000_0006_0000_0005,
                0xabcd,
                7,
                8,
                0x9000,
            ],
        ]);
        let at = ring.0.as_ptr().expose_provenance() as u64;
        // SAFETY: this is a ring of two packets, to which nothing writes.
        let (first, second) = unsafe { (Packet::at(at, 2, 4).read(), Packet::at(at, 2, 5).read()) };
        assert_eq!(first, Image([1; 8]));
        assert_eq!(first.kind(), PACKET_INVALID);
        assert_eq!(second.kind(), PACKET_DISPATCH);
        assert!(second.is_after_all());
        assert_eq!(second.completion(), Signal(0x9000));
        let dispatch = second.dispatch();
        assert_eq!(dispatch.workgroup, [0x100, 0x40, 4]);
        assert_eq!(dispatch.grid, [0x1000, 3, 2]);
        assert_eq!((dispatch.private_segment, dispatch.group_segment), (5, 6));
        assert_eq!(dispatch.kernel_object, 0xabcd);
    }

    fn image(header: u16, fields: &[(usize, &[u8])]) -> Image {
        let mut bytes = [0; 64];
        bytes[..2].copy_from_slice(&header.to_le_bytes());
        for (at, field) in fields {
            bytes[*at..at + field.len()].copy_from_slice(field);
        }
        let word = |n: usize| u64::from_le_bytes(bytes[8 * n..][..8].try_into().unwrap());
        Image(std::array::from_fn(word))
    }

    #[test]
    fn a_dispatch_as_a_vendor_packet_has_its_grid_in_clusters() {
        let packet = image(
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
        assert_eq!(packet.kind(), PACKET_VENDOR);
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

    #[test]
    fn a_dispatch_of_three_dimensions_is_no_vendor_packet() {
        assert!(!image(0x0102, &[(2, &[3, 0])]).was_vendor_dispatch());
    }

    #[test]
    fn formats_that_nobody_explained_are_told_by_their_number() {
        for (format, what) in [
            (1, VendorFormat::NoDispatch),
            (2, VendorFormat::Barrier),
            (0xFE, VendorFormat::NoDispatch),
            (0, VendorFormat::Unknown(0)),
            (4, VendorFormat::Unknown(4)),
            (200, VendorFormat::Unknown(200)),
        ] {
            assert_eq!(image(0, &[(2, &[format, 0])]).vendor_format(), what);
        }
    }
}
