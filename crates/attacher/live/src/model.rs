//! The model of one process: what its records say about the last seconds.

use crate::code::Code;
use crate::fast::Fast;
use crate::gauge::{Counter, Gauge};
use crate::lane::Lane;
use crate::ran::Ran;
use crate::recent::{Recent, SLOT, WINDOW};
use crate::sums::Sums;
use crate::trigger::Triggers;
use crate::wishes::Wishes;
use midair_output::{
    DeviceReadings, Names, Observer, ROCCLR_KERNEL, SampledKernels, Samples, Stat, is_wait,
};
use midair_record::event::{self, Api, CUDA_NODE, Copy, KernelSymbol, Marker, MemorySet, Record};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// The most kernels that have a line of their own. The others share one.
const MOST_KERNELS: usize = 4096;
/// The most functions, and directions of copies, that have a line of their own.
const MOST_CALLS: usize = 8192;
/// The most names of kernels that are kept, and their bytes.
const MOST_SYMBOLS: usize = 1 << 17;
const MOST_NAME_BYTES: usize = 32 << 20;
/// The most devices, and queues.
pub(crate) const MOST_DEVICES: usize = 64;
const MOST_QUEUES: usize = 4096;
/// The most messages of markers that are kept until they are taken.
const MOST_MESSAGES: usize = 256;
/// The most bytes of such a message.
const LONGEST_MESSAGE: usize = 256;
/// The number that stands for the kernels beyond the limit.
pub(crate) const FURTHER: u64 = u64::MAX;
/// How long spans are kept, ns. Longer windows are not asked for.
const KEPT: u64 = 2 * WINDOW * SLOT + SLOT;

/// The dispatch at the head of a queue, as the target's side last saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flight {
    /// Our number of the queue.
    pub queue: u32,
    /// KFD node id of its agent.
    pub node: u32,
    /// The number of the dispatch in this session.
    pub dispatch: u64,
    /// Its packet's kernel object.
    pub kernel_object: u64,
    /// When the doorbell was rung for it, CLOCK_BOOTTIME ns.
    pub rung: u64,
    /// The number of dispatches of this queue that have not ended, including this one.
    pub under_way: u32,
}

/// What a session knows besides its records, each time that it is polled.
#[derive(Debug, Clone, Default)]
pub struct Pulse {
    /// CLOCK_BOOTTIME ns.
    pub now: u64,
    /// The heads of the queues.
    pub flights: Vec<Flight>,
    /// The number of records that were lost since the attach.
    pub lost: u64,
    /// Processor time of the worker thread in the target so far, ns, or None where it is not known.
    pub worker_ns: Option<u64>,
    /// The bytes that are kept for results.
    pub kept_bytes: u64,
    /// The share of the fullest device's memory that is in use, or None where it is not known.
    pub memory: Option<f64>,
    /// What was sampled of whole NVIDIA GPUs in the last seconds.
    pub metrics: Vec<Counter>,
}

/// What one function, or one direction of copies, did.
#[derive(Debug, Default)]
pub(crate) struct Called {
    pub(crate) total: Stat,
    pub(crate) recent: Recent,
    pub(crate) bytes: u64,
    /// Whether its caller waits in it.
    pub(crate) waits: bool,
}

/// One device.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    /// When kernels ran.
    pub(crate) busy: Lane,
    /// When copies from it or to it ran.
    pub(crate) copying: Lane,
    /// When a dispatch's doorbell had been rung and the dispatch had not started.
    pub(crate) queued: Lane,
    /// Whether it has run a kernel or has a queue. The others are ends of copies, perhaps the host.
    pub(crate) is_gpu: bool,
}

/// A queue.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) node: u32,
    /// The end of its last dispatch that is known to have ended.
    pub(crate) last_end: u64,
    pub(crate) dispatches: u64,
}

