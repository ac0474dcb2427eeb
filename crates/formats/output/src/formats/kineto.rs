//! The format `results.pt.trace.json`: Chrome's JSON as PyTorch's profiler (Kineto) writes it. Each
//! process has one file. It is for the tools that read such traces: HolisticTraceAnalysis,
//! TensorBoard's plug-in, Perfetto.
//!
//! Categories and arguments are Kineto's: `kernel`, `gpu_memcpy` and `gpu_memset` with their
//! device, stream and correlation, `cuda_runtime` and `cuda_driver` for calls of either vendor's
//! runtime, `user_annotation` for ranges. Times are microseconds of the boot clock, with nanosecond
//! precision. Work without times is an instant, which readers that compute sums skip.
//!
//! The whole recording is one step, `ProfilerStep#0`, unless ranges of the program are steps
//! themselves: TensorBoard's plug-in computes shares of a step. Where nothing was recorded for a
//! part of the time (pauses, periods, bursts), there is no step.
//!
//! A stream's number is its number in the other formats plus 1, because readers take 0 for no
//! stream. Kernels of one stream may overlap. A slice that would cross another one on a stream's
//! row is put on a further row with the same name.
//!
//! Decision: FMT-031 (`docs/deviations/formats.md`).

mod lines;
mod rows;
mod stacks;

use crate::counters::values::sum;
use crate::counters::{Counts, Reading};
use crate::files::{FileSet, Folder, ReservedFile, WriteError};
use crate::formats::json::pieces;
use crate::job::Job;
use crate::lanes::{Lane, Rule};
use crate::sink::{Opened, Sink, Writer};
use foldhash::fast::RandomState;
use lines::{Lines, Place, quoted};
use midair_agents::AgentType;
use midair_domain::sets;
use midair_record::event::{Api, Record, cuda_node, kind};
use midair_trace::cuda::devices::ordinal;
use midair_trace::cuda::stream_parts;
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::io;
use std::rc::Rc;

/// The greatest number that is believed to be a rank. If there is a greater one, sessions are
/// numbered instead.
const MOST_RANKS: u64 = 100_000;
/// Rows of GPUs are sorted below rows of programs.
const BELOW: u64 = 5_000_000;
/// The most names that are remembered as JSON, of calls and of kernels each.
const MOST_NAMES: usize = 1 << 16;
/// The most rows with lanes. Further rows share one, in which slices may cross.
const MOST_ROWS: usize = 1 << 14;
/// The most lanes of a row. A slice that fits in none of them goes into the last, where slices may
/// cross.
const MOST_LANES: usize = 64;
/// The distance between the numbers of a row's further lanes.
const LANES_APART: u64 = 1_000_000;

/// The distance between the numbers of the streams of further contexts.
const CONTEXTS_APART: u64 = 1_000_000_000;

/// The numbers of rows that do not belong to a stream.
mod row {
    /// The recording itself.
    pub(super) const RECORDING: u64 = 3_999_999_999;
    /// ROCTx and NVTX ranges of the process.
    pub(super) const RANGES: u64 = 4_000_000_000;
    /// Waits that CUPTI reports.
    pub(super) const WAITS: u64 = 4_000_000_001;
    /// Operations of unified memory.
    pub(super) const UNIFIED: u64 = 4_000_000_002;
    /// Allocations, each kind on its own row.
    pub(super) const OWN: u64 = 4_000_000_100;
}

/// The writer, which writes one file at a time.
struct Kineto {
    folder: Folder,
    ranks: Vec<u64>,
    world: u64,
    /// The number of sessions started, and the files that are complete.
    begun: usize,
    done: Vec<ReservedFile>,
}

