//! What the target is, and whether it may be entered.

use super::Lines;
use crate::explain::{self, itself, not_gpu};
use crate::runtime::{Platform, Runtimes, refuse_other_namespace, refuse_two_copies};
use midair_failure::Failure;
use midair_inject::{Refusal, own_filter, thread_manager};
use midair_procinfo::elf::ElfFile;
use midair_procinfo::files::{self, Place, kernel_link};
use midair_procinfo::libc_kind::{self, LibcKind};
use midair_procinfo::module::Modules;
use midair_procinfo::status::Status;
use midair_procinfo::{Pid, Tid, access, freezer, show, task};
use std::io;

/// Finds out whether the process exists. Returns its number and a live thread of it.
pub(super) fn existence(asked: Pid, lines: &mut Lines) -> Option<(Pid, Tid)> {
    const NAME: &str = "process";
    let nobody = |lines: &mut Lines| {
        lines.fail(NAME, no_process(asked));
        None
    };
    if asked == Pid::own() {
        lines.fail(NAME, itself(asked));
        return None;
    }
    let Ok(stat) = task::stat(asked) else {
        return nobody(lines);
    };
    let name = show(&stat.comm);
    if stat.is_kernel_thread() {
        lines.fail(
            NAME,
            explain::refused(&Refusal::KernelThread { pid: asked, name }),
        );
        return None;
    }
    let zombie = |lines: &mut Lines| {
        lines.fail(NAME, explain::refused(&Refusal::Zombie { pid: asked }));
        None
    };
    let Ok(Some(tid)) = task::live(asked) else {
        return zombie(lines);
    };
    let Ok(status) = task::status(tid) else {
        return zombie(lines);
    };
    let pid = status.tgid.unwrap_or(asked);
    let threads = midair_failure::plain::counted(status.threads, "thread", "threads");
    let mut found = format!("{pid} ({name}) is alive, with {threads}");
    if asked != pid {
        found = format!("{asked} is a thread of process {pid} ({name}), which midair uses instead");
    } else if tid != pid.leader() {
        found.push_str(&format!(
            "; its main thread has exited, and midair uses thread {tid} instead"
        ));
    } else if pid.get() == 1 {
        found.push_str("; it is the first process of this pid namespace");
    }
    lines.pass(NAME, found);
    Some((pid, tid))
}

fn no_process(pid: Pid) -> Failure {
    explain::no_process(pid.get())
}

/// Reports users, capabilities, Yama, the dumpable flag and user namespaces.
pub(super) fn permission(pid: Pid, tid: Tid, lines: &mut Lines) {
    const NAME: &str = "permission";
    let access = match access::look(tid) {
        Ok(access) => access,
        Err(why) => return lines.cannot_tell(NAME, &why),
    };
    if access.ending {
        return lines.fail(NAME, explain::refused(&Refusal::Zombie { pid }));
    }
    if !access.allowed {
        let (why, hint) = access.why_not();
        return lines.forbids_tracing(NAME, &Refusal::NotPermitted { pid, why, hint });
    }
    if let Some(failure) = crate::rights::protected(tid) {
        return lines.fail(NAME, failure);
    }
    let theirs = access.target_uids[1];
    let mut found = if access.target_uids.iter().all(|uid| *uid == access.our_uid) {
        format!("it runs as this user ({theirs})")
    } else {
        format!("it runs as user {theirs}, and midair has CAP_SYS_PTRACE")
    };
    if let Some(scope) = access.yama {
        found.push_str(&format!("; kernel.yama.ptrace_scope is {scope}"));
    }
    if access.target_more_capable {
        found.push_str("; it has capabilities that midair lacks");
    }
    lines.pass(NAME, found);
    rights(tid, lines);
}

fn rights(tid: Tid, lines: &mut Lines) {
    const NAME: &str = "rights";
    match crate::rights::exceeding(tid) {
        Ok(None) => lines.pass(
            NAME,
            "it has no more privileges than you: any tool library is allowed",
        ),
        Ok(Some(why)) => lines.note(
            NAME,
            format!(
                "{why}: only tool libraries that root owns and only root can change are allowed"
            ),
        ),
        Err(why) => lines.cannot_tell(NAME, &why),
    }
}

/// Reports a system call filter that midair itself is under, where it refuses to trace.
pub(super) fn own_seccomp(pid: Pid, lines: &mut Lines) {
    if let Some(source) = own_filter() {
        lines.forbids_tracing(
            "own seccomp filters",
            &Refusal::PtraceForbidden { pid, source },
        );
    }
}

/// Reports a debugger, or another tracer.
pub(super) fn tracer(pid: Pid, status: &Status, lines: &mut Lines) {
    const NAME: &str = "tracer";
    let Some(by) = status.tracer else {
        return lines.pass(NAME, "no process traces it");
    };
    let name = task::comm(by).map_or_else(|_| "unknown".into(), |name| show(&name));
    lines.forbids_tracing(NAME, &Refusal::Traced { pid, by, name });
}

