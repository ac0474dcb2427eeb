//! Buffers: records of running contexts are put into them in AMD's layout, and passed to the tool's
//! callback when enough have accumulated, or when the tool asks.
//!
//! Callbacks run on the worker thread, which delivers; on the thread that flushes; or on a callback
//! thread if the tool assigned one. No midair lock is held then. The records belong to the buffer
//! and are valid until the callback returns.

pub(crate) mod batch;

pub use batch::BufferCallback;

use crate::callback_thread;
use crate::changes;
use crate::code_object;
use crate::context::record_kind;
use crate::context::services::Context;
use crate::convert;
use crate::deferred_callbacks;
use crate::events;
use crate::events::joined::Event;
use crate::external;
use crate::graphs::{Numbers, is_launch, is_whole};
use crate::kfd;
use crate::registration::out::expel_owner;
use crate::registry::{self, Registry};
use crate::retirement;
use crate::sampling::records;
use crate::state::{self, STATE};
use crate::status::Status;
use batch::{Batch, Buffer};
use midair_abi::constants as c;
use midair_abi::records::RecordHeader;
use midair_record::event::{self, Malformed, PcSample, Record, flag, hip_event, kind};
use midair_sdk_hot::callbacks::{self, requests, work};
use midair_sdk_hot::operations::Opaque;
use midair_tool_call::call as call_tool;
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a flush waits for callbacks.
const FLUSH_LIMIT: Duration = Duration::from_secs(10);
/// How long a flush waits for the worker thread to harvest what has ended.
const HARVEST_LIMIT: Duration = Duration::from_secs(5);
/// How long a detach waits for a running callback.
const DETACH_LIMIT: Duration = Duration::from_secs(2);

/// Creates a buffer of `size` bytes. Its callback is called when it holds `watermark` bytes.
/// Returns its handle.
pub fn create(
    context: u64,
    size: usize,
    watermark: usize,
    policy: i32,
    callback: BufferCallback,
    data: *mut c_void,
) -> Result<u64, Status> {
    let lossless = match policy {
        c::ROCPROFILER_BUFFER_POLICY_DISCARD => false,
        c::ROCPROFILER_BUFFER_POLICY_LOSSLESS => true,
        _ => return Err(Status::INVALID_ARGUMENT),
    };
    if size == 0 {
        return Err(Status::INVALID_ARGUMENT);
    }
    let mut state = state::lock();
    state.configuring()?;
    state.context(context)?;
    state.buffers.push(Some(Buffer {
        context,
        size,
        watermark: watermark.min(size),
        lossless,
        callback,
        data: Opaque(data),
        thread: 0,
        batch: Batch::default(),
        busy: false,
        runner: None,
    }));
    Ok(state.buffers.len() as u64)
}

/// Removes a buffer and the records in it.
pub fn destroy(buffer: u64) -> Result<(), Status> {
    let mut state = state::lock();
    if state.buffer(buffer)?.busy {
        return Err(Status::BUFFER_BUSY);
    }
    for context in &mut state.contexts {
        context.services.retain(|service| service.buffer != buffer);
    }
    if let Some(slot) = registry::index(buffer).and_then(|index| state.buffers.get_mut(index)) {
        *slot = None;
    }
    Ok(())
}

/// Makes the buffer's callbacks run on a callback thread from now on.
pub fn assign_thread(buffer: u64, thread: u64) -> Result<(), Status> {
    let mut state = state::lock();
    registry::index(thread)
        .and_then(|index| state.threads.get(index))
        .ok_or(Status::THREAD_NOT_FOUND)?;
    state.buffer(buffer)?.thread = thread;
    Ok(())
}

/// Passes everything that belongs into the buffer by now to its callback. It harvests and delivers
/// what has ended on the devices, waits for a running callback, and calls the callback with the
/// rest. Returns when the callback has returned.
///
/// # Errors
/// [`Status::BUFFER_BUSY`] from within the buffer's own callback, and when that does not end within
/// 10 s; [`Status::FINALIZED`] when every tool has ended.
pub fn flush(buffer: u64) -> Result<(), Status> {
    {
        let mut state = state::lock();
        if state.ended {
            return Err(Status::FINALIZED);
        }
        state.buffer(buffer)?;
    }
    // Inside a callback, do not wait for the worker, which may be waiting for this thread.
    if RUNNING.get() == 0 {
        changes::round_within(HARVEST_LIMIT);
    }
    hand_over(buffer, FLUSH_LIMIT)
}

/// Flushes every buffer of some contexts with what was delivered to it.
pub(crate) fn flush_contexts(contexts: &[u64]) {
    let buffers: Vec<u64> = {
        let state = state::lock();
        let ours = |buffer: &Buffer| contexts.contains(&buffer.context);
        let handles = (1..).zip(&state.buffers);
        handles
            .filter(|(_, buffer)| buffer.as_ref().is_some_and(ours))
            .map(|(handle, _)| handle)
            .collect()
    };
    for buffer in buffers {
        let _ = hand_over(buffer, DETACH_LIMIT);
    }
}

