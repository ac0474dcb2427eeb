//! The kernel's own files below `/proc`. Their names and contents are the kernel's, so they are
//! read with all rights that this program has: those that its file adds to its user's are effective
//! for these calls, and for no others that name a file ([`with_added_rights`]). A name here leads
//! through no link of the kernel's to files of a process ([`is_the_kernels`]).

use std::ffi::{CString, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use midair_ptrace::{in_helper_process_always, sys, with_added_rights};

/// `PROC_SUPER_MAGIC` (linux/magic.h).
pub(super) const PROC_MAGIC: u64 = 0x9fa0;
/// `O_PATH`, `O_NONBLOCK`, `O_DIRECTORY` and `O_NOFOLLOW` on this machine.
pub(super) use flags::{DIRECTORY, NONBLOCK, PATH};

#[cfg(target_arch = "x86_64")]
mod flags {
    pub(in crate::files) const PATH: i32 = 0o10_000_000;
    pub(in crate::files) const NONBLOCK: i32 = 0o4000;
    pub(in crate::files) const DIRECTORY: i32 = 0o200_000;
}

#[cfg(target_arch = "aarch64")]
mod flags {
    pub(in crate::files) const PATH: i32 = 0o10_000_000;
    pub(in crate::files) const NONBLOCK: i32 = 0o4000;
    pub(in crate::files) const DIRECTORY: i32 = 0o40_000;
}

/// The most bytes of one text of the kernel's that are read. The list of mappings of a process with
/// a million mappings has some 100 MB.
const MOST: usize = 256 << 20;

/// Returns a descriptor of our `/proc`, which was verified to be the kernel's.
///
/// # Errors
/// The kernel's error; unsupported where something else is mounted at `/proc`.
pub fn proc_directory() -> io::Result<&'static File> {
    static PROC: OnceLock<File> = OnceLock::new();
    if let Some(known) = PROC.get() {
        return Ok(known);
    }
    let opened = sys::open_at(None, c"/proc", PATH | DIRECTORY)?;
    if sys::file_system(&opened)? != PROC_MAGIC {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "/proc is not the kernel's procfs",
        ));
    }
    Ok(PROC.get_or_init(|| opened))
}

/// Opens a file below `/proc` (`1/stat`, `sys/kernel/osrelease`) for reading.
///
/// # Errors
/// The kernel's error.
pub fn kernel_file(below: impl AsRef<Path>) -> io::Result<File> {
    open_kernels(below.as_ref(), 0)
}

fn open_kernels(below: &Path, flags: i32) -> io::Result<File> {
    if !is_the_kernels(below, flags & PATH != 0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let name = CString::new(below.as_os_str().as_bytes())?;
    let directory = proc_directory()?;
    with_added_rights(|| sys::open_following(directory, &name, flags))
}

/// Whether a name below `/proc` stays among the kernel's own files. Some links there lead to a
/// process's files and directories: what is behind one is not opened by this name, and nothing below
/// it is found. The file itself may be what a link leads to where it is opened as a `place` only.
fn is_the_kernels(below: &Path, place: bool) -> bool {
    const LINKS: [&str; 3] = ["root", "cwd", "exe"];
    const DIRECTORIES: [&str; 2] = ["fd", "map_files"];
    let mut parts = below.components().peekable();
    let mut in_links = false;
    while let Some(part) = parts.next() {
        let name = match part {
            Component::Normal(name) => name,
            // The directory itself.
            Component::CurDir => continue,
            _ => return false,
        };
        let is_link = in_links || LINKS.iter().any(|link| name == *link);
        if is_link && (parts.peek().is_some() || !place) {
            return false;
        }
        in_links = DIRECTORIES.iter().any(|directory| name == *directory);
    }
    true
}

/// Returns the whole contents of a file below `/proc`.
///
/// # Errors
/// The kernel's error; file too large beyond 256 MiB.
pub fn kernel_text(below: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let file = kernel_file(below)?;
    // Some of these files ask for the right to trace when they are read.
    with_added_rights(|| whole(file, MOST))
}

/// Returns the same as text. Bytes that are not UTF-8 are replaced.
///
/// # Errors
/// As [`kernel_text`].
pub fn kernel_words(below: impl AsRef<Path>) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&kernel_text(below)?).into_owned())
}

/// Returns the start, at most `most` bytes, of a file below `/proc` whose contents the target
/// chooses (`TID/cmdline`, `TID/environ`). The kernel reads them from the target's memory.
///
/// # Errors
/// The kernel's error.
pub fn kernel_text_up_to(below: impl AsRef<Path>, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file = kernel_file(below)?.take(most as u64);
    in_helper_process_always(|| with_added_rights(|| file.read_to_end(&mut bytes)))?;
    Ok(bytes)
}

