//! From records to spans of the timeline and values of curves.

use super::Page;
use super::timeline::{Category, Key};
use crate::counters::values::sum;
use crate::counters::{Counts, Reading};
use crate::files::WriteError;
use crate::job::Job;
use crate::screen;
use crate::sink::Sink;
use foldhash::fast::RandomState;
use midair_agents::AgentType;
use midair_record::event::{
    Allocation, Api, Copy, CudaTransfer, Kernel, Marker, MemorySet, Record, Scratch, kind,
};
use midair_trace::api::has_message;
use midair_trace::cuda::devices::ordinal;
use midair_trace::cuda::{copy_operation, stream_parts};
use midair_trace::index::untimed;
use std::collections::HashMap;

/// `roctxRangeStartA` and its stop (source: api/rocprofiler_sdk.json).
const PROCESS_RANGE: u32 = 2;
/// The most kernels and operations whose numbers are remembered.
const MOST_KNOWN: usize = 1 << 16;
/// The most iterations of a loop that have their number in their name.
const MOST_NUMBERED: u64 = 2_000;

/// The records of one session.
pub(super) struct Session<'s> {
    pub(super) job: &'s Job<'s>,
    /// The session's number.
    pub(super) process: usize,
    pub(super) page: &'s mut Page,
    by_queue: bool,
    /// The numbers of the names of kernels, and of operations.
    kernels: HashMap<u64, u32, RandomState>,
    operations: HashMap<(u8, u32), u32, RandomState>,
}

