//! Decides who may attach over the listener's socket: only a process that could trace this one as
//! well, and that would gain no rights by it.
//!
//! An abstract socket has no file mode, and every process in the network namespace can reach it,
//! including sandboxed ones. Three steps decide. The cheap ones come first, so that a peer that is
//! refused has cost little:
//!
//! 1. [`may_ask`] checks the user that the kernel reported when the peer connected. Nothing is
//!    read.
//! 2. [`Look::at`] checks the peer's namespaces and its sandbox. It reads about one process,
//!    however many threads this process has.
//! 3. [`admit`] runs only after the peer has shown (`token`) that the kernel lets it read this
//!    process's memory. Yama, Landlock and other security modules refuse that to processes that may
//!    not trace. Further rules are stricter than the kernel's: all ids of all threads must equal
//!    the peer's, the user namespace must be the same, and this process must have no capability
//!    that the peer lacks. The peer must also be alive, and be the process that connected.
//!
//! The decision is made separately for each peer, since a daemon may have dropped its rights.
//!
//! Decisions: ENG-034 (`docs/deviations/engine.md`).

use crate::procfs::{self, Sandbox, Status};
use midair_record::connect::refusal;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// What the kernel reports of a peer: its ids at the time when it connected, as seen from this
/// process's namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Credentials {
    /// The peer's process id. 0 where it is outside of this process's pid namespace.
    pub(crate) pid: i32,
    /// Its effective user.
    pub(crate) uid: u32,
    /// Its effective group.
    pub(crate) gid: u32,
}

/// The properties of a peer that must not change from its request until it is admitted. A process
/// that took over the peer's number started later. A process that executed a program with other
/// rights has other ids or capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    start_ticks: u64,
    real_uid: u32,
    saved_uid: u32,
    permitted: u64,
    sandbox: Sandbox,
}

/// What is known of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OwnProcess {
    pid: i32,
    /// The status of each thread: a thread has ids and capabilities of its own.
    threads: Vec<Status>,
    /// The sandbox of the listener's thread.
    sandbox: Sandbox,
    dumpable: bool,
    /// Whether it was started set-uid or with file capabilities.
    secure: bool,
}

/// What is known of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Peer {
    pid: i32,
    uid: u32,
    gid: u32,
    status: Option<Status>,
    same_user_namespace: Option<bool>,
    same_user_map: bool,
    /// Whether the kernel has shown that the peer is alive and is the process that connected, or at
    /// least the one that was looked at when it asked. Kernels before 5.3 cannot show that.
    proven: bool,
}

/// Whether a peer may ask at all: root and the listener's own user may. No file is read for this,
/// and nothing is allocated.
///
/// # Errors
/// [`refusal::USER`] or [`refusal::NAMESPACE`].
pub(crate) fn may_ask(credentials: &Credentials) -> Result<(), i32> {
    // SAFETY: the call takes no arguments and cannot fail.
    let own = unsafe { libc::geteuid() };
    if credentials.uid != 0 && credentials.uid != own {
        return Err(refusal::USER);
    }
    if credentials.pid <= 0 {
        return Err(refusal::NAMESPACE);
    }
    Ok(())
}

impl Look {
    /// Looks at a peer that has asked.
    ///
    /// # Errors
    /// One of [`refusal`], for what can be decided without walking the threads of this process.
    pub(crate) fn at(credentials: &Credentials) -> Result<Look, i32> {
        let own = procfs::status("thread-self").ok_or(refusal::UNKNOWN)?;
        let (look, status) = Look::of(credentials)?;
        if status.ns_tgid != [credentials.pid] {
            return Err(refusal::NAMESPACE);
        }
        if look.sandbox.is_tighter_than(&own.sandbox) {
            return Err(refusal::SANDBOX);
        }
        Ok(look)
    }

    /// Does the same without a judgement.
    fn of(credentials: &Credentials) -> Result<(Look, Status), i32> {
        let pid = credentials.pid.to_string();
        // If this process cannot see the peer, the peer is in a pid namespace above this one or in
        // an unrelated one, or it has ended.
        let status = procfs::status(&pid).ok_or(refusal::NAMESPACE)?;
        let start_ticks = procfs::start_ticks(&pid).ok_or(refusal::NAMESPACE)?;
        let has = |ids: &[u32; 4], id: u32| ids.iter().take(3).any(|its| *its == id);
        if status.ended || !has(&status.uid, credentials.uid) || !has(&status.gid, credentials.gid)
        {
            return Err(refusal::CHANGED);
        }
        let look = Look {
            start_ticks,
            real_uid: status.uid[0],
            saved_uid: status.uid[2],
            permitted: status.permitted,
            sandbox: status.sandbox,
        };
        Ok((look, status))
    }
}

