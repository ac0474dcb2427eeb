//! Limits, memory, where results go, and what the kernel supports.

use super::Lines;
use crate::attach::results_fit;
use crate::headroom;
use crate::install::{Install, Tools};
use crate::request::Request;
use crate::runtime::Platform;
use midair_failure::{Failure, Kind};
use midair_inject::Inspection;
use midair_procinfo::files::{kernel_text, kernel_words};
use midair_procinfo::headroom::Limit;
use midair_procinfo::limits;
use midair_procinfo::status::Status;
use midair_procinfo::{Pid, Tid, task};

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// Reports the limits of the target: one line for each, and one that says whether an attach fits.
pub(super) fn headroom(
    request: &Request,
    look: &Inspection,
    platform: Platform,
    tools: Option<(&Install, &Tools)>,
    lines: &mut Lines,
) {
    if let Some((install, tools)) = tools {
        let fits = headroom::check_ours(&platform.file(install), tools, request)
            .and_then(|()| headroom::check(look, platform, tools, request));
        match fits {
            Ok(()) => lines.pass(
                "headroom",
                "an attach fits all limits of the process and of midair",
            ),
            Err(failure) => lines.fail("headroom", failure),
        }
    }
    let left = match midair_procinfo::headroom::look(look.tid, look.modules.mappings.len()) {
        Ok(left) => left,
        Err(why) => return lines.cannot_tell("limits", &why),
    };
    let mut line = |name: &str, left: Option<Limit>, unit: fn(u64) -> String| match left {
        Some(left) => lines.note(
            name,
            format!("{} are left of {}", unit(left.left()), unit(left.limit)),
        ),
        None => lines.note(name, "without a limit"),
    };
    line("descriptors", left.descriptors, |count| count.to_string());
    line("mappings", left.mappings, |count| count.to_string());
    line("address space", left.address_space, mib);
    line("memory cgroup", left.memory, mib);
}

/// Reports how many threads the target's user may have.
pub(super) fn threads(tid: Tid, status: &Status, lines: &mut Lines) {
    const NAME: &str = "thread limit";
    /// CAP_SYS_ADMIN and CAP_SYS_RESOURCE, either of which lifts the limit (see setrlimit(2)).
    const FREE: u64 = 1 << 21 | 1 << 24;
    let text = match kernel_text(format!("{tid}/limits")) {
        Ok(text) => text,
        Err(why) => return lines.cannot_tell(NAME, &why),
    };
    let uid = status.uid[0];
    let Some(limit) = limits::threads_of_user(&text) else {
        return lines.pass(NAME, "without a limit");
    };
    if uid == 0 || status.cap_effective & FREE != 0 {
        return lines.note(
            NAME,
            format!("{limit}, which does not apply: it is privileged"),
        );
    }
    let there: u64 = crate::find::pids()
        .into_iter()
        .filter_map(|pid| task::status(pid).ok())
        .filter(|status| status.uid[0] == uid)
        .map(|status| status.threads)
        .sum();
    if there >= limit {
        let what = format!(
            "user {uid} has {there} threads and may have {limit}: midair cannot create a thread"
        );
        let hint = format!(
            "prlimit --pid {} --nproc={}:",
            status.tgid.map_or(tid, Pid::leader),
            there + 64
        );
        return lines.fail(NAME, Failure::new(Kind::NoHeadroom, what).hint(hint));
    }
    lines.pass(
        NAME,
        format!(
            "user {uid} has {} of at most {limit}",
            midair_failure::plain::counted(there, "thread", "threads")
        ),
    );
}

/// Reports where results would be written.
pub(super) fn results(request: &Request, (pid, tid): (Pid, Tid), lines: &mut Lines) {
    const NAME: &str = "results";
    let identity = crate::identity::read(pid, tid);
    match results_fit(request, &identity) {
        Ok(directory) => {
            let free =
                nix::sys::statvfs::statvfs(nearest(&directory)).map_or(String::new(), |fs| {
                    let free = fs.blocks_available().saturating_mul(fs.fragment_size());
                    format!(", {} free", mib(free))
                });
            lines.pass(
                NAME,
                format!("would be written to {}{free}", directory.display()),
            );
        }
        // An attach may name another one.
        Err(failure) if identity.keys.cwd.is_none() && failure.kind == Kind::Output => {
            lines.note(NAME, format!("{}: {}", failure.what, failure.hint));
        }
        Err(failure) => lines.fail(NAME, failure),
    }
}

/// Returns the directory, or its nearest ancestor that exists.
#[expect(clippy::disallowed_methods, reason = "set by the caller")]
fn nearest(directory: &std::path::Path) -> &std::path::Path {
    let found = directory.ancestors().find(|path| path.is_dir());
    found.unwrap_or(std::path::Path::new("."))
}

/// Reports the memory for records that have not been collected yet.
pub(super) fn spool(request: &Request, lines: &mut Lines) {
    const NAME: &str = "spool";
    let text = kernel_text("meminfo").unwrap_or_default();
    let size = mib(request.spool_bytes);
    match limits::kilobytes(&text, "MemAvailable") {
        Some(free) if free / 2 > request.spool_bytes => {
            lines.pass(NAME, format!("{size}; {} of memory are free", mib(free)));
        }
        Some(free) => lines.note(
            NAME,
            format!(
                "{size}, and only {} of memory are free: use a smaller --spool-size",
                mib(free)
            ),
        ),
        None => lines.note(
            NAME,
            format!("{size}; cannot determine how much memory is free"),
        ),
    }
}

/// Reports the system calls on which entering depends.
pub(super) fn kernel(lines: &mut Lines) {
    const NAME: &str = "kernel";
    let missing = midair_ptrace::sys::missing_calls();
    let release = kernel_words("sys/kernel/osrelease").unwrap_or_default();
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
