//! The listener endpoint: the socket that attachers connect to.
//!
//! The socket is a descriptor in a program that knows nothing of it. The program may close every
//! descriptor that it does not know (`closefrom`), or put one of its own at that number. So the
//! descriptor is verified before each use. When it is not ours any more, nothing is done with it,
//! and the process has a listener without a socket, as AMD's.
//!
//! The listener waits for a connection by `ppoll` and not in `accept4`. That call reserves the
//! number of the connection *before* it waits. A program would then find a number in use that no
//! list of descriptors shows, and a `dup2` to it would fail with EBUSY.
//!
//! The socket gets its name when it has its final number, and listens only when all else is ready.
//! From then on nothing is done with a number that was not verified. The name ends in random
//! digits, so that no process can take it beforehand (ENG-033).

use crate::procfs;
use crate::token::{self, SLOTS, Tokens};
use midair_guest::verified_fd::VerifiedFd;
use midair_record::connect;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

/// The maximum number of connections that wait to be accepted. The kernel lets further peers wait
/// in the order in which they came.
const BACKLOG: libc::c_int = 64;
/// How often another name is tried. A random name is taken only by chance.
const TRIES: usize = 4;
/// How long to do nothing after a call that failed for lack of memory or descriptors.
const RESPITE: Duration = Duration::from_millis(500);
/// The lowest number that is used, since low numbers are left to the program.
const LOWEST: RawFd = 100;

/// Our listening socket.
#[derive(Debug)]
pub(crate) struct Endpoint {
    fd: RawFd,
    cookie: u64,
    /// The tokens that attachers have to read.
    pub(crate) tokens: Tokens,
}

/// A midair socket that a forked child must close, since the child has a copy of its parent's
/// descriptor. The cookie is written first.
struct Open {
    fd: AtomicI32,
    cookie: AtomicU64,
}

impl Open {
    const fn none() -> Open {
        Open {
            fd: AtomicI32::new(-1),
            cookie: AtomicU64::new(0),
        }
    }
    fn set(&self, fd: RawFd, cookie: u64) {
        self.cookie.store(cookie, Ordering::Relaxed);
        self.fd.store(fd, Ordering::Release);
    }
    fn close_copy(&self) {
        let fd = self.fd.swap(-1, Ordering::Acquire);
        if fd >= 0 && cookie(fd) == Some(self.cookie.load(Ordering::Relaxed)) {
            // SAFETY: the number refers to the copy of our own socket, and the child has no thread
            // but this one.
            unsafe { libc::close(fd) };
        }
    }
}

static LISTENING: Open = Open::none();
static CONNECTIONS: [Open; SLOTS] = [const { Open::none() }; SLOTS];

/// Closes the copies of the parent's sockets in a forked child. Uses system calls and atomics only.
pub(crate) fn forked() {
    LISTENING.close_copy();
    CONNECTIONS.iter().for_each(Open::close_copy);
}

/// Notes that a forked child must close this connection, which waits at this position.
pub(crate) fn remember(slot: usize, fd: RawFd) {
    if let (Some(open), Some(cookie)) = (CONNECTIONS.get(slot), cookie(fd)) {
        open.set(fd, cookie);
    }
}

/// Notes that the connection at this position is closed, or belongs to another owner, from now on.
pub(crate) fn forget(slot: usize) {
    if let Some(open) = CONNECTIONS.get(slot) {
        open.fd.store(-1, Ordering::Release);
    }
}

/// The events that a wait has found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ready {
    /// Whether a peer waits to be accepted.
    pub(crate) incoming: bool,
    /// The positions of connections that have something to read or are closed.
    pub(crate) connections: [bool; SLOTS],
}

