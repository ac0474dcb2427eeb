//! Safe functions for system calls of the attaching side that the standard library does not offer
//! in a safe form. So the crates above need no unsafe code of their own.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

/// The descriptor that a call returned, or its error.
fn file(raw: libc::c_long) -> io::Result<File> {
    match RawFd::try_from(raw) {
        // SAFETY: the callers pass what an opening call of the kernel just returned: no other code
        // knows this descriptor.
        Ok(fd) if fd >= 0 => Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) })),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether starting this program gave it rights that its user lacks.
pub use midair_secure::has_more_rights as is_secure;

/// The real user and group ids of this process.
pub fn real_ids() -> (u32, u32) {
    // SAFETY: these take nothing and cannot fail.
    unsafe { (libc::getuid(), libc::getgid()) }
}

/// Opens `name` in a directory, or a relative name in the current directory if none is given. It
/// follows no link at the end; the descriptor is closed on exec.
///
/// # Errors
/// The kernel's.
pub fn open_at(directory: Option<&File>, name: &CStr, flags: i32) -> io::Result<File> {
    let directory = directory.map_or(libc::AT_FDCWD, AsRawFd::as_raw_fd);
    let flags = flags | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: a NUL-terminated name and a descriptor that lives for the call.
    file(libc::c_long::from(unsafe {
        libc::openat(directory, name.as_ptr(), flags)
    }))
}

/// Opens `path` below `root`, which stands for `/` on the way: links and `..` stay inside, too.
///
/// # Errors
/// The kernel's; ENOSYS before Linux 5.6.
pub fn open_in_root(root: &File, path: &CStr, flags: i32) -> io::Result<File> {
    // SAFETY: these fields are integers, of which zero is a valid value.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = u64::from((flags | libc::O_CLOEXEC).cast_unsigned());
    how.resolve = libc::RESOLVE_IN_ROOT;
    // SAFETY: a live descriptor, a NUL-terminated path, and a live struct with its length.
    file(unsafe {
        libc::syscall(
            libc::SYS_openat2,
            root.as_raw_fd(),
            path.as_ptr(),
            &raw const how,
            size_of::<libc::open_how>(),
        )
    })
}

/// Opens `name` in a directory, following links, also the kernel's own (`self/fd/N`).
///
/// # Errors
/// The kernel's.
pub fn open_following(directory: &File, name: &CStr, flags: i32) -> io::Result<File> {
    // SAFETY: a NUL-terminated name and a descriptor that lives for the call.
    file(libc::c_long::from(unsafe {
        libc::openat(
            directory.as_raw_fd(),
            name.as_ptr(),
            flags | libc::O_CLOEXEC,
        )
    }))
}

/// Reads the target of the symbolic link that `link` was opened on (`O_PATH | O_NOFOLLOW`).
///
/// # Errors
/// The kernel's: ENOENT or EINVAL when it is no link; ENAMETOOLONG beyond the length of a path.
pub fn link_text(link: &File) -> io::Result<Vec<u8>> {
    let mut text = vec![0_u8; libc::PATH_MAX as usize];
    // SAFETY: a live descriptor, an empty name, and a live buffer with its length.
    let got = unsafe {
        libc::readlinkat(
            link.as_raw_fd(),
            c"".as_ptr(),
            text.as_mut_ptr().cast(),
            text.len(),
        )
    };
    match usize::try_from(got) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(got) if got >= text.len() => Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG)),
        Ok(got) => {
            text.truncate(got);
            Ok(text)
        }
    }
}

