//! Hardware counters: which counters exist, information about them, and lists of counters that are
//! counted together.

use super::{list, put};
use crate::c_api_calling;
use crate::counting;
use crate::status::Status;
use midair_abi::constants as c;
use midair_abi::counting::{CounterInfoV0, CounterInfoV1, RecordDimensionInfo};
use midair_capi_build::c_api;
use midair_tool_call::call;
use std::ffi::{c_char, c_int, c_void};

/// `rocprofiler_available_counters_cb_t`: agent, counters, their number, the tool's data.
type CountersCallback = unsafe extern "C-unwind" fn(u64, *mut u64, usize, *mut c_void) -> c_int;
/// `rocprofiler_available_dimensions_cb_t`: counter, dimensions, their number, the tool's data.
type DimensionsCallback =
    unsafe extern "C-unwind" fn(u64, *const RecordDimensionInfo, usize, *mut c_void) -> c_int;

/// Returns a C text with its length; null is an empty text.
///
/// # Safety
/// `text` must be null or valid for reads of `length` bytes.
unsafe fn text<'a>(text: *const c_char, length: usize) -> Result<&'a str, Status> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { list(text.cast::<u8>(), length)? };
    std::str::from_utf8(bytes).map_err(|_| Status::INVALID_ARGUMENT)
}

c_api! {
    /// Loads definitions of counters, before any counters are asked for.
    fn rocprofiler_load_counter_definition(yaml: *const c_char, size: usize, flags: c_int) {
        if yaml.is_null() && size != 0 {
            return Err(Status::INVALID_ARGUMENT);
        }
        // SAFETY: the caller promises a readable text of this size.
        counting::load(unsafe { list(yaml.cast::<u8>(), size)? }, flags)
    }

    /// Describes a counter.
    fn rocprofiler_query_counter_info(counter_id: u64, version: c_int, info: *mut c_void) {
        if info.is_null() {
            return Err(Status::INVALID_ARGUMENT);
        }
        match version {
            c::ROCPROFILER_COUNTER_INFO_VERSION_0 => {
                let basics = counting::info(counter_id)?;
                let told = CounterInfoV0 {
                    id: counter_id,
                    name: basics.name.as_ptr(),
                    description: basics.description.as_ptr(),
                    block: basics.block.as_ptr(),
                    expression: basics.expression.as_ptr(),
                    is_constant: basics.bits(),
                };
                // SAFETY: the caller promises a writable struct of this version.
                unsafe { put(info.cast(), told) }
            }
            c::ROCPROFILER_COUNTER_INFO_VERSION_1 => {
                let basics = counting::info(counter_id)?;
                let places = counting::places(counter_id)?;
                let told = CounterInfoV1 {
                    size: size_of::<CounterInfoV1>() as u64,
                    id: counter_id,
                    name: basics.name.as_ptr(),
                    description: basics.description.as_ptr(),
                    block: basics.block.as_ptr(),
                    expression: basics.expression.as_ptr(),
                    is_constant: basics.bits(),
                    dimensions_count: places.dimensions.len() as u64,
                    dimensions: places.dimension_pointers.as_ptr(),
                    dimensions_instances_count: places.instance_pointers.len() as u64,
                    dimensions_instances: places.instance_pointers.as_ptr(),
                };
                // SAFETY: as above.
                unsafe { put(info.cast(), told) }
            }
            _ => Err(Status::INCOMPATIBLE_ABI),
        }
    }

    /// Stores how many values a counter has on an agent.
    fn rocprofiler_query_counter_instance_count(
        agent_id: u64,
        counter_id: u64,
        instance_count: *mut usize,
    ) {
        // SAFETY: the caller promises that the pointer is null or writable.
        unsafe { put(instance_count, 0)? };
        // SAFETY: as above.
        unsafe { put(instance_count, counting::instances(agent_id, counter_id)?) }
    }

    /// Stores the counter of a record.
    fn rocprofiler_query_record_counter_id(id: u64, counter_id: *mut u64) {
        // SAFETY: the caller promises that the pointer is null or writable.
        unsafe { put(counter_id, counting::ids::counter_of(id)) }
    }

    /// Stores a record's number in a dimension.
    fn rocprofiler_query_record_dimension_position(id: u64, dim: u64, pos: *mut usize) {
        // SAFETY: the caller promises that the pointer is null or writable.
        unsafe { put(pos, counting::ids::position(id, dim)?) }
    }

    /// Creates a counter from an expression over others.
    fn rocprofiler_create_counter(
        name: *const c_char,
        name_len: usize,
        expr: *const c_char,
        expr_len: usize,
        description: *const c_char,
        description_len: usize,
        agent: u64,
        counter_id: *mut u64,
    ) {
        if counter_id.is_null() || name.is_null() || expr.is_null() {
            return Err(Status::INVALID_ARGUMENT);
        }
        // SAFETY: the caller promises readable texts of these lengths.
        let (name, expr, description) = unsafe {
            (
                text(name, name_len)?,
                text(expr, expr_len)?,
                text(description, description_len)?,
            )
        };
        // SAFETY: the caller promises that the pointer is null or writable.
        unsafe { put(counter_id, counting::create(agent, name, expr, description)?) }
    }

    /// Creates a list of counters that are counted together, with counters of the existing list.
    fn rocprofiler_create_counter_config(
        agent_id: u64,
        counters_list: *mut u64,
        counters_count: usize,
        config_id: *mut u64,
    ) {
        // SAFETY: the caller promises that each pointer is null or valid.
        unsafe { configure(agent_id, counters_list, counters_count, config_id) }
    }

    /// Removes a list.
    fn rocprofiler_destroy_counter_config(config_id: u64) {
        counting::forget(config_id);
        Ok::<(), Status>(())
    }

    /// The older name of [`rocprofiler_create_counter_config`].
    fn rocprofiler_create_profile_config(
        agent_id: u64,
        counters_list: *mut u64,
        counters_count: usize,
        config_id: *mut u64,
    ) {
        // SAFETY: the caller promises that each pointer is null or valid.
        unsafe { configure(agent_id, counters_list, counters_count, config_id) }
    }

    /// The older name of [`rocprofiler_destroy_counter_config`].
    fn rocprofiler_destroy_profile_config(config_id: u64) {
        counting::forget(config_id);
        Ok::<(), Status>(())
    }
}

