//! The format OTF2 (Open Trace Format 2), which Vampir, Scalasca and other tools of
//! high-performance computing read.
//!
//! A trace is an archive: `results.otf2` names its parts, `results.def` has the definitions, and the
//! directory `results` a file of events for each location. A location is a thread, a queue or a
//! stream, or what else has a row of its own. Calls and work are regions, which are entered and
//! left, with attributes. Counters of devices are metrics. Times are nanoseconds of the boot clock.
//!
//! Events of a location have to be in the order of their times, and records are not. They are sorted
//! in memory, and in files where they are many ([`sort`]).
//!
//! The files are written without the library. Sources: `docs/sources.md#otf2`. Decision: FMT-036
//! (`docs/deviations/formats.md`).

mod attributes;
mod bytes;
mod definitions;
mod locations;
mod rows;
mod sort;

use crate::files::{FileSet, NewArchive, OutputFile, WriteError};
use crate::formats::json::pieces;
use crate::job::Job;
use crate::lanes::Rule;
use crate::sink::{Opened, Sink, Writer};
use attributes::{Attributes, Name};
use definitions::{Definitions, Domain, GroupType, LocationType};
use foldhash::fast::RandomState;
use locations::{Locations, Written};
use midair_agents::AgentType;
use midair_trace::cuda::devices::ordinal;
use sort::{Event, Sorter};
use std::collections::HashMap;
use std::path::PathBuf;

/// The most rows of a process. What belongs to further ones is on one row. Libotf2 opens the files
/// of all locations at once, and a process may usually open 1024.
const MOST_ROWS: usize = 900;
/// The most calls and kernels whose regions are remembered.
const MOST_NAMES: usize = 1 << 14;

/// The versions in the anchor file: the format's, and the version of the library whose files ours
/// are like.
const VERSION: [u8; 5] = [3, 2, 3, 0, 2];
/// The files are ordinary ones (`OTF2_SUBSTRATE_POSIX`), and not compressed.
const SUBSTRATE: [u8; 2] = [1, 1];

/// The writer.
struct Otf2 {
    /// Where events are sorted.
    directory: PathBuf,
    anchor: OutputFile,
    archive: NewArchive,
    definitions: Definitions,
    attributes: Attributes,
    /// Machines by their names, and devices by machine, process and node. The process is 0 where
    /// nodes have the same numbers in all processes.
    machines: HashMap<String, u32>,
    devices: HashMap<(u32, u32, u32), u32>,
    /// The number of the next location.
    next: u64,
    /// The times of the first and the last event.
    times: Option<(u64, u64)>,
    /// Tells this archive from others.
    identity: u64,
}

/// What there is besides the anchor: the directory of the events, and the definitions.
pub(crate) const FURTHER: [&str; 2] = ["results", "results.def"];

