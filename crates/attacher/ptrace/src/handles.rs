//! Descriptors across processes: pidfds, memfds, and descriptors sent over a socket.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use crate::added::with_added;
use crate::helper_process::{in_helper_process_always, must_be_here};
use crate::{Deadline, Error, Pid, Result, Tid, fault};

/// `PIDFD_THREAD` (linux/pidfd.h), since Linux 6.9: the descriptor names a thread, not its process.
const PIDFD_THREAD: libc::c_uint = libc::O_EXCL as libc::c_uint;

fn own(raw: libc::c_long, operation: &'static str, tid: Tid) -> Result<OwnedFd> {
    match RawFd::try_from(raw) {
        // SAFETY: the kernel just made this descriptor for us; no other code knows it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(Error::last(operation, tid)),
    }
}

/// Opens a pidfd of thread `tid` where the kernel has such pidfds (it then works for a leader that
/// has ended, too), else of its process `pid`.
///
/// # Errors
/// [`Error::Gone`], [`Error::System`].
pub fn pidfd_open_thread(tid: Tid, pid: Pid) -> Result<OwnedFd> {
    pidfd_of_thread(tid).or_else(|_| pidfd_open(pid))
}

/// Whether the kernel has pidfds of threads. Without them no descriptor can be copied from a
/// process whose first thread has ended.
#[must_use]
pub fn has_pidfds_of_threads() -> bool {
    pidfd_of_thread(crate::own_tid()).is_ok()
}

fn pidfd_of_thread(tid: Tid) -> Result<OwnedFd> {
    // SAFETY: pidfd_open takes numbers only.
    let raw = unsafe { libc::syscall(libc::SYS_pidfd_open, tid.raw(), PIDFD_THREAD) };
    own(raw, "pidfd_open", tid)
}

/// Opens a pidfd of a process: while it is open, the process id cannot come to mean another
/// process.
///
/// # Errors
/// [`Error::Gone`], [`Error::System`].
pub fn pidfd_open(pid: Pid) -> Result<OwnedFd> {
    // SAFETY: pidfd_open takes numbers only.
    let raw = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.raw(), 0) };
    own(raw, "pidfd_open", pid.leader())
}

/// Copies descriptor `fd` out of the process that `pidfd` names, which should be a socket; `tid` is
/// the thread that `pidfd` was opened for. Returns what `then` makes of the copy, or `None` where it
/// hands the copy back, which is not what it should be.
///
/// The process may have put any file in the place of the socket, and the server of a file system may
/// block the thread that closes a file (FUSE). So the copy is taken, and one that is handed back is closed,
/// by a process that may be lost ([`crate::in_helper_process()`]). Where only this process may take it, it is
/// closed there all the same.
///
/// # Errors
/// [`Error::System`]: EBADF when the process has no such descriptor, EPERM, ENOSYS before Linux
/// 5.6.
pub fn copy_of_socket<T>(
    pidfd: BorrowedFd<'_>,
    tid: Tid,
    fd: RawFd,
    then: impl FnOnce(OwnedFd) -> std::result::Result<T, OwnedFd>,
) -> Result<Option<T>> {
    let take = || {
        Ok(match then(pidfd_getfd(pidfd, tid, fd)?) {
            Ok(made) => Some(made),
            Err(other) => {
                in_helper_process_always(|| drop(other));
                None
            }
        })
    };
    match must_be_here(tid) {
        true => take(),
        false => in_helper_process_always(take),
    }
}

/// The kind of a socket: its domain and type (`AF_UNIX`, `SOCK_SEQPACKET`). `None` for a descriptor
/// of anything else, of which nothing else is asked.
#[must_use]
pub fn kind_of_socket(fd: BorrowedFd<'_>) -> Option<(i32, i32)> {
    let option = |name| {
        let (mut value, mut length) = (0_i32, size_of::<i32>() as libc::socklen_t);
        // SAFETY: `value` and `length` are live, and `length` is the size of `value`.
        let got = unsafe {
            libc::getsockopt(
                fd.as_raw_fd(),
                libc::SOL_SOCKET,
                name,
                (&raw mut value).cast(),
                &raw mut length,
            )
        };
        (got == 0).then_some(value)
    };
    Some((option(libc::SO_DOMAIN)?, option(libc::SO_TYPE)?))
}

/// Whether this is a connected pair's end of the kind that sessions use.
#[must_use]
pub fn is_channel(fd: BorrowedFd<'_>) -> bool {
    kind_of_socket(fd) == Some((libc::AF_UNIX, libc::SOCK_SEQPACKET))
}