/// The magic number of the file system that a file is on (`statfs.f_type`). This asks the file
/// system itself, and one that a user serves (FUSE) may not answer.
///
/// # Errors
/// The kernel's.
pub fn file_system(file: &File) -> io::Result<u64> {
    // SAFETY: these fields are integers, of which zero is a valid value.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: a live descriptor and a valid out pointer.
    match unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut found) } {
        0 => Ok(found.f_type as u64),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Where a file lies, found without asking its file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lies {
    /// The number of the mount, as in `/proc/PID/mountinfo`. None before Linux 5.8.
    pub mount: Option<u64>,
    /// The device of the file system: major, minor.
    pub device: (u32, u32),
}

/// Finds where a file lies. Its file system is not asked, since it may be one that does not answer.
///
/// # Errors
/// The kernel's.
pub fn lies(file: &File) -> io::Result<Lies> {
    // SAFETY: these fields are integers, of which zero is a valid value.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: a live descriptor, an empty name, and a valid out pointer.
    let done = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC | libc::AT_NO_AUTOMOUNT,
            libc::STATX_MNT_ID,
            &raw mut found,
        )
    };
    match done {
        0 => Ok(Lies {
            mount: (found.stx_mask & libc::STATX_MNT_ID != 0).then_some(found.stx_mnt_id),
            device: (found.stx_dev_major, found.stx_dev_minor),
        }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `struct __user_cap_header_struct` (linux/capability.h, version 3).
#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

impl CapabilityHeader {
    /// For the calling thread.
    const OWN: CapabilityHeader = CapabilityHeader {
        version: 0x2008_0522,
        pid: 0,
    };
}

/// One of the two halves of a thread's capabilities (`struct __user_cap_data_struct`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Those that the kernel checks.
    pub effective: u32,
    /// Those that may be made effective.
    pub permitted: u32,
    /// Those that are kept across an exec.
    pub inheritable: u32,
}

/// The calling thread's capabilities: 0 to 31, then 32 to 63.
///
/// # Errors
/// The kernel's.
pub fn capabilities() -> io::Result<[Capabilities; 2]> {
    let header = CapabilityHeader::OWN;
    let mut data = [Capabilities::default(); 2];
    // SAFETY: a live header of version 3, and space for the two parts that this version has.
    match unsafe { libc::syscall(libc::SYS_capget, &raw const header, data.as_mut_ptr()) } {
        0 => Ok(data),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets the calling thread's capabilities.
///
/// # Errors
/// The kernel's.
pub fn set_capabilities(data: [Capabilities; 2]) -> io::Result<()> {
    let header = CapabilityHeader::OWN;
    // SAFETY: a header of version 3 and the two parts that this version has, both live for the
    // call.
    match unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets the user and group by which the kernel checks this thread's file accesses, and returns the
/// previous ones. A failure is not reported: [`file_ids`] tells which are in force.
pub fn set_file_ids(uid: u32, gid: u32) -> (u32, u32) {
    // SAFETY: both take numbers and change this thread only: glibc makes the bare system calls.
    let (gid, uid) = unsafe { (libc::setfsgid(gid), libc::setfsuid(uid)) };
    (uid.cast_unsigned(), gid.cast_unsigned())
}

/// The user and group by which the kernel checks this thread's file accesses.
pub fn file_ids() -> (u32, u32) {
    // -1 is no id, so nothing is changed.
    set_file_ids(u32::MAX, u32::MAX)
}

/// The number of clock ticks in a second, as `/proc` counts them.
pub fn clock_ticks_per_second() -> u64 {
    // SAFETY: takes a number and returns one.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).unwrap_or(100).max(1)
}

/// The soft limit of this process for the size of files (`RLIMIT_FSIZE`), in bytes.
pub fn file_size_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: a valid out pointer.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    limit.rlim_cur
}

/// Returns how many descriptors this process may still open, counted up to `enough`, and how many it may
/// have in all (`RLIMIT_NOFILE`). Needs none itself.
#[must_use]
pub fn descriptors_left(enough: u64) -> (u64, u64) {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: a valid out pointer.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    let numbers = 0..i32::try_from(limit.rlim_cur).unwrap_or(i32::MAX);
    // SAFETY: takes numbers.
    let free = numbers.filter(|&fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0);
    let enough = usize::try_from(enough).unwrap_or(usize::MAX);
    (free.take(enough).count() as u64, limit.rlim_cur)
}

/// Where the address space of this process is limited (`RLIMIT_AS`), has the C library keep one heap for
/// all threads. For programs of our own, before they have threads.
///
/// Otherwise each thread's first allocation reserves 64 MiB for a heap of its own, and up to 128 MiB for a
/// moment. Under a limit these are what others need, and an allocation that fails ends the program.
pub fn keep_one_heap() {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: a valid out pointer.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    if limit.rlim_cur != libc::RLIM_INFINITY {
        #[cfg(target_env = "gnu")]
        // SAFETY: sets a number of the allocator's own.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1)
        };
    }
}

/// The names of the system calls that this kernel lacks and that entering a process depends on.
pub fn missing_calls() -> Vec<&'static str> {
    // The arguments name nothing and change nothing: a kernel that has the call answers EBADF or
    // EINVAL.
    let lacks = |answer: libc::c_long| {
        answer < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS)
    };
    let mut missing = Vec::new();
    // SAFETY: a system call with numbers only.
    if lacks(unsafe { libc::syscall(libc::SYS_pidfd_open, -1, 0) }) {
        missing.push("pidfd_open");
    }
    // SAFETY: as before.
    if lacks(unsafe { libc::syscall(libc::SYS_pidfd_getfd, -1, -1, 0) }) {
        missing.push("pidfd_getfd");
    }
    // SAFETY: the flags are checked first and are not valid; the name is a C string.
    if lacks(unsafe { libc::syscall(libc::SYS_memfd_create, c"".as_ptr(), u32::MAX) }) {
        missing.push("memfd_create");
    }
    missing
}

