//! Samples of program counters: words for what they say, as AMD's files have them
//! (`docs/sources.md#samples`), and how many there are of each instruction.

use foldhash::fast::RandomState;
use midair_failure::plain;
use midair_record::event::{CodeObject, Instruction, KernelSymbol, PcSample};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The most instructions that are counted by themselves. A target can invent any number.
const MOST_PLACES: usize = 1 << 18;

/// The kernels of a session in the order of their addresses.
#[derive(Debug, Clone, Default)]
pub struct Kernels {
    /// By the address of the first instruction and the code object.
    entries: BTreeMap<(u64, u64), u64>,
}

impl Kernels {
    /// Makes them of the descriptions of kernels.
    pub fn of<'s>(symbols: impl Iterator<Item = &'s KernelSymbol>) -> Kernels {
        let mut kernels = Kernels::default();
        symbols.for_each(|symbol| kernels.add(symbol));
        kernels
    }

    /// Adds a kernel.
    pub fn add(&mut self, symbol: &KernelSymbol) {
        let entry = symbol
            .kernel_object
            .wrapping_add_signed(symbol.entry_offset);
        let place = (entry, symbol.code_object_id);
        self.entries.insert(place, symbol.kernel_id);
    }

    /// Returns the id of the kernel that an instruction of a code object is in, and the offset from the
    /// kernel's first instruction: the kernel that starts last before it. A function that kernels
    /// call counts as a part of the kernel before it.
    pub fn find(&self, code_object_id: u64, pc: u64) -> Option<(u64, u64)> {
        let before = self.entries.range(..=(pc, u64::MAX)).rev();
        let ((entry, _), id) = { before }.find(|((_, object), _)| *object == code_object_id)?;
        Some((*id, pc - entry))
    }
}

/// The samples of a session by instruction.
#[derive(Debug, Clone, Default)]
pub struct Samples {
    /// By code object and address.
    counts: HashMap<(u64, u64), u64, RandomState>,
    /// The code objects of these.
    objects: BTreeSet<u64>,
}

/// The instructions of a session that have a text.
#[derive(Debug, Clone, Default)]
pub struct Instructions {
    /// By code object and offset in it.
    texts: HashMap<(u64, u64), Text, RandomState>,
}

/// An instruction's text, and its line in the sources as `file:line`. The line is empty if it is not known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are what the type says")]
pub struct Text {
    pub instruction: String,
    pub line: String,
}

impl Text {
    /// Returns both as they follow the name of a place: `: s_endpgm (job/vadd.hip:7)`.
    pub fn in_words(&self) -> String {
        let instruction = match self.instruction.as_str() {
            "" => String::new(),
            instruction => format!(": {instruction}"),
        };
        match self.short_line() {
            "" => instruction,
            line => format!("{instruction} ({line})"),
        }
    }

    /// Returns the line with the last two parts of its path.
    pub fn short_line(&self) -> &str {
        let before = self.line.rmatch_indices('/').nth(1);
        let from = before.map_or(0, |(at, _)| at + 1);
        self.line.get(from..).unwrap_or_default()
    }
}

impl Instructions {
    /// Adds an instruction.
    pub(crate) fn add(&mut self, of: &Instruction, text: &[u8], line: &[u8]) {
        if self.texts.len() < MOST_PLACES {
            let show = |bytes| plain::line(&String::from_utf8_lossy(bytes)).into_owned();
            let text = Text {
                instruction: show(text),
                line: show(line),
            };
            self.texts.insert((of.code_object_id, of.offset), text);
        }
    }

    /// Returns the text of the instruction at this offset of a code object.
    pub fn get(&self, code_object_id: u64, offset: u64) -> Option<&Text> {
        self.texts.get(&(code_object_id, offset))
    }

    /// Returns the text of the instruction at an offset of a kernel of this code object.
    pub fn of_kernel(&self, kernel: &KernelSymbol, object: &CodeObject, at: u64) -> Option<&Text> {
        let entry = kernel
            .kernel_object
            .wrapping_add_signed(kernel.entry_offset);
        let offset = entry.wrapping_add(at).wrapping_sub(object.load_base);
        self.get(object.code_object_id, offset)
    }

