//! One row, and its event, for each thing that happened.

use super::counted::Counted;
use super::cuda::{launch, transfer};
use super::database::{Database, Step, text, whole};
use super::info::Info;
use super::long::{Allocated, Copied, Dispatch, Launched, Long};
use super::sampled::Sampled;
use super::stacks::CallStacks;
use super::strings::Strings;
use crate::arguments;
use crate::counters::Verdict;
use crate::job::Job;
use foldhash::fast::RandomState;
use midair_domain::sets;
use midair_record::event::{
    Allocation, Api, Copy, CudaLaunch, CudaTransfer, EventCall, GraphCall, Header, Kernel,
    KfdEvent, Marker, NO_NODE, PcSample, Record, Scratch, flag, kind,
};
use midair_trace::api::{Parameter, has_message};
use midair_trace::cuda::copy_operation;
use midair_trace::index::untimed;
use midair_trace::limits;
use rusqlite::{Statement, params};
use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;

/// The operation of a ROCTx range of a thread.
const THREAD_RANGE: u32 = 1;
/// The greatest id that is taken from records, because there have to be free ids above it.
const LARGEST_ID: u64 = 1 << 62;
/// The most tracks that are remembered. When there are more, all are forgotten.
const MOST_TRACKS: usize = 1 << 16;

/// What a call's or marker's row needs.
pub(super) struct Call<'a> {
    pub(super) header: Header,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) correlation: u64,
    pub(super) ancestor: u64,
    pub(super) tid: u32,
    /// The JSON for the event.
    pub(super) extdata: Cow<'a, str>,
    /// The region's name, if that is not the operation.
    pub(super) name: Option<&'a str>,
}

/// The parameters of a function, and their types in the form that people write.
struct Function<'j> {
    parameters: &'j [Parameter],
    types: Vec<String>,
}

/// The statements for records of what happened.
pub(super) struct Rows<'c, 'j> {
    pub(super) job: &'j Job<'j>,
    pub(super) info: Info<'c, 'j>,
    strings: Strings<'c>,
    stacks: CallStacks,
    /// The id of the name of each kind, and of each call.
    categories: HashMap<u8, i64, RandomState>,
    operations: HashMap<(u8, u32), i64, RandomState>,
    /// The parameters of functions.
    functions: HashMap<(u8, u32), Rc<Function<'j>>, RandomState>,
    /// The place where values of arguments are made.
    text: String,
    /// The tables with a row for each record.
    pub(super) long: Long<'c>,
    track: Statement<'c>,
    metadata: Statement<'c>,
    tracks: HashMap<(u32, i64), i64, RandomState>,
    pub(super) counters: Counted,
    sampled: Option<Sampled<'c>>,
}

impl<'c, 'j> Rows<'c, 'j> {
    pub(super) fn new(
        database: &Database<'c>,
        job: &'j Job<'j>,
        info: Info<'c, 'j>,
        strings: Strings<'c>,
        long: Long<'c>,
    ) -> Step<Rows<'c, 'j>> {
        Ok(Rows {
            job,
            info,
            strings,
            stacks: CallStacks::default(),
            categories: HashMap::default(),
            operations: HashMap::default(),
            functions: HashMap::default(),
            text: String::new(),
            long,
            track: database.insert("track", "nid, pid, tid, name_id")?,
            metadata: database.insert("metadata", "tag, value")?,
            tracks: HashMap::default(),
            counters: Counted::default(),
            sampled: Sampled::begin(database, job)?,
        })
    }

    pub(super) fn put(&mut self, record: &Record<'_>) -> Step<()> {
        match record {
            Record::Api(api, words) => self.api(api, words),
            Record::Marker(marker, message) => self.marker(marker, message),
            Record::Kernel(kernel, extra) => self.kernel(kernel, extra.as_ref()),
            Record::Copy(copy, extra) => self.memory_copy(copy, extra.as_ref()),
            Record::MemorySet(set) => self.memory_set(set),
            Record::Synchronization(wait) => self.wait(wait),
            Record::UnifiedMemory(moved) => self.unified(moved),
            Record::Allocation(allocation) => self.memory(allocation),
            Record::Scratch(scratch) => self.scratch(scratch),
            Record::Graph(call) => self.graph(call),
            Record::Event(call) => self.hip_event(call),
            Record::Kfd(event) if event.is_in_files() => self.driver_event(event),
            Record::PcSample(sample) => self.pc_sample(sample),
            _ => Ok(()),
        }
    }

    fn pc_sample(&mut self, sample: &PcSample) -> Step<()> {
        let agent = self.info.agent(sample.node)?;
        let place = [self.info.nid, self.info.pid, agent];
        match &mut self.sampled {
            Some(sampled) => sampled.put(place, sample),
            None => Ok(()),
        }
    }