/// # Safety
/// `counters` must be null or valid for reads of `count` ids; `config` must be null or valid for a
/// read and a write.
unsafe fn configure(
    agent: u64,
    counters: *const u64,
    count: usize,
    config: *mut u64,
) -> Result<(), Status> {
    if config.is_null() || counters.is_null() && count > 0 {
        return Err(Status::INVALID_ARGUMENT);
    }
    // SAFETY: the caller's promise.
    let (counters, base) = unsafe { (list(counters, count)?, config.read_unaligned()) };
    // SAFETY: as above.
    unsafe { put(config, counting::configure(agent, counters, base)?) }
}

c_api_calling! {
    /// Calls back once with an agent's counters.
    fn rocprofiler_iterate_agent_supported_counters(
        agent_id: u64,
        cb: Option<CountersCallback>,
        user_data: *mut c_void,
    ) {
        let callback = cb.ok_or(Status::INVALID_ARGUMENT)?;
        let mut ids = counting::of_agent(agent_id)?;
        let (first, count) = (ids.as_mut_ptr(), ids.len());
        let lent = [(first.cast_const().cast(), count * size_of::<u64>())];
        // SAFETY: this calls the tool's function with its own data; the list lives until it has
        // returned.
        let called = call(&lent, || unsafe { callback(agent_id, first, count, user_data) })?;
        drop(ids);
        match called {
            0 => Ok(()),
            status => Err(Status(status).into()),
        }
    }

    /// Calls back once with a counter's dimensions.
    fn rocprofiler_iterate_counter_dimensions(
        id: u64,
        info_cb: Option<DimensionsCallback>,
        user_data: *mut c_void,
    ) {
        let callback = info_cb.ok_or(Status::INVALID_ARGUMENT)?;
        let dimensions = counting::dimensions(id)?;
        // SAFETY: this calls the tool's function with its own data; the list lives forever.
        call(&[], || unsafe {
            callback(id, dimensions.as_ptr(), dimensions.len(), user_data)
        })?;
        Ok(())
    }
}
