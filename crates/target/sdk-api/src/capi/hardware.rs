//! AMD's PC sampling, and services that need hardware and drivers that midair has no code for: thread
//! trace and streamed counters (SPM). Their functions exist, since tools link them. Each call checks
//! its arguments and the machine, and returns the status that AMD documents for what it found.
//!
//! Decisions: AMD-067 (`docs/deviations/amd.md`).

use super::{list, put};
use crate::c_api_calling;
use crate::hardware::{self, Agent};
use crate::sampling::{self, Setting};
use crate::status::Status;
use midair_abi::constants as c;
use midair_capi_build::{c_api, edge};
use midair_tool_call::call;
use std::ffi::{CStr, c_char, c_int, c_void};

/// The names of an enumeration, by number.
macro_rules! names {
    ($prefix:literal: $($name:literal),* $(,)?) => {
        &[$(concat!($prefix, $name, "\0")),*]
    };
}

const INSTRUCTION_TYPES: &[&str] = names!("ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_":
    "NONE", "VALU", "MATRIX", "SCALAR", "TEX", "LDS", "LDS_DIRECT", "FLAT", "EXPORT", "MESSAGE",
    "BARRIER", "BRANCH_NOT_TAKEN", "BRANCH_TAKEN", "JUMP", "OTHER", "NO_INST", "DUAL_VALU");
const REASONS: &[&str] = names!("ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_":
    "NONE", "NO_INSTRUCTION_AVAILABLE", "ALU_DEPENDENCY", "WAITCNT", "INTERNAL_INSTRUCTION",
    "BARRIER_WAIT", "ARBITER_NOT_WIN", "ARBITER_WIN_EX_STALL", "OTHER_WAIT", "SLEEP_WAIT");
const _: () = {
    assert!(INSTRUCTION_TYPES.len() == c::ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_LAST as usize);
    assert!(
        REASONS.len() == c::ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_LAST as usize
    );
};

fn name_in(names: &[&'static str], number: c_int) -> *const c_char {
    usize::try_from(number)
        .ok()
        .and_then(|number| names.get(number))
        .and_then(|name| CStr::from_bytes_with_nul(name.as_bytes()).ok())
        .map_or(std::ptr::null(), CStr::as_ptr)
}

/// Returns the name of an instruction's type, or null.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_get_pc_sampling_instruction_type_name(
    instruction_type: c_int,
) -> *const c_char {
    edge(std::ptr::null(), || {
        name_in(INSTRUCTION_TYPES, instruction_type)
    })
}

/// Returns the name of the reason why an instruction was not issued, or null.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_get_pc_sampling_instruction_not_issued_reason_name(
    not_issued_reason: c_int,
) -> *const c_char {
    edge(std::ptr::null(), || name_in(REASONS, not_issued_reason))
}

/// A callback that would be given configurations.
type ConfigurationsCallback =
    unsafe extern "C-unwind" fn(*const c_void, usize, *mut c_void) -> c_int;
/// A tool's function that would be called.
type Function = unsafe extern "C" fn();

c_api_calling! {
    /// Passes what the driver offers for an agent to the tool's function.
    fn rocprofiler_query_pc_sampling_agent_configurations(
        agent_id: u64,
        cb: Option<ConfigurationsCallback>,
        user_data: *mut c_void,
    ) {
        let cb = cb.ok_or(Status::INVALID_ARGUMENT)?;
        let all = hardware::configurations(agent_id)?;
        let lent = (all.as_ptr().cast(), size_of_val(all.as_slice()));
        // SAFETY: this calls the tool's function with its own data; the list lives until it returns.
        let called = call(&[lent], || unsafe { cb(all.as_ptr().cast(), all.len(), user_data) })?;
        match called {
            0 => Ok(()),
            status => Err(Status(status).into()),
        }
    }
}

