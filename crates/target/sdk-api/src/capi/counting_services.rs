//! The counting services: around dispatches, and for whole devices.

use crate::counting::services::{DeviceCallback, DispatchCallback, Opaque, RecordCallback};
use crate::counting::{devices, dispatch};
use crate::status::Status;
use midair_abi::constants as c;
use midair_abi::counting::CounterRecord;
use midair_capi_build::c_api;
use std::ffi::{c_int, c_void};

c_api! {
    /// Makes us ask the tool before each dispatch, and put the values into a buffer.
    fn rocprofiler_configure_buffer_dispatch_counting_service(
        context_id: u64,
        buffer_id: u64,
        callback: Option<DispatchCallback>,
        callback_data_args: *mut c_void,
    ) {
        let callback = callback.ok_or(Status::INVALID_ARGUMENT)?;
        dispatch::configure(context_id, buffer_id, (callback, Opaque(callback_data_args)), None)
    }

    /// Makes us ask the tool before each dispatch, and pass it the values.
    fn rocprofiler_configure_callback_dispatch_counting_service(
        context_id: u64,
        dispatch_callback: Option<DispatchCallback>,
        dispatch_callback_args: *mut c_void,
        record_callback: Option<RecordCallback>,
        record_callback_args: *mut c_void,
    ) {
        let asked = dispatch_callback.ok_or(Status::INVALID_ARGUMENT)?;
        let told = record_callback.ok_or(Status::INVALID_ARGUMENT)?;
        dispatch::configure(
            context_id,
            0,
            (asked, Opaque(dispatch_callback_args)),
            Some((told, Opaque(record_callback_args))),
        )
    }

    /// Makes us ask the tool for counters of an agent when the context starts.
    fn rocprofiler_configure_device_counting_service(
        context_id: u64,
        buffer_id: u64,
        agent_id: u64,
        cb: Option<DeviceCallback>,
        user_data: *mut c_void,
    ) {
        let callback = cb.ok_or(Status::INVALID_ARGUMENT)?;
        devices::configure(context_id, buffer_id, agent_id, callback, Opaque(user_data))
    }

    /// Reads those counters into the buffer, and into `output_records` if that is not null.
    fn rocprofiler_sample_device_counting_service(
        context_id: u64,
        user_data: u64,
        flags: c_int,
        output_records: *mut CounterRecord,
        rec_count: *mut usize,
    ) {
        devices::may_sample(context_id)?;
        if output_records.is_null() {
            return devices::sample(context_id, user_data).map(drop);
        }
        if rec_count.is_null() || flags & c::ROCPROFILER_COUNTER_FLAG_ASYNC != 0 {
            return Err(Status::INVALID_ARGUMENT);
        }
        // SAFETY: the caller promises that the pointer is null or writable.
        let room = unsafe { rec_count.read_unaligned() };
        if room == 0 {
            return Err(Status::OUT_OF_RESOURCES);
        }
        let values = devices::sample(context_id, user_data)?;
        // SAFETY: as above.
        unsafe { super::put(rec_count, values.len())? };
        if values.len() > room {
            return Err(Status::OUT_OF_RESOURCES);
        }
        for (number, value) in values.into_iter().enumerate() {
            // SAFETY: the caller promises an array with room for this many values.
            unsafe { super::put(output_records.wrapping_add(number), value)? };
        }
        Ok(())
    }
}
