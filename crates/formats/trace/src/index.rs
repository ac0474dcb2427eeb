//! The state of the records so far: what other records refer to, the numbers of streams, counts
//! and sums.
//!
//! The index is fed record by record while a session collects, and is complete when the last one
//! was appended. Its size depends on how many different kernels, code objects, queues, streams and
//! calls there are, not on how often they occur. The target writes all of these, so each has a
//! limit, and all their names share one ([`limits::NAMES`]). Whatever exceeds a limit is counted
//! and reported.

mod captures;
mod cuda;
mod descriptions;
mod launched;
mod stacks;

use crate::activity::Activity;
use crate::api::has_message;
use crate::bursts::Bursts;
use crate::cuda as names;
use crate::limits::{self, Budget};
use crate::samples::{Instructions, Samples};
use crate::thread_traces::ThreadTraces;
use foldhash::fast::RandomState;
use midair_domain::{KindSet, sets};
use midair_failure::plain;
use midair_record::event::{
    Allocation, Api, CodeObject, Copy, CudaTransfer, Header, Kernel, KernelSymbol, Marker, Queue,
    QueueCounts, Record, RuntimeInit, Scratch, Untimed, flag, graph, kind,
};
use std::collections::{BTreeMap, HashMap};

pub use cuda::Cuda;
pub use launched::{Launched, TimedKernel};
use stacks::Added;
pub use stacks::Launches;
pub use stacks::{Function, LATE, LiveGraphs, Mapped, StackSummary, Stacks, Sum, Work};

/// Kernels and code objects with greater ids are not described, because their arrays in json are as
/// long as the largest id.
const MOST_IDS: u64 = 1 << 18;
/// Further streams and queues share one number.
const MOST_STREAMS: usize = 1 << 18;
/// Further notes of the target are only counted.
const MOST_NOTES: usize = 256;
/// Further markers are summed up as one, where there are more different names than this, or where
/// the names take more bytes than the limit.
const MOST_MARKERS: usize = 1 << 16;
const MOST_MARKER_BYTES: usize = 16 << 20;
/// AMD's number for HIP among the runtimes (source: api/rocprofiler_sdk.json).
const RUNTIME_HIP: u32 = 2;
/// The start of the names of the kernels with which ROCclr, HIP's lower half, fills and copies.
pub const ROCCLR_KERNEL: &[u8] = b"__amd_rocclr_";
/// The name for all markers beyond the limit.
pub const OTHER_MARKERS: &str = "(further markers)";
/// Further runtimes are not listed.
const MOST_RUNTIMES: usize = 1024;

/// The number of calls of one thing, and their times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// How often.
    pub calls: u64,
    /// Nanoseconds.
    pub total: u64,
    /// Nanoseconds of the shortest.
    pub min: u64,
    /// Nanoseconds of the longest.
    pub max: u64,
    /// Sum of the squares, in square nanoseconds. It is exact, so that the deviation is right for
    /// any sum (AMD's tool squares in 64 bits, which overflow after 4.3 s).
    pub squares: u128,
}

impl Default for Stat {
    fn default() -> Self {
        Stat {
            calls: 0,
            total: 0,
            min: u64::MAX,
            max: 0,
            squares: 0,
        }
    }
}

impl Stat {
    fn add(&mut self, start: u64, end: u64) {
        self.count(end.saturating_sub(start));
    }

    /// Counts a call that took `duration` nanoseconds.
    pub fn count(&mut self, duration: u64) {
        self.calls += 1;
        self.total = self.total.saturating_add(duration);
        self.min = self.min.min(duration);
        self.max = self.max.max(duration);
        let square = u128::from(duration) * u128::from(duration);
        self.squares = self.squares.saturating_add(square);
    }

    /// Adds another's calls.
    pub fn merge(&mut self, other: &Stat) {
        self.calls += other.calls;
        self.total = self.total.saturating_add(other.total);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.squares = self.squares.saturating_add(other.squares);
    }

    /// Returns the nanoseconds per call, or 0 where there is none.
    pub fn mean(&self) -> f64 {
        if self.calls == 0 {
            return 0.0;
        }
        self.total as f64 / self.calls as f64
    }

