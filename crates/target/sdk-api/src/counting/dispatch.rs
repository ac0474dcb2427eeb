//! Counting around dispatches: before a dispatch goes to its device, the tool is asked what to
//! count in it. When it has ended, the tool gets the values.

use super::config::Config;
use super::services::DispatchService;
use crate::buffer;
use crate::external;
use crate::registration::out::expel_owner;
use crate::registry;
use crate::state::{self, STATE};
use crate::status::Status;
use midair_abi::constants as c;
use midair_abi::counting::{CounterRecord, DispatchCountingData, DispatchCountingRecord};
use midair_abi::records::{AsyncCorrelationId, Dim3, KernelDispatchInfo};
use midair_sdk_hot::callbacks;
use midair_sdk_hot::clock;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, PoisonError};

/// A dispatch that is about to go to its device.
#[derive(Debug, Clone, Copy, Default)]
pub struct Dispatch {
    /// Id of the agent, as tools know it.
    pub agent: u64,
    /// Our number of the queue.
    pub queue: u64,
    /// Id of the kernel's symbol.
    pub kernel: u64,
    /// Its number.
    pub number: u64,
    /// Correlation id of the call that launched it.
    pub correlation: u64,
    /// Thread that made that call.
    pub tid: u32,
    /// Scratch bytes per work item.
    pub private_segment: u32,
    /// LDS bytes.
    pub group_segment: u32,
    /// Work items per group.
    pub workgroup: [u32; 3],
    /// Work items.
    pub grid: [u32; 3],
}

/// A dispatch for which a tool has chosen counters.
#[derive(Debug)]
pub struct CountedDispatch {
    /// The handle of the list of counters, and the list itself.
    pub config: (u64, Arc<Config>),
    service: DispatchService,
    user_data: u64,
    data: DispatchCountingData,
}

/// Whether a running context counts around dispatches. This takes one lock, which is hardly ever
/// contended.
pub fn is_on() -> bool {
    services().iter().any(|service| service.on.load(SeqCst))
}

fn services() -> Vec<DispatchService> {
    let all = STATE.dispatch_counting.read();
    all.unwrap_or_else(PoisonError::into_inner).clone()
}

/// Asks the tools of the running contexts what to count in a dispatch. The first tool that chooses
/// counters gets it. Called on the launching thread, which holds no midair lock.
pub fn choose(dispatch: &Dispatch) -> Option<CountedDispatch> {
    let running = services().into_iter();
    let mut running = running.filter(|service| service.on.load(SeqCst));
    running.find_map(|service| ask(service, dispatch))
}

fn ask(service: DispatchService, dispatch: &Dispatch) -> Option<CountedDispatch> {
    let context = service.context;
    let dim3 = |[x, y, z]: [u32; 3]| Dim3 { x, y, z };
    let data = DispatchCountingData {
        size: size_of::<DispatchCountingData>() as u64,
        correlation_id: AsyncCorrelationId {
            internal: dispatch.correlation,
            external: external::at(context, u64::from(dispatch.tid), clock::now()),
        },
        start_timestamp: 0,
        end_timestamp: 0,
        dispatch_info: KernelDispatchInfo {
            size: size_of::<KernelDispatchInfo>() as u64,
            agent_id: dispatch.agent,
            queue_id: dispatch.queue,
            kernel_id: dispatch.kernel,
            dispatch_id: dispatch.number,
            private_segment_size: dispatch.private_segment,
            group_segment_size: dispatch.group_segment,
            workgroup_size: dim3(dispatch.workgroup),
            grid_size: dim3(dispatch.grid),
            reserved_padding: [0; 56],
        },
    };
    let (mut config, mut user_data) = (0_u64, 0_u64);
    let to = (&raw mut config, &raw mut user_data);
    // Calls that the tool makes in this function are not the application's.
    let called = callbacks::as_tool(|| {
        // SAFETY: the tool gave us this function for such calls. What it writes to outlives the
        // call.
        midair_tool_call::call(&[], || unsafe {
            (service.asked)(data, to.0, to.1, service.asked_data.0)
        })
    });
    if let Err(thrown) = called {
        callbacks::put_out(context, &thrown);
        service.on.store(false, SeqCst);
        return None;
    }
    let chosen = (config != 0).then(|| super::config(config)).flatten()?;
    (chosen.device().id == dispatch.agent).then_some(CountedDispatch {
        config: (config, chosen),
        service,
        user_data,
        data,
    })
}

