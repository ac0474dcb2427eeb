//! The first step of an attach: inspects a process and changes nothing.

use std::io;

use midair_procinfo::access::{self, Access};
use midair_procinfo::elf::ElfFile;
use midair_procinfo::files::{self, Place};
use midair_procinfo::module::Modules;
use midair_procinfo::status::Status;
use midair_procinfo::{Pid, Tid, freezer, show, task};
use midair_ptrace::{Memory, has_pidfds_of_threads, share_memory};
use midair_record::boot::{LOCAL_NAME, SOLE_NAME, THREAD_NAME};

use crate::code::TargetCode;
use crate::error::Refusal;
use crate::managed_threads;
use crate::process_image::{self, ProcessImage};
use crate::worker::{self, Worker};

/// Name of the listener thread that a register library of AMD's scheme (or ours) keeps.
pub const LISTENER_NAME: &str = "rocp-bg-attach";

/// The thread of a session that the process has without an attacher. It is known by its name, which
/// the process can choose. So it tells what to expect, and proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorder {
    /// The thread.
    pub tid: Tid,
    /// True if only tools in the process receive its records. An attach serves these tools as well,
    /// so this session yields to it.
    pub makes_way: bool,
}

/// What was seen of a process.
#[derive(Debug)]
pub struct Inspection {
    /// The process, as this process sees it.
    pub pid: Pid,
    /// A live thread of it, the leader if that lives. Everything is looked up by this thread.
    pub tid: Tid,
    /// Name of that thread.
    pub name: String,
    /// Status of that thread: users, namespaces, seccomp, capabilities.
    pub status: Status,
    /// Whether this process may trace it.
    pub access: Access,
    /// Mappings, programs and libraries.
    pub modules: Modules,
    /// Addresses in its C library.
    pub code: TargetCode,
    /// The worker thread in it, left by an earlier session or busy with one.
    pub worker: Option<Worker>,
    /// The thread of a session without an attacher, if there is one.
    pub recorder: Option<Recorder>,
    /// The listener thread, if it has one.
    pub listener: Option<Tid>,
    /// The start time of the process since boot, in clock ticks. Together with the pid, it
    /// identifies one process for good.
    pub start_ticks: u64,
    /// Identifies the process later.
    pub(crate) image: ProcessImage,
}

/// How often a process is inspected again if it became another program during the inspection.
const EXECUTIONS: usize = 8;

/// Inspects the process of `pid` (any thread id of it will do).
///
/// # Errors
/// A [`Refusal`]: why it cannot be entered.
pub fn inspect(pid: Pid) -> Result<Inspection, Refusal> {
    inspect_within(pid, EXECUTIONS, Purpose::Load)
}

/// Inspects a process in which nothing is to be loaded any more, only unmapped.
///
/// # Errors
/// As [`inspect`].
pub(crate) fn inspect_to_unmap(pid: Pid) -> Result<Inspection, Refusal> {
    inspect_within(pid, EXECUTIONS, Purpose::Unmap)
}

/// What a process is inspected for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// A library is loaded, by its path in the process's own `/proc`.
    Load,
    /// Our memory is unmapped, which takes no path.
    Unmap,
}

fn inspect_within(pid: Pid, executions: usize, purpose: Purpose) -> Result<Inspection, Refusal> {
    let mut seen = 0;
    loop {
        let (looked, image) = inspect_once(pid, purpose);
        // True if what was read first belongs to another program than what was read last.
        let replaced = image.is_some_and(|image| image.was_replaced());
        match looked {
            Err(Refusal::Unreadable { .. } | Refusal::Architecture { .. })
                if replaced && seen >= executions =>
            {
                return Err(Refusal::Restless { pid });
            }
            // A program that has only just started still maps its libraries, and unmaps the parts
            // that they do not need.
            Err(Refusal::Unreadable { .. }) if seen < executions => seen += 1,
            Err(_) if replaced && seen < executions => seen += 1,
            looked => return looked,
        }
    }
}

/// Inspects the process once. Also returns the program that was seen first, if one was.
fn inspect_once(pid: Pid, purpose: Purpose) -> (Result<Inspection, Refusal>, Option<ProcessImage>) {
    match First::of(pid) {
        Ok(first) => {
            let image = first.image.clone();
            (first.inspect(purpose), Some(image))
        }
        Err(refusal) => (Err(refusal), None),
    }
}

/// What is known of a process before its program is inspected.
struct First {
    pid: Pid,
    tid: Tid,
    comm: Vec<u8>,
    status: Status,
    access: Access,
    image: ProcessImage,
}