/// Decides whether the peer is admitted. The error is one of [`refusal`].
fn judge(own: &OwnProcess, peer: &Peer) -> Result<(), i32> {
    let Some(status) = &peer.status else {
        // If this process cannot see the peer, the peer is in a pid namespace above this one or in
        // an unrelated one.
        return Err(refusal::NAMESPACE);
    };
    if own.threads.is_empty() {
        return Err(refusal::UNKNOWN);
    }
    let visible = own
        .threads
        .iter()
        .all(|own_thread| own_thread.ns_tgid == [own.pid]);
    if peer.pid <= 0 || !visible || status.ns_tgid != [peer.pid] {
        return Err(refusal::NAMESPACE);
    }
    let root = peer.uid == 0;
    let all_its_own = own.threads.iter().all(|thread| {
        thread.uid.iter().take(3).all(|id| *id == peer.uid)
            && thread.gid.iter().take(3).all(|id| *id == peer.gid)
    });
    if !root && !all_its_own {
        return Err(refusal::USER);
    }
    match peer.same_user_namespace {
        Some(true) => {}
        // A process without root's rights may not inspect the namespaces of root's processes.
        None if root && peer.same_user_map => {}
        _ => return Err(refusal::NAMESPACE),
    }
    if status.sandbox.is_tighter_than(&own.sandbox) {
        return Err(refusal::SANDBOX);
    }
    let permitted = own
        .threads
        .iter()
        .fold(0, |all, thread| all | thread.permitted);
    // Root in a container may have fewer capabilities than root outside, and can reach the same
    // socket.
    if permitted & !status.effective != 0 {
        return Err(refusal::CAPABLE);
    }
    if permitted != 0 && !peer.proven {
        return Err(refusal::UNKNOWN);
    }
    if root {
        return Ok(());
    }
    if permitted != 0 {
        return Err(refusal::CAPABLE);
    }
    if own.secure {
        return Err(refusal::SECURE);
    }
    if !own.dumpable {
        return Err(refusal::NOT_DUMPABLE);
    }
    Ok(())
}

/// Decides whether the process at the other end of `connection` may attach. It looked like `first`
/// when it asked, and has shown since then that it may read this process's memory.
///
/// # Errors
/// One of [`refusal`].
pub(crate) fn admit(
    connection: BorrowedFd<'_>,
    credentials: &Credentials,
    first: &Look,
) -> Result<(), i32> {
    // SAFETY: both calls take plain integers and access no memory.
    let (dumpable, secure) = unsafe {
        (
            libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) == 1,
            libc::getauxval(libc::AT_SECURE) != 0,
        )
    };
    let own = OwnProcess {
        pid: std::process::id().cast_signed(),
        // A thread that ends meanwhile has no status and is left out.
        threads: procfs::threads()
            .iter()
            .filter_map(|tid| procfs::status(&format!("self/task/{tid}")))
            .collect(),
        sandbox: procfs::status("thread-self")
            .ok_or(refusal::UNKNOWN)?
            .sandbox,
        dumpable,
        secure,
    };
    // The pidfd is opened before anything is read by pid, and checked after it. So everything that
    // was read belongs to that process.
    let held = Held::of(connection, credentials)?;
    let same_user_namespace = procfs::same_user_namespace(credentials.pid);
    let same_user_map = procfs::same_user_map(credentials.pid);
    let (now, status) = Look::of(credentials).map_err(|_| refusal::CHANGED)?;
    let peer = Peer {
        pid: credentials.pid,
        uid: credentials.uid,
        gid: credentials.gid,
        status: Some(status),
        same_user_namespace,
        same_user_map,
        proven: matches!(held, Held::By(_)),
    };
    judge(&own, &peer)?;
    confirm(&held, first, &now)
}

/// Makes the last check: the peer is unchanged since it asked, and is alive.
fn confirm(held: &Held, first: &Look, now: &Look) -> Result<(), i32> {
    if now != first || held.has_ended() {
        return Err(refusal::CHANGED);
    }
    Ok(())
}

/// A peer's process, held so that its number cannot unnoticed become another process's.
#[derive(Debug)]
enum Held {
    /// It is held by this pidfd.
    By(OwnedFd),
    /// It is not held: the kernel has no pidfds, or no descriptor is free.
    Not,
}

impl Held {
    /// Returns a pidfd of the process that connected. Before Linux 6.5 it refers to the process
    /// that has the peer's number now.
    ///
    /// # Errors
    /// [`refusal::CHANGED`] when it has ended.
    fn of(connection: BorrowedFd<'_>, credentials: &Credentials) -> Result<Held, i32> {
        /// source: asm-generic/socket.h
        const SO_PEERPIDFD: libc::c_int = 77;
        let mut fd: Option<libc::c_int> = option(connection, SO_PEERPIDFD, 0);
        if fd.is_none() && last_errno() == libc::ENOPROTOOPT {
            // SAFETY: the call takes numbers.
            let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, credentials.pid, 0) };
            fd = opened.try_into().ok().filter(|fd| *fd >= 0);
        }
        if let Some(fd) = fd {
            // SAFETY: the kernel made the descriptor for us, and nothing else owns it.
            return Ok(Held::By(unsafe { OwnedFd::from_raw_fd(fd) }));
        }
        match last_errno() {
            // Both calls say by these errors that there is no such process any more.
            libc::ESRCH | libc::EINVAL | libc::ENODATA => Err(refusal::CHANGED),
            _ => Ok(Held::Not),
        }
    }

    /// Whether the process has ended. A pidfd is readable from then on.
    fn has_ended(&self) -> bool {
        let Held::By(process) = self else {
            return false;
        };
        let mut poll = libc::pollfd {
            fd: process.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the pointer is to one valid pollfd.
        unsafe { libc::poll(&raw mut poll, 1, 0) != 0 }
    }
}

fn last_errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn option<T>(connection: BorrowedFd<'_>, name: libc::c_int, fresh: T) -> Option<T> {
    let mut value = fresh;
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `value`. At each call below, `value` is
    // plain data.
    let got = unsafe {
        libc::getsockopt(
            connection.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    (got == 0 && length as usize == size_of::<T>()).then_some(value)
}

/// Returns process, user and group of the peer, from the time when it connected.
pub(crate) fn credentials(connection: BorrowedFd<'_>) -> Option<Credentials> {
    let none = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let who = option(connection, libc::SO_PEERCRED, none)?;
    Some(Credentials {
        pid: who.pid,
        uid: who.uid,
        gid: who.gid,
    })
}

#[cfg(test)]
mod tests;