/// Reports whether job control has stopped the process.
pub(super) fn running(pid: Pid, status: &Status, lines: &mut Lines) {
    const NAME: &str = "state";
    if matches!(status.state, b'T' | b't') && status.tracer.is_none() {
        return lines.forbids_tracing(NAME, &Refusal::Stopped { pid });
    }
    if let Some(group) = freezer::frozen(pid) {
        return lines.fail(NAME, explain::refused(&Refusal::Frozen { pid, group }));
    }
    lines.pass(
        NAME,
        format!("it is not stopped (state {})", char::from(status.state)),
    );
}

/// Reports system call filters.
pub(super) fn seccomp(pid: Pid, status: &Status, lines: &mut Lines) {
    const NAME: &str = "seccomp";
    match status.seccomp {
        0 => lines.pass(NAME, "no filter"),
        1 => lines.forbids_tracing(NAME, &Refusal::Seccomp { pid }),
        _ => lines.note(
            NAME,
            "a filter is active: an attach finds out whether it allows the required calls, since reading it stops a thread",
        ),
    }
}

/// Reports the machine type of the program.
pub(super) fn machine(pid: Pid, tid: Tid, lines: &mut Lines) {
    const NAME: &str = "machine";
    match files::program(tid).map(ElfFile::open) {
        Ok(Ok(_)) => lines.pass(NAME, format!("a program for {}", std::env::consts::ARCH)),
        Ok(Err(error)) => {
            let what = error.to_string();
            lines.forbids_tracing(NAME, &Refusal::Architecture { pid, what });
        }
        Err(why) => lines.cannot_tell(NAME, &why),
    }
}

/// Reports the kind and version of the C library.
pub(super) fn c_library(pid: Pid, modules: &Modules, lines: &mut Lines) {
    const NAME: &str = "C library";
    /// The oldest glibc that our libraries run on (`midair-inject`'s `code`).
    const OLDEST: (u32, u32) = (2, 34);
    let what = match libc_kind::find(modules) {
        Ok(LibcKind::Glibc { version, .. }) if version < OLDEST => {
            return lines.forbids_tracing(NAME, &Refusal::LibcTooOld { pid, version });
        }
        Ok(LibcKind::Glibc {
            version: (major, minor),
            ..
        }) => {
            return lines.pass(NAME, format!("glibc {major}.{minor}"));
        }
        Ok(LibcKind::Musl) => "it runs on musl",
        Ok(LibcKind::Static) => "it is linked statically",
        Ok(LibcKind::Ambiguous) => "it has two C libraries",
        Err(why) => return lines.cannot_tell(NAME, &why),
    };
    lines.forbids_tracing(NAME, &Refusal::LibcKind { pid, what });
}

/// Reports a sanitizer or another runtime that crashes at threads that it did not make.
pub(super) fn managed_threads(pid: Pid, tid: Tid, modules: &Modules, lines: &mut Lines) {
    const NAME: &str = "thread manager";
    let program = files::program(tid).and_then(|program| {
        ElfFile::open(program).map_err(|error| io::Error::other(error.to_string()))
    });
    match program.map(|program| thread_manager(&program, modules)) {
        Ok(Some(by)) => lines.forbids_tracing(NAME, &Refusal::ManagedThreads { pid, by }),
        Ok(None) => lines.pass(
            NAME,
            "none: no sanitizer or translator that crashes on midair's thread",
        ),
        Err(why) => lines.cannot_tell(NAME, &why),
    }
}

/// Reports the runtimes: HIP, HSA and CUDA.
pub(super) fn runtimes(pid: Pid, modules: &Modules, copies: &[String], lines: &mut Lines) {
    const NAME: &str = "runtime";
    let files = |names: &[String]| -> String {
        let named = modules
            .list
            .iter()
            .filter(|module| names.contains(&show(module.file_name())));
        let paths: Vec<String> = named.map(|module| show(&module.path)).collect();
        paths.join(", ")
    };
    let runtimes = Runtimes::of(modules);
    match runtimes.choose(copies, pid) {
        Ok(None) => lines.fail(NAME, not_gpu(pid)),
        Err(failure) => lines.fail(NAME, failure),
        Ok(Some((platform, other))) => {
            let recorded = match platform {
                Platform::Amd => refuse_two_copies(pid, modules).map(|()| files(&runtimes.amd)),
                Platform::Cuda => Ok(files(&runtimes.cuda)),
            };
            let recorded = recorded
                .and_then(|files| refuse_other_namespace(pid, modules, platform).map(|()| files));
            match recorded {
                Ok(found) => lines.pass(NAME, found),
                Err(failure) => lines.fail(NAME, failure),
            }
            if let Some(other) = other {
                lines.note("other runtime", other);
            }
        }
    }
}

