//! The csv files of AMD's `rocpd convert`: one for each kind of record, with the session's guid in each
//! row. They come from views alone, so they are made of a CUDA process's database, too.
//!
//! Names of files, headings and their order: docs/sources.md#rocpd.

use crate::export::{Exported, Format, Target, export};
use crate::unite::own_views;
use crate::window::Window;
use crate::{Input, sql};
use midair_failure::Failure;
use midair_output::{AgentIndex, Plan};
use std::path::PathBuf;

/// The order of the rows.
const IN_ORDER: &str = "ORDER BY guid, \"start\", \"end\" DESC";
/// The columns for times.
const TIMES: &str = "\"start\" AS Start_Timestamp, \"end\" AS End_Timestamp";
/// The column of the pass in which a kernel was launched again.
const PASS: &str = "replay_pass";
/// The category of barriers of HIP events, which have a file of their own.
const BARRIERS: &str = "BARRIER";

/// What agent_info has of an agent's description, before and after its capabilities.
const FACTS: [&str; 31] = [
    "cpu_cores_count",
    "simd_count",
    "cpu_core_id_base",
    "simd_id_base",
    "max_waves_per_simd",
    "lds_size_in_kb",
    "gds_size_in_kb",
    "num_gws",
    "wave_front_size",
    "num_xcc",
    "cu_count",
    "array_count",
    "num_shader_banks",
    "simd_arrays_per_engine",
    "cu_per_simd_array",
    "simd_per_cu",
    "max_slots_scratch_cu",
    "gfx_target_version",
    "vendor_id",
    "device_id",
    "location_id",
    "domain",
    "drm_render_minor",
    "num_sdma_engines",
    "num_sdma_xgmi_engines",
    "num_sdma_queues_per_engine",
    "num_cp_queues",
    "max_engine_clk_ccompute",
    "max_engine_clk_fcompute",
    "sdma_fw_version.uCodeSDMA AS Sdma_Fw_Version",
    "fw_version.uCode AS Fw_Version",
];
const CAPABILITIES: [&str; 25] = [
    "HotPluggable",
    "HSAMMUPresent",
    "SharedWithGraphics",
    "QueueSizePowerOfTwo",
    "QueueSize32bit",
    "QueueIdleEvent",
    "VALimit",
    "WatchPointsSupported",
    "WatchPointsTotalBits",
    "DoorbellType",
    "AQLQueueDoubleMap",
    "DebugTrapSupported",
    "WaveLaunchTrapOverrideSupported",
    "WaveLaunchModeSupported",
    "PreciseMemoryOperationsSupported",
    "DEPRECATED_SRAM_EDCSupport",
    "Mem_EDCSupport",
    "RASEventNotify",
    "ASICRevision",
    "SRAM_EDCSupport",
    "SVMAPISupported",
    "CoherentHostAccess",
    "DebugSupportedFirmware",
    "PreciseALUOperationsSupported",
    "PerQueueResetSupported",
];
const FURTHER: [&str; 14] = [
    "cu_per_engine",
    "max_waves_per_cu",
    "workgroup_max_size",
    "family_id",
    "grid_max_size",
    "local_mem_size",
    "hive_id",
    "gpu_id",
    "workgroup_max_dim.x AS Workgroup_Max_Dim_X",
    "workgroup_max_dim.y AS Workgroup_Max_Dim_Y",
    "workgroup_max_dim.z AS Workgroup_Max_Dim_Z",
    "grid_max_dim.x AS Grid_Max_Dim_X",
    "grid_max_dim.y AS Grid_Max_Dim_Y",
    "grid_max_dim.z AS Grid_Max_Dim_Z",
];

/// Writes the files. A kind without rows has none.
///
/// # Errors
/// When a database cannot be read, or a file cannot be written.
pub(crate) fn write(
    input: &Input,
    plan: &Plan,
    window: Option<Window>,
) -> Result<Vec<PathBuf>, Failure> {
    own_views(input, window)?;
    let prefix = match plan.prefix.as_str() {
        "" => String::new(),
        prefix => format!("{prefix}_"),
    };
    let mut files = Vec::new();
    for (name, query) in queries(input, plan).map_err(|error| sql("read the views", &error))? {
        let target = Target {
            format: Format::Csv,
            directory: plan.directory.clone(),
            name: format!("{prefix}{name}"),
        };
        let written = export(&input.connection, &query, &target, &mut |_| {})?;
        if let Exported::File(file) = written {
            files.push(file);
        }
    }
    Ok(files)
}

