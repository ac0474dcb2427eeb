//! Samples of program counters, as AMD's tool leaves them in a workload directory since 3.7: a JSON file of each
//! process, `<pid>_ps_file_results.json`. (Source: `docs/sources.md#compute`.)
//!
//! A file may have gigabytes, so that samples are added up while it is read.

use crate::files::{self, file_name, unreadable, unusable};
use crate::frame::{Column, Filling, Frame, field};
use crate::read::csv::Dispatches;
use midair_failure::Failure;
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// What follows the process's number in a file's name.
const END: &str = "ps_file_results.json";
/// The most bytes of a file, and the most places of instructions of all dispatches together.
const MOST: u64 = 8 << 30;
const PLACES: usize = 4 << 20;
/// The most kinds of one instruction that are counted separately.
const KINDS: usize = 32;
const NOT_ISSUED: &str = "ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_";
const TYPE: &str = "ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_";
/// Why a wave did not issue. Other words are no reasons.
pub(crate) const REASONS: [&str; 11] = [
    "NONE",
    "NO_INSTRUCTION_AVAILABLE",
    "ALU_DEPENDENCY",
    "WAITCNT",
    "INTERNAL_INSTRUCTION",
    "BARRIER_WAIT",
    "ARBITER_NOT_WIN",
    "ARBITER_WIN_EX_STALL",
    "OTHER_WAIT",
    "SLEEP_WAIT",
    "LAST",
];

/// The samples of a process at one instruction, in one kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The process.
    pub pid: u64,
    /// The code object, by its number in that process.
    pub code_object: u64,
    /// Bytes from the start of the code object.
    pub offset: u64,
    /// The kernel, where its dispatch is known.
    pub kernel: Option<String>,
    /// The instruction as text.
    pub instruction: Option<String>,
    /// Its place in the sources.
    pub source: Option<String>,
    /// How many samples there are.
    pub count: u64,
    /// In how many of them the wave issued the instruction. None: the method does not say.
    pub issued: Option<u64>,
    /// Why it did not, the most frequent first.
    pub reasons: Vec<(&'static str, u64)>,
    /// The types of instructions, the most frequent first.
    pub kinds: Vec<(String, u64)>,
}

impl Line {
    /// In how many samples the wave did not issue the instruction.
    pub fn stalled(&self) -> Option<u64> {
        self.issued.map(|issued| self.count.saturating_sub(issued))
    }
}

/// A dispatch of a process.
#[derive(Debug)]
struct Ran {
    number: u64,
    kernel: Option<String>,
    gpu: u64,
    start: i64,
    end: i64,
}

/// The samples of a directory.
#[derive(Debug, Default)]
pub struct Samples {
    /// By process, code object, offset and kernel.
    pub lines: Vec<Line>,
    /// Where each process's code objects were loaded.
    pub bases: BTreeMap<(u64, u64), Option<u64>>,
    ran: Vec<Ran>,
}

impl Samples {
    /// Reads the files of a directory, by the numbers of the processes.
    ///
    /// # Errors
    /// When a file is damaged or too large, or two are of one process.
    pub(crate) fn read(found: &[PathBuf]) -> Result<Samples, Failure> {
        let process = |file: &PathBuf| {
            let name = file_name(file);
            let before = name.strip_suffix(END)?;
            match before.strip_suffix('_') {
                Some(pid) => pid.parse::<u64>().ok(),
                // Until 3.8.
                None => before.is_empty().then_some(0),
            }
        };
        let mut all: Vec<(u64, &PathBuf)> = found
            .iter()
            .filter_map(|file| Some((process(file)?, file)))
            .collect();
        all.sort();
        let mut samples = Samples::default();
        let mut known: HashMap<u64, &PathBuf> = HashMap::new();
        for (_, path) in all {
            for tool in parsed(path)? {
                if let Some(other) = known.insert(tool.metadata.pid, path) {
                    return Err(unusable(format!(
                        "{} and {} are both of process {}",
                        other.display(),
                        path.display(),
                        tool.metadata.pid
                    ))
                    .hint("remove one of the files"));
                }
                samples.add(tool);
            }
        }
        Ok(samples)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.ran.is_empty()
    }

