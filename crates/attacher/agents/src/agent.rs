//! What is known about one agent.

/// The type of an agent: CPU or GPU. The discriminants match `rocprofiler_agent_type_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u32)]
pub enum AgentType {
    /// Neither cores nor SIMDs are listed.
    #[default]
    None = 0,
    /// Cores and no SIMDs.
    Cpu = 1,
    /// SIMDs. An APU (which has both) counts as a GPU, as in AMD's tools.
    Gpu = 2,
}

impl AgentType {
    /// Returns "CPU", "GPU" or "UNK", as AMD's csv prints it.
    pub fn text(self) -> &'static str {
        match self {
            AgentType::None => "UNK",
            AgentType::Cpu => "CPU",
            AgentType::Gpu => "GPU",
        }
    }
}

/// Three extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dim3 {
    /// First.
    pub x: u32,
    /// Second.
    pub y: u32,
    /// Third.
    pub z: u32,
}

/// A bank of memory (`mem_banks/N/properties`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemBank {
    /// `HSA_HEAPTYPE`: 0 system, 1 public and 2 private frame buffer, 3 GDS, 4 LDS, 5 scratch.
    pub heap_type: u32,
    /// Bit 0 hot-pluggable, bit 1 non-volatile.
    pub flags: u32,
    /// Width of the bus in bits.
    pub width: u32,
    /// Highest memory clock in MHz.
    pub mem_clk_max: u32,
    /// Size in bytes.
    pub size_in_bytes: u64,
}

/// A cache (`caches/N/properties`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cache {
    /// First processor that it serves.
    pub processor_id_low: u64,
    /// Size in KiB.
    pub size: u64,
    /// Level: 1, 2, …
    pub level: u32,
    /// Size of a line in bytes.
    pub cache_line_size: u32,
    /// Lines per tag.
    pub cache_lines_per_tag: u32,
    /// Ways.
    pub association: u32,
    /// Latency in nanoseconds.
    pub latency: u32,
    /// `HsaCacheType`: bit 0 data, 1 instruction, 2 CPU, 3 HSA compute unit.
    pub cache_type: u32,
}

/// A link to another node (`io_links/N/properties`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IoLink {
    /// `HSA_IOLINKTYPE`: 2 PCI Express, 11 XGMI, …
    pub link_type: u32,
    /// Major version of the bus protocol.
    pub version_major: u32,
    /// Minor version of the bus protocol.
    pub version_minor: u32,
    /// Id of the node at this end.
    pub node_from: u32,
    /// Id of the node at the other end.
    pub node_to: u32,
    /// NUMA distance.
    pub weight: u32,
    /// Lowest latency in nanoseconds.
    pub min_latency: u32,
    /// Highest latency in nanoseconds.
    pub max_latency: u32,
    /// Lowest bandwidth in MB/s.
    pub min_bandwidth: u32,
    /// Highest bandwidth in MB/s.
    pub max_bandwidth: u32,
    /// Recommended size of a transfer in bytes.
    pub recommended_transfer_size: u32,
    /// `HSA_LINKPROPERTY`: bit 0 override, 1 non-coherent, 2 no 32-bit atomics, 3 no 64-bit
    /// atomics, 4 no peer DMA.
    pub flags: u32,
}

/// Which runtimes of the process can see the agent (`rocprofiler_agent_runtime_visiblity_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Visibility {
    /// ROCr.
    pub hsa: bool,
    /// HIP.
    pub hip: bool,
    /// RCCL.
    pub rccl: bool,
    /// rocDecode.
    pub rocdecode: bool,
}

impl Visibility {
    /// Visible to all of them.
    pub const FULL: Visibility = Visibility {
        hsa: true,
        hip: true,
        rccl: true,
        rocdecode: true,
    };
}

