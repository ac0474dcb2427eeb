//! A server under test, and a client that says to it exactly what it is given.

use midair_tests::Result;
use midair_tests::stage::command;
use midair_tests::target::{PATIENCE, Target, until};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// A running `midair serve` at a free port.
pub(super) struct Server {
    pub(super) process: Target,
    pub(super) address: SocketAddr,
}

/// What it answered.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    head: String,
    body: Vec<u8>,
}

impl Reply {
    fn read(mut from: impl Read) -> Result<Reply> {
        let mut all = Vec::new();
        // A server that refuses what was not read yet may reset the connection behind its answer.
        let read = from.read_to_end(&mut all);
        let end = all.windows(4).position(|it| it == b"\r\n\r\n");
        let end = end.ok_or_else(|| format!("no answer: {read:?}"))?;
        let head = String::from_utf8(all[..end].to_vec())?.to_ascii_lowercase();
        let status = head.split(' ').nth(1).ok_or("no status")?.parse()?;
        let mut body = all[end + 4..].to_vec();
        if head.contains("transfer-encoding: chunked") {
            body = unchunked(&body)?;
        }
        Ok(Reply { status, head, body })
    }

    /// Returns the body of an answer with this status.
    pub(super) fn bytes(self, status: u16) -> Result<Vec<u8>> {
        if self.status != status {
            let text = String::from_utf8_lossy(&self.body);
            return Err(format!("{}: {text}", self.head).into());
        }
        Ok(self.body)
    }

    /// Returns the document of an answer with this status.
    pub(super) fn document(self, status: u16) -> Result<Value> {
        Ok(serde_json::from_slice(&self.bytes(status)?)?)
    }

    /// Returns a header, by its name in lower case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines();
        let mut pairs = lines.filter_map(|line| line.split_once(": "));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    }
}

fn unchunked(mut body: &[u8]) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let end = body.windows(2).position(|it| it == b"\r\n");
        let end = end.ok_or("a chunk has no length")?;
        let length = usize::from_str_radix(std::str::from_utf8(&body[..end])?, 16)?;
        let chunk = body
            .get(end + 2..end + 2 + length)
            .ok_or("a chunk is cut")?;
        if length == 0 {
            return Ok(all);
        }
        all.extend_from_slice(chunk);
        body = body.get(end + 4 + length..).ok_or("a chunk is cut")?;
    }
}

/// Sends these bytes, and reads the answer.
pub(super) fn say(to: SocketAddr, words: &str) -> Result<Reply> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let _ = stream.write_all(words.as_bytes());
    Reply::read(stream)
}

/// Asks at a socket.
pub(super) fn by_socket(path: &Path, of: &str) -> Result<Reply> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {of} HTTP/1.0\r\n\r\n")?;
    Reply::read(stream)
}

impl Server {
    pub(super) fn start(words: &[&str]) -> Result<Server> {
        Server::start_with(words, &[])
    }

    /// Starts one with these variables.
    pub(super) fn start_with(words: &[&str], variables: &[(&str, &str)]) -> Result<Server> {
        let mut command = command("midair")?;
        command.envs(variables.iter().copied());
        command
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(words);
        let mut process = Target::spawn(command)?;
        let line = process.expect_error("midair-serve: listening at http")?;
        let (_, address) = line.split_once("://").ok_or("no address")?;
        let mut address: SocketAddr = address.trim().parse()?;
        // A server at all addresses is at loopback as well.
        if address.ip().is_unspecified() {
            address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
        }
        Ok(Server { process, address })
    }

    /// Sends a request with these headers, and leaves its connection open.
    pub(super) fn open(&self, path: &str, headers: &[&str]) -> Result<TcpStream> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut text = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n");
        if headers.is_empty() {
            text.push_str(&format!("Host: {}\r\n", self.address));
        }
        for header in headers.iter().filter(|header| !header.is_empty()) {
            text.push_str(&format!("{header}\r\n"));
        }
        stream.write_all(format!("{text}\r\n").as_bytes())?;
        Ok(stream)
    }

    /// Asks with these headers, `Host` among them.
    pub(super) fn with(&self, path: &str, headers: &[&str]) -> Result<Reply> {
        Reply::read(self.open(path, headers)?)
    }

    pub(super) fn get(&self, path: &str) -> Result<Reply> {
        Reply::read(self.open(path, &[])?)
    }

    /// Waits until it has written this on standard error.
    pub(super) fn says(&self, text: &str) -> Result<()> {
        let has = |lines: Vec<String>| lines.iter().any(|line| line.contains(text));
        until(text, || Ok(has(self.process.errors())))
    }

    /// Ends it by a signal.
    pub(super) fn end(self) -> Result<()> {
        self.process.signal(libc::SIGTERM)?;
        self.process.wait(PATIENCE)?.success()?;
        Ok(())
    }
}