/// Returns the names of the files and the queries that they are the answers of.
fn queries(input: &Input, plan: &Plan) -> rusqlite::Result<Vec<(&'static str, String)>> {
    let agent = |of: &str| match plan.agent_index {
        AgentIndex::Relative => format!("'Agent ' || {of}agent_log_index"),
        AgentIndex::Absolute => format!("'Agent ' || {of}agent_abs_index"),
        AgentIndex::TypeRelative => format!("{of}agent_type || ' ' || {of}agent_type_index"),
    };
    let kernel = match plan.rename_kernels {
        true => "COALESCE(NULLIF(region, ''), name)",
        false => "name",
    };
    let (its, source, destination) = (agent(""), agent("src_"), agent("dst_"));
    // Versions before 3.0.2 have no graphs.
    let has_graphs = has(input, "graph_exec_id")?;
    let graph = match has_graphs {
        true => "graph_exec_id, graph_node_id, ",
        false => "",
    };
    let pass = match is_replayed(input)? {
        true => format!(
            "(SELECT d.{PASS} FROM rocpd_kernel_dispatch AS d WHERE d.guid = c.guid AND d.event_id = c.event_id) AS {PASS}, "
        ),
        false => String::new(),
    };
    let mut all = vec![
        ("agent_info", agents()),
        (
            "counter_collection_trace",
            format!(
                "SELECT guid, stack_id AS Correlation_Id, dispatch_id, {pass}{its} AS Agent_Id, queue_id, pid AS Process_Id, \
                 tid AS Thread_Id, grid_size, kernel_id, kernel_name, workgroup_size, lds_block_size, scratch_size, \
                 vgpr_count, accum_vgpr_count, sgpr_count, counter_name, value AS Counter_Value, {TIMES} \
                 FROM counters_collection AS c {IN_ORDER}"
            ),
        ),
        (
            "kernel_trace",
            format!(
                "SELECT guid, 'KERNEL_DISPATCH' AS Kind, {its} AS Agent_Id, queue_id, stream_id, {graph}\
                 tid AS Thread_Id, dispatch_id, kernel_id, {kernel} AS Kernel_Name, stack_id AS Correlation_Id, {TIMES}, \
                 \"end\" - \"start\" AS Duration, lds_size AS Lds_Block_Size, scratch_size, vgpr_count, accum_vgpr_count, \
                 sgpr_count, workgroup_x AS Workgroup_Size_X, workgroup_y AS Workgroup_Size_Y, \
                 workgroup_z AS Workgroup_Size_Z, grid_x AS Grid_Size_X, grid_y AS Grid_Size_Y, grid_z AS Grid_Size_Z \
                 FROM kernels {IN_ORDER}"
            ),
        ),
        (
            "memory_allocation_trace",
            format!(
                "SELECT guid, 'MEMORY_ALLOCATION' AS Kind, \
                 iif(level = 'SCRATCH', 'SCRATCH_MEMORY_', 'MEMORY_ALLOCATION_') || iif(level = 'VIRTUAL', 'VMEM_', '') || \
                 iif(type = 'ALLOC', 'ALLOCATE', type) AS Operation, iif(type = 'FREE', '', {its}) AS Agent_Id, \
                 size AS Allocation_Size, '0x' || printf('%016X', address) AS Address, stack_id AS Correlation_Id, {TIMES} \
                 FROM memory_allocations {IN_ORDER}"
            ),
        ),
        (
            "memory_copy_trace",
            format!(
                "SELECT guid, 'MEMORY_COPY' AS Kind, name AS Direction, stream_id, {graph}\
                 {source} AS Source_Agent_Id, {destination} AS Destination_Agent_Id, stack_id AS Correlation_Id, {TIMES} \
                 FROM memory_copies {IN_ORDER}"
            ),
        ),
        (
            "regions_trace",
            format!(
                "SELECT guid, category AS Domain, name AS Function, pid AS Process_Id, tid AS Thread_Id, \
                 stack_id AS Correlation_Id, {TIMES} FROM regions WHERE category <> '{BARRIERS}' {IN_ORDER}"
            ),
        ),
        (
            "scratch_memory_trace",
            format!(
                "SELECT guid, 'SCRATCH_MEMORY' AS Kind, 'SCRATCH_MEMORY_' || operation AS Operation, {its} AS Agent_Id, \
                 queue_id, tid AS Thread_Id, alloc_flags, {TIMES} FROM scratch_memory {IN_ORDER}"
            ),
        ),
        (
            "hip_event_trace",
            format!(
                "SELECT guid, 'HIP_EVENT' AS Kind, name AS Operation, {its} AS Agent_Id, queue_id, stream_id, tid AS Thread_Id, \
                 hip_event_handle AS Event_Handle, source_queue_id, stack_id AS Correlation_Id, {TIMES}, duration \
                 FROM hip_events {IN_ORDER}"
            ),
        ),
        (
            "spm_counter_collection_trace",
            format!(
                "SELECT guid, stack_id AS Correlation_Id, dispatch_id, {its} AS Agent_Id, queue_id, pid AS Process_Id, \
                 tid AS Thread_Id, grid_size, kernel_id, kernel_name, workgroup_size, lds_block_size, scratch_size, \
                 vgpr_count, accum_vgpr_count, sgpr_count, \
                 counter_name || '[XCC: ' || xcc || ', SE: ' || shader_engine || ', Instance: ' || instance || ']' AS Counter_Name, \
                 value AS Counter_Value, timestamp FROM spm_counters ORDER BY guid, timestamp"
            ),
        ),
    ];
    if has_graphs {
        let launches = format!(
            "SELECT guid, 'Graph Launch' AS Kind, {its} AS Agent_Id, queue_id, tid AS Thread_Id, stack_id AS Correlation_Id, \
             {TIMES}, duration, graph_exec_id, kernel_dispatch_count FROM graph_launches {IN_ORDER}"
        );
        all.push(("graph_launch_trace", launches));
    }
    Ok(all)
}

