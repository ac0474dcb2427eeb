//! The machine of the stand-in: one CPU and two GPUs, in the files that the KFD driver would show
//! (`/sys/class/kfd/kfd/topology`).

use std::io;
use std::path::Path;

/// The number of GPUs, whose nodes are 1 and 2.
pub const GPUS: usize = 2;
/// The memory of the CPU and of each GPU, in bytes.
const MEMORY: [u64; 2] = [16 << 30, 8 << 30];

/// Properties of the CPU's node that are not 0.
const CPU: &[(&str, u64)] = &[
    ("cpu_cores_count", 2),
    ("mem_banks_count", 1),
    ("io_links_count", 2),
    ("max_engine_clk_ccompute", 3000),
];

/// Properties of a gfx942 (half of an MI300A's node) that are not 0 and the same for each GPU.
const GPU: &[(&str, u64)] = &[
    ("simd_count", 416),
    ("mem_banks_count", 1),
    ("caches_count", 1),
    ("io_links_count", 2),
    ("max_waves_per_simd", 8),
    ("lds_size_in_kb", 64),
    ("num_gws", 64),
    ("wave_front_size", 64),
    ("array_count", 8),
    ("simd_arrays_per_engine", 1),
    ("cu_per_simd_array", 14),
    ("simd_per_cu", 4),
    ("max_slots_scratch_cu", 32),
    ("gfx_target_version", 90_402),
    ("vendor_id", 4098),
    ("device_id", 29_857),
    ("num_sdma_engines", 2),
    ("num_sdma_queues_per_engine", 8),
    ("num_cp_queues", 24),
    ("max_engine_clk_fcompute", 1700),
    ("fw_version", 78),
    ("sdma_fw_version", 8),
    ("num_xcc", 1),
    ("max_engine_clk_ccompute", 3000),
];

/// All properties that the driver prints for a node, in its order.
const NAMES: &[&str] = &[
    "cpu_cores_count",
    "simd_count",
    "mem_banks_count",
    "caches_count",
    "io_links_count",
    "p2p_links_count",
    "cpu_core_id_base",
    "simd_id_base",
    "max_waves_per_simd",
    "lds_size_in_kb",
    "gds_size_in_kb",
    "num_gws",
    "wave_front_size",
    "array_count",
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
    "hive_id",
    "num_sdma_engines",
    "num_sdma_xgmi_engines",
    "num_sdma_queues_per_engine",
    "num_cp_queues",
    "max_engine_clk_fcompute",
    "local_mem_size",
    "fw_version",
    "capability",
    "debug_prop",
    "sdma_fw_version",
    "unique_id",
    "num_xcc",
    "max_engine_clk_ccompute",
];

fn properties(known: &[(&str, u64)], own: &[(&str, u64)]) -> String {
    let value = |name: &str| {
        let mut all = own.iter().chain(known);
        all.find(|(other, _)| *other == name)
            .map_or(0, |(_, value)| *value)
    };
    let line = |name: &&str| format!("{name} {}\n", value(name));
    NAMES.iter().map(line).collect()
}

fn link(from: usize, to: usize) -> String {
    // PCI Express to the host, XGMI between GPUs.
    let (kind, weight) = if from == 0 || to == 0 {
        (2, 20)
    } else {
        (11, 15)
    };
    format!(
        "type {kind}\nversion_major 0\nversion_minor 0\nnode_from {from}\nnode_to {to}\nweight {weight}\nmin_latency 0\n\
         max_latency 0\nmin_bandwidth 0\nmax_bandwidth 0\nrecommended_transfer_size 0\n\
         recommended_sdma_engine_id_mask 0\nflags 1\n"
    )
}

