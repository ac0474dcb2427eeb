//! Builds one agent from the text of a topology node's files.

use crate::agent::{Agent, AgentType, Cache, Dim3, IoLink, MemBank, Visibility};
use crate::{cpuinfo, product};
use std::collections::HashMap;

/// The properties of a file: `name value` on each line, as sysfs prints them.
#[derive(Debug, Default)]
pub(crate) struct Properties<'a>(HashMap<&'a str, u64>);

impl<'a> Properties<'a> {
    pub(crate) fn parse(text: &'a str) -> Self {
        let pairs = text.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?.parse().ok()?))
        });
        Properties(pairs.collect())
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    fn get64(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }
    /// Returns a value. One that does not fit counts as absent (AMD's rule).
    fn get<T: TryFrom<u64> + Default>(&self, name: &str) -> T {
        T::try_from(self.get64(name)).unwrap_or_default()
    }
}

/// The files of one node, and what else is known about its device.
pub(crate) struct NodeFiles<'a> {
    pub(crate) properties: Properties<'a>,
    pub(crate) name: &'a str,
    pub(crate) gpu_id: &'a str,
    pub(crate) mem_banks: Vec<String>,
    pub(crate) caches: Vec<String>,
    pub(crate) io_links: Vec<String>,
    /// The marketing name, if any source has one.
    pub(crate) product: Option<String>,
}

/// Returns the agent's type, judged by its numbers of cores and SIMDs.
pub(crate) fn agent_type(properties: &Properties<'_>) -> AgentType {
    match (
        properties.get64("cpu_cores_count"),
        properties.get64("simd_count"),
    ) {
        (0, 0) => AgentType::None,
        (_, 0) => AgentType::Cpu,
        _ => AgentType::Gpu,
    }
}

/// Returns the PCI device id.
pub(crate) fn device_id(properties: &Properties<'_>) -> u16 {
    properties.get("device_id")
}

/// Returns the N of /dev/dri/renderDN.
pub(crate) fn drm_render_minor(properties: &Properties<'_>) -> u32 {
    properties.get("drm_render_minor")
}

/// Builds an agent. The caller sets the ids and counters that depend on other nodes.
pub(crate) fn agent(files: &NodeFiles<'_>, cpus: &[cpuinfo::Cpu]) -> Agent {
    let p = &files.properties;
    let kind = agent_type(p);
    let mut agent = Agent {
        agent_type: kind,
        cpu_cores_count: p.get("cpu_cores_count"),
        simd_count: p.get("simd_count"),
        cpu_core_id_base: p.get("cpu_core_id_base"),
        simd_id_base: p.get("simd_id_base"),
        max_waves_per_simd: p.get("max_waves_per_simd"),
        lds_size_in_kb: p.get("lds_size_in_kb"),
        gds_size_in_kb: p.get("gds_size_in_kb"),
        num_gws: p.get("num_gws"),
        wave_front_size: p.get("wave_front_size"),
        num_xcc: p.get::<u32>("num_xcc").max(1),
        array_count: p.get("array_count"),
        simd_arrays_per_engine: p.get("simd_arrays_per_engine"),
        cu_per_simd_array: p.get("cu_per_simd_array"),
        simd_per_cu: p.get("simd_per_cu"),
        max_slots_scratch_cu: p.get("max_slots_scratch_cu"),
        gfx_target_version: p.get("gfx_target_version"),
        vendor_id: p.get("vendor_id"),
        device_id: device_id(p),
        location_id: p.get("location_id"),
        domain: p.get("domain"),
        drm_render_minor: drm_render_minor(p),
        num_sdma_engines: p.get("num_sdma_engines"),
        num_sdma_xgmi_engines: p.get("num_sdma_xgmi_engines"),
        num_sdma_queues_per_engine: p.get("num_sdma_queues_per_engine"),
        num_cp_queues: p.get("num_cp_queues"),
        max_engine_clk_ccompute: p.get("max_engine_clk_ccompute"),
        hive_id: p.get64("hive_id"),
        gpu_id: files.gpu_id.trim().parse().unwrap_or(0),
        model_name: files.name.split_whitespace().collect::<Vec<_>>().join(" "),
        runtime_visibility: Visibility::FULL,
        mem_banks: files
            .mem_banks
            .iter()
            .map(|text| mem_bank(&Properties::parse(text)))
            .collect(),
        caches: files
            .caches
            .iter()
            .map(|text| cache(&Properties::parse(text)))
            .collect(),
        io_links: files
            .io_links
            .iter()
            .map(|text| io_link(&Properties::parse(text)))
            .collect(),
        ..Agent::default()
    };
    agent.max_waves_per_cu = agent.simd_per_cu.saturating_mul(agent.max_waves_per_simd);
    match kind {
        AgentType::Gpu => gpu(&mut agent, p, files.product.as_deref()),
        AgentType::Cpu => cpu(&mut agent, cpus),
        AgentType::None => {}
    }
    agent
}

