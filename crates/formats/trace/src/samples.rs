//! Words for what stochastic samples say, as AMD's files have them (`docs/sources.md#samples`).

use midair_record::event::PcSample;

const TYPES: [&str; 14] = [
    "ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_VALU",
    "ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_MATRIX",
    "ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_SCALAR",
    "ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_TEX",
    "ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_LDS",
    "ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_FLAT",
    "ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_EXPORT",
    "ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_MESSAGE",
    "ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_BARRIER",
    "ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_BRANCH_NOT_TAKEN",
    "ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_BRANCH_TAKEN",
    "ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_JUMP",
    "ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_OTHER",
    "ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_NO_INST",
];

const REASONS: [&str; 8] = [
    "ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_NO_INSTRUCTION_AVAILABLE",
    "ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_ALU_DEPENDENCY",
    "ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_WAITCNT",
    "ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_INTERNAL_INSTRUCTION",
    "ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_BARRIER_WAIT",
    "ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_ARBITER_NOT_WIN",
    "ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_ARBITER_WIN_EX_STALL",
    "ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_OTHER_WAIT",
];

const NO_TYPE: &str = "ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_NONE";
const NO_REASON: &str = "ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_NONE";

/// Returns the type of the instruction.
pub fn instruction_type(sample: &PcSample) -> &'static str {
    let number = sample.instruction_type() as usize;
    TYPES.get(number).copied().unwrap_or(NO_TYPE)
}

/// Returns why no instruction was issued.
pub fn stall_reason(sample: &PcSample) -> &'static str {
    if sample.has_issued() {
        return NO_REASON;
    }
    let number = sample.stall_reason() as usize;
    REASONS.get(number).copied().unwrap_or(NO_REASON)
}

/// Where a wave ran, out of a gfx9's register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are the hardware's words")]
pub struct HwId {
    pub chiplet: u32,
    pub wave: u32,
    pub simd: u32,
    pub pipe: u32,
    pub unit: u32,
    pub array: u32,
    pub engine: u32,
    pub workgroup: u32,
    pub vm: u32,
    pub queue: u32,
    pub microengine: u32,
}

impl HwId {
    /// Reads the register.
    pub fn of(sample: &PcSample) -> HwId {
        let bits = |from: u32, count: u32| sample.hw_id >> from & ((1 << count) - 1);
        HwId {
            chiplet: sample.chiplet,
            wave: bits(0, 4),
            simd: bits(4, 2),
            pipe: bits(6, 2),
            unit: bits(8, 4),
            array: bits(12, 1),
            engine: bits(13, 3),
            workgroup: bits(16, 4),
            vm: bits(20, 4),
            queue: bits(24, 3),
            microengine: bits(30, 2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_register_has_its_parts() {
        let sample = PcSample {
            hw_id: 1 << 30
                | 5 << 24
                | 6 << 20
                | 7 << 16
                | 3 << 13
                | 1 << 12
                | 9 << 8
                | 2 << 6
                | 3 << 4
                | 8,
            ..PcSample::default()
        };
        let id = HwId::of(&sample);
        assert_eq!((id.wave, id.simd, id.pipe, id.unit), (8, 3, 2, 9));
        assert_eq!((id.array, id.engine, id.workgroup), (1, 3, 7));
        assert_eq!((id.vm, id.queue, id.microengine), (6, 5, 1));
    }

    #[test]
    fn bits_have_names() {
        let of = |bits: u32| {
            let sample = PcSample {
                snapshot: [bits, 0, 0],
                ..PcSample::default()
            };
            (instruction_type(&sample), stall_reason(&sample))
        };
        let (kind, why) = of(1 | 4 << 3 | 2 << 7);
        assert!(kind.ends_with("_TYPE_LDS") && why.ends_with("_WAITCNT"));
        let (kind, why) = of(3 | 15 << 3 | 2 << 7);
        assert_eq!((kind, why), (NO_TYPE, NO_REASON));
    }
}