/// Reports where the runtimes' dispatch tables are found.
pub(super) fn table_source(modules: &Modules, lines: &mut Lines) {
    let register = modules
        .list
        .iter()
        .filter(|module| {
            module
                .file_name()
                .starts_with(b"librocprofiler-register.so")
        })
        .map(|module| show(&module.path))
        .collect::<Vec<_>>();
    let found = match register.as_slice() {
        [] => "from the runtimes' exported functions: no register library is loaded".to_owned(),
        [one] => format!("from the runtimes' exported functions; {one} is loaded"),
        more => format!(
            "from the runtimes' exported functions; {} register libraries are loaded: {}",
            more.len(),
            more.join(", ")
        ),
    };
    lines.pass("table source", found);
}

/// Libraries of other profilers, and what each means for a midair attach.
const OTHERS: [(&str, &str); 8] = [
    (
        "librocprofiler-sdk-tool.so",
        "a profiler's tool may already record; both work together",
    ),
    (
        "librocprofiler-sdk.so",
        "an SDK of this interface is loaded; both work together",
    ),
    (
        "librocprofiler64v2.so",
        "ROCProfiler v2 may own counters and intercept queues; both see the calls",
    ),
    (
        "librocprofiler64.so",
        "ROCProfiler v1 may intercept queues; both see the calls",
    ),
    (
        "libroctracer64.so",
        "roctracer may record calls, too; both see them",
    ),
    (
        "libcupti.so",
        "CUPTI serves one profiler at a time: if one is active, a CUDA session fails and does not disturb it",
    ),
    (
        "librocm-debug-agent.so",
        "ROCm's debug agent handles queue faults; midair does not touch it",
    ),
    (
        "libomnitrace",
        "Omnitrace wraps calls itself; both see them",
    ),
];

pub(super) fn other_profilers(modules: &Modules, lines: &mut Lines) {
    let mut found = Vec::new();
    for module in &modules.list {
        let file = show(module.file_name());
        // A library that was copied from memory is ours: midair-agent-N.so.
        let other = OTHERS.iter().find(|(name, _)| file.starts_with(name));
        if let Some((_, means)) = other {
            found.push(format!("{}: {means}", show(&module.path)));
        }
    }
    if found.is_empty() {
        lines.pass("other profilers", "none is loaded");
    } else {
        lines.note("other profilers", found.join("; "));
    }
}

/// Reports the namespaces that differ from ours.
pub(super) fn namespaces(tid: Tid, lines: &mut Lines) {
    const NAME: &str = "namespaces";
    const KINDS: [&str; 7] = ["user", "pid", "mnt", "net", "ipc", "uts", "cgroup"];
    let link = |who: &str, kind: &str| kernel_link(format!("{who}/ns/{kind}"));
    let mut other = Vec::new();
    for kind in KINDS {
        match (link("self", kind), link(&tid.to_string(), kind)) {
            (Ok(ours), Ok(theirs)) if ours != theirs => other.push(kind),
            (Ok(_), Err(why)) if why.kind() != io::ErrorKind::NotFound => {
                return lines.cannot_tell(NAME, &why);
            }
            _ => {}
        }
    }
    if other.is_empty() {
        return lines.pass(NAME, "all are ours");
    }
    let mut found = format!("its own: {}", other.join(", "));
    if let Ok(status) = task::status(tid)
        && let [.., inner] = status.ns_tgid.as_slice()
        && status.ns_tgid.len() > 1
    {
        found.push_str(&format!("; its pid there is {inner}"));
    }
    found.push_str(
        "; midair passes its libraries and the spool as descriptors, so no path needs to be visible there",
    );
    lines.note(NAME, found);
}

/// Reports whether the target's clock is the same as ours.
pub(super) fn clock(tid: Tid, lines: &mut Lines) {
    const NAME: &str = "clock";
    const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let source = Place::own_root().and_then(|root| root.read(SOURCE, 4096));
    let source = source.map_or_else(
        |_| "unknown".to_owned(),
        |text| show(&text).trim().to_owned(),
    );
    let link = |who: String| kernel_link(format!("{who}/ns/time"));
    let apart = matches!((link("self".into()), link(tid.to_string())), (Ok(a), Ok(b)) if a != b);
    if apart {
        return lines.note(
            NAME,
            format!("source {source}; it has its own time namespace: times are as it sees them"),
        );
    }
    if source == "tsc" || source == "kvm-clock" || source == "arch_sys_counter" {
        return lines.pass(NAME, format!("source {source}: read without a system call"));
    }
    lines.note(
        NAME,
        format!("source {source}: each reading may be a system call, which makes recording slower"),
    );
}
