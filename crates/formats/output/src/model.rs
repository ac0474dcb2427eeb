//! The input of the writers: a session, and the plan of what to write.

use crate::files::Numbering;
use crate::gpu::GpuSamples;
use crate::options::{AgentIndex, Format, Frames, KernelNames, PerfettoBuffers, SummaryTo, Unit};
use crate::process::{Outcome, Process};
use midair_agents::Agent;
use midair_counters::value::Values;
use midair_counters::{CounterPlan, Dimension, Position};
use midair_trace::kernel_filter::KernelFilter;
use midair_trace::range_names::GivenRanges;
use midair_trace::record_file::RecordFile;
use midair_trace::steps::{MainLoop, main_loop};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What a session cost the process and the machine, as far as that was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// The longest time for which a thread of the process was stopped so that it could be entered.
    /// Zero where none was stopped. `None` where that is not known, because the process recorded
    /// itself.
    pub longest_stop: Option<Duration>,
    /// Processor time of our thread in the process during the session.
    pub in_process: Option<Duration>,
    /// Processor time of the attaching program during the session.
    pub beside: Option<Duration>,
}

/// What the attaching side knows about a session besides its records. It is for people to read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attach {
    /// The process as the user knows it, where that is not its pid in its own namespace.
    pub pid: Option<u32>,
    /// When it started, in local time, or empty where that is not known.
    pub began: String,
    /// The same in nanoseconds since 1970, for the start of the times of the [`Process`]; 0 where it is
    /// not known.
    pub began_ns: u64,
    /// What it cost.
    pub cost: Cost,
    /// How long the session was, ns, where its records cover only the part of it that the times of
    /// the [`Process`] tell.
    pub session_ns: Option<u64>,
    /// For how long within the times of the [`Process`] nothing was recorded, ns: in pauses of the
    /// program, or outside of collection periods.
    pub unrecorded_ns: u64,
    /// The files of code objects, by the objects' numbers, where thread traces need them.
    pub code: BTreeMap<u64, Arc<[u8]>>,
}

/// What a database says of dispatches beyond their records.
#[derive(Debug, Clone, Default)]
pub struct KnownOfDispatches {
    /// What they counted, if there are no windows. Only json and pftrace show it.
    pub counts: KnownCounts,
    /// The ranges in which they were launched. Where it says nothing, ranges are found by the times of
    /// doorbells.
    pub ranges: GivenRanges,
}

/// What dispatches counted, where it comes as values and not as windows: from a database.
#[derive(Debug, Clone, Default)]
pub struct KnownCounts {
    /// The counters, by their numbers.
    counters: BTreeMap<u64, KnownCounter>,
    of: HashMap<u64, Vec<KnownValue>>,
}

/// The number of a counter, and what was counted at a place.
type KnownValue = (u64, Position, f64);

/// A counter of a database.
#[derive(Debug, Clone, Default)]
pub struct KnownCounter {
    /// The node of its agent.
    pub node: u32,
    /// Its name.
    pub name: String,
    /// What it counts.
    pub description: String,
    /// The block of the hardware that counts it.
    pub block: String,
    /// What it is computed of, if it is computed.
    pub expression: String,
    /// Whether it is computed.
    pub is_derived: bool,
}

impl KnownCounts {
    /// Adds a counter with its number.
    pub fn describe(&mut self, id: u64, counter: KnownCounter) {
        self.counters.insert(id, counter);
    }

    /// Adds what a dispatch counted at a place: its XCC, its shader engine, its instance.
    pub fn add(&mut self, dispatch_id: u64, counter: u64, place: [u32; 3], value: f64) {
        let [xcc, engine, instance] = place;
        let place = Position::default()
            .with(Dimension::Xcc, xcc)
            .with(Dimension::ShaderEngine, engine)
            .with(Dimension::Instance, instance);
        let values = self.of.entry(dispatch_id).or_default();
        values.push((counter, place, value));
    }

    /// Whether no dispatch counted anything.
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Returns what a dispatch counted: the numbers of the counters, their names, the values, by name.
    pub(crate) fn of(&self, dispatch_id: u64) -> Option<Vec<(u64, &str, Values)>> {
        let mut all: BTreeMap<(&str, u64), Values> = BTreeMap::new();
        for (id, place, value) in self.of.get(&dispatch_id)? {
            let name = self.counters.get(id)?.name.as_str();
            let values = all.entry((name, *id)).or_default();
            values.push((*place, *value));
        }
        let all = all.into_iter();
        Some(all.map(|((name, id), values)| (id, name, values)).collect())
    }

    /// Returns the counters with their numbers, in the order of their agents and names.
    pub(crate) fn counters(&self) -> impl Iterator<Item = (u64, &KnownCounter)> {
        let mut all: Vec<_> = self.counters.iter().map(|(id, of)| (*id, of)).collect();
        all.sort_by(|(_, a), (_, b)| (a.node, &a.name).cmp(&(b.node, &b.name)));
        all.into_iter()
    }

    /// Returns the places at which counters have values, sorted.
    pub(crate) fn places(&self) -> BTreeMap<u64, Values> {
        let mut all: BTreeMap<u64, BTreeSet<Position>> = BTreeMap::new();
        for (id, place, _) in self.of.values().flatten() {
            all.entry(*id).or_default().insert(*place);
        }
        let values = |places: BTreeSet<Position>| places.into_iter().map(|at| (at, 0.0)).collect();
        let all = all.into_iter();
        all.map(|(id, places)| (id, values(places))).collect()
    }
}