fn pidfd_getfd(pidfd: BorrowedFd<'_>, tid: Tid, fd: RawFd) -> Result<OwnedFd> {
    let fd = with_added(|| {
        // SAFETY: pidfd_getfd takes numbers only.
        let raw = unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), fd, 0) };
        own(raw, "pidfd_getfd", tid)
    })?;
    fault::step("pidfd_getfd");
    Ok(fd)
}

/// Makes a memory file with these bytes, which can be read and mapped and never changed again.
/// `name` is what `/proc/PID/maps` shows of it.
///
/// # Errors
/// The kernel's error, as `memfd_create` or `write` gives it.
pub fn memfd_with(name: &CStr, bytes: &[u8]) -> io::Result<OwnedFd> {
    memfd_filled(name, |file| file.write_all(bytes))
}

/// As [`memfd_with`], with the bytes that `fill` writes.
///
/// # Errors
/// The same, and the errors of `fill`.
pub fn memfd_filled(
    name: &CStr,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<OwnedFd> {
    /// `MFD_EXEC` (linux/memfd.h), since Linux 6.3: says that the file is meant to be mapped
    /// executable, a permission that `vm.memfd_noexec=1` otherwise takes away.
    const MFD_EXEC: libc::c_uint = 0x10;
    const FLAGS: libc::c_uint = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: `name` is a C string that outlives the call.
    let mut raw = unsafe { libc::memfd_create(name.as_ptr(), FLAGS | MFD_EXEC) };
    // An older kernel does not know the flag, and `vm.memfd_noexec=2` refuses it. Without the flag
    // the file then has no execute permission, which `mmap` does not require.
    if raw < 0
        && matches!(
            io::Error::last_os_error().raw_os_error(),
            Some(libc::EINVAL | libc::EACCES)
        )
    {
        // SAFETY: as above.
        raw = unsafe { libc::memfd_create(name.as_ptr(), FLAGS) };
    }
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call just made this descriptor for us, and no other code knows it.
    let mut file = File::from(unsafe { OwnedFd::from_raw_fd(raw) });
    fill(&mut file)?;
    // The target opens the file by its path in /proc, maybe as another user: it may read and map
    // the file, and no process can change it any more.
    let mut mode = file.metadata()?.permissions();
    // Where execute permission is sealed off, it stays off.
    mode.set_mode(mode.mode() & 0o111 | 0o444);
    file.set_permissions(mode)?;
    // We have no mapping that could write to it, so sealing future writes seals all. Since Linux
    // 5.1.
    seal(file.as_fd(), WHOLE | libc::F_SEAL_FUTURE_WRITE).or_else(|error| {
        match error.raw_os_error() {
            Some(libc::EINVAL) => seal_waiting(file.as_fd(), WHOLE | libc::F_SEAL_WRITE),
            _ => Err(error),
        }
    })?;
    Ok(file.into())
}

/// The seals of a file that is complete.
const WHOLE: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

fn seal(fd: BorrowedFd<'_>, seals: libc::c_int) -> io::Result<()> {
    // SAFETY: a live descriptor and known numbers.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// How long we wait to seal a file while a reference to one of its pages prevents that.
const SEALING: Duration = Duration::from_secs(3);

/// Adds seals, and repeats the attempt while pages of the file are in use. The kernel refuses to
/// seal a file against all writing (EBUSY) while anything refers to one of its pages, and itself
/// waits some 200 ms for that to end. On a busy machine the kernel's own housekeeping may refer to
/// a page for longer, for seconds where fifty threads want two processors: by the page lists of a
/// processor that gets no processor time, or by scans of memory. We have no mapping of the file, so
/// that ends.
fn seal_waiting(fd: BorrowedFd<'_>, seals: libc::c_int) -> io::Result<()> {
    let end = Instant::now() + SEALING;
    loop {
        let Err(error) = seal(fd, seals) else {
            return Ok(());
        };
        if error.raw_os_error() != Some(libc::EBUSY) || Instant::now() > end {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends `bytes` as one message on a sequenced-packet socket. Does not wait: a new channel has room,
/// and in one that has none the other end does not read.
///
/// # Errors
/// The kernel's; EPIPE when the other end is gone (no SIGPIPE is raised), EAGAIN when there is no
/// room.
pub fn send_bytes(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the pointer and length belong to a live slice.
    let n = unsafe {
        libc::send(
            socket.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
        )
    };
    sent(n, bytes.len())
}

/// Sends `bytes` and a copy of `descriptor` as one message.
///
/// # Errors
/// As [`send_bytes`].
pub fn send_with_descriptor(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptor: BorrowedFd<'_>,
) -> io::Result<()> {
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // u64 gives the alignment that a control header needs; 24 bytes are CMSG_SPACE of one
    // descriptor.
    let mut control = [0_u64; 3];
    // SAFETY: msghdr is plain data, so zeroes are a valid value. The pointers put into it are to
    // `part` and `control`, which outlive sendmsg. The control buffer has space for one header and
    // one descriptor, so CMSG_FIRSTHDR is not null and CMSG_DATA lies inside it.
    let n = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = std::mem::size_of_val(&control);
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(4) as usize;
        std::ptr::write_unaligned(
            libc::CMSG_DATA(header).cast::<RawFd>(),
            descriptor.as_raw_fd(),
        );
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        libc::sendmsg(socket.as_raw_fd(), &raw const message, flags)
    };
    sent(n, bytes.len())
}

fn sent(n: isize, wanted: usize) -> io::Result<()> {
    match usize::try_from(n) {
        Ok(n) if n == wanted => {
            fault::step("sending on the channel");
            Ok(())
        }
        Ok(_) => Err(io::Error::from(io::ErrorKind::WriteZero)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Waits until `fd` is readable or its other end is closed. Returns false when the deadline passed
/// first.
///
/// # Errors
/// The kernel's.
pub fn poll_readable(fd: BorrowedFd<'_>, deadline: Deadline) -> io::Result<bool> {
    loop {
        let millis = i32::try_from(deadline.left().as_millis())
            .unwrap_or(i32::MAX)
            .saturating_add(1);
        let mut entry = libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one live pollfd.
        let n = unsafe { libc::poll(&raw mut entry, 1, millis) };
        if n > 0 {
            return Ok(true);
        }
        if n < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        if deadline.passed() {
            return Ok(false);
        }
    }
}
/// Whether two processes run in the same memory (`vfork`, `clone` with CLONE_VM). None where the
/// kernel does not tell.
pub fn share_memory(one: Pid, other: Pid) -> Option<bool> {
    /// KCMP_VM (linux/kcmp.h)
    const VM: libc::c_int = 1;
    let compare = || {
        // SAFETY: takes numbers only.
        unsafe { libc::syscall(libc::SYS_kcmp, one.raw(), other.raw(), VM, 0, 0) }
    };
    match with_added(compare) {
        0 => Some(true),
        order if order > 0 => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may panic")]

    use super::*;

    /// Refused through any descriptor of it, even through one opened for writing, which root can
    /// open.
    #[test]
    fn what_is_sealed_cannot_be_changed() {
        let file = File::from(memfd_filled(c"sealed", |file| file.write_all(b"whole")).unwrap());
        let again = File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/self/fd/{}", file.as_raw_fd()));
        // Without root's rights the file's mode already forbids opening it.
        for file in std::iter::once(&file).chain(again.as_ref().ok()) {
            let refused = (&*file).write_all(b"other").unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
            for length in [0, 10] {
                let refused = file.set_len(length).unwrap_err();
                assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
            }
            let writable = libc::PROT_READ | libc::PROT_WRITE;
            let fd = file.as_raw_fd();
            // SAFETY: a new mapping at an address of the kernel's choice, if there is one at all.
            let mapped =
                unsafe { libc::mmap(std::ptr::null_mut(), 5, writable, libc::MAP_SHARED, fd, 0) };
            assert_eq!(mapped, libc::MAP_FAILED);
        }
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        assert_eq!(std::fs::read(path).unwrap(), b"whole");
    }

    /// A mapping holds references to pages for long: the kernel then refuses to seal the file
    /// against all writing, after some waiting.
    #[test]
    fn who_refers_to_a_page_does_not_keep_it_from_being_sealed() {
        let mut mapped = libc::MAP_FAILED;
        let made = memfd_filled(c"referred", |file| {
            file.write_all(b"whole")?;
            let (rw, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
            // SAFETY: a new mapping of the file that was just written.
            mapped = unsafe { libc::mmap(std::ptr::null_mut(), 5, rw, libc::MAP_SHARED, fd, 0) };
            Ok(())
        });
        assert_ne!(mapped, libc::MAP_FAILED);
        made.unwrap();
        // SAFETY: mapped above, and no code refers to it.
        assert_eq!(unsafe { libc::munmap(mapped, 5) }, 0);
    }
}
