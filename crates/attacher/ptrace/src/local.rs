//! Sockets of the abstract namespace: connecting to one, in a network namespace of the caller's
//! choice, and asking which process listens on it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::{Pid, fault};

/// Who listens at the other end, as the kernel recorded it when the listening started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The process; `None` when it is outside of our pid namespace.
    pub pid: Option<Pid>,
    /// Its effective user.
    pub uid: u32,
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    match result {
        0.. => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Connects to the abstract sequenced-packet socket with this name (without its zero byte), in this
/// process's network namespace. Where the listener's queue is full, it waits its turn for
/// `patience` (in whole milliseconds, one at least), and then fails with EAGAIN.
///
/// # Errors
/// The kernel's: ECONNREFUSED when no process listens there, EINTR when a signal was handled.
pub fn connect_abstract(name: &str, patience: Duration) -> io::Result<OwnedFd> {
    // SAFETY: socket takes numbers only.
    let raw = check(unsafe {
        libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0)
    })?;
    // SAFETY: the kernel just made this descriptor for us, and no other code knows it.
    let socket = unsafe { OwnedFd::from_raw_fd(raw) };
    // SAFETY: the struct is plain data; zero is a valid value of each field.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let room = address
        .sun_path
        .get_mut(1..=name.len())
        .ok_or(io::ErrorKind::InvalidInput)?;
    for (to, from) in room.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let length = size_of::<libc::sa_family_t>()
        .saturating_add(1)
        .saturating_add(name.len());
    // The kernel wakes waiting callers in the order in which they came. A caller that repeats a
    // failing attempt instead is never among them.
    give_up_after(&socket, patience.max(Duration::from_millis(1)))?;
    // SAFETY: the address is `length` bytes of a live struct.
    check(unsafe {
        libc::connect(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            length as libc::socklen_t,
        )
    })?;
    // Later sends have no such limit: they may wait for their own deadline.
    give_up_after(&socket, Duration::ZERO)?;
    fault::step("connected to the listener");
    Ok(socket)
}

/// Makes connecting and sending fail with EAGAIN after `patience`; with zero, never.
fn give_up_after(socket: &OwnedFd, patience: Duration) -> io::Result<()> {
    let limit = libc::timeval {
        tv_sec: patience.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_usec: (patience.subsec_millis() * 1000).into(),
    };
    // SAFETY: the kernel reads one timeval, which is live.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_SNDTIMEO,
            (&raw const limit).cast(),
            size_of_val(&limit) as libc::socklen_t,
        )
    })?;
    Ok(())
}

/// As [`connect_abstract`], from within the network namespace `namespace` (an open
/// `/proc/PID/ns/net`). It runs on a thread of its own.
///
/// # Errors
/// As there; EPERM without CAP_SYS_ADMIN.
pub fn connect_abstract_in(
    namespace: &File,
    name: &str,
    patience: Duration,
) -> io::Result<OwnedFd> {
    crate::on_own_thread(|| {
        // SAFETY: setns takes numbers. It changes the calling thread only, which ends after this.
        check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) })?;
        connect_abstract(name, patience)
    })?
}

/// Returns who listens at the other end of a connection.
///
/// # Errors
/// The kernel's.
pub fn listening_peer(connection: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut who = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `who`.
    check(unsafe {
        libc::getsockopt(
            connection.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut who).cast(),
            &raw mut length,
        )
    })?;
    Ok(Peer {
        pid: Pid::try_from(who.pid).ok(),
        uid: who.uid,
    })
}

/// Receives the next message, of at most `to.len()` bytes, without waiting. Returns its length, 0
/// at the end of the stream. With `leave` the message is kept, to be read again.
///
/// # Errors
/// The kernel's: EAGAIN when there is none.
pub fn receive_now(connection: BorrowedFd<'_>, to: &mut [u8], leave: bool) -> io::Result<usize> {
    let peek = if leave { libc::MSG_PEEK } else { 0 };
    let mut once_more = true;
    loop {
        // SAFETY: the kernel writes at most `to.len()` bytes into `to`.
        let got = unsafe {
            libc::recv(
                connection.as_raw_fd(),
                to.as_mut_ptr().cast(),
                to.len(),
                libc::MSG_DONTWAIT | peek,
            )
        };
        let Err(_) = usize::try_from(got) else {
            return Ok(got.unsigned_abs());
        };
        let error = io::Error::last_os_error();
        // A connection that the other end closed with midair's bytes unread reports ECONNRESET once.
        // The last message of the other end can still be read after that.
        if error.raw_os_error() != Some(libc::ECONNRESET) || !once_more {
            return Err(error);
        }
        once_more = false;
    }
}
