//! The list `agents[]`: the fields of `rocprofiler_agent_v0_t` in order, and `gpu_index`.

use super::emit::Emit;
use crate::agent_numbers;
use midair_agents::{Agent, AgentType, Cache, IoLink, MemBank};
use std::io;

/// Bytes of `rocprofiler_agent_v0_t` (source: api/rocprofiler_sdk.json).
const AGENT_SIZE: u32 = 312;

/// Bits of `HSA_CAPABILITY`: name, first bit, bits (source: the golden json's keys; the widths of
/// hsakmttypes.h).
pub(super) const CAPABILITY: &[(&str, u32, u32)] = &[
    ("HotPluggable", 0, 1),
    ("HSAMMUPresent", 1, 1),
    ("SharedWithGraphics", 2, 1),
    ("QueueSizePowerOfTwo", 3, 1),
    ("QueueSize32bit", 4, 1),
    ("QueueIdleEvent", 5, 1),
    ("VALimit", 6, 1),
    ("WatchPointsSupported", 7, 1),
    ("WatchPointsTotalBits", 8, 4),
    ("DoorbellType", 12, 2),
    ("AQLQueueDoubleMap", 14, 1),
    ("DebugTrapSupported", 15, 1),
    ("WaveLaunchTrapOverrideSupported", 16, 1),
    ("WaveLaunchModeSupported", 17, 1),
    ("PreciseMemoryOperationsSupported", 18, 1),
    ("DEPRECATED_SRAM_EDCSupport", 19, 1),
    ("Mem_EDCSupport", 20, 1),
    ("RASEventNotify", 21, 1),
    ("ASICRevision", 22, 4),
    ("SRAM_EDCSupport", 26, 1),
    ("SVMAPISupported", 27, 1),
    ("CoherentHostAccess", 28, 1),
    ("DebugSupportedFirmware", 29, 1),
];
pub(super) const ENGINE_VERSION: &[(&str, u32, u32)] =
    &[("uCodeSDMA", 0, 10), ("uCodeRes", 10, 10)];
pub(super) const ENGINE_ID: &[(&str, u32, u32)] = &[
    ("uCode", 0, 10),
    ("Major", 10, 6),
    ("Minor", 16, 8),
    ("Stepping", 24, 8),
];
pub(super) const MEMORY: &[(&str, u32, u32)] = &[("HotPluggable", 0, 1), ("NonVolatile", 1, 1)];
pub(super) const CACHE: &[(&str, u32, u32)] = &[
    ("Data", 0, 1),
    ("Instruction", 1, 1),
    ("CPU", 2, 1),
    ("HSACU", 3, 1),
];
pub(super) const LINK: &[(&str, u32, u32)] = &[
    ("Override", 0, 1),
    ("NonCoherent", 1, 1),
    ("NoAtomics32bit", 2, 1),
    ("NoAtomics64bit", 3, 1),
    ("NoPeerToPeerDMA", 4, 1),
];

pub(super) fn write<W: io::Write>(out: &mut Emit<W>, agents: &[Agent]) -> io::Result<()> {
    out.key("agents")?;
    out.open_array()?;
    for agent in agents {
        one(out, agent)?;
    }
    out.close_array()
}

/// The object of one agent.
pub(super) fn one<W: io::Write>(out: &mut Emit<W>, agent: &Agent) -> io::Result<()> {
    out.open_object()?;
    hardware(out, agent)?;
    limits(out, agent)?;
    identity(out, agent)?;
    parts(out, agent)?;
    out.number("gpu_index", agent.gpu_index())?;
    out.close_object()
}

fn hardware<W: io::Write>(out: &mut Emit<W>, agent: &Agent) -> io::Result<()> {
    out.number("size", AGENT_SIZE)?;
    out.handle("id", agent.handle)?;
    out.number("type", agent.agent_type as u32)?;
    for (key, value) in agent_numbers::hardware(agent) {
        out.number(key, value)?;
    }
    out.bits("sdma_fw_version", agent.sdma_fw_version, ENGINE_VERSION)?;
    out.bits("fw_version", agent.fw_version, ENGINE_ID)?;
    out.bits("capability", agent.capability, CAPABILITY)
}

