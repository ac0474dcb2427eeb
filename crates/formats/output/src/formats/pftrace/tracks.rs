//! The tracks on which slices are shown, and the lanes of each.

use super::messages::{ProcessDescriptor, ThreadDescriptor, TrackDescriptor};
use super::packets::Packets;
use crate::files::WriteError;
use crate::job::{AgentName, Job};
use crate::lanes::{Lane, Rule};
use foldhash::fast::RandomState;
use midair_domain::Track;
use midair_record::event::kind;
use midair_trace::cuda::stream_parts;
use std::collections::HashMap;

/// The most lanes of one track. Further ones share one, in which slices may cross.
const MOST_LANES: usize = 1024;
/// The most tracks and lanes of a trace. Further ones share one ([`TrackKey::Others`]), since a
/// target can name any number of threads.
const MOST: usize = 1 << 15;

/// Identifies a track by what it shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum TrackKey {
    /// Calls and markers of a thread.
    Thread(u32),
    /// Kernels and copies of a stream on a node, by its number. The default stream is separate for
    /// each GPU.
    Stream(u64, u32),
    /// Kernels of a queue on a node.
    Compute { node: u32, queue: u32 },
    /// Copies to a node that a thread requested.
    CopyTo { node: u32, tid: u32 },
    /// ROCTx ranges of the process, which need not end on the thread that started them.
    Ranges,
    /// Records of a domain with a track of its own. They take the same time as the calls of their
    /// threads, and would hide these.
    Own(u8),
    /// Changes of scratch memory on a node.
    Scratch(u32),
    /// Iterations of the program's main loop.
    Steps,
    /// The phases of these.
    Phases,
    /// All tracks beyond the limit.
    Others,
}

impl TrackKey {
    fn rule(self) -> Rule {
        match self {
            TrackKey::Thread(_) => Rule::Nested,
            _ => Rule::Apart,
        }
    }

    /// Returns numbers that identify the track within the process.
    fn parts(self) -> [u64; 3] {
        match self {
            TrackKey::Thread(tid) => [1, u64::from(tid), 0],
            TrackKey::Stream(number, node) => [2, number, u64::from(node)],
            TrackKey::Compute { node, queue } => [3, u64::from(node), u64::from(queue)],
            TrackKey::CopyTo { node, tid } => [4, u64::from(node), u64::from(tid)],
            TrackKey::Ranges => [5, 0, 0],
            // The numbers of tracks stay the same in all versions.
            TrackKey::Own(kind::MEMORY_ALLOCATION) => [6, 0, 0],
            TrackKey::Own(kind::SYNCHRONIZATION) => [8, 0, 0],
            TrackKey::Own(kind::UNIFIED_MEMORY) => [9, 0, 0],
            TrackKey::Own(kind) => [10, u64::from(kind), 0],
            TrackKey::Scratch(node) => [7, u64::from(node), 0],
            TrackKey::Others => [11, 0, 0],
            TrackKey::Steps => [12, 0, 0],
            TrackKey::Phases => [13, 0, 0],
        }
    }
}

/// A lane, and its track once that is described.
#[derive(Debug, Default)]
struct Shown {
    lane: Lane,
    track: Option<u64>,
}

/// The tracks of a trace.
#[derive(Debug, Default)]
pub(super) struct Tracks {
    lanes: HashMap<TrackKey, Vec<Shown>, RandomState>,
    /// The number of lanes of all tracks.
    count: usize,
    /// The numbers of threads other than the main one, in the order in which they appear.
    threads: HashMap<u32, u64>,
}

impl Tracks {
    /// Describes the process and its main thread.
    pub(super) fn begin(&mut self, job: &Job<'_>, out: &mut Packets<'_>) -> Result<(), WriteError> {
        let process = &job.trace.process;
        let name = process.command.first().cloned();
        out.track(TrackDescriptor {
            uuid: Some(out.process()),
            process: Some(ProcessDescriptor {
                pid: i32::try_from(process.pid).ok(),
                cmdline: process.command.clone(),
                process_name: name,
            }),
            ..TrackDescriptor::default()
        })?;
        self.first(job, out, TrackKey::Thread(process.pid))
            .map(drop)
    }