/// Starts the files.
pub(crate) fn open<'a>(_jobs: &'a [Job<'a>], files: &FileSet) -> Opened<'a> {
    Ok(Box::new(Otf2 {
        directory: files.directory().to_owned(),
        anchor: files.create("results.otf2")?,
        archive: files.folder().archive("results")?,
        definitions: Definitions::begin(files.create("results.def")?)?,
        attributes: Attributes::new(),
        machines: HashMap::new(),
        devices: HashMap::new(),
        next: 0,
        times: None,
        identity: 0xcbf2_9ce4_8422_2325,
    }))
}

impl Writer for Otf2 {
    fn begin<'s>(&'s mut self, job: &'s Job<'s>) -> Result<Box<dyn Sink + 's>, WriteError> {
        let process = &job.trace.process;
        for word in [
            process.node.hash(),
            u64::from(process.pid),
            process.init_time,
        ] {
            self.identity = (self.identity ^ word).wrapping_mul(0x0100_0000_01b3);
        }
        let machine = self.machine(&process.node.hostname)?;
        let group = self.process(job, machine)?;
        let sorter = Sorter::new(&self.directory);
        Ok(Box::new(Session {
            job,
            out: self,
            machine,
            group,
            groups: HashMap::default(),
            sorter,
            rows: HashMap::default(),
            keys: Vec::new(),
            calls: HashMap::default(),
            kernels: HashMap::default(),
            by_queue: job.plan.group_by_queue || job.index.is_without_hip(),
        }))
    }

    fn finish(self: Box<Self>, files: &mut FileSet) -> Result<(), WriteError> {
        let (first, last) = self.times.unwrap_or((0, 0));
        let (definitions, count) = self.definitions.end(first, last)?;
        let mut content = b"OTF2\0".to_vec();
        content.extend_from_slice(&VERSION);
        for size in [locations::CHUNK, definitions::CHUNK] {
            content.extend_from_slice(&(size as u64).to_le_bytes());
        }
        content.extend_from_slice(&SUBSTRATE);
        content.extend_from_slice(&self.next.to_le_bytes());
        content.extend_from_slice(&count.to_le_bytes());
        // Machine, creator and description.
        bytes::text(&mut content, "");
        bytes::text(&mut content, concat!("midair ", env!("CARGO_PKG_VERSION")));
        bytes::text(&mut content, "");
        // No properties. They belong to the processes, of which there may be several.
        content.extend_from_slice(&0_u32.to_le_bytes());
        content.extend_from_slice(&self.identity.to_le_bytes());
        // No snapshots and no thumbnails.
        content.extend_from_slice(&[0; 8]);
        let mut anchor = self.anchor;
        anchor.put(&[3, b'B'])?;
        anchor.put(&content)?;
        anchor.put(&[2, 1, 0])?;
        files.add_archive(self.archive);
        files.add(definitions)?;
        files.add(anchor)
    }
}

impl Otf2 {
    fn machine(&mut self, host: &str) -> Result<u32, WriteError> {
        if let Some(machine) = self.machines.get(host) {
            return Ok(*machine);
        }
        let definitions = &mut self.definitions;
        let machine = definitions.tree_node(host, "machine", Domain::Machine, None)?;
        self.machines.insert(host.to_owned(), machine);
        Ok(machine)
    }

    /// Describes the process, and what is to be known about its records.
    fn process(&mut self, job: &Job<'_>, machine: u32) -> Result<u32, WriteError> {
        let process = &job.trace.process;
        let program = process.command.first().map_or("", String::as_str);
        let program = program.rsplit('/').next().unwrap_or(program);
        let name = format!("{program} ({})", process.pid);
        let definitions = &mut self.definitions;
        let group = definitions.group(&name, GroupType::Process, machine, None)?;
        let notes = pieces::midair(job).map_err(|error| self.anchor.failed(error))?;
        let rank = process.place.rank.map(|rank| rank.to_string());
        let own = [
            ("pid", process.pid.to_string()),
            ("command", process.command.join(" ")),
            ("begin_ns", process.init_time.to_string()),
            ("end_ns", process.fini_time.to_string()),
        ];
        for (name, value) in own.into_iter().chain(rank.map(|rank| ("rank", rank))) {
            definitions.property(group, name, &value)?;
        }
        for (key, value) in notes {
            definitions.property(group, &format!("midair.{key}"), &value)?;
        }
        Ok(group)
    }
}

/// A row: what has a location of its own, or several where it overlaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Row {
    /// Calls and markers of a thread.
    Thread(u32),
    /// Ranges of the process, which need not end on the thread that started them.
    Ranges,
    /// Records of a domain that take the same time as the calls of their threads.
    Own(u8),
    /// Changes of scratch memory on a node.
    Scratch(u32),
    /// Kernels and copies of a stream on a node.
    Stream(u64, u32),
    /// Kernels of a queue on a node.
    Queue { node: u32, queue: u32 },
    /// Copies to a node that a thread requested.
    CopyTo { node: u32, tid: u32 },
    /// Counters of a node.
    Counters(u32),
    /// Samples of a GPU.
    Samples(u32),
    /// All rows beyond the limit.
    Others,
}