/// Waits until no callback of the buffer runs, and calls it with what has accumulated.
fn hand_over(handle: u64, limit: Duration) -> Result<(), Status> {
    let end = Instant::now() + limit;
    let mut state = state::lock();
    loop {
        let buffer = state.buffer(handle)?;
        if !buffer.busy {
            break;
        }
        let left = end.saturating_duration_since(Instant::now());
        // A callback that runs on this thread, or waits to run on it, cannot end while this thread
        // waits.
        let is_own = buffer.runner == Some(thread::current().id())
            || buffer.thread != 0 && buffer.thread == callback_thread::current();
        if is_own || left.is_zero() {
            return Err(Status::BUFFER_BUSY);
        }
        state = STATE
            .buffer_is_free
            .wait_timeout(state, left)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
    }
    match begin(state, handle)? {
        Begun::Nothing => Ok(()),
        Begun::Here(job) => {
            job.run();
            Ok(())
        }
        Begun::Elsewhere(finished) => {
            let left = end.saturating_duration_since(Instant::now());
            finished
                .recv_timeout(left)
                .map_err(|_: RecvTimeoutError| Status::BUFFER_BUSY)
        }
    }
}

/// Where a callback is called.
enum Begun {
    /// Nowhere: there are no records, or it is running already.
    Nothing,
    /// On the calling thread.
    Here(Job),
    /// On the buffer's thread, which sends a message when it is done.
    Elsewhere(Receiver<()>),
}

/// Calls a callback that is due. If the buffer has a thread of its own, this does not wait for
/// that thread.
pub(crate) fn call(handle: u64) {
    let state = state::lock();
    if let Ok(Begun::Here(job)) = begin(state, handle) {
        job.run();
    }
}

/// Takes the batch out of the buffer for a callback, which counts as running from here on. The
/// batch goes to the buffer's thread, or is left to the caller where there is none.
fn begin(mut state: MutexGuard<'_, Registry>, handle: u64) -> Result<Begun, Status> {
    let buffer = state.buffer(handle)?;
    if buffer.busy || buffer.batch.is_empty() {
        return Ok(Begun::Nothing);
    }
    let owner = buffer.context;
    if state.context(owner).is_ok_and(|context| context.out) {
        state.buffer(handle)?.batch = Batch::default();
        return Ok(Begun::Nothing);
    }
    let buffer = state.buffer(handle)?;
    buffer.busy = true;
    let job = Job {
        handle,
        context: buffer.context,
        callback: buffer.callback,
        data: buffer.data,
        batch: std::mem::take(&mut buffer.batch),
    };
    let thread = buffer.thread;
    if thread == 0 || thread == callback_thread::current() {
        return Ok(Begun::Here(job));
    }
    let (done, finished) = sync_channel(1);
    let sent = registry::index(thread)
        .and_then(|index| state.threads.get(index))
        .is_some_and(|thread| {
            thread.send(Box::new(move || {
                job.run();
                let _ = done.send(());
            }))
        });
    if !sent {
        // The thread has ended, and the batch is lost.
        state.buffer(handle)?.busy = false;
        return Err(Status::THREAD_NOT_FOUND);
    }
    Ok(Begun::Elsewhere(finished))
}

thread_local! {
    /// The buffer whose callback this thread runs; 0 for none.
    static RUNNING: Cell<u64> = const { Cell::new(0) };
}

/// One call of a callback.
struct Job {
    handle: u64,
    context: u64,
    callback: BufferCallback,
    data: Opaque,
    batch: Batch,
}

impl Job {
    fn run(mut self) {
        if let Ok(buffer) = state::lock().buffer(self.handle) {
            buffer.runner = Some(thread::current().id());
        }
        let outer = RUNNING.replace(self.handle);
        let base = self.batch.words.as_mut_ptr();
        let mut headers: Vec<RecordHeader> = self
            .batch
            .index
            .iter()
            .map(|(category, kind, word)| RecordHeader {
                category: *category as u32,
                kind: *kind,
                // SAFETY: every entry of the index is a word of the same vector.
                payload: unsafe { base.add(*word) }.cast(),
            })
            .collect();
        let mut pointers: Vec<*mut RecordHeader> =
            headers.iter_mut().map(|header| &raw mut *header).collect();
        let (list, count) = (pointers.as_mut_ptr(), pointers.len());
        // Calls that the tool makes in the callback are not the application's.
        let lent = [
            (
                list.cast_const().cast(),
                count * size_of::<*mut RecordHeader>(),
            ),
            (headers.as_ptr().cast(), size_of_val(headers.as_slice())),
            (base.cast_const().cast(), self.batch.bytes()),
        ];
        let (callback, context, handle) = (self.callback, self.context, self.handle);
        let (data, dropped) = (self.data.0, self.batch.dropped);
        let called = callbacks::as_tool(|| {
            // SAFETY: the tool gave us this function for such calls. Headers and records live until
            // it has returned.
            call_tool(&lent, || unsafe {
                callback(context, handle, list, count, data, dropped)
            })
        });
        RUNNING.set(outer);
        if let Ok(buffer) = state::lock().buffer(handle) {
            buffer.busy = false;
            buffer.runner = None;
        }
        STATE.buffer_is_free.notify_all();
        if let Err(thrown) = called {
            expel_owner(context, "buffer's callback", &thrown);
        }
    }
}

