//! The only way by which files of an inspected process are opened.
//!
//! A target names files for us to read: by its root, its environment and its mappings. It can put
//! there a link to another user's secret, a pipe or a device that blocks whoever opens it, or a
//! file of endless length. So:
//!
//! * [`Place`] looks up paths beneath the process's root, with the permissions of the real user. It
//!   opens a file only after it has seen that it is a regular one, and reads no more than the
//!   caller allows.
//! * [`program`] and [`crate::module`] open what a process has mapped, in the same way.
//! * [`kernel_text`] and its neighbours read the kernel's own texts below `/proc`. They check first
//!   that this `/proc` is the kernel's.
//! * A file system that a user serves is never contacted ([`mounts`]).
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

/// The most bytes of a command line or an environment that are read. That is what execve(2) passes
/// on with the usual limit on stacks.
pub const MOST_WORDS: usize = 2 << 20;

/// Opens the file that a process has mapped from `start` to `end`, even if it has been renamed or
/// deleted. This requires CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE, and the real user's permission
/// to read the file.
///
/// # Errors
/// The kernel's error; unsupported where its file system may never answer; invalid input where it
/// is not a regular file.
pub(crate) fn mapped(tid: Tid, start: u64, end: u64, rules: &Rules) -> io::Result<File> {
    open_behind(&format!("{tid}/map_files/{start:x}-{end:x}"), rules)
}

/// Opens the program of a process, even if it has been deleted.
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

/// Identifies the file that a process runs as its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId {
    lies: Lies,
    /// The inode number, or 0 where the file system was not contacted.
    inode: u64,
}

/// Identifies the program of a process, to be compared with the `known` earlier answer. None where
/// the kernel does not show it. A file system that may never answer is not contacted.
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

/// Returns the words of a text of the kernel's in which zero bytes separate them: a command line or
/// an environment. Bytes that are not UTF-8 are replaced. Empty where the text may not be read.
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