/// The model: what the records say about one process.
#[derive(Debug)]
pub struct Model {
    pub(crate) names: Arc<Names>,
    pub(crate) since: u64,
    pub(crate) pulse: Pulse,
    /// The worker thread's time in the first pulse that had it, and the time of that pulse.
    pub(crate) worker_began: Option<(u64, u64)>,
    pub(crate) records: u64,
    /// The number of records that were already added to `all`.
    counted: u64,
    pub(crate) all: Recent,
    pub(crate) kernels: HashMap<u64, Ran, Fast>,
    pub(crate) calls: HashMap<(u8, u32), Called, Fast>,
    pub(crate) copies: BTreeMap<u32, Called>,
    pub(crate) devices: BTreeMap<u32, Lanes>,
    /// The numbers that people know GPUs by, by node.
    gpus: BTreeMap<u32, u32>,
    pub(crate) queues: BTreeMap<u32, Known>,
    /// When threads of the host were in a call that waits.
    pub(crate) waiting: Lane,
    pub(crate) untimed: u64,
    /// What bursts add up to.
    pub(crate) sums: Sums,
    symbols: HashMap<u64, Vec<u8>, Fast>,
    objects: HashMap<u64, u64, Fast>,
    /// Where kernels are in memory, and the samples of their instructions.
    pub(crate) sampled: (SampledKernels, Samples),
    name_bytes: usize,
    messages: Option<VecDeque<(u64, String)>>,
    pub(crate) code: Code,
    /// How counters of whole devices are read, where there are any.
    pub(crate) readings: Option<DeviceReadings>,
    pub(crate) gauges: BTreeMap<(u32, &'static str), Gauge>,
    pub(crate) wishes: Wishes,
    pub(crate) triggers: Triggers,
    /// How the session ended, in words.
    pub(crate) ended: Option<String>,
}

fn number_of(gpus: &BTreeMap<u32, u32>, node: u32) -> u32 {
    let known = gpus.get(&node).copied();
    let cuda = || node.checked_sub(CUDA_NODE);
    known.or_else(cuda).unwrap_or(node)
}

impl Model {
    /// Makes an empty model. `now` is CLOCK_BOOTTIME ns.
    pub fn new(names: Arc<Names>, now: u64) -> Model {
        Model {
            names,
            since: now,
            pulse: Pulse {
                now,
                ..Pulse::default()
            },
            worker_began: None,
            records: 0,
            counted: 0,
            all: Recent::default(),
            kernels: HashMap::default(),
            calls: HashMap::default(),
            copies: BTreeMap::new(),
            devices: BTreeMap::new(),
            gpus: BTreeMap::new(),
            queues: BTreeMap::new(),
            waiting: Lane::default(),
            untimed: 0,
            sums: Sums::default(),
            symbols: HashMap::default(),
            objects: HashMap::default(),
            sampled: (SampledKernels::default(), Samples::default()),
            name_bytes: 0,
            messages: None,
            code: Code::new(),
            readings: None,
            gauges: BTreeMap::new(),
            wishes: Wishes::default(),
            triggers: Triggers::default(),
            ended: None,
        }
    }

    /// Tells the numbers that people know GPUs by, each with its node.
    pub fn number_gpus(&mut self, gpus: impl IntoIterator<Item = (u32, u32)>) {
        self.gpus = gpus.into_iter().collect();
    }

    /// Returns the number that people know a GPU by. It is the one on the screen after an attach.
    pub(crate) fn gpu(&self, node: u32) -> u32 {
        number_of(&self.gpus, node)
    }

    /// Takes what the session knows besides its records. Call it after the records of a poll have
    /// been added.
    pub fn pulse(&mut self, pulse: Pulse) {
        if self.worker_began.is_none() {
            self.worker_began = pulse.worker_ns.map(|ns| (pulse.now, ns));
        }
        let now = pulse.now;
        self.all.add(now, now, self.records - self.counted);
        self.counted = self.records;
        self.pulse = pulse;
        let horizon = self.pulse.now.saturating_sub(KEPT);
        self.waiting.forget_before(horizon);
        for lanes in self.devices.values_mut() {
            lanes.busy.forget_before(horizon);
            lanes.copying.forget_before(horizon);
            lanes.queued.forget_before(horizon);
        }
        self.forget_readings();
        self.code.pulse(now);
        if !self.triggers.is_empty() {
            self.look_for_events();
        }
    }

    /// Looks for events that triggers wait for and that no record reports.
    fn look_for_events(&mut self) {
        let now = self.pulse.now;
        for (node, lanes) in &self.devices {
            let flying = self.pulse.flights.iter().any(|flight| flight.node == *node);
            let spans = lanes.busy.within(0, now);
            let gpu = number_of(&self.gpus, *node);
            self.triggers.gaps((*node, gpu), &spans, flying, now);
        }
        for flight in &self.pulse.flights {
            let began = crate::snapshot::began(self, flight);
            self.triggers.head(flight, began, now);
        }
        if let Some(share) = self.pulse.memory {
            self.triggers.memory(share, now);
        }
    }

