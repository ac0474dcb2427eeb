//! The start of a session: a connection, the attacher's offer, and the reply.

use crate::{Sent, VerifiedFd};
use midair_record::boot::{BootBlock, mailbox, step};
use midair_record::connect::{self, ConnectReply};
use midair_record::offer::{MAX_TOOLS, Offer, Reply};
use std::ffi::c_int;
use std::os::fd::RawFd;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

/// Takes the connection that the process's listener handed over. Returns -1 if there is none.
///
/// # Safety
/// `boot` is the live boot block of the calling thread.
pub(crate) unsafe fn take_handed(boot: *mut BootBlock) -> RawFd {
    // SAFETY: the caller's promise.
    let handed = unsafe { (*boot).handed.swap(0, SeqCst) };
    handed.cast_signed().wrapping_sub(1)
}

/// Closes the connection that the process's listener handed over. Either the process is taken
/// (`refused` is then the error that the attacher receives), or an attacher that traces was faster.
///
/// # Safety
/// As [`take_handed`].
pub(crate) unsafe fn hang_up(boot: *mut BootBlock, refused: Option<c_int>) {
    // SAFETY: the caller's promise.
    let near = unsafe { take_handed(boot) };
    if near < 0 {
        return;
    }
    // The listener made the connection. Whoever takes it out of the block owns it.
    let Some(connection) = VerifiedFd::new(near) else {
        return;
    };
    if let Some(errno) = refused.filter(|_| connection.is_ours()) {
        let mut reply = ConnectReply::new(connect::outcome::FAILED);
        (reply.step, reply.error) = (step::ENTRY, errno);
        let bytes = reply.bytes();
        // SAFETY: the pointer and the length describe a live value.
        unsafe {
            libc::send(
                connection.number(),
                bytes.as_ptr().cast(),
                bytes.len(),
                libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
            )
        };
    }
}

/// Stores what failed in the boot block. The attacher reads it once the mailbox says that something
/// failed.
///
/// # Safety
/// As [`take_handed`].
pub(crate) unsafe fn fail(boot: *mut BootBlock, step: u32, errno: c_int) {
    // SAFETY: the caller's promise.
    let (error, error_step) = unsafe { (&(*boot).error, &(*boot).error_step) };
    error.store(errno, Relaxed);
    error_step.store(step, Relaxed);
}

/// Makes a socket pair and waits for the attacher to take the far end and to send something.
/// Returns our end if it did.
///
/// # Safety
/// As [`take_handed`].
pub(crate) unsafe fn open(boot: *mut BootBlock, word: &AtomicU32) -> Option<VerifiedFd> {
    let mut pair = [-1; 2];
    // SAFETY: `pair` has room for the two numbers that the kernel writes.
    if unsafe {
        libc::socketpair(
            libc::AF_UNIX,
            libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC,
            0,
            pair.as_mut_ptr(),
        )
    } != 0
    {
        // SAFETY: `boot` is live, as the caller promises. errno is this thread's own.
        unsafe { fail(boot, step::SOCKET, *libc::__errno_location()) };
        word.store(mailbox::FAILED, Release);
        return None;
    }
    let [Some(near), Some(far)] = pair.map(VerifiedFd::new) else {
        // The program has closed one of them meanwhile.
        // SAFETY: as above.
        unsafe { fail(boot, step::SOCKET, libc::EBADF) };
        word.store(mailbox::FAILED, Release);
        return None;
    };
    // SAFETY: `boot` is live, as the caller promises.
    let patience = unsafe {
        (*boot).fd_near.store(near.number(), Relaxed);
        (*boot).fd_far.store(far.number(), Relaxed);
        (*boot).patience_ms
    };
    word.store(mailbox::OPEN, Release);
    let mut poll = libc::pollfd {
        fd: near.number(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the pointer is to one valid pollfd.
    let spoke = unsafe { libc::poll(&mut poll, 1, patience as c_int) } == 1;
    // By now the attacher has a copy of the far end, or will never take it.
    drop(far);
    // SAFETY: as above.
    unsafe {
        (*boot).fd_far.store(-1, Relaxed);
        (*boot).fd_near.store(-1, Relaxed);
    }
    word.store(mailbox::TALKING, Release);
    spoke.then_some(near)
}

/// What an attacher sent.
pub(crate) struct Session {
    pub(crate) sent: Sent,
    pub(crate) spool: VerifiedFd,
    pub(crate) socket: VerifiedFd,
}

/// Reads the whole plan of counters. It is small compared with what the device needs for it.
fn read_plan(plan: &VerifiedFd, bytes: usize) -> Option<Vec<u8>> {
    let mut read = vec![0; bytes];
    let mut done = 0;
    while let Some(rest) = read.get_mut(done..).filter(|rest| !rest.is_empty()) {
        if !plan.is_ours() {
            return None;
        }
        // SAFETY: the kernel writes at most as many bytes as the exclusive slice has.
        let got = unsafe {
            libc::pread(
                plan.number(),
                rest.as_mut_ptr().cast(),
                rest.len(),
                done as libc::off_t,
            )
        };
        done += usize::try_from(got).ok().filter(|got| *got > 0)?;
    }
    Some(read)
}

/// Receives the attacher's offer and the descriptors that come with it.
pub(crate) fn receive(socket: VerifiedFd) -> Option<Session> {
    let mut poll = libc::pollfd {
        fd: socket.number(),
        events: libc::POLLIN,
        revents: 0,
    };
    // A starved attacher takes long to make its spool. An attacher that dies closes the socket,
    // which ends the wait.
    // SAFETY: the pointer is to one valid pollfd.
    if unsafe { libc::poll(&mut poll, 1, 20_000) } != 1 {
        return None;
    }
    let mut offer = Offer::default();
    let mut control = [0_u64; 32];
    let mut part = libc::iovec {
        iov_base: (&raw mut offer).cast(),
        iov_len: size_of::<Offer>(),
    };
    // SAFETY: msghdr is plain data, and zero is a valid value of each field.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the buffers outlive the call, and any bytes are a valid Offer, which is made of
    // integers.
    let got = unsafe { libc::recvmsg(socket.number(), &mut message, libc::MSG_CMSG_CLOEXEC) };
    let mut fds = Vec::new();
    // SAFETY: the kernel filled the control buffer, and the macros stay within msg_controllen.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let count =
                    ((*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                for index in 0..count {
                    fds.extend(VerifiedFd::new(data.add(index).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(&message, header);
        }
    }
    let good =
        got as usize == size_of::<Offer>() && offer.is_ours() && fds.len() == offer.descriptors();
    if !good {
        return None;
    }
    let mut fds = fds.into_iter();
    let spool = fds.next()?;
    let tools = fds.by_ref().take(offer.tools as usize).collect();
    let plan = match fds.next() {
        Some(plan) => read_plan(&plan, offer.plan_bytes as usize)?,
        None => Vec::new(),
    };
    Some(Session {
        sent: Sent { offer, tools, plan },
        spool,
        socket,
    })
}

/// Tells the attacher whether its spool was accepted.
pub(crate) fn send_reply(socket: &VerifiedFd, accepted: bool) {
    if !socket.is_ours() {
        return;
    }
    let reply = Reply::new(accepted);
    // SAFETY: the reply is a live struct of plain integers, sent whole. An attacher that is gone is
    // detected later by its lease, so the result does not matter.
    unsafe {
        libc::send(
            socket.number(),
            (&raw const reply).cast(),
            size_of::<Reply>(),
            libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
        )
    };
}

const _: () = assert!(MAX_TOOLS <= 16);
