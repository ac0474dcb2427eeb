//! The GPUs of a CUDA process as agents, in addition to those that the machine's files describe.

use midair_agents::{Agent, AgentType, Cache, Dim3, MemBank};
use midair_record::event::{
    CUDA_NODE, CudaDevice, Header, MAX_RECORD, NO_NODE, cuda_node, encode, kind,
};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// NVIDIA's PCI vendor id.
const VENDOR: u16 = 0x10de;
/// `HSA_HEAPTYPE_FRAME_BUFFER_PRIVATE` (source: hsakmttypes.h).
const PRIVATE_MEMORY: u32 = 2;
/// `HSA_CACHE_TYPE_DATA` and `_HSACU`, bits of a cache's type.
const DATA_OF_UNITS: u32 = 1 | 8;

/// A GPU as the process saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The record.
    pub record: CudaDevice,
    /// Its name, without anything that a terminal would interpret.
    pub name: String,
}

/// The agents of a session, and the mapping from the devices that its records name.
#[derive(Debug)]
pub struct Agents<'a> {
    all: Cow<'a, [Agent]>,
    /// In a CUDA process, the node ids of what stands for devices in records.
    cuda: Option<Nodes>,
}

#[derive(Debug)]
struct Nodes {
    devices: BTreeMap<u32, u32>,
    host: u32,
}

