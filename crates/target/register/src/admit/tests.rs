//! Who is admitted, and who is refused with which reason.

use super::*;
use crate::testing::{filter, in_a_child};
use std::os::fd::AsFd;

fn plain(id: u32, capabilities: u64, pid: i32) -> Status {
    Status {
        uid: [id; 4],
        gid: [id; 4],
        ns_tgid: vec![pid],
        permitted: capabilities,
        effective: capabilities,
        ..Status::default()
    }
}

fn own(id: u32, capabilities: u64) -> OwnProcess {
    OwnProcess {
        pid: 7,
        threads: vec![plain(id, capabilities, 7); 2],
        sandbox: Sandbox::default(),
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
    // An old kernel cannot prove the identity of the peer. Here the peer has nothing to gain by
    // that.
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
    refused(
        &user,
        |p| p.status.as_mut().unwrap().sandbox.no_new_privs = true,
        refusal::SANDBOX,
        "a process that gave up gaining rights",
    );
    refused(
        &user,
        |p| p.status.as_mut().unwrap().sandbox.seccomp = 2,
        refusal::SANDBOX,
        "a filtered process",
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
fn whoever_is_in_the_same_sandbox_is_admitted() {
    let (mut own, mut peer) = (own(1000, 0), peer_of(1000, 0));
    let sandbox = Sandbox {
        no_new_privs: true,
        seccomp: 2,
        filters: 1,
    };
    own.sandbox = sandbox;
    assert_eq!(judge(&own, &peer), Ok(()));
    peer.status.as_mut().unwrap().sandbox = sandbox;
    assert_eq!(judge(&own, &peer), Ok(()));
    peer.status.as_mut().unwrap().sandbox.filters = 2;
    assert_eq!(judge(&own, &peer), Err(refusal::SANDBOX));
}

#[test]
fn a_stranger_may_not_even_ask() {
    // SAFETY: the call takes no arguments and cannot fail.
    let own = unsafe { libc::geteuid() };
    let of = |pid, uid| Credentials { pid, uid, gid: 0 };
    assert_eq!(may_ask(&of(9, own)), Ok(()));
    assert_eq!(may_ask(&of(9, 0)), Ok(()));
    assert_eq!(may_ask(&of(9, own + 1)), Err(refusal::USER));
    assert_eq!(may_ask(&of(9, u32::MAX)), Err(refusal::USER));
    assert_eq!(may_ask(&of(0, own)), Err(refusal::NAMESPACE));
    let ended = in_a_child(|| {
        become_a_user();
        assert_eq!(may_ask(&of(9, 0)), Ok(()), "root may ask everybody");
        assert_eq!(may_ask(&of(9, USER)), Ok(()));
        assert_eq!(may_ask(&of(9, USER - 1)), Err(refusal::USER));
        0
    });
    assert_eq!(ended, 0);
}

const USER: u32 = 65_534;

/// Gives up root's rights for good, in a child of a test. Without them it is a user's process
/// anyway.
fn become_a_user() {
    // SAFETY: the calls take numbers, and this process has one thread.
    unsafe {
        if libc::geteuid() == 0 {
            assert_eq!(libc::syscall(libc::SYS_setresgid, USER, USER, USER), 0);
            assert_eq!(libc::syscall(libc::SYS_setresuid, USER, USER, USER), 0);
        }
    }
}

/// Only root may attach to a user's process that is not dumpable.
#[test]
fn a_process_says_itself_whether_it_is_dumpable() {
    let ended = in_a_child(|| {
        let admitted = || {
            let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
            let credentials = credentials(near.as_fd()).unwrap();
            admit(near.as_fd(), &credentials, &Look::at(&credentials)?)
        };
        assert_eq!(admitted(), Ok(()));
        become_a_user();
        for (dumpable, wanted) in [(0, Err(refusal::NOT_DUMPABLE)), (1, Ok(()))] {
            // SAFETY: the call takes numbers.
            unsafe { libc::prctl(libc::PR_SET_DUMPABLE, dumpable, 0, 0, 0) };
            assert_eq!(admitted(), wanted, "{dumpable}");
        }
        0
    });
    assert_eq!(ended, 0);
}

#[test]
fn what_is_no_socket_has_no_peer() {
    let file = std::fs::File::open("/dev/null").unwrap();
    assert_eq!(credentials(file.as_fd()), None);
}

#[test]
fn this_process_may_attach_to_itself_and_not_as_it_was_before() {
    let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
    let credentials = credentials(near.as_fd()).unwrap();
    let look = Look::at(&credentials).unwrap();
    assert_eq!(admit(near.as_fd(), &credentials, &look), Ok(()));
    let began_before = Look {
        start_ticks: look.start_ticks - 1,
        ..look
    };
    assert_eq!(
        admit(near.as_fd(), &credentials, &began_before),
        Err(refusal::CHANGED),
        "another process has its number"
    );
    let had_rights = Look {
        permitted: !look.permitted,
        ..look
    };
    assert_eq!(
        admit(near.as_fd(), &credentials, &had_rights),
        Err(refusal::CHANGED),
        "it has executed a program with other rights"
    );
    let other_user = Credentials {
        uid: credentials.uid + 1,
        ..credentials
    };
    assert_eq!(Look::at(&other_user), Err(refusal::CHANGED));
    let nobody = Credentials {
        pid: i32::MAX,
        ..credentials
    };
    assert_eq!(Look::at(&nobody), Err(refusal::NAMESPACE));
}

#[test]
fn a_process_that_has_ended_is_not_held() {
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
    let own = credentials(near.as_fd()).unwrap();
    let own = Held::of(near.as_fd(), &own).unwrap();
    assert!(!own.has_ended(), "this process");
    // SAFETY: the call takes numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
    // SAFETY: the descriptor was made just now.
    let held = Held::By(unsafe { OwnedFd::from_raw_fd(fd.try_into().unwrap()) });
    assert!(!held.has_ended());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(held.has_ended());
    assert!(!Held::Not.has_ended());
}

/// A peer that connected, asked and died is not admitted. Its parent has not reaped it yet, so its
/// number is still its own and everything about it can be read.
#[test]
fn a_peer_that_has_died_is_not_admitted() {
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    let (near, mut far) = UnixStream::pair().unwrap();
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let own = credentials(near.as_fd()).unwrap();
    let peer = Credentials {
        pid: child.id().cast_signed(),
        ..own
    };
    let look = Look::at(&peer).unwrap();
    // The kernel's own pidfd would refer to the process that made the socket, so this one is
    // opened by number.
    // SAFETY: the call takes numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
    // SAFETY: the descriptor is new, and nothing else owns it.
    let held = Held::By(unsafe { OwnedFd::from_raw_fd(fd.try_into().unwrap()) });
    assert_eq!(confirm(&held, &look, &look), Ok(()));
    child.kill().unwrap();
    let mut ended = libc::pollfd {
        fd: fd as i32,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the pointer is to one valid pollfd.
    assert_eq!(unsafe { libc::poll(&raw mut ended, 1, 60_000) }, 1);
    assert_eq!(confirm(&held, &look, &look), Err(refusal::CHANGED));
    assert_eq!(Look::at(&peer), Err(refusal::CHANGED), "it is a zombie");
    assert_eq!(admit(near.as_fd(), &peer, &look), Err(refusal::CHANGED));
    child.wait().unwrap();
    assert_eq!(Look::at(&peer), Err(refusal::NAMESPACE), "there is none");
    drop(near);
    assert_eq!(far.read(&mut [0]).unwrap(), 0);
}

/// Makes the kernel answer this thread with `error` when it is asked for the pidfd of a peer.
/// Before Linux 6.5 that is `ENOPROTOOPT`.
fn without_pidfds_of_peers(error: libc::c_int) {
    const SO_PEERPIDFD: u32 = 77;
    let fails = libc::SECCOMP_RET_ERRNO | error.cast_unsigned();
    filter(libc::SYS_getsockopt, Some((2, SO_PEERPIDFD)), fails);
}

/// A peer is held by a pidfd whatever the kernel, and one that has ended is refused.
#[test]
fn a_peer_is_held_by_old_kernels_too() {
    use std::process::{Command, Stdio};
    let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
    let held = |pid: u32| {
        let (pid, uid, gid) = (pid.cast_signed(), 0, 0);
        Held::of(near.as_fd(), &Credentials { pid, uid, gid })
    };
    let is_held = |held: &Held| matches!(held, Held::By(_)) && !held.has_ended();
    assert!(is_held(&held(std::process::id()).unwrap()));
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    std::thread::scope(|scope| {
        let old = scope.spawn(|| {
            without_pidfds_of_peers(libc::ENOPROTOOPT);
            let process = held(child.id()).unwrap();
            assert!(is_held(&process));
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(process.has_ended());
            assert_eq!(held(child.id()).unwrap_err(), refusal::CHANGED);
        });
        old.join().unwrap();
    });
}

/// The peer's number may be another process's by now. So where the kernel says that the peer
/// has ended, nothing is held by that number.
#[test]
fn what_the_kernel_says_of_the_peer_counts() {
    let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
    let own = credentials(near.as_fd()).unwrap();
    let held = |error: libc::c_int| {
        let held = || {
            without_pidfds_of_peers(error);
            Held::of(near.as_fd(), &own)
        };
        std::thread::scope(|scope| scope.spawn(held).join().unwrap())
    };
    assert!(matches!(Held::of(near.as_fd(), &own), Ok(Held::By(_))));
    for error in [libc::ESRCH, libc::EINVAL, libc::ENODATA] {
        assert_eq!(held(error).unwrap_err(), refusal::CHANGED, "{error}");
    }
    assert!(matches!(held(libc::EMFILE), Ok(Held::Not)));
}
