//! Room: limits, memory, where results go; and what the kernel can do.

use super::Lines;
use crate::request::Request;
use midair_procinfo::limits::{self, Limits};
use midair_procinfo::status::Status;
use midair_procinfo::{Tid, task};
use midair_results::{Failure, Identity, Kind};

/// What our libraries and our thread's stack take of the target's address space, at most.
const OURS: u64 = 64 << 20;
/// Descriptors that entering needs for a moment: a socket pair, a library, the spool, a tool.
const DESCRIPTORS: u64 = 5;

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// Limits of the target.
pub(super) fn limits(request: &Request, tid: Tid, status: &Status, lines: &mut Lines) {
    let limits = match std::fs::read(format!("/proc/{tid}/limits")) {
        Ok(text) => limits::parse(&text),
        Err(why) => return lines.cannot_tell("limits", &why),
    };
    descriptors(&limits, tid, lines);
    address_space(request, &limits, status, lines);
    processes(&limits, status, lines);
}

fn descriptors(limits: &Limits, tid: Tid, lines: &mut Lines) {
    const NAME: &str = "descriptors";
    let open = match task::descriptors(tid) {
        Ok(open) => open.len() as u64,
        Err(why) => return lines.cannot_tell(NAME, &why),
    };
    let Some(limit) = limits.descriptors else {
        return lines.pass(NAME, format!("{open} are open, without a limit"));
    };
    if limit.saturating_sub(open) < DESCRIPTORS {
        let what = format!(
            "{open} descriptors of {limit} are open in the process, and entering needs {DESCRIPTORS} for a moment"
        );
        let hint = format!("prlimit --pid {tid} --nofile={}:", open + 64);
        return lines.fail(NAME, Failure::new(Kind::Setup, what).hint(hint));
    }
    lines.pass(
        NAME,
        format!("{open} of {limit} are open; {DESCRIPTORS} are needed for a moment"),
    );
}

fn address_space(request: &Request, limits: &Limits, status: &Status, lines: &mut Lines) {
    const NAME: &str = "address space";
    let Some(limit) = limits.address_space else {
        return lines.pass(NAME, "without a limit");
    };
    let left = limit.saturating_sub(status.vm_size);
    let found = format!("{} are left of {}", mib(left), mib(limit));
    if left < request.spool_bytes {
        let what = format!(
            "{found}: the spool of {} does not fit",
            mib(request.spool_bytes)
        );
        let hint = format!(
            "prlimit --pid {} --as=unlimited, or a smaller --spool-size",
            status.tgid
        );
        return lines.fail(NAME, Failure::new(Kind::Setup, what).hint(hint));
    }
    if left < request.spool_bytes.saturating_add(OURS) {
        return lines.note(
            NAME,
            format!("{found}: tight; a smaller --spool-size helps"),
        );
    }
    lines.pass(NAME, found);
}

fn processes(limits: &Limits, status: &Status, lines: &mut Lines) {
    const NAME: &str = "thread limit";
    /// CAP_SYS_ADMIN and CAP_SYS_RESOURCE, either of which frees from the limit (source: setrlimit(2)).
    const FREE: u64 = 1 << 21 | 1 << 24;
    let uid = status.uid[0];
    let Some(limit) = limits.processes else {
        return lines.pass(NAME, "without a limit");
    };
    if uid == 0 || status.cap_effective & FREE != 0 {
        return lines.note(
            NAME,
            format!("{limit}, which does not bind it: it is privileged"),
        );
    }
    let there: u64 = crate::find::pids()
        .into_iter()
        .filter_map(|pid| task::status(Tid::try_from(pid).ok()?).ok())
        .filter(|status| status.uid[0] == uid)
        .map(|status| status.threads)
        .sum();
    if there >= limit {
        let what = format!(
            "user {uid} has {there} threads and may have {limit}: no thread of ours can be made"
        );
        let hint = format!("prlimit --pid {} --nproc={}:", status.tgid, there + 64);
        return lines.fail(NAME, Failure::new(Kind::Setup, what).hint(hint));
    }
    lines.pass(NAME, format!("user {uid} has {there} threads of {limit}"));
}

/// The memory control group.
pub(super) fn memory_group(request: &Request, tid: Tid, lines: &mut Lines) {
    const NAME: &str = "memory cgroup";
    match memory_left(tid) {
        Ok(None) => lines.pass(NAME, "without a limit"),
        Ok(Some((left, limit))) => {
            let found = format!("{} are left of {}", mib(left), mib(limit));
            if left < OURS {
                lines.note(
                    NAME,
                    format!(
                        "{found}: tight; the spool ({}) is of our own group",
                        mib(request.spool_bytes)
                    ),
                );
            } else {
                lines.pass(NAME, found);
            }
        }
        Err(why) => lines.cannot_tell(NAME, &why),
    }
}