impl First {
    /// Inspects a process, and refuses one that must not be entered whatever its program is.
    fn of(pid: Pid) -> Result<First, Refusal> {
        let gone = gone(pid);
        let first = task::stat(pid).map_err(gone)?;
        if first.is_kernel_thread() {
            return Err(Refusal::KernelThread {
                pid,
                name: show(&first.comm),
            });
        }
        let Some(tid) = task::live(pid).map_err(gone)? else {
            return Err(Refusal::Zombie { pid });
        };
        let mut tid = tid;
        let mut status = task::status(tid).map_err(gone)?;
        let pid = status.tgid.unwrap_or(pid);
        // Any thread's id names its process here. What matters is whether the first thread lives.
        if tid != pid.leader() && !task::is_alive(pid.leader()) && !has_pidfds_of_threads() {
            if process_image::leader_ended_alone(pid) {
                return Err(Refusal::LeaderEnded { pid });
            }
            // A thread that executed another program has the first thread's id by now.
            tid = pid.leader();
            status = task::status(tid).map_err(gone)?;
            if !task::is_alive(tid) {
                return Err(Refusal::Zombie { pid });
            }
        }
        let access = access::look(tid).map_err(gone)?;
        if access.ending || (!access.allowed && !task::is_alive(tid)) {
            return Err(Refusal::Zombie { pid });
        }
        if !access.allowed {
            let (why, hint) = access.why_not();
            return Err(Refusal::NotPermitted { pid, why, hint });
        }
        if let Some(by) = status.tracer {
            let name = task::comm(by).map_or_else(|_| "unknown".into(), |name| show(&name));
            return Err(Refusal::Traced { pid, by, name });
        }
        if matches!(status.state, b'T' | b't') {
            return Err(Refusal::Stopped { pid });
        }
        if let Some(group) = freezer::frozen(tid) {
            return Err(Refusal::Frozen { pid, group });
        }
        if let Some(parent) = status.parent
            && share_memory(pid, parent) == Some(true)
        {
            return Err(Refusal::SharesMemory { pid, with: parent });
        }
        if status.seccomp == 1 {
            return Err(Refusal::Seccomp { pid });
        }
        Ok(First {
            pid,
            tid,
            comm: first.comm,
            image: ProcessImage::of(pid, tid, &status),
            status,
            access,
        })
    }

    /// Inspects the program, which may be replaced by another one meanwhile.
    fn inspect(self, purpose: Purpose) -> Result<Inspection, Refusal> {
        let First {
            pid,
            tid,
            comm,
            status,
            access,
            image,
        } = self;
        let exe = files::program(tid).map_err(|source| Refusal::Unreadable {
            pid,
            what: "the program".into(),
            source,
        })?;
        let program = ElfFile::open(exe).map_err(|error| Refusal::Architecture {
            pid,
            what: error.to_string(),
        })?;
        let modules = Modules::of(tid).map_err(|source| Refusal::Unreadable {
            pid,
            what: "the mappings".into(),
            source,
        })?;
        let memory = modules.memory();
        let code = TargetCode::find(pid, &modules, memory)?;
        if let Some(by) = managed_threads::find(&program, &modules) {
            return Err(Refusal::ManagedThreads { pid, by });
        }
        let start_ticks = task::stat(tid).map_err(gone(pid))?.start_ticks;
        if purpose == Purpose::Load
            && let Some(what) = blind(tid, &status, start_ticks)
        {
            return Err(Refusal::NoProc { pid, what });
        }
        let names: Vec<(Tid, Vec<u8>)> = task::list(tid)
            .map_err(gone(pid))?
            .into_iter()
            .filter_map(|tid| Some((tid, task::comm(tid).ok()?)))
            .collect();
        let named = |name: &'static str| {
            let named = names.iter().filter(|(_, it)| it == name.as_bytes());
            named.map(|(tid, _)| *tid)
        };
        let listener = named(LISTENER_NAME).next();
        let worker = worker::find(memory, named(THREAD_NAME));
        let recorder = [(SOLE_NAME, false), (LOCAL_NAME, true)]
            .into_iter()
            .find_map(|(name, makes_way)| {
                let tid = named(name).next()?;
                Some(Recorder { tid, makes_way })
            });
        Ok(Inspection {
            pid,
            tid,
            name: show(&comm),
            status,
            access,
            modules,
            code,
            worker,
            recorder,
            listener,
            start_ticks,
            image,
        })
    }
}

/// Returns a function that tells what an error at a file of the process means.
fn gone(pid: Pid) -> impl Fn(io::Error) -> Refusal + Copy {
    move |error| match error.kind() {
        io::ErrorKind::NotFound => Refusal::NoProcess { pid },
        _ if error.raw_os_error() == Some(ESRCH) => Refusal::NoProcess { pid },
        _ => Refusal::Unreadable {
            pid,
            what: "the state".into(),
            source: error,
        },
    }
}

const ESRCH: i32 = 3;

