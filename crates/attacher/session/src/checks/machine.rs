//! What this machine and this user mean for any attach: `midair doctor` without a process.

use super::{Lines, counters, cuda, environment, target};
use crate::explain;
use crate::install::{self, Install};
use crate::list;
use crate::request::Request;
use midair_agents::{Agent, AgentType};
use midair_failure::{Failure, Kind};
use midair_inject::{Refusal, own_filter};
use midair_procinfo::access::ADD_TO_CONTAINER;
use midair_procinfo::files::{kernel_link, kernel_words};
use midair_procinfo::status::Status;
use midair_procinfo::{Pid, Tid, task};
use midair_ptrace::{Urgent, added_capabilities};
use std::path::Path;

/// CAP_SYS_PTRACE.
const TRACES: u64 = 1 << 19;
/// CAP_SYS_NICE.
const SETS_PRIORITIES: u64 = 1 << 23;
/// The inode of the first pid namespace, as in `pid:[4026531836]` (Linux, include/linux/proc_ns.h).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Adds a line for each condition.
pub(super) fn inspect(request: &Request, agents: &[Agent], lines: &mut Lines) {
    libraries(lines);
    environment::kernel(lines);
    let own = Tid::from(Pid::own());
    let status = task::status(own).unwrap_or_default();
    tracing(&status, lines);
    seccomp(&status, lines);
    let capable = status.cap_effective & SETS_PRIORITIES != 0;
    priority(Urgent::begin().is_real_time(), capable, lines);
    namespaces(lines);
    hidden(lines);
    processes(lines);
    amd(agents, lines);
    counters::lines(agents, Pid::own(), None, lines);
    nvidia(lines);
    cuda::gpu_counters(lines);
    target::clock(own, lines);
    environment::spool(request, lines);
    directory(lines);
}

fn libraries(lines: &mut Lines) {
    match Install::find() {
        Ok(install) => lines.pass("libraries", format!("ours are in {}", install.place())),
        Err(failure) => lines.fail("libraries", failure),
    }
    if let Some(weakness) = install::weakness() {
        lines.note("installation", weakness);
    }
}

/// Reports whose processes this user may trace.
fn tracing(status: &Status, lines: &mut Lines) {
    let scope = kernel_words("sys/kernel/yama/ptrace_scope");
    let scope = scope.ok().and_then(|text| text.trim().parse().ok());
    let ours = status.cap_effective | added_capabilities();
    may_trace(ours & TRACES != 0, status.uid[1] == 0, scope, lines);
}

fn may_trace(capable: bool, is_root: bool, scope: Option<u32>, lines: &mut Lines) {
    const NAME: &str = "tracing";
    const WAYS: &str = "sysctl kernel.yama.ptrace_scope=0, root, CAP_SYS_PTRACE on midair, or a target that loads midair's register library";
    let ways = if is_root { ADD_TO_CONTAINER } else { WAYS };
    match (scope, capable) {
        (Some(3), _) => {
            let what = "kernel.yama.ptrace_scope is 3: no process may be traced until the next boot";
            let hint = "boot with a lower value, or let targets load midair's register library";
            lines.fail(NAME, Failure::new(Kind::NotPermitted, what).hint(hint));
        }
        (_, true) => lines.pass(NAME, "midair has CAP_SYS_PTRACE: processes of all users"),
        (None | Some(0), false) if is_root => lines.note(
            NAME,
            format!("only root's processes, as root without CAP_SYS_PTRACE: {ADD_TO_CONTAINER}"),
        ),
        (None | Some(0), false) => lines.pass(NAME, "only processes of this user"),
        (Some(1), false) => lines.note(
            NAME,
            format!("kernel.yama.ptrace_scope is 1: only descendants of midair, and processes that allow it; {ways}"),
        ),
        (Some(other), false) => {
            let what = format!("kernel.yama.ptrace_scope is {other}: only CAP_SYS_PTRACE may trace, and midair lacks it");
            lines.fail(NAME, Failure::new(Kind::NotPermitted, what).hint(ways));
        }
    }
}

/// Reports whether midair itself runs under a container's system call filter.
fn seccomp(status: &Status, lines: &mut Lines) {
    const NAME: &str = "own seccomp filters";
    if let Some(source) = own_filter() {
        let pid = Pid::own();
        return lines.fail(
            NAME,
            explain::refused(&Refusal::PtraceForbidden { pid, source }),
        );
    }
    match status.seccomp {
        0 => lines.pass(NAME, "none"),
        _ => lines.note(
            NAME,
            format!(
                "{}: targets must have as many, or midair must run outside this container",
                status.seccomp_filters
            ),
        ),
    }
}

/// Reports whether the thread that midair holds while it enters gets its turn at once on a busy machine (ENG-003).
fn priority(is_allowed: bool, capable: bool, lines: &mut Lines) {
    const NAME: &str = "real-time priority";
    const COST: &str =
        "next to busy processes an attach may stop a thread of the target for some milliseconds";
    if is_allowed {
        return lines.pass(NAME, "allowed while midair holds a thread of the target");
    }
    let ways = if capable {
        "midair has CAP_SYS_NICE, so its control group has no share of real time (cpu.rt_runtime_us), or a container's filter refuses it"
    } else {
        "run as root, or give midair CAP_SYS_NICE or a limit of 2 (ulimit -r 2)"
    };
    lines.note(NAME, format!("refused: {COST}; {ways}"));
}