    /// Returns the track for a slice with these times.
    pub(super) fn lane(
        &mut self,
        job: &Job<'_>,
        out: &mut Packets<'_>,
        key: TrackKey,
        start: u64,
        end: u64,
    ) -> Result<u64, WriteError> {
        // Nearly always a lane takes it that is there already and described.
        let lanes = self.lanes.get_mut(&key).map_or(&mut [][..], |all| all);
        let mut taken = lanes.iter_mut();
        let (key, number) = match taken.position(|it| it.lane.take(key.rule(), start, end)) {
            Some(number) => match lanes.get(number).and_then(|shown| shown.track) {
                Some(track) => return Ok(track),
                None => (key, number),
            },
            None => self.further(key, start, end),
        };
        let track = self.describe(job, out, key, number)?;
        let lane = self.lanes.get_mut(&key).and_then(|all| all.get_mut(number));
        if let Some(shown) = lane {
            shown.track = Some(track);
        }
        Ok(track)
    }

    /// Returns the lane for a slice that no lane of the track has taken, as its track and number.
    fn further(&mut self, key: TrackKey, start: u64, end: u64) -> (TrackKey, usize) {
        let key = self.within_limit(key);
        let lanes = self.lanes.entry(key).or_default();
        let mut take = |shown: &mut Shown| shown.lane.take(key.rule(), start, end);
        // The track that stands for all others was not asked yet.
        let number = match lanes.iter_mut().position(&mut take) {
            Some(number) => number,
            None if lanes.is_empty() || (lanes.len() < MOST_LANES && self.count < MOST) => {
                let mut shown = Shown::default();
                take(&mut shown);
                lanes.push(shown);
                self.count += 1;
                lanes.len() - 1
            }
            None => MOST_LANES,
        };
        (key, number)
    }

    /// Returns the first lane of a track, for events that take no time.
    pub(super) fn first(
        &mut self,
        job: &Job<'_>,
        out: &mut Packets<'_>,
        key: TrackKey,
    ) -> Result<u64, WriteError> {
        let key = self.within_limit(key);
        self.describe(job, out, key, 0)
    }

    /// Returns the track itself, or the one that stands for all others where there are too many.
    fn within_limit(&mut self, key: TrackKey) -> TrackKey {
        if self.lanes.contains_key(&key) {
            return key;
        }
        if self.lanes.len() >= MOST || self.count >= MOST {
            return TrackKey::Others;
        }
        self.lanes.insert(key, Vec::new());
        key
    }

    fn describe(
        &mut self,
        job: &Job<'_>,
        out: &mut Packets<'_>,
        key: TrackKey,
        number: usize,
    ) -> Result<u64, WriteError> {
        let [kind, a, b] = key.parts();
        let uuid = out.uuid(&[kind, a, b, number as u64]);
        if out.describe(uuid) {
            let name = self.name(job, key);
            // Further lanes of a thread are not described as threads.
            let thread = match key {
                TrackKey::Thread(tid) if number == 0 => Some(ThreadDescriptor {
                    pid: i32::try_from(job.trace.process.pid).ok(),
                    tid: Some(i64::from(tid)),
                    thread_name: Some(self.thread_name(job, tid, &name)),
                }),
                _ => None,
            };
            out.track(TrackDescriptor {
                uuid: Some(uuid),
                name: Some(name),
                thread,
                parent_uuid: Some(out.process()),
                ..TrackDescriptor::default()
            })?;
        }
        Ok(uuid)
    }

    /// Returns the name that a viewer shows for the thread, before its id: the thread's own name
    /// where it is known. `name` is the name of its track.
    fn thread_name(&mut self, job: &Job<'_>, tid: u32, name: &str) -> String {
        let known = job.trace.process.threads.get(&tid);
        match (self.thread(job, tid), known) {
            (0, _) => name.to_owned(),
            (_, Some(known)) => known.clone(),
            (number, None) => format!("THREAD {number}"),
        }
    }