    /// Returns the text of a sample's instruction.
    pub fn of(&self, sample: &PcSample) -> Option<&Text> {
        self.get(sample.code_object_id, sample.offset)
    }

    /// Returns all by code object and offset, in any order.
    pub fn all(&self) -> impl Iterator<Item = ((u64, u64), &Text)> {
        self.texts.iter().map(|(place, text)| (*place, text))
    }
}

/// The instruction of a kernel with the most samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hottest {
    /// The kernel.
    pub kernel: u64,
    /// Its offset from the kernel's first instruction.
    pub offset: u64,
    /// Its samples.
    pub count: u64,
    /// The samples of the whole kernel.
    pub all: u64,
}

impl Samples {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Adds a sample.
    pub fn add(&mut self, sample: &PcSample) {
        let place = (sample.code_object_id, sample.pc);
        if sample.is_in_files()
            && (self.counts.len() < MOST_PLACES || self.counts.contains_key(&place))
        {
            *self.counts.entry(place).or_default() += 1;
            self.objects.insert(sample.code_object_id);
        }
    }

    /// Returns the code objects that have samples. 0 is none.
    pub fn objects(&self) -> &BTreeSet<u64> {
        &self.objects
    }

    /// Returns the instructions of a code object by their addresses, with the samples of each.
    pub fn of_object(&self, id: u64) -> BTreeMap<u64, u64> {
        let all = self.counts.iter().filter(|((object, _), _)| *object == id);
        all.map(|((_, pc), count)| (*pc, *count)).collect()
    }

    /// Returns the hottest instruction of each kernel, the kernel with the most samples first.
    pub fn hottest(&self, kernels: &Kernels) -> Vec<Hottest> {
        let mut all: BTreeMap<u64, Hottest> = BTreeMap::new();
        for ((object, pc), count) in &self.counts {
            let Some((kernel, offset)) = kernels.find(*object, *pc) else {
                continue;
            };
            let hottest = all.entry(kernel).or_insert(Hottest {
                kernel,
                offset,
                count: 0,
                all: 0,
            });
            hottest.all += count;
            // Of equal ones the first.
            if (*count, hottest.offset) > (hottest.count, offset) {
                (hottest.offset, hottest.count) = (offset, *count);
            }
        }
        let mut all: Vec<Hottest> = all.into_values().collect();
        all.sort_by_key(|it| (std::cmp::Reverse(it.all), it.kernel));
        all
    }
}

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

/// Why a wave issued no instruction, by the device's numbers.
pub const REASONS: [&str; 8] = [
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

    fn symbol(kernel_id: u64, entry: u64, code_object_id: u64) -> KernelSymbol {
        KernelSymbol {
            kernel_id,
            code_object_id,
            kernel_object: entry - 64,
            entry_offset: 64,
            ..KernelSymbol::default()
        }
    }

    #[test]
    fn an_instruction_is_in_the_kernel_before_it() {
        let symbols = [symbol(9, 200, 1), symbol(7, 100, 1), symbol(8, 150, 2)];
        let kernels = Kernels::of(symbols.iter());
        assert_eq!(kernels.find(1, 99), None);
        assert_eq!(kernels.find(1, 100), Some((7, 0)));
        // The other code object's kernel is between.
        assert_eq!(kernels.find(1, 160), Some((7, 60)));
        assert_eq!(kernels.find(2, 160), Some((8, 10)));
        assert_eq!(kernels.find(1, 208), Some((9, 8)));
        assert_eq!(kernels.find(0, 208), None);
    }

    #[test]
    fn the_hottest_instruction_of_each_kernel_is_known() {
        let symbols = [symbol(7, 100, 1), symbol(9, 200, 1)];
        let mut samples = Samples::default();
        for (pc, count) in [(100, 2), (108, 3), (116, 3), (200, 9), (50, 20)] {
            for _ in 0..count {
                samples.add(&PcSample {
                    pc,
                    code_object_id: 1,
                    ..PcSample::default()
                });
            }
        }
        let of = |kernel, offset, count, all| Hottest {
            kernel,
            offset,
            count,
            all,
        };
        assert_eq!(
            samples.hottest(&Kernels::of(symbols.iter())),
            [of(9, 0, 9, 9), of(7, 8, 3, 8)]
        );
    }

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