c_api! {
    /// Adds an agent and a buffer to what the context samples.
    fn rocprofiler_configure_pc_sampling_service(
        context_id: u64,
        agent_id: u64,
        method: c_int,
        unit: c_int,
        interval: u64,
        buffer_id: u64,
        flags: c_int,
    ) {
        if flags != 0 {
            return Err(Status::INVALID_ARGUMENT);
        }
        let setting = Setting {
            method,
            unit,
            interval,
        };
        sampling::configure(context_id, agent_id, setting, buffer_id)
    }

    /// Refused with the status for what is missing.
    fn rocprofiler_configure_dispatch_thread_trace_service(
        context_id: u64,
        agent_id: u64,
        parameters: *const c_void,
        num_parameters: usize,
        dispatch_callback: Option<Function>,
        shader_callback: Option<Function>,
        _callback_userdata: *mut c_void,
    ) {
        hardware::may_configure(context_id)?;
        if dispatch_callback.is_none() || shader_callback.is_none() || parameters.is_null() && num_parameters > 0 {
            return Err(Status::INVALID_ARGUMENT);
        }
        Err(hardware::thread_trace(agent_id))
    }

    /// Refused with the status for what is missing.
    fn rocprofiler_configure_device_thread_trace_service(
        context_id: u64,
        agent_id: u64,
        parameters: *const c_void,
        num_parameters: usize,
        shader_callback: Option<Function>,
        _callback_userdata: u64,
    ) {
        hardware::may_configure(context_id)?;
        if shader_callback.is_none() || parameters.is_null() && num_parameters > 0 {
            return Err(Status::INVALID_ARGUMENT);
        }
        Err(hardware::thread_trace(agent_id))
    }

    /// Looks for AMD's decoder in a directory. If there is none, it is not available. If there is
    /// one, we do not know its interface.
    fn rocprofiler_thread_trace_decoder_create(handle: *mut u64, path: *const c_char) {
        if path.is_null() {
            return Err(Status::INVALID_ARGUMENT);
        }
        // SAFETY: the caller promises that the pointer is null or writable.
        unsafe { put(handle, 0)? };
        // SAFETY: the caller promises a C string.
        Err(hardware::decoder(unsafe { CStr::from_ptr(path) }))
    }

    /// Refused: no decoder exists, so there is no valid handle.
    fn rocprofiler_thread_trace_decoder_codeobj_load(
        _handle: u64,
        _load_id: u64,
        _load_addr: u64,
        _load_size: u64,
        _data: *const c_void,
        _size: u64,
    ) {
        Err(Status::INVALID_ARGUMENT)
    }

    /// Refused: no decoder exists, so there is no valid handle.
    fn rocprofiler_thread_trace_decoder_codeobj_unload(_handle: u64, _load_id: u64) {
        Err(Status::INVALID_ARGUMENT)
    }

    /// Refused: no decoder exists, so there is no valid handle.
    fn rocprofiler_trace_decode(
        _handle: u64,
        _callback: Option<Function>,
        _data: *mut c_void,
        _size: u64,
        _userdata: *mut c_void,
    ) {
        Err(Status::INVALID_ARGUMENT)
    }

    /// Refused: no agent has configurations for streamed counters here.
    fn rocprofiler_spm_query_agent_configurations(
        agent_id: u64,
        cb: Option<ConfigurationsCallback>,
        _user_data: *mut c_void,
    ) {
        cb.ok_or(Status::INVALID_ARGUMENT)?;
        Err(hardware::spm(Agent::of(agent_id)?))
    }

    /// Refused: no agent has counters that can be streamed here.
    fn rocprofiler_spm_iterate_agent_supported_counters(
        agent_id: u64,
        cb: Option<ConfigurationsCallback>,
        _user_data: *mut c_void,
    ) {
        cb.ok_or(Status::INVALID_ARGUMENT)?;
        Err(hardware::spm(Agent::of(agent_id)?))
    }

    /// Refused with the status for what is missing.
    fn rocprofiler_spm_create_counter_config(
        agent_id: u64,
        counters_list: *const u64,
        counters_count: usize,
        _parameters: *const *const c_void,
        _parameters_count: usize,
        config_id: *mut u64,
    ) {
        // SAFETY: the caller promises that the list is null or readable.
        unsafe { list(counters_list, counters_count)? };
        if config_id.is_null() {
            return Err(Status::INVALID_ARGUMENT);
        }
        hardware::spm_is_asked_for()?;
        Err(hardware::spm(Agent::of(agent_id)?))
    }

    /// Refused: no configuration exists, so there is no valid handle.
    fn rocprofiler_spm_destroy_counter_config(_config_id: u64) {
        Err(Status::PROFILE_NOT_FOUND)
    }

    /// Refused: no context can be configured to replay ranges, since the number of AMD's kind is not
    /// known.
    fn rocprofiler_range_replay_begin(_range_id: u64) {
        Err(Status::CONTEXT_NOT_FOUND)
    }

    /// Refused: no range can be open.
    fn rocprofiler_range_replay_end() {
        Err(Status::INVALID_ARGUMENT)
    }

    /// Refused with the status for what is missing.
    fn rocprofiler_spm_configure_callback_dispatch_service(
        context_id: u64,
        dispatch_callback: Option<Function>,
        _dispatch_callback_args: *mut c_void,
        record_callback: Option<Function>,
        _record_callback_args: *mut c_void,
    ) {
        if dispatch_callback.is_none() || record_callback.is_none() {
            return Err(Status::INVALID_ARGUMENT);
        }
        hardware::spm_is_asked_for()?;
        hardware::may_configure(context_id)?;
        Err(hardware::spm(Agent::any()?))
    }

    /// Refused with the status for what is missing.
    fn rocprofiler_spm_configure_buffer_dispatch_service(
        context_id: u64,
        buffer_id: u64,
        callback: Option<Function>,
        _callback_data_args: *mut c_void,
    ) {
        callback.ok_or(Status::INVALID_ARGUMENT)?;
        hardware::spm_is_asked_for()?;
        hardware::may_configure(context_id)?;
        hardware::has_buffer(buffer_id)?;
        Err(hardware::spm(Agent::any()?))
    }
}

/// Does nothing, since no decoder exists.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_thread_trace_decoder_destroy(_handle: u64) {}

/// Returns null, since there is no decoder that could describe a record.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_thread_trace_decoder_info_string(
    _handle: u64,
    _info: c_int,
) -> *const c_char {
    std::ptr::null()
}
