//! Who may attach over the listener's socket: only a process that could trace this one as well, and
//! none that would gain rights by it.
//!
//! An abstract socket has no file mode, and every process in the network namespace can reach it,
//! sandboxes among them. So the kernel's own rules for tracing are applied: the same user
//! namespace, all ids of all threads those of the peer, dumpable, no capability that the peer
//! lacks; and a peer must see this process, as a tracer must. The decision is made separately for each
//! peer: a daemon may have dropped its rights.

use crate::procfs::{self, Status};
use midair_record::connect::refusal;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// What is known of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OwnProcess {
    pid: i32,
    /// Of each thread: a thread has ids and capabilities of its own.
    threads: Vec<Status>,
    dumpable: bool,
    /// It was started set-uid or with file capabilities.
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
    /// Whether the status is that of the peer, and not of a later process with its pid.
    proven: bool,
}

/// Decides. The error is one of [`refusal`].
fn judge(own: &OwnProcess, peer: &Peer) -> Result<(), i32> {
    let Some(status) = &peer.status else {
        // A peer that this process cannot see is in a pid namespace above this one, or in an
        // unrelated one.
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
    let permitted = own
        .threads
        .iter()
        .fold(0, |all, thread| all | thread.permitted);
    // Root in a container may have fewer capabilities than root outside, and reach the same socket.
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

/// Whether the process at the other end of `connection` may attach; if not, one of [`refusal`].
pub(crate) fn admit(connection: BorrowedFd<'_>) -> Result<(), i32> {
    let peer = peer(connection).ok_or(refusal::UNKNOWN)?;
    // SAFETY: both take plain integers, and touch no memory.
    let (dumpable, secure) = unsafe {
        (
            libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) == 1,
            libc::getauxval(libc::AT_SECURE) != 0,
        )
    };
    let own = OwnProcess {
        pid: std::process::id().cast_signed(),
        // A thread that ends meanwhile has no status.
        threads: procfs::threads()
            .iter()
            .filter_map(|tid| procfs::status(&format!("self/task/{tid}")))
            .collect(),
        dumpable,
        secure,
    };
    judge(&own, &peer)
}

fn peer(connection: BorrowedFd<'_>) -> Option<Peer> {
    let who = credentials(connection)?;
    // Opened before anything is read by pid, and checked after it.
    let held = held_peer(connection);
    let status = (who.pid > 0)
        .then(|| procfs::status(&who.pid.to_string()))
        .flatten();
    let same_user_namespace = procfs::same_user_namespace(who.pid);
    let same_user_map = procfs::same_user_map(who.pid);
    Some(Peer {
        pid: who.pid,
        uid: who.uid,
        gid: who.gid,
        status,
        same_user_namespace,
        same_user_map,
        proven: held.is_some_and(|peer| lives(&peer)),
    })
}

fn option<T>(connection: BorrowedFd<'_>, name: libc::c_int, fresh: T) -> Option<T> {
    let mut value = fresh;
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `value`, which is plain data at each
    // call below.
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

/// Process, user and group of the peer when it connected, as the kernel reports them, in this
/// process's namespaces.
fn credentials(connection: BorrowedFd<'_>) -> Option<libc::ucred> {
    let none = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    option(connection, libc::SO_PEERCRED, none)
}

/// A pidfd of the peer's process. Since Linux 6.5.
fn held_peer(connection: BorrowedFd<'_>) -> Option<OwnedFd> {
    /// asm-generic/socket.h
    const SO_PEERPIDFD: libc::c_int = 77;
    let fd = option(connection, SO_PEERPIDFD, -1)?;
    // SAFETY: the kernel made it for us, and nobody else owns it.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A pidfd is readable once its process has ended.
fn lives(process: &OwnedFd) -> bool {
    let mut poll = libc::pollfd {
        fd: process.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid pollfd.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn plain(id: u32, capabilities: u64, pid: i32) -> Status {
        Status {
            uid: [id; 4],
            gid: [id; 4],
            ns_tgid: vec![pid],
            permitted: capabilities,
            effective: capabilities,
        }
    }

    fn own(id: u32, capabilities: u64) -> OwnProcess {
        OwnProcess {
            pid: 7,
            threads: vec![plain(id, capabilities, 7); 2],
            dumpable: true,
            secure: false,
        }
    }

    fn peer_of(id: u32, capabilities: u64) -> Peer {
        Peer {
            pid: 9,
            uid: id,
            gid: id,
            status: Some(plain(id, capabilities, 9)),
            same_user_namespace: Some(true),
            same_user_map: true,
            proven: true,
        }
    }

    #[test]
    fn the_same_user_and_a_root_that_could_trace_are_admitted() {
        assert_eq!(judge(&own(1000, 0), &peer_of(1000, 0)), Ok(()));
        assert_eq!(judge(&own(1000, 0), &peer_of(0, 0xff)), Ok(()));
        assert_eq!(judge(&own(0, 0xff), &peer_of(0, 0x1ff)), Ok(()));
        // Root needs neither a dumpable process nor access to its own namespaces.
        let mut closed = own(1000, 0);
        (closed.dumpable, closed.secure) = (false, true);
        let mut unseen = peer_of(0, 0xff);
        unseen.same_user_namespace = None;
        assert_eq!(judge(&closed, &unseen), Ok(()));
        // An old kernel cannot prove the identity of the peer; nothing is to be gained here.
        let mut unproven = peer_of(1000, 0);
        unproven.proven = false;
        assert_eq!(judge(&own(1000, 0), &unproven), Ok(()));
    }

    #[test]
    fn other_peers_are_refused_with_the_reason() {
        let refused = |own: &OwnProcess, change: fn(&mut Peer), why: i32, what: &str| {
            let mut peer = peer_of(own.threads[0].uid[0], own.threads[0].permitted);
            change(&mut peer);
            assert_eq!(judge(own, &peer), Err(why), "{what}");
        };
        let user = own(1000, 0);
        refused(&user, |p| p.uid = 1001, refusal::USER, "another user");
        refused(&user, |p| p.gid = 1001, refusal::USER, "another group");
        refused(
            &user,
            |p| p.status = None,
            refusal::NAMESPACE,
            "not to be seen",
        );
        refused(
            &user,
            |p| p.pid = 0,
            refusal::NAMESPACE,
            "a parent namespace",
        );
        refused(
            &user,
            |p| p.status.as_mut().unwrap().ns_tgid.push(1),
            refusal::NAMESPACE,
            "a container on the same network",
        );
        refused(
            &user,
            |p| p.same_user_namespace = Some(false),
            refusal::NAMESPACE,
            "another user namespace",
        );
        refused(
            &user,
            |p| p.same_user_namespace = None,
            refusal::NAMESPACE,
            "a set-uid attacher",
        );
        let root = own(0, 0xff);
        refused(
            &root,
            |p| p.status.as_mut().unwrap().effective = 0x7f,
            refusal::CAPABLE,
            "root with fewer capabilities",
        );
        refused(
            &root,
            |p| p.proven = false,
            refusal::UNKNOWN,
            "an old kernel",
        );
        refused(
            &root,
            |p| {
                p.same_user_namespace = None;
                p.same_user_map = false;
            },
            refusal::NAMESPACE,
            "another root",
        );
        let at = |change: fn(&mut OwnProcess)| {
            let mut own = own(1000, 0);
            change(&mut own);
            judge(&own, &peer_of(1000, 0))
        };
        assert_eq!(at(|own| own.dumpable = false), Err(refusal::NOT_DUMPABLE));
        assert_eq!(at(|own| own.secure = true), Err(refusal::SECURE));
        assert_eq!(at(|own| own.threads.clear()), Err(refusal::UNKNOWN));
        assert_eq!(
            at(|own| own.threads[1].permitted = 1),
            Err(refusal::CAPABLE),
            "one thread kept a capability"
        );
        assert_eq!(
            at(|own| own.threads[1].uid[2] = 0),
            Err(refusal::USER),
            "a daemon that can become root again"
        );
        assert_eq!(
            at(|own| own.threads[0].ns_tgid = vec![70, 7]),
            Err(refusal::NAMESPACE),
            "somebody else's /proc"
        );
        let mut same_user = peer_of(1000, 0xff);
        same_user.uid = 1000;
        assert_eq!(
            judge(&own(1000, 0xf), &same_user),
            Err(refusal::CAPABLE),
            "a user's process with capabilities is root's only"
        );
    }

    #[test]
    fn this_process_may_attach_to_itself() {
        let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(admit(near.as_fd()), Ok(()));
    }
}