/// How a system call filter that this thread is under keeps it from `ptrace`, if one does. A child asks,
/// since some filters kill whoever does.
pub fn ptrace_refused() -> Option<io::Error> {
    // SAFETY: the child makes system calls only, and ends by one.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: these take numbers only. No process traces itself, so the kernel's own answer is
        // ESRCH, whatever rights we have.
        unsafe {
            libc::prctl(libc::PR_SET_DUMPABLE, 0);
            let answer = libc::ptrace(libc::PTRACE_CONT, libc::getpid(), 0, 0);
            let error = if answer < 0 {
                *libc::__errno_location()
            } else {
                0
            };
            libc::_exit(error);
        }
    }
    if child < 0 {
        // No child could be made.
        return None;
    }
    let Some(status) = ended_by(child, Instant::now() + REFUSAL_LIMIT).ok()? else {
        // SAFETY: a midair child that was not waited for, so the number is still its.
        unsafe { libc::kill(child, libc::SIGKILL) };
        let _ = ended_by(child, Instant::now() + REFUSAL_LIMIT);
        return Some(io::Error::other("whoever calls it is held"));
    };
    match libc::WEXITSTATUS(status) {
        _ if libc::WIFSIGNALED(status) => Some(io::Error::other("whoever calls it is killed")),
        0 | libc::ESRCH => None,
        refused => Some(io::Error::from_raw_os_error(refused)),
    }
}

/// How long the child of [`ptrace_refused`] may take. A filter with a supervisor can hold it.
const REFUSAL_LIMIT: Duration = Duration::from_secs(1);

