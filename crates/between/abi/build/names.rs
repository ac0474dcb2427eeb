//! Generates the names of kinds, operations and statuses.

use super::tables::{Apis, SOURCES, slots};
use super::{Text, enumerators};
use serde_json::Value;
use std::error::Error;
use std::fmt::Write;

/// Returns the enum of a kind's operations, and how names are made from its enumerators. `kind` is
/// the kind's name without its prefix. Source: the strings that AMD's tool writes (golden outputs,
/// `strings.buffer_records`).
fn operations_of(kind: &str) -> Option<(&'static str, &'static str, &'static str)> {
    // (enum, prefix to remove, prefix that replaces it)
    Some(match kind {
        "HSA_CORE_API" => (
            "rocprofiler_hsa_core_api_id_t",
            "ROCPROFILER_HSA_CORE_API_ID_",
            "",
        ),
        "HSA_AMD_EXT_API" => (
            "rocprofiler_hsa_amd_ext_api_id_t",
            "ROCPROFILER_HSA_AMD_EXT_API_ID_",
            "",
        ),
        "HSA_IMAGE_EXT_API" => (
            "rocprofiler_hsa_image_ext_api_id_t",
            "ROCPROFILER_HSA_IMAGE_EXT_API_ID_",
            "",
        ),
        "HSA_FINALIZE_EXT_API" => (
            "rocprofiler_hsa_finalize_ext_api_id_t",
            "ROCPROFILER_HSA_FINALIZE_EXT_API_ID_",
            "",
        ),
        "HIP_RUNTIME_API" | "HIP_RUNTIME_API_EXT" => (
            "rocprofiler_hip_runtime_api_id_t",
            "ROCPROFILER_HIP_RUNTIME_API_ID_",
            "",
        ),
        "HIP_COMPILER_API" | "HIP_COMPILER_API_EXT" => (
            "rocprofiler_hip_compiler_api_id_t",
            "ROCPROFILER_HIP_COMPILER_API_ID_",
            "",
        ),
        "MARKER_CORE_API" => (
            "rocprofiler_marker_core_api_id_t",
            "ROCPROFILER_MARKER_CORE_API_ID_",
            "",
        ),
        "MARKER_CONTROL_API" => (
            "rocprofiler_marker_control_api_id_t",
            "ROCPROFILER_MARKER_CONTROL_API_ID_",
            "",
        ),
        "MARKER_NAME_API" => (
            "rocprofiler_marker_name_api_id_t",
            "ROCPROFILER_MARKER_NAME_API_ID_",
            "",
        ),
        "MARKER_CORE_RANGE_API" => (
            "rocprofiler_marker_core_range_api_id_t",
            "ROCPROFILER_MARKER_CORE_RANGE_API_ID_",
            "",
        ),
        "RCCL_API" => ("rocprofiler_rccl_api_id_t", "ROCPROFILER_RCCL_API_ID_", ""),
        "ROCDECODE_API" | "ROCDECODE_API_EXT" => (
            "rocprofiler_rocdecode_api_id_t",
            "ROCPROFILER_ROCDECODE_API_ID_",
            "",
        ),
        "ROCJPEG_API" => (
            "rocprofiler_rocjpeg_api_id_t",
            "ROCPROFILER_ROCJPEG_API_ID_",
            "",
        ),
        "OMPT" => (
            "rocprofiler_ompt_operation_t",
            "ROCPROFILER_OMPT_ID_",
            "omp_",
        ),
        "MEMORY_COPY" => ("rocprofiler_memory_copy_operation_t", "ROCPROFILER_", ""),
        "KERNEL_DISPATCH" => (
            "rocprofiler_kernel_dispatch_operation_t",
            "ROCPROFILER_",
            "",
        ),
        "SCRATCH_MEMORY" => ("rocprofiler_scratch_memory_operation_t", "ROCPROFILER_", ""),
        "MEMORY_ALLOCATION" => (
            "rocprofiler_memory_allocation_operation_t",
            "ROCPROFILER_",
            "",
        ),
        "RUNTIME_INITIALIZATION" => (
            "rocprofiler_runtime_initialization_operation_t",
            "ROCPROFILER_",
            "",
        ),
        "HIP_GRAPH" => ("rocprofiler_hip_graph_operation_t", "ROCPROFILER_", ""),
        "KERNEL_REPLAY" => ("rocprofiler_kernel_replay_operation_t", "ROCPROFILER_", ""),
        "HIP_EVENT" => ("rocprofiler_hip_event_operation_t", "ROCPROFILER_", ""),
        "HIP_STREAM" => ("rocprofiler_hip_stream_operation_t", "ROCPROFILER_", ""),
        "CODE_OBJECT" => ("rocprofiler_code_object_operation_t", "ROCPROFILER_", ""),
        "KFD_EVENT_PAGE_MIGRATE" => ("rocprofiler_kfd_event_page_migrate_operation_t", "", ""),
        "KFD_EVENT_PAGE_FAULT" => ("rocprofiler_kfd_event_page_fault_operation_t", "", ""),
        "KFD_EVENT_QUEUE" => ("rocprofiler_kfd_event_queue_operation_t", "", ""),
        "KFD_EVENT_UNMAP_FROM_GPU" => ("rocprofiler_kfd_event_unmap_from_gpu_operation_t", "", ""),
        "KFD_EVENT_DROPPED_EVENTS" => ("rocprofiler_kfd_event_dropped_events_operation_t", "", ""),
        "KFD_PAGE_MIGRATE" => ("rocprofiler_kfd_page_migrate_operation_t", "", ""),
        "KFD_PAGE_FAULT" => ("rocprofiler_kfd_page_fault_operation_t", "", ""),
        "KFD_QUEUE" => ("rocprofiler_kfd_queue_operation_t", "", ""),
        _ => return None,
    })
}

