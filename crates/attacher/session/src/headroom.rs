//! Whether the target and this process have the headroom for a session, checked before anything is
//! touched.
//!
//! If a limit were reached half way, we would report an error and undo our changes. But until then
//! the program could lack what we took: its own `mmap` may fail after ours has succeeded, and a
//! memory cgroup at its limit kills. So the headroom must cover what an attach needs, and some
//! more.

use crate::install::Tools;
use crate::request::Request;
use crate::runtime::Platform;
use midair_failure::{Failure, Kind};
use midair_inject::Inspection;
use midair_procinfo::headroom::{self, Headroom, Limit};
use midair_record::spool::{HEAD, SETTINGS};
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

/// What a session takes. The numbers were measured on the stand-in runtimes with everything traced,
/// and rounded up. The end-to-end tests of limits measure them again.
#[derive(Debug, Clone, Copy)]
struct Need {
    address_space: u64,
    data: u64,
    descriptors: u64,
    mappings: u64,
    memory: u64,
}

impl Need {
    fn of(
        look: &Inspection,
        platform: Platform,
        tools: &Tools,
        spool: u64,
        locks_all: bool,
    ) -> Need {
        // The spool, libraries, the tables of the hooks (reserved, hardly used), and a heap that
        // glibc reserves for the worker thread.
        let fresh = !look.worker.is_some_and(|agent| agent.is_parked());
        let (address_space, data) = match (platform, fresh) {
            (Platform::Amd, true) => (spool + 320 * MIB, 224 * MIB),
            (Platform::Amd, false) => (spool + 8 * MIB, 8 * MIB),
            // CUPTI allocates memory again in each session, besides the buffers that we give it.
            (Platform::Cuda, _) => (spool + 512 * MIB, 320 * MIB),
        };
        let memory = match (locks_all, platform, fresh) {
            (true, ..) => address_space,
            // The pages of the spool and of the code are charged to the attacher.
            (false, Platform::Amd, true) => 8 * MIB,
            (false, Platform::Amd, false) => 2 * MIB,
            (false, Platform::Cuda, _) => 96 * MIB,
        };
        Need {
            address_space,
            data,
            // The connection, and the descriptors received over it, which are renumbered one by
            // one.
            descriptors: 4 + tools.files.len() as u64,
            mappings: if fresh { 96 } else { 16 },
            memory,
        }
    }
}

/// Refuses the attach if the process lacks the headroom.
pub(crate) fn check(
    look: &Inspection,
    platform: Platform,
    tools: &Tools,
    request: &Request,
) -> Result<(), Failure> {
    let Ok(room) = headroom::look(look.tid, look.modules.mappings.len()) else {
        // The process is about to end; the next step that touches it reports that.
        return Ok(());
    };
    let spool = request.spool_bytes.saturating_add((HEAD + SETTINGS) as u64);
    let need = Need::of(look, platform, tools, spool, room.locks_all);
    match lacking(&room, &need) {
        Some((what, hint)) => Err(Failure::new(
            Kind::NoHeadroom,
            format!(
                "process {} lacks the headroom for an attach: {what}",
                look.pid
            ),
        )
        .hint(hint)),
        None => Ok(()),
    }
}

fn lacking(room: &Headroom, need: &Need) -> Option<(String, &'static str)> {
    let short = |left: Option<Limit>, need: u64| left.filter(|left| left.left() < need);
    let mib = |bytes: u64| bytes.div_ceil(MIB);
    if let Some(left) = short(room.descriptors, need.descriptors) {
        let what = format!(
            "only {} of its {} descriptors (RLIMIT_NOFILE) are left; {} needed",
            left.left(),
            left.limit,
            need.descriptors
        );
        return Some((what, "raise its limit: prlimit --pid PID --nofile=N"));
    }
    if let Some(left) = short(room.mappings, need.mappings) {
        let what = format!(
            "only {} of its {} mappings (vm.max_map_count) are left; {} needed",
            left.left(),
            left.limit,
            need.mappings
        );
        return Some((what, "raise it: sysctl vm.max_map_count=N"));
    }
    let bytes = |left: Limit, name: &str, need: u64| {
        format!(
            "only {} MiB of its {} MiB of {name} are left; {} needed",
            left.left() / MIB,
            mib(left.limit),
            mib(need)
        )
    };
    if let Some(left) = short(room.address_space, need.address_space) {
        return Some((
            bytes(left, "address space (RLIMIT_AS)", need.address_space),
            "raise its limit: prlimit --pid PID --as=N; a smaller spool needs less",
        ));
    }
    if let Some(left) = short(room.data, need.data) {
        return Some((
            bytes(left, "data (RLIMIT_DATA)", need.data),
            "raise its limit: prlimit --pid PID --data=N",
        ));
    }
    if let Some(left) = short(room.locked, need.address_space) {
        return Some((
            bytes(
                left,
                "locked memory (RLIMIT_MEMLOCK; it has called mlockall)",
                need.address_space,
            ),
            "raise its limit: prlimit --pid PID --memlock=N",
        ));
    }
    if let Some(left) = short(room.memory, need.memory) {
        let why = if room.locks_all {
            "the memory of its cgroup (all is locked: it has called mlockall)"
        } else {
            "the memory of its cgroup"
        };
        return Some((
            bytes(left, why, need.memory),
            "raise the limit of its memory cgroup: the kernel kills the process at the limit",
        ));
    }
    None
}

