//! The counting services that tools configure.

pub(crate) use midair_sdk_hot::operations::Opaque;

use super::config::Config;
use crate::status::Status;
use midair_abi::counting::{CounterRecord, DispatchCountingData};
use std::ffi::{c_int, c_void};
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// `rocprofiler_dispatch_counting_service_cb_t`: the dispatch, where to store the choice, where to
/// store the user data, the tool's data.
pub type DispatchCallback =
    unsafe extern "C-unwind" fn(DispatchCountingData, *mut u64, *mut u64, *mut c_void);
/// `rocprofiler_dispatch_counting_record_cb_t`: the dispatch, values, their number, the user data,
/// the tool's data.
pub type RecordCallback =
    unsafe extern "C-unwind" fn(DispatchCountingData, *mut CounterRecord, usize, u64, *mut c_void);
/// `rocprofiler_device_counting_agent_cb_t`: context and list of counters.
pub type SetCallback = unsafe extern "C" fn(u64, u64) -> c_int;
/// `rocprofiler_device_counting_service_cb_t`: context, agent, the function to choose with, the
/// tool's data.
pub type DeviceCallback = unsafe extern "C-unwind" fn(u64, u64, SetCallback, *mut c_void);

/// Counting around dispatches.
#[derive(Debug, Clone)]
pub(crate) struct DispatchService {
    pub context: u64,
    /// Whether the context is running.
    pub on: &'static AtomicBool,
    pub asked: DispatchCallback,
    pub asked_data: Opaque,
    /// The buffer for the values if there is no `told`.
    pub buffer: u64,
    pub told: Option<(RecordCallback, Opaque)>,
}

// SAFETY: the pointers in it are the tool's functions and data. The tool allows us to use them on
// every thread that launches.
unsafe impl Sync for DispatchService {}

/// The part of a session that counts on whole devices.
pub trait Engine: fmt::Debug + Sync {
    /// Whether there is an open runtime.
    fn is_open(&self) -> bool;
    /// Starts counters for a whole device. They are counting when it returns. Returns a number that
    /// identifies them.
    ///
    /// # Errors
    /// [`Status::NO_PROFILE_QUEUE`], [`Status::OUT_OF_RESOURCES`] or [`Status::NOT_AVAILABLE`].
    fn start(&self, config: &Arc<Config>) -> Result<u64, Status>;
    /// Reads what was counted since the start. The counters go on counting.
    ///
    /// # Errors
    /// [`Status::ERROR`] when the device does not answer.
    fn read(&self, started: u64) -> Result<Vec<CounterRecord>, Status>;
    /// Stops the counters.
    fn stop(&self, started: u64);
}

/// The state of a context's counting on devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Stopped,
    /// A call is starting, reading or stopping the counters.
    Locked,
    Started,
}

/// An agent on which a context counts.
#[derive(Debug)]
pub(crate) struct Agent {
    pub agent: u64,
    pub buffer: u64,
    pub callback: DeviceCallback,
    pub data: Opaque,
    /// The list that the tool chose.
    pub config: Option<Arc<Config>>,
    /// The engine's number for the running counters; None where nothing has to be counted.
    pub started: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub stage: Stage,
    /// The thread that last made it [`Stage::Locked`].
    pub by: Option<std::thread::ThreadId>,
    pub agents: Vec<Agent>,
}

/// A context's counting on devices.
#[derive(Debug)]
pub(crate) struct Devices {
    pub context: u64,
    pub inner: Mutex<Inner>,
}
