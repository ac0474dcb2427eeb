//! Finds the processes that use a GPU runtime, in one cheap pass over `/proc` that touches no
//! process. Each process has a deadline.

use crate::answer;
use midair_failure::Failure;
use midair_procinfo::files::{self, kernel_list, kernel_text};
use midair_procinfo::{Pid, maps, show, task};
use std::path::PathBuf;

/// The file names of the runtimes' libraries, without their versions.
const LIBRARIES: [(&str, RuntimeKind); 3] = [
    ("libamdhip64", RuntimeKind::Hip),
    ("libhsa-runtime64", RuntimeKind::Hsa),
    ("libcuda", RuntimeKind::Cuda),
];

/// Which runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuntimeKind {
    /// HIP: `libamdhip64`.
    Hip,
    /// HSA: `libhsa-runtime64`.
    Hsa,
    /// CUDA's driver library: `libcuda`.
    Cuda,
}

impl RuntimeKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            RuntimeKind::Hip => "HIP",
            RuntimeKind::Hsa => "HSA",
            RuntimeKind::Cuda => "CUDA",
        }
    }
}

/// A runtime's library that is mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runtime {
    /// Which runtime it is.
    pub kind: RuntimeKind,
    /// What follows `.so.` in the name of the mapped file, such as `7.2.70204`, or nothing. For CUDA it is
    /// the driver's version.
    pub version: String,
    /// Path of the mapped file, in the process's own mount namespace.
    pub path: PathBuf,
    /// Whether the file has been deleted or replaced since.
    pub deleted: bool,
}

/// A process as the scan saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its id.
    pub pid: Pid,
    /// Its parent, or none when the parent is outside our pid namespace.
    pub parent: Option<Pid>,
    /// Its start in clock ticks since boot. Together with the pid it identifies one process for
    /// good.
    pub start_ticks: u64,
    /// Real, effective and saved user id. A set-uid program has its starter's first, and its file's owner's next.
    pub uids: [u32; 3],
    /// Name of its leading thread.
    pub name: String,
    /// Command line, its words separated by spaces; empty for a zombie or a kernel thread.
    pub command: String,
    /// GPU runtimes that are mapped, recognized by file name; each library once.
    pub runtimes: Vec<Runtime>,
    /// Whether its mappings could be read. If not, nothing is known of its runtimes: it belongs to
    /// another user, or may not be inspected.
    pub readable: bool,
}

impl Found {
    /// Whether it has a GPU runtime.
    pub fn uses_a_gpu(&self) -> bool {
        !self.runtimes.is_empty()
    }

    /// Returns the name and the number, for messages.
    pub fn label(&self) -> String {
        format!("process {} ({})", self.pid, self.name)
    }
}

/// Returns the process that a caller names by this number.
///
/// # Errors
/// [`midair_failure::Kind::NoProcess`] for a number that no process can have.
pub fn named(number: u32) -> Result<Pid, Failure> {
    Pid::new(number).ok_or_else(|| crate::explain::no_process(number))
}

/// Returns every process that has mapped a GPU runtime, by ascending number. Processes whose
/// mappings may not be read are left out; [`processes`] includes them.
pub fn gpu_processes() -> Vec<Found> {
    let mut found = processes();
    found.retain(Found::uses_a_gpu);
    found
}

/// Returns every running process except kernel threads, zombies and this one, by ascending number.
/// A process that does not answer counts as one that cannot be read.
pub fn processes() -> Vec<Found> {
    let mut all = scan();
    all.found.extend(all.silent);
    all.found.sort_by_key(|process| process.pid);
    all.found
}

/// The processes at one moment.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// Processes that answered, by ascending number.
    pub(crate) found: Vec<Found>,
    /// Processes that did not answer. Only what the kernel tells without their help is known of
    /// them.
    pub(crate) silent: Vec<Found>,
}

/// Scans every running process except kernel threads, zombies and this one.
pub(crate) fn scan() -> Scan {
    let mut all = pids();
    all.retain(|&pid| pid != Pid::own());
    all.sort();
    let mut scan = Scan::default();
    for (pid, answer) in all.iter().zip(answer::each(&all, answer::LIMIT, process)) {
        match answer {
            Some(process) => scan.found.extend(process),
            None => scan.silent.extend(silent(*pid)),
        }
    }
    scan
}

/// Returns what is known of a process that does not answer, or None when there is no such process.
pub(crate) fn silent(pid: Pid) -> Option<Found> {
    let stat = task::stat(pid).ok()?;
    Some(Found {
        pid,
        parent: stat.parent,
        start_ticks: stat.start_ticks,
        uids: uids(&task::status(pid).ok()?),
        name: show(&stat.comm),
        command: String::new(),
        readable: false,
        runtimes: Vec::new(),
    })
}

/// Returns the real, effective and saved user id.
fn uids(status: &midair_procinfo::status::Status) -> [u32; 3] {
    let [real, effective, saved, _] = status.uid;
    [real, effective, saved]
}

/// Returns all process numbers in `/proc` at this moment.
pub(crate) fn pids() -> Vec<Pid> {
    kernel_list(".")
        .unwrap_or_default()
        .into_iter()
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect()
}

