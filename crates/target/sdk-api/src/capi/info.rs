//! Version, time, threads, statuses, agents.

use super::put;
use crate::c_api_calling;
use crate::status::{self, Status};
use crate::{agents, registration};
use midair_abi::agent::Agent;
use midair_abi::constants as c;
use midair_capi_build::{c_api, edge};
use midair_sdk_hot::clock;
use midair_tool_call::call;
use std::ffi::{c_char, c_int, c_void};

/// `rocprofiler_query_available_agents_cb_t`: version, agents, their number, the tool's data.
type AgentsCallback =
    unsafe extern "C-unwind" fn(c_int, *const *const c_void, usize, *mut c_void) -> c_int;

c_api! {
    /// Stores the version; null pointers are skipped.
    fn rocprofiler_get_version(major: *mut u32, minor: *mut u32, patch: *mut u32) {
        let (a, b, c) = registration::VERSION;
        for (to, value) in [(major, a), (minor, b), (patch, c)] {
            if !to.is_null() {
                // SAFETY: the caller promises that the pointer is null or writable.
                unsafe { put(to, value)? };
            }
        }
        Ok::<(), Status>(())
    }

    /// Stores the version as a struct of three numbers.
    fn rocprofiler_get_version_triplet(info: *mut [u32; 3]) {
        let (a, b, c) = registration::VERSION;
        // SAFETY: the caller promises that the pointer is null or writable.
        unsafe { put(info, [a, b, c]) }
    }

    /// Stores the time of the record clock (CLOCK_BOOTTIME), ns.
    fn rocprofiler_get_timestamp(ts: *mut u64) {
        // SAFETY: the caller promises that the pointer is null or writable.
        unsafe { put(ts, clock::now()) }
    }

    /// Stores the calling thread's id, as it is in records.
    fn rocprofiler_get_thread_id(tid: *mut u64) {
        // SAFETY: gettid takes no arguments; the caller promises that the pointer is null or
        // writable.
        unsafe { put(tid, libc::gettid() as u64) }
    }
}

c_api_calling! {
    /// Calls back once with all agents (version 0). They live as long as the process.
    fn rocprofiler_query_available_agents(
        version: c_int,
        callback: Option<AgentsCallback>,
        agent_size: usize,
        user_data: *mut c_void,
    ) {
        let callback = callback.ok_or(Status::INVALID_ARGUMENT)?;
        // A tool built with older headers knows fewer fields, which is fine. One built with newer
        // headers would read beyond our fields.
        if version != c::ROCPROFILER_AGENT_INFO_VERSION_0 || agent_size > size_of::<Agent>() {
            return Err(Status::INCOMPATIBLE_ABI.into());
        }
        let pointers = agents::pointers();
        // SAFETY: this calls the tool's function with its own data; the list lives forever.
        let called = call(&[], || unsafe {
            callback(version, pointers.as_ptr(), pointers.len(), user_data)
        })?;
        match called {
            0 => Ok(()),
            status => Err(Status(status).into()),
        }
    }
}

/// Returns AMD's name of a status, or null.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_get_status_name(status: c_int) -> *const c_char {
    edge(std::ptr::null(), || {
        status::name(status).map_or(std::ptr::null(), |name| name.as_ptr())
    })
}

/// Returns a description of a status, or null.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_get_status_string(status: c_int) -> *const c_char {
    edge(std::ptr::null(), || {
        status::text(status).map_or(std::ptr::null(), |text| text.as_ptr())
    })
}
