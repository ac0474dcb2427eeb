//! Which kernel an instruction belongs to.

use midair_domain::KindSet;
use midair_record::event::{PcSample, Record, kind};
use midair_trace::index::Index;
use midair_trace::record_file::RecordFile;
use std::collections::HashMap;
use std::convert::Infallible;

/// The kinds of samples.
pub(crate) const SAMPLES: KindSet =
    KindSet::of(&[kind::PC_SAMPLING_HOST_TRAP, kind::PC_SAMPLING_STOCHASTIC]);
/// The most instructions that are counted by themselves. A target can invent any number.
const MOST: usize = 1 << 22;

/// The instructions of a session that were sampled, each once.
#[derive(Debug, Default)]
pub(crate) struct Sampled {
    places: HashMap<(u64, u64), u32>,
    instructions: Vec<String>,
    comments: Vec<String>,
}

impl Sampled {
    /// Reads the samples. `text` makes an instruction's text and its line in the sources.
    pub(crate) fn read(
        records: &RecordFile,
        mut text: impl FnMut(&PcSample) -> (String, String),
    ) -> Sampled {
        let mut all = Sampled::default();
        if !records.index().has(SAMPLES) {
            return all;
        }
        // What cannot be read is reported when the records themselves are written.
        let _ = records.walk::<Infallible>(
            |kind| SAMPLES.contains(kind),
            |record| {
                if let Record::PcSample(sample) = record
                    && sample.is_in_files()
                    && all.places.len() < MOST
                {
                    let next = all.places.len() as u32;
                    let place = (sample.code_object_id, sample.offset);
                    all.places.entry(place).or_insert_with(|| {
                        let (instruction, comment) = text(sample);
                        all.instructions.push(instruction);
                        all.comments.push(comment);
                        next
                    });
                }
                Ok(())
            },
        );
        all
    }

    /// Returns the number of a sample's instruction.
    pub(crate) fn index(&self, sample: &PcSample) -> Option<u32> {
        let place = (sample.code_object_id, sample.offset);
        self.places.get(&place).copied()
    }

    /// Returns the instructions by their numbers.
    pub(crate) fn instructions(&self) -> &[String] {
        &self.instructions
    }

    /// Returns the lines in the sources by the same numbers; empty where they are not known.
    pub(crate) fn comments(&self) -> &[String] {
        &self.comments
    }
}

/// The kernels of a session in the order of their addresses.
#[derive(Debug, Default)]
pub(crate) struct Code {
    /// The address of the first instruction, the code object, and the kernel.
    kernels: Vec<(u64, u64, u64)>,
}

impl Code {
    pub(crate) fn of(index: &Index) -> Code {
        let mut kernels: Vec<(u64, u64, u64)> = index
            .symbols
            .values()
            .map(|symbol| {
                let it = &symbol.record;
                let entry = it.kernel_object.wrapping_add_signed(it.entry_offset);
                (entry, it.code_object_id, it.kernel_id)
            })
            .collect();
        kernels.sort_unstable();
        Code { kernels }
    }

    /// Returns the id of the kernel that a sample is in, and the offset from its first instruction:
    /// the kernel of the same code object that starts last before it. A function that kernels call
    /// counts as a part of the kernel before it.
    pub(crate) fn kernel(&self, sample: &PcSample) -> Option<(u64, u64)> {
        let after = self
            .kernels
            .partition_point(|(entry, ..)| *entry <= sample.pc);
        let before = self.kernels.get(..after)?;
        let (entry, _, id) = before
            .iter()
            .rev()
            .find(|(_, object, _)| *object == sample.code_object_id)?;
        Some((*id, sample.pc - entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_in_the_kernel_before_it() {
        let code = Code {
            kernels: vec![(100, 1, 7), (150, 2, 8), (200, 1, 9)],
        };
        let at = |pc, code_object_id| {
            code.kernel(&PcSample {
                pc,
                code_object_id,
                ..PcSample::default()
            })
        };
        assert_eq!(at(99, 1), None);
        assert_eq!(at(100, 1), Some((7, 0)));
        assert_eq!(
            at(160, 1),
            Some((7, 60)),
            "the other code object's is between"
        );
        assert_eq!(at(160, 2), Some((8, 10)));
        assert_eq!(at(208, 1), Some((9, 8)));
        assert_eq!(at(208, 0), None);
    }
}
