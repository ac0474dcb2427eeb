//! Peers that are hostile, or that send nonsense or nothing.

use super::*;
use midair_ptrace::{
    Deadline, connect_abstract, memfd_with, poll_readable, receive_now, send_bytes,
    send_with_descriptor,
};
use midair_record::connect::{
    ConnectProof, ConnectReply, ConnectRequest, REPLY_LEN, TOKEN_LEN, Token, name, outcome, prefix,
    purpose, refusal,
};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

fn start_ticks(pid: Pid) -> u64 {
    midair_procinfo::task::stat(pid).unwrap().start_ticks
}

/// Returns the name of the process's listener. No other socket may have a name like it.
fn name_of(pid: Pid) -> String {
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    let prefix = format!("@{}", prefix(pid.get(), start_ticks(pid)));
    let names = sockets
        .lines()
        .filter_map(|line| line.split(' ').next_back());
    let mut names = names.filter(|name| name.starts_with(&prefix));
    names.next().unwrap()[1..].to_owned()
}

/// Occupies an abstract name with a socket of the listener's type. The kernel keeps the names of
/// other types apart.
fn squat(name: &str) -> OwnedFd {
    // SAFETY: these are plain calls with a descriptor of our own and an address that outlives them.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        let socket = OwnedFd::from_raw_fd(fd);
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, from) in address.sun_path[1..].iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        let length = (3 + name.len()) as libc::socklen_t;
        assert_eq!(libc::bind(fd, (&raw const address).cast(), length), 0);
        assert_eq!(libc::listen(fd, 4), 0);
        socket
    }
}

#[test]
fn who_sits_on_names_like_its_own_neither_hides_it_nor_gets_anything() {
    let mut target = begin(&[]);
    let pid = pid_of(&target);
    let names = |range: std::ops::Range<u64>| {
        let own = |random| {
            name(
                pid.get(),
                start_ticks(pid),
                random << 32,
                (random % 7) as u32,
            )
        };
        range.map(own).map(|name| squat(&name)).collect::<Vec<_>>()
    };
    // The names are taken before the listener has one, and again when it has one.
    let before = names(0..120);
    listen(&mut target);
    let after = names(120..240);
    let seen = approach(pid).unwrap();
    assert_eq!(seen.squatters, 240);
    let listener = seen.endpoint.as_ref().unwrap().listener();
    assert_eq!(listener, inspect(pid).unwrap().listener);
    park(over_the_socket(pid), pid);
    drop((before, after));
    assert_eq!(approach(pid).unwrap().squatters, 0);
    end(target);
}

/// Returns the next reply of the other end.
fn reply(peer: &OwnedFd) -> Option<ConnectReply> {
    assert!(poll_readable(peer.as_fd(), Deadline::after(PATIENCE)).unwrap());
    let mut bytes = [0; REPLY_LEN];
    let got = receive_now(peer.as_fd(), &mut bytes, false).unwrap_or(0);
    ConnectReply::read(&bytes[..got])
}

/// Asks, and returns the token that is to be sent back.
fn challenged(pid: Pid, peer: &OwnedFd) -> Token {
    send_bytes(peer.as_fd(), &ConnectRequest::new(purpose::QUERY).bytes()).unwrap();
    let challenge = reply(peer).unwrap();
    assert_eq!(challenge.outcome, outcome::CHALLENGE);
    let mut bytes = [0; TOKEN_LEN];
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    memory
        .read_exact_at(&mut bytes, challenge.token_at)
        .unwrap();
    Token::read(&bytes).unwrap()
}

#[test]
fn a_token_is_for_one_connection_and_one_answer() {
    let target = start(&[]);
    let pid = pid_of(&target);
    let answer = |peer: &OwnedFd, token: Token| {
        send_bytes(peer.as_fd(), &ConnectProof { token }.bytes()).unwrap();
        let reply = reply(peer).unwrap();
        (reply.outcome, reply.error)
    };
    let refused = (outcome::REFUSED, refusal::PROOF);
    let (first, second) = (connect(pid), connect(pid));
    let (its, other) = (challenged(pid, &first), challenged(pid, &second));
    assert_ne!(its, other);
    // Neither another connection's token, nor a guess, nor a token that was good before is
    // accepted.
    assert_eq!(answer(&second, its), refused);
    assert_eq!(answer(&first, its), (outcome::AVAILABLE, 0));
    let third = connect(pid);
    challenged(pid, &third);
    assert_eq!(answer(&third, its), refused);
    let fourth = connect(pid);
    let mut guess = challenged(pid, &fourth);
    guess.secret[0] ^= 1;
    assert_eq!(answer(&fourth, guess), refused);
    // No other message is accepted in place of the token, not even the request once more.
    let fifth = connect(pid);
    challenged(pid, &fifth);
    send_bytes(fifth.as_fd(), &ConnectRequest::new(purpose::ATTACH).bytes()).unwrap();
    assert_eq!(reply(&fifth).unwrap().error, refusal::PROOF);
    // The connection that was refused is closed.
    assert_eq!(reply(&fifth), None);
    park(over_the_socket(pid), pid);
    end(target);
}

#[test]
fn silent_peers_hold_nobody_up_for_long() {
    let target = start(&[]);
    let pid = pid_of(&target);
    // Connections of one process push each other out.
    let _held: Vec<_> = (0..40).map(|_| connect(pid)).collect();
    park(over_the_socket(pid), pid);
    // This peer asks and is then silent.
    let asked = connect(pid);
    challenged(pid, &asked);
    park(over_the_socket(pid), pid);
    end(target);
}

fn connect(pid: Pid) -> OwnedFd {
    connect_abstract(&name_of(pid), PATIENCE).unwrap()
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
    // These messages bring descriptors, which must not stay open.
    let file = memfd_with(c"garbage", b"garbage").unwrap();
    for bytes in [&good[..], &garbage[0]] {
        let peer = connect(pid);
        send_with_descriptor(peer.as_fd(), bytes, file.as_fd()).unwrap();
    }
    let peer = connect(pid);
    let token = challenged(pid, &peer);
    let proof = ConnectProof { token };
    send_with_descriptor(peer.as_fd(), &proof.bytes(), file.as_fd()).unwrap();
    assert_eq!(reply(&peer).unwrap().outcome, outcome::AVAILABLE);
    // These peers go away immediately, and many at a time.
    for _ in 0..50 {
        drop(connect(pid));
    }
    let many: Vec<_> = (0..4).map(|_| connect(pid)).collect();
    drop(many);
    // A silent peer delays the others by its own time limit and no longer.
    let silent = connect(pid);
    until("the last one's end", || {
        Ok(inspect(pid)?.worker.is_some_and(|agent| agent.is_parked()))
    })
    .unwrap();
    park(over_the_socket(pid), pid);
    drop(silent);
    until("the end of its connection", || {
        let diff = before.diff(&Snapshot::take(pid)?).without_heap();
        match diff.changes.iter().all(|it| it.text.contains("socket:[")) {
            true => Ok(diff.is_empty()),
            false => Err(diff.to_string().into()),
        }
    })
    .unwrap();
    end(target);
}
