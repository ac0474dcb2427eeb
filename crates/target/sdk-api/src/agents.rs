//! The machine's agents in AMD's layout, read once from the driver's topology.

pub(crate) mod list;

use crate::state::STATE;
use list::List;
use midair_abi::agent::{Agent, AgentCache, AgentIoLink, AgentMemBank};
use midair_abi::records::Dim3;
use midair_agents::{HANDLE_BASE, Sources, visibility};
use std::ffi::{CString, c_char, c_void};
use std::path::Path;

fn list() -> &'static List {
    STATE.agents.get_or_init(|| {
        let mut sources = Sources::of_root(Path::new("/"));
        // Use the modelled GPU's topology if the runtime itself is asked to (source:
        // `docs/sources.md#hsa`). In a program that has more rights than its caller, the variable
        // is ignored.
        if let Some(topology) = midair_secure::variable("HSA_MODEL_TOPOLOGY") {
            sources = sources.with_topology(topology);
        }
        let mut found = sources.read().unwrap_or_default();
        visibility::apply(&mut found, |name| std::env::var(name).ok());
        let agents: Vec<Agent> = found.into_iter().map(c_agent).collect();
        // The vector's elements keep their addresses when the vector is moved into the list.
        let pointers = agents
            .iter()
            .map(|agent| (&raw const *agent).cast())
            .collect();
        // The list lives as long as the process, since tools keep the pointers.
        Box::leak(Box::new(List { agents, pointers }))
    })
}

/// Returns pointers to the agents, by node; valid forever.
pub(crate) fn pointers() -> &'static [*const c_void] {
    &list().pointers
}

/// Returns the agent id of a KFD node. A node that cannot be read gets the id that it would have if
/// all nodes could be read.
pub(crate) fn id_of_node(node: u32) -> u64 {
    let found = list()
        .agents
        .iter()
        .find(|agent| agent.node_id == node)
        .map(|agent| agent.id);
    found.unwrap_or(HANDLE_BASE + u64::from(node))
}

/// Returns the driver's ids of the GPUs.
pub(crate) fn gpus() -> impl Iterator<Item = u32> {
    list()
        .agents
        .iter()
        .map(|agent| agent.gpu_id as u32)
        .filter(|id| *id != 0)
}

/// Returns the agent id of a GPU by the driver's id; for 0 the first CPU's agent id. 0: there is
/// no such agent.
pub(crate) fn id_of_gpu(gpu: u32) -> u64 {
    let of_driver = list()
        .agents
        .iter()
        .find(|agent| agent.gpu_id == u64::from(gpu));
    of_driver.map_or(0, |agent| agent.id)
}

/// Returns node and id of every known agent.
pub(crate) fn ids() -> impl Iterator<Item = (u32, u64)> {
    list().agents.iter().map(|agent| (agent.node_id, agent.id))
}

/// Returns an agent by its id.
pub(crate) fn by_id(id: u64) -> Option<&'static Agent> {
    list().agents.iter().find(|agent| agent.id == id)
}

/// Whether an agent is a GPU; `None` when there is no such agent.
pub(crate) fn is_gpu(id: u64) -> Option<bool> {
    by_id(id).map(|agent| agent.r#type == midair_abi::constants::ROCPROFILER_AGENT_TYPE_GPU)
}

/// Returns a text that lives forever.
fn text(text: &str) -> *const c_char {
    CString::new(text).unwrap_or_default().into_raw()
}

/// Returns an array that lives forever, and its length.
fn array<T: 'static>(items: impl Iterator<Item = T>) -> (*const T, u32) {
    let items: &'static [T] = Vec::leak(items.collect());
    (items.as_ptr(), items.len() as u32)
}