    /// Returns the variance of a sample, in square nanoseconds, or 0 for fewer than two calls.
    pub fn variance(&self) -> f64 {
        if self.calls < 2 {
            return 0.0;
        }
        let (calls, total) = (u128::from(self.calls), u128::from(self.total));
        let below = calls as f64 * (calls - 1) as f64;
        // Whole numbers are used up to the last step, since the difference of two large squares
        // would lose digits.
        match calls.checked_mul(self.squares) {
            Some(squares) => squares.saturating_sub(total * total) as f64 / below,
            None => {
                let mean = self.mean();
                (self.squares as f64 / calls as f64 - mean * mean).max(0.0) * calls as f64
                    / (calls - 1) as f64
            }
        }
    }

    /// Returns the standard deviation of a sample, in nanoseconds.
    pub fn deviation(&self) -> f64 {
        self.variance().sqrt()
    }
}

/// A kernel symbol and its mangled name.
#[derive(Debug, Clone, PartialEq)]
pub struct Symbol {
    /// The record.
    pub record: KernelSymbol,
    /// Bytes of the name, with ".kd".
    pub name: Vec<u8>,
}

/// A code object and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// The record.
    pub record: CodeObject,
    /// Bytes of the URI.
    pub uri: Vec<u8>,
}

/// The number of records of each kind that has a domain.
#[derive(Debug, Clone)]
struct Counts([u64; KindSet::LIMIT as usize]);

impl Default for Counts {
    fn default() -> Self {
        Counts([0; KindSet::LIMIT as usize])
    }
}

/// What a view of a running session shows of an index: sums by kind and operation, kernels by name,
/// markers by message. It is a copy, whose size depends on how many different things there are.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The number of records of each kind that occurs, timed or not.
    pub counts: Vec<(u8, u64)>,
    /// Calls, and work other than kernels.
    pub operations: Vec<((u8, u32), Stat)>,
    /// Timed dispatches by kernel id, and the mangled name where it is known so far.
    pub kernels: Vec<(u64, Option<Vec<u8>>, Stat)>,
    /// Marks and ranges.
    pub markers: Vec<(String, Stat)>,
    /// Dispatches and copies without times.
    pub untimed: u64,
}

/// What the records say.
#[derive(Debug, Clone, Default)]
pub struct Index {
    /// By kernel id.
    pub symbols: BTreeMap<u64, Symbol>,
    /// By code object id.
    pub code_objects: BTreeMap<u64, Object>,
    /// By queue id.
    pub queues: BTreeMap<u32, Queue>,
    /// The numbers of streams by raw handle, and the handles by number from 1.
    streams: HashMap<u64, u64, RandomState>,
    stream_handles: Vec<u64>,
    /// Timed dispatches by kernel id.
    pub kernels: HashMap<u64, Stat>,
    /// Calls by kind and operation.
    pub calls: HashMap<(u8, u32), Stat>,
    /// All other timed work by kind and operation: copies by direction, fills, waits, allocations
    /// and releases, changes of scratch memory, what unified memory did.
    pub work: HashMap<(u8, u32), Stat>,
    /// The number of records of each domain, timed or not.
    counts: Counts,
    /// Marks and ranges by message; other calls of ROCTx are in `calls`.
    pub markers: HashMap<String, Stat>,
    /// The bytes of those messages.
    marker_bytes: usize,
    /// The number of records of ROCTx of all kinds.
    pub marker_count: u64,
    /// Runtimes whose dispatch tables were hooked.
    pub runtimes: Vec<RuntimeInit>,
    /// The number of all dispatches, timed or not.
    pub dispatches: u64,
    /// The number of all copies, timed or not.
    pub copy_count: u64,
    /// Dispatches and copies without times, by reason.
    pub untimed: BTreeMap<&'static str, u64>,
    /// Calls that had not returned, and kernels and copies that had not finished, at the detach.
    pub open_at_detach: u64,
    /// Dispatches and copies that no traced call launched.
    pub orphans: u64,
    /// The fate of the packets of each queue.
    pub queue_counts: Vec<QueueCounts>,
    /// Messages about problems that did not end the session.
    pub notes: Vec<String>,
    /// The number of further notes, which were only counted.
    pub notes_left_out: u64,
    /// The number of descriptions of kernels and code objects with impossible ids.
    pub ids_refused: u64,
    /// The bytes of these names.
    names: Budget<{ limits::NAMES }>,
    /// The number of descriptions that were left out because their names exceeded that limit.
    pub names_refused: u64,
    /// What only a CUDA process has.
    pub cuda: Cuda,
    /// What each GPU did, and when the host waited for it.
    pub activity: Activity,
    /// The bursts, where only bursts were recorded.
    pub bursts: Bursts,
    /// Where in the application's code work was launched (`--stacks`).
    pub stacks: Stacks,
    /// Samples of program counters.
    pub samples: Samples,
    /// Thread traces.
    pub thread_traces: ThreadTraces,
    /// The instructions that were sampled, as text.
    pub instructions: Instructions,
    /// Kernels in which the program's main loop can be found, where stacks are taken.
    pub launched: Launched,
}