impl Row {
    fn rule(self) -> Rule {
        match self {
            Row::Thread(_) => Rule::Nested,
            _ => Rule::Apart,
        }
    }

    /// Returns its place among the other rows of the process.
    fn rank(self) -> u32 {
        match self {
            Row::Thread(_) => 0,
            Row::Ranges => 1,
            Row::Own(_) | Row::Scratch(_) => 2,
            Row::Stream(..) | Row::Queue { .. } => 3,
            Row::CopyTo { .. } => 4,
            Row::Counters(_) => 5,
            Row::Samples(_) => 6,
            Row::Others => 7,
        }
    }

    /// Returns the node whose work it has.
    fn node(self) -> Option<u32> {
        match self {
            Row::Stream(_, node)
            | Row::Queue { node, .. }
            | Row::CopyTo { node, .. }
            | Row::Counters(node) => Some(node),
            _ => None,
        }
    }

    fn location_type(self) -> LocationType {
        match self {
            Row::Stream(..) | Row::Queue { .. } | Row::CopyTo { .. } => LocationType::Stream,
            Row::Counters(_) | Row::Samples(_) => LocationType::Metric,
            _ => LocationType::Thread,
        }
    }
}

/// The bits of a row's number that tell it from others of its rank.
const BITS: u32 = 24;

/// The events of one process.
struct Session<'s> {
    job: &'s Job<'s>,
    out: &'s mut Otf2,
    machine: u32,
    group: u32,
    /// The groups of locations on devices, by node.
    groups: HashMap<u32, u32, RandomState>,
    sorter: Sorter,
    rows: HashMap<Row, u32, RandomState>,
    keys: Vec<Row>,
    /// Regions of calls and of kernels.
    calls: HashMap<(u8, u32), u32, RandomState>,
    kernels: HashMap<u64, u32, RandomState>,
    by_queue: bool,
}