fn limits<W: io::Write>(out: &mut Emit<W>, agent: &Agent) -> io::Result<()> {
    for (key, value) in agent_numbers::limits(agent) {
        out.number(key, value)?;
    }
    let (group, grid) = (agent.workgroup_max_dim, agent.grid_max_dim);
    out.extents("workgroup_max_dim", [group.x, group.y, group.z])?;
    out.extents("grid_max_dim", [grid.x, grid.y, grid.z])
}

fn identity<W: io::Write>(out: &mut Emit<W>, agent: &Agent) -> io::Result<()> {
    out.text("name", &agent.name)?;
    out.text("vendor_name", &agent.vendor_name)?;
    out.text("product_name", &agent.product_name)?;
    out.text("model_name", &agent.model_name)?;
    out.number("node_id", agent.node_id)?;
    out.number("logical_node_id", agent.logical_node_id)?;
    out.number("logical_node_type_id", agent.logical_node_type_id)?;
    let seen = agent.runtime_visibility;
    out.key("runtime_visibility")?;
    out.open_object()?;
    for (key, value) in [
        ("hsa", seen.hsa),
        ("hip", seen.hip),
        ("rccl", seen.rccl),
        ("rocdecode", seen.rocdecode),
    ] {
        out.number(key, u8::from(value))?;
    }
    out.close_object()?;
    out.key("uuid")?;
    out.open_object()?;
    out.key("bytes")?;
    out.open_object()?;
    // AMD's serialiser gives such names to the elements of an array.
    for (n, byte) in agent.uuid.iter().enumerate() {
        out.any_key(&format!("value{n}"))?;
        out.value(*byte)?;
    }
    out.close_object()?;
    out.close_object()
}

fn parts<W: io::Write>(out: &mut Emit<W>, agent: &Agent) -> io::Result<()> {
    array(out, "mem_banks", &agent.mem_banks, |out, bank: &MemBank| {
        out.number("heap_type", bank.heap_type)?;
        out.bits("flags", bank.flags, MEMORY)?;
        out.number("width", bank.width)?;
        out.number("mem_clk_max", bank.mem_clk_max)?;
        out.number("size_in_bytes", bank.size_in_bytes)
    })?;
    array(out, "caches", &agent.caches, |out, cache: &Cache| {
        out.number("processor_id_low", cache.processor_id_low)?;
        out.number("size", cache.size)?;
        out.number("level", cache.level)?;
        out.number("cache_line_size", cache.cache_line_size)?;
        out.number("cache_lines_per_tag", cache.cache_lines_per_tag)?;
        out.number("association", cache.association)?;
        out.number("latency", cache.latency)?;
        out.bits("type", cache.cache_type, CACHE)
    })?;
    array(out, "io_links", &agent.io_links, |out, link: &IoLink| {
        out.number("type", link.link_type)?;
        out.number("version_major", link.version_major)?;
        out.number("version_minor", link.version_minor)?;
        out.number("node_from", link.node_from)?;
        out.number("node_to", link.node_to)?;
        out.number("weight", link.weight)?;
        out.number("min_latency", link.min_latency)?;
        out.number("max_latency", link.max_latency)?;
        out.number("min_bandwidth", link.min_bandwidth)?;
        out.number("max_bandwidth", link.max_bandwidth)?;
        out.number("recommended_transfer_size", link.recommended_transfer_size)?;
        out.bits("flags", link.flags, LINK)
    })
}

fn array<W: io::Write, T>(
    out: &mut Emit<W>,
    key: &'static str,
    items: &[T],
    mut write: impl FnMut(&mut Emit<W>, &T) -> io::Result<()>,
) -> io::Result<()> {
    out.key(key)?;
    out.open_array()?;
    for item in items {
        out.open_object()?;
        write(out, item)?;
        out.close_object()?;
    }
    out.close_array()
}

// The enum's numbers are written as they are.
const _: () = assert!(AgentType::Cpu as u32 == 1 && AgentType::Gpu as u32 == 2);
