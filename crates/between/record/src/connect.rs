//! The protocol between an attacher and the listener of a process, before and alongside the session's
//! own messages.
//!
//! The listener is a thread of our register library. It listens on an abstract Unix socket
//! (sequenced packets). The socket's [`name`] starts with a [`prefix`] that identifies the process;
//! the rest is random, so that no process can take the name beforehand. An attacher finds the
//! process's own socket among the process's descriptors.
//!
//! 1. The attacher sends a [`ConnectRequest`].
//! 2. The listener writes a random [`Token`] into its own memory, for this connection alone, and
//!    sends its address ([`outcome::CHALLENGE`]).
//! 3. The attacher reads the token through `/proc/PID/mem`. For this the kernel makes the checks
//!    that it makes for a tracer (`PTRACE_MODE_ATTACH`: users, capabilities, Yama, Landlock and
//!    other security modules). The attacher sends the token back in a [`ConnectProof`].
//! 4. The listener, or the worker thread that it created, sends a [`ConnectReply`].
//!
//! A refusal may come instead of 2 and 4. After [`outcome::SEND`] the attacher sends the library,
//! as it does after an attach by tracing; a later failure is reported by another reply. Everything
//! else on the connection belongs to the session.

use crate::VERSION;

/// Returns the prefix of the socket's name (after the zero byte) for the process with this `pid` in
/// its own namespace, which started `start_ticks` clock ticks after boot (field 22 of
/// `/proc/PID/stat`).
pub fn prefix(pid: u32, start_ticks: u64) -> String {
    format!("midair-attach/{pid}/{start_ticks}/")
}

/// Returns the socket's name. `random` is secret until the socket has the name. `filters` is
/// the number of seccomp filters that the listener's thread had when the socket was created: a
/// filter that was added later may kill the thread for a system call.
pub fn name(pid: u32, start_ticks: u64, random: u64, filters: u32) -> String {
    format!("{}{random:016x}/{filters}", prefix(pid, start_ticks))
}

/// Returns the number of filters in a name, from the part after the prefix; `None` when it is not
/// such a name.
pub fn filters_in(rest: &str) -> Option<u32> {
    let (random, filters) = rest.split_once('/')?;
    let whole = random.len() == 16 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    whole.then(|| filters.parse().ok()).flatten()
}

/// Length of the random part of a [`Token`], in bytes.
pub const SECRET_LEN: usize = 32;
/// The start of a [`Token`]. An attacher sends back only memory that starts with this mark.
pub const TOKEN_MARK: [u8; 16] = *b"midair listener\0";
/// Size of a [`Token`], in bytes.
pub const TOKEN_LEN: usize = TOKEN_MARK.len() + SECRET_LEN;

/// What the listener puts into its memory for an attacher to read: the mark and random bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// The random bytes.
    pub secret: [u8; SECRET_LEN],
}

impl Token {
    /// Returns its bytes, as they are in memory.
    pub fn bytes(&self) -> [u8; TOKEN_LEN] {
        let mut bytes = [0; TOKEN_LEN];
        let (mark, secret) = bytes.split_at_mut(TOKEN_MARK.len());
        mark.copy_from_slice(&TOKEN_MARK);
        secret.copy_from_slice(&self.secret);
        bytes
    }
    /// Reads a token; `None` when the bytes are not a token.
    pub fn read(bytes: &[u8; TOKEN_LEN]) -> Option<Token> {
        let (mark, secret) = bytes.split_at(TOKEN_MARK.len());
        (mark == TOKEN_MARK).then_some(Token {
            secret: secret.try_into().ok()?,
        })
    }
}

