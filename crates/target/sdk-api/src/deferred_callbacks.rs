//! Callbacks for events that do not happen on an application's thread: a completed dispatch, or a
//! runtime whose tables were hooked. They are made from the events' records, on the worker thread.

use crate::context::late_kind;
use crate::context::services::CallbackService;
use crate::convert;
use crate::external;
use crate::registration::out::expel_owner;
use crate::state;
use midair_abi::constants as c;
use midair_abi::records::{
    CallbackRecord, CorrelationId, HipEventData, KernelDispatchData, RuntimeInitializationData,
};
use midair_record::event::{Barrier, EventCall, Record, flag};
use midair_sdk_hot::callbacks::work::Kept;
use std::ffi::c_void;

/// Calls the functions of the contexts whose services want a record. `kept` is what their tools
/// answered when the dispatch was enqueued.
pub(crate) fn deliver(record: &Record<'_>, kept: Option<&Kept>) {
    match record {
        // An untimed dispatch would be reported with wrong times.
        Record::Kernel(kernel, _) if kernel.header.flags & flag::UNTIMED == 0 => {
            let theirs = convert::kernel(kernel);
            let mut data = KernelDispatchData {
                size: size_of::<KernelDispatchData>() as u64,
                start_timestamp: theirs.start_timestamp,
                end_timestamp: theirs.end_timestamp,
                dispatch_info: theirs.dispatch_info,
            };
            let call = Event {
                kind: c::ROCPROFILER_CALLBACK_TRACING_KERNEL_DISPATCH,
                operation: c::ROCPROFILER_KERNEL_DISPATCH_COMPLETE,
                correlation: kernel.correlation,
                tid: kernel.tid,
                begin: if kernel.rung == 0 {
                    kernel.start
                } else {
                    kernel.rung
                },
            };
            call.deliver(record, (&raw mut data).cast(), kept);
        }
        Record::RuntimeInit(runtime) => {
            let mut data = RuntimeInitializationData {
                size: size_of::<RuntimeInitializationData>() as u64,
                version: runtime.version,
                instance: runtime.instance,
            };
            let call = Event {
                kind: c::ROCPROFILER_CALLBACK_TRACING_RUNTIME_INITIALIZATION,
                operation: runtime.header.operation as i32,
                correlation: runtime.correlation,
                tid: runtime.tid,
                begin: runtime.time,
            };
            call.deliver(record, (&raw mut data).cast(), None);
        }
        _ => {}
    }
}

/// Calls them for the barrier of a HIP event that has ended with times of the device.
pub(crate) fn deliver_hip_event(call: &EventCall, barrier: &Barrier, source: u32) {
    let theirs = convert::hip_event(call, barrier, source);
    let mut data = HipEventData {
        size: size_of::<HipEventData>() as u64,
        start_timestamp: theirs.start_timestamp,
        end_timestamp: theirs.end_timestamp,
        agent_id: theirs.agent_id,
        queue_id: theirs.queue_id,
        hip_event_handle: theirs.hip_event_handle,
        source_queue_id: theirs.source_queue_id,
    };
    let event = Event {
        kind: c::ROCPROFILER_CALLBACK_TRACING_HIP_EVENT,
        operation: theirs.operation,
        correlation: call.correlation,
        tid: call.tid,
        begin: call.start,
    };
    event.deliver(&Record::Event(*call), (&raw mut data).cast(), None);
}

struct Event {
    kind: i32,
    operation: i32,
    correlation: u64,
    tid: u32,
    begin: u64,
}

impl Event {
    fn deliver(&self, of: &Record<'_>, payload: *mut c_void, kept: Option<&Kept>) {
        let services: Vec<(u64, CallbackService)> = {
            let state = state::lock();
            let contexts = (1..).zip(&state.contexts).filter(|(_, context)| {
                // A stopped context gets no more callbacks.
                !context.spool
                    && context.active
                    && context.covers(self.begin)
                    && !context.was_told(of)
            });
            contexts
                .flat_map(|(handle, context)| {
                    context
                        .callbacks
                        .iter()
                        .map(move |service| (handle, *service))
                })
                .filter(|(_, service)| {
                    service.kind == self.kind
                        && late_kind(service.kind).is_some()
                        && service.operations.has(self.operation as u32)
                })
                .collect()
        };
        for (context, service) in services {
            let record = CallbackRecord {
                context_id: context,
                thread_id: u64::from(self.tid),
                correlation_id: CorrelationId {
                    internal: self.correlation,
                    external: kept
                        .and_then(|kept| kept.external(context))
                        .unwrap_or_else(|| external::at(context, u64::from(self.tid), self.begin)),
                    ancestor: 0,
                },
                kind: self.kind,
                operation: self.operation,
                phase: c::ROCPROFILER_CALLBACK_PHASE_NONE,
                payload,
            };
            let mut user_data = kept.map_or(0, |kept| kept.user_data(context));
            let user_data = &raw mut user_data;
            // SAFETY: the tool gave us this function for such calls; the payload outlives the call.
            let called = midair_tool_call::call(&[], || unsafe {
                (service.callback)(record, user_data, service.data.0)
            });
            if let Err(thrown) = called {
                expel_owner(context, "callback", &thrown);
            }
        }
    }
}
