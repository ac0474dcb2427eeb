//! The socket, with peers of this process.

use super::*;
use crate::testing::{in_a_child, limit_descriptors, send_byte};
use midair_record::connect::{ConnectReply, outcome};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Only one endpoint at a time can be the one that a forked child closes, and only one table has the
/// connections that it closes.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open() -> Endpoint {
    Endpoint::open().expect("the machine has Unix sockets and a /proc")
}

/// The address that the kernel tells of a socket: its length and its bytes.
fn address(fd: RawFd) -> (libc::sockaddr_un, libc::socklen_t) {
    // SAFETY: zero is a value of each field, and the kernel writes at most the length.
    unsafe {
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        let mut length = size_of_val(&address) as libc::socklen_t;
        let got = libc::getsockname(fd, (&raw mut address).cast(), &raw mut length);
        assert_eq!(got, 0);
        (address, length)
    }
}

/// Connects to the endpoint as an attacher does.
fn peer(endpoint: &Endpoint) -> OwnedFd {
    let (address, length) = address(endpoint.fd);
    // SAFETY: the descriptor is new and ours, and the address is `length` bytes long.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        let peer = OwnedFd::from_raw_fd(fd);
        assert_eq!(libc::connect(fd, (&raw const address).cast(), length), 0);
        peer
    }
}