/// Makes the writer. No file is started yet, since each session has its own.
pub(crate) fn open<'a>(jobs: &'a [Job<'a>], files: &FileSet) -> Opened<'a> {
    let known = jobs.iter().filter_map(|job| job.trace.process.place.ranks);
    let ranks = ranks(jobs);
    let most = ranks.iter().max().map_or(1, |most| most + 1);
    Ok(Box::new(Kineto {
        folder: files.folder(),
        world: known.max().unwrap_or(0).max(most),
        ranks,
        begun: 0,
        done: Vec::new(),
    }))
}

/// Returns the rank of each session. Where two have the same, or one of several has none, the
/// sessions are numbered instead.
fn ranks(jobs: &[Job<'_>]) -> Vec<u64> {
    let told: Vec<Option<u64>> = jobs
        .iter()
        .map(|job| job.trace.process.place.rank)
        .map(|rank| rank.filter(|rank| *rank < MOST_RANKS))
        .collect();
    let known: HashSet<u64> = told.iter().flatten().copied().collect();
    if known.len() == jobs.len() {
        return told.into_iter().flatten().collect();
    }
    (0..).take(jobs.len()).collect()
}

impl Writer for Kineto {
    fn begin<'s>(&'s mut self, job: &'s Job<'s>) -> Result<Box<dyn Sink + 's>, WriteError> {
        let rank = self.ranks.get(self.begun).copied().unwrap_or(0);
        self.begun += 1;
        let name = match self.ranks.len() {
            1 => "results.pt.trace.json".to_owned(),
            _ => suffix(rank),
        };
        let file = self.folder.create(&name)?;
        let head = head(job, rank, self.world).map_err(|error| file.failed(error))?;
        let mut session = Session {
            job,
            lines: Lines::begin(file, &head),
            calls: HashMap::default(),
            kernels: HashMap::default(),
            stacks: HashMap::default(),
            devices: HashSet::default(),
            threads: HashSet::default(),
            lanes: HashMap::default(),
            inner: HashMap::default(),
            has_steps: false,
            contexts: HashMap::new(),
            done: &mut self.done,
        };
        session.describe_process()?;
        Ok(Box::new(session))
    }

    fn finish(self: Box<Self>, files: &mut FileSet) -> Result<(), WriteError> {
        for file in self.done {
            files.add_reserved(file);
        }
        Ok(())
    }
}

/// Returns the name of the file of one of several sessions.
pub(crate) fn suffix(rank: u64) -> String {
    format!("rank{rank}.pt.trace.json")
}

/// Returns the text before the events. HolisticTraceAnalysis looks for the rank with a space before
/// it, in the first line that has one.
fn head(job: &Job<'_>, rank: u64, world: u64) -> io::Result<String> {
    let gpus = job.agents().iter();
    let gpus = gpus.filter(|agent| agent.agent_type == AgentType::Gpu);
    let devices: Vec<_> = gpus
        .map(|agent| {
            json!({
                "id": agent.logical_node_type_id,
                "name": agent.product_name,
                "architecture": agent.name,
                "numSms": agent.cu_count,
                "warpSize": agent.wave_front_size,
            })
        })
        .collect();
    let notes: serde_json::Map<String, serde_json::Value> = pieces::midair(job)?
        .into_iter()
        .map(|(key, value)| (key, value.into()))
        .collect();
    let process = &job.trace.process;
    Ok(format!(
        "{{\"schemaVersion\": 1,\n\"distributedInfo\": {{\"rank\": {rank}, \"world_size\": {world}}},\n\
         \"deviceProperties\": {},\n\"displayTimeUnit\": \"ms\", \"baseTimeNanoseconds\": 0,\n\
         \"host_name\": {}, \"midair\": {},\n\"traceEvents\": [\n",
        serde_json::Value::from(devices),
        serde_json::Value::from(process.node.hostname.as_str()),
        serde_json::Value::from(notes),
    ))
}

/// What is known of a function.
struct Call {
    /// The name with its quotes.
    name: Vec<u8>,
    category: &'static str,
    /// Whether it may launch work. An arrow starts there.
    launches: bool,
}

/// The events of one process.
struct Session<'s> {
    job: &'s Job<'s>,
    lines: Lines,
    calls: HashMap<(u8, u32), Rc<Call>, RandomState>,
    kernels: HashMap<u64, Rc<[u8]>, RandomState>,
    stacks: HashMap<u32, Rc<str>, RandomState>,
    /// The devices and threads that were described.
    devices: HashSet<u64, RandomState>,
    threads: HashSet<u32, RandomState>,
    lanes: HashMap<(u64, u64), Vec<Lane>, RandomState>,
    /// Driver calls by thread, until it is known whether a call of the runtime encloses them. Such
    /// calls share one correlation id, which readers take for a single call's.
    inner: HashMap<u32, Vec<Api>, RandomState>,
    /// Whether ranges of the program are a training loop's steps.
    has_steps: bool,
    /// The first context with a stream of each number.
    contexts: HashMap<u32, u32>,
    done: &'s mut Vec<ReservedFile>,
}

