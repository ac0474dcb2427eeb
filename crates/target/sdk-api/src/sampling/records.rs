//! AMD's records of samples, as words (`rocprofiler_pc_sampling_record_*`). Their fields are bits, which
//! are put together here.

use midair_abi::constants as c;
use midair_record::event::{PcSample, kind};

/// A record: its words, and how many there are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Words {
    words: [u64; 13],
    count: usize,
}

impl Words {
    pub fn as_slice(&self) -> &[u64] {
        self.words.get(..self.count).unwrap_or_default()
    }
}

/// Bytes of the records.
const HOST_TRAP: u64 = 88;
const STOCHASTIC: u64 = 104;
const INVALID: u64 = 8;

/// Returns a sample's kind (`rocprofiler_pc_sampling_record_kind_t`) and its record.
pub(crate) fn of(sample: &PcSample) -> (u32, Words) {
    let [x, y, z] = sample.workgroup.map(u64::from);
    let (kind, words): (i32, &[u64]) = if sample.header.kind != kind::PC_SAMPLING_STOCHASTIC {
        (
            c::ROCPROFILER_PC_SAMPLING_RECORD_HOST_TRAP_V0_SAMPLE,
            &[
                HOST_TRAP,
                hw_id(sample),
                sample.code_object_id,
                sample.offset,
                sample.exec_mask,
                sample.time,
                sample.dispatch_id,
                sample.correlation,
                0,
                x | y << 32,
                z | u64::from(sample.wave_in_group & 0xff) << 32,
            ],
        )
    } else if sample.is_valid() {
        (
            c::ROCPROFILER_PC_SAMPLING_RECORD_STOCHASTIC_V0_SAMPLE,
            &[
                STOCHASTIC,
                u64::from(sample.wave_in_group & 0xff) << 8
                    | u64::from(sample.has_issued()) << 16
                    | instruction_type(sample) << 17,
                hw_id(sample),
                sample.code_object_id,
                sample.offset,
                sample.exec_mask,
                x | y << 32,
                z | u64::from(sample.wave_count()) << 32,
                sample.time,
                sample.dispatch_id,
                sample.correlation,
                0,
                snapshot(sample),
            ],
        )
    } else {
        (c::ROCPROFILER_PC_SAMPLING_RECORD_INVALID_SAMPLE, &[INVALID])
    };
    let mut all = Words {
        words: [0; 13],
        count: words.len(),
    };
    for (to, word) in all.words.iter_mut().zip(words) {
        *to = *word;
    }
    (kind as u32, all)
}

/// `rocprofiler_pc_sampling_hw_id_v0_t`: the position of each field there, and the position and the
/// number of its bits in a gfx9's register.
const HW_ID: [(u32, u32, u32); 10] = [
    (6, 0, 4),
    (13, 4, 2),
    (15, 6, 2),
    (19, 8, 4),
    (23, 12, 1),
    (24, 13, 3),
    (29, 16, 4),
    (36, 20, 4),
    (42, 24, 3),
    (46, 30, 2),
];

fn hw_id(sample: &PcSample) -> u64 {
    let fields = HW_ID.iter().map(|(to, from, bits)| {
        let value = sample.hw_id >> from & ((1 << bits) - 1);
        u64::from(value) << to
    });
    fields.fold(u64::from(sample.chiplet & 0x3f), |all, field| all | field)
}

/// The device's types in AMD's numbers, which have LDS_DIRECT between.
fn instruction_type(sample: &PcSample) -> u64 {
    match sample.instruction_type() {
        before @ 0..=4 => u64::from(before) + 1,
        after @ 5..=13 => u64::from(after) + 2,
        _ => 0,
    }
}

/// The arbiter's bits (misc, export, flat, LDS, vector memory, scalar, matrix, VALU) in AMD's order:
/// VALU, matrix, LDS, LDS_DIRECT, scalar, vector memory, flat, export, misc, brmsg.
const ARBITER: [Option<u32>; 10] = [
    Some(7),
    Some(6),
    Some(3),
    None,
    Some(5),
    Some(4),
    Some(2),
    Some(1),
    Some(0),
    None,
];

fn snapshot(sample: &PcSample) -> u64 {
    let reason = if sample.has_issued() {
        0
    } else {
        u64::from(sample.stall_reason()) + 1
    };
    let state = |from: u32, to: u32| {
        let bits = (to..).zip(ARBITER).filter_map(|(to, bit)| {
            let on = sample.arbiter() >> (from + bit?) & 1;
            Some(u64::from(on) << to)
        });
        bits.fold(0, |all, bit| all | bit)
    };
    reason | state(0, 5) | state(8, 16) | u64::from(sample.has_issued_two()) << 27
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_record::event::Header;

    fn sample(kind: u8, snapshot: u32) -> PcSample {
        PcSample {
            header: Header {
                kind,
                ..Header::default()
            },
            time: 7,
            exec_mask: 6,
            dispatch_id: 8,
            correlation: 9,
            code_object_id: 3,
            offset: 0x40,
            hw_id: 1 << 30 | 9 << 8 | 5,
            wave_in_group: 2,
            chiplet: 4,
            workgroup: [10, 11, 12],
            snapshot: [snapshot, 17, 0],
            ..PcSample::default()
        }
    }

    #[test]
    fn a_host_trap_sample_has_amds_words() {
        let (kind, words) = of(&sample(kind::PC_SAMPLING_HOST_TRAP, 0));
        assert_eq!(kind, 2);
        let hw_id = 4 | 5 << 6 | 9 << 19 | 1 << 46;
        assert_eq!(
            words.as_slice(),
            [
                88,
                hw_id,
                3,
                0x40,
                6,
                7,
                8,
                9,
                0,
                10 | 11 << 32,
                12 | 2 << 32
            ]
        );
    }

    #[test]
    fn a_stochastic_sample_has_amds_words() {
        // Valid, waits for memory (2), a flat instruction (5); VALU issued, LDS stalled.
        let bits = 1 | 5 << 3 | 2 << 7 | 1 << 17 | 1 << 21;
        let (kind, words) = of(&sample(kind::PC_SAMPLING_STOCHASTIC, bits));
        assert_eq!((kind, words.as_slice().len()), (3, 13));
        assert_eq!(words.as_slice()[1], 2 << 8 | 7 << 17);
        assert_eq!(words.as_slice()[7], 12 | 17 << 32);
        assert_eq!(words.as_slice()[12], 3 | 1 << 5 | 1 << 18);
        let (kind, words) = of(&sample(kind::PC_SAMPLING_STOCHASTIC, 0));
        assert_eq!((kind, words.as_slice()), (1, &[8][..]));
    }
}
