//! An agent read back from its object, as `agents` writes it.

use super::agents::{CACHE, CAPABILITY, ENGINE_ID, ENGINE_VERSION, LINK, MEMORY};
use midair_agents::{Agent, AgentType, Cache, Dim3, IoLink, MemBank, Visibility};
use serde_json::Value;

/// Returns the agent that an object of json describes, or of `rocpd_info_agent.extdata`, which is
/// the same. Bits of words that have no name there are 0. None: it is no such object.
pub fn agent_of_json(object: &Value) -> Option<Agent> {
    let of = Object(object);
    object.get("node_id")?;
    let mut agent = Agent {
        handle: of.at("id").number("handle"),
        agent_type: match of.number("type") {
            1 => AgentType::Cpu,
            2 => AgentType::Gpu,
            _ => AgentType::None,
        },
        vendor_id: of.number("vendor_id") as u16,
        device_id: of.number("device_id") as u16,
        sdma_fw_version: of.bits("sdma_fw_version", ENGINE_VERSION),
        fw_version: of.bits("fw_version", ENGINE_ID),
        capability: of.bits("capability", CAPABILITY),
        local_mem_size: of.number("local_mem_size"),
        hive_id: of.number("hive_id"),
        gpu_id: of.number("gpu_id"),
        workgroup_max_dim: of.extents("workgroup_max_dim"),
        grid_max_dim: of.extents("grid_max_dim"),
        name: of.text("name"),
        vendor_name: of.text("vendor_name"),
        product_name: of.text("product_name"),
        model_name: of.text("model_name"),
        node_id: of.word("node_id"),
        logical_node_id: of.signed("logical_node_id"),
        logical_node_type_id: of.signed("logical_node_type_id"),
        ..Agent::default()
    };
    numbers(&of, &mut agent);
    let seen = of.at("runtime_visibility");
    let is_seen = |by: &str| seen.number(by) != 0;
    agent.runtime_visibility = Visibility {
        hsa: is_seen("hsa"),
        hip: is_seen("hip"),
        rccl: is_seen("rccl"),
        rocdecode: is_seen("rocdecode"),
    };
    let id = of.at("uuid");
    let id = id.at("bytes");
    for (n, byte) in agent.uuid.iter_mut().enumerate() {
        *byte = id.number(&format!("value{n}")) as u8;
    }
    agent.mem_banks = of.list("mem_banks", bank);
    agent.caches = of.list("caches", cache);
    agent.io_links = of.list("io_links", link);
    Some(agent)
}

fn numbers(of: &Object<'_>, agent: &mut Agent) {
    for (name, place) in [
        ("cpu_cores_count", &mut agent.cpu_cores_count),
        ("simd_count", &mut agent.simd_count),
        ("cpu_core_id_base", &mut agent.cpu_core_id_base),
        ("simd_id_base", &mut agent.simd_id_base),
        ("max_waves_per_simd", &mut agent.max_waves_per_simd),
        ("lds_size_in_kb", &mut agent.lds_size_in_kb),
        ("gds_size_in_kb", &mut agent.gds_size_in_kb),
        ("num_gws", &mut agent.num_gws),
        ("wave_front_size", &mut agent.wave_front_size),
        ("num_xcc", &mut agent.num_xcc),
        ("cu_count", &mut agent.cu_count),
        ("array_count", &mut agent.array_count),
        ("num_shader_banks", &mut agent.num_shader_banks),
        ("simd_arrays_per_engine", &mut agent.simd_arrays_per_engine),
        ("cu_per_simd_array", &mut agent.cu_per_simd_array),
        ("simd_per_cu", &mut agent.simd_per_cu),
        ("max_slots_scratch_cu", &mut agent.max_slots_scratch_cu),
        ("gfx_target_version", &mut agent.gfx_target_version),
        ("location_id", &mut agent.location_id),
        ("domain", &mut agent.domain),
        ("drm_render_minor", &mut agent.drm_render_minor),
        ("num_sdma_engines", &mut agent.num_sdma_engines),
        ("num_sdma_xgmi_engines", &mut agent.num_sdma_xgmi_engines),
        (
            "num_sdma_queues_per_engine",
            &mut agent.num_sdma_queues_per_engine,
        ),
        ("num_cp_queues", &mut agent.num_cp_queues),
        (
            "max_engine_clk_ccompute",
            &mut agent.max_engine_clk_ccompute,
        ),
        (
            "max_engine_clk_fcompute",
            &mut agent.max_engine_clk_fcompute,
        ),
        ("cu_per_engine", &mut agent.cu_per_engine),
        ("max_waves_per_cu", &mut agent.max_waves_per_cu),
        ("family_id", &mut agent.family_id),
        ("workgroup_max_size", &mut agent.workgroup_max_size),
        ("grid_max_size", &mut agent.grid_max_size),
    ] {
        *place = of.word(name);
    }
}