impl Sink for Session<'_> {
    fn record(&mut self, record: &Record<'_>) -> Result<(), WriteError> {
        match record {
            Record::Api(api, _) => self.nested(api),
            Record::Marker(marker, message) => self.marker(marker, message),
            // A dispatch with counters is given together with them.
            Record::Kernel(kernel, _)
                if self.job.counting.windows.has_values(kernel.dispatch_id) =>
            {
                Ok(())
            }
            Record::Kernel(kernel, extra) => self.kernel(kernel, extra.as_ref(), &[]),
            Record::Copy(copy, extra) => self.copy(copy, extra.as_ref()),
            Record::MemorySet(set) => self.memory_set(set),
            Record::Synchronization(wait) => self.wait(wait),
            Record::UnifiedMemory(moved) => self.unified(moved),
            Record::Allocation(allocation) => self.allocation(allocation),
            Record::Scratch(scratch) => self.scratch(scratch),
            _ => Ok(()),
        }
    }

    fn counted(&mut self, counts: &Counts<'_>) -> Result<(), WriteError> {
        // The dispatches of a batch are given as records, and its values belong to none of them.
        if self.job.plan.hide_kernels || counts.batch.is_some() {
            return Ok(());
        }
        let counters = counts.counters.iter();
        let counters: Vec<(&str, f64)> = counters
            .map(|(_, name, values)| (*name, sum(values)))
            .collect();
        self.kernel(counts.kernel, None, &counters)
    }

    fn read(&mut self, reading: &Reading) -> Result<(), WriteError> {
        let device = self.device(reading.node)?;
        for (_, name, values, is_sum) in &reading.counters {
            let unit = if *is_sum { " /s" } else { "" };
            let name = self.json(&format!("PMC {name}{unit}"))?;
            let value = reading.shown(sum(values), *is_sum);
            let place = Place {
                pid: device,
                tid: 0,
            };
            self.lines.counter(&name, place, reading.start, value)?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), WriteError> {
        let mut inner: Vec<_> = std::mem::take(&mut self.inner).into_iter().collect();
        inner.sort_unstable_by_key(|(tid, _)| *tid);
        for (_, calls) in inner {
            self.inner_calls(&calls, false)?;
        }
        self.gpu_samples()?;
        self.step()?;
        let Session { lines, done, .. } = *self;
        done.push(lines.end("\n]}\n")?.close()?);
        Ok(())
    }
}