impl Index {
    /// Adds the next record.
    pub fn add(&mut self, record: &Record<'_>) {
        match record {
            Record::Api(api, _) => {
                self.count(&api.header);
                self.add_call(api);
            }
            Record::Kernel(kernel, extra) => {
                self.count(&kernel.header);
                if let Some(cuda) = extra {
                    self.cuda.seen = true;
                    self.stacks.add_node_of_kernel(cuda.graph_node);
                }
                self.add_kernel(kernel);
            }
            Record::Copy(copy, extra) => {
                self.count(&copy.header);
                self.cuda.seen |= extra.is_some();
                self.add_copy(copy, extra.as_ref());
            }
            Record::Agent(_) => {}
            // A window may have several records, of which only the first is counted.
            Record::CounterWindow(window, _) if window.first == 0 => self.count(&window.header),
            Record::CounterWindow(..) => {}
            // An engine's data may have many records, of which only the first is counted.
            Record::TraceData(data, _) => {
                if data.first == 0 {
                    self.count(&data.header);
                }
                self.thread_traces.add(data);
            }
            Record::PcSample(sample) => {
                self.count(&sample.header);
                self.samples.add(sample);
            }
            Record::MemorySet(set) => self.add_set(set),
            Record::Synchronization(wait) => self.add_wait(wait),
            Record::UnifiedMemory(moved) => self.add_unified(moved),
            Record::CudaDevice(device, name) => self.add_device(device, name),
            Record::Marker(marker, message) => self.add_marker(marker, message),
            Record::Allocation(allocation) => self.add_allocation(allocation),
            Record::Scratch(scratch) => self.add_scratch(scratch),
            Record::Kfd(event) => {
                if event.is_in_files() {
                    self.count(&event.header);
                }
            }
            Record::Graph(call) if call.header.operation == graph::EXEC_LAUNCH => {
                self.count(&call.header);
                self.add_stream(call.stream);
            }
            Record::Graph(_) => {}
            Record::Event(call) => {
                self.count(&call.header);
                self.add_stream(call.stream);
            }
            Record::Barrier(_) => {}
            Record::RuntimeInit(runtime) => {
                self.count(&runtime.header);
                self.cuda.seen |= names::runtime_name(runtime.header.operation).is_some();
                if self.runtimes.len() < MOST_RUNTIMES {
                    self.runtimes.push(*runtime);
                }
            }
            Record::CodeObject(object, uri) => {
                let id = object.code_object_id;
                let known = self
                    .code_objects
                    .get(&id)
                    .map_or(0, |known| known.uri.len());
                if self.id_fits(id) && self.name_fits(known, uri) {
                    self.code_objects.insert(
                        id,
                        Object {
                            record: *object,
                            uri: uri.to_vec(),
                        },
                    );
                }
            }
            Record::KernelSymbol(symbol, name) => {
                let id = symbol.kernel_id;
                let known = self.symbols.get(&id).map_or(0, |known| known.name.len());
                if self.id_fits(id) && self.name_fits(known, name) {
                    self.symbols.insert(
                        id,
                        Symbol {
                            record: *symbol,
                            name: name.to_vec(),
                        },
                    );
                }
            }
            Record::Queue(queue) => {
                if self.queues.len() < MOST_STREAMS {
                    self.queues.insert(queue.queue_id, *queue);
                }
            }
            Record::QueueCounts(counts) => {
                if self.queue_counts.len() < MOST_STREAMS {
                    self.queue_counts.push(*counts);
                }
            }
            Record::Burst(burst) => self.bursts.add(burst),
            Record::Code(_, file, name) => {
                if self.name_fits(0, file) && self.name_fits(0, name) {
                    self.stacks.learn(record);
                }
            }
            Record::Module(_, path) => {
                if self.name_fits(0, path) {
                    self.stacks.learn(record);
                }
            }
            Record::Stack(..)
            | Record::LaunchStack(_)
            | Record::NativeCode(_)
            | Record::GraphBuild(_) => self.stacks.learn(record),
            Record::Instruction(instruction, text, line) => {
                if self.name_fits(0, text) && self.name_fits(0, line) {
                    self.instructions.add(instruction, text, line);
                }
            }
            Record::Note(text) => {
                if self.notes.len() < MOST_NOTES {
                    self.notes.push(printable(text));
                } else {
                    self.notes_left_out += 1;
                }
            }
        }
    }