/// Reports whether all processes of the machine can be seen from here.
fn namespaces(lines: &mut Lines) {
    const NAME: &str = "pid namespace";
    match kernel_link("self/ns/pid") {
        Ok(link) if link == Path::new(FIRST_PID_NAMESPACE) => {
            lines.pass(NAME, "the machine's initial one: all processes are visible");
        }
        Ok(_) => lines.note(
            NAME,
            "a separate one, as in a container: midair cannot attach to processes outside it; run midair on the host, or with hostPID",
        ),
        Err(why) => lines.cannot_tell(NAME, &why),
    }
}

/// Reports the option `hidepid` of `/proc`.
fn hidden(lines: &mut Lines) {
    const NAME: &str = "/proc";
    match kernel_words("self/mountinfo") {
        Ok(text) => match hides(&text) {
            false => lines.pass(NAME, "shows the processes of all users"),
            true => lines.note(
                NAME,
                "is mounted with hidepid: other users' processes are visible only to root and the group of its gid option",
            ),
        },
        Err(why) => lines.cannot_tell(NAME, &why),
    }
}

/// Whether the last mount of `/proc` has the option.
fn hides(mountinfo: &str) -> bool {
    let proc = mountinfo
        .lines()
        .rfind(|line| line.split(' ').nth(4) == Some("/proc"));
    let options = proc
        .and_then(|line| line.rsplit(' ').next())
        .unwrap_or_default();
    options.split(',').any(|option| {
        let value = option.strip_prefix("hidepid=");
        value.is_some_and(|value| !["0", "off"].contains(&value))
    })
}

fn processes(lines: &mut Lines) {
    const NAME: &str = "GPU processes";
    let listing = list(false);
    let seen = match listing.processes.len() {
        0 => "none visible".to_owned(),
        1 => "1, see midair ps".to_owned(),
        count => format!("{count}, see midair ps"),
    };
    lines.note(NAME, seen);
}

fn amd(agents: &[Agent], lines: &mut Lines) {
    const NAME: &str = "AMD GPUs";
    let gpus = agents
        .iter()
        .filter(|agent| agent.agent_type == AgentType::Gpu);
    let names: Vec<&str> = gpus.map(|gpu| gpu.name.as_str()).collect();
    match names.is_empty() {
        true => lines.note(NAME, "none: the driver (amdgpu) shows none"),
        false => lines.pass(NAME, names.join(", ")),
    }
}

fn nvidia(lines: &mut Lines) {
    const NAME: &str = "NVIDIA driver";
    match kernel_words("driver/nvidia/version") {
        Ok(text) => {
            let first = text.lines().next().unwrap_or_default();
            let version = first.split_once(':').map_or(first, |(_, version)| version);
            lines.pass(
                NAME,
                version.split_whitespace().collect::<Vec<_>>().join(" "),
            );
        }
        Err(_) => lines.note(NAME, "none"),
    }
}

/// Reports where results go unless the user says otherwise.
fn directory(lines: &mut Lines) {
    const NAME: &str = "results";
    let Ok(here) = std::env::current_dir() else {
        return lines.note(
            NAME,
            "the current directory no longer exists: change to another one, or give one: -d /DIR",
        );
    };
    let free = nix::sys::statvfs::statvfs(&here).map(|fs| {
        let free = fs.blocks_available().saturating_mul(fs.fragment_size());
        format!(", {} MiB free", free >> 20)
    });
    let free = free.unwrap_or_default();
    let shown = here.display();
    match nix::unistd::access(&here, nix::unistd::AccessFlags::W_OK) {
        Ok(()) => lines.pass(NAME, format!("would be written below {shown}{free}")),
        Err(errno) => lines.note(
            NAME,
            format!(
                "cannot write to {shown} ({}): give another directory, -d DIR",
                errno.desc()
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Verdict;

    #[test]
    fn who_may_trace() {
        let told = |capable, scope| {
            let mut lines = Lines::default();
            may_trace(capable, false, scope, &mut lines);
            match &lines.checks[0].verdict {
                Verdict::Pass => "pass",
                Verdict::Note => "note",
                Verdict::Fail(_) => "fail",
            }
        };
        assert_eq!(told(true, Some(2)), "pass");
        assert_eq!(told(false, None), "pass");
        assert_eq!(told(false, Some(0)), "pass");
        assert_eq!(told(false, Some(1)), "note");
        assert_eq!(told(false, Some(2)), "fail");
        assert_eq!(told(true, Some(3)), "fail");
        // Root in a container.
        for scope in [None, Some(0), Some(1), Some(2)] {
            let mut lines = Lines::default();
            may_trace(false, true, scope, &mut lines);
            let check = &lines.checks[0];
            let said = match &check.verdict {
                Verdict::Pass => "",
                Verdict::Note => &check.found,
                Verdict::Fail(failure) => &failure.hint,
            };
            assert!(said.contains("--cap-add SYS_PTRACE"), "{check:?}");
        }
    }

    #[test]
    fn refused_priority_is_reported_with_its_remedy() {
        let found = |is_allowed, capable| {
            let mut lines = Lines::default();
            priority(is_allowed, capable, &mut lines);
            lines.checks.remove(0).found
        };
        assert!(found(true, true).starts_with("allowed"));
        assert!(found(false, true).contains("cpu.rt_runtime_us"));
        let without = found(false, false);
        assert!(without.contains("ulimit -r 2") && !without.contains("rt_runtime"));
    }

    #[test]
    fn the_last_mount_of_proc_counts() {
        let plain = "22 1 0:21 / /proc rw,nosuid - proc proc rw";
        let hidden = "40 1 0:21 / /proc rw - proc proc rw,gid=26,hidepid=invisible";
        assert!(!hides(plain) && hides(hidden));
        assert!(hides(&format!("{plain}\n{hidden}")));
        assert!(!hides(&format!("{hidden}\n{plain},hidepid=off")));
        assert!(!hides(""));
    }
}