/// Writes the topology below `dir`. Files that are right already are left alone.
///
/// # Errors
/// Fails when it cannot be written.
pub fn write_topology(dir: &Path) -> io::Result<()> {
    let put = |path: &str, text: &str| {
        let path = dir.join(path);
        // Another process may be reading it.
        if std::fs::read_to_string(&path).is_ok_and(|there| there == text) {
            return Ok(());
        }
        std::fs::create_dir_all(path.parent().unwrap_or(dir))?;
        std::fs::write(path, text)
    };
    put("generation_id", "1\n")?;
    put(
        "system_properties",
        "platform_oem 0\nplatform_id 0\nplatform_rev 0\n",
    )?;
    for node in 0..=GPUS {
        let gpu = node as u64;
        let file = |name: &str| format!("nodes/{node}/{name}");
        let bank = |heap: u32, bytes: u64, width: u32, clock: u32| {
            format!(
                "heap_type {heap}\nsize_in_bytes {bytes}\nflags 0\nwidth {width}\nmem_clk_max {clock}\n"
            )
        };
        if node == 0 {
            put(&file("gpu_id"), "0\n")?;
            put(&file("name"), "\n")?;
            put(&file("properties"), &properties(CPU, &[]))?;
            put(&file("mem_banks/0/properties"), &bank(0, MEMORY[0], 0, 0))?;
        } else {
            let own = [
                ("simd_id_base", 0x8000_0000 + 4096 * gpu),
                ("location_id", 768 * gpu),
                ("drm_render_minor", 127 + gpu),
                ("unique_id", 1_234_567_890_123_456_000 + gpu),
                // Doorbells of 8 bytes (2 << 12), SRAM with ECC. The lab's topology explains each
                // bit.
                ("capability", 2 << 12 | 1 << 22 | 1 << 26 | 1 << 28),
            ];
            put(&file("gpu_id"), &format!("{}\n", node + 1))?;
            put(&file("name"), "modelgpu\n")?;
            put(&file("properties"), &properties(GPU, &own))?;
            put(
                &file("mem_banks/0/properties"),
                &bank(1, MEMORY[1], 4096, 1600),
            )?;
            let cache = format!(
                "processor_id_low {}\nlevel 2\nsize 4096\ncache_line_size 128\ncache_lines_per_tag 1\nassociation 16\n\
                 latency 0\ntype 9\nsibling_map 1\n",
                0x8000_0000 + 4096 * gpu
            );
            put(&file("caches/0/properties"), &cache)?;
        }
        let others = (0..=GPUS).filter(|other| *other != node);
        for (index, other) in others.enumerate() {
            put(
                &file(&format!("io_links/{index}/properties")),
                &link(node, other),
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_agents::{AgentType, Sources};

    #[test]
    fn two_different_gpus_are_read_back() {
        let dir = tempfile::tempdir().unwrap();
        write_topology(dir.path()).unwrap();
        // The second call changes nothing.
        write_topology(dir.path()).unwrap();
        let sources = Sources::of_root(Path::new("/")).with_topology(dir.path());
        let agents = sources.read().unwrap();
        let types: Vec<AgentType> = agents.iter().map(|agent| agent.agent_type).collect();
        assert_eq!(types, [AgentType::Cpu, AgentType::Gpu, AgentType::Gpu]);
        let [cpu, one, two] = &agents[..] else {
            panic!("{agents:?}");
        };
        assert_eq!((cpu.node_id, one.node_id, two.node_id), (0, 1, 2));
        assert_eq!((one.name.as_str(), two.name.as_str()), ("gfx942", "gfx942"));
        assert!(
            one.gpu_id != two.gpu_id && one.uuid != two.uuid && one.location_id != two.location_id
        );
        for agent in &agents {
            assert_eq!(agent.io_links.len(), GPUS);
            assert!(
                agent
                    .io_links
                    .iter()
                    .all(|link| link.node_from == agent.node_id)
            );
        }
        // PCI Express to the host, XGMI between the two.
        assert_eq!(
            (two.io_links[0].link_type, two.io_links[1].link_type),
            (2, 11)
        );
    }
}