impl<'s> Session<'s> {
    pub(super) fn new(job: &'s Job<'s>, process: usize, page: &'s mut Page) -> Session<'s> {
        Session {
            job,
            process,
            page,
            by_queue: job.plan.group_by_queue || job.index.is_without_hip(),
            kernels: HashMap::default(),
            operations: HashMap::default(),
        }
    }

    /// Returns the number of an operation's name.
    fn operation(&mut self, category: Category, kind: u8, operation: u32) -> u32 {
        if let Some(number) = self.operations.get(&(kind, operation)) {
            return *number;
        }
        let name = self.job.names.operation(kind, operation);
        let number = self.page.timeline.name(category, &name);
        if self.operations.len() < MOST_KNOWN {
            self.operations.insert((kind, operation), number);
        }
        number
    }

    /// Returns the number of a kernel's name: the one that the table shows.
    fn kernel_name(&mut self, kernel: &Kernel) -> u32 {
        let id = kernel.kernel_id;
        if let Some(number) = self.kernels.get(&id) {
            return *number;
        }
        let name = self.job.kernel_name(kernel);
        let shown = match self.page.labels.get(name.as_ref()) {
            Some(label) => label.as_str(),
            None => name.as_ref(),
        };
        let number = self.page.timeline.name(Category::Kernel, shown);
        // Kernels without a symbol are named by their addresses.
        let is_known = self.job.index.symbols.contains_key(&id);
        if is_known && self.kernels.len() < MOST_KNOWN {
            self.kernels.insert(id, number);
        }
        number
    }

    /// Adds a span to a row. Work without times has no place there. The heading says how much there
    /// is.
    fn span(&mut self, key: Key, name: u32, (start, end): (u64, u64), value: u64) {
        if start == 0 {
            return;
        }
        let (job, process) = (self.job, self.process);
        let timeline = &mut self.page.timeline;
        let row = timeline.row(process, key, || row_name(job, key));
        timeline.add(row, name, (start, end), value);
    }

    /// Adds the iterations of the program's main loop.
    fn steps(&mut self) {
        let found = self.job.trace.main_loop();
        let steps = found.iter().flat_map(|found| &found.steps);
        for (number, step) in (1..).zip(steps) {
            let name = match number {
                0..=MOST_NUMBERED => format!("step {number}"),
                _ => "step".to_owned(),
            };
            let name = self.page.timeline.name(Category::Range, &name);
            let times = (step.start, step.start + step.duration);
            self.span(Key::Steps, name, times, 0);
        }
        if let Some(found) = &found {
            for phase in &found.phases {
                let name = screen::phase_of_loop(found, phase.line);
                let name = self.page.timeline.name(Category::Range, &name);
                let times = (phase.start, phase.start + phase.duration);
                self.span(Key::Phases, name, times, 0);
            }
        }
    }

    fn stream(&self, node: u32, stream: u64) -> Key {
        match self.job.index.is_cuda() {
            true => Key::Stream(node, stream),
            false => Key::Stream(node, self.job.index.stream(stream)),
        }
    }

    fn thread(&self, tid: u32) -> Key {
        match tid {
            tid if tid == self.job.trace.process.pid => Key::Main,
            tid => Key::Thread(tid),
        }
    }

    fn call(&mut self, api: &Api) {
        let name = self.operation(Category::Call, api.header.kind, api.header.operation);
        self.span(self.thread(api.tid), name, (api.start, api.end), 0);
    }

    fn marker(&mut self, marker: &Marker, message: &[u8]) {
        let header = marker.header;
        let name = self.job.names.marker(marker, message);
        let is_range = has_message(header.kind, header.operation);
        let category = match is_range {
            true => Category::Range,
            false => Category::Call,
        };
        let name = self.page.timeline.name(category, &name);
        let key = match is_range && header.operation == PROCESS_RANGE {
            true => Key::Ranges,
            false => self.thread(marker.tid),
        };
        self.span(key, name, (marker.start, marker.end), 0);
    }

    fn kernel(&mut self, kernel: &Kernel) {
        if untimed(kernel.header.flags, kernel.untimed).is_some() {
            return;
        }
        let name = self.kernel_name(kernel);
        let key = match self.by_queue {
            true => Key::Queue(kernel.node, kernel.queue_id),
            false => self.stream(kernel.node, kernel.stream),
        };
        self.span(key, name, (kernel.start, kernel.end), kernel.dispatch_id);
    }

    fn copy(&mut self, copy: &Copy, extra: Option<&CudaTransfer>) {
        if untimed(copy.header.flags, copy.untimed).is_some() {
            return;
        }
        let operation = copy_operation(copy, extra);
        let name = self.operation(Category::Copy, kind::MEMORY_COPY, operation);
        // The GPU among the two ends. If both are GPUs, it is the one that is written to.
        let is_gpu = |node: u32| match self.job.agent(node) {
            Some(agent) => agent.agent_type == AgentType::Gpu,
            None => ordinal(node).is_some(),
        };
        let node = match !is_gpu(copy.dst_node) && is_gpu(copy.src_node) {
            true => copy.src_node,
            false => copy.dst_node,
        };
        let key = match self.by_queue {
            true => Key::CopyTo(node),
            false => self.stream(node, copy.stream),
        };
        self.span(key, name, (copy.start, copy.end), copy.bytes);
    }

    fn memory_set(&mut self, set: &MemorySet) {
        let name = self.operation(Category::Copy, kind::MEMORY_SET, set.header.operation);
        let key = match self.by_queue {
            true => Key::CopyTo(set.node),
            false => self.stream(set.node, set.stream),
        };
        if set.end != 0 {
            self.span(key, name, (set.start, set.end), set.bytes);
        }
    }

    /// Adds a record of a kind that has a row of its own.
    fn own(
        &mut self,
        category: Category,
        (kind, operation): (u8, u32),
        times: (u64, u64),
        value: u64,
    ) {
        let name = self.operation(category, kind, operation);
        if times.1 != 0 {
            self.span(Key::Own(kind), name, times, value);
        }
    }

    fn allocation(&mut self, allocation: &Allocation) {
        let what = (kind::MEMORY_ALLOCATION, allocation.header.operation);
        let times = (allocation.start, allocation.end);
        self.own(Category::Memory, what, times, allocation.bytes);
    }

    fn scratch(&mut self, scratch: &Scratch) {
        let operation = scratch.header.operation;
        let name = self.operation(Category::Memory, kind::SCRATCH_MEMORY, operation);
        let times = (scratch.start, scratch.end);
        self.span(Key::Scratch(scratch.node), name, times, scratch.bytes);
    }

    fn value(&mut self, node: u32, what: &str, times: (u64, u64), value: f64) {
        if times.0 == 0 {
            return;
        }
        let name = format!("{} {what}", gpu(self.job, node));
        self.page.series.add(self.process, name, times, value);
    }

    /// Adds the samples of a whole GPU.
    fn samples(&mut self) {
        let Some(samples) = &self.job.trace.gpu else {
            return;
        };
        for sample in samples.samples() {
            for (metric, value) in sample.metrics.iter().zip(sample.values) {
                let Some(known) = samples.metrics.get(*metric) else {
                    continue;
                };
                let name = format!("GPU {} {} ({})", samples.index, known.name, known.unit);
                let times = (sample.start, sample.end);
                let value = f64::from(*value);
                self.page.series.add(self.process, name, times, value);
            }
        }
    }
}

impl Sink for Session<'_> {
    fn record(&mut self, record: &Record<'_>) -> Result<(), WriteError> {
        match record {
            Record::Api(api, _) => self.call(api),
            Record::Marker(marker, message) => self.marker(marker, message),
            Record::Kernel(kernel, _) => self.kernel(kernel),
            Record::Copy(copy, extra) => self.copy(copy, extra.as_ref()),
            Record::MemorySet(set) => self.memory_set(set),
            Record::Synchronization(wait) => {
                let what = (kind::SYNCHRONIZATION, wait.header.operation);
                self.own(Category::Wait, what, (wait.start, wait.end), 0);
            }
            Record::UnifiedMemory(moved) => {
                let what = (kind::UNIFIED_MEMORY, moved.header.operation);
                self.own(Category::Memory, what, (moved.start, moved.end), 0);
            }
            Record::Allocation(allocation) => self.allocation(allocation),
            Record::Scratch(scratch) => self.scratch(scratch),
            Record::Kfd(event) if event.is_in_files() => {
                let what = (event.header.kind, event.header.operation);
                self.own(Category::Driver, what, (event.start, event.end), 0);
            }
            _ => {}
        }
        Ok(())
    }

