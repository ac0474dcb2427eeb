//! The properties of an agent on which counters depend.

use midair_abi::agent::Agent;
use midair_counters::architecture::Shape;
use midair_counters::counted::Properties;
use std::ffi::CStr;

/// An agent's name, shape and properties.
#[derive(Debug, Clone)]
pub struct Device {
    /// Id of the agent.
    pub id: u64,
    /// KFD's node.
    pub node: u32,
    /// Such as "gfx942".
    pub name: String,
    pub(crate) shape: Shape,
    agent: Agent,
}

// SAFETY: the agent's pointers are to data that lives as long as the process and never changes.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    /// Creates it for an agent of the list, which lives forever.
    pub(crate) fn new(agent: &'static Agent) -> Device {
        let agent = *agent;
        let name = if agent.name.is_null() {
            String::new()
        } else {
            // SAFETY: the name is a midair text that lives as long as the process.
            unsafe { CStr::from_ptr(agent.name) }
                .to_string_lossy()
                .into_owned()
        };
        Device {
            id: agent.id,
            node: agent.node_id,
            name,
            shape: Shape {
                xccs: agent.num_xcc.max(1),
                engines: agent.num_shader_banks,
                units: agent.cu_count,
                arrays: agent.simd_arrays_per_engine,
            },
            agent,
        }
    }

    /// Returns what AMD's packet library has to know about it: XCCs, engines, units, arrays per
    /// engine, PCI domain and location.
    pub fn cut(&self) -> [u32; 6] {
        let agent = &self.agent;
        [
            self.shape.xccs,
            self.shape.engines,
            self.shape.units,
            self.shape.arrays,
            agent.domain,
            agent.location_id,
        ]
    }
}

impl Properties for Device {
    fn get(&self, name: &str) -> Option<f64> {
        let agent = &self.agent;
        Some(match name {
            "array_count" => f64::from(agent.array_count),
            "caches_count" => f64::from(agent.caches_count),
            "cpu_core_id_base" => f64::from(agent.cpu_core_id_base),
            "cpu_cores_count" => f64::from(agent.cpu_cores_count),
            "cu_per_simd_array" => f64::from(agent.cu_per_simd_array),
            "device_id" => f64::from(agent.device_id),
            "domain" => f64::from(agent.domain),
            "drm_render_minor" => f64::from(agent.drm_render_minor),
            "gds_size_in_kb" => f64::from(agent.gds_size_in_kb),
            "gfx_target_version" => f64::from(agent.gfx_target_version),
            "hive_id" => agent.hive_id as f64,
            "io_links_count" => f64::from(agent.io_links_count),
            "lds_size_in_kb" => f64::from(agent.lds_size_in_kb),
            "location_id" => f64::from(agent.location_id),
            "max_engine_clk_ccompute" => f64::from(agent.max_engine_clk_ccompute),
            "max_slots_scratch_cu" => f64::from(agent.max_slots_scratch_cu),
            "max_waves_per_simd" => f64::from(agent.max_waves_per_simd),
            "mem_banks_count" => f64::from(agent.mem_banks_count),
            "num_cp_queues" => f64::from(agent.num_cp_queues),
            "num_gws" => f64::from(agent.num_gws),
            "num_sdma_engines" => f64::from(agent.num_sdma_engines),
            "num_sdma_queues_per_engine" => f64::from(agent.num_sdma_queues_per_engine),
            "num_sdma_xgmi_engines" => f64::from(agent.num_sdma_xgmi_engines),
            "simd_arrays_per_engine" => f64::from(agent.simd_arrays_per_engine),
            "simd_count" => f64::from(agent.simd_count),
            "simd_id_base" => f64::from(agent.simd_id_base),
            "simd_per_cu" => f64::from(agent.simd_per_cu),
            "vendor_id" => f64::from(agent.vendor_id),
            "wave_front_size" => f64::from(agent.wave_front_size),
            _ => return None,
        })
    }
}
