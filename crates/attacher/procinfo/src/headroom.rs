//! How much a process may still take under its limits (`/proc/TID/limits`) and under its memory
//! cgroups.
//!
//! Nothing is changed. A limit that cannot be read counts as no limit: the kernel then refuses at
//! the moment when the limit is reached.

use std::io;
use std::path::{Path, PathBuf};

use crate::files::{Place, kernel_text};
use crate::{Tid, decimal};

/// One limit, and how much of it is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// The limit.
    pub limit: u64,
    /// The amount in use.
    pub used: u64,
}

impl Limit {
    /// Returns what is left, or 0 where more is used than allowed.
    pub fn left(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}

/// The headroom of one process. None means unlimited or unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Headroom {
    /// Bytes of address space (`RLIMIT_AS`).
    pub address_space: Option<Limit>,
    /// Bytes of private writable memory (`RLIMIT_DATA`).
    pub data: Option<Limit>,
    /// Bytes that may be locked (`RLIMIT_MEMLOCK`). Set only where the process has locked all its
    /// memory (`mlockall`) and is subject to that limit.
    pub locked: Option<Limit>,
    /// Descriptor numbers (`RLIMIT_NOFILE`).
    pub descriptors: Option<Limit>,
    /// Mappings (`vm.max_map_count`).
    pub mappings: Option<Limit>,
    /// Bytes under the tightest memory cgroup that it is in. Used memory counts without what the
    /// kernel can take back, such as the page cache of files.
    pub memory: Option<Limit>,
    /// Whether the process has locked all its memory. Then whatever is mapped takes memory at once.
    pub locks_all: bool,
}

/// `CAP_IPC_LOCK`.
const CAP_IPC_LOCK: u64 = 1 << 14;

/// Reads the headroom of the process that a live thread belongs to. The process has `mappings`
/// mappings.
///
/// # Errors
/// The kernel's error; not found when it has ended.
pub fn look(tid: impl Into<Tid>, mappings: usize) -> io::Result<Headroom> {
    let tid = tid.into();
    let limits = kernel_text(format!("{tid}/limits"))?;
    let status = kernel_text(format!("{tid}/status"))?;
    let bytes = |key: &str| number_after(&status, key).unwrap_or(0).saturating_mul(1024);
    let left =
        |name: &str, used: u64| number_after(&limits, name).map(|limit| Limit { limit, used });
    // Some mappings cannot be locked (mappings of devices and of the kernel), so not all has to be.
    let locks_all = bytes("VmLck:") > bytes("VmSize:") / 4 * 3;
    let unlimited = crate::status::parse(&status).cap_effective & CAP_IPC_LOCK != 0;
    Ok(Headroom {
        address_space: left("Max address space", bytes("VmSize:")),
        data: left("Max data size", bytes("VmData:")),
        locked: left("Max locked memory", bytes("VmLck:")).filter(|_| locks_all && !unlimited),
        descriptors: match (
            number_after(&limits, "Max open files"),
            crate::task::descriptors(tid),
        ) {
            (Some(limit), Ok(open)) => Some(Limit {
                limit,
                used: open.iter().filter(|&&fd| (fd as u64) < limit).count() as u64,
            }),
            _ => None,
        },
        mappings: kernel_text("sys/vm/max_map_count")
            .ok()
            .and_then(|text| decimal(&text))
            .map(|limit| Limit {
                limit,
                used: mappings as u64,
            }),
        memory: memory(tid),
        locks_all,
    })
}

/// Returns the number behind `key` at the start of a line. None for "unlimited", and where
/// there is no such line.
fn number_after(text: &[u8], key: &str) -> Option<u64> {
    let line = text
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(key.as_bytes()))?;
    line.split(u8::is_ascii_whitespace)
        .find(|word| !word.is_empty())
        .and_then(decimal)
}

/// Returns what is left under the tightest memory cgroup of a process, see [`Headroom::memory`].
pub fn memory(tid: impl Into<Tid>) -> Option<Limit> {
    let tid = tid.into();
    let groups = kernel_text(format!("{tid}/cgroup")).ok()?;
    let mounts = kernel_text("self/mountinfo").ok()?;
    let ours = Place::own_root().ok()?;
    hierarchies(&groups, &mounts, "memory")
        .into_iter()
        .flat_map(|(top, path, files)| tightest(&ours, &top, &path, files))
        .min_by_key(Limit::left)
}

/// The names of the files of one cgroup hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Files {
    limit: &'static str,
    used: &'static str,
    /// Keys in `memory.stat` of the memory that the kernel reclaims before it kills a process.
    reclaimable: [&'static str; 2],
}

/// source: Documentation/admin-guide/cgroup-v1/memory.rst
pub(crate) const V1: Files = Files {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    reclaimable: ["total_inactive_file ", "total_active_file "],
};
/// source: Documentation/admin-guide/cgroup-v2.rst
pub(crate) const V2: Files = Files {
    limit: "memory.max",
    used: "memory.current",
    reclaimable: ["inactive_file ", "active_file "],
};