fn gpu(agent: &mut Agent, p: &Properties<'_>, product: Option<&str>) {
    agent.max_engine_clk_fcompute = p.get("max_engine_clk_fcompute");
    agent.local_mem_size = p.get64("local_mem_size");
    // The driver puts feature bits above the microcode version, so they are cut off.
    agent.fw_version = p.get::<u32>("fw_version") & 0x3ff;
    agent.sdma_fw_version = p.get::<u32>("sdma_fw_version") & 0x3ff;
    agent.capability = p.get("capability");
    agent.cu_count = agent.simd_count.checked_div(agent.simd_per_cu).unwrap_or(0);
    agent.num_shader_banks = agent
        .array_count
        .checked_div(agent.simd_arrays_per_engine)
        .unwrap_or(0);
    agent.cu_per_engine = agent
        .cu_count
        .checked_div(agent.num_shader_banks)
        .unwrap_or(0);
    // ROCr returns constants for these limits, and no file has them.
    agent.workgroup_max_size = 1024;
    agent.workgroup_max_dim = Dim3 {
        x: 1024,
        y: 1024,
        z: 1024,
    };
    agent.grid_max_size = u32::MAX;
    agent.grid_max_dim = Dim3 {
        x: i32::MAX as u32,
        y: u32::from(u16::MAX),
        z: u32::from(u16::MAX),
    };
    agent.name = product::gfx_name(agent.gfx_target_version);
    agent.family_id = product::family_id(agent.gfx_target_version);
    agent.vendor_name = "AMD".to_owned();
    agent.product_name = product.unwrap_or("unknown").to_owned();
    for (to, from) in agent
        .uuid
        .iter_mut()
        .zip(p.get64("unique_id").to_le_bytes())
    {
        *to = from;
    }
}

fn cpu(agent: &mut Agent, cpus: &[cpuinfo::Cpu]) {
    agent.cu_count = agent.cpu_cores_count;
    agent.vendor_name = "CPU".to_owned();
    if let Some(cpu) = cpuinfo::of_node(cpus, agent.cpu_core_id_base) {
        agent.name.clone_from(&cpu.model_name);
        agent.product_name.clone_from(&cpu.model_name);
        agent.family_id = cpu.family;
    }
}

fn mem_bank(p: &Properties<'_>) -> MemBank {
    MemBank {
        heap_type: p.get("heap_type"),
        flags: p.get("flags"),
        width: p.get("width"),
        mem_clk_max: p.get("mem_clk_max"),
        size_in_bytes: p.get64("size_in_bytes"),
    }
}

fn cache(p: &Properties<'_>) -> Cache {
    Cache {
        processor_id_low: p.get64("processor_id_low"),
        size: p.get64("size"),
        level: p.get("level"),
        cache_line_size: p.get("cache_line_size"),
        cache_lines_per_tag: p.get("cache_lines_per_tag"),
        association: p.get("association"),
        latency: p.get("latency"),
        cache_type: p.get("type"),
    }
}

fn io_link(p: &Properties<'_>) -> IoLink {
    IoLink {
        link_type: p.get("type"),
        version_major: p.get("version_major"),
        version_minor: p.get("version_minor"),
        node_from: p.get("node_from"),
        node_to: p.get("node_to"),
        weight: p.get("weight"),
        min_latency: p.get("min_latency"),
        max_latency: p.get("max_latency"),
        min_bandwidth: p.get("min_bandwidth"),
        max_bandwidth: p.get("max_bandwidth"),
        recommended_transfer_size: p.get("recommended_transfer_size"),
        flags: p.get("flags"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_do_not_fit_count_as_absent() {
        let p = Properties::parse("vendor_id 70000\ndevice_id 29857\nnonsense\nsimd_count x\n");
        assert_eq!(p.get::<u16>("vendor_id"), 0);
        assert_eq!(device_id(&p), 29857);
        assert_eq!(agent_type(&p), AgentType::None);
    }

    #[test]
    fn a_gpu_with_zero_divisors_is_no_panic() {
        let files = NodeFiles {
            properties: Properties::parse("simd_count 4\ncpu_cores_count 8"),
            name: "",
            gpu_id: "",
            mem_banks: vec![],
            caches: vec![],
            io_links: vec![],
            product: None,
        };
        let agent = agent(&files, &[]);
        assert_eq!(
            (
                agent.agent_type,
                agent.cu_count,
                agent.product_name.as_str()
            ),
            (AgentType::Gpu, 0, "unknown")
        );
    }
}