    fn add(&mut self, tool: Tool) {
        let pid = tool.metadata.pid;
        let names: HashMap<u64, &str> = tool
            .kernel_symbols
            .iter()
            .map(|symbol| (symbol.kernel_id, symbol.formatted_kernel_name.as_str()))
            .collect();
        let name = |kernel: u64| names.get(&kernel).map(|name| (*name).to_owned());
        let mut gpus: Vec<(u64, u64)> = tool
            .agents
            .iter()
            .filter(|agent| agent.kind == 2)
            .map(|agent| (agent.node_id, agent.id.handle))
            .collect();
        gpus.sort_unstable();
        let gpu = |handle: u64| gpus.iter().position(|(_, known)| *known == handle);
        let mut kernels = HashMap::new();
        for dispatch in &tool.buffer_records.kernel_dispatch {
            let info = &dispatch.dispatch_info;
            kernels.insert(info.dispatch_id, info.kernel_id);
            self.ran.push(Ran {
                number: info.dispatch_id,
                kernel: name(info.kernel_id),
                gpu: gpu(info.agent_id.handle).unwrap_or(0) as u64,
                start: dispatch.start_timestamp,
                end: dispatch.end_timestamp,
            });
        }
        for object in &tool.code_objects {
            self.bases
                .insert((pid, object.code_object_id), object.load_base);
        }
        let text = |all: &[String], index: u64| {
            let text = usize::try_from(index).ok().and_then(|at| all.get(at));
            text.filter(|text| !text.is_empty()).cloned()
        };
        let mut lines: BTreeMap<(u64, u64, Option<String>), Sum> = BTreeMap::new();
        let records = tool.buffer_records;
        for sums in [records.pc_sample_stochastic, records.pc_sample_host_trap] {
            for ((object, offset, dispatch), sum) in sums.0 {
                let kernel = dispatch.and_then(|dispatch| kernels.get(&dispatch));
                let kernel = kernel.and_then(|kernel| name(*kernel));
                lines.entry((object, offset, kernel)).or_default().join(sum);
            }
        }
        for ((code_object, offset, kernel), sum) in lines {
            let mut reasons: Vec<(&str, u64)> = REASONS
                .into_iter()
                .zip(sum.reasons)
                .filter(|(_, count)| *count > 0)
                .collect();
            reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            let mut kinds = sum.kinds;
            kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            self.bases.entry((pid, code_object)).or_default();
            self.lines.push(Line {
                pid,
                code_object,
                offset,
                kernel,
                instruction: text(&tool.strings.pc_sample_instructions, sum.index),
                source: text(&tool.strings.pc_sample_comments, sum.index),
                count: sum.count,
                issued: sum.is_issue_known.then_some(sum.issued),
                reasons,
                kinds,
            });
        }
    }

    /// Returns the dispatches as a frame, for a directory without counters.
    pub(crate) fn frame(&self) -> Frame {
        let mut dispatches = Dispatches::default();
        let (mut numbers, mut gpus) = (Filling::default(), Filling::default());
        for (row, ran) in self.ran.iter().enumerate() {
            let name = ran.kernel.as_deref().unwrap_or("unknown");
            let is_timed = ran.start > 0 && ran.end >= ran.start;
            dispatches.kernel.push(dispatches.names.number(name));
            dispatches
                .start
                .push(if is_timed { ran.start } else { i64::MIN });
            dispatches
                .end
                .push(if is_timed { ran.end } else { i64::MIN });
            // Each process numbers its own.
            numbers.push(match self.bases.keys().next() == self.bases.keys().last() {
                true => ran.number as f64,
                false => row as f64,
            });
            gpus.push(ran.gpu as f64);
        }
        let rows = self.ran.len();
        let mut frame = dispatches.frame();
        frame.put(field::DISPATCH, numbers.finish(rows));
        frame.put(
            field::GPU,
            match rows {
                0 => Column::Same(0.0),
                rows => gpus.finish(rows),
            },
        );
        frame
    }
}

fn parsed(path: &Path) -> Result<Vec<Tool>, Failure> {
    let file = files::open(path).map_err(|error| unreadable(path, &error))?;
    let bytes = file.metadata().map_or(0, |found| found.len());
    if bytes > MOST {
        let most = MOST >> 30;
        return Err(unusable(format!(
            "{} has more than {most} GiB",
            path.display()
        )));
    }
    // It may grow while it is read.
    let file: File = serde_json::from_reader(BufReader::with_capacity(1 << 20, file.take(MOST)))
        .map_err(|error| {
            unreadable(path, &error).hint("the file is damaged or incomplete: profile again")
        })?;
    // AMD's tool reads the first.
    Ok(file.tools.into_iter().take(1).collect())
}