/// Returns where the hierarchies with this controller are mounted. Each item is the mount point,
/// the group's directory, and the version of the hierarchy (as the names of its memory files).
pub(crate) fn hierarchies(
    groups: &[u8],
    mounts: &[u8],
    controller: &str,
) -> Vec<(PathBuf, PathBuf, Files)> {
    let mut found = Vec::new();
    for line in groups.split(|&byte| byte == b'\n') {
        // The lines look like "4:memory:/path" and "0::/path".
        let Ok(line) = std::str::from_utf8(line) else {
            continue;
        };
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let files = if controllers.split(',').any(|name| name == controller) {
            V1
        } else if controllers.is_empty() {
            V2
        } else {
            continue;
        };
        for mount in mounts.split(|&byte| byte == b'\n') {
            let Some((root, point)) = std::str::from_utf8(mount)
                .ok()
                .and_then(|mount| mounted(mount, files, controller))
            else {
                continue;
            };
            // The mount may show only a part of the hierarchy (in a container).
            let below = match root {
                "/" => Some(path),
                _ => path.strip_prefix(root),
            };
            if let Some(below) = below {
                let top = PathBuf::from(point);
                found.push((top.clone(), top.join(below.trim_start_matches('/')), files));
                break;
            }
        }
    }
    found
}

/// Returns root and mount point of a line of `mountinfo`, if the line is of such a hierarchy.
fn mounted<'a>(line: &'a str, files: Files, controller: &str) -> Option<(&'a str, &'a str)> {
    let (front, back) = line.split_once(" - ")?;
    let mut back = back.split(' ');
    let (kind, _, options) = (back.next()?, back.next()?, back.next()?);
    let fits = match kind {
        "cgroup" => files == V1 && options.split(',').any(|option| option == controller),
        "cgroup2" => files == V2,
        _ => false,
    };
    let mut front = front.split(' ').skip(3);
    fits.then_some((front.next()?, front.next()?))
}

/// Returns the limits on the way from `group` up to `top`, beneath our own root.
fn tightest(ours: &Place, top: &Path, group: &Path, files: Files) -> Vec<Limit> {
    group
        .ancestors()
        .take_while(|directory| directory.starts_with(top))
        .filter_map(|directory| {
            let text = |name: &str| ours.read(directory.join(name), 1 << 16);
            let number = |name: &str| decimal::<u64>(&text(name).ok()?);
            // "max" means no limit. Version 1 prints a number of this size instead.
            let limit = number(files.limit).filter(|&limit| limit < 1 << 60)?;
            let used = number(files.used)?;
            let stat = text("memory.stat").unwrap_or_default();
            let reclaimable: u64 = files
                .reclaimable
                .iter()
                .filter_map(|key| number_after(&stat, key))
                .sum();
            Some(Limit {
                limit,
                used: used.saturating_sub(reclaimable),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn numbers_of_files() {
        let limits = b"Limit                     Soft Limit           Hard Limit           Units     \n\
                       Max open files            1024                 4096                 files     \n\
                       Max address space         unlimited            unlimited            bytes     \n";
        assert_eq!(number_after(limits, "Max open files"), Some(1024));
        assert_eq!(number_after(limits, "Max address space"), None);
        assert_eq!(number_after(limits, "Max data size"), None);
        assert_eq!(
            number_after(b"VmSize:\t   74888 kB\n", "VmSize:"),
            Some(74888)
        );
    }

    #[test]
    fn where_hierarchies_are() {
        let groups = b"4:memory:/a/b\n1:cpu:/\n0::/c\nnonsense\n";
        let mounts = b"25 1 0:20 / /sys/fs/cgroup/unified rw - cgroup2 none rw\n\
                       26 1 0:21 /a /sys/fs/cgroup/memory rw shared:1 - cgroup none rw,memory\n\
                       27 1 0:22 / /sys/fs/cgroup/cpu rw - cgroup none rw,cpu\n";
        let found = hierarchies(groups, mounts, "memory");
        let paths: Vec<_> = found
            .iter()
            .map(|(top, group, files)| (top.to_str().unwrap(), group.to_str().unwrap(), *files))
            .collect();
        assert_eq!(
            paths,
            [
                ("/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/b", V1),
                ("/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified/c", V2),
            ]
        );
    }

    #[test]
    fn the_tightest_counts_and_cache_is_room() {
        let top = tempfile::tempdir().unwrap();
        let group = top.path().join("a");
        fs::create_dir(&group).unwrap();
        let put = |directory: &Path, limit: &str, used: &str, stat: &str| {
            fs::write(directory.join("memory.max"), limit).unwrap();
            fs::write(directory.join("memory.current"), used).unwrap();
            fs::write(directory.join("memory.stat"), stat).unwrap();
        };
        put(
            top.path(),
            "1000\n",
            "950\n",
            "anon 1\ninactive_file 10\nactive_file 20\n",
        );
        put(&group, "max\n", "900\n", "");
        assert_eq!(
            tightest(&Place::own_root().unwrap(), top.path(), &group, V2),
            [Limit {
                limit: 1000,
                used: 920
            }]
        );
    }

    #[test]
    fn ourselves() {
        let me = crate::Pid::own();
        let room = look(me, 100).unwrap();
        assert!(room.descriptors.is_none_or(|left| left.left() > 0));
        assert!(!room.locks_all && room.locked.is_none());
        assert!(room.mappings.is_none_or(|left| left.used == 100));
        assert!(look(Tid::MAX, 0).is_err());
    }
}
