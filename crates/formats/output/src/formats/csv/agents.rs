//! `agent_info.csv`: one row for each agent.

use super::row::{self, PROCESS, Row};
use crate::files::{FileSet, OutputFile, WriteError};
use crate::job::Job;
use midair_agents::Agent;

/// The file's name behind the prefix.
pub(crate) const FILE: &str = "agent_info.csv";

/// The value of a column of agent_info.
enum Value<'a> {
    Number(u64),
    Text(&'a str),
}

/// Returns the name and value of each column of agent_info, in order.
fn columns(agent: &Agent) -> [(&'static str, Value<'_>); 53] {
    let number = |value: u32| Value::Number(u64::from(value));
    [
        ("Node_Id", number(agent.node_id)),
        (
            "Logical_Node_Id",
            Value::Number(u64::try_from(agent.logical_node_id).unwrap_or(0)),
        ),
        ("Agent_Type", Value::Text(agent.agent_type.text())),
        ("Cpu_Cores_Count", number(agent.cpu_cores_count)),
        ("Simd_Count", number(agent.simd_count)),
        ("Cpu_Core_Id_Base", number(agent.cpu_core_id_base)),
        ("Simd_Id_Base", number(agent.simd_id_base)),
        ("Max_Waves_Per_Simd", number(agent.max_waves_per_simd)),
        ("Lds_Size_In_Kb", number(agent.lds_size_in_kb)),
        ("Gds_Size_In_Kb", number(agent.gds_size_in_kb)),
        ("Num_Gws", number(agent.num_gws)),
        ("Wave_Front_Size", number(agent.wave_front_size)),
        ("Num_Xcc", number(agent.num_xcc)),
        ("Cu_Count", number(agent.cu_count)),
        ("Array_Count", number(agent.array_count)),
        ("Num_Shader_Banks", number(agent.num_shader_banks)),
        (
            "Simd_Arrays_Per_Engine",
            number(agent.simd_arrays_per_engine),
        ),
        ("Cu_Per_Simd_Array", number(agent.cu_per_simd_array)),
        ("Simd_Per_Cu", number(agent.simd_per_cu)),
        ("Max_Slots_Scratch_Cu", number(agent.max_slots_scratch_cu)),
        ("Gfx_Target_Version", number(agent.gfx_target_version)),
        ("Vendor_Id", number(u32::from(agent.vendor_id))),
        ("Device_Id", number(u32::from(agent.device_id))),
        ("Location_Id", number(agent.location_id)),
        ("Domain", number(agent.domain)),
        ("Drm_Render_Minor", number(agent.drm_render_minor)),
        ("Num_Sdma_Engines", number(agent.num_sdma_engines)),
        ("Num_Sdma_Xgmi_Engines", number(agent.num_sdma_xgmi_engines)),
        (
            "Num_Sdma_Queues_Per_Engine",
            number(agent.num_sdma_queues_per_engine),
        ),
        ("Num_Cp_Queues", number(agent.num_cp_queues)),
        (
            "Max_Engine_Clk_Ccompute",
            number(agent.max_engine_clk_ccompute),
        ),
        (
            "Max_Engine_Clk_Fcompute",
            number(agent.max_engine_clk_fcompute),
        ),
        ("Sdma_Fw_Version", number(agent.sdma_fw_version & 0x3ff)),
        ("Fw_Version", number(agent.fw_version & 0x3ff)),
        ("Capability", number(agent.capability)),
        ("Cu_Per_Engine", number(agent.cu_per_engine)),
        ("Max_Waves_Per_Cu", number(agent.max_waves_per_cu)),
        ("Family_Id", number(agent.family_id)),
        ("Workgroup_Max_Size", number(agent.workgroup_max_size)),
        ("Grid_Max_Size", number(agent.grid_max_size)),
        ("Local_Mem_Size", Value::Number(agent.local_mem_size)),
        ("Hive_Id", Value::Number(agent.hive_id)),
        ("Gpu_Id", Value::Number(agent.gpu_id)),
        ("Workgroup_Max_Dim_X", number(agent.workgroup_max_dim.x)),
        ("Workgroup_Max_Dim_Y", number(agent.workgroup_max_dim.y)),
        ("Workgroup_Max_Dim_Z", number(agent.workgroup_max_dim.z)),
        ("Grid_Max_Dim_X", number(agent.grid_max_dim.x)),
        ("Grid_Max_Dim_Y", number(agent.grid_max_dim.y)),
        ("Grid_Max_Dim_Z", number(agent.grid_max_dim.z)),
        ("Name", Value::Text(&agent.name)),
        ("Vendor_Name", Value::Text(&agent.vendor_name)),
        ("Product_Name", Value::Text(&agent.product_name)),
        ("Model_Name", Value::Text(&agent.model_name)),
    ]
}

/// Starts the file, for one session or for several together.
pub(super) fn begin(files: &FileSet, together: bool) -> Result<OutputFile, WriteError> {
    let mut header = columns(&Agent::default()).map(|(name, _)| name).to_vec();
    // Processes in different containers may see different agents.
    header.extend(together.then_some(PROCESS));
    row::begin(files, FILE, &header)
}

/// Writes the agents of all sessions.
pub(super) fn fill(mut file: OutputFile, jobs: &[Job<'_>]) -> Result<OutputFile, WriteError> {
    let together = jobs.len() > 1;
    for job in jobs {
        for agent in job.agents() {
            let mut row = Row::default();
            for (_, value) in columns(agent) {
                match value {
                    Value::Number(value) => row.number(value),
                    Value::Text(text) => row.text(text),
                };
            }
            if together {
                row.number(job.trace.process.pid);
            }
            file.put(row.end())?;
        }
    }
    Ok(file)
}