impl<'a> Agents<'a> {
    /// Makes the agents of a process without CUDA: the machine's.
    pub fn of_machine(agents: &'a [Agent]) -> Agents<'a> {
        Agents {
            all: Cow::Borrowed(agents),
            cuda: None,
        }
    }

    /// Makes the agents of a CUDA process: the machine's, followed by its devices. Where the
    /// machine's files described no CPU, one without further data is added, since copies must have
    /// a host as one end.
    pub fn of_cuda(machine: &'a [Agent], devices: &BTreeMap<u32, Device>) -> Agents<'a> {
        let mut all = machine.to_vec();
        let host = all.iter().find(|agent| agent.agent_type == AgentType::Cpu);
        let host = match host {
            Some(cpu) => cpu.node_id,
            None => {
                let cpu = unknown_cpu(&all);
                let node = cpu.node_id;
                all.push(cpu);
                node
            }
        };
        let mut nodes = BTreeMap::new();
        for (ordinal, device) in devices {
            let agent = of_device(device, &all);
            nodes.insert(cuda_node(*ordinal), agent.node_id);
            all.push(agent);
        }
        Agents {
            all: Cow::Owned(all),
            cuda: Some(Nodes {
                devices: nodes,
                host,
            }),
        }
    }

    /// Returns all agents.
    pub fn all(&self) -> &[Agent] {
        &self.all
    }

    /// Returns the node id of what a record names: the name itself in a process without CUDA, else
    /// the node that the device or the host was given. A device without a description keeps its
    /// number.
    pub fn node(&self, named: u32) -> u32 {
        let Some(nodes) = &self.cuda else {
            return named;
        };
        if ordinal(named).is_some() {
            return nodes.devices.get(&named).copied().unwrap_or(named);
        }
        // CUDA only says "the host" and names no node of it.
        let known = self.all.iter().any(|agent| agent.node_id == named);
        if known { named } else { nodes.host }
    }

    /// Returns the agent that a record names.
    pub fn get(&self, named: u32) -> Option<&Agent> {
        let node = self.node(named);
        self.all.iter().find(|agent| agent.node_id == node)
    }
}

/// Returns the number of a CUDA device, where one is named.
pub fn ordinal(named: u32) -> Option<u32> {
    if named == NO_NODE {
        return None;
    }
    named.checked_sub(CUDA_NODE)
}

/// Returns an agent with the next free ids: node, logical node, position among the agents of its
/// type, handle.
fn next(all: &[Agent], of: AgentType) -> Agent {
    let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let highest = |of: fn(&Agent) -> u64| all.iter().map(of).max();
    Agent {
        agent_type: of,
        node_id: highest(|agent| u64::from(agent.node_id))
            .map_or(0, |node| u32::try_from(node + 1).unwrap_or(u32::MAX)),
        logical_node_id: number(all.len()),
        logical_node_type_id: number(all.iter().filter(|agent| agent.agent_type == of).count()),
        handle: highest(|agent| agent.handle)
            .map_or(midair_agents::HANDLE_BASE, |handle| handle.wrapping_add(1)),
        ..Agent::default()
    }
}

fn unknown_cpu(all: &[Agent]) -> Agent {
    Agent {
        vendor_name: "CPU".to_owned(),
        ..next(all, AgentType::Cpu)
    }
}

/// Returns the agent for a device, with those fields that mean the same as AMD's. What CUDA does
/// not tell is 0.
fn of_device(device: &Device, all: &[Agent]) -> Agent {
    let record = &device.record;
    let three = |[x, y, z]: [u32; 3]| Dim3 { x, y, z };
    let waves = record
        .threads_per_multiprocessor
        .checked_div(record.warp)
        .unwrap_or(0);
    Agent {
        lds_size_in_kb: record.shared_per_multiprocessor / 1024,
        wave_front_size: record.warp,
        num_xcc: 1,
        cu_count: record.multiprocessors,
        max_waves_per_cu: waves,
        // In AMD's form, whose third part is the stepping.
        gfx_target_version: record
            .major
            .saturating_mul(10_000)
            .saturating_add(record.minor.saturating_mul(100)),
        vendor_id: VENDOR,
        // The place consists of bus, device and function.
        location_id: record.pci_bus.wrapping_shl(8) | record.pci_device.wrapping_shl(3),
        domain: record.pci_domain,
        max_engine_clk_fcompute: record.clock_khz / 1000,
        workgroup_max_size: record.threads_per_block,
        grid_max_size: u32::MAX,
        local_mem_size: record.memory,
        workgroup_max_dim: three(record.block_limits),
        grid_max_dim: three(record.grid_limits),
        mem_banks: vec![MemBank {
            heap_type: PRIVATE_MEMORY,
            flags: 0,
            width: record.memory_bus_bits,
            mem_clk_max: record.memory_clock_khz / 1000,
            size_in_bytes: record.memory,
        }],
        caches: vec![Cache {
            size: u64::from(record.l2_bytes / 1024),
            level: 2,
            cache_type: DATA_OF_UNITS,
            ..Cache::default()
        }],
        name: device.name.clone(),
        vendor_name: "NVIDIA".to_owned(),
        product_name: device.name.clone(),
        model_name: format!("sm_{}{}", record.major, record.minor),
        uuid: record.uuid,
        ..next(all, AgentType::Gpu)
    }
}

/// Returns the record of a device, made of its agent, from which [`Agents::of_cuda`] makes that agent
/// again.
pub fn record_of(agent: &Agent, ordinal: u32) -> Vec<u8> {
    let three = |of: &Dim3| [of.x, of.y, of.z];
    let bank = agent.mem_banks.first().cloned().unwrap_or_default();
    let cache = agent.caches.first().cloned().unwrap_or_default();
    let room = MAX_RECORD.saturating_sub(size_of::<CudaDevice>());
    let name = agent.name.as_bytes();
    let name = name.get(..room).unwrap_or(name);
    let record = CudaDevice {
        header: Header {
            kind: kind::CUDA_DEVICE,
            ..Header::default()
        },
        memory: agent.local_mem_size,
        uuid: agent.uuid,
        ordinal,
        pci_domain: agent.domain,
        pci_bus: agent.location_id >> 8,
        pci_device: (agent.location_id & 0xff) >> 3,
        major: agent.gfx_target_version / 10_000,
        minor: agent.gfx_target_version % 10_000 / 100,
        multiprocessors: agent.cu_count,
        warp: agent.wave_front_size,
        threads_per_multiprocessor: agent.max_waves_per_cu.saturating_mul(agent.wave_front_size),
        threads_per_block: agent.workgroup_max_size,
        shared_per_multiprocessor: agent.lds_size_in_kb.saturating_mul(1024),
        clock_khz: agent.max_engine_clk_fcompute.saturating_mul(1000),
        memory_clock_khz: bank.mem_clk_max.saturating_mul(1000),
        memory_bus_bits: bank.width,
        l2_bytes: u32::try_from(cache.size.saturating_mul(1024)).unwrap_or(u32::MAX),
        block_limits: three(&agent.workgroup_max_dim),
        grid_limits: three(&agent.grid_max_dim),
        name_len: name.len() as u32,
        ..CudaDevice::default()
    };
    encode(&record, name)
}

/// Whether an agent is a CUDA device.
pub fn is_device(agent: &Agent) -> bool {
    agent.vendor_id == VENDOR && agent.agent_type == AgentType::Gpu
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_record::event::{Record, decode};

    fn device(ordinal: u32) -> (u32, Device) {
        let record = CudaDevice {
            ordinal,
            major: 9,
            warp: 32,
            threads_per_multiprocessor: 2048,
            ..CudaDevice::default()
        };
        let name = format!("NVIDIA H200 {ordinal}");
        (ordinal, Device { record, name })
    }

    #[test]
    fn devices_come_behind_the_machines_agents() {
        let cpu = Agent {
            agent_type: AgentType::Cpu,
            node_id: 3,
            handle: 0x1000,
            ..Agent::default()
        };
        let machine = [cpu];
        let agents = Agents::of_cuda(&machine, &[device(0), device(5)].into());
        let found = |named| agents.get(named).map(|agent| agent.name.as_str());
        assert_eq!(found(cuda_node(0)), Some("NVIDIA H200 0"));
        assert_eq!(found(cuda_node(5)), Some("NVIDIA H200 5"));
        // Never described; the host in two ways; a node of the machine.
        assert_eq!(found(cuda_node(1)), None);
        for host in [NO_NODE, 0, 3] {
            assert_eq!(agents.node(host), 3);
        }
        let last = agents.all().last().cloned().unwrap_or_default();
        assert_eq!(
            (last.node_id, last.logical_node_id, last.gpu_index()),
            (5, 2, 1)
        );
        assert_eq!(
            (last.handle, last.max_waves_per_cu, last.gfx_target_version),
            (0x1002, 64, 90_000)
        );
    }

    #[test]
    fn an_agent_becomes_the_record_from_which_it_was_made() {
        let record = CudaDevice {
            memory: 150_754_820_096,
            uuid: [7; 16],
            ordinal: 3,
            pci_domain: 1,
            pci_bus: 0x1b,
            pci_device: 2,
            major: 9,
            minor: 1,
            multiprocessors: 132,
            warp: 32,
            threads_per_multiprocessor: 2048,
            threads_per_block: 1024,
            shared_per_multiprocessor: 233_472,
            clock_khz: 1_980_000,
            memory_clock_khz: 3_201_000,
            memory_bus_bits: 6016,
            l2_bytes: 62_914_560,
            block_limits: [1024, 1024, 64],
            grid_limits: [i32::MAX as u32, 65_535, 65_535],
            ..device(3).1.record
        };
        let name = "NVIDIA H200".to_owned();
        let agents = Agents::of_cuda(&[], &[(3, Device { record, name })].into());
        let agent = agents.get(cuda_node(3)).unwrap();
        assert!(is_device(agent) && !is_device(&Agent::default()));
        let bytes = record_of(agent, 3);
        let Ok((Record::CudaDevice(found, name), _)) = decode(&bytes) else {
            panic!("no device");
        };
        let name = String::from_utf8(name.to_vec()).unwrap();
        let again = Device {
            record: found,
            name,
        };
        let again = Agents::of_cuda(&[], &[(3, again)].into());
        assert_eq!(again.all(), agents.all());
    }

    #[test]
    fn without_any_cpu_there_is_one_of_which_nothing_is_known() {
        let agents = Agents::of_cuda(&[], &[device(0)].into());
        let types: Vec<_> = agents
            .all()
            .iter()
            .map(|agent| (agent.node_id, agent.agent_type))
            .collect();
        assert_eq!(types, [(0, AgentType::Cpu), (1, AgentType::Gpu)]);
        assert_eq!((agents.node(NO_NODE), agents.node(cuda_node(0))), (0, 1));
    }

    #[test]
    fn ordinals_are_those_of_devices_alone() {
        assert_eq!(ordinal(cuda_node(2)), Some(2));
        assert_eq!((ordinal(NO_NODE), ordinal(1)), (None, None));
    }
}
