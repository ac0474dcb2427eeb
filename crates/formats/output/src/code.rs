//! The instructions that were sampled.

use midair_domain::KindSet;
use midair_record::event::{PcSample, Record, kind};
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