    fn count(&mut self, header: &Header) {
        if let Some(count) = self.counts.0.get_mut(usize::from(header.kind)) {
            *count += 1;
        }
    }

    /// Whether there is a record of any of these kinds.
    pub fn has(&self, kinds: KindSet) -> bool {
        kinds.iter().any(|kind| self.count_of(kind) > 0)
    }

    /// Returns how many records there are of a kind, timed or not. It is 0 for kinds that only
    /// describe.
    pub fn count_of(&self, kind: u8) -> u64 {
        self.counts.0.get(usize::from(kind)).copied().unwrap_or(0)
    }

    /// Returns calls, and work other than kernels, of these kinds.
    pub fn operations(&self, kinds: KindSet) -> impl Iterator<Item = (&(u8, u32), &Stat)> {
        let all = self.calls.iter().chain(&self.work);
        all.filter(move |((kind, _), _)| kinds.contains(*kind))
    }

    /// Returns a copy of what a view shows, for a view that does not run where records are
    /// appended.
    pub fn snapshot(&self) -> Snapshot {
        let counts = (0..KindSet::LIMIT).map(|kind| (kind, self.count_of(kind)));
        let all = self.operations(sets::BUILT);
        let name = |id: &u64| Some(self.symbols.get(id)?.name.clone());
        let kernels = self.kernels.iter();
        let markers = self.markers.iter();
        Snapshot {
            counts: counts.filter(|(_, count)| *count > 0).collect(),
            operations: all.map(|(key, stat)| (*key, *stat)).collect(),
            kernels: kernels.map(|(id, stat)| (*id, name(id), *stat)).collect(),
            markers: markers.map(|(text, stat)| (text.clone(), *stat)).collect(),
            untimed: self.untimed.values().sum(),
        }
    }

    fn id_fits(&mut self, id: u64) -> bool {
        let fits = (1..MOST_IDS).contains(&id);
        self.ids_refused += u64::from(!fits);
        fits
    }

    /// Whether there is room for a name that replaces one of `known` bytes.
    fn name_fits(&mut self, known: usize, name: &[u8]) -> bool {
        let fits = self.names.replace(known, name.len());
        self.names_refused += u64::from(!fits);
        fits
    }

    fn add_call(&mut self, api: &Api) {
        self.cuda.seen |= sets::CUDA_CALLS.contains(api.header.kind);
        self.add_stream(api.stream);
        self.activity.add_call(api);
        self.open_at_detach += u64::from(api.header.flags & flag::OPEN_AT_DETACH != 0);
        self.add_operation(api.header.kind, api.header.operation, api.start, api.end);
    }

    fn add_operation(&mut self, kind: u8, operation: u32, start: u64, end: u64) {
        let key = (kind, operation);
        if self.calls.len() < MOST_IDS as usize || self.calls.contains_key(&key) {
            self.calls.entry(key).or_default().add(start, end);
        }
    }

    fn add_kernel(&mut self, kernel: &Kernel) {
        self.add_stream(kernel.stream);
        self.dispatches += 1;
        self.add_flags(kernel.header.flags);
        if !self.add_untimed(kernel.header.flags, kernel.untimed) {
            let id = self.add_kernel_time(kernel);
            let added = Added::by_kernel(kernel);
            self.stacks.add_kernel(kernel, Work::Kernel(id), &added);
            self.bursts.add_kernel(id, kernel);
            self.activity.add_kernel(kernel);
            self.add_launched(kernel);
        }
    }

    /// Adds the times of a dispatch to its kernel's, and returns the kernel's id.
    fn add_kernel_time(&mut self, kernel: &Kernel) -> u64 {
        let id = known_id(kernel);
        self.kernels
            .entry(id)
            .or_default()
            .add(kernel.start, kernel.end);
        id
    }

    /// Removes all dispatches from the sums of kernels. The sums then cover only the dispatches
    /// that are given to [`Index::keep_kernel`].
    pub fn forget_kernels(&mut self) {
        self.kernels.clear();
        self.stacks.forget_kernels();
        self.launched.clear();
    }

    fn add_launched(&mut self, kernel: &Kernel) {
        if self.stacks.is_on {
            self.launched.add(kernel);
        }
    }