/// One agent. It has the fields of `rocprofiler_agent_v0_t`, by their names there. Fields without a
/// unit are counts, ids or numbers of the hardware, as the driver reports them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Agent {
    /// `id.handle`: [`crate::HANDLE_BASE`] plus the logical node id. AMD adds a random number per
    /// process instead.
    pub handle: u64,
    /// `type`.
    pub agent_type: AgentType,
    /// CPU cores.
    pub cpu_cores_count: u32,
    /// SIMDs.
    pub simd_count: u32,
    /// First APIC id.
    pub cpu_core_id_base: u32,
    /// First SIMD id.
    pub simd_id_base: u32,
    /// Waves that one SIMD holds.
    pub max_waves_per_simd: u32,
    /// Size of the LDS in KiB.
    pub lds_size_in_kb: u32,
    /// Size of the GDS in KiB.
    pub gds_size_in_kb: u32,
    /// Global wave sync entries.
    pub num_gws: u32,
    /// Lanes of a wave.
    pub wave_front_size: u32,
    /// Accelerator complex dies. 1 where the driver does not say.
    pub num_xcc: u32,
    /// Compute units, or the cores of a CPU.
    pub cu_count: u32,
    /// Shader arrays.
    pub array_count: u32,
    /// Shader engines.
    pub num_shader_banks: u32,
    /// Arrays per engine.
    pub simd_arrays_per_engine: u32,
    /// Compute units per array.
    pub cu_per_simd_array: u32,
    /// SIMDs per compute unit.
    pub simd_per_cu: u32,
    /// Scratch slots per compute unit.
    pub max_slots_scratch_cu: u32,
    /// The target version: major * 10000 + minor * 100 + stepping.
    pub gfx_target_version: u32,
    /// PCI vendor.
    pub vendor_id: u16,
    /// PCI device.
    pub device_id: u16,
    /// PCI bus, device, function.
    pub location_id: u32,
    /// PCI domain.
    pub domain: u32,
    /// N of /dev/dri/renderDN.
    pub drm_render_minor: u32,
    /// DMA engines over PCI.
    pub num_sdma_engines: u32,
    /// DMA engines over XGMI.
    pub num_sdma_xgmi_engines: u32,
    /// Queues per DMA engine.
    pub num_sdma_queues_per_engine: u32,
    /// Compute queues.
    pub num_cp_queues: u32,
    /// Highest clock of the CPU cores in MHz.
    pub max_engine_clk_ccompute: u32,
    /// Highest clock of the compute units in MHz.
    pub max_engine_clk_fcompute: u32,
    /// `sdma_fw_version.Value`, with the microcode version in bits 0-9.
    pub sdma_fw_version: u32,
    /// `fw_version.Value`, with the microcode version in bits 0-9.
    pub fw_version: u32,
    /// `capability.Value` (`HSA_CAPABILITY`).
    pub capability: u32,
    /// Compute units per engine.
    pub cu_per_engine: u32,
    /// Waves that one compute unit holds.
    pub max_waves_per_cu: u32,
    /// amdgpu's family number, or the CPU's family.
    pub family_id: u32,
    /// Largest work-group, in work items.
    pub workgroup_max_size: u32,
    /// Largest grid, in work items.
    pub grid_max_size: u32,
    /// Bytes of its own memory that others cannot see.
    pub local_mem_size: u64,
    /// XGMI hive.
    pub hive_id: u64,
    /// KFD's number of the GPU.
    pub gpu_id: u64,
    /// Largest work-group in each dimension, in work items.
    pub workgroup_max_dim: Dim3,
    /// Largest grid in each dimension, in work items.
    pub grid_max_dim: Dim3,
    /// Memory banks.
    pub mem_banks: Vec<MemBank>,
    /// Caches.
    pub caches: Vec<Cache>,
    /// Links.
    pub io_links: Vec<IoLink>,
    /// The name: "gfx942" for a GPU, or the model of a CPU.
    pub name: String,
    /// "AMD" or "CPU".
    pub vendor_name: String,
    /// Marketing name.
    pub product_name: String,
    /// The driver's name of the chip.
    pub model_name: String,
    /// Number of the KFD node.
    pub node_id: u32,
    /// The agent's index among the nodes that can be read, from 0.
    pub logical_node_id: i32,
    /// The agent's index among the agents of its type, from 0.
    pub logical_node_type_id: i32,
    /// Which runtimes see it.
    pub runtime_visibility: Visibility,
    /// The unique id in the first eight bytes, least significant byte first.
    pub uuid: [u8; 16],
}

impl Agent {
    /// Returns the position among the GPUs, from 0, or -1 for a CPU. (AMD's json calls it
    /// `gpu_index`.)
    pub fn gpu_index(&self) -> i32 {
        if self.agent_type == AgentType::Gpu {
            self.logical_node_type_id
        } else {
            -1
        }
    }
}