/// Returns the kernel's number for a socket. It is not used again until the machine is restarted.
fn cookie(fd: RawFd) -> Option<u64> {
    let mut value = 0_u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most eight bytes into `value`, and any descriptor number may be
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
    /// Opens the endpoint. `None` where the kernel or the namespaces do not allow it: then the
    /// process can be attached to by tracing only.
    pub(crate) fn open() -> Option<Endpoint> {
        let pid = std::process::id();
        // Attachers cannot be identified with the /proc of another pid namespace.
        if procfs::status("self")?.ns_tgid != [pid.cast_signed()] {
            return None;
        }
        let start = procfs::start_ticks("self")?;
        // SAFETY: the call takes numbers.
        let socket = VerifiedFd::new(unsafe {
            libc::socket(
                libc::AF_UNIX,
                libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
                0,
            )
        })?;
        let socket = match socket.duplicate(LOWEST) {
            Some(high) => high,
            // Either so high a number is not allowed here, or the program has taken the number.
            None if socket.is_ours() => socket,
            None => return None,
        };
        let tokens = Tokens::map()?;
        let filters = procfs::filters();
        let fd = socket.number();
        let bound = (0..TRIES).any(|_| {
            let mut bytes = [0; 8];
            token::random(&mut bytes)
                && bind(
                    fd,
                    &connect::name(pid, start, u64::from_ne_bytes(bytes), filters),
                )
        });
        let cookie = cookie(fd)?;
        // SAFETY: the call takes numbers.
        if !bound || unsafe { libc::listen(fd, BACKLOG) } != 0 {
            return None;
        }
        let (fd, _) = socket.into_parts();
        LISTENING.set(fd, cookie);
        Some(Endpoint { fd, cookie, tokens })
    }

    /// Whether the number still refers to our socket.
    fn is_ours(&self) -> bool {
        cookie(self.fd) == Some(self.cookie)
    }

    /// Waits until a peer connects (if `accepting`), or until there is something to read from one
    /// of `connections`. After `limit` it returns that nothing has happened. `None` once the socket
    /// is gone.
    pub(crate) fn wait<'a>(
        &self,
        accepting: bool,
        connections: impl Iterator<Item = (usize, BorrowedFd<'a>)>,
        limit: Option<Duration>,
    ) -> Option<Ready> {
        if !self.is_ours() {
            return None;
        }
        let nobody = libc::pollfd {
            fd: -1,
            events: libc::POLLIN,
            revents: 0,
        };
        // The kernel skips entries with the number -1.
        let mut polls = [nobody; 1 + SLOTS];
        let mut slots = [SLOTS; 1 + SLOTS];
        if accepting && let Some(first) = polls.first_mut() {
            first.fd = self.fd;
        }
        let mut count = 1;
        for (slot, connection) in connections {
            if let (Some(poll), Some(of)) = (polls.get_mut(count), slots.get_mut(count)) {
                poll.fd = connection.as_raw_fd();
                *of = slot;
                count += 1;
            }
        }
        let limit = limit.map(|limit| libc::timespec {
            tv_sec: limit.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        });
        // SAFETY: `count` pollfds are valid. The timeout is null or outlives the call, and
        // there is no mask.
        let ready = unsafe {
            libc::ppoll(
                polls.as_mut_ptr(),
                count as libc::nfds_t,
                limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref),
                std::ptr::null(),
            )
        };
        if ready < 0 {
            // There is no memory, or the program has lowered its own limit of descriptors. No event
            // is reported then.
            std::thread::sleep(RESPITE);
        }
        if !self.is_ours() {
            return None;
        }
        let mut happened = Ready::default();
        for (poll, slot) in polls
            .iter()
            .zip(slots)
            .filter(|(poll, _)| poll.revents != 0)
        {
            match happened.connections.get_mut(slot) {
                Some(connection) => *connection = true,
                None => happened.incoming = poll.fd == self.fd,
            }
        }
        Some(happened)
    }

    /// Accepts the next connection. `None` when there is none.
    pub(crate) fn accept(&self) -> Option<VerifiedFd> {
        // SAFETY: no address is requested.
        let connection = VerifiedFd::new(unsafe {
            libc::accept4(
                self.fd,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                libc::SOCK_CLOEXEC,
            )
        });
        if connection.is_none() {
            let error = std::io::Error::last_os_error().raw_os_error();
            if !matches!(error, Some(libc::EAGAIN | libc::EINTR | libc::ECONNABORTED)) {
                // No descriptor or no memory is free. The attacher keeps waiting, and this thread
                // must not spin meanwhile.
                std::thread::sleep(RESPITE);
            }
        }
        connection
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        LISTENING.fd.store(-1, Ordering::Release);
        if self.is_ours() {
            // SAFETY: it was verified just now that the number refers to our socket.
            unsafe { libc::close(self.fd) };
        }
    }
}