/// A finished session.
#[derive(Debug)]
pub struct Trace {
    /// What is known of dispatches beyond their records.
    pub known: KnownOfDispatches,
    /// The process.
    pub process: Process,
    /// The machine's CPUs and GPUs.
    pub agents: Vec<Agent>,
    /// The records of what happened.
    pub records: RecordFile,
    /// Records that were dropped because there was no free memory for them: what they were ("kernel
    /// dispatches"), and how many.
    pub lost: Vec<(String, u64)>,
    /// Errors of the attaching side that did not end the session, in words. The target's errors are
    /// in the records.
    pub notes: Vec<String>,
    /// How the session ended.
    pub outcome: Outcome,
    /// The counters that were asked for. The windows of counters are read with this plan.
    pub counters: CounterPlan,
    /// Samples of a whole GPU that were taken meanwhile.
    pub gpu: Option<GpuSamples>,
    /// What is known about the attach.
    pub attach: Attach,
}

impl Trace {
    /// Finds the program's main loop, if all of the time was recorded: an iteration in which nothing was
    /// recorded for a time would look idle.
    pub(crate) fn main_loop(&self) -> Option<MainLoop> {
        let index = self.records.index();
        let is_whole = index.bursts.coverage().is_none() && self.attach.unrecorded_ns == 0;
        is_whole
            .then(|| main_loop(&index.launched, &index.stacks))
            .flatten()
    }
}

/// What to write and where.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Directory, expanded; made if absent.
    pub directory: PathBuf,
    /// First part of each file's name, expanded; may contain directories.
    pub prefix: String,
    /// Whether the files take the place of others. If not, and results have the prefix, a number is
    /// added to it.
    pub numbering: Numbering,
    /// Directory as the user gave it (reported in json's `config`).
    pub raw_directory: String,
    /// First part as the user gave it.
    pub raw_prefix: String,
    /// Which formats.
    pub formats: Vec<Format>,
    /// How kernels are named.
    pub kernel_names: KernelNames,
    /// Which frames of stacks flame graphs have.
    pub frames: Frames,
    /// Whether dispatches are named after the ROCTx ranges in which they were launched.
    pub rename_kernels: bool,
    /// Which dispatches are in the results.
    pub kernel_filter: KernelFilter,
    /// Whether dispatches were recorded only so that counters can refer to them.
    pub hide_kernels: bool,
    /// How agents are named.
    pub agent_index: AgentIndex,
    /// Whether statistics are written with csv and json.
    pub stats: bool,
    /// Whether there is a table of all domains.
    pub summary: bool,
    /// Whether there is a table of each domain.
    pub summary_per_domain: bool,
    /// Expressions for further tables. Each table has the domains whose whole names match
    /// ([`check_group`](crate::check_group)).
    pub summary_groups: Vec<String>,
    /// Where these tables go.
    pub summary_to: SummaryTo,
    /// The unit of times in these tables.
    pub summary_unit: Unit,
    /// Whether pftrace has kernels by queue and copies by thread, instead of both by stream.
    pub group_by_queue: bool,
    /// Whether the settings are written into a file of their own.
    pub config_file: bool,
    /// Whether that file has what ran, and is the only one.
    pub profile: bool,
    /// No files are written where fewer bytes were recorded.
    pub minimum_bytes: u64,
    /// The most threads that write ([`threads`](crate::threads)). None and one are the same.
    pub threads: usize,
    /// What each process is labelled with in a profile for pprof: keys and texts, in the order of the
    /// parts.
    pub labels: Vec<Vec<(String, String)>>,
    /// What the user said about Perfetto's buffers. It is only reported in json's `config`.
    pub perfetto: PerfettoBuffers,
}

impl Plan {
    /// Whether these records are so few that no files are wanted (`--minimum-output-data`).
    pub fn is_too_little<'a>(&self, records: impl Iterator<Item = &'a RecordFile>) -> bool {
        self.minimum_bytes > 0 && records.map(RecordFile::bytes).sum::<u64>() < self.minimum_bytes
    }

    /// Whether any table is asked for.
    pub fn has_summary(&self) -> bool {
        self.summary || self.summary_per_domain || !self.summary_groups.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_record::event::note;
    use midair_trace::record_file::RecordWriter;

    #[test]
    fn files_are_written_from_the_least_number_of_bytes_on() {
        let records = || {
            let mut writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
            writer.append(&note("something")).unwrap();
            writer.finish().unwrap()
        };
        let [first, second] = [records(), records()];
        let bytes = first.bytes();
        assert!(bytes > 8 && second.bytes() == bytes, "{bytes}");
        let is_too_little = |minimum_bytes, records: &[&RecordFile]| {
            let plan = Plan {
                minimum_bytes,
                ..Plan::default()
            };
            plan.is_too_little(records.iter().copied())
        };
        for (least, of_one, of_both) in [
            (bytes - 1, false, false),
            (bytes, false, false),
            (bytes + 1, true, false),
            (2 * bytes, true, false),
            (2 * bytes + 1, true, true),
        ] {
            assert_eq!(is_too_little(least, &[&first]), of_one, "{least}");
            assert_eq!(is_too_little(least, &[&first, &second]), of_both, "{least}");
        }
        // None are wanted, and there are none.
        assert!(!is_too_little(0, &[]) && is_too_little(1, &[]));
    }
}