    /// Returns the time of the last pulse, CLOCK_BOOTTIME ns.
    pub fn now(&self) -> u64 {
        self.pulse.now
    }

    /// Notes that the session is over.
    pub fn end(&mut self, how: &str) {
        self.ended = Some(how.to_owned());
        self.pulse.flights.clear();
    }

    /// Makes the model keep messages of markers from now on, for [`Model::messages`].
    pub fn keep_messages(&mut self) {
        self.messages.get_or_insert_default();
    }

    /// Returns the messages of markers since the last call, with their times.
    pub fn messages(&mut self) -> Vec<(u64, String)> {
        self.messages
            .as_mut()
            .map(|messages| messages.drain(..).collect())
            .unwrap_or_default()
    }

    /// Returns the mangled name of a kernel, where it is known.
    pub(crate) fn symbol(&self, kernel_id: u64) -> Option<&[u8]> {
        self.symbols.get(&kernel_id).map(Vec::as_slice)
    }

    /// Returns the kernel to which a packet's kernel object belongs, or 0 where it is not known.
    pub(crate) fn kernel_of(&self, object: u64) -> u64 {
        self.objects.get(&object).copied().unwrap_or(0)
    }

    /// Limits a time of the target's to the present, so that a false one does no harm.
    pub(crate) fn time(&self, time: u64) -> u64 {
        // Records may be some milliseconds younger than the last pulse.
        time.min(self.pulse.now.saturating_add(4 * SLOT))
    }

    /// `node`: the node of a CUDA graph that it is of, or 0; None for HIP.
    fn add_kernel(&mut self, kernel: &event::Kernel, node: Option<u64>) {
        let queue_known =
            self.queues.len() < MOST_QUEUES || self.queues.contains_key(&kernel.queue_id);
        let timed = kernel.untimed == 0
            && kernel.header.flags & event::flag::UNTIMED == 0
            && kernel.end >= kernel.start
            && kernel.start > 0;
        let (start, end) = (self.time(kernel.start), self.time(kernel.end));
        if queue_known {
            let queue = self.queues.entry(kernel.queue_id).or_default();
            queue.node = kernel.node;
            queue.dispatches += 1;
            if timed {
                queue.last_end = queue.last_end.max(end);
            }
        }
        if !timed {
            self.untimed += 1;
            return;
        }
        let known = self.kernels.contains_key(&kernel.kernel_id);
        let ran = if self.kernels.len() < MOST_KERNELS || known {
            self.kernels.entry(kernel.kernel_id).or_default()
        } else {
            self.kernels.entry(FURTHER).or_default()
        };
        if !self.triggers.is_empty() {
            let before = (ran.total.calls, ran.histogram.quantile(0.5));
            let symbol = self.symbols.get(&kernel.kernel_id);
            let symbol = symbol.map(Vec::as_slice).unwrap_or_default();
            let id = kernel.kernel_id;
            self.triggers.kernel(id, symbol, (start, end), before);
        }
        ran.add((start, end));
        let symbol = self.symbol(kernel.kernel_id).unwrap_or_default();
        let is_own = !symbol.starts_with(ROCCLR_KERNEL);
        let kernel = event::Kernel {
            start,
            end,
            ..*kernel
        };
        self.code.add_kernel(&kernel, node, is_own);
        if let Some(lanes) = self.lanes(kernel.node) {
            lanes.is_gpu = true;
            lanes.busy.add(start, end);
            if kernel.rung > 0 {
                lanes.queued.add(kernel.rung, start);
                self.sums.delays.add(start.saturating_sub(kernel.rung));
            }
        }
    }

    fn lanes(&mut self, node: u32) -> Option<&mut Lanes> {
        let fits = self.devices.len() < MOST_DEVICES || self.devices.contains_key(&node);
        fits.then(|| self.devices.entry(node).or_default())
    }

    fn add_copy(&mut self, copy: &Copy) {
        let timed = copy.untimed == 0
            && copy.header.flags & event::flag::UNTIMED == 0
            && copy.end >= copy.start
            && copy.start > 0;
        if !timed {
            self.untimed += 1;
            return;
        }
        let (start, end) = (self.time(copy.start), self.time(copy.end));
        // Invalid directions share an entry.
        let called = self
            .copies
            .entry(copy.header.operation.min(64))
            .or_default();
        called.total.count(end - start);
        called.recent.add(start, end, copy.bytes);
        called.bytes = called.bytes.saturating_add(copy.bytes);
        self.code.add(copy.correlation, (start, end));
        for node in [copy.src_node, copy.dst_node] {
            if let Some(lanes) = self.lanes(node) {
                lanes.copying.add(start, end);
            }
        }
    }