fn bank(of: &Object<'_>) -> MemBank {
    MemBank {
        heap_type: of.word("heap_type"),
        flags: of.bits("flags", MEMORY),
        width: of.word("width"),
        mem_clk_max: of.word("mem_clk_max"),
        size_in_bytes: of.number("size_in_bytes"),
    }
}

fn cache(of: &Object<'_>) -> Cache {
    Cache {
        processor_id_low: of.number("processor_id_low"),
        size: of.number("size"),
        level: of.word("level"),
        cache_line_size: of.word("cache_line_size"),
        cache_lines_per_tag: of.word("cache_lines_per_tag"),
        association: of.word("association"),
        latency: of.word("latency"),
        cache_type: of.bits("type", CACHE),
    }
}

fn link(of: &Object<'_>) -> IoLink {
    IoLink {
        link_type: of.word("type"),
        version_major: of.word("version_major"),
        version_minor: of.word("version_minor"),
        node_from: of.word("node_from"),
        node_to: of.word("node_to"),
        weight: of.word("weight"),
        min_latency: of.word("min_latency"),
        max_latency: of.word("max_latency"),
        min_bandwidth: of.word("min_bandwidth"),
        max_bandwidth: of.word("max_bandwidth"),
        recommended_transfer_size: of.word("recommended_transfer_size"),
        flags: of.bits("flags", LINK),
    }
}

/// The object that is read. A missing or unusable value is 0 or an empty text.
struct Object<'v>(&'v Value);

impl<'v> Object<'v> {
    fn at(&self, key: &str) -> Object<'v> {
        Object(self.0.get(key).unwrap_or(&Value::Null))
    }

    fn number(&self, key: &str) -> u64 {
        self.0.get(key).and_then(Value::as_u64).unwrap_or(0)
    }

    fn word(&self, key: &str) -> u32 {
        u32::try_from(self.number(key)).unwrap_or(u32::MAX)
    }

    fn signed(&self, key: &str) -> i32 {
        let number = self.0.get(key).and_then(Value::as_i64).unwrap_or(0);
        i32::try_from(number).unwrap_or(-1)
    }

    fn text(&self, key: &str) -> String {
        let text = self.0.get(key).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    }

    fn bits(&self, key: &str, fields: &[(&'static str, u32, u32)]) -> u32 {
        let of = self.at(key);
        fields.iter().fold(0, |word, (name, first, count)| {
            let mask = u32::MAX.checked_shr(32 - count).unwrap_or_default();
            word | (of.word(name) & mask) << first
        })
    }

    fn extents(&self, key: &str) -> Dim3 {
        let of = self.at(key);
        Dim3 {
            x: of.word("x"),
            y: of.word("y"),
            z: of.word("z"),
        }
    }

    fn list<T>(&self, key: &str, read: impl Fn(&Object<'_>) -> T) -> Vec<T> {
        let all = self.0.get(key).and_then(Value::as_array);
        let all = all.into_iter().flatten();
        all.map(|value| read(&Object(value))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::json::pieces;

    #[test]
    fn an_agent_is_the_same_when_its_object_is_read_back() {
        let agent = Agent {
            handle: 48_128,
            agent_type: AgentType::Gpu,
            simd_count: 416,
            vendor_id: 4098,
            device_id: 29_857,
            fw_version: 0x0102_0050,
            sdma_fw_version: 8,
            capability: 0x1440_2280,
            grid_max_size: u32::MAX,
            local_mem_size: 1 << 37,
            grid_max_dim: Dim3 {
                x: 2_147_483_647,
                y: 65_535,
                z: 1,
            },
            mem_banks: vec![MemBank {
                heap_type: 1,
                flags: 2,
                size_in_bytes: 1 << 37,
                ..MemBank::default()
            }],
            caches: vec![Cache {
                level: 2,
                cache_type: 9,
                ..Cache::default()
            }],
            io_links: vec![IoLink {
                link_type: 11,
                flags: 17,
                ..IoLink::default()
            }],
            name: "gfx942".to_owned(),
            node_id: 1,
            logical_node_id: 1,
            logical_node_type_id: 0,
            runtime_visibility: Visibility::FULL,
            uuid: [7; 16],
            ..Agent::default()
        };
        let object = serde_json::from_str(&pieces::agent(&agent).unwrap()).unwrap();
        assert_eq!(agent_of_json(&object), Some(agent));
        assert_eq!(agent_of_json(&serde_json::json!({})), None);
    }
}