/// Takes records in the form in which the probes wrote them (whole records, one after the other),
/// and passes them to the buffers and code-object callbacks of the contexts that want them. Only
/// the worker thread calls this, or a thread in its place, one at a time.
///
/// An untimed dispatch or copy is not passed on, since AMD's records cannot express that. It counts
/// as dropped, and the tool's callback receives that count.
///
/// # Errors
/// [`Malformed`] when the bytes are not records; the records before the malformed one were
/// delivered.
pub fn deliver(bytes: &[u8]) -> Result<(), Malformed> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let (record, size) = event::decode(rest)?;
        match record {
            Record::CodeObject(..) | Record::KernelSymbol(..) | Record::Agent(_) => {
                code_object::deliver(&record)
            }
            _ => {
                if let Record::PcSample(sample) = &record {
                    deliver_sample(sample);
                }
                deliver_one(&record);
                let kept = match &record {
                    Record::Kernel(kernel, _) => work::completed(kernel.dispatch_id),
                    _ => None,
                };
                deferred_callbacks::deliver(&record, kept.as_ref());
                if let Record::RuntimeInit(runtime) = &record {
                    let mut state = state::lock();
                    let told = state.contexts.iter_mut();
                    for context in told.filter(|context| context.covers(runtime.time)) {
                        context.tell(runtime);
                    }
                }
                events::saw(&record);
                retirement::saw(&record);
            }
        }
        rest = rest.get(size..).unwrap_or_default();
    }
    Ok(())
}

/// Passes a sample to the buffers of the contexts that sample its agent.
fn deliver_sample(sample: &PcSample) {
    let (kind, words) = records::of(sample);
    let mut state = state::lock();
    let wanted: Vec<u64> = state
        .contexts
        .iter()
        .filter(|context| context.covers(sample.time))
        .filter_map(|context| context.samples.as_ref())
        .flat_map(|service| &service.buffers)
        .filter(|(node, _)| *node == sample.node)
        .map(|(_, buffer)| *buffer)
        .collect();
    let mut due = Vec::new();
    for handle in wanted {
        if let Ok(buffer) = state.buffer(handle) {
            buffer.push_sample(kind, words.as_slice());
            if buffer.due() {
                due.push(handle);
            }
        }
    }
    drop(state);
    for handle in due {
        call(handle);
    }
}

fn deliver_one(record: &Record<'_>) {
    if let Record::Graph(call) = record {
        state::lock().graphs.saw(call);
    }
    let Some(facts) = RecordFacts::of(record) else {
        return;
    };
    let is_for = |context: &Context| !context.was_told(record);
    pass_on(&facts, is_for, |buffer, kind, external, graphs| {
        if let Record::Kfd(event) = record {
            // A domain has several of AMD's kinds; the event is of one of them.
            if event.tracing_kind as i32 == kind {
                let (words, count) = kfd::words(event);
                buffer.push_plain(event.tracing_kind, words.get(..count).unwrap_or_default());
            }
            return;
        }
        let converted = match record {
            Record::Graph(call) => Some(convert::graph(call, graphs.of(call.graph))),
            _ => convert::convert(record, kind),
        };
        match converted {
            Some(converted) if facts.timed => buffer.push(&converted, external),
            _ => buffer.batch.dropped += 1,
        }
    });
}

/// Passes on a call of an event. One whose barrier has no times of the device counts as dropped, and so
/// does a record without a barrier. A wait without one has none to pass on: its event had completed.
pub(crate) fn deliver_event(event: &Event) {
    let call = &event.call;
    let is_cut = call.header.flags & (flag::CUT | flag::OPEN_AT_DETACH) != 0;
    let is_record = call.header.operation == hip_event::RECORD;
    if event.barrier.is_none() && !is_cut && !is_record {
        return;
    }
    let facts = RecordFacts {
        kind: kind::HIP_EVENT,
        operation: call.header.operation,
        begin: call.start,
        timed: event.barrier.is_some_and(|barrier| barrier.end != 0),
        id: 0,
        tid: Some(call.tid),
    };
    pass_on(
        &facts,
        |_| true,
        |buffer, _, external, _| match event.barrier {
            Some(barrier) if facts.timed => {
                buffer.push(&convert::event(call, &barrier, event.source), external);
            }
            _ => buffer.batch.dropped += 1,
        },
    );
    if let Some(barrier) = event.barrier.filter(|_| facts.timed) {
        deferred_callbacks::deliver_hip_event(call, &barrier, event.source);
    }
}