/// Returns the names of the entries of a directory below `/proc`.
///
/// # Errors
/// The kernel's error.
pub fn kernel_list(below: impl AsRef<Path>) -> io::Result<Vec<OsString>> {
    let directory = open_kernels(below.as_ref(), DIRECTORY)?;
    with_added_rights(|| entries(&directory, usize::MAX))
}

/// Returns the text of a link below `/proc` (`TID/ns/user`). The link is not followed.
///
/// # Errors
/// The kernel's error.
pub fn kernel_link(below: impl AsRef<Path>) -> io::Result<PathBuf> {
    let below = below.as_ref();
    let (above, name) = match (below.parent(), below.file_name()) {
        (Some(above), Some(name)) => (above, CString::new(name.as_bytes())?),
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    let above = match above.as_os_str().is_empty() {
        true => Path::new("."),
        false => above,
    };
    let directory = open_kernels(above, PATH | DIRECTORY)?;
    let link = with_added_rights(|| sys::open_at(Some(&directory), &name, PATH))?;
    told(with_added_rights(|| sys::link_text(&link))?)
}

/// Returns the text of such a link. Linux 5.10 gives an empty one where a newer kernel says that the
/// reader may not know it.
fn told(text: Vec<u8>) -> io::Result<PathBuf> {
    match text.is_empty() {
        true => Err(io::ErrorKind::PermissionDenied.into()),
        false => Ok(PathBuf::from(OsString::from_vec(text))),
    }
}

/// Returns what is known of an entry below `/proc` without opening it: its owner, and for a link
/// what it leads to.
///
/// # Errors
/// The kernel's error.
pub fn kernel_place(below: impl AsRef<Path>) -> io::Result<Metadata> {
    open_kernels(below.as_ref(), PATH)?.metadata()
}

/// Whether two links below `/proc` lead to the same file. The second file may be on a file system
/// that does not answer. That file system is contacted only if it is also the first file's.
///
/// # Errors
/// The kernel's error.
pub fn same_place(ours: &str, theirs: &str) -> io::Result<bool> {
    let (ours, theirs) = (behind_link(ours, 0)?, behind_link(theirs, 0)?);
    if sys::lies(&ours)? != sys::lies(&theirs)? {
        return Ok(false);
    }
    Ok(ours.metadata()?.ino() == theirs.metadata()?.ino())
}

/// Returns a descriptor of a file that a process itself has open (`TID/exe`, `TID/root`,
/// `TID/map_files/…`). It refers to the file that the kernel's link leads to, and is opened as a
/// place (`O_PATH`) only.
pub(super) fn behind_link(below: &str, flags: i32) -> io::Result<File> {
    open_kernels(Path::new(below), PATH | flags)
}

/// Opens the file that `found` is a place of for reading.
pub(super) fn reopen(found: &File, flags: i32) -> io::Result<File> {
    use std::os::fd::AsRawFd;
    let name = CString::new(format!("self/fd/{}", found.as_raw_fd()))?;
    sys::open_following(proc_directory()?, &name, flags | NONBLOCK)
}

/// Returns all of a file of at most `most` bytes.
pub(super) fn whole(file: File, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    match bytes.len() > most {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(bytes),
    }
}

/// Returns the names of the entries of an open directory, at most `most` of them.
pub(super) fn entries(directory: &File, most: usize) -> io::Result<Vec<OsString>> {
    use std::os::fd::AsRawFd;
    // The standard library can list a directory only by path. This directory is open already and
    // was checked, so it is named by its descriptor.
    let listed = std::fs::read_dir(format!("/proc/self/fd/{}", directory.as_raw_fd()))?;
    let mut names = Vec::new();
    for entry in listed {
        if names.len() == most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        names.push(entry?.file_name());
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_to_a_file_of_a_process() {
        let is = |name: &str, place| is_the_kernels(Path::new(name), place);
        for name in [
            "1/stat",
            "1/task/1/syscall",
            "1/fd",
            "sys/kernel/osrelease",
            "self/ns/net",
            ".",
        ] {
            assert!(is(name, false) && is(name, true), "{name}");
        }
        for name in ["1/exe", "1/root", "1/cwd", "1/fd/3", "1/map_files/1-2"] {
            assert!(is(name, true) && !is(name, false), "{name}");
        }
        for name in [
            "1/root/etc/shadow",
            "1/cwd/x",
            "1/fd/3/x",
            "1/../../etc/shadow",
            "/etc/shadow",
        ] {
            assert!(!is(name, true) && !is(name, false), "{name}");
        }
        assert!(kernel_text("self/root/etc/passwd").is_err() && kernel_text("self/exe").is_err());
    }

    #[test]
    fn a_link_without_text_was_not_told() {
        let refused = told(Vec::new()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(told(b"user:[1]".to_vec()).unwrap(), Path::new("user:[1]"));
    }
}
