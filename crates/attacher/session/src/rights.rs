//! Decides which rights count: the rights of the person who runs this program, not those that a
//! set-uid bit or file capabilities add.
//!
//! A tool library runs in the target with the target's rights. One that the caller chose is used
//! only where the target has no right that the caller lacks ([`exceeding`]). Otherwise it must be a
//! file that root owns and no other user can change ([`trusted`]). Output files are written with
//! the real user's permissions ([`as_real_user`]).

use midair_failure::{Failure, Kind};
use midair_procinfo::dumpable::is_dumpable;
use midair_procinfo::files::kernel_text;
use midair_procinfo::status::Status;
use midair_procinfo::{Pid, Tid, task};
use midair_ptrace::sys;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};

/// Whether starting this program gave it rights that its user lacks, through set-uid, set-gid or
/// file capabilities. The kernel reports this (`AT_SECURE`, see getauxval(3)). Inherited
/// capabilities (root's, ambient ones) are the user's own.
pub(crate) fn is_privileged() -> bool {
    sys::is_secure()
}

/// The caller's real rights.
#[derive(Debug, Clone)]
struct Caller {
    uid: u32,
    groups: Vec<u32>,
    capabilities: u64,
}

impl Caller {
    fn of(us: &Status, privileged: bool) -> Caller {
        let mut groups = us.groups.clone();
        groups.push(us.gid[0]);
        // Root's capabilities are all its own. In a program with added rights, only the inherited
        // (ambient) ones are the user's.
        let capabilities = if privileged && us.uid[0] != 0 {
            us.cap_ambient
        } else {
            us.cap_permitted
        };
        Caller {
            uid: us.uid[0],
            groups,
            capabilities,
        }
    }

    /// Returns the first right of the target that the caller lacks, in words.
    fn lacks(&self, target: &Status) -> Option<String> {
        let beyond = target.cap_permitted & !self.capabilities;
        if self.uid != 0 {
            if let Some(uid) = target.uid.iter().find(|uid| **uid != self.uid) {
                return Some(format!(
                    "it runs as user {uid}, and you are user {}",
                    self.uid
                ));
            }
            let mut groups = target.gid.iter().chain(&target.groups);
            if let Some(gid) = groups.find(|gid| !self.groups.contains(gid)) {
                return Some(format!("it is in group {gid} and you are not"));
            }
        }
        (beyond != 0).then(|| format!("it has capabilities that you lack ({beyond:#x})"))
    }
}

/// Returns in words the first right that a process has and the person who runs this lacks, or None
/// when there is none. `tid` is a live thread of the process.
///
/// # Errors
/// The kernel's, when the status of either cannot be read.
pub(crate) fn exceeding(tid: Tid) -> io::Result<Option<String>> {
    let us = task::status(Pid::own())?;
    Ok(Caller::of(&us, is_privileged()).lacks(&task::status(tid)?))
}

/// Returns why a process that protects itself (set-uid, set-gid, file capabilities, or not dumpable at
/// its own request) may not be entered by this caller, who is not root. The kernel itself would accept
/// CAP_SYS_PTRACE alone. None where the process may be entered.
pub(crate) fn protected(tid: Tid) -> Option<Failure> {
    protected_from(sys::real_ids().0, tid)
}

/// Returns why this user may not enter such a process.
fn protected_from(user: u32, tid: Tid) -> Option<Failure> {
    if user == 0 {
        return None;
    }
    let target = task::status(tid).ok()?;
    let pid = target.tgid.map_or(tid, Pid::leader);
    let refused = |what: &str| {
        let what = format!("cannot enter process {pid}: it {what}");
        Failure::new(Kind::NotPermitted, what).hint("run this as root")
    };
    if is_raised(target.uid) {
        return Some(refused("runs a set-uid program"));
    }
    if is_raised(target.gid) {
        return Some(refused("runs a set-gid program"));
    }
    // A program that raised its rights can give up the ids and make itself dumpable again.
    if kernel_text(format!("{tid}/auxv")).is_ok_and(|words| is_secure(&words) == Some(true)) {
        return Some(refused(
            "started with privileges that its user lacks (set-uid, set-gid, file capabilities)",
        ));
    }
    match is_dumpable(tid, &target) {
        Some(true) => None,
        Some(false) => Some(refused(
            "is not dumpable: it has privileges that its user lacks, or has called prctl",
        )),
        // Without capabilities the kernel's own check decides.
        None if !traces_others() => None,
        None => Some(refused(
            "belongs to root, and only Linux 6.16 and later show whether such a process is dumpable",
        )),
    }
}

