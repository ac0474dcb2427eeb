//! Walks the topology's directories.

use crate::agent::{Agent, AgentType};
use crate::node::{self, NodeFiles, Properties};
use crate::{cpuinfo, product};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Handle of the first agent. AMD picks a number between 255 and 65535 for each process; ours is fixed, so
/// that two traces of one machine agree.
pub const HANDLE_BASE: u64 = 0x1000;

/// The topology could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot list the GPU driver's nodes in {}: {source}", path.display())]
pub struct Error {
    /// The directory.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// The locations of the facts. Every file except the nodes' is optional.
#[derive(Debug, Clone)]
pub struct Sources {
    /// The directory that holds `nodes/` (or `nodes` itself).
    pub topology: PathBuf,
    /// `/proc/cpuinfo`.
    pub cpuinfo: PathBuf,
    /// `/sys/devices/system/node`, which every kernel has.
    pub numa: PathBuf,
    /// `/sys/class/drm`.
    pub drm: PathBuf,
    /// Candidates for libdrm's `amdgpu.ids`, the first readable one is used.
    pub amdgpu_ids: Vec<PathBuf>,
}

impl Sources {
    /// The usual locations below `root` (`/`, or `/proc/PID/root` for another process's view).
    pub fn of_root(root: &Path) -> Sources {
        let ids = [
            "usr/share/libdrm/amdgpu.ids",
            "opt/amdgpu/share/libdrm/amdgpu.ids",
            "opt/rocm/share/libdrm/amdgpu.ids",
        ];
        Sources {
            topology: root.join("sys/class/kfd/kfd/topology"),
            cpuinfo: root.join("proc/cpuinfo"),
            numa: root.join("sys/devices/system/node"),
            drm: root.join("sys/class/drm"),
            amdgpu_ids: ids.iter().map(|path| root.join(path)).collect(),
        }
    }

    /// Uses another topology than the driver's (the one that `HSA_MODEL_TOPOLOGY` names for a modelled GPU).
    #[must_use]
    pub fn with_topology(mut self, topology: impl Into<PathBuf>) -> Sources {
        self.topology = topology.into();
        self
    }

    /// Uses the topology that the process's environment names, if it does: AMD's SDK and runtime read these
    /// variables for a modelled GPU, in this order. Paths are the process's, so they are resolved below
    /// `root`.
    #[must_use]
    pub fn with_environment(self, root: &Path, env: impl Fn(&str) -> Option<String>) -> Sources {
        let named = [
            "ROCPROFILER_KFD_TOPOLOGY",
            "AMD_KFD_TOPOLOGY",
            "HSA_MODEL_TOPOLOGY",
        ]
        .into_iter()
        .find_map(|name| {
            let path = env(name).filter(|path| !path.is_empty())?;
            Some(root.join(path.trim_start_matches('/'))).filter(|path| path.is_dir())
        });
        match named {
            Some(topology) => self.with_topology(topology),
            None => self,
        }
    }

    /// Reads all agents in the order of their node ids. Nodes that this process may not read (device cgroups make their
    /// files empty or unreadable) are left out and have no logical id, as AMD has it.
    ///
    /// # Errors
    /// [`Error`] when the directory of nodes cannot be listed.
    pub fn read(&self) -> Result<Vec<Agent>, Error> {
        let below = self.topology.join("nodes");
        let nodes = if below.is_dir() {
            below
        } else {
            self.topology.clone()
        };
        let ids = numbered(&nodes).map_err(|source| Error {
            path: nodes.clone(),
            source,
        })?;
        let cpus = cpuinfo::parse(&text(&self.cpuinfo));
        let names = self
            .amdgpu_ids
            .iter()
            .find_map(|path| fs::read(path).ok())
            .unwrap_or_default();
        let names = String::from_utf8_lossy(&names);

        let mut agents: Vec<Agent> = Vec::new();
        for id in ids {
            let Some(mut agent) = self.node(&nodes.join(id.to_string()), &cpus, &names) else {
                continue;
            };
            let same_type = agents
                .iter()
                .filter(|other| other.agent_type == agent.agent_type)
                .count();
            agent.node_id = id;
            agent.logical_node_id = i32::try_from(agents.len()).unwrap_or(i32::MAX);
            agent.logical_node_type_id = i32::try_from(same_type).unwrap_or(i32::MAX);
            agent.handle = HANDLE_BASE + agents.len() as u64;
            agents.push(agent);
        }
        Ok(agents)
    }

    /// The CPUs alone, for a machine without the driver: one agent for each NUMA node that has some, in the
    /// order of the nodes, or one for all where the kernel has no nodes. Empty when nothing at all can be
    /// read.
    pub fn processors(&self) -> Vec<Agent> {
        crate::processors::agents(&self.numa, &cpuinfo::parse(&text(&self.cpuinfo)))
    }

    fn node(&self, path: &Path, cpus: &[cpuinfo::Cpu], ids: &str) -> Option<Agent> {
        let properties = text(&path.join("properties"));
        let properties = Properties::parse(&properties);
        if properties.is_empty() {
            return None;
        }
        let product = (node::agent_type(&properties) == AgentType::Gpu)
            .then(|| self.product(&properties, ids))
            .flatten();
        let files = NodeFiles {
            name: &text(&path.join("name")),
            gpu_id: &text(&path.join("gpu_id")),
            mem_banks: parts(&path.join("mem_banks")),
            caches: parts(&path.join("caches")),
            io_links: parts(&path.join("io_links")),
            product,
            properties,
        };
        Some(node::agent(&files, cpus))
    }

    /// The name in `amdgpu.ids`, else the one in the board's own memory (sysfs `product_name`), else none.
    fn product(&self, properties: &Properties<'_>, ids: &str) -> Option<String> {
        let device = self
            .drm
            .join(format!("renderD{}", node::drm_render_minor(properties)))
            .join("device");
        let revision = text(&device.join("revision"));
        let revision =
            u8::from_str_radix(revision.trim().trim_start_matches("0x"), 16).unwrap_or(0);
        product::marketing_name(ids, node::device_id(properties), revision).or_else(|| {
            let board = text(&device.join("product_name"));
            Some(board.trim().to_owned()).filter(|name| !name.is_empty())
        })
    }
}

/// Text of a file; empty when it cannot be read.
pub(crate) fn text(path: &Path) -> String {
    fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}

/// Names of a directory's entries that are numbers, sorted.
fn numbered(path: &Path) -> io::Result<Vec<u32>> {
    let mut ids: Vec<u32> = fs::read_dir(path)?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    ids.sort_unstable();
    Ok(ids)
}

/// `N/properties` of each numbered entry.
fn parts(path: &Path) -> Vec<String> {
    let ids = numbered(path).unwrap_or_default();
    ids.iter()
        .map(|id| text(&path.join(id.to_string()).join("properties")))
        .collect()
}
