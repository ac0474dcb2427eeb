//! Compares the lab's modelled machine (fixtures/topology, made by the lab's topology.sh) with what
//! AMD's own tool wrote for it.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, too, stop at the first surprise"
)]

use midair_agents::{Agent, AgentType, HANDLE_BASE, OwnFiles, Sources, Visibility};
use std::fs;
use std::path::{Path, PathBuf};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn sources() -> Sources {
    let fixtures = fixtures();
    Sources {
        topology: fixtures.join("topology"),
        cpuinfo: fixtures.join("cpuinfo"),
        numa: fixtures.join("absent"),
        drm: fixtures.join("drm"),
        amdgpu_ids: vec![fixtures.join("absent.ids"), fixtures.join("amdgpu.ids")],
    }
}

fn agents() -> Vec<Agent> {
    sources().read().unwrap()
}

#[test]
fn a_cpu_and_a_gpu_are_found_in_order() {
    let agents = agents();
    assert_eq!(agents.len(), 2);
    let (cpu, gpu) = (&agents[0], &agents[1]);
    assert_eq!(
        (
            cpu.agent_type,
            cpu.node_id,
            cpu.logical_node_id,
            cpu.gpu_index()
        ),
        (AgentType::Cpu, 0, 0, -1)
    );
    assert_eq!(
        (
            gpu.agent_type,
            gpu.node_id,
            gpu.logical_node_id,
            gpu.gpu_index()
        ),
        (AgentType::Gpu, 1, 1, 0)
    );
    assert_eq!((cpu.handle, gpu.handle), (HANDLE_BASE, HANDLE_BASE + 1));
    assert_eq!(
        (
            cpu.name.as_str(),
            cpu.vendor_name.as_str(),
            cpu.family_id,
            cpu.cu_count
        ),
        ("AMD EPYC", "CPU", 26, 2)
    );
}

/// The values match AMD's agent_info.csv and json for the same topology
/// (`docs/sources.md#rocprofv3`). The product's name is not among them, because a stand-in for
/// libdrm invented it there.
#[test]
fn the_gpu_is_what_amd_says() {
    let agents = agents();
    let gpu = &agents[1];
    assert_eq!(
        (
            gpu.cu_count,
            gpu.num_shader_banks,
            gpu.cu_per_engine,
            gpu.max_waves_per_cu
        ),
        (104, 8, 13, 32)
    );
    assert_eq!(
        (
            gpu.name.as_str(),
            gpu.vendor_name.as_str(),
            gpu.model_name.as_str()
        ),
        ("gfx942", "AMD", "modelgpu")
    );
    assert_eq!(
        (
            gpu.simd_id_base,
            gpu.capability,
            gpu.fw_version,
            gpu.sdma_fw_version
        ),
        (2_147_487_744, 339_746_816, 78, 8)
    );
    assert_eq!(
        (gpu.family_id, gpu.gpu_id, gpu.num_xcc, gpu.location_id),
        (141, 2, 1, 768)
    );
    assert_eq!(
        (gpu.workgroup_max_size, gpu.grid_max_size),
        (1024, 4_294_967_295)
    );
    assert_eq!(
        (gpu.grid_max_dim.x, gpu.grid_max_dim.y, gpu.grid_max_dim.z),
        (2_147_483_647, 65_535, 65_535)
    );
    assert_eq!(
        gpu.uuid,
        [21, 129, 233, 125, 244, 16, 34, 17, 0, 0, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(
        (gpu.mem_banks.len(), gpu.caches.len(), gpu.io_links.len()),
        (1, 1, 1)
    );
    assert_eq!(
        (
            gpu.mem_banks[0].size_in_bytes,
            gpu.mem_banks[0].width,
            gpu.mem_banks[0].mem_clk_max
        ),
        (8_589_934_592, 4096, 1600)
    );
    assert_eq!(
        (
            gpu.caches[0].level,
            gpu.caches[0].cache_type,
            gpu.caches[0].processor_id_low
        ),
        (2, 9, 2_147_487_744)
    );
    assert_eq!(
        (
            gpu.io_links[0].node_to,
            gpu.io_links[0].weight,
            gpu.io_links[0].flags
        ),
        (0, 20, 1)
    );
    assert_eq!(gpu.runtime_visibility, Visibility::FULL);
}

#[test]
fn the_product_is_named_by_device_and_revision_of_the_render_node() {
    assert_eq!(agents()[1].product_name, "AMD Instinct MI300X");
    let mut without = sources();
    without.drm = fixtures().join("absent");
    assert_eq!(without.read().unwrap()[1].product_name, "wrong revision");
    without.amdgpu_ids.clear();
    assert_eq!(without.read().unwrap()[1].product_name, "unknown");
}

#[test]
fn nodes_that_cannot_be_read_have_no_logical_id() {
    let root = std::env::temp_dir().join(format!("midair-agents-{}", std::process::id()));
    let (from, to) = (
        fixtures().join("topology/nodes/1/properties"),
        root.join("nodes"),
    );
    for node in ["0", "3", "10"] {
        fs::create_dir_all(to.join(node)).unwrap();
        fs::copy(&from, to.join(node).join("properties")).unwrap();
    }
    fs::write(to.join("0/properties"), "").unwrap();
    let agents = sources().with_topology(&root).read();
    fs::remove_dir_all(&root).unwrap();
    let ids: Vec<_> = agents
        .unwrap()
        .iter()
        .map(|a| (a.node_id, a.logical_node_id, a.logical_node_type_id))
        .collect();
    assert_eq!(ids, [(3, 0, 0), (10, 1, 1)]);
}

#[test]
fn a_missing_topology_is_an_error_with_its_path() {
    let error = sources()
        .with_topology("/nowhere/at/all")
        .read()
        .unwrap_err();
    assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
}

#[test]
fn a_modelled_topology_is_used_where_it_can_be_listed() {
    let with = |value: &str| {
        let value = fixtures().join(value).to_str().unwrap().to_owned();
        let env = |name: &str| (name == "HSA_MODEL_TOPOLOGY").then(|| value.clone());
        Sources::of_root(&fixtures())
            .with_environment(&OwnFiles, env)
            .topology
    };
    assert_eq!(with("topology"), fixtures().join("topology"));
    assert_eq!(
        with("absent"),
        fixtures().join("sys/class/kfd/kfd/topology")
    );
}