/// What is left, and of how much; None without a limit. Both generations of control groups, as they are mounted here.
fn memory_left(tid: Tid) -> std::io::Result<Option<(u64, u64)>> {
    let groups = std::fs::read_to_string(format!("/proc/{tid}/cgroup"))?;
    let number =
        |path: String| -> Option<u64> { std::fs::read_to_string(path).ok()?.trim().parse().ok() };
    let mut tightest: Option<(u64, u64)> = None;
    for line in groups.lines() {
        // hierarchy:controllers:path (source: cgroups(7)).
        let mut parts = line.splitn(3, ':');
        let (Some(id), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let (base, limit, used) = if id == "0" {
            ("/sys/fs/cgroup", "memory.max", "memory.current")
        } else if controllers.split(',').any(|name| name == "memory") {
            (
                "/sys/fs/cgroup/memory",
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
            )
        } else {
            continue;
        };
        // A limit of any group above counts as well.
        for group in std::path::Path::new(path).ancestors() {
            let group = format!("{base}{}", group.display());
            let limit = number(format!("{group}/{limit}"));
            let used = number(format!("{group}/{used}"));
            // The first generation's "no limit" is the greatest page-aligned number.
            if let (Some(limit), Some(used)) = (limit, used)
                && limit < 1 << 62
            {
                let left = limit.saturating_sub(used);
                if tightest.is_none_or(|(least, _)| left < least) {
                    tightest = Some((left, limit));
                }
            }
        }
    }
    Ok(tightest)
}

/// Where results would be written.
pub(super) fn results(request: &Request, pid: Tid, lines: &mut Lines) {
    const NAME: &str = "results";
    match midair_results::check(&request.settings, &Identity::read(pid as u32)) {
        Ok(directory) => {
            let free =
                nix::sys::statvfs::statvfs(nearest(&directory)).map_or(String::new(), |fs| {
                    let free = u64::from(fs.blocks_available()).saturating_mul(fs.fragment_size());
                    format!(", {} free", mib(free))
                });
            lines.pass(
                NAME,
                format!("would be written to {}{free}", directory.display()),
            );
        }
        Err(failure) => lines.fail(NAME, failure),
    }
}

/// The directory, or the nearest above it that exists.
fn nearest(directory: &std::path::Path) -> &std::path::Path {
    let found = directory.ancestors().find(|path| path.is_dir());
    found.unwrap_or(std::path::Path::new("."))
}

/// Memory for records that were not taken over yet.
pub(super) fn spool(request: &Request, lines: &mut Lines) {
    const NAME: &str = "spool";
    let text = std::fs::read("/proc/meminfo").unwrap_or_default();
    let size = mib(request.spool_bytes);
    match limits::kilobytes(&text, "MemAvailable") {
        Some(free) if free / 2 > request.spool_bytes => {
            lines.pass(NAME, format!("{size}; {} of memory are free", mib(free)));
        }
        Some(free) => lines.note(
            NAME,
            format!(
                "{size}, and only {} of memory are free: a smaller --spool-size helps",
                mib(free)
            ),
        ),
        None => lines.note(
            NAME,
            format!("{size}; how much memory is free cannot be told"),
        ),
    }
}

/// System calls that entering rests on.
pub(super) fn kernel(lines: &mut Lines) {
    const NAME: &str = "kernel";
    // Numbers that name nothing and change nothing: a kernel that has the call answers EBADF or EINVAL.
    let calls: [(&str, fn() -> i64); 3] = [
        // SAFETY: a system call with numbers only.
        ("pidfd_open", || unsafe {
            libc::syscall(libc::SYS_pidfd_open, -1, 0)
        }),
        // SAFETY: as before.
        ("pidfd_getfd", || unsafe {
            libc::syscall(libc::SYS_pidfd_getfd, -1, -1, 0)
        }),
        // SAFETY: the flags are looked at first and are none.
        ("memfd_create", || unsafe {
            libc::syscall(libc::SYS_memfd_create, c"".as_ptr(), u32::MAX)
        }),
    ];
    let lacks = |call: &fn() -> i64| {
        call() < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS)
    };
    let missing: Vec<&str> = calls
        .iter()
        .filter(|(_, call)| lacks(call))
        .map(|(name, _)| *name)
        .collect();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    if missing.is_empty() {
        return lines.pass(
            NAME,
            format!("{release} has pidfd_open, pidfd_getfd and memfd_create"),
        );
    }
    let what = format!("kernel {release} has no {}", missing.join(" and no "));
    lines.fail(
        NAME,
        Failure::new(Kind::Enter, what).hint("Linux 5.6 or newer is needed"),
    );
}