/// Whether this program may trace processes of other users.
pub fn traces_others() -> bool {
    const SYS_PTRACE: u64 = 1 << 19;
    task::status(Pid::own()).is_ok_and(|us| us.cap_permitted & SYS_PTRACE != 0)
}

/// Whether the kernel started the program with more rights than its user's (`AT_SECURE` of its
/// auxiliary vector, of a 64-bit program or of a 32-bit one). None if the vector has no such entry.
fn is_secure(auxv: &[u8]) -> Option<bool> {
    const AT_SECURE: u64 = 23;
    let word = |bytes: &[u8]| {
        let digits = bytes.iter().rev();
        digits.fold(0_u64, |word, byte| word << 8 | u64::from(*byte))
    };
    let said = |width: usize| {
        let mut pairs = auxv.chunks_exact(2 * width);
        let found = pairs.find_map(|pair| {
            let (name, value) = pair.split_at(width);
            (word(name) == AT_SECURE).then(|| word(value))
        });
        found.filter(|value| *value <= 1).map(|value| value == 1)
    };
    said(8).or_else(|| said(4))
}

/// Whether a process has, or can take again, another user's or group's rights: real, effective, saved
/// and file system id.
fn is_raised([real, effective, saved, _]: [u32; 4]) -> bool {
    real != effective || real != saved
}

/// How a directory on the way to a file is opened.
const DIRECTORY: i32 = libc::O_PATH | libc::O_DIRECTORY;
/// How the file is opened: opening a pipe must not block.
const FILE: i32 = libc::O_RDONLY | libc::O_NONBLOCK;

/// Opens a file that root owns and no other user can change, and that lies below directories for
/// which the same holds. The opened file is the one that was checked, because each step starts from
/// the descriptor of the directory that was checked.
///
/// # Errors
/// Permission denied, with what is wrong and where; or the kernel's error.
pub(crate) fn trusted(path: &Path) -> io::Result<File> {
    let refused = |at: &Path, why: &str| {
        io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{} {why}", at.display()),
        )
    };
    if !path.is_absolute() {
        return Err(refused(path, "is a relative path"));
    }
    // Links are followed here. The walk below follows none, so it notices a component that has
    // become a link since.
    let path = std::fs::canonicalize(path)?;
    let mut at = std::path::PathBuf::from("/");
    let mut here = open_at(None, OsStr::new("/"), DIRECTORY)?;
    let names: Vec<&OsStr> = path
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .collect();
    for (index, name) in names.iter().enumerate() {
        // The entry inside is the file itself or another directory.
        let holds_a_directory = index + 1 < names.len();
        check(&here, holds_a_directory).map_err(|why| refused(&at, why))?;
        at.push(name);
        let flags = if holds_a_directory { DIRECTORY } else { FILE };
        here = open_at(Some(&here), name, flags)?;
    }
    check(&here, false).map_err(|why| refused(&at, why))?;
    if !here.metadata()?.is_file() {
        return Err(refused(&at, "is not a regular file"));
    }
    Ok(here)
}