/// The descriptors that one attach takes on this side at the same time, with a margin.
pub(crate) const FOR_ONE: u64 = 16;
/// The same for a command that attaches, from its start on.
const FOR_A_COMMAND: u64 = 24;

/// Refuses where this process may open fewer descriptors than a command that attaches needs, or that
/// looks at a process. Call it at the command's start: what lacks one fails for a reason that is not
/// the real one.
///
/// # Errors
/// [`Kind::NoHeadroom`].
pub fn require_own_descriptors() -> Result<(), Failure> {
    require_descriptors(FOR_A_COMMAND)
}

pub(crate) fn require_descriptors(needed: u64) -> Result<(), Failure> {
    let (left, limit) = midair_ptrace::sys::descriptors_left(needed);
    if left >= needed {
        return Ok(());
    }
    Err(Failure::new(
        Kind::NoHeadroom,
        format!(
            "only {left} of midair's {limit} descriptors (RLIMIT_NOFILE) are left; {needed} needed"
        ),
    )
    .hint("raise it (ulimit -n)"))
}

/// Bytes of address space that this process takes for an attach besides the spool: the stacks of
/// its threads (2 MiB each) and what it allocates, with a margin.
const OWN_ADDRESS_SPACE: u64 = 16 * MIB;

/// Refuses the attach if this process lacks the headroom. It sends memory files, to which the limit
/// of file sizes applies, too.
#[expect(
    clippy::disallowed_methods,
    reason = "our own libraries, and the tools that the caller names"
)]
pub(crate) fn check_ours(library: &Path, tools: &Tools, request: &Request) -> Result<(), Failure> {
    let size = |path: &Path| path.metadata().map_or(0, |found| found.len());
    let libraries: Vec<u64> = std::iter::once(library)
        .chain(tools.files.iter().map(PathBuf::as_path))
        .map(size)
        .collect();
    let spool = request.spool_bytes.saturating_add((HEAD + SETTINGS) as u64);
    let largest = libraries.iter().copied().max().unwrap_or(0).max(spool);
    let limit = midair_ptrace::sys::file_size_limit();
    if limit < largest {
        return Err(Failure::new(
            Kind::NoHeadroom,
            format!(
                "midair's file size limit (RLIMIT_FSIZE) is {} bytes; {largest} needed for its largest file in memory",
                limit
            ),
        )
        .hint("raise it (ulimit -f); a smaller spool needs less"));
    }
    let us = midair_procinfo::Pid::own();
    let own = headroom::look(us, 0).unwrap_or_default();
    let need = spool.saturating_add(OWN_ADDRESS_SPACE);
    if let Some(left) = own.address_space.filter(|left| left.left() < need) {
        return Err(Failure::new(
            Kind::NoHeadroom,
            format!(
                "only {} MiB of midair's {} MiB of address space (RLIMIT_AS) are left; {} needed",
                left.left() / MIB,
                left.limit.div_ceil(MIB),
                need.div_ceil(MIB)
            ),
        )
        .hint("raise it (ulimit -v); a smaller spool needs less"));
    }
    let need = libraries.iter().sum::<u64>() + 8 * MIB;
    if let Some(left) = own.memory.filter(|left| left.left() < need) {
        return Err(Failure::new(
            Kind::NoHeadroom,
            format!(
                "only {} MiB of the {} MiB of midair's memory cgroup are left; {} needed",
                left.left() / MIB,
                left.limit.div_ceil(MIB),
                need.div_ceil(MIB)
            ),
        )
        .hint(
            "run midair in another cgroup, or raise the limit: the kernel kills midair at the limit",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEED: Need = Need {
        address_space: 400 * MIB,
        data: 200 * MIB,
        descriptors: 5,
        mappings: 96,
        memory: 8 * MIB,
    };

    fn said(room: Headroom) -> String {
        lacking(&room, &NEED).map_or_else(String::new, |(what, _)| what)
    }

    #[test]
    fn each_limit_is_named() {
        let left = |limit, used| Some(Limit { limit, used });
        assert_eq!(said(Headroom::default()), "");
        let none = Headroom::default;
        let cases = [
            (
                Headroom {
                    descriptors: left(1024, 1020),
                    ..none()
                },
                "4 of its 1024 descriptors",
            ),
            (
                Headroom {
                    mappings: left(65530, 65500),
                    ..none()
                },
                "30 of its 65530 mappings",
            ),
            (
                Headroom {
                    address_space: left(500 * MIB, 101 * MIB),
                    ..none()
                },
                "399 MiB of its 500 MiB of address space",
            ),
            (
                Headroom {
                    data: left(MIB, 2 * MIB),
                    ..none()
                },
                "0 MiB of its 1 MiB of data",
            ),
            (
                Headroom {
                    locked: left(MIB, 0),
                    ..none()
                },
                "RLIMIT_MEMLOCK",
            ),
            (
                Headroom {
                    memory: left(64 * MIB, 57 * MIB),
                    ..none()
                },
                "7 MiB of its 64 MiB of the memory of its cgroup",
            ),
        ];
        for (room, words) in cases {
            assert!(said(room).contains(words), "{words}: {}", said(room));
        }
        let fine = left(u64::MAX, 0);
        let room = Headroom {
            address_space: fine,
            data: fine,
            locked: None,
            descriptors: fine,
            mappings: fine,
            memory: fine,
            locks_all: false,
        };
        assert_eq!(said(room), "");
    }
}