/// Returns `names.rs`: kinds with their operations, and names of statuses.
pub fn generate(apis: &Apis, sdk: &Value) -> Text {
    let mut out = String::new();
    kinds(
        &mut out,
        "BUFFER_KINDS",
        "rocprofiler_buffer_tracing_kind_t",
        "ROCPROFILER_BUFFER_TRACING_",
        apis,
        sdk,
    )?;
    kinds(
        &mut out,
        "CALLBACK_KINDS",
        "rocprofiler_callback_tracing_kind_t",
        "ROCPROFILER_CALLBACK_TRACING_",
        apis,
        sdk,
    )?;
    let mut statuses = enumerators(sdk, "rocprofiler_status_t")?;
    // Of two names for one value, AMD's newest is the first.
    statuses.dedup_by_key(|(_, value)| *value);
    writeln!(
        out,
        "/// Names of `rocprofiler_status_t` by value.\npub static STATUS_NAMES: &[Name] = &["
    )?;
    for (index, (status, value)) in statuses.iter().enumerate() {
        if index as i64 != *value {
            return Err(format!("{status} is {value}, not {index}").into());
        }
        writeln!(out, "name(\"{status}\\0\"),")?;
    }
    out.push_str("];\n");
    Ok(out)
}

fn kinds(
    out: &mut String,
    constant: &str,
    enum_name: &str,
    prefix: &str,
    apis: &Apis,
    sdk: &Value,
) -> Result<(), Box<dyn Error>> {
    writeln!(
        out,
        "/// Kinds of `{enum_name}` by value.\npub static {constant}: &[Kind] = &["
    )?;
    for (index, (kind, value)) in enumerators(sdk, enum_name)?.iter().enumerate() {
        if index as i64 != *value {
            return Err(format!("{kind} is {value}, not {index}").into());
        }
        let kind = kind
            .strip_prefix(prefix)
            .ok_or_else(|| format!("{kind} has another prefix"))?;
        write!(out, "Kind {{ name: name(\"{kind}\\0\"), operations: &[")?;
        let mut added = String::new();
        if let Some((operations, cut, put)) = operations_of(kind) {
            for (position, (name, value)) in enumerators(sdk, operations)?.iter().enumerate() {
                if position as i64 != *value {
                    return Err(format!("{name} is {value}, not {position}").into());
                }
                let name = name
                    .strip_prefix(cut)
                    .ok_or_else(|| format!("{name} has another prefix"))?;
                write!(out, "name(\"{put}{name}\\0\"), ")?;
            }
            if let Some(source) = SOURCES.iter().find(|s| s.operations.0 == operations) {
                for slot in slots(source, apis.of(source), sdk)?
                    .iter()
                    .filter(|s| !s.known)
                {
                    write!(added, "name(\"{}\\0\"), ", slot.name)?;
                }
            }
        }
        writeln!(out, "], added: &[{added}] }},")?;
    }
    out.push_str("];\n");
    Ok(())
}