    /// Returns a thread's number. The main thread has 0.
    fn thread(&mut self, job: &Job<'_>, tid: u32) -> u64 {
        if tid == job.trace.process.pid {
            return 0;
        }
        let next = self.threads.len() as u64 + 1;
        *self.threads.entry(tid).or_insert(next)
    }

    /// Returns the track's name, as in AMD's traces.
    fn name(&mut self, job: &Job<'_>, key: TrackKey) -> String {
        match key {
            TrackKey::Thread(tid) => match self.thread(job, tid) {
                0 => {
                    let program = job.trace.process.command.first();
                    let program = program.map_or("", String::as_str);
                    program.rsplit('/').next().unwrap_or(program).to_owned()
                }
                number => format!("THREAD {number} ({tid})"),
            },
            TrackKey::Stream(number, node) => match job.index.stream_handle(number) {
                Some(handle) if job.index.is_cuda() => cuda_stream(job, handle),
                // AMD's name, followed by the GPU.
                _ => {
                    let agent = job.agent_index(node);
                    let AgentName {
                        label,
                        index,
                        of_type,
                    } = agent;
                    format!("STREAM [\" {number} \"] {label} [{index}] {of_type}")
                }
            },
            TrackKey::Compute { node, queue } => {
                let agent = job.agent_index(node);
                format!(
                    "COMPUTE {} [{}] QUEUE [{}] {}",
                    agent.label,
                    agent.index,
                    queue_index(queue),
                    agent.of_type
                )
            }
            TrackKey::CopyTo { node, tid } => {
                let thread = self.thread(job, tid);
                let logical = job.agent(node).map(|agent| agent.logical_node_id);
                format!(
                    "COPY to AGENT [{}] THREAD [{thread}] ({})",
                    logical.map_or(i64::from(node), i64::from),
                    job.agent_index(node).of_type
                )
            }
            TrackKey::Ranges if job.index.is_cuda() => "NVTX PROCESS RANGES".to_owned(),
            TrackKey::Ranges => "ROCTX PROCESS RANGES".to_owned(),
            TrackKey::Others => "(further tracks)".to_owned(),
            TrackKey::Steps => "STEPS (found in the stacks)".to_owned(),
            TrackKey::Phases => "PHASES (found in the stacks)".to_owned(),
            TrackKey::Own(kind) => track_name(kind).to_owned(),
            TrackKey::Scratch(node) => {
                let agent = job.agent_index(node);
                format!(
                    "{} {} [{}] ({})",
                    track_name(kind::SCRATCH_MEMORY),
                    agent.label,
                    agent.index,
                    agent.of_type
                )
            }
        }
    }
}

/// Returns the name of a domain's track, or the start of the names of its tracks.
fn track_name(kind: u8) -> &'static str {
    match midair_domain::domain(kind).and_then(|domain| domain.files.track) {
        Some(Track::Own(name) | Track::PerDevice(name)) => name,
        _ => "",
    }
}

/// Describes a stream by the numbers that CUPTI and other tools have for it, and by its device
/// where that is known.
fn cuda_stream(job: &Job<'_>, handle: u64) -> String {
    let (context, stream) = stream_parts(handle);
    let mut queues = job.index.queues.values();
    let device = match queues.find(|queue| queue.handle == handle) {
        Some(queue) => {
            let agent = job.agent_index(queue.node);
            format!("{} [{}] ", agent.label, agent.index)
        }
        None => String::new(),
    };
    format!("CUDA {device}CONTEXT [{context}] STREAM [{stream}]")
}

/// Returns a queue's number in AMD's traces, which count queues from 0. Records count them from 1.
pub(super) fn queue_index(queue: u32) -> u32 {
    queue.saturating_sub(1)
}
