//! An attacher that speaks the listener's protocol (`midair_record::connect`), and a program that
//! it attaches to.

use super::Home;
use midair_record::connect::{
    ConnectProof, ConnectReply, ConnectRequest, TOKEN_LEN, Token, outcome,
};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The program of a [`Home`], which stops at the word `pause`.
pub struct Program {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// Starts it with these words, and waits until it pauses.
    pub fn start(home: &Home, words: &[&str]) -> Program {
        let mut child = Command::new("sh")
            // The numbers of descriptors end here, whatever they do elsewhere.
            .args(["-c", "ulimit -S -n 300 && exec \"$0\" \"$@\""])
            .arg(home.path("host"))
            .args(words)
            .env_clear()
            .env("LD_LIBRARY_PATH", home.path(""))
            .current_dir(home.path(""))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut program = Program { child, output };
        program.until_it_pauses();
        program
    }

    fn until_it_pauses(&mut self) {
        let mut line = String::new();
        while line != "pause\n" {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "it ended");
        }
    }

    /// Lets it go on until it pauses again.
    pub fn go_on(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        self.until_it_pauses();
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets it end.
    pub fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }

    /// Reads a file of it or of one of its threads in `/proc`.
    pub fn file(&self, name: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{name}", self.pid())).unwrap_or_default()
    }

    /// Its threads of this name.
    pub fn threads(&self, name: &str) -> Vec<u32> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        tasks
            .filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok())
            .filter(|tid| self.file(&format!("task/{tid}/comm")).trim() == name)
            .collect()
    }

    /// What is behind one of its descriptors.
    pub fn descriptor(&self, number: RawFd) -> Option<std::path::PathBuf> {
        std::fs::read_link(format!("/proc/{}/fd/{number}", self.pid())).ok()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until something is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A connection to the listener of a program.
pub struct Connection {
    socket: OwnedFd,
    pid: u32,
}

impl Connection {
    pub fn new(program: &Program) -> Connection {
        let pid = program.pid();
        let sockets = program.file("net/unix");
        let name = sockets.lines().find_map(|line| {
            let at = line.find(&format!("@midair-attach/{pid}/"))?;
            line.get(at + 1..)
        });
        let name = name.expect("it listens").as_bytes();
        // SAFETY: zero is a value of each field. The descriptor is new and ours. The address and
        // the time are live, and have the lengths that are passed.
        unsafe {
            let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
            let socket = OwnedFd::from_raw_fd(fd);
            let limit = libc::timeval {
                tv_sec: PATIENCE.as_secs() as libc::time_t,
                tv_usec: 0,
            };
            let length = size_of_val(&limit) as libc::socklen_t;
            let (at, option) = ((&raw const limit).cast(), libc::SO_RCVTIMEO);
            assert_eq!(
                libc::setsockopt(fd, libc::SOL_SOCKET, option, at, length),
                0
            );
            let mut address: libc::sockaddr_un = std::mem::zeroed();
            address.sun_family = libc::AF_UNIX as libc::sa_family_t;
            for (to, from) in address.sun_path.iter_mut().skip(1).zip(name) {
                *to = *from as libc::c_char;
            }
            let length = (3 + name.len()) as libc::socklen_t;
            let connected = libc::connect(fd, (&raw const address).cast(), length);
            assert_eq!(connected, 0, "{}", std::io::Error::last_os_error());
            Connection { socket, pid }
        }
    }

    pub fn send(&self, bytes: &[u8]) {
        let (fd, at) = (self.socket.as_raw_fd(), bytes.as_ptr().cast());
        // SAFETY: the pointer and the length describe a live slice.
        let sent = unsafe { libc::send(fd, at, bytes.len(), libc::MSG_NOSIGNAL) };
        assert_eq!(sent, bytes.len() as isize);
    }

    /// Sends a byte with a descriptor.
    pub fn send_descriptor(&self, number: RawFd) {
        let mut byte = *b"x";
        let mut part = libc::iovec {
            iov_base: byte.as_mut_ptr().cast(),
            iov_len: 1,
        };
        let mut control = [0_u64; 3];
        // SAFETY: zero is a value of each field, and the control buffer has room for one
        // descriptor.
        unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(4) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(4) as _;
            libc::CMSG_DATA(header)
                .cast::<RawFd>()
                .write_unaligned(number);
            let sent = libc::sendmsg(self.socket.as_raw_fd(), &raw const message, 0);
            assert_eq!(sent, 1);
        }
    }

    /// Lets another process send a message.
    pub fn send_from_another_process(&self, bytes: &[u8]) {
        let mut message = tempfile::tempfile().unwrap();
        message.write_all(bytes).unwrap();
        std::io::Seek::rewind(&mut message).unwrap();
        let cat = Command::new("cat")
            .stdin(message)
            .stdout(self.socket.try_clone().unwrap())
            .status();
        assert!(cat.unwrap().success());
    }

    /// Receives a message. `None` at the end.
    pub fn receive(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; 1024];
        let (fd, at) = (self.socket.as_raw_fd(), bytes.as_mut_ptr().cast());
        // SAFETY: the pointer and the length describe a live buffer.
        let got = unsafe { libc::recv(fd, at, bytes.len(), 0) };
        let error = std::io::Error::last_os_error();
        let hung_up = got < 0 && error.raw_os_error() == Some(libc::ECONNRESET);
        assert!(got >= 0 || hung_up, "no message: {error}");
        bytes.truncate(got.max(0) as usize);
        (!bytes.is_empty()).then_some(bytes)
    }

    /// Receives a reply. `None` at the end.
    pub fn reply(&self) -> Option<ConnectReply> {
        Some(ConnectReply::read(&self.receive()?).expect("a reply"))
    }

    /// Receives a text of the library that was sent.
    pub fn text(&self) -> String {
        String::from_utf8(self.receive().unwrap()).unwrap()
    }

    /// Asks, and returns the token that the listener has put into its memory.
    pub fn challenge(&self, purpose: u32) -> Token {
        self.send(&ConnectRequest::new(purpose).bytes());
        let reply = self.reply().unwrap();
        assert_eq!(reply.outcome, outcome::CHALLENGE);
        let memory = std::fs::File::open(format!("/proc/{}/mem", self.pid)).unwrap();
        let mut bytes = [0; TOKEN_LEN];
        memory.read_exact_at(&mut bytes, reply.token_at).unwrap();
        Token::read(&bytes).unwrap()
    }

    /// Asks, shows that it may read the process's memory, and returns the reply.
    pub fn ask(&self, purpose: u32) -> ConnectReply {
        let token = self.challenge(purpose);
        self.send(&ConnectProof { token }.bytes());
        self.reply().unwrap()
    }
}
