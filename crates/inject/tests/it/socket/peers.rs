//! Peers that mean no good, or nothing at all.

use super::*;
use midair_ptrace::{connect_abstract, memfd_with, send_bytes, send_with_descriptor};
use midair_record::connect::{ConnectRequest, NAMES, name, purpose};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

fn names(pid: Pid) -> Vec<String> {
    let start = midair_procinfo::task::stat(pid).unwrap().start_ticks;
    (0..NAMES)
        .map(|which| name(pid.get(), start, which, 0))
        .collect()
}

/// Sits on an abstract name, by a socket of the listener's kind: the kernel keeps those of other
/// kinds apart.
fn squat(name: &str) -> OwnedFd {
    // SAFETY: plain calls with a descriptor of our own and an address that outlives them.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        let socket = OwnedFd::from_raw_fd(fd);
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, from) in address.sun_path[1..].iter_mut().zip(name.bytes()) {
            *to = from.cast_signed();
        }
        let length = (3 + name.len()) as libc::socklen_t;
        assert_eq!(libc::bind(fd, (&raw const address).cast(), length), 0);
        assert_eq!(libc::listen(fd, 4), 0);
        socket
    }
}

#[test]
fn who_sits_on_its_names_gets_nothing() {
    // On the first: the process takes the next.
    let mut target = begin(&[]);
    let pid = pid_of(&target);
    let held = squat(&names(pid)[0]);
    target.send("register").unwrap();
    target.expect("registered").unwrap();
    until("listening", || {
        let sockets = std::fs::read_to_string("/proc/net/unix")?;
        Ok(sockets.contains(&names(pid)[1]))
    })
    .unwrap();
    park(over_the_socket(pid), pid);
    drop(held);
    end(target);
    // On all: it is traced, and that is said.
    let mut target = begin(&[]);
    let pid = pid_of(&target);
    let held: Vec<_> = names(pid).iter().map(|name| squat(name)).collect();
    target.send("register").unwrap();
    target.expect("registered").unwrap();
    until("its listener", || Ok(inspect(pid)?.listener.is_some())).unwrap();
    let entered = enter_by(&approach(pid).unwrap(), &library(), &options()).unwrap();
    assert_eq!(entered.via.path, EntryPath::Listener, "{:?}", entered.via);
    let said = entered.via.rejected[0].to_string();
    assert!(said.contains("was not used over its socket"), "{said}");
    let socket = hello(&entered);
    park((entered, socket), pid);
    drop(held);
    end(target);
}

fn connect(pid: Pid) -> OwnedFd {
    let mut last = None;
    until("a connection", || {
        // The backlog is short: others may be before us.
        match connect_abstract(&names(pid)[0]) {
            Ok(connection) => {
                last = Some(connection);
                Ok(true)
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error.into()),
        }
    })
    .unwrap();
    last.unwrap()
}

#[test]
fn garbage_and_silence_harm_nobody() {
    let target = start(&[]);
    let pid = pid_of(&target);
    park(over_the_socket(pid), pid);
    let before = Snapshot::take(pid).unwrap();
    let good = ConnectRequest::new(purpose::ATTACH).bytes();
    let mut garbage: Vec<Vec<u8>> = vec![
        vec![0],
        vec![0xff; 16],
        vec![0xff; 17],
        vec![b'x'; 100_000],
        good[..15].to_vec(),
        [&good[..], &[0]].concat(),
        ConnectRequest::new(77).bytes().to_vec(),
        ConnectRequest::new(0).bytes().to_vec(),
    ];
    // Each bit of a connect request inverted: magic, version, purpose.
    for bit in 0..good.len() * 8 {
        let mut turned = good.to_vec();
        turned[bit / 8] ^= 1 << (bit % 8);
        garbage.push(turned);
    }
    for bytes in &garbage {
        let peer = connect(pid);
        send_bytes(peer.as_fd(), bytes).unwrap();
    }
    // With descriptors, which must not stay.
    let file = memfd_with(c"garbage", b"garbage").unwrap();
    for bytes in [&good[..], &garbage[0]] {
        let peer = connect(pid);
        send_with_descriptor(peer.as_fd(), bytes, file.as_fd()).unwrap();
    }
    // Gone immediately, and many at a time.
    for _ in 0..50 {
        drop(connect(pid));
    }
    let many: Vec<_> = (0..4).map(|_| connect(pid)).collect();
    drop(many);
    // One that says nothing holds the others up for its time and no longer.
    let silent = connect(pid);
    until("the last one's end", || {
        Ok(inspect(pid)?.worker.is_some_and(|agent| agent.is_parked()))
    })
    .unwrap();
    park(over_the_socket(pid), pid);
    drop(silent);
    let diff = before.diff(&Snapshot::take(pid).unwrap()).without_heap();
    assert!(diff.is_empty(), "{diff}");
    end(target);
}
