//! What tools configure.

pub(crate) use midair_sdk_hot::operations::Opaque;

use midair_abi::counting::{CounterRecord, DispatchCountingData};
use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicBool;

/// `rocprofiler_dispatch_counting_service_cb_t`: the dispatch, where the choice goes, where the
/// tool's word goes, its data.
pub type AskedCallback =
    unsafe extern "C-unwind" fn(DispatchCountingData, *mut u64, *mut u64, *mut c_void);
/// `rocprofiler_dispatch_counting_record_cb_t`: the dispatch, values, their number, the tool's word,
/// its data.
pub type ToldCallback =
    unsafe extern "C-unwind" fn(DispatchCountingData, *mut CounterRecord, usize, u64, *mut c_void);
/// `rocprofiler_device_counting_agent_cb_t`: context and list of counters.
pub type SetCallback = unsafe extern "C" fn(u64, u64) -> c_int;
/// `rocprofiler_device_counting_service_cb_t`: context, agent, with what to choose, the tool's data.
pub type ChooseCallback = unsafe extern "C-unwind" fn(u64, u64, SetCallback, *mut c_void);

/// Counting around dispatches.
#[derive(Debug, Clone)]
pub(crate) struct DispatchService {
    pub context: u64,
    /// The context runs.
    pub on: &'static AtomicBool,
    pub asked: AskedCallback,
    pub asked_data: Opaque,
    /// Where values go without `told`.
    pub buffer: u64,
    pub told: Option<(ToldCallback, Opaque)>,
}

// SAFETY: the pointers in it are the tool's functions and data, which the tool allows us to use from
// every thread that launches.
unsafe impl Sync for DispatchService {}