    fn counted(&mut self, counts: &Counts<'_>) -> Result<(), WriteError> {
        let kernel = counts.kernel;
        let (what, times) = match counts.batch {
            None => ("", (kernel.start, kernel.end)),
            Some(batch) => (" of batches", (batch.start, batch.end)),
        };
        for (_, name, values) in &counts.counters {
            self.value(kernel.node, &format!("{name}{what}"), times, sum(values));
        }
        Ok(())
    }

    fn read(&mut self, reading: &Reading) -> Result<(), WriteError> {
        for (_, name, values, is_sum) in &reading.counters {
            let unit = if *is_sum { " /s" } else { "" };
            let value = reading.shown(sum(values), *is_sum);
            let times = (reading.start, reading.end);
            self.value(reading.node, &format!("{name}{unit}"), times, value);
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), WriteError> {
        self.samples();
        self.steps();
        Ok(())
    }
}

/// Returns a GPU as the heading names it.
fn gpu(job: &Job<'_>, node: u32) -> String {
    let number = match job.agent(node) {
        Some(agent) if agent.agent_type == AgentType::Gpu => i64::from(agent.logical_node_type_id),
        Some(_) => return job.agent_name(node),
        None => i64::from(ordinal(node).unwrap_or(node)),
    };
    format!("GPU {number}")
}

fn row_name(job: &Job<'_>, key: Key) -> String {
    let process = &job.trace.process;
    match key {
        Key::Steps => "steps (found in the stacks)".to_owned(),
        Key::Phases => "phases (found in the stacks)".to_owned(),
        Key::Stream(node, handle) if job.index.is_cuda() => {
            let (context, stream) = stream_parts(handle);
            format!("{} context {context} stream {stream}", gpu(job, node))
        }
        Key::Stream(node, 0) => format!("{} default stream", gpu(job, node)),
        Key::Stream(node, number) => format!("{} stream {number}", gpu(job, node)),
        Key::Queue(node, queue) => format!("{} queue {queue}", gpu(job, node)),
        Key::CopyTo(node) => format!("{} copies", gpu(job, node)),
        Key::Scratch(node) => format!("{} scratch memory", gpu(job, node)),
        Key::Main => {
            let program = process.command.first().map_or("", String::as_str);
            let program = program.rsplit('/').next().unwrap_or(program);
            format!("main thread {program}").trim_end().to_owned()
        }
        Key::Thread(tid) => match process.threads.get(&tid) {
            Some(name) => format!("thread {tid} {name}"),
            None => format!("thread {tid}"),
        },
        Key::Ranges => "ranges of the process".to_owned(),
        Key::Own(kind) => {
            let name = job.names.kind(kind);
            name.to_lowercase().replace('_', " ")
        }
        Key::Others => String::new(),
    }
}