fn send(peer: &OwnedFd, bytes: &[u8]) {
    // SAFETY: the pointer and the length describe a live slice.
    let sent = unsafe { libc::send(peer.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
    assert_eq!(sent, bytes.len() as isize);
}

fn nobody() -> impl Iterator<Item = (usize, BorrowedFd<'static>)> {
    std::iter::empty()
}

const NOW: Option<Duration> = Some(Duration::ZERO);
const SOON: Option<Duration> = Some(Duration::from_secs(20));

#[test]
fn a_wait_tells_peers_from_messages() {
    let _alone = alone();
    let endpoint = open();
    assert!(endpoint.fd >= LOWEST, "low numbers are the program's");
    assert_eq!(endpoint.wait(true, nobody(), NOW), Some(Ready::default()));
    assert!(endpoint.accept().is_none());

    let first = peer(&endpoint);
    let incoming = Ready {
        incoming: true,
        ..Ready::default()
    };
    assert_eq!(endpoint.wait(true, nobody(), SOON), Some(incoming));
    // With no position free, peers have to wait.
    assert_eq!(endpoint.wait(false, nobody(), NOW), Some(Ready::default()));
    let near = endpoint.accept().unwrap();
    assert!(endpoint.accept().is_none());
    let second = peer(&endpoint);
    let other = endpoint.accept().unwrap();

    let both = || [(5, near.as_fd()), (2, other.as_fd())].into_iter();
    assert_eq!(endpoint.wait(true, both(), NOW), Some(Ready::default()));
    send(&second, b"x");
    let mut heard = Ready::default();
    heard.connections[2] = true;
    assert_eq!(endpoint.wait(true, both(), SOON), Some(heard));
    drop(first);
    let third = peer(&endpoint);
    let mut all = Ready {
        incoming: true,
        ..Ready::default()
    };
    (all.connections[2], all.connections[5]) = (true, true);
    assert_eq!(endpoint.wait(true, both(), SOON), Some(all));
    drop(third);
}

/// A peer that is there is not kept waiting. The best of several attempts counts, since other
/// programs may have the processors.
#[test]
fn a_wait_returns_when_something_happens() {
    let _alone = alone();
    let endpoint = open();
    let _first = peer(&endpoint);
    let waits = (0..5).map(|_| {
        let began = Instant::now();
        assert!(endpoint.wait(true, nobody(), SOON).unwrap().incoming);
        began.elapsed()
    });
    let best = waits.min().unwrap();
    assert!(best < Duration::from_millis(100), "{best:?}");
}

#[test]
fn a_wait_ends_at_its_limit() {
    let _alone = alone();
    let endpoint = open();
    let began = Instant::now();
    let limit = Duration::from_millis(1100);
    assert_eq!(
        endpoint.wait(true, nobody(), Some(limit)),
        Some(Ready::default())
    );
    let waited = began.elapsed();
    assert!(waited >= limit && waited < Duration::from_secs(20));
}

/// Looking costs no time where there is nothing. The best of several attempts counts.
#[test]
fn nothing_is_found_at_once() {
    let _alone = alone();
    let endpoint = open();
    let looks = (0..3).map(|_| {
        let began = Instant::now();
        assert_eq!(endpoint.wait(true, nobody(), NOW), Some(Ready::default()));
        assert!(endpoint.accept().is_none());
        began.elapsed()
    });
    let best = looks.min().unwrap();
    assert!(best < RESPITE / 2, "{best:?}");
}

/// The program may have lowered its limit of descriptors. The listener then does little, and it
/// does not give up.
#[test]
fn a_call_that_fails_is_not_made_again_at_once() {
    let _alone = alone();
    let endpoint = open();
    let _peer = peer(&endpoint);
    let ended = in_a_child(|| {
        limit_descriptors(0);
        let began = Instant::now();
        assert_eq!(endpoint.wait(true, nobody(), SOON), Some(Ready::default()));
        assert!(began.elapsed() >= RESPITE);
        let began = Instant::now();
        assert!(endpoint.accept().is_none());
        assert!(began.elapsed() >= RESPITE);
        0
    });
    assert_eq!(ended, 0);
}

/// What the program reads from is no concern of the listener's, whatever its number.
#[test]
fn a_wait_for_no_peer_looks_at_no_descriptor() {
    let _alone = alone();
    let endpoint = open();
    let _peer = peer(&endpoint);
    let (readable, far) = UnixStream::pair().unwrap();
    send(&far.into(), b"x");
    let ended = in_a_child(|| {
        for number in 0..3 {
            // SAFETY: the numbers are this child's copies.
            unsafe { libc::dup2(readable.as_raw_fd(), number) };
        }
        let (began, limit) = (Instant::now(), Duration::from_millis(100));
        let ready = endpoint.wait(false, nobody(), Some(limit));
        assert_eq!(ready, Some(Ready::default()));
        assert!(began.elapsed() >= limit);
        0
    });
    assert_eq!(ended, 0);
}

/// Where so high a number is not allowed, any other will do.
#[test]
fn a_low_limit_of_descriptors_is_no_hindrance() {
    let _alone = alone();
    let ended = in_a_child(|| {
        limit_descriptors(LOWEST as u64);
        let endpoint = open();
        assert!(endpoint.fd < LOWEST);
        let _peer = peer(&endpoint);
        assert!(endpoint.accept().is_some());
        0
    });
    assert_eq!(ended, 0);
}

/// The name has the process's number and start, and cannot be guessed.
#[test]
fn the_name_says_who_listens() {
    let _alone = alone();
    let name = |endpoint: &Endpoint| {
        let (address, length) = address(endpoint.fd);
        let bytes: Vec<u8> = address.sun_path[..length as usize - 2]
            .iter()
            .map(|byte| *byte as u8)
            .collect();
        assert_eq!(bytes[0], 0, "it is an abstract name");
        String::from_utf8(bytes[1..].to_vec()).unwrap()
    };
    let one = open();
    let first = name(&one);
    let start = procfs::start_ticks("self").unwrap();
    let rest = first.strip_prefix(&connect::prefix(std::process::id(), start));
    let filters = connect::filters_in(rest.unwrap());
    assert_eq!(filters, Some(procfs::filters()), "{first}");
    drop(one);
    assert_ne!(first, name(&open()));
}

/// A name that is too long, or taken, is not bound.
#[test]
fn a_name_that_cannot_be_had() {
    let socket = || {
        // SAFETY: the descriptor is new and ours.
        unsafe {
            let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
            OwnedFd::from_raw_fd(fd)
        }
    };
    let (one, two) = (socket(), socket());
    assert!(!bind(one.as_raw_fd(), &"x".repeat(108)));
    let longest = format!("{:x<107}", std::process::id());
    assert!(bind(one.as_raw_fd(), &longest));
    assert!(!bind(two.as_raw_fd(), &longest));
    let taken = SocketAddr::from_abstract_name(&longest).unwrap();
    assert!(UnixStream::connect_addr(&taken).is_err(), "nobody listens");
}

/// The program closes the descriptor and puts one of its own there. Nothing is done with that.
#[test]
fn a_number_that_the_program_has_taken_is_left_alone() {
    let _alone = alone();
    let endpoint = open();
    let fd = endpoint.fd;
    let (theirs, _far) = UnixStream::pair().unwrap();
    // SAFETY: the number is our socket's, and the endpoint verifies it before each use.
    assert_eq!(unsafe { libc::dup2(theirs.as_raw_fd(), fd) }, fd);
    assert_eq!(endpoint.wait(true, nobody(), SOON), None);
    let taken = cookie(fd);
    assert_eq!(taken, cookie(theirs.as_raw_fd()));
    drop(endpoint);
    assert_eq!(cookie(fd), taken, "it is still open");
    // SAFETY: the number is the copy that was made above.
    unsafe { libc::close(fd) };
}

#[test]
fn an_endpoint_that_ends_closes_its_socket() {
    let _alone = alone();
    let endpoint = open();
    let (fd, (address, length)) = (endpoint.fd, address(endpoint.fd));
    let own = endpoint.cookie;
    assert_eq!(cookie(fd), Some(own));
    assert!(is_noted(&LISTENING));
    drop(endpoint);
    assert_ne!(cookie(fd), Some(own));
    assert!(!is_noted(&LISTENING));
    // SAFETY: the descriptor is new and ours, and the address is `length` bytes long.
    unsafe {
        let peer = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        let peer = OwnedFd::from_raw_fd(peer);
        let connected = libc::connect(peer.as_raw_fd(), (&raw const address).cast(), length);
        assert_eq!(connected, -1, "nobody listens");
    }
}

/// Whether a forked child would close a socket because of this note.
fn is_noted(open: &Open) -> bool {
    open.fd.load(Ordering::Acquire) != -1
}

/// A child has copies of the socket and of the connections that wait, and of nothing else. It
/// closes these alone.
#[test]
fn a_forked_child_closes_its_copies() {
    let _alone = alone();
    let endpoint = open();
    let _peers = [peer(&endpoint), peer(&endpoint), peer(&endpoint)];
    let [waiting, given, taken] = [(); 3].map(|()| endpoint.accept().unwrap());
    remember(6, waiting.number());
    remember(7, given.number());
    assert!(is_noted(&CONNECTIONS[7]));
    forget(7);
    assert!(!is_noted(&CONNECTIONS[7]));
    // The program has put another socket at the number of one that was remembered.
    remember(3, taken.number());
    let (other, _far) = UnixStream::pair().unwrap();
    let numbers = [
        endpoint.fd,
        waiting.number(),
        given.number(),
        taken.number(),
    ];
    let closed = in_a_child(|| {
        // SAFETY: the number is this child's copy.
        unsafe { libc::dup2(other.as_raw_fd(), numbers[3]) };
        forked();
        assert!(!is_noted(&LISTENING) && !CONNECTIONS.iter().any(is_noted));
        let is_closed = |at: usize| libc::c_int::from(cookie(numbers[at]).is_none()) << at;
        (0..4).map(is_closed).sum()
    });
    assert_eq!(closed, 0b0011);
    forget(6);
    forget(3);
    // This process's descriptors are still there.
    assert!(numbers.iter().all(|number| cookie(*number).is_some()));
    let nothing = in_a_child(|| {
        LISTENING.set(-1, 0);
        forked();
        numbers
            .iter()
            .filter(|number| cookie(**number).is_none())
            .count() as libc::c_int
    });
    assert_eq!(nothing, 0);
    remember(SLOTS, waiting.number());
    forget(SLOTS);
}

#[test]
fn messages_and_their_senders() {
    let _alone = alone();
    let endpoint = open();
    let far = peer(&endpoint);
    let near = endpoint.accept().unwrap();
    let near = near.as_fd();
    let mut bytes = [0; 16];
    assert!(receive(near, &mut bytes).is_none(), "nothing was sent");
    assert!(!readable(near, 0));
    send(&far, b"one");
    assert!(readable(near, 20_000));
    assert_eq!(receive(near, &mut bytes), Some(&b"one"[..]));
    // The kernel tells the sender once it was asked to, and no more afterwards.
    let own = std::process::id().cast_signed();
    for (asked, told) in [(true, Some(own)), (false, None)] {
        assert!(tell_senders(near, asked));
        send(&far, b"two");
        assert_eq!(
            receive_from(near, &mut bytes),
            Some((&b"two"[..], told)),
            "{asked}"
        );
    }
    // A descriptor that comes along has no room, and is closed.
    let link = |fd: &str| std::fs::read_link(format!("/proc/self/fd/{fd}")).ok();
    let socket = link(&far.as_raw_fd().to_string());
    let copies = || {
        let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        all.filter(|fd| link(&fd.file_name().to_string_lossy()) == socket)
            .count()
    };
    for asked in [true, false] {
        assert!(tell_senders(near, asked));
        send_byte(&far, Some(far.as_raw_fd()));
        match asked {
            true => assert_eq!(receive_from(near, &mut bytes), Some((&b"x"[..], Some(own)))),
            false => assert_eq!(receive(near, &mut bytes), Some(&b"x"[..])),
        }
        assert_eq!(copies(), 1);
    }
    assert!(!is_hung_up(near));
    drop(far);
    assert!(is_hung_up(near));
    assert!(receive(near, &mut bytes).is_none());
    assert!(readable(near, 0), "the end can be read");
}

#[test]
fn a_reply_arrives_whole_or_is_not_sent() {
    let _alone = alone();
    let endpoint = open();
    let far = peer(&endpoint);
    let near = endpoint.accept().unwrap();
    let mut reply = ConnectReply::new(outcome::BUSY);
    reply.tid = 77;
    assert!(send_reply(near.as_fd(), &reply));
    let mut bytes = [0; 1024];
    let got = receive(far.as_fd(), &mut bytes).unwrap();
    assert_eq!(got, reply.bytes());
    // A peer that does not read does not block the listener.
    let began = Instant::now();
    while send_reply(near.as_fd(), &reply) {
        assert!(began.elapsed() < Duration::from_secs(20));
    }
    drop(far);
    // The peer is gone, and no signal comes.
    assert!(!send_reply(near.as_fd(), &reply));
}
