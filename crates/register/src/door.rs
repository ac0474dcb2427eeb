//! The socket that attachers knock at.
//!
//! It lies among the descriptors of a program that knows nothing of it and may close every descriptor that it does not know
//! (`closefrom`), or put one of its own at that number. So it is looked at before each use: when it is not ours any more, nothing is
//! done with it, and the process has a listener without a socket, as AMD's.
//!
//! It is waited for by `ppoll` and not in `accept4`: that one reserves the number of the connection *before* it waits, so that a program
//! finds a number taken that no list of descriptors shows, and a `dup2` to it fails with EBUSY.
//!
//! It gets its name when it lies at its last number, and can be seen to listen when all else is ready: from then on nothing is done with
//! a number that was not proven.

use crate::procfs;
use midair_guest::number::Own;
use midair_record::knock;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Connections that may wait at one time. More are told by the kernel to come again.
const BACKLOG: libc::c_int = 4;
/// Low numbers are left to the program.
const LOWEST: RawFd = 100;

/// Our socket, for as long as it is.
#[derive(Debug)]
pub(crate) struct Door {
    fd: RawFd,
    cookie: u64,
}

/// The same for a forked child, which has a copy of its parent's descriptor. Written cookie first.
static OPEN: (AtomicI32, AtomicU64) = (AtomicI32::new(-1), AtomicU64::new(0));

/// In a forked child: gives back the copy of the parent's socket. System calls and atomics only.
pub(crate) fn forked() {
    let fd = OPEN.0.swap(-1, Ordering::Acquire);
    if fd >= 0 && cookie(fd) == Some(OPEN.1.load(Ordering::Relaxed)) {
        // SAFETY: it is the copy of our own socket, and no thread but this one is in the child.
        unsafe { libc::close(fd) };
    }
}

/// The kernel's own number of a socket: none has it again until the machine stops.
fn cookie(fd: RawFd) -> Option<u64> {
    let mut value = 0_u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most eight bytes into `value`; any number may be asked about.
    let got = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_COOKIE,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    (got == 0).then_some(value)
}

impl Door {
    /// Opens it. `None` where the kernel or the names do not allow it: then there is no way in without tracing.
    pub(crate) fn open() -> Option<Door> {
        let pid = std::process::id();
        // With the /proc of another pid namespace nobody who knocks could be told from anybody else.
        if procfs::status("self")?.ns_tgid != [pid.cast_signed()] {
            return None;
        }
        let start = procfs::start_ticks()?;
        // SAFETY: takes numbers.
        let socket = Own::new(unsafe {
            libc::socket(
                libc::AF_UNIX,
                libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
                0,
            )
        })?;
        let socket = match socket.copy(LOWEST) {
            Some(high) => high,
            // So many descriptors are not allowed here; or the number was taken away.
            None if socket.is_ours() => socket,
            None => return None,
        };
        let filters = procfs::filters();
        let fd = socket.number();
        let bound =
            (0..knock::NAMES).any(|which| bind(fd, &knock::name(pid, start, which, filters)));
        let cookie = cookie(fd)?;
        // SAFETY: takes numbers.
        if !bound || unsafe { libc::listen(fd, BACKLOG) } != 0 {
            return None;
        }
        let (fd, _) = socket.leave();
        OPEN.1.store(cookie, Ordering::Relaxed);
        OPEN.0.store(fd, Ordering::Release);
        Some(Door { fd, cookie })
    }

    /// Whether the number still means our socket.
    fn is_ours(&self) -> bool {
        cookie(self.fd) == Some(self.cookie)
    }

    /// Waits for the next connection, without end. `None` once the socket is gone.
    pub(crate) fn next(&self) -> Option<Own> {
        loop {
            if !self.is_ours() {
                return None;
            }
            let mut poll = libc::pollfd {
                fd: self.fd,
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one valid pollfd; no time limit and no mask.
            let ready =
                unsafe { libc::ppoll(&raw mut poll, 1, std::ptr::null(), std::ptr::null()) };
            if ready != 1 {
                continue;
            }
            if !self.is_ours() {
                return None;
            }
            // SAFETY: no address is asked for.
            let connection = Own::new(unsafe {
                libc::accept4(
                    self.fd,
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                    libc::SOCK_CLOEXEC,
                )
            });
            if connection.is_some() {
                return connection;
            }
            let error = std::io::Error::last_os_error().raw_os_error();
            if !matches!(error, Some(libc::EAGAIN | libc::EINTR | libc::ECONNABORTED)) {
                // No descriptor or no memory is free: whoever knocked goes on waiting, and this thread must not spin meanwhile.
                std::thread::sleep(std::time::Duration::from_millis(500));
            }
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: proven just now to be what we made.
            unsafe { libc::close(self.fd) };
        }
    }
}

fn bind(socket: RawFd, name: &str) -> bool {
    // SAFETY: plain data; zero is a value of each field.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let Some(room) = address.sun_path.get_mut(1..=name.len()) else {
        return false;
    };
    for (to, from) in room.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let length = size_of::<libc::sa_family_t>() + 1 + name.len();
    // SAFETY: the address is `length` bytes of a live struct.
    unsafe {
        libc::bind(
            socket,
            (&raw const address).cast(),
            length as libc::socklen_t,
        ) == 0
    }
}

/// One message from a connection, within `limit` ms. `None` at its end or when nothing came.
pub(crate) fn receive<'a>(
    connection: BorrowedFd<'_>,
    to: &'a mut [u8],
    limit: libc::c_int,
) -> Option<&'a [u8]> {
    if !readable(connection, limit) {
        return None;
    }
    // SAFETY: the kernel writes at most so many bytes into `to`. Descriptors that came along are dropped by it: no room is given.
    let got = unsafe {
        libc::recv(
            connection.as_raw_fd(),
            to.as_mut_ptr().cast(),
            to.len(),
            libc::MSG_DONTWAIT,
        )
    };
    usize::try_from(got)
        .ok()
        .filter(|got| *got > 0)
        .and_then(|got| to.get(..got))
}

/// Waits until there is something to read, or the other end is closed.
pub(crate) fn readable(connection: BorrowedFd<'_>, limit: libc::c_int) -> bool {
    let mut poll = libc::pollfd {
        fd: connection.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid pollfd.
    unsafe { libc::poll(&raw mut poll, 1, limit) == 1 }
}

/// Whether the other end is closed.
pub(crate) fn is_hung_up(connection: BorrowedFd<'_>) -> bool {
    let mut poll = libc::pollfd {
        fd: connection.as_raw_fd(),
        events: libc::POLLRDHUP,
        revents: 0,
    };
    // SAFETY: one valid pollfd.
    unsafe { libc::poll(&raw mut poll, 1, 0) != 0 }
}

/// Sends an answer; false when nobody is there to read it.
pub(crate) fn answer(connection: BorrowedFd<'_>, answer: &knock::Answer) -> bool {
    let bytes = answer.bytes();
    // SAFETY: so many bytes of a live value. A peer that does not read does not hold us up.
    let sent = unsafe {
        libc::send(
            connection.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
        )
    };
    usize::try_from(sent) == Ok(bytes.len())
}