    fn add_set(&mut self, set: &MemorySet) {
        let (start, end) = (self.time(set.start), self.time(set.end));
        if start > 0
            && let Some(lanes) = self.lanes(set.node)
        {
            lanes.copying.add(start, end);
        }
    }

    fn add_call(&mut self, api: &Api) {
        let key = (api.header.kind, api.header.operation);
        let (start, end) = (self.time(api.start), self.time(api.end));
        if !self.calls.contains_key(&key) && self.calls.len() >= MOST_CALLS {
            return;
        }
        let names = &self.names;
        let called = self.calls.entry(key).or_insert_with(|| Called {
            waits: is_wait(key.0, key.1) || copies(&names.operation(key.0, key.1)),
            ..Called::default()
        });
        called.total.count(end.saturating_sub(start));
        called.recent.add(start, end, 0);
        // The rule for idle time is the same as on the screen after an attach. A blocking copy is
        // no such wait, since the GPU copies meanwhile.
        if is_wait(key.0, key.1) {
            self.waiting.add(start, end);
        }
    }

    fn add_marker(&mut self, marker: &Marker, message: &[u8]) {
        if !self.triggers.is_empty() {
            self.triggers.message(marker.start, message);
        }
        let Some(messages) = &mut self.messages else {
            return;
        };
        let text = message.get(..message.len().min(LONGEST_MESSAGE));
        let text = String::from_utf8_lossy(text.unwrap_or_default());
        if messages.len() >= MOST_MESSAGES {
            messages.pop_front();
        }
        messages.push_back((marker.start, text.into_owned()));
    }

    fn add_symbol(&mut self, symbol: &KernelSymbol, name: &[u8]) {
        let known = self.symbols.get(&symbol.kernel_id).map_or(0, Vec::len);
        let bytes = self.name_bytes - known + name.len();
        if self.objects.len() >= MOST_SYMBOLS || bytes > MOST_NAME_BYTES {
            return;
        }
        self.name_bytes = bytes;
        self.symbols.insert(symbol.kernel_id, name.to_vec());
        self.objects.insert(symbol.kernel_object, symbol.kernel_id);
        self.sampled.0.add(symbol);
    }
}

impl Observer for Model {
    fn record(&mut self, record: &Record<'_>) {
        if let Some(header) = record.header()
            && header.kind < event::kind::FIRST_DESCRIPTION
        {
            self.records += 1;
        }
        match record {
            Record::Api(api, _) => self.add_call(api),
            Record::Kernel(kernel, cuda) => {
                self.add_kernel(kernel, cuda.map(|cuda| cuda.graph_node));
            }
            Record::Copy(copy, _) => self.add_copy(copy),
            Record::MemorySet(set) => self.add_set(set),
            Record::Marker(marker, message) => self.add_marker(marker, message),
            // Operation 2 is a stream that waits for an event, in which no thread of the host
            // waits.
            Record::Synchronization(wait) if wait.header.operation != 2 => {
                let (start, end) = (self.time(wait.start), self.time(wait.end));
                self.waiting.add(start, end);
            }
            Record::CounterWindow(part, words) => {
                let values = self.readings.as_mut().map(|it| it.take(part, words));
                self.add_values(&values.unwrap_or_default());
            }
            Record::PcSample(sample) => self.sampled.1.add(sample),
            Record::Burst(burst) => self.add_burst(burst),
            Record::KernelSymbol(symbol, name) => self.add_symbol(symbol, name),
            Record::Code(..)
            | Record::NativeCode(_)
            | Record::Module(..)
            | Record::Stack(..)
            | Record::LaunchStack(_)
            | Record::Note(_) => self.code.learn(record),
            Record::GraphBuild(step) => self.code.add_step(step),
            Record::Queue(queue) => {
                if self.queues.len() < MOST_QUEUES {
                    self.queues.entry(queue.queue_id).or_default().node = queue.node;
                }
                if queue.node != 0
                    && let Some(lanes) = self.lanes(queue.node)
                {
                    lanes.is_gpu = true;
                }
            }
            _ => {}
        }
    }
}

/// Whether a function copies, and returns when that is done.
fn copies(name: &str) -> bool {
    name.contains("Memcpy") && !name.contains("Async") && !name.contains("Node")
}

#[cfg(test)]
mod tests;