impl CountedDispatch {
    /// Passes on the values of a dispatch that ran from `start` to `end` on the records' clock.
    /// Called on the worker thread.
    pub fn deliver(mut self, mut values: Vec<CounterRecord>, (start, end): (u64, u64)) {
        if values.is_empty() {
            return;
        }
        (self.data.start_timestamp, self.data.end_timestamp) = (start, end);
        let context = self.service.context;
        let Some((told, told_data)) = self.service.told else {
            self.put(&values);
            return;
        };
        if state::lock()
            .context(context)
            .map_or(true, |context| context.out)
        {
            return;
        }
        let (data, user_data) = (self.data, self.user_data);
        let (first, count) = (values.as_mut_ptr(), values.len());
        let lent = [(first.cast_const().cast(), size_of_val(values.as_slice()))];
        let called = callbacks::as_tool(|| {
            // SAFETY: as above; the values live until the function has returned.
            midair_tool_call::call(&lent, || unsafe {
                told(data, first, count, user_data, told_data.0)
            })
        });
        if let Err(thrown) = called {
            expel_owner(context, "record callback", &thrown);
        }
    }

    /// Puts a header into the tool's buffer, followed by the values.
    fn put(&self, values: &[CounterRecord]) {
        let header = DispatchCountingRecord {
            size: size_of::<DispatchCountingRecord>() as u64,
            num_records: values.len() as u64,
            correlation_id: self.data.correlation_id,
            start_timestamp: self.data.start_timestamp,
            end_timestamp: self.data.end_timestamp,
            dispatch_info: self.data.dispatch_info,
        };
        let handle = self.service.buffer;
        let due = {
            let mut state = state::lock();
            let Some(buffer) = registry::index(handle)
                .and_then(|index| state.buffers.get_mut(index))
                .and_then(Option::as_mut)
            else {
                return;
            };
            buffer.push_counted(
                c::ROCPROFILER_COUNTER_RECORD_PROFILE_COUNTING_DISPATCH_HEADER as u32,
                &words_of_header(&header),
            );
            for value in values {
                buffer.push_counted(
                    c::ROCPROFILER_COUNTER_RECORD_VALUE as u32,
                    &super::words_of(value),
                );
            }
            buffer.due()
        };
        if due {
            buffer::call(handle);
        }
    }
}

fn words_of_header(
    header: &DispatchCountingRecord,
) -> [u64; size_of::<DispatchCountingRecord>() / 8] {
    const { assert!(size_of::<DispatchCountingRecord>() == 176) };
    let info = &header.dispatch_info;
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let (group, grid) = (&info.workgroup_size, &info.grid_size);
    let words = [
        header.size,
        header.num_records,
        header.correlation_id.internal,
        header.correlation_id.external,
        header.start_timestamp,
        header.end_timestamp,
        info.size,
        info.agent_id,
        info.queue_id,
        info.kernel_id,
        info.dispatch_id,
        pair(info.private_segment_size, info.group_segment_size),
        pair(group.x, group.y),
        pair(group.z, grid.x),
        pair(grid.y, grid.z),
    ];
    let mut all = [0; size_of::<DispatchCountingRecord>() / 8];
    for (to, word) in all.iter_mut().zip(words) {
        *to = word;
    }
    all
}

/// Adds the service to a context.
///
/// # Errors
/// [`Status::CONTEXT_INVALID`] for a context that does not exist,
/// [`Status::AGENT_DISPATCH_CONFLICT`] for one that counts on devices,
/// [`Status::BUFFER_NOT_FOUND`], [`Status::FINALIZED`].
pub(crate) fn configure(
    context: u64,
    buffer: u64,
    (asked, asked_data): (super::services::DispatchCallback, super::services::Opaque),
    told: Option<(super::services::RecordCallback, super::services::Opaque)>,
) -> Result<(), Status> {
    let service = {
        let mut state = state::lock();
        if state.finalized {
            return Err(Status::FINALIZED);
        }
        if told.is_none() && state.context(context).is_ok() {
            state.buffer(buffer)?;
        }
        let found = state
            .context(context)
            .map_err(|_| Status::CONTEXT_INVALID)?;
        if found.devices.is_some() {
            return Err(Status::AGENT_DISPATCH_CONFLICT);
        }
        found.counts = true;
        DispatchService {
            context,
            on: found.on,
            asked,
            asked_data,
            buffer,
            told,
        }
    };
    STATE
        .dispatch_counting
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .push(service);
    crate::changes::changed();
    Ok(())
}