fn bind(socket: RawFd, name: &str) -> bool {
    // SAFETY: the struct is plain data, and zero is a value of each field.
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

/// Asks the kernel to tell who sends each message on this connection, or to stop doing so. It
/// cannot tell the sender of a message that was sent before.
pub(crate) fn tell_senders(connection: BorrowedFd<'_>, whether: bool) -> bool {
    let on = libc::c_int::from(whether);
    // SAFETY: the kernel reads one int.
    let set = unsafe {
        libc::setsockopt(
            connection.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PASSCRED,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    set == 0
}

/// Receives a message that has arrived. `None` at the end, or when there is none. The kernel closes
/// descriptors that came along, because there is no room for them.
pub(crate) fn receive<'a>(connection: BorrowedFd<'_>, to: &'a mut [u8]) -> Option<&'a [u8]> {
    receive_with(connection, to, &mut []).map(|(bytes, _)| bytes)
}

/// Receives a message and returns the process that sent it, too, if [`tell_senders`] was called in
/// time.
pub(crate) fn receive_from<'a>(
    connection: BorrowedFd<'_>,
    to: &'a mut [u8],
) -> Option<(&'a [u8], Option<libc::pid_t>)> {
    // There is room for a header of 16 bytes and a `ucred` of 12, filled up to 16. The kernel puts
    // those first, so that descriptors find no room.
    receive_with(connection, to, &mut [0; 4])
}

fn receive_with<'a>(
    connection: BorrowedFd<'_>,
    to: &'a mut [u8],
    control: &mut [u64],
) -> Option<(&'a [u8], Option<libc::pid_t>)> {
    let mut part = libc::iovec {
        iov_base: to.as_mut_ptr().cast(),
        iov_len: to.len(),
    };
    // SAFETY: the struct is plain data, and zero is a value of each field.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(control) as _;
    // SAFETY: the buffers outlive the call.
    let got = unsafe {
        libc::recvmsg(
            connection.as_raw_fd(),
            &raw mut message,
            libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC,
        )
    };
    let got = usize::try_from(got).ok().filter(|got| *got > 0)?;
    // SAFETY: the kernel filled the control buffer, and the header is inside it or null.
    let sender = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let told = !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_CREDENTIALS
            && (*header).cmsg_len as usize
                == libc::CMSG_LEN(size_of::<libc::ucred>() as libc::c_uint) as usize;
        told.then(|| {
            libc::CMSG_DATA(header)
                .cast::<libc::ucred>()
                .read_unaligned()
                .pid
        })
    };
    Some((to.get(..got)?, sender))
}

/// Waits until there is something to read or the other end is closed.
pub(crate) fn readable(connection: BorrowedFd<'_>, limit: libc::c_int) -> bool {
    let mut poll = libc::pollfd {
        fd: connection.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the pointer is to one valid pollfd.
    unsafe { libc::poll(&raw mut poll, 1, limit) == 1 }
}

/// Whether the other end is closed.
pub(crate) fn is_hung_up(connection: BorrowedFd<'_>) -> bool {
    let mut poll = libc::pollfd {
        fd: connection.as_raw_fd(),
        events: libc::POLLRDHUP,
        revents: 0,
    };
    // SAFETY: the pointer is to one valid pollfd.
    unsafe { libc::poll(&raw mut poll, 1, 0) != 0 }
}

/// Sends a reply. Returns false when no peer is there to read it.
pub(crate) fn send_reply(connection: BorrowedFd<'_>, reply: &connect::ConnectReply) -> bool {
    let bytes = reply.bytes();
    // SAFETY: the pointer and the length describe a live value. A peer that does not read does
    // not block us.
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

#[cfg(test)]
pub(crate) mod tests;