    /// Writes what is left.
    pub(super) fn finish(self) -> Step<()> {
        self.long.finish()
    }

    /// Returns the id of an operation's name.
    pub(super) fn operation(&mut self, header: &Header) -> Step<i64> {
        let key = (header.kind, header.operation);
        if let Some(id) = self.operations.get(&key) {
            return Ok(*id);
        }
        let name = self.job.names.operation(key.0, key.1);
        let id = self.strings.id(&name)?;
        // Numbers without a name are invented by the target, and may be many.
        if matches!(name, Cow::Borrowed(_)) {
            self.operations.insert(key, id);
        }
        Ok(id)
    }

    /// Returns the id of a kind's name.
    fn category(&mut self, kind: u8) -> Step<i64> {
        if let Some(id) = self.categories.get(&kind) {
            return Ok(*id);
        }
        let id = self.strings.id(&self.job.names.kind(kind))?;
        self.categories.insert(kind, id);
        Ok(id)
    }

    /// Inserts an event and returns its id.
    pub(super) fn event(&mut self, kind: u8, id: u64, parent: u64, extdata: &str) -> Step<i64> {
        let stack = self.job.index.stacks.of_launch(id);
        self.event_at(kind, (id, parent), stack, extdata)
    }

    /// Inserts the event of a dispatch.
    pub(super) fn event_of(&mut self, kind: u8, kernel: &Kernel, extdata: &str) -> Step<i64> {
        let stack = self.job.index.stacks.of_kernel(kernel);
        let id = kernel.correlation;
        self.event_at(kind, (id, id), stack, extdata)
    }

    fn event_at(
        &mut self,
        kind: u8,
        (id, parent): (u64, u64),
        stack: u32,
        extdata: &str,
    ) -> Step<i64> {
        let category = self.category(kind)?;
        let call_stack = self
            .stacks
            .of(&self.job.index.stacks, &mut self.strings, stack)?;
        let texts = [call_stack, extdata];
        self.long.event(category, id, parent, texts)
    }

    /// Inserts a region, or a sample where the call took no time. Returns the event's id.
    pub(super) fn call(&mut self, call: &Call<'_>) -> Step<i64> {
        let header = &call.header;
        let tid = self.info.thread(call.tid)?;
        let event = self.event(header.kind, call.correlation, call.ancestor, &call.extdata)?;
        // Several of CUDA's calls, waits and ranges may have one correlation id.
        let id = if self.job.index.is_cuda() {
            None
        } else {
            own_id(call.correlation)
        };
        if call.start == call.end {
            let category = self.category(header.kind)?;
            let track = self.track(call.tid, category)?;
            // A sample has no name of its own: AMD's files do not say which function it was.
            let name = self.job.names.operation(header.kind, header.operation);
            let extdata = serde_json::json!({ "name": name }).to_string();
            self.long.sample(id, track, call.start, event, &extdata)?;
            return Ok(event);
        }
        let name = match call.name {
            Some(name) => self.strings.id(name)?,
            None => self.operation(header)?,
        };
        let times = [whole(call.start), whole(call.end)];
        let extdata = remarks(header.flags, None);
        self.long.region(id, tid, times, name, event, &extdata)?;
        Ok(event)
    }

    /// Inserts a sample on the track with this name of a thread. Returns its id.
    pub(super) fn sample_on(
        &mut self,
        tid: u32,
        name: &str,
        time: u64,
        event: i64,
        extdata: &str,
    ) -> Step<i64> {
        let tid_row = self.info.thread(tid)?;
        debug_assert_eq!(tid_row, i64::from(tid));
        let name = self.strings.id(name)?;
        let track = self.track(tid, name)?;
        self.long.sample(None, track, time, event, extdata)
    }

    fn track(&mut self, tid: u32, name: i64) -> Step<i64> {
        if let Some(id) = self.tracks.get(&(tid, name)) {
            return Ok(*id);
        }
        let row = params![self.info.nid, self.info.pid, tid, name];
        let id = self.track.insert(row)?;
        if self.tracks.len() >= MOST_TRACKS {
            self.tracks.clear();
        }
        self.tracks.insert((tid, name), id);
        Ok(id)
    }

