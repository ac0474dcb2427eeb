//! Generates exports for the functions of AMD's headers that are not built yet. They return AMD's
//! status for functions that are not implemented.

use midair_abi::functions::{ResultClass, SDK_FUNCTIONS};
use std::error::Error;
use std::fmt::Write;

/// Functions with a body in `src/capi`. A name that is missing both here and there is exported as
/// not implemented. A name that has a body but is missing here does not link.
const BUILT: &[&str] = &[
    "rocprofiler_assign_callback_thread",
    "rocprofiler_at_intercept_table_registration",
    "rocprofiler_configure_external_correlation_id_request_service",
    "rocprofiler_query_external_correlation_id_request_kind_name",
    "rocprofiler_configure_pc_sampling_service",
    "rocprofiler_query_pc_sampling_agent_configurations",
    "rocprofiler_get_pc_sampling_instruction_not_issued_reason_name",
    "rocprofiler_get_pc_sampling_instruction_type_name",
    "rocprofiler_at_internal_thread_create",
    "rocprofiler_configure_buffer_dispatch_counting_service",
    "rocprofiler_configure_buffer_tracing_service",
    "rocprofiler_configure_callback_dispatch_counting_service",
    "rocprofiler_configure_device_counting_service",
    "rocprofiler_sample_device_counting_service",
    "rocprofiler_configure_callback_tracing_service",
    "rocprofiler_context_is_active",
    "rocprofiler_context_is_valid",
    "rocprofiler_create_buffer",
    "rocprofiler_create_counter",
    "rocprofiler_create_counter_config",
    "rocprofiler_create_profile_config",
    "rocprofiler_destroy_counter_config",
    "rocprofiler_destroy_profile_config",
    "rocprofiler_iterate_agent_supported_counters",
    "rocprofiler_iterate_counter_dimensions",
    "rocprofiler_load_counter_definition",
    "rocprofiler_query_counter_info",
    "rocprofiler_query_counter_instance_count",
    "rocprofiler_query_record_counter_id",
    "rocprofiler_query_record_dimension_position",
    "rocprofiler_create_callback_thread",
    "rocprofiler_create_context",
    "rocprofiler_destroy_buffer",
    "rocprofiler_flush_buffer",
    "rocprofiler_force_configure",
    "rocprofiler_get_status_name",
    "rocprofiler_get_status_string",
    "rocprofiler_get_thread_id",
    "rocprofiler_get_timestamp",
    "rocprofiler_get_version",
    "rocprofiler_get_version_triplet",
    "rocprofiler_is_finalized",
    "rocprofiler_is_initialized",
    "rocprofiler_iterate_buffer_tracing_kind_operations",
    "rocprofiler_iterate_buffer_tracing_kinds",
    "rocprofiler_iterate_buffer_tracing_record_args",
    "rocprofiler_iterate_callback_tracing_kind_operation_args",
    "rocprofiler_iterate_callback_tracing_kind_operations",
    "rocprofiler_iterate_callback_tracing_kinds",
    "rocprofiler_ompt_is_finalized",
    "rocprofiler_ompt_is_initialized",
    "rocprofiler_ompt_start_tool",
    "rocprofiler_pop_external_correlation_id",
    "rocprofiler_push_external_correlation_id",
    "rocprofiler_query_available_agents",
    "rocprofiler_query_buffer_tracing_kind_name",
    "rocprofiler_query_buffer_tracing_kind_operation_name",
    "rocprofiler_query_callback_tracing_kind_name",
    "rocprofiler_query_callback_tracing_kind_operation_name",
    "rocprofiler_query_intercept_table_name",
    "rocprofiler_start_context",
    "rocprofiler_stop_context",
];

/// Functions in the headers that the SDK does not export, because they are inline there or because
/// tools export them.
const NOT_OURS: &[&str] = &[
    "rocprofiler_record_header_compute_hash",
    "rocprofiler_configure",
];

/// Functions with a body in `src/capi/hardware.rs`, including those that the JSON does not have.
const HARDWARE: &[&str] = &[
    "rocprofiler_configure_device_thread_trace_service",
    "rocprofiler_configure_dispatch_thread_trace_service",
    "rocprofiler_range_replay_begin",
    "rocprofiler_range_replay_end",
    "rocprofiler_spm_configure_buffer_dispatch_service",
    "rocprofiler_spm_configure_callback_dispatch_service",
    "rocprofiler_spm_create_counter_config",
    "rocprofiler_spm_destroy_counter_config",
    "rocprofiler_spm_iterate_agent_supported_counters",
    "rocprofiler_spm_query_agent_configurations",
    "rocprofiler_thread_trace_decoder_codeobj_load",
    "rocprofiler_thread_trace_decoder_codeobj_unload",
    "rocprofiler_thread_trace_decoder_create",
    "rocprofiler_thread_trace_decoder_destroy",
    "rocprofiler_thread_trace_decoder_info_string",
    "rocprofiler_trace_decode",
];

/// Returns `not_implemented.rs`.
pub fn generate() -> Result<String, Box<dyn Error>> {
    let mut out = String::new();
    for name in BUILT {
        if !SDK_FUNCTIONS.iter().any(|f| f.name == *name) {
            return Err(format!("{name} is not a function of the headers").into());
        }
    }
    for function in SDK_FUNCTIONS {
        let has_a_body = [BUILT, HARDWARE, NOT_OURS]
            .iter()
            .any(|names| names.contains(&function.name));
        if has_a_body {
            continue;
        }
        let (result, value) = match function.result {
            ResultClass::Status => ("-> c_int", "ROCPROFILER_STATUS_ERROR_NOT_IMPLEMENTED"),
            ResultClass::Pointer => ("-> *const c_void", "std::ptr::null()"),
            ResultClass::Number => ("-> u64", "0"),
            ResultClass::Nothing => ("", ""),
        };
        // The function reads no arguments, and in this calling convention a callee need not declare
        // them.
        writeln!(
            out,
            "/// Not implemented.\n#[unsafe(no_mangle)]\npub extern \"C\" fn {}() {result} {{ {value} }}",
            function.name
        )?;
    }
    writeln!(
        out,
        "/// Names that [`super`] exports with a body.\npub const BUILT: &[&str] = &{BUILT:?};\n\
         /// Names that `super::hardware` exports.\npub const HARDWARE: &[&str] = &{HARDWARE:?};"
    )?;
    Ok(out)
}