impl Session<'_> {
    /// Returns the number of a row. Rows are sorted by their numbers.
    fn row(&mut self, row: Row) -> u32 {
        if let Some(number) = self.rows.get(&row) {
            return *number;
        }
        let row = match self.keys.len() {
            full if full >= MOST_ROWS => Row::Others,
            _ => row,
        };
        let next = row.rank() << BITS | self.keys.len() as u32;
        let number = *self.rows.entry(row).or_insert(next);
        if number == next {
            self.keys.push(row);
        }
        number
    }

    fn push(&mut self, event: Event<'_>) -> Result<(), WriteError> {
        // A time with all bits set stands for none.
        let (start, end) = (event.start.min(u64::MAX - 1), event.end.min(u64::MAX - 1));
        let end = end.max(start);
        let event = Event {
            start,
            end,
            ..event
        };
        let (first, last) = self.out.times.unwrap_or((start, end));
        self.out.times = Some((first.min(start), last.max(end)));
        let pushed = self.sorter.push(event);
        pushed.map_err(|error| self.out.anchor.failed(error))
    }

    /// Writes all events, row by row, and then describes the locations.
    fn write(&mut self) -> Result<(), WriteError> {
        let none = Sorter::new(&self.out.directory);
        let sorter = std::mem::replace(&mut self.sorter, none);
        let Session { job, out, keys, .. } = self;
        let Otf2 {
            anchor,
            archive,
            definitions,
            attributes,
            next,
            ..
        } = &mut **out;
        let end = attributes.number_of(definitions, Name::End)?;
        let mut present: Option<(u32, Row, Locations<'_>)> = None;
        let mut written: Vec<(Row, Vec<Written>)> = Vec::new();
        sorter.each(
            |error| anchor.failed(error),
            |event| {
                if present.as_ref().is_none_or(|(row, ..)| *row != event.row) {
                    if let Some((_, row, locations)) = present.take() {
                        written.push((row, locations.end()?));
                    }
                    let at = event.row & ((1 << BITS) - 1);
                    let row = keys.get(at as usize).copied().unwrap_or(Row::Others);
                    let locations = Locations::begin(archive, row.rule(), end);
                    present = Some((event.row, row, locations));
                }
                match &mut present {
                    Some((_, _, locations)) => locations.put(event, next),
                    None => Ok(()),
                }
            },
        )?;
        if let Some((_, row, locations)) = present {
            written.push((row, locations.end()?));
        }
        // Libotf2 reads no archive without locations.
        if written.is_empty() {
            let row = Row::Thread(job.trace.process.pid);
            let mut locations = Locations::begin(archive, row.rule(), end);
            locations.first(next)?;
            written.push((row, locations.end()?));
        }
        for (row, lanes) in written {
            let name = self.name(row);
            let group = self.group(row)?;
            for (at, lane) in (1..).zip(lanes) {
                let name = match at {
                    1 => name.clone(),
                    _ => format!("{name} ({at})"),
                };
                let of = row.location_type();
                let definitions = &mut self.out.definitions;
                definitions.location(lane.number, &name, of, lane.events, group)?;
            }
        }
        Ok(())
    }

    fn name(&self, row: Row) -> String {
        let job = self.job;
        match row {
            Row::Thread(tid) => match job.trace.process.threads.get(&tid) {
                Some(name) => format!("Thread {tid} ({name})"),
                None => format!("Thread {tid}"),
            },
            Row::Ranges => "Ranges of the process".to_owned(),
            Row::Own(kind) => job.names.kind(kind).to_lowercase().replace('_', " "),
            Row::Scratch(node) => format!("Scratch memory of {}", job.agent_name(node)),
            Row::Stream(number, node) => format!("{}, Stream {number}", job.agent_name(node)),
            Row::Queue { node, queue } => format!("{}, Queue {queue}", job.agent_name(node)),
            Row::CopyTo { node, tid } => {
                format!("Thread {tid}, Copy to {}", job.agent_name(node))
            }
            Row::Counters(node) => format!("{}, Counters", job.agent_name(node)),
            Row::Samples(index) => format!("GPU {index}, Samples"),
            Row::Others => "(further rows)".to_owned(),
        }
    }

    /// Returns the group of a row's locations: the process, or its part of a device.
    fn group(&mut self, row: Row) -> Result<u32, WriteError> {
        let job = self.job;
        let is_device = |node: &u32| match job.agent(*node) {
            Some(agent) => agent.agent_type == AgentType::Gpu,
            None => ordinal(*node).is_some(),
        };
        let Some(node) = row.node().filter(is_device) else {
            return Ok(self.group);
        };
        if let Some(group) = self.groups.get(&node) {
            return Ok(*group);
        }
        // A device of CUDA has another number in each process.
        let (process, class) = match job.index.is_cuda() {
            true => (job.trace.process.pid, "NVIDIA GPU"),
            false => (0, "AMD GPU"),
        };
        let name = job.agent_name(node);
        let key = (self.machine, process, node);
        let tree_node = match self.out.devices.get(&key) {
            Some(tree_node) => *tree_node,
            None => {
                let product = job.agent(node).map_or("", |agent| &agent.product_name);
                let shown = match product {
                    "" => name.clone(),
                    product => format!("{name} ({product})"),
                };
                let (definitions, machine) = (&mut self.out.definitions, Some(self.machine));
                let of = Domain::AcceleratorDevice;
                let tree_node = definitions.tree_node(&shown, class, of, machine)?;
                self.out.devices.insert(key, tree_node);
                tree_node
            }
        };
        let (definitions, process) = (&mut self.out.definitions, Some(self.group));
        let group = definitions.group(&name, GroupType::Accelerator, tree_node, process)?;
        self.groups.insert(node, group);
        Ok(group)
    }
}