    fn api(&mut self, api: &Api, words: &[u8]) -> Step<()> {
        let header = api.header;
        let extdata = match api.retval {
            0 => Cow::Borrowed("{}"),
            value if sets::CUDA_CALLS.contains(header.kind) => {
                Cow::Owned(format!("{{\"result\":{value}}}"))
            }
            value => Cow::Owned(format!("{{\"retval\":{value}}}")),
        };
        let event = self.call(&Call {
            header,
            start: api.start,
            end: api.end,
            correlation: api.correlation,
            ancestor: api.ancestor,
            tid: api.tid,
            extdata,
            name: None,
        })?;
        if !sets::HIP_CALLS.contains(header.kind) {
            return Ok(());
        }
        let stream = self.info.stream(api.stream)?;
        let function = self.function(header.kind, header.operation);
        let long = &mut self.long;
        let mut position = 0;
        let mut types = function.types.iter();
        let put = |parameter: &Parameter, value: &str| -> Step<()> {
            let readable = types.next().map_or("", String::as_str);
            let (name, value) = (parameter.name.as_ref(), text(value));
            let extdata = match name {
                "stream" => Cow::Owned(format!("{{\"stream_id\":{stream}}}")),
                _ => Cow::Borrowed("{}"),
            };
            long.argument(event, position, [readable, name, &value, &extdata])?;
            position += 1;
            Ok(())
        };
        arguments::each(function.parameters, words, &mut self.text, put)
    }

