//! Numbers of an agent, under AMD's names. They are in json, and definitions of counters use some.

use midair_agents::Agent;

/// Returns the numbers that describe its hardware, in AMD's order.
pub(crate) fn hardware(agent: &Agent) -> [(&'static str, u32); 32] {
    let count = |parts: usize| u32::try_from(parts).unwrap_or(u32::MAX);
    [
        ("cpu_cores_count", agent.cpu_cores_count),
        ("simd_count", agent.simd_count),
        ("mem_banks_count", count(agent.mem_banks.len())),
        ("caches_count", count(agent.caches.len())),
        ("io_links_count", count(agent.io_links.len())),
        ("cpu_core_id_base", agent.cpu_core_id_base),
        ("simd_id_base", agent.simd_id_base),
        ("max_waves_per_simd", agent.max_waves_per_simd),
        ("lds_size_in_kb", agent.lds_size_in_kb),
        ("gds_size_in_kb", agent.gds_size_in_kb),
        ("num_gws", agent.num_gws),
        ("wave_front_size", agent.wave_front_size),
        ("num_xcc", agent.num_xcc),
        ("cu_count", agent.cu_count),
        ("array_count", agent.array_count),
        ("num_shader_banks", agent.num_shader_banks),
        ("simd_arrays_per_engine", agent.simd_arrays_per_engine),
        ("cu_per_simd_array", agent.cu_per_simd_array),
        ("simd_per_cu", agent.simd_per_cu),
        ("max_slots_scratch_cu", agent.max_slots_scratch_cu),
        ("gfx_target_version", agent.gfx_target_version),
        ("vendor_id", u32::from(agent.vendor_id)),
        ("device_id", u32::from(agent.device_id)),
        ("location_id", agent.location_id),
        ("domain", agent.domain),
        ("drm_render_minor", agent.drm_render_minor),
        ("num_sdma_engines", agent.num_sdma_engines),
        ("num_sdma_xgmi_engines", agent.num_sdma_xgmi_engines),
        (
            "num_sdma_queues_per_engine",
            agent.num_sdma_queues_per_engine,
        ),
        ("num_cp_queues", agent.num_cp_queues),
        ("max_engine_clk_ccompute", agent.max_engine_clk_ccompute),
        ("max_engine_clk_fcompute", agent.max_engine_clk_fcompute),
    ]
}

/// Returns what it can hold and run at most, and the driver's ids, in AMD's order.
pub(crate) fn limits(agent: &Agent) -> [(&'static str, u64); 8] {
    [
        ("cu_per_engine", agent.cu_per_engine.into()),
        ("max_waves_per_cu", agent.max_waves_per_cu.into()),
        ("family_id", agent.family_id.into()),
        ("workgroup_max_size", agent.workgroup_max_size.into()),
        ("grid_max_size", agent.grid_max_size.into()),
        ("local_mem_size", agent.local_mem_size),
        ("hive_id", agent.hive_id),
        ("gpu_id", agent.gpu_id),
    ]
}