/// Returns the query for agents, most of whose facts are JSON.
fn agents() -> String {
    let extracted = |inside: &str, fact: &&str| {
        let (key, heading) = fact.split_once(" AS ").unwrap_or((fact, fact));
        let before = if inside.is_empty() { "" } else { "Cap_" };
        format!("json_extract(extdata, '$.{inside}{key}') AS {before}{heading}")
    };
    let mut columns = vec!["guid".to_owned()];
    columns.extend(
        ["node_id", "logical_node_id"]
            .iter()
            .map(|it| extracted("", it)),
    );
    columns.push("type AS Agent_Type".to_owned());
    columns.extend(FACTS.iter().map(|it| extracted("", it)));
    columns.extend(CAPABILITIES.iter().map(|it| extracted("capability.", it)));
    columns.extend(FURTHER.iter().map(|it| extracted("", it)));
    columns.push("name".to_owned());
    columns.extend(
        ["vendor_name", "product_name"]
            .iter()
            .map(|it| extracted("", it)),
    );
    columns.push("model_name".to_owned());
    format!("SELECT {} FROM rocpd_info_agent", columns.join(", "))
}

/// Whether dispatches of a database have a column, which not all schemas have.
fn has(input: &Input, column: &str) -> rusqlite::Result<bool> {
    for part in &input.parts {
        let columns = part.columns(&input.connection, "kernel_dispatch")?;
        if columns.iter().any(|name| name == column) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether kernels were launched again for each group of counters (AMD's kernel replay), which makes several
/// rows of one dispatch.
fn is_replayed(input: &Input) -> rusqlite::Result<bool> {
    let question = format!("SELECT 1 FROM rocpd_kernel_dispatch WHERE {PASS} IS NOT NULL LIMIT 1");
    Ok(has(input, PASS)? && input.connection.prepare(&question)?.exists([])?)
}
