//! The listener endpoint: the socket that attachers connect to.
//!
//! It is a descriptor in a program that knows nothing of it, and that may close every descriptor
//! that it does not know (`closefrom`), or put one of its own at that number. So it is verified
//! before each use: when it is not ours any more, nothing is done with it, and the process has a
//! listener without a socket, as AMD's.
//!
//! It is waited for by `ppoll` and not in `accept4`: that call reserves the number of the
//! connection *before* it waits, so that a program finds a number in use that no list of
//! descriptors shows, and a `dup2` to it fails with EBUSY.
//!
//! It gets its name when it has its final number, and listens only when all else is ready: from
//! then on nothing is done with a number that was not verified.

use crate::procfs;
use midair_guest::verified_fd::VerifiedFd;
use midair_record::connect;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Maximum number of waiting connections. The kernel makes further attachers try again.
const BACKLOG: libc::c_int = 4;
/// Low numbers are left to the program.
const LOWEST: RawFd = 100;

/// Our listening socket.
#[derive(Debug)]
pub(crate) struct Endpoint {
    fd: RawFd,
    cookie: u64,
}

/// The same for a forked child, which has a copy of its parent's descriptor. The cookie is written
/// first.
static OPEN: (AtomicI32, AtomicU64) = (AtomicI32::new(-1), AtomicU64::new(0));

/// In a forked child: closes the copy of the parent's socket. Uses system calls and atomics only.
pub(crate) fn forked() {
    let fd = OPEN.0.swap(-1, Ordering::Acquire);
    if fd >= 0 && cookie(fd) == Some(OPEN.1.load(Ordering::Relaxed)) {
        // SAFETY: it is the copy of our own socket, and the child has no thread but this one.
        unsafe { libc::close(fd) };
    }
}

/// The kernel's number for a socket: it is not used again until the machine is restarted.
fn cookie(fd: RawFd) -> Option<u64> {
    let mut value = 0_u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most eight bytes into `value`; any descriptor number may be
    // passed.
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

impl Endpoint {
    /// Opens the endpoint. `None` where the kernel or the names do not allow it: then the process
    /// can be attached to by tracing only.
    pub(crate) fn open() -> Option<Endpoint> {
        let pid = std::process::id();
        // With the /proc of another pid namespace, attachers could not be identified.
        if procfs::status("self")?.ns_tgid != [pid.cast_signed()] {
            return None;
        }
        let start = procfs::start_ticks()?;
        // SAFETY: takes numbers.
        let socket = VerifiedFd::new(unsafe {
            libc::socket(
                libc::AF_UNIX,
                libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
                0,
            )
        })?;
        let socket = match socket.duplicate(LOWEST) {
            Some(high) => high,
            // So high a number is not allowed here; or the program has taken the number.
            None if socket.is_ours() => socket,
            None => return None,
        };
        let filters = procfs::filters();
        let fd = socket.number();
        let bound =
            (0..connect::NAMES).any(|which| bind(fd, &connect::name(pid, start, which, filters)));
        let cookie = cookie(fd)?;
        // SAFETY: takes numbers.
        if !bound || unsafe { libc::listen(fd, BACKLOG) } != 0 {
            return None;
        }
        let (fd, _) = socket.into_parts();
        OPEN.1.store(cookie, Ordering::Relaxed);
        OPEN.0.store(fd, Ordering::Release);
        Some(Endpoint { fd, cookie })
    }

    /// Whether the number still refers to our socket.
    fn is_ours(&self) -> bool {
        cookie(self.fd) == Some(self.cookie)
    }

    /// Waits for the next connection, without a limit. `None` once the socket is gone.
    pub(crate) fn next(&self) -> Option<VerifiedFd> {
        loop {
            if !self.is_ours() {
                return None;
            }
            let mut poll = libc::pollfd {
                fd: self.fd,
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one valid pollfd; no timeout and no mask.
            let ready =
                unsafe { libc::ppoll(&raw mut poll, 1, std::ptr::null(), std::ptr::null()) };
            if ready != 1 {
                continue;
            }
            if !self.is_ours() {
                return None;
            }
            // SAFETY: no address is asked for.
            let connection = VerifiedFd::new(unsafe {
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
                // No descriptor or no memory is free: the attacher keeps waiting, and this thread
                // must not spin meanwhile.
                std::thread::sleep(std::time::Duration::from_millis(500));
            }
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: verified just now to be what we made.
            unsafe { libc::close(self.fd) };
        }
    }
}

fn bind(socket: RawFd, name: &str) -> bool {
    // SAFETY: plain data; zero is a value of each field.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let Some(path) = address.sun_path.get_mut(1..=name.len()) else {
        return false;
    };
    for (to, from) in path.iter_mut().zip(name.bytes()) {
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

/// Receives one message from a connection, within `limit` ms. `None` at its end or when nothing
/// came.
pub(crate) fn receive<'a>(
    connection: BorrowedFd<'_>,
    to: &'a mut [u8],
    limit: libc::c_int,
) -> Option<&'a [u8]> {
    if !readable(connection, limit) {
        return None;
    }
    // SAFETY: the kernel writes at most so many bytes into `to`. It drops descriptors that came
    // along: there is no buffer for them.
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

/// Sends a reply. Returns false when nobody is there to read it.
pub(crate) fn send_reply(connection: BorrowedFd<'_>, reply: &connect::ConnectReply) -> bool {
    let bytes = reply.bytes();
    // SAFETY: so many bytes of a live value. A peer that does not read does not block us.
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
