//! Walks the topology's directories.

use crate::agent::{Agent, AgentType};
use crate::node::{self, NodeFiles, Properties};
use crate::{cpuinfo, product};
use std::io;
use std::path::{Path, PathBuf};

/// The handle of the first agent. AMD picks a number between 255 and 65535 for each process. Ours
/// is fixed, so that two traces of one machine agree.
pub const HANDLE_BASE: u64 = 0x1000;

/// The error that the topology could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot list the GPU driver's nodes in {}: {source}", path.display())]
pub struct Error {
    /// The directory.
    pub path: PathBuf,
    /// The reason.
    pub source: io::Error,
}

/// How the files of a process are read. In the process itself this is done by [`OwnFiles`]. From
/// outside it is done by a reader that does not trust the paths that the process names.
pub trait Files {
    /// Reads all of a file.
    ///
    /// # Errors
    /// The kernel's error, or the reader's.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Returns the names of a directory's entries, in any order. A name that is not text may be
    /// left out.
    ///
    /// # Errors
    /// As for [`Files::read`].
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;
}

/// Reads this process's own files.
#[derive(Debug, Clone, Copy, Default)]
pub struct OwnFiles;

impl Files for OwnFiles {
    #[expect(
        clippy::disallowed_methods,
        reason = "read by the process that names them"
    )]
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "read by the process that names them"
    )]
    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let names = std::fs::read_dir(path)?.flatten();
        Ok(names
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect())
    }
}

/// The locations of the files with the facts. Every file except the nodes' is optional.
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
    /// Candidates for libdrm's `amdgpu.ids`, of which the first readable one is used.
    pub amdgpu_ids: Vec<PathBuf>,
}

impl Sources {
    /// Returns the usual locations below `root`, as the reader of the files understands them.
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

    /// Uses another topology than the driver's (the one that `HSA_MODEL_TOPOLOGY` names for a
    /// modelled GPU).
    #[must_use]
    pub fn with_topology(mut self, topology: impl Into<PathBuf>) -> Sources {
        self.topology = topology.into();
        self
    }

    /// Uses the topology that the process's environment names, if it names one. AMD's SDK and
    /// runtime read these variables for a modelled GPU, in this order. A topology that `files`
    /// cannot list does not count.
    #[must_use]
    pub fn with_environment(
        self,
        files: &dyn Files,
        env: impl Fn(&str) -> Option<String>,
    ) -> Sources {
        let named = [
            "ROCPROFILER_KFD_TOPOLOGY",
            "AMD_KFD_TOPOLOGY",
            "HSA_MODEL_TOPOLOGY",
        ]
        .into_iter()
        .find_map(|name| {
            let path = env(name).filter(|path| !path.is_empty())?;
            Some(PathBuf::from(path)).filter(|path| files.list(path).is_ok())
        });
        match named {
            Some(topology) => self.with_topology(topology),
            None => self,
        }
    }

    /// Reads all agents of this process's machine.
    ///
    /// # Errors
    /// As [`Sources::read_through`].
    pub fn read(&self) -> Result<Vec<Agent>, Error> {
        self.read_through(&OwnFiles)
    }

    /// Reads all agents in the order of their node ids. Nodes that this process may not read are
    /// left out and have no logical id, as in AMD's SDK (device cgroups make their files empty or
    /// unreadable).
    ///
    /// # Errors
    /// [`Error`] when the directory of nodes cannot be listed.
    pub fn read_through(&self, files: &dyn Files) -> Result<Vec<Agent>, Error> {
        let below = self.topology.join("nodes");
        let nodes = match files.list(&below) {
            Ok(_) => below,
            Err(_) => self.topology.clone(),
        };
        let ids = numbered(files, &nodes).map_err(|source| Error {
            path: nodes.clone(),
            source,
        })?;
        let cpus = cpuinfo::parse(&text(files, &self.cpuinfo));
        let names = self
            .amdgpu_ids
            .iter()
            .find_map(|path| files.read(path).ok())
            .unwrap_or_default();
        let names = String::from_utf8_lossy(&names);

        let mut agents: Vec<Agent> = Vec::new();
        for id in ids {
            let Some(mut agent) = self.node(files, &nodes.join(id.to_string()), &cpus, &names)
            else {
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

    /// Returns the CPUs alone, for a machine without the driver: one agent for each NUMA node that
    /// has some, in the order of the nodes. There is one agent for all where the kernel has no
    /// nodes, and none when nothing at all can be read.
    pub fn processors(&self, files: &dyn Files) -> Vec<Agent> {
        let cpus = cpuinfo::parse(&text(files, &self.cpuinfo));
        crate::processors::agents(files, &self.numa, &cpus)
    }

    fn node(
        &self,
        files: &dyn Files,
        path: &Path,
        cpus: &[cpuinfo::Cpu],
        ids: &str,
    ) -> Option<Agent> {
        let properties = text(files, &path.join("properties"));
        let properties = Properties::parse(&properties);
        if properties.is_empty() {
            return None;
        }
        let product = (node::agent_type(&properties) == AgentType::Gpu)
            .then(|| self.product(files, &properties, ids))
            .flatten();
        let node = NodeFiles {
            name: &text(files, &path.join("name")),
            gpu_id: &text(files, &path.join("gpu_id")),
            mem_banks: parts(files, &path.join("mem_banks")),
            caches: parts(files, &path.join("caches")),
            io_links: parts(files, &path.join("io_links")),
            product,
            properties,
        };
        Some(node::agent(&node, cpus))
    }

    /// Returns the name in `amdgpu.ids`, else the one in the board's own memory (sysfs
    /// `product_name`), else none.
    fn product(&self, files: &dyn Files, properties: &Properties<'_>, ids: &str) -> Option<String> {
        let device = self
            .drm
            .join(format!("renderD{}", node::drm_render_minor(properties)))
            .join("device");
        let revision = text(files, &device.join("revision"));
        let revision =
            u8::from_str_radix(revision.trim().trim_start_matches("0x"), 16).unwrap_or(0);
        product::marketing_name(ids, node::device_id(properties), revision).or_else(|| {
            let board = text(files, &device.join("product_name"));
            Some(board.trim().to_owned()).filter(|name| !name.is_empty())
        })
    }
}

/// Returns the text of a file, or an empty text when it cannot be read.
pub(crate) fn text(files: &dyn Files, path: &Path) -> String {
    files
        .read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}

/// Returns the names of a directory's entries that are numbers, sorted.
fn numbered(files: &dyn Files, path: &Path) -> io::Result<Vec<u32>> {
    let names = files.list(path)?;
    let mut ids: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    ids.sort_unstable();
    Ok(ids)
}

/// Returns the contents of `N/properties` for each numbered entry.
fn parts(files: &dyn Files, path: &Path) -> Vec<String> {
    let ids = numbered(files, path).unwrap_or_default();
    ids.iter()
        .map(|id| text(files, &path.join(id.to_string()).join("properties")))
        .collect()
}
