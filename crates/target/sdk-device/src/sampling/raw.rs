//! A sample in the bytes that the runtime passes (`perf_sample_hosttrap_v1_t`,
//! `perf_sample_snapshot_v1_t`; source: `docs/sources.md#samples`).

/// Bytes of a sample.
pub(super) const BYTES: usize = 64;

/// A sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Raw {
    pub pc: u64,
    pub exec_mask: u64,
    pub workgroup: [u32; 3],
    /// The wave in its workgroup (6 bits), and the die from bit 8 on.
    pub wave: u32,
    pub hw_id: u32,
    pub snapshot: [u32; 3],
    pub time: u64,
    /// The packet's index modulo the ring's size (25 bits), and the doorbell from bit 32 on.
    pub packet: u64,
}

impl Raw {
    /// Reads one.
    pub(super) fn of(bytes: &[u8; BYTES]) -> Raw {
        let (words, _) = bytes.as_chunks::<4>();
        let half = |n: usize| words.get(n).map_or(0, |word| u32::from_le_bytes(*word));
        let whole = |n: usize| u64::from(half(n)) | u64::from(half(n + 1)) << 32;
        Raw {
            pc: whole(0),
            exec_mask: whole(2),
            workgroup: [half(4), half(5), half(6)],
            wave: half(7),
            hw_id: half(8),
            snapshot: [half(9), half(10), half(11)],
            time: whole(12),
            packet: whole(14),
        }
    }
    /// Returns the packet's place in its ring, for rings of up to 2^25 packets.
    pub(super) fn slot(&self) -> u64 {
        self.packet & 0x1ff_ffff
    }
    /// Returns the doorbell's number in the process.
    pub(super) fn doorbell(&self) -> u32 {
        (self.packet >> 32) as u32 & 0x3ff
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_header_has_them() {
        let mut bytes = [0; BYTES];
        for (n, byte) in bytes.iter_mut().enumerate() {
            *byte = n as u8;
        }
        let raw = Raw::of(&bytes);
        assert_eq!(raw.pc, 0x0706_0504_0302_0100);
        assert_eq!(raw.workgroup[2], 0x1b1a_1918);
        assert_eq!((raw.wave, raw.hw_id), (0x1f1e_1d1c, 0x2322_2120));
        assert_eq!(raw.snapshot[2], 0x2f2e_2d2c);
        assert_eq!(raw.time, 0x3736_3534_3332_3130);
        assert_eq!((raw.slot(), raw.doorbell()), (0x13a_3938, 0x13c));
    }
}