impl std::fmt::Debug for Token {
    /// Without the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// Values of [`ConnectRequest::purpose`].
pub mod purpose {
    /// The attacher wants a session.
    pub const ATTACH: u32 = 1;
    /// The attacher wants a reply only.
    pub const QUERY: u32 = 2;
}

/// Values of [`ConnectReply::outcome`].
pub mod outcome {
    /// The worker thread was created and waits for the library. It will load the library from the
    /// descriptor number in the reply.
    pub const SEND: u32 = 1;
    /// The worker thread was created, and the process has the library already: none is to be sent.
    pub const LOADED: u32 = 2;
    /// The parked worker thread has the connection.
    pub const WOKEN: u32 = 3;
    /// Another session is running.
    pub const BUSY: u32 = 4;
    /// The attach failed: step, errno and text are in the reply.
    pub const FAILED: u32 = 5;
    /// This peer may not attach, for the reason in `error`: see [`super::refusal`].
    pub const REFUSED: u32 = 6;
    /// The parked worker thread, or the listener itself, is of another version (`error`).
    pub const OTHER_VERSION: u32 = 7;
    /// The reply to [`super::purpose::QUERY`].
    pub const AVAILABLE: u32 = 8;
    /// The attacher has to read the token at `token_at` in the process's memory and to send it back
    /// in a [`super::ConnectProof`].
    pub const CHALLENGE: u32 = 9;
}

/// Reasons for refusing a peer.
pub mod refusal {
    /// The process, or a part of it, belongs to another user or group than the peer, and the peer
    /// is not root.
    pub const USER: i32 = 1;
    /// The process is not dumpable.
    pub const NOT_DUMPABLE: i32 = 2;
    /// It was started with more rights than its user has (`AT_SECURE`).
    pub const SECURE: i32 = 3;
    /// It has capabilities that the peer lacks, or that only root may attach to.
    pub const CAPABLE: i32 = 4;
    /// The peer is in another pid or user namespace, or that cannot be determined.
    pub const NAMESPACE: i32 = 5;
    /// The process cannot determine what is needed for the decision.
    pub const UNKNOWN: i32 = 6;
    /// The peer is under `no_new_privs` or seccomp filters that the process is not under.
    pub const SANDBOX: i32 = 7;
    /// The peer did not send back the token, which any process can read that may trace this one.
    pub const PROOF: i32 = 8;
    /// The peer has ended, or has executed another program since it connected.
    pub const CHANGED: i32 = 9;

    /// Returns the reason as text that follows "the listener refuses: ".
    pub fn text(code: i32) -> &'static str {
        match code {
            USER => "the process belongs to another user or group, at least in part",
            NOT_DUMPABLE => "the process is not dumpable",
            SECURE => "the process was started with more privileges than its user has",
            CAPABLE => "the process has capabilities that the attacher lacks",
            NAMESPACE => "the attacher is in another pid or user namespace",
            UNKNOWN => "the process cannot identify the attacher",
            SANDBOX => {
                "the attacher is in a sandbox (no_new_privs, seccomp), and the process is not"
            }
            PROOF => "the attacher has not proven that it may read the process's memory",
            CHANGED => "the attacher has ended, or has changed since it connected",
            _ => "a reason unknown to this build",
        }
    }
}

const REQUEST_MAGIC: u64 = u64::from_le_bytes(*b"midair\x00K");
const PROOF_MAGIC: u64 = u64::from_le_bytes(*b"midair\x00P");
const REPLY_MAGIC: u64 = u64::from_le_bytes(*b"midair\x00A");

/// The attacher's first message.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectRequest {
    magic: u64,
    /// [`VERSION`] of the attacher. Magic number and version have the same offsets in every
    /// version.
    pub version: u32,
    /// See [`purpose`].
    pub purpose: u32,
}

/// Size of a [`ConnectRequest`], in bytes.
pub const REQUEST_LEN: usize = size_of::<ConnectRequest>();
/// Size of a [`ConnectReply`], in bytes.
pub const REPLY_LEN: usize = size_of::<ConnectReply>();
/// Capacity of the text in a reply, in bytes.
pub const TEXT_LEN: usize = 512;

impl ConnectRequest {
    /// Creates a request of this version.
    pub fn new(purpose: u32) -> ConnectRequest {
        ConnectRequest {
            magic: REQUEST_MAGIC,
            version: VERSION,
            purpose,
        }
    }
    /// Returns its bytes.
    pub fn bytes(&self) -> [u8; REQUEST_LEN] {
        let mut bytes = [0; REQUEST_LEN];
        let (magic, rest) = bytes.split_at_mut(8);
        magic.copy_from_slice(&self.magic.to_ne_bytes());
        let (version, purpose) = rest.split_at_mut(4);
        version.copy_from_slice(&self.version.to_ne_bytes());
        purpose.copy_from_slice(&self.purpose.to_ne_bytes());
        bytes
    }
    /// Reads a request of any version; `None` when the bytes are not a request.
    pub fn read(bytes: &[u8]) -> Option<ConnectRequest> {
        let request = ConnectRequest {
            magic: u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?),
            version: u32::from_ne_bytes(bytes.get(8..12)?.try_into().ok()?),
            purpose: u32::from_ne_bytes(bytes.get(12..16)?.try_into().ok()?),
        };
        (request.magic == REQUEST_MAGIC && bytes.len() == REQUEST_LEN).then_some(request)
    }
}

