//! Flame graphs below the kernel: a kernel's time by the instructions that were sampled in it.
//!
//! A sample belongs to the launch of its dispatch. A kernel that was launched at a stack has its time split
//! by the samples of these launches, and if there are none, by all samples of the kernel. The parts add up
//! to the time exactly.

use super::folded::Named;
use crate::code::SAMPLES;
use crate::job::Job;
use midair_record::event::{PcSample, Record, kind};
use midair_trace::frame_names::Part;
use midair_trace::samples;
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;

/// The most different instructions, with their stacks and reasons, that are counted by themselves. A target
/// can invent any number.
const MOST: usize = 1 << 20;

/// What a sample says: the instruction, and what its wave did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Sampled {
    /// From the kernel's first instruction.
    offset: u64,
    /// From the code object's load address, by which the instruction has its text.
    place: u64,
    object: u64,
    /// Why the wave issued no instruction; that it did; none for samples by host traps.
    reason: Option<&'static str>,
}

/// The samples of a session by kernel.
#[derive(Debug, Default)]
pub(crate) struct Below {
    /// By kernel and the stack of the launch.
    by_launch: HashMap<(u64, u32), BTreeMap<Sampled, u64>>,
    /// By kernel.
    all: HashMap<u64, BTreeMap<Sampled, u64>>,
}

impl Below {
    /// Reads the samples.
    pub(crate) fn read(job: &Job<'_>) -> Below {
        let mut below = Below::default();
        if !job.index.has(SAMPLES) {
            return below;
        }
        let mut left = MOST;
        // What cannot be read is reported when the records themselves are written.
        let _ = job.trace.records.walk::<Infallible>(
            |kind| SAMPLES.contains(kind),
            |record| {
                if let Record::PcSample(sample) = record
                    && sample.is_in_files()
                    && let Some((kernel, offset)) = job.code.find(sample.code_object_id, sample.pc)
                {
                    let stacks = &job.index.stacks;
                    let stack = stacks.of_work(sample.correlation, sample.dispatch_id);
                    let sampled = Sampled {
                        offset,
                        place: sample.offset,
                        object: sample.code_object_id,
                        reason: reason(sample),
                    };
                    for counts in [
                        below.by_launch.entry((kernel, stack)).or_default(),
                        below.all.entry(kernel).or_default(),
                    ] {
                        if left > 0 || counts.contains_key(&sampled) {
                            let count = counts.entry(sampled).or_default();
                            left = left.saturating_sub(usize::from(*count == 0));
                            *count += 1;
                        }
                    }
                }
                Ok(())
            },
        );
        below
    }

    /// Splits the time of a kernel that was launched at a stack. Empty if it has no samples.
    pub(crate) fn split(&self, kernel: u64, stack: u32, time: u64) -> Vec<(Sampled, u64)> {
        let own = self.by_launch.get(&(kernel, stack));
        let Some(counts) = own.or(self.all.get(&kernel)) else {
            return Vec::new();
        };
        let all: u128 = counts.values().map(|count| u128::from(*count)).sum();
        let (mut before, mut given) = (0_u128, 0);
        let parts = counts.iter().map(|(sampled, count)| {
            before += u128::from(*count);
            // At most the time itself.
            let until = (u128::from(time) * before / all.max(1)) as u64;
            let part = until - given;
            given = until;
            (*sampled, part)
        });
        parts.collect()
    }
}

fn reason(sample: &PcSample) -> Option<&'static str> {
    (sample.header.kind == kind::PC_SAMPLING_STOCHASTIC).then(|| match sample.has_issued() {
        true => "issued",
        false => samples::stall_reason(sample),
    })
}

impl Sampled {
    /// Returns the line in the sources as file and number, the instruction, and why it stalls. Each is one
    /// frame.
    pub(crate) fn parts(&self, job: &Job<'_>) -> (Option<(String, u32)>, String, Option<String>) {
        let text = job.index.instructions.get(self.object, self.place);
        let line = text.and_then(|text| {
            let (file, line) = text.line.rsplit_once(':')?;
            Some((file.to_owned(), line.parse().ok()?))
        });
        let instruction = text.map_or("", |text| text.instruction.as_str());
        let instruction = format!("+{:#x} {instruction}", self.offset);
        (
            line,
            instruction.trim_end().to_owned(),
            self.reason.map(in_words),
        )
    }

    /// Returns the frames below the kernel.
    pub(crate) fn frames(&self, job: &Job<'_>) -> Vec<Named> {
        let (_, instruction, reason) = self.parts(job);
        let text = job.index.instructions.get(self.object, self.place);
        let line = text.map_or("", |text| text.short_line());
        let line = (!line.is_empty()).then(|| line.to_owned());
        let names = line.into_iter().chain([instruction]).chain(reason);
        let marked = names.map(|name| (format!("{name}{MARK}"), Some(Part::Sampled)));
        marked.collect()
    }
}

/// The end of the names of frames whose widths are from samples.
pub(crate) const MARK: &str = " (sampled)";

/// The start of AMD's words for the reasons.
const REASON: &str = "ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_";

fn in_words(reason: &str) -> String {
    match reason.strip_prefix(REASON) {
        Some(reason) => format!("stalled: {}", reason.to_lowercase().replace('_', " ")),
        None => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_add_up_to_the_time() {
        let sampled = |offset| Sampled {
            offset,
            place: offset,
            object: 1,
            reason: None,
        };
        let mut below = Below::default();
        let counts = BTreeMap::from([(sampled(0), 1), (sampled(8), 3), (sampled(16), 3)]);
        below.all.insert(7, counts);
        below
            .by_launch
            .insert((7, 2), BTreeMap::from([(sampled(8), 5)]));
        for time in [0, 1, 6, 1000, u64::MAX] {
            let parts = below.split(7, 1, time);
            assert_eq!(parts.iter().map(|(_, part)| part).sum::<u64>(), time);
            let exact = |count: u64| time as f64 * count as f64 / 7.0;
            for ((_, part), count) in parts.iter().zip([1, 3, 3]) {
                assert!((*part as f64 - exact(count)).abs() <= 1.0 + exact(1) * 1e-9);
            }
        }
        // A stack with samples of its own.
        assert_eq!(below.split(7, 2, 9), [(sampled(8), 9)]);
        assert!(below.split(8, 1, 9).is_empty());
    }

    #[test]
    fn reasons_are_in_words() {
        assert_eq!(
            in_words(&format!("{REASON}ALU_DEPENDENCY")),
            "stalled: alu dependency"
        );
        assert_eq!(in_words("issued"), "issued");
    }
}
