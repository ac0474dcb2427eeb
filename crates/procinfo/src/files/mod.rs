//! The one way to files of a process that is looked at.
//!
//! A target names files for us to read: by its root, its environment, its mappings. It can put a
//! link to somebody else's secret there, a pipe or a device that blocks whoever opens it, or a file
//! of endless length. So:
//!
//! * [`Place`] looks paths up beneath the process's root, with the permissions of the real user, opens
//!   regular files only, and after it has seen that they are, and reads no more than it is told;
//! * [`program`] and [`crate::module`] open what a process has mapped, in the same way;
//! * [`kernel_text`] and its neighbours read the kernel's own texts below `/proc`, of which they first
//!   check that it is the kernel's;
//! * nothing is asked of a file system that a user serves ([`mounts`]).
//!
//! No other code of the attaching side opens files by path, except our own and the caller's:
//! `clippy.toml` disallows the standard library's functions, and each exception states its reason.

mod answering;
#[expect(
    clippy::disallowed_methods,
    reason = "it is the way that others are to take"
)]
mod kernel;
mod mounts;
#[expect(
    clippy::disallowed_methods,
    reason = "it is the way that others are to take"
)]
mod place;

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

use midair_ptrace::sys::{self, Lies};

use crate::Tid;

pub(crate) use answering::memory;
pub use kernel::{
    kernel_file, kernel_link, kernel_list, kernel_place, kernel_text, kernel_text_up_to,
    kernel_words, proc_directory, same_place,
};
pub(crate) use place::Rules;
pub use place::{Found, Place, Processes};

/// The most bytes of a command line or an environment that are taken: as many as execve(2) passes on
/// with the usual limit of stacks.
pub const MOST_WORDS: usize = 2 << 20;

/// Opens the file that a process has mapped from `start` to `end`, whatever became of its name. It
/// asks for CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE, and for the real user's permission to read the
/// file.
///
/// # Errors
/// The kernel's; unsupported where its file system may never answer; invalid input where it is no
/// regular file.
pub(crate) fn mapped(tid: Tid, start: u64, end: u64, rules: &Rules) -> io::Result<File> {
    open_behind(&format!("{tid}/map_files/{start:x}-{end:x}"), rules)
}

/// Opens the program of a process, also when it was deleted.
///
/// # Errors
/// As [`mapped`].
pub fn program(tid: impl Into<Tid>) -> io::Result<File> {
    let tid = tid.into();
    program_under(tid, &Rules::of(tid)?)
}

pub(crate) fn program_under(tid: Tid, rules: &Rules) -> io::Result<File> {
    open_behind(&format!("{tid}/exe"), rules)
}

/// Which file a program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId {
    lies: Lies,
    /// 0 where its file system was not asked.
    inode: u64,
}

/// Which file the program of a process is, to be compared with what was `known` of it before. None
/// where that may not be seen. A file system that may never answer is not asked.
pub fn program_id(tid: Tid, known: Option<&FileId>) -> Option<FileId> {
    let found = kernel::behind_link(&format!("{tid}/exe"), 0).ok()?;
    let lies = sys::lies(&found).ok()?;
    let asked_before = known.is_some_and(|known| known.lies == lies && known.inode != 0);
    let may_ask = asked_before || Rules::of(tid).ok()?.check(&found).is_ok();
    let inode = match may_ask {
        true => found.metadata().ok()?.ino(),
        false => 0,
    };
    Some(FileId { lies, inode })
}

fn open_behind(link: &str, rules: &Rules) -> io::Result<File> {
    let found = kernel::behind_link(link, 0)?;
    rules.check(&found)?;
    let metadata = found.metadata()?;
    place::open_regular(&found, &metadata)
}

/// The words of a text of the kernel's that are separated by zero bytes: a command line, an
/// environment. What is not UTF-8 is replaced. Empty where it may not be read.
pub fn words(tid: impl Into<Tid>, name: &str) -> Vec<String> {
    let tid = tid.into();
    let bytes = kernel_text_up_to(format!("{tid}/{name}"), MOST_WORDS).unwrap_or_default();
    bytes
        .split(|&byte| byte == 0)
        .filter(|word| !word.is_empty())
        .map(crate::show)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pid;

    #[test]
    fn our_program_and_our_words() {
        let me = Pid::own();
        let inode = |file: File| std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap());
        let exe = File::open("/proc/self/exe").unwrap();
        assert_eq!(inode(program(me).unwrap()), inode(exe));
        assert!(!words(me, "cmdline").is_empty() && words(Tid::MAX, "cmdline").is_empty());
        assert!(kernel_words("sys/kernel/osrelease").unwrap().contains('.'));
        assert!(
            kernel_link("self/ns/user")
                .unwrap()
                .to_string_lossy()
                .starts_with("user:[")
        );
        let own = kernel_link("thread-self").unwrap();
        assert!(own.starts_with(me.to_string()), "{}", own.display());
        assert!(!kernel_list(format!("{me}/task")).unwrap().is_empty());
        assert_eq!(kernel_text_up_to("self/status", 4).unwrap(), b"Name");
    }
}