    /// Returns the parameters of a function.
    fn function(&mut self, kind: u8, operation: u32) -> Rc<Function<'j>> {
        if let Some(known) = self.functions.get(&(kind, operation)) {
            return Rc::clone(known);
        }
        let parameters = self.job.names.parameters(kind, operation);
        let types = parameters.iter();
        let types = types.map(|parameter| midair_demangle::demangle_type(&parameter.type_name));
        let function = Rc::new(Function {
            parameters,
            types: types.collect(),
        });
        // Numbers without parameters may be invented by the target.
        if !parameters.is_empty() {
            self.functions
                .insert((kind, operation), Rc::clone(&function));
        }
        function
    }

    /// Inserts an event on the process's main thread, since the driver names no thread.
    fn driver_event(&mut self, event: &KfdEvent) -> Step<()> {
        let extdata = serde_json::json!({
            "address": event.address,
            "end_address": event.end_address,
            "from": event.from,
            "to": event.to,
            "prefetch": event.prefetch,
            "preferred": event.preferred,
            "error_code": event.error,
            "count": event.count,
        });
        self.call(&Call {
            header: event.header,
            start: event.start,
            end: event.end,
            correlation: 0,
            ancestor: 0,
            tid: event.pid,
            extdata: Cow::Owned(extdata.to_string()),
            name: None,
        })?;
        Ok(())
    }

    fn marker(&mut self, marker: &Marker, message: &[u8]) -> Step<()> {
        let header = &marker.header;
        let message = limits::text(message);
        let message = text(&message);
        let has_message = has_message(header.kind, header.operation);
        // AMD's files since August 2026 (rocm-systems #10076).
        let name = (has_message && !message.is_empty()).then_some(&*message);
        let mut extdata = Cow::Borrowed("{}");
        if has_message || !message.is_empty() {
            let mut facts = serde_json::json!({ "message": message });
            // A range of the process, whose message is the region's name.
            let is_region = marker.start != marker.end;
            if name.is_some() && is_region && header.operation != THREAD_RANGE {
                facts["function"] =
                    (*self.job.names.operation(header.kind, header.operation)).into();
            }
            extdata = Cow::Owned(facts.to_string());
        }
        self.call(&Call {
            header: marker.header,
            start: marker.start,
            end: marker.end,
            correlation: marker.correlation,
            ancestor: marker.ancestor,
            tid: marker.tid,
            extdata,
            name,
        })?;
        Ok(())
    }

    fn kernel(&mut self, kernel: &Kernel, extra: Option<&CudaLaunch>) -> Step<()> {
        // A dispatch with counters is written once, by whichever of the two records comes first.
        if self.counters.has_dispatch(kernel) {
            return Ok(());
        }
        let event = self.dispatch(kernel, extra)?;
        self.counters.wrote(self.job, kernel, event);
        Ok(())
    }

    /// Inserts the row of a dispatch and its event, and returns the event's id.
    pub(super) fn dispatch(&mut self, kernel: &Kernel, extra: Option<&CudaLaunch>) -> Step<i64> {
        let event = self.event_of(kind::KERNEL_DISPATCH, kernel, "{}")?;
        let tid = self.info.thread(kernel.tid)?;
        let agent = self.info.agent(kernel.node)?;
        let symbol = self.info.kernel(kernel)?;
        let range = self.job.renamed.as_ref().and_then(|all| all.of(kernel));
        let region = match range {
            Some((_, message)) => self.strings.id(message)?,
            None => Strings::EMPTY,
        };
        let queue = self.info.queue(kernel.queue_id)?;
        let stream = self.info.stream(kernel.stream)?;
        let flags = kernel.header.flags;
        let reason = untimed(flags, kernel.untimed);
        let verdict = self.job.counting.windows.beside(kernel.dispatch_id);
        // Which node of a graph of HIP's it was is not known.
        let (graph, node, extdata) = match extra {
            Some(extra) => {
                let facts = launch(kernel, extra).into();
                (i64::from(extra.graph), whole(extra.graph_node), facts)
            }
            None => {
                let facts = dispatched(kernel.rung, verdict, flags, reason);
                (whole(self.job.graphs.of_kernel(kernel)), 0, facts)
            }
        };
        self.long.dispatch(
            own_id(kernel.dispatch_id),
            &Dispatch {
                tid,
                agent,
                kernel: symbol,
                dispatch: whole(kernel.dispatch_id),
                queue,
                stream,
                start: whole(kernel.start),
                end: whole(kernel.end),
                private_segment: kernel.private_segment,
                group_segment: kernel.group_segment,
                workgroup: kernel.workgroup,
                grid: kernel.grid,
                graph,
                graph_node: node,
                region,
                event,
                extdata: &extdata,
            },
        )?;
        Ok(event)
    }

    fn memory_copy(&mut self, copy: &Copy, extra: Option<&CudaTransfer>) -> Step<()> {
        let event = self.event(kind::MEMORY_COPY, copy.correlation, copy.correlation, "{}")?;
        let tid = self.info.thread(copy.tid)?;
        let name = self.operation(&Header {
            operation: copy_operation(copy, extra),
            ..copy.header
        })?;
        let destination = self.info.agent(copy.dst_node)?;
        let source = self.info.agent(copy.src_node)?;
        let stream = self.info.stream(copy.stream)?;
        let flags = copy.header.flags;
        let mut extdata = remarks(flags, untimed(flags, copy.untimed));
        let (mut graph, mut node) = (0, 0);
        if let Some(extra) = extra {
            (graph, node) = (extra.graph, whole(extra.graph_node));
            extdata = transfer(copy, extra).into();
        }
        self.long.copy(&Copied {
            tid,
            start: whole(copy.start),
            end: whole(copy.end),
            name,
            to: (destination, Some(whole(copy.dst))),
            from: (source, Some(whole(copy.src))),
            bytes: copy.bytes,
            stream,
            graph,
            graph_node: node,
            event,
            extdata: &extdata,
        })
    }

    fn graph(&mut self, call: &GraphCall) -> Step<()> {
        let Some(launch) = self.job.graphs.of(call) else {
            return Ok(());
        };
        let event = self.event(kind::HIP_GRAPH, call.correlation, call.correlation, "{}")?;
        let tid = self.info.thread(call.tid)?;
        let agent = launch.node.map(|node| self.info.agent(node)).transpose()?;
        let queue = launch
            .queue
            .map(|queue| self.info.queue(queue))
            .transpose()?;
        let mut extdata = serde_json::json!({
            "call_start": call.start,
            "call_end": call.end,
            "ancestor": call.ancestor,
            "stream_id": self.info.stream(call.stream)?,
        });
        if let Some(remark) = launch.remark() {
            extdata["remark"] = remark.into();
        }
        self.long.launch(&Launched {
            tid,
            agent,
            queue,
            start: whole(launch.start),
            end: whole(launch.end),
            graph: whole(launch.graph),
            kernels: launch.kernels,
            event,
            extdata: &extdata.to_string(),
        })
    }

    /// Writes the barrier of a record of a HIP event, or of a wait for one, as a region: the schema has
    /// no table for them, and AMD's readers refuse a file that has one besides.
    fn hip_event(&mut self, call: &EventCall) -> Step<()> {
        let Some(of) = self.job.events.of(call) else {
            return Ok(());
        };
        let mut extdata = serde_json::json!({
            "agent_id": self.info.agent(of.node)?,
            "queue_id": self.info.queue(of.queue)?,
            "stream_id": self.info.stream(call.stream)?,
            "hip_event_handle": call.event,
            "call_start": call.start,
            "call_end": call.end,
        });
        if let Some(queue) = of.source {
            extdata["source_queue_id"] = self.info.queue(queue)?.into();
        }
        if let Some(remark) = of.remark() {
            extdata["remark"] = remark.into();
        }
        let category = self.strings.id(BARRIERS)?;
        let id = call.correlation;
        let texts = ["{}", &extdata.to_string()];
        let event = self.long.event(category, id, id, texts)?;
        let (tid, name) = (self.info.thread(call.tid)?, self.operation(&call.header)?);
        let times = [whole(of.start), whole(of.end)];
        // Its correlation id is the id of the call's region.
        self.long.region(None, tid, times, name, event, "{}")
    }

    fn memory(&mut self, allocation: &Allocation) -> Step<()> {
        let event = self.event(
            kind::MEMORY_ALLOCATION,
            allocation.correlation,
            allocation.ancestor,
            "{}",
        )?;
        let (what, level) = match allocation.header.operation {
            1 => (Some("ALLOC"), Some("REAL")),
            2 => (Some("ALLOC"), Some("VIRTUAL")),
            3 => (Some("FREE"), Some("REAL")),
            4 => (Some("FREE"), Some("VIRTUAL")),
            _ => (None, None),
        };
        let tid = self.info.thread(allocation.tid)?;
        let agent = match allocation.node {
            NO_NODE => None,
            node => Some(self.info.agent(node)?),
        };
        let stream = self.info.stream(allocation.stream)?;
        self.long.allocation(&Allocated {
            tid,
            agent,
            of: what,
            level,
            start: whole(allocation.start),
            end: whole(allocation.end),
            address: Some(whole(allocation.address)),
            bytes: allocation.bytes,
            queue: None,
            stream: Some(stream),
            event,
            extdata: &remarks(allocation.header.flags, None),
        })
    }

    fn scratch(&mut self, scratch: &Scratch) -> Step<()> {
        let event = self.event(
            kind::SCRATCH_MEMORY,
            scratch.correlation,
            scratch.ancestor,
            "{}",
        )?;
        let what = match scratch.header.operation {
            1 => Some("ALLOC"),
            2 => Some("FREE"),
            3 => Some("RECLAIM"),
            _ => None,
        };
        let tid = self.info.thread(scratch.tid)?;
        let agent = match scratch.node {
            NO_NODE => None,
            node => Some(self.info.agent(node)?),
        };
        let queue = self.info.queue(scratch.queue_id)?;
        self.long.allocation(&Allocated {
            tid,
            agent,
            of: what,
            level: Some("SCRATCH"),
            start: whole(scratch.start),
            end: whole(scratch.end),
            address: None,
            bytes: scratch.bytes,
            queue: Some(queue),
            stream: None,
            event,
            extdata: &format!("{{\"flags\":{}}}", scratch.flags),
        })
    }

    /// Inserts a row of `rocpd_metadata`.
    pub(super) fn put_metadata(&mut self, tag: &str, value: &str) -> Step<()> {
        self.metadata.execute(params![tag, text(value)])?;
        Ok(())
    }
}