#[derive(Deserialize)]
struct File {
    #[serde(rename = "rocprofiler-sdk-tool")]
    tools: Vec<Tool>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Tool {
    metadata: Metadata,
    agents: Vec<Agent>,
    strings: Strings,
    kernel_symbols: Vec<Symbol>,
    code_objects: Vec<CodeObject>,
    buffer_records: Records,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Metadata {
    pid: u64,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Handle {
    handle: u64,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Agent {
    #[serde(rename = "type")]
    kind: u64,
    node_id: u64,
    id: Handle,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Strings {
    pc_sample_instructions: Vec<String>,
    pc_sample_comments: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Symbol {
    kernel_id: u64,
    formatted_kernel_name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CodeObject {
    code_object_id: u64,
    load_base: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Records {
    kernel_dispatch: Vec<Dispatch>,
    pc_sample_stochastic: Sums,
    pc_sample_host_trap: Sums,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Dispatch {
    start_timestamp: i64,
    end_timestamp: i64,
    dispatch_info: Info,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Info {
    dispatch_id: u64,
    kernel_id: u64,
    agent_id: Handle,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Sample {
    record: Record,
    inst_index: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Record {
    pc: Pc,
    dispatch_id: Option<u64>,
    wave_issued: Option<Flag>,
    inst_type: Option<String>,
    snapshot: Option<Snapshot>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Pc {
    code_object_id: Option<u64>,
    code_object_offset: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Snapshot {
    stall_reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Flag {
    Word(bool),
    Number(u64),
}

/// What the samples at one place have in common.
#[derive(Default)]
struct Sum {
    /// The place of the instruction's text.
    index: u64,
    count: u64,
    is_issue_known: bool,
    issued: u64,
    reasons: [u64; REASONS.len()],
    kinds: Vec<(String, u64)>,
}

impl Sum {
    fn add(&mut self, index: u64, record: Record) {
        if self.count == 0 {
            self.index = index;
        }
        self.count += 1;
        if let Some(issued) = record.wave_issued {
            self.is_issue_known = true;
            let issued = matches!(issued, Flag::Word(true) | Flag::Number(1..));
            self.issued += u64::from(issued);
        }
        let reason = record.snapshot.and_then(|it| it.stall_reason);
        let reason = reason.as_deref().and_then(|it| it.strip_prefix(NOT_ISSUED));
        if let Some(at) = reason.and_then(|it| REASONS.iter().position(|known| *known == it)) {
            self.reasons[at] += 1;
        }
        if let Some(kind) = record
            .inst_type
            .as_deref()
            .and_then(|it| it.strip_prefix(TYPE))
        {
            self.count_kind(kind, 1);
        }
    }

    fn count_kind(&mut self, kind: &str, count: u64) {
        if let Some((_, known)) = self.kinds.iter_mut().find(|(known, _)| known == kind) {
            *known += count;
        } else if self.kinds.len() < KINDS {
            self.kinds.push((kind.to_owned(), count));
        }
    }

    fn join(&mut self, other: Sum) {
        if self.count == 0 {
            self.index = other.index;
        }
        self.count += other.count;
        self.is_issue_known |= other.is_issue_known;
        self.issued += other.issued;
        for (into, count) in self.reasons.iter_mut().zip(other.reasons) {
            *into += count;
        }
        for (kind, count) in &other.kinds {
            self.count_kind(kind, *count);
        }
    }
}

/// Sums by code object, offset and dispatch.
#[derive(Default)]
struct Sums(HashMap<(u64, u64, Option<u64>), Sum>);

impl<'de> Deserialize<'de> for Sums {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Sums, D::Error> {
        deserializer.deserialize_seq(Adds)
    }
}

struct Adds;

impl<'de> Visitor<'de> for Adds {
    type Value = Sums;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of samples")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Sums, A::Error> {
        let mut sums = Sums::default();
        while let Some(sample) = all.next_element::<Sample>()? {
            let pc = &sample.record.pc;
            // A sample whose place or whose instruction is not known can be shown nowhere.
            let (Some(object), Some(offset), Some(index)) =
                (pc.code_object_id, pc.code_object_offset, sample.inst_index)
            else {
                continue;
            };
            let key = (object, offset, sample.record.dispatch_id);
            if sums.0.len() >= PLACES && !sums.0.contains_key(&key) {
                return Err(serde::de::Error::custom(
                    "it has too many sampled instructions",
                ));
            }
            sums.0.entry(key).or_default().add(index, sample.record);
        }
        Ok(sums)
    }
}