/// Returns what prevents loading `/proc/self/fd/N`, if anything does: a root without /proc, or one
/// with the /proc of another pid namespace, as in a process that joined only the mounts of a
/// container.
fn blind(tid: Tid, status: &Status, start_ticks: u64) -> Option<&'static str> {
    // Where the root cannot be inspected, only the load itself can tell.
    let root = Place::root_of(tid).ok()?;
    let proc = match root.processes_at("proc") {
        Ok(proc) => proc,
        Err(error) => {
            let missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
            let empty = root.find("proc/self").is_err_and(|error| missing(&error));
            return match error.kind() {
                io::ErrorKind::NotFound => Some("none is mounted in its root"),
                io::ErrorKind::Unsupported if empty => Some("none is mounted in its root"),
                io::ErrorKind::Unsupported => Some("what is in its root is not the kernel's"),
                _ => None,
            };
        }
    };
    let shown = status.ns_tgid.iter().any(|inside| {
        proc.text(&format!(
            "{inside}/task/{}/stat",
            thread_in(status, *inside)
        ))
        .ok()
        .and_then(|text| midair_procinfo::stat::parse(&text))
        .is_some_and(|stat| stat.start_ticks == start_ticks)
    });
    (!shown && !status.ns_tgid.is_empty())
        .then_some("the one in its root is of another pid namespace")
}

/// Returns the id of the thread of `status` in the pid namespace where its process has the id
/// `process`.
fn thread_in(status: &Status, process: Pid) -> Tid {
    let level = status.ns_tgid.iter().position(|&tgid| tgid == process);
    level
        .and_then(|level| status.ns_pid.get(level))
        .copied()
        .unwrap_or(process.leader())
}

impl Inspection {
    /// Reads the mappings again, and returns the inspection with them if they have changed. What
    /// the decision to enter rests on, above all the program and its rights, stays as it was
    /// inspected first.
    pub(crate) fn with_new_mappings(&self) -> Option<Inspection> {
        let modules = self.modules.again().ok()??;
        let libc = self.modules.list.get(self.code.module)?;
        let module = modules.position_of(libc)?;
        Some(Inspection {
            name: self.name.clone(),
            status: self.status.clone(),
            access: self.access.clone(),
            modules,
            code: TargetCode {
                module,
                ..self.code.clone()
            },
            image: self.image.clone(),
            ..*self
        })
    }

    /// The target's memory.
    pub fn memory(&self) -> Memory {
        self.modules.memory().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// A process lost its `/proc` in a session. Where the worker thread could not unmap our memory
    /// itself (Linux before 5.13, aarch64), it stayed: no thread was borrowed for that.
    // Under the emulator of aarch64 there are no programs to inspect.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn what_is_in_a_process_without_proc_can_be_unmapped() {
        if !midair_tests::is_root_for("to unmount a process's /proc").unwrap() {
            return;
        }
        let mut child = Command::new("unshare")
            .args(["-m", "sh", "-ec", "umount -l /proc; exec sleep 60"])
            .spawn()
            .unwrap();
        let pid = Pid::new(child.id()).unwrap();
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let refusal = loop {
            match inspect(pid) {
                Err(refusal @ Refusal::NoProc { .. }) => break Some(refusal),
                _ if std::time::Instant::now() > limit => break None,
                _ => std::thread::yield_now(),
            }
        };
        let looked = inspect_to_unmap(pid);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(refusal.is_some(), "it was not refused");
        assert!(looked.is_ok(), "{:?}", looked.err());
    }

    /// A shell that becomes itself 300 times, as fast as it can, and then `sleep`.
    #[test]
    fn a_process_that_becomes_other_programs_is_not_called_unreadable() {
        let again = "[ $1 = 0 ] && exec sleep 60; exec sh -c \"$0\" \"$0\" $(($1 - 1))";
        let mut child = Command::new("sh")
            .args(["-c", again, again, "300"])
            .spawn()
            .unwrap();
        let pid = Pid::new(child.id()).unwrap();
        let mut unreadable = Vec::new();
        let mut tries = [1, EXECUTIONS].into_iter().cycle();
        let slept = loop {
            let sleeps = task::comm(pid.leader()).is_ok_and(|name| name == b"sleep");
            // On a machine that is slow enough, no try is in time. The refusal then says so.
            let looked = inspect_within(pid, tries.next().unwrap(), Purpose::Load);
            if let Err(refusal @ (Refusal::Unreadable { .. } | Refusal::Architecture { .. })) =
                &looked
            {
                unreadable.push(refusal.to_string());
            }
            match child.try_wait().unwrap() {
                None if sleeps && looked.is_ok() => break true,
                None => {}
                Some(_) => break false,
            }
        };
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(unreadable.is_empty(), "{unreadable:?}");
        assert!(slept, "the shell failed");
    }
}