impl Session<'_> {
    fn json(&self, text: &str) -> Result<Vec<u8>, WriteError> {
        quoted(text).map_err(|error| self.lines.failed(error))
    }

    /// Writes the samples of a whole GPU: a counter for each metric, on the device's row.
    fn gpu_samples(&mut self) -> Result<(), WriteError> {
        let job = self.job;
        let Some(samples) = &job.trace.gpu else {
            return Ok(());
        };
        // A GPU on which nothing of the process ran has the number that the machine gives it.
        let mut nodes = job.index.cuda.devices.keys().map(|it| cuda_node(*it));
        let node = nodes.find(|node| samples.is_node(*node, job.index));
        let pid = self.device(node.unwrap_or(cuda_node(samples.index)))?;
        let names: Vec<Vec<u8>> = samples
            .metrics
            .iter()
            .map(|it| {
                self.json(&format!(
                    "GPU [{}] {} ({})",
                    samples.index, it.name, it.unit
                ))
            })
            .collect::<Result<_, _>>()?;
        samples.changes(|(number, _), time, value| match names.get(number) {
            Some(name) => self.lines.counter(name, Place { pid, tid: 0 }, time, value),
            None => Ok(()),
        })
    }

    fn pid(&self) -> u64 {
        u64::from(self.job.trace.process.pid)
    }

    fn describe_process(&mut self) -> Result<(), WriteError> {
        let process = &self.job.trace.process;
        let place = Place {
            pid: self.pid(),
            tid: 0,
        };
        let name = process.command.first().map_or("", String::as_str);
        let name = name.rsplit('/').next().unwrap_or(name);
        self.lines
            .meta("process_name", place, |args| args.text("name", name))?;
        self.lines
            .meta("process_labels", place, |args| args.text("labels", "CPU"))?;
        self.lines.meta("process_sort_index", place, |args| {
            args.number("sort_index", place.pid);
            Ok(())
        })
    }

    /// Makes the recording one step, unless there are steps already.
    fn step(&mut self) -> Result<(), WriteError> {
        let process = &self.job.trace.process;
        let times = (process.init_time, process.fini_time);
        // A step in whose time something was left out would make readers take that for idle time.
        let is_whole = self.job.trace.attach.unrecorded_ns == 0 && self.job.index.bursts.is_empty();
        if self.has_steps || !is_whole || times.0 == 0 || times.1 <= times.0 {
            return Ok(());
        }
        let place = Place {
            pid: self.pid(),
            tid: row::RECORDING,
        };
        self.describe_row(place, "recording", row::RECORDING)?;
        let what = ("user_annotation", &b"\"ProfilerStep#0\""[..]);
        self.lines.complete(what, place, times, |_| Ok(()))
    }

    /// Returns the process number that stands for a device. It is Kineto's number, unless the
    /// program itself has that number.
    fn device(&mut self, node: u32) -> Result<u64, WriteError> {
        let number = self.number(node);
        let pid = match number {
            number if number == self.pid() => number + BELOW,
            number => number,
        };
        if self.devices.insert(number) {
            let process = &self.job.trace.process;
            let place = Place { pid, tid: 0 };
            let name = process.command.first().map_or("", String::as_str);
            let name = name.rsplit('/').next().unwrap_or(name);
            self.lines
                .meta("process_name", place, |args| args.text("name", name))?;
            self.lines.meta("process_labels", place, |args| {
                args.text("labels", &format!("GPU {number}"))
            })?;
            self.lines.meta("process_sort_index", place, |args| {
                args.number("sort_index", BELOW + number);
                Ok(())
            })?;
        }
        Ok(pid)
    }

    /// Returns a device's number among the devices of its type.
    fn number(&self, node: u32) -> u64 {
        let cuda = ordinal(node).filter(|_| self.job.index.is_cuda());
        let agent = self.job.agent(node);
        let number = cuda.or_else(|| Some(agent?.logical_node_type_id.unsigned_abs()));
        number.map_or(0, u64::from)
    }

    /// Whether the node that records name is a GPU.
    fn is_gpu(&self, node: u32) -> bool {
        match self.job.agent(node) {
            Some(agent) => agent.agent_type == AgentType::Gpu,
            None => ordinal(node).is_some(),
        }
    }

    /// Returns the number of a stream.
    fn stream(&mut self, handle: u64) -> u64 {
        if !self.job.index.is_cuda() {
            return self.job.index.stream(handle) + 1;
        }
        let (context, stream) = stream_parts(handle);
        if self.contexts.len() >= MOST_ROWS && !self.contexts.contains_key(&stream) {
            return u64::from(stream);
        }
        // Each context counts its streams from the same number, and readers take equal numbers for
        // one stream.
        match *self.contexts.entry(stream).or_insert(context) {
            first if first == context => u64::from(stream),
            _ => u64::from(context) * CONTEXTS_APART + u64::from(stream),
        }
    }

    /// Returns a place on a row where a slice crosses no other.
    fn lane(
        &mut self,
        (pid, row, name): (u64, u64, &str),
        start: u64,
        end: u64,
    ) -> Result<Place, WriteError> {
        if self.lanes.len() >= MOST_ROWS && !self.lanes.contains_key(&(pid, row)) {
            return Ok(Place { pid, tid: row });
        }
        let lanes = self.lanes.entry((pid, row)).or_default();
        let mut take = |lane: &mut Lane| lane.take(Rule::Apart, start, end.max(start));
        let found = lanes.iter_mut().position(&mut take);
        let is_new = found.is_none() && lanes.len() < MOST_LANES;
        let lane = match found {
            Some(lane) => lane,
            None if is_new => {
                let mut lane = Lane::default();
                take(&mut lane);
                lanes.push(lane);
                lanes.len() - 1
            }
            None => MOST_LANES - 1,
        };
        let place = Place {
            pid,
            tid: row + lane as u64 * LANES_APART,
        };
        if is_new {
            self.describe_row(place, name, row)?;
        }
        Ok(place)
    }

    fn describe_row(&mut self, place: Place, name: &str, sort: u64) -> Result<(), WriteError> {
        self.lines
            .meta("thread_name", place, |args| args.text("name", name))?;
        self.lines.meta("thread_sort_index", place, |args| {
            args.number("sort_index", sort);
            Ok(())
        })
    }

    /// Returns the row of a thread.
    fn thread(&mut self, tid: u32) -> Result<Place, WriteError> {
        let place = Place {
            pid: self.pid(),
            tid: u64::from(tid),
        };
        if self.threads.len() < MOST_NAMES && self.threads.insert(tid) {
            let known = self.job.trace.process.threads.get(&tid);
            let name = match known {
                Some(name) => format!("thread {tid} ({name})"),
                None => format!("thread {tid}"),
            };
            self.describe_row(place, &name, place.tid)?;
        }
        Ok(place)
    }

    /// Returns what is known of a function.
    fn function(&mut self, kind: u8, operation: u32) -> Result<Rc<Call>, WriteError> {
        if let Some(call) = self.calls.get(&(kind, operation)) {
            return Ok(Rc::clone(call));
        }
        let name = self.job.names.operation(kind, operation);
        let is_runtime = sets::HIP_CALLS.contains(kind) || kind == kind::CUDA_RUNTIME_API;
        let is_driver = kind == kind::CUDA_DRIVER_API || sets::HSA_CALLS.contains(kind);
        let launches = ["Launch", "Memcpy", "Memset"];
        let call = Rc::new(Call {
            category: match () {
                () if is_runtime => "cuda_runtime",
                () if is_driver => "cuda_driver",
                () => "cpu_op",
            },
            launches: launches.iter().any(|part| name.contains(part)),
            name: self.json(&name)?,
        });
        if self.calls.len() < MOST_NAMES {
            self.calls.insert((kind, operation), Rc::clone(&call));
        }
        Ok(call)
    }
}