/// Returns one process, or `None` when it does not exist, is a kernel thread or a thread, or has ended.
pub fn process(pid: Pid) -> Option<Found> {
    let stat = task::stat(pid).ok()?;
    // The main thread may have ended while other threads run on. The mappings are then read through
    // another thread.
    let live = task::live(pid).ok()??;
    if stat.is_kernel_thread() {
        return None;
    }
    let status = task::status(live).ok()?;
    // A thread has a directory in /proc as well.
    if status.tgid.is_some_and(|of| of != pid) {
        return None;
    }
    let maps = kernel_text(format!("{live}/maps"));
    Some(Found {
        pid,
        parent: stat.parent,
        start_ticks: stat.start_ticks,
        uids: uids(&status),
        name: show(&stat.comm),
        command: files::words(live, "cmdline").join(" "),
        readable: maps.is_ok(),
        runtimes: maps.map(|text| runtimes(&text)).unwrap_or_default(),
    })
}

/// Returns one process as [`process`] does, within a deadline.
///
/// # Errors
/// [`midair_failure::Kind::NoAnswer`] when it does not answer in time.
pub fn asked(pid: Pid) -> Result<Option<Found>, Failure> {
    answer::within(pid, answer::LIMIT, move || process(pid))
}

/// Returns the path of a process's cgroup, as this side's hierarchy has it: of version 2 where there is
/// one, or else of the first controller.
pub fn cgroup(pid: Pid) -> Option<String> {
    let text = files::kernel_words(format!("{pid}/cgroup")).ok()?;
    let mut paths = text.lines().filter_map(|line| {
        let (number, rest) = line.split_once(':')?;
        Some((number, rest.split_once(':')?.1))
    });
    let first = paths.clone().next();
    let second = paths.find(|(number, _)| *number == "0");
    second.or(first).map(|(_, path)| path.to_owned())
}

/// Returns the runtimes in the text of `/proc/PID/maps`.
fn runtimes(text: &[u8]) -> Vec<Runtime> {
    let mut found: Vec<Runtime> = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        // Most lines are not of libraries, so the file name is compared before the line is parsed.
        let Some(slash) = line.iter().rposition(|byte| *byte == b'/') else {
            continue;
        };
        let file = &line[slash + 1..];
        let Some((name, kind)) = LIBRARIES
            .iter()
            .find(|(name, _)| file.starts_with(name.as_bytes()))
        else {
            continue;
        };
        let Some(mapping) = maps::line(line).filter(maps::Mapping::is_file) else {
            continue;
        };
        let path = PathBuf::from(show(&mapping.path));
        let rest = path
            .file_name()
            .map(|file| file.to_string_lossy().into_owned())
            .and_then(|file| file.strip_prefix(name).map(str::to_owned))
            .unwrap_or_default();
        // Accepts libamdhip64.so and libamdhip64.so.7.2.70204, but not libamdhip64_something.so, which is
        // another library.
        let Some(version) = rest.strip_prefix(".so") else {
            continue;
        };
        if found.iter().any(|runtime| runtime.path == path) {
            continue;
        }
        found.push(Runtime {
            kind: *kind,
            version: version.trim_start_matches('.').to_owned(),
            path,
            deleted: mapping.deleted,
        });
    }
    found.sort_by_key(|runtime| runtime.kind);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_are_told_by_their_names() {
        let text =
            b"7f00-7f01 r--p 00000000 fe:01 12 /opt/rocm/lib/libhsa-runtime64.so.1.18.70204\n\
            7f01-7f02 r-xp 00001000 fe:01 12 /opt/rocm/lib/libhsa-runtime64.so.1.18.70204\n\
            7f02-7f03 r-xp 00001000 fe:01 13 /x y/libamdhip64.so.7 (deleted)\n\
            7f03-7f04 r-xp 00001000 fe:01 14 /x/libamdhip64_extras.so\n\
            7f04-7f05 r-xp 00000000 fe:01 15 /y/libcuda.so.580.95.05\n\
            7f04-7f05 r-xp 00000000 fe:01 16 /y/libcudart.so.12\n\
            7f04-7f05 r-xp 00000000 fe:01 17 /y/libcudadebugger.so.1\
            7f05-7f06 rw-p 00000000 00:00 0 [heap]\n";
        let found = runtimes(text);
        assert_eq!(found.len(), 3);
        assert_eq!(
            (found[2].kind, found[2].version.as_str()),
            (RuntimeKind::Cuda, "580.95.05")
        );
        assert_eq!(found[0].kind, RuntimeKind::Hip);
        assert_eq!(found[0].version, "7");
        assert_eq!(found[0].path, PathBuf::from("/x y/libamdhip64.so.7"));
        assert!(found[0].deleted && !found[1].deleted);
        assert_eq!(found[1].version, "1.18.70204");
    }

    /// Only root can make a program whose owner another user is.
    #[test]
    fn a_set_uid_program_has_the_users_of_both() {
        use std::os::unix::fs::{PermissionsExt, chown};
        let own = task::status(Pid::own()).unwrap().uid;
        assert_eq!(process(Pid::own()).unwrap().uids, own[..3]);
        if own[1] != 0 {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("sleep");
        std::fs::copy("/bin/sleep", &program).unwrap();
        chown(&program, Some(65_534), None).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
        let mut child = std::process::Command::new(&program)
            .arg("60")
            .spawn()
            .unwrap();
        let uids = process(Pid::of_child(&child)).unwrap().uids;
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(uids, [own[0], 65_534, 65_534]);
    }

    #[test]
    fn we_are_a_process_without_a_runtime() {
        let us = process(Pid::own()).unwrap();
        assert!(us.readable && !us.uses_a_gpu() && us.start_ticks > 0);
        assert!(us.command.contains("midair_session"), "{}", us.command);
        assert_eq!(us.parent, Pid::new(std::os::unix::process::parent_id()));
        assert!(process(Pid::new(2).unwrap()).is_none_or(|two| two.name != "kthreadd"));
        assert!(processes().iter().all(|process| process.pid != us.pid));
    }
}
