//! Agents as `rocprofiler_query_available_agents` returns them (version 0).

use crate::c_struct;
use crate::records::Dim3;
use std::ffi::c_char;

c_struct! {
    /// A cache of an agent.
    AgentCache = rocprofiler_agent_cache_t {
        /// The first processor that uses it.
        processor_id_low: u64,
        /// Size in bytes.
        size: u64,
        /// Level.
        level: u32,
        /// Bytes of a line.
        cache_line_size: u32,
        /// Lines per tag.
        cache_lines_per_tag: u32,
        /// Ways.
        association: u32,
        /// Latency that KFD reports.
        latency: u32,
        /// `HsaCacheType` bits.
        r#type: u32,
    }
}
c_struct! {
    /// A link to another agent.
    AgentIoLink = rocprofiler_agent_io_link_t {
        /// `HSA_IOLINKTYPE`.
        r#type: u32,
        /// Version.
        version_major: u32,
        /// Version.
        version_minor: u32,
        /// The node that it comes from.
        node_from: u32,
        /// The node that it leads to.
        node_to: u32,
        /// Cost.
        weight: u32,
        /// Minimum latency that KFD reports.
        min_latency: u32,
        /// Maximum latency that KFD reports.
        max_latency: u32,
        /// MB/s.
        min_bandwidth: u32,
        /// MB/s.
        max_bandwidth: u32,
        /// Bytes.
        recommended_transfer_size: u32,
        /// `HSA_LINKPROPERTY` bits.
        flags: u32,
    }
}
c_struct! {
    /// A memory bank of an agent.
    AgentMemBank = rocprofiler_agent_mem_bank_t {
        /// `HSA_HEAPTYPE`.
        heap_type: u32,
        /// `HSA_MEMORYPROPERTY` bits.
        flags: u32,
        /// Bus width, bits.
        width: u32,
        /// MHz.
        mem_clk_max: u32,
        /// Bytes.
        size_in_bytes: u64,
    }
}
c_struct! {
    /// An agent: a node of KFD's topology.
    Agent = rocprofiler_agent_v0_t {
        /// Bytes of this struct.
        size: u64,
        /// Id: the handle of `rocprofiler_agent_id_t`.
        id: u64,
        /// `rocprofiler_agent_type_t`.
        r#type: i32,
        /// CPU cores.
        cpu_cores_count: u32,
        /// SIMDs.
        simd_count: u32,
        /// Entries of `mem_banks`.
        mem_banks_count: u32,
        /// Entries of `caches`.
        caches_count: u32,
        /// Entries of `io_links`.
        io_links_count: u32,
        /// First core.
        cpu_core_id_base: u32,
        /// First SIMD.
        simd_id_base: u32,
        /// Waves per SIMD.
        max_waves_per_simd: u32,
        /// LDS in KiB.
        lds_size_in_kb: u32,
        /// GDS in KiB.
        gds_size_in_kb: u32,
        /// Global wave sync entries.
        num_gws: u32,
        /// Lanes of a wave.
        wave_front_size: u32,
        /// XCCs.
        num_xcc: u32,
        /// Compute units.
        cu_count: u32,
        /// SIMD arrays.
        array_count: u32,
        /// Shader engines.
        num_shader_banks: u32,
        /// SIMD arrays per engine.
        simd_arrays_per_engine: u32,
        /// Compute units per array.
        cu_per_simd_array: u32,
        /// SIMDs per compute unit.
        simd_per_cu: u32,
        /// Scratch slots per compute unit.
        max_slots_scratch_cu: u32,
        /// Such as 90402 for gfx942.
        gfx_target_version: u32,
        /// PCI vendor.
        vendor_id: u16,
        /// PCI device.
        device_id: u16,
        /// PCI bus, device, function.
        location_id: u32,
        /// PCI domain.
        domain: u32,
        /// The N of /dev/dri/renderDN.
        drm_render_minor: u32,
        /// SDMA engines.
        num_sdma_engines: u32,
        /// SDMA engines for xGMI.
        num_sdma_xgmi_engines: u32,
        /// Queues per SDMA engine.
        num_sdma_queues_per_engine: u32,
        /// Compute queues.
        num_cp_queues: u32,
        /// MHz.
        max_engine_clk_ccompute: u32,
        /// MHz.
        max_engine_clk_fcompute: u32,
        /// `HSA_ENGINE_VERSION` bits.
        sdma_fw_version: u32,
        /// `HSA_ENGINE_ID` bits.
        fw_version: u32,
        /// `HSA_CAPABILITY` bits.
        capability: u32,
        /// Compute units per engine.
        cu_per_engine: u32,
        /// Waves per compute unit.
        max_waves_per_cu: u32,
        /// Family.
        family_id: u32,
        /// Work items per group.
        workgroup_max_size: u32,
        /// Work items per grid.
        grid_max_size: u32,
        /// Bytes of device memory.
        local_mem_size: u64,
        /// xGMI hive.
        hive_id: u64,
        /// KFD's gpu_id.
        gpu_id: u64,
        /// Work items per group by dimension.
        workgroup_max_dim: Dim3,
        /// Work items per grid by dimension.
        grid_max_dim: Dim3,
        /// Memory banks.
        mem_banks: *const AgentMemBank,
        /// Caches.
        caches: *const AgentCache,
        /// Links.
        io_links: *const AgentIoLink,
        /// Such as "gfx942".
        name: *const c_char,
        /// Such as "AMD".
        vendor_name: *const c_char,
        /// Marketing name.
        product_name: *const c_char,
        /// KFD's name.
        model_name: *const c_char,
        /// KFD's node.
        node_id: u32,
        /// Position among the agents.
        logical_node_id: i32,
        /// Position among the agents of its type.
        logical_node_type_id: i32,
        /// Bits: hsa, hip, rccl, rocdecode.
        runtime_visibility: u32,
        /// Unique id.
        uuid: [u8; 16],
    }
}