/// Waits for a child until `end`. Returns its wait status; `None` if it has not ended.
///
/// # Errors
/// The kernel's: `ECHILD` where this process ignores `SIGCHLD`, or another thread waited for it.
fn ended_by(child: i32, end: Instant) -> io::Result<Option<i32>> {
    let mut status = 0;
    loop {
        // SAFETY: a midair child, and a live integer.
        let answer = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
        let error = io::Error::last_os_error();
        match answer {
            0 => {}
            _ if answer == child => return Ok(Some(status)),
            _ if error.raw_os_error() == Some(libc::EINTR) => {}
            _ => return Err(error),
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// `struct pidfd_info` as of Linux 6.16 (uapi/linux/pidfd.h). Earlier kernels have it without the last
/// two members, and accept a longer struct.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    pids: [u32; 3],
    ids: [u32; 8],
    exit_code: i32,
    coredump: u32,
    spare: u32,
}

/// Asks the kernel about the process that `pidfd` names (`PIDFD_GET_INFO`). None before Linux 6.13.
fn pidfd_info(pidfd: BorrowedFd<'_>, mask: u64) -> Option<PidfdInfo> {
    /// `_IOWR(0xff, 11, struct pidfd_info)`.
    const GET_INFO: libc::c_ulong =
        3 << 30 | (size_of::<PidfdInfo>() as libc::c_ulong) << 16 | 0xff << 8 | 11;
    let mut info = PidfdInfo {
        mask,
        ..PidfdInfo::default()
    };
    // SAFETY: the request's number carries the struct's size, and the kernel writes no more than
    // that.
    let answer = unsafe { libc::ioctl(pidfd.as_raw_fd(), GET_INFO as _, &raw mut info) };
    (answer >= 0).then_some(info)
}

/// The wait status of the process that `pidfd` names, once the process has ended, even after it was
/// reaped (`PIDFD_INFO_EXIT`). None before Linux 6.15.
pub fn exit_status(pidfd: BorrowedFd<'_>) -> Option<i32> {
    const INFO_EXIT: u64 = 1 << 3;
    let info = pidfd_info(pidfd, INFO_EXIT)?;
    (info.mask & INFO_EXIT != 0).then_some(info.exit_code)
}

/// Whether the process that `pidfd` names is dumpable (see prctl(2), PR_SET_DUMPABLE): whether its
/// user may read and trace it (`PIDFD_INFO_COREDUMP`). None before Linux 6.16, and for a thread that
/// has ended.
pub fn is_dumpable(pidfd: BorrowedFd<'_>) -> Option<bool> {
    const INFO_COREDUMP: u64 = 1 << 4;
    const OF_USER: u32 = 1 << 2;
    const KNOWN: u32 = 0b1110;
    let info = pidfd_info(pidfd, INFO_COREDUMP)?;
    let is_known = info.mask & INFO_COREDUMP != 0 && info.coredump & KNOWN != 0;
    is_known.then_some(info.coredump & OF_USER != 0)
}

/// Waits while `word` is `unwanted`, for at most `limit`. It may return earlier, so the caller
/// reads the word again.
pub fn futex_wait(word: &AtomicU32, unwanted: u32, limit: Duration) {
    let limit = libc::timespec {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_nsec: i64::from(limit.subsec_nanos()),
    };
    // SAFETY: a live futex word, and a valid time.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            unwanted,
            &raw const limit,
            0,
            0,
        )
    };
}

/// The seconds by which local time is ahead of UTC now; 0 where the C library cannot tell.
pub fn utc_offset() -> i64 {
    // SAFETY: time accepts a null pointer; a tm of zeroes is valid, and localtime_r writes into it.
    unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut local: libc::tm = std::mem::zeroed();
        match libc::localtime_r(&raw const now, &raw mut local).is_null() {
            true => 0,
            false => local.tm_gmtoff,
        }
    }
}

/// Wakes all threads, of any process, that wait for `word`.
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: a live futex word; waking does not change it.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE,
            i32::MAX,
            0,
            0,
            0,
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn links_stay_inside_the_root() {
        let root = File::open("/proc/self").unwrap();
        assert!(open_in_root(&root, c"/status", libc::O_RDONLY).is_ok());
        assert!(open_in_root(&root, c"/../../../etc/passwd", libc::O_RDONLY).is_err());
        assert!(
            open_at(Some(&root), c"exe", libc::O_RDONLY).is_err(),
            "it is a link"
        );
        assert!(open_at(Some(&root), c"status", libc::O_RDONLY).is_ok());
    }

    #[test]
    fn how_a_child_ended_is_told() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "exit 3"])
            .spawn()
            .unwrap();
        let pidfd = crate::pidfd_open(crate::Pid::of_child(&child)).unwrap();
        child.wait().unwrap();
        // Kernels before 6.15 do not tell.
        assert!(matches!(exit_status(pidfd.as_fd()), None | Some(0x300)));
        assert!(missing_calls().is_empty());
    }
}