/// Checks one step of the path. In a sticky directory (/tmp) only owners may rename or remove
/// entries, so root's directories stay in place there. A file there may have further hard links
/// that another user made.
fn check(file: &File, holds_a_directory: bool) -> Result<(), &'static str> {
    let Ok(meta) = file.metadata() else {
        return Err("cannot be inspected");
    };
    if meta.uid() != 0 {
        return Err("does not belong to root");
    }
    // With an access control list these bits are its mask, so they cover the list.
    let sticky = meta.is_dir() && holds_a_directory && meta.mode() & 0o1000 != 0;
    if meta.mode() & 0o022 != 0 && !sticky {
        return Err("can be changed by users other than root");
    }
    Ok(())
}

fn open_at(directory: Option<&File>, name: &OsStr, flags: i32) -> io::Result<File> {
    let name = CString::new(name.as_bytes())?;
    sys::open_at(directory, &name, flags)
}

/// Runs `work` on this thread, and on threads that it starts, with the real user's file permissions where
/// starting this program gave it others.
///
/// # Errors
/// When the permissions cannot be dropped; then `work` has not run.
pub fn as_real_user<T>(work: impl FnOnce() -> T) -> io::Result<T> {
    midair_ptrace::with_own_rights(work)
}

/// Returns the failure for rights that cannot be dropped: files would be written with the rights
/// that starting this program gave.
pub(crate) fn cannot_drop(error: &io::Error) -> Failure {
    Failure::new(
        Kind::Output,
        format!("cannot drop midair's additional privileges: {error}"),
    )
    .hint("remove its set-uid bit or file capabilities")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::script::{Ended, begun, family, of_shape};
    use midair_procinfo::dumpable::seems_dumpable;
    use std::process::Command;

    fn status(uid: [u32; 4], gid: u32, groups: &[u32], permitted: u64) -> Status {
        Status {
            uid,
            gid: [gid; 4],
            groups: groups.to_vec(),
            cap_permitted: permitted,
            ..Status::default()
        }
    }

    #[test]
    fn rights_that_the_caller_has_not() {
        let somebody = status([1000; 4], 1000, &[44, 109], 0);
        let caller = |us: &Status| Caller::of(us, false);
        let me = caller(&somebody);
        assert_eq!(me.lacks(&somebody), None);
        assert_eq!(me.lacks(&status([1000; 4], 44, &[], 0)), None);
        for (target, word) in [
            (status([1001; 4], 1000, &[], 0), "user 1001"),
            (status([1000, 0, 0, 0], 1000, &[], 0), "user 0"),
            (status([1000, 1000, 1001, 1000], 1000, &[], 0), "user 1001"),
            (status([1000; 4], 0, &[], 0), "group 0"),
            (status([1000; 4], 1000, &[44, 27], 0), "group 27"),
            (status([1000; 4], 1000, &[], 1 << 19), "capabilities"),
        ] {
            let why = me.lacks(&target).unwrap_or_default();
            assert!(why.contains(word), "{word}: {why:?}");
        }
        // Real root has the rights of every user, but only the capabilities that were left to it.
        let root = caller(&status([0; 4], 0, &[], 0xff));
        assert_eq!(root.lacks(&status([1000; 4], 1000, &[27], 0x0f)), None);
        assert!(root.lacks(&status([0; 4], 0, &[], 0x1ff)).is_some());
    }

    #[test]
    fn what_a_file_adds_is_not_the_callers() {
        let mut raised = status([1000; 4], 1000, &[], 1 << 19);
        let target = raised.clone();
        assert_eq!(Caller::of(&raised, false).lacks(&target), None);
        assert!(Caller::of(&raised, true).lacks(&target).is_some());
        raised.cap_ambient = 1 << 19;
        assert_eq!(Caller::of(&raised, true).lacks(&target), None);
        // Set-uid root: the effective user does not count.
        let set_uid = status([1000, 0, 0, 0], 1000, &[], u64::MAX);
        assert!(
            Caller::of(&set_uid, true)
                .lacks(&status([0; 4], 0, &[], 0))
                .is_some()
        );
    }

    #[test]
    fn only_roots_files_on_roots_ways_are_trusted() {
        // The C library's loader belongs to root on every system that runs programs.
        let loader = std::fs::read("/proc/self/maps").unwrap();
        let loader = midair_procinfo::maps::parse(&loader)
            .into_iter()
            .find(|mapping| mapping.path.windows(8).any(|part| part == b"/ld-linu"))
            .unwrap();
        let loader = std::path::PathBuf::from(OsStr::from_bytes(&loader.path));
        if loader.metadata().unwrap().uid() == 0 {
            let opened = trusted(&loader).unwrap();
            assert_eq!(
                opened.metadata().unwrap().ino(),
                loader.metadata().unwrap().ino()
            );
        }
        let said = |path: &Path| trusted(path).unwrap_err().to_string();
        assert!(said(Path::new("lib/x.so")).contains("relative"));
        // Below a sticky directory that everybody may write to.
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let file = dir.path().join("x.so");
        std::fs::write(&file, "x").unwrap();
        if dir.path().metadata().unwrap().uid() == 0 {
            assert!(trusted(&file).is_ok());
        } else {
            assert!(said(&file).contains("does not belong to root"));
        }
        // Directly in such a directory, or below one whose entries everybody may rename.
        let in_tmp = tempfile::Builder::new().tempfile_in("/tmp").unwrap();
        assert!(said(in_tmp.path()).contains("/tmp "));
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(dir.path(), open).unwrap();
        assert!(!said(&file).is_empty());
        assert!(said(Path::new("/proc")).contains("not a regular file"));
    }

    #[test]
    fn what_the_kernel_says_of_a_program_is_read() {
        let auxv = |width: usize, pairs: &[(u64, u64)]| -> Vec<u8> {
            let words = pairs.iter().flat_map(|(name, value)| [name, value]);
            words
                .flat_map(|word| word.to_le_bytes()[..width].to_vec())
                .collect()
        };
        for width in [8, 4] {
            for (secure, wanted) in [(0, Some(false)), (1, Some(true))] {
                let words = auxv(
                    width,
                    &[(33, 0x7fff), (6, 4096), (23, secure), (31, 7), (0, 0)],
                );
                assert_eq!(is_secure(&words), wanted, "{width}");
            }
            assert_eq!(is_secure(&auxv(width, &[(6, 4096), (0, 0)])), None);
        }
        assert_eq!(is_secure(&[]), None);
        assert_eq!(
            is_secure(&std::fs::read("/proc/self/auxv").unwrap()),
            Some(false)
        );
    }

    #[test]
    fn a_saved_user_is_a_right_too() {
        assert!(!is_raised([1000; 4]));
        assert!(is_raised([1000, 0, 0, 0]));
        assert!(is_raised([1000, 1000, 0, 1000]));
        let me = Caller::of(&status([1000; 4], 1000, &[], 0), false);
        let saved = status([1000, 1000, 0, 1000], 1000, &[], 0);
        assert!(me.lacks(&saved).is_some_and(|why| why.contains("user 0")));
        let mut group = status([1000; 4], 1000, &[], 0);
        group.gid = [1000, 1000, 0, 1000];
        assert!(me.lacks(&group).is_some_and(|why| why.contains("group 0")));
    }

    /// Root enters them. Others do not, whatever capabilities they have.
    #[test]
    fn a_process_that_protects_itself_is_for_root_alone() {
        for (shape, why) in [
            ("open", None),
            ("closed", Some("is not dumpable")),
            ("raised", Some("runs a set-uid program")),
            ("group", Some("runs a set-gid program")),
            ("own", None),
            ("hidden", Some("is not dumpable")),
        ] {
            if ["raised", "group"].contains(&shape) && sys::real_ids().0 != 0 {
                // Only root can give a process two users or groups.
                continue;
            }
            let (one, _) = of_shape(&family()[0], shape);
            let tid = one.pid().leader();
            assert!(protected_from(0, tid).is_none(), "{shape}");
            let refused = protected_from(1000, tid);
            assert_eq!(refused.is_some(), why.is_some(), "{shape}: {refused:?}");
            let Some((failure, why)) = refused.zip(why) else {
                continue;
            };
            assert_eq!(failure.kind, Kind::NotPermitted);
            let begin = format!("cannot enter process {}: it {why}", one.pid());
            assert!(failure.what.starts_with(&begin), "{}", failure.what);
        }
        let nobody = Pid::MAX.leader();
        assert!(protected_from(1000, nobody).is_none());
    }

    /// Kernels before 6.16 do not tell it.
    #[test]
    fn the_files_of_roots_processes_tell_nothing() {
        let is_root = sys::real_ids().0 == 0;
        let seems = |one: &Ended| {
            let tid = one.pid().leader();
            seems_dumpable(tid, &task::status(tid).unwrap())
        };
        for (shape, wanted) in [
            ("open", Some(true)),
            ("closed", Some(false)),
            ("own", (!is_root).then_some(true)),
            ("hidden", (!is_root).then_some(false)),
        ] {
            let (one, _) = of_shape(&family()[0], shape);
            assert_eq!(seems(&one), wanted, "{shape}");
        }
        // A container's root is the user who made it.
        let mut contained = Command::new("unshare");
        contained.args(["--user", "--map-root-user"]);
        let mut tried = Command::new("unshare");
        let tried = tried.args(["--user", "--map-root-user", "true"]).output();
        if tried.is_ok_and(|tried| tried.status.success()) {
            contained.arg(&family()[0]).arg("own");
            let (one, _) = begun(contained);
            assert_eq!(seems(&one), Some(true));
        }
    }

    /// Opening a pipe to read it would wait for a writer.
    #[test]
    fn a_pipe_is_refused_at_once() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let pipe = dir.path().join("x.so");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        let why = trusted(&pipe).unwrap_err().to_string();
        // Not root's, or no file.
        let end = match dir.path().metadata().unwrap().uid() {
            0 => format!("{} is not a regular file", pipe.display()),
            _ => format!("{} does not belong to root", dir.path().display()),
        };
        assert_eq!(why, end);
    }

    #[test]
    fn what_a_group_may_write_is_not_trusted() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let file = dir.path().join("x.so");
        std::fs::write(&file, "x").unwrap();
        if dir.path().metadata().unwrap().uid() != 0 {
            // Nothing of this user's is trusted, whatever its mode.
            assert!(trusted(&file).is_err());
            return;
        }
        let set = |path: &Path, mode| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(path, mode).unwrap();
        };
        let said = || trusted(&file).unwrap_err().to_string();
        for mode in [0o664, 0o646, 0o666, 0o620, 0o602] {
            set(&file, mode);
            let why = format!("{} can be changed by users other than root", file.display());
            assert_eq!(said(), why, "{mode:o}");
        }
        set(&file, 0o644);
        assert!(trusted(&file).is_ok());
        for mode in [0o775, 0o757] {
            set(dir.path(), mode);
            let why = format!(
                "{} can be changed by users other than root",
                dir.path().display()
            );
            assert_eq!(said(), why, "{mode:o}");
        }
        // Sticky, but it holds the file itself, which may have other links.
        set(dir.path(), 0o1777);
        assert!(said().contains("can be changed"));
        // A directory in it stays what it is where it is sticky, and nowhere else.
        let inside = dir.path().join("inside");
        std::fs::create_dir(&inside).unwrap();
        set(&inside, 0o755);
        let file = inside.join("x.so");
        std::fs::write(&file, "x").unwrap();
        set(&file, 0o644);
        assert!(trusted(&file).is_ok());
        for mode in [0o777, 0o775, 0o2777] {
            set(dir.path(), mode);
            let why = trusted(&file).unwrap_err().to_string();
            assert!(why.starts_with(&dir.path().display().to_string()), "{why}");
            assert!(
                why.ends_with("can be changed by users other than root"),
                "{why}"
            );
        }
    }
}