/// The attacher's second message: the token that it has read from the process's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectProof {
    /// The token.
    pub token: Token,
}

/// Size of a [`ConnectProof`], in bytes.
pub const PROOF_LEN: usize = size_of::<u64>() + SECRET_LEN;

impl ConnectProof {
    /// Returns its bytes.
    pub fn bytes(&self) -> [u8; PROOF_LEN] {
        let mut bytes = [0; PROOF_LEN];
        let (magic, secret) = bytes.split_at_mut(size_of::<u64>());
        magic.copy_from_slice(&PROOF_MAGIC.to_ne_bytes());
        secret.copy_from_slice(&self.token.secret);
        bytes
    }
    /// Reads a proof; `None` when the bytes are not a proof.
    pub fn read(bytes: &[u8]) -> Option<ConnectProof> {
        let bytes: &[u8; PROOF_LEN] = bytes.try_into().ok()?;
        let (magic, secret) = bytes.split_at(size_of::<u64>());
        (magic == PROOF_MAGIC.to_ne_bytes()).then_some(ConnectProof {
            token: Token {
                secret: secret.try_into().ok()?,
            },
        })
    }
}

/// A message from the process to the attacher.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectReply {
    magic: u64,
    /// [`VERSION`] of the process's register library. Magic number and version have the same
    /// offsets in every version.
    pub version: u32,
    /// See [`outcome`].
    pub outcome: u32,
    /// The step that failed, see [`crate::boot::step`].
    pub step: u32,
    /// An errno, a reason of [`refusal`], or the other version.
    pub error: i32,
    /// Thread id of the worker thread in the process's pid namespace; 0 when there is none.
    pub tid: u32,
    /// The descriptor number that the library will be loaded by.
    pub library_fd: i32,
    /// 1 when a HIP or HSA runtime is in the process.
    pub gpu: u32,
    reserved: u32,
    /// With [`outcome::CHALLENGE`]: address of the [`Token`]. Otherwise 0.
    pub token_at: u64,
    /// Error message of the dynamic loader, terminated by a zero byte.
    pub text: [u8; TEXT_LEN],
}

impl ConnectReply {
    /// Creates a reply without details.
    pub fn new(outcome: u32) -> ConnectReply {
        ConnectReply {
            magic: REPLY_MAGIC,
            version: VERSION,
            outcome,
            step: 0,
            error: 0,
            tid: 0,
            library_fd: -1,
            gpu: 0,
            reserved: 0,
            token_at: 0,
            text: [0; TEXT_LEN],
        }
    }
    /// Returns its bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: repr(C), integers and bytes only, no padding (8 + 8 * 4 + 8 + 512).
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), REPLY_LEN) }
    }
    /// Reads a reply. `None` when the bytes are not a reply. In a reply of another version only the
    /// version is valid.
    pub fn read(bytes: &[u8]) -> Option<ConnectReply> {
        let word = |at: usize| -> Option<u32> {
            Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
        };
        if bytes.get(..8)? != REPLY_MAGIC.to_ne_bytes() {
            return None;
        }
        let mut reply = ConnectReply::new(outcome::OTHER_VERSION);
        reply.version = word(8)?;
        if reply.version != VERSION {
            reply.error = reply.version.cast_signed();
            return Some(reply);
        }
        reply.outcome = word(12)?;
        reply.step = word(16)?;
        reply.error = word(20)?.cast_signed();
        reply.tid = word(24)?;
        reply.library_fd = word(28)?.cast_signed();
        reply.gpu = word(32)?;
        reply.token_at = u64::from_ne_bytes(bytes.get(40..48)?.try_into().ok()?);
        let text = bytes.get(48..REPLY_LEN)?;
        reply.text.copy_from_slice(text);
        Some(reply)
    }
    /// Sets the text, truncated to its capacity.
    pub fn set_message(&mut self, message: &[u8]) {
        let capacity = TEXT_LEN - 1;
        for (to, from) in self.text.iter_mut().zip(message.iter().take(capacity)) {
            *to = *from;
        }
    }
    /// Returns the text.
    pub fn message(&self) -> &[u8] {
        let end = self.text.iter().position(|byte| *byte == 0);
        self.text.get(..end.unwrap_or(TEXT_LEN)).unwrap_or(&[])
    }
}