/// The category of barriers of HIP events. AMD's readers take every category that starts with `HIP_`
/// for calls.
const BARRIERS: &str = "BARRIER";

/// Returns the id in a record, if it is valid.
fn own_id(id: u64) -> Option<i64> {
    (1..LARGEST_ID).contains(&id).then(|| whole(id))
}

/// Returns further facts about a row, as JSON.
fn remarks(flags: u8, untimed: Option<&'static str>) -> Cow<'static, str> {
    let open = flags & flag::OPEN_AT_DETACH != 0;
    match (untimed, open) {
        (None, false) => Cow::Borrowed("{}"),
        (None, true) => Cow::Borrowed("{\"open_at_detach\":true}"),
        (Some(reason), open) => {
            let all = serde_json::json!({ "untimed": reason, "open_at_detach": open });
            Cow::Owned(all.to_string())
        }
    }
}

/// Returns further facts about a dispatch, as JSON: when its doorbell rang, and why counted values were
/// left out.
fn dispatched(
    rung: u64,
    verdict: Option<Verdict>,
    flags: u8,
    untimed: Option<&'static str>,
) -> Cow<'static, str> {
    let plain = flags & flag::OPEN_AT_DETACH == 0 && untimed.is_none() && verdict.is_none();
    if plain {
        return match rung {
            0 => Cow::Borrowed("{}"),
            rung => Cow::Owned(format!("{{\"doorbell_timestamp\":{rung}}}")),
        };
    }
    let mut all = serde_json::Map::new();
    if rung != 0 {
        all.insert("doorbell_timestamp".to_owned(), rung.into());
    }
    if let Some(verdict) = verdict {
        all.insert("counters".to_owned(), verdict.key().into());
    }
    let open = flags & flag::OPEN_AT_DETACH != 0;
    if open || untimed.is_some() {
        all.insert("open_at_detach".to_owned(), open.into());
    }
    if let Some(reason) = untimed {
        all.insert("untimed".to_owned(), reason.into());
    }
    Cow::Owned(serde_json::Value::Object(all).to_string())
}