    /// Counts a dispatch that stays.
    pub fn keep_kernel(&mut self, kernel: &Kernel) {
        if untimed(kernel.header.flags, kernel.untimed).is_none() {
            let id = self.add_kernel_time(kernel);
            let added = Added::by_kernel(kernel);
            self.stacks.add_kernel(kernel, Work::Kernel(id), &added);
            self.add_launched(kernel);
        }
    }

    /// Takes out a dispatch that is left out of the results.
    pub fn drop_kernel(&mut self, kernel: &Kernel) {
        let flags = kernel.header.flags;
        if let Some(count) = self.counts.0.get_mut(usize::from(kernel.header.kind)) {
            *count = count.saturating_sub(1);
        }
        self.dispatches = self.dispatches.saturating_sub(1);
        let open = u64::from(flags & flag::OPEN_AT_DETACH != 0);
        self.open_at_detach = self.open_at_detach.saturating_sub(open);
        let orphan = u64::from(flags & (flag::ORPHAN | flag::NO_CALLER) != 0);
        self.orphans = self.orphans.saturating_sub(orphan);
        if let Some(reason) = untimed(flags, kernel.untimed)
            && let Some(count) = self.untimed.get_mut(reason)
        {
            *count = count.saturating_sub(1);
            self.untimed.retain(|_, count| *count > 0);
        }
    }

    fn add_copy(&mut self, copy: &Copy, extra: Option<&CudaTransfer>) {
        self.add_stream(copy.stream);
        self.copy_count += 1;
        self.add_flags(copy.header.flags);
        if !self.add_untimed(copy.header.flags, copy.untimed) {
            self.activity.add_copy(copy);
            let direction = names::copy_operation(copy, extra);
            // Invalid directions share an entry.
            let direction = if names::is_further_copy(direction) {
                direction
            } else {
                direction.min(5)
            };
            self.work
                .entry((kind::MEMORY_COPY, direction))
                .or_default()
                .add(copy.start, copy.end);
            let added = Added {
                time: copy.end.saturating_sub(copy.start),
                delay: 0,
                bytes: copy.bytes,
            };
            self.stacks
                .add_work(copy.correlation, Work::Copy(direction), &added);
        }
    }

    fn add_marker(&mut self, marker: &Marker, message: &[u8]) {
        let Header {
            kind,
            operation,
            flags,
            ..
        } = marker.header;
        self.count(&marker.header);
        self.marker_count += 1;
        self.open_at_detach += u64::from(flags & flag::OPEN_AT_DETACH != 0);
        if !has_message(kind, operation) {
            self.add_operation(kind, operation, marker.start, marker.end);
            return;
        }
        let name = limits::text(message);
        let fits = self.markers.len() < MOST_MARKERS
            && self.marker_bytes + name.len() <= MOST_MARKER_BYTES;
        // The name is usually known, so it is looked up before a copy of it is made.
        let stat = match self.markers.get_mut(name.as_ref()) {
            Some(known) => known,
            None if fits => {
                self.marker_bytes += name.len();
                self.markers.entry(name.into_owned()).or_default()
            }
            None => self.markers.entry(OTHER_MARKERS.to_owned()).or_default(),
        };
        stat.add(marker.start, marker.end);
    }

    fn add_allocation(&mut self, allocation: &Allocation) {
        self.count(&allocation.header);
        self.add_stream(allocation.stream);
        // Invalid operations share an entry.
        self.work
            .entry((kind::MEMORY_ALLOCATION, allocation.header.operation.min(5)))
            .or_default()
            .add(allocation.start, allocation.end);
    }

    fn add_scratch(&mut self, scratch: &Scratch) {
        self.count(&scratch.header);
        self.work
            .entry((kind::SCRATCH_MEMORY, scratch.header.operation.min(4)))
            .or_default()
            .add(scratch.start, scratch.end);
    }

    fn add_flags(&mut self, flags: u8) {
        self.open_at_detach += u64::from(flags & flag::OPEN_AT_DETACH != 0);
        self.orphans += u64::from(flags & (flag::ORPHAN | flag::NO_CALLER) != 0);
    }

    /// Counts the reason, and returns whether there was one.
    fn add_untimed(&mut self, flags: u8, reason: u32) -> bool {
        let Some(reason) = untimed(flags, reason) else {
            return false;
        };
        *self.untimed.entry(reason).or_default() += 1;
        true
    }