const _: () = assert!(REPLY_LEN == 48 + TEXT_LEN && REQUEST_LEN == 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_filters_is_read_from_the_name() {
        let name = name(7, 900, 0x2a, 2);
        let rest = name.strip_prefix(&prefix(7, 900)).unwrap();
        assert_eq!(rest, "000000000000002a/2");
        assert_eq!(filters_in(rest), Some(2));
        assert_eq!(name, "midair-attach/7/900/000000000000002a/2");
        for bad in ["", "3", "2a/0", "/0", "x00000000000002a/0"] {
            assert_eq!(filters_in(bad), None, "{bad}");
        }
        for bad in ["/", "/-1", "/0/0"] {
            assert_eq!(filters_in(&format!("000000000000002a{bad}")), None, "{bad}");
        }
    }

    #[test]
    fn each_refusal_names_its_own_reason() {
        for (code, word) in [
            (refusal::USER, "user or group"),
            (refusal::NOT_DUMPABLE, "not dumpable"),
            (refusal::SECURE, "more privileges"),
            (refusal::CAPABLE, "capabilities"),
            (refusal::NAMESPACE, "namespace"),
            (refusal::UNKNOWN, "identify the attacher"),
            (refusal::SANDBOX, "sandbox"),
            (refusal::PROOF, "memory"),
            (refusal::CHANGED, "has changed"),
        ] {
            let text = refusal::text(code);
            assert!(text.contains(word), "{code}: {text}");
        }
        // Codes of a later version.
        for code in [i32::MIN, -1, 0, 10, i32::MAX] {
            assert_eq!(refusal::text(code), "a reason unknown to this build");
        }
    }

    #[test]
    fn tokens_and_proofs_are_read_exactly_or_not_at_all() {
        let token = Token {
            secret: std::array::from_fn(|at| at as u8),
        };
        assert_eq!(Token::read(&token.bytes()), Some(token));
        assert_eq!(format!("{token:?}"), "Token", "a secret is not shown");
        for bit in 0..TOKEN_MARK.len() * 8 {
            let mut other = token.bytes();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Token::read(&other), None, "bit {bit}");
        }
        let bytes = ConnectProof { token }.bytes();
        assert_eq!(ConnectProof::read(&bytes), Some(ConnectProof { token }));
        for cut in 0..PROOF_LEN {
            assert_eq!(ConnectProof::read(&bytes[..cut]), None, "{cut}");
        }
        assert_eq!(ConnectProof::read(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(ConnectProof::read(&[0; PROOF_LEN]), None);
    }

    #[test]
    fn messages_are_read_and_invalid_bytes_are_not() {
        let request = ConnectRequest::new(purpose::ATTACH);
        assert_eq!(ConnectRequest::read(&request.bytes()), Some(request));
        let mut reply = ConnectReply::new(outcome::FAILED);
        (reply.step, reply.error, reply.tid) = (4, -7, 9);
        reply.token_at = u64::MAX - 3;
        reply.set_message(b"no such file");
        assert_eq!(ConnectReply::read(reply.bytes()), Some(reply));
        assert_eq!(reply.message(), b"no such file");
        reply.set_message(&[b'x'; 2000]);
        assert_eq!(reply.message().len(), TEXT_LEN - 1);
        for cut in 0..REPLY_LEN {
            let _ = ConnectReply::read(&reply.bytes()[..cut]);
            assert_eq!(
                ConnectRequest::read(&reply.bytes()[..cut.min(REQUEST_LEN)]),
                None,
                "{cut}"
            );
        }
        assert_eq!(ConnectRequest::read(&[0; REQUEST_LEN]), None);
        let mut other = reply.bytes().to_vec();
        other[8] ^= 0x40;
        let other = ConnectReply::read(&other[..12]).unwrap();
        assert_eq!(other.outcome, outcome::OTHER_VERSION);
        assert_ne!(other.version, VERSION);
    }
}