/// Calls `give` for each buffer that gets a record with these facts: with the buffer, AMD's kind, and
/// the external correlation id.
fn pass_on(
    facts: &RecordFacts,
    is_for: impl Fn(&Context) -> bool,
    mut give: impl FnMut(&mut Buffer, i32, u64, &Numbers),
) {
    let mut state = state::lock();
    let mut due = Vec::new();
    let Registry {
        contexts,
        buffers,
        graphs,
        ..
    } = &mut *state;
    for (handle, context) in (1..)
        .zip(contexts.iter())
        .filter(|(_, context)| !context.spool && context.covers(facts.begin) && is_for(context))
    {
        let pushed = || {
            facts
                .tid
                .map_or(0, |tid| external::at(handle, u64::from(tid), facts.begin))
        };
        let external = requests::take(handle, facts.kind, facts.id).unwrap_or_else(pushed);
        for service in &context.services {
            if record_kind(service.kind) != Some(facts.kind)
                || !service.operations.has(facts.operation)
            {
                continue;
            }
            let Some(buffer) = registry::index(service.buffer)
                .and_then(|index| buffers.get_mut(index))
                .and_then(Option::as_mut)
            else {
                continue;
            };
            give(buffer, service.kind, external, graphs);
            if buffer.due() {
                due.push(service.buffer);
            }
        }
    }
    drop(state);
    for buffer in due {
        call(buffer);
    }
}

/// The fields of a record that decide which contexts get it.
struct RecordFacts {
    kind: u8,
    operation: u32,
    begin: u64,
    timed: bool,
    /// The id by which [`requests`] knows the record, for tools that were asked for its external
    /// correlation id.
    id: u64,
    /// Thread whose external correlation ids the record gets, as they were at `begin`. None for a
    /// copy: only its start on the engine is known, when the thread may already be doing something
    /// else.
    tid: Option<u32>,
}

impl RecordFacts {
    fn of(record: &Record<'_>) -> Option<RecordFacts> {
        let (header, begin, timed) = match record {
            Record::Api(api, _) => (api.header, api.start, true),
            Record::Marker(marker, _) => (marker.header, marker.start, true),
            Record::Kernel(k, _) => (
                k.header,
                k.rung.max(u64::from(k.rung == 0) * k.start),
                k.header.flags & flag::UNTIMED == 0,
            ),
            Record::Copy(copy, _) => (
                copy.header,
                copy.start,
                copy.header.flags & flag::UNTIMED == 0,
            ),
            Record::Allocation(allocation) => (allocation.header, allocation.start, true),
            Record::Scratch(scratch) => (scratch.header, scratch.start, true),
            Record::RuntimeInit(runtime) => (runtime.header, runtime.time, true),
            Record::Kfd(event) => (event.header, event.start, true),
            // A launch of which some dispatches may not have been seen is not passed on.
            Record::Graph(call) if is_launch(call) => (call.header, call.start, is_whole(call)),
            _ => return None,
        };
        // Without any time its context cannot be determined, so all running contexts get it.
        let begin = if begin == 0 {
            midair_sdk_hot::clock::now()
        } else {
            begin
        };
        // AMD's dispatch records have the operation "complete"; ours leave the operation at 0.
        let operation = match record {
            Record::Kernel(..) => c::ROCPROFILER_KERNEL_DISPATCH_COMPLETE as u32,
            _ => header.operation,
        };
        Some(RecordFacts {
            kind: header.kind,
            operation,
            begin,
            timed,
            id: match record {
                Record::Api(api, _) => api.correlation,
                Record::Marker(marker, _) => marker.correlation,
                Record::Kernel(kernel, _) => kernel.dispatch_id,
                Record::Copy(copy, _) => requests::mixed(copy.correlation, copy.dst),
                Record::Allocation(allocation) => {
                    requests::mixed(allocation.start, u64::from(allocation.tid))
                }
                Record::Scratch(scratch) => requests::mixed(scratch.start, u64::from(scratch.tid)),
                _ => 0,
            },
            tid: match record {
                Record::Api(api, _) => Some(api.tid),
                Record::Marker(marker, _) => Some(marker.tid),
                Record::Kernel(kernel, _) if kernel.rung != 0 => Some(kernel.tid),
                Record::Allocation(allocation) => Some(allocation.tid),
                Record::Graph(call) => Some(call.tid),
                _ => None,
            },
        })
    }
}