    /// Numbers a stream. Streams are numbered from 1 in the order in which they appear, and 0 is
    /// the default stream.
    fn add_stream(&mut self, handle: u64) {
        if handle != 0 && self.streams.len() < MOST_STREAMS {
            let next = self.streams.len() as u64 + 1;
            self.streams.entry(handle).or_insert_with(|| {
                self.stream_handles.push(handle);
                next
            });
        }
    }

    /// Numbers these streams before all others. The handle of one without a handle (0) is its number.
    pub fn number_streams(&mut self, handles: impl IntoIterator<Item = u64>) {
        for (number, handle) in (1..).zip(handles.into_iter().take(MOST_STREAMS)) {
            self.add_stream(if handle == 0 { number } else { handle });
        }
    }

    /// Returns the raw handle of the stream with this number.
    pub fn stream_handle(&self, number: u64) -> Option<u64> {
        let position = usize::try_from(number.checked_sub(1)?).ok()?;
        self.stream_handles.get(position).copied()
    }

    /// Returns the number of a stream.
    pub fn stream(&self, handle: u64) -> u64 {
        self.streams.get(&handle).copied().unwrap_or(0)
    }

    /// Whether nothing happened, so that there are only descriptions.
    pub fn is_idle(&self) -> bool {
        let initialized = KindSet::of(&[kind::RUNTIME_INITIALIZATION]);
        !self.has(sets::BUILT - initialized)
    }

    /// Whether the process shows no sign of HIP: no call, no stream, and neither the runtime itself
    /// nor the kernels that its lower half loads on each device.
    pub fn is_without_hip(&self) -> bool {
        let is_hip = |runtime: &RuntimeInit| runtime.header.operation == RUNTIME_HIP;
        self.streams.is_empty()
            && !self.has(sets::HIP_CALLS)
            && !self.runtimes.iter().any(is_hip)
            && !self
                .symbols
                .values()
                .any(|symbol| symbol.name.starts_with(ROCCLR_KERNEL))
    }

    /// Returns how many dispatches were seen on queues, whether or not their records were asked
    /// for.
    pub fn launched(&self) -> u64 {
        self.queue_counts
            .iter()
            .fold(0, |sum, counts| sum.saturating_add(counts.dispatches))
    }

    /// Returns how many dispatches were launched while the program had paused the recording.
    pub fn paused(&self) -> u64 {
        self.queue_counts
            .iter()
            .fold(0, |sum, counts| sum.saturating_add(counts.paused))
    }

    /// Returns how many packets were in queues that were not observed. How many of them were
    /// dispatches is not known.
    pub fn unseen(&self) -> u64 {
        self.queue_counts
            .iter()
            .fold(0, |sum, counts| sum.saturating_add(counts.lost))
    }

    /// Describes the queues whose counts do not add up.
    pub fn unbalanced(&self) -> Vec<String> {
        let mut all = Vec::new();
        for counts in &self.queue_counts {
            let moved = counts.last_index.wrapping_sub(counts.first_index);
            let seen = u128::from(counts.dispatches)
                + u128::from(counts.paused)
                + u128::from(counts.other_packets)
                + u128::from(counts.ours)
                + u128::from(counts.lost);
            let timed = u128::from(counts.timed)
                + counts.untimed.iter().map(|n| u128::from(*n)).sum::<u128>();
            if u128::from(moved) != seen || u128::from(counts.dispatches) != timed {
                all.push(format!(
                    "the packet counts of queue {} differ: {moved} packets passed, {seen} are accounted for; {} dispatches, {timed} with times or a reason",
                    counts.queue_id, counts.dispatches
                ));
            }
        }
        all
    }
}

/// Returns a kernel's id; 0 for one that is not described.
fn known_id(kernel: &Kernel) -> u64 {
    match kernel.kernel_id {
        id if id < MOST_IDS => id,
        _ => 0,
    }
}

/// Returns in words why a dispatch or copy has no times, or None when it has times.
pub fn untimed(flags: u8, reason: u32) -> Option<&'static str> {
    if reason == Untimed::Timed as u32 && flags & flag::UNTIMED == 0 {
        return None;
    }
    let known = Untimed::ALL
        .iter()
        .skip(1)
        .find(|known| **known as u32 == reason);
    Some(known.map_or("no reason was recorded", |known| known.text()))
}

/// Returns bytes of the target as one line that no terminal interprets.
fn printable(text: &[u8]) -> String {
    limits::text(text)
        .chars()
        .map(|c| if plain::is_obeyed(c) { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests;