fn c_agent(agent: midair_agents::Agent) -> Agent {
    let (mem_banks, mem_banks_count) = array(agent.mem_banks.iter().map(|bank| AgentMemBank {
        heap_type: bank.heap_type,
        flags: bank.flags,
        width: bank.width,
        mem_clk_max: bank.mem_clk_max,
        size_in_bytes: bank.size_in_bytes,
    }));
    let (caches, caches_count) = array(agent.caches.iter().map(|cache| AgentCache {
        processor_id_low: cache.processor_id_low,
        size: cache.size,
        level: cache.level,
        cache_line_size: cache.cache_line_size,
        cache_lines_per_tag: cache.cache_lines_per_tag,
        association: cache.association,
        latency: cache.latency,
        r#type: cache.cache_type,
    }));
    let (io_links, io_links_count) = array(agent.io_links.iter().map(|link| AgentIoLink {
        r#type: link.link_type,
        version_major: link.version_major,
        version_minor: link.version_minor,
        node_from: link.node_from,
        node_to: link.node_to,
        weight: link.weight,
        min_latency: link.min_latency,
        max_latency: link.max_latency,
        min_bandwidth: link.min_bandwidth,
        max_bandwidth: link.max_bandwidth,
        recommended_transfer_size: link.recommended_transfer_size,
        flags: link.flags,
    }));
    let dim3 = |dim: midair_agents::Dim3| Dim3 {
        x: dim.x,
        y: dim.y,
        z: dim.z,
    };
    let seen = agent.runtime_visibility;
    let bits = [seen.hsa, seen.hip, seen.rccl, seen.rocdecode];
    Agent {
        size: size_of::<Agent>() as u64,
        id: agent.handle,
        r#type: agent.agent_type as i32,
        cpu_cores_count: agent.cpu_cores_count,
        simd_count: agent.simd_count,
        mem_banks_count,
        caches_count,
        io_links_count,
        cpu_core_id_base: agent.cpu_core_id_base,
        simd_id_base: agent.simd_id_base,
        max_waves_per_simd: agent.max_waves_per_simd,
        lds_size_in_kb: agent.lds_size_in_kb,
        gds_size_in_kb: agent.gds_size_in_kb,
        num_gws: agent.num_gws,
        wave_front_size: agent.wave_front_size,
        num_xcc: agent.num_xcc,
        cu_count: agent.cu_count,
        array_count: agent.array_count,
        num_shader_banks: agent.num_shader_banks,
        simd_arrays_per_engine: agent.simd_arrays_per_engine,
        cu_per_simd_array: agent.cu_per_simd_array,
        simd_per_cu: agent.simd_per_cu,
        max_slots_scratch_cu: agent.max_slots_scratch_cu,
        gfx_target_version: agent.gfx_target_version,
        vendor_id: agent.vendor_id,
        device_id: agent.device_id,
        location_id: agent.location_id,
        domain: agent.domain,
        drm_render_minor: agent.drm_render_minor,
        num_sdma_engines: agent.num_sdma_engines,
        num_sdma_xgmi_engines: agent.num_sdma_xgmi_engines,
        num_sdma_queues_per_engine: agent.num_sdma_queues_per_engine,
        num_cp_queues: agent.num_cp_queues,
        max_engine_clk_ccompute: agent.max_engine_clk_ccompute,
        max_engine_clk_fcompute: agent.max_engine_clk_fcompute,
        sdma_fw_version: agent.sdma_fw_version,
        fw_version: agent.fw_version,
        capability: agent.capability,
        cu_per_engine: agent.cu_per_engine,
        max_waves_per_cu: agent.max_waves_per_cu,
        family_id: agent.family_id,
        workgroup_max_size: agent.workgroup_max_size,
        grid_max_size: agent.grid_max_size,
        local_mem_size: agent.local_mem_size,
        hive_id: agent.hive_id,
        gpu_id: agent.gpu_id,
        workgroup_max_dim: dim3(agent.workgroup_max_dim),
        grid_max_dim: dim3(agent.grid_max_dim),
        mem_banks,
        caches,
        io_links,
        name: text(&agent.name),
        vendor_name: text(&agent.vendor_name),
        product_name: text(&agent.product_name),
        model_name: text(&agent.model_name),
        node_id: agent.node_id,
        logical_node_id: agent.logical_node_id,
        logical_node_type_id: agent.logical_node_type_id,
        runtime_visibility: (0..)
            .zip(bits)
            .fold(0, |word, (bit, seen)| word | u32::from(seen) << bit),
        uuid: agent.uuid,
    }
}
