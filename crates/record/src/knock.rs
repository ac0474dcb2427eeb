//! What an attacher and the listener of a process say to each other, before and beside the session's own words.
//!
//! The listener is a thread of our register library. It listens on an abstract unix socket (sequenced packets) of a [`name`] that an
//! attacher can work out from `/proc/PID/{status,stat}` alone. The attacher sends one [`Knock`]; the listener, or the thread of ours
//! that it made, sends an [`Answer`]. After [`outcome::SEND`] the attacher sends the library as after the engine's own way in; what
//! then fails is told by another answer. Everything else on the connection is the session's.

use crate::VERSION;

/// How many names are tried: another process may sit on one of them.
pub const NAMES: u32 = 4;

/// How the name of the socket begins (it follows a zero byte), for the process that calls itself `pid` and began `start_ticks` clock
/// ticks after the machine (field 22 of `/proc/PID/stat`).
pub fn prefix(pid: u32, start_ticks: u64) -> String {
    format!("midair-attach/{pid}/{start_ticks}/")
}

/// The name. `which` is below [`NAMES`]; `filters` is how many system call filters (seccomp) its thread had when the socket was made: it
/// may not live through a call that a later one forbids.
pub fn name(pid: u32, start_ticks: u64, which: u32, filters: u32) -> String {
    format!("{}{which}/{filters}", prefix(pid, start_ticks))
}

/// The filters that a name tells, from what follows the prefix; `None` when it is no such name.
pub fn filters_in(rest: &str) -> Option<u32> {
    let (which, filters) = rest.split_once('/')?;
    let which: u32 = which.parse().ok()?;
    (which < NAMES).then(|| filters.parse().ok()).flatten()
}

/// Values of [`Knock::purpose`].
pub mod purpose {
    /// A session is wanted.
    pub const ENTER: u32 = 1;
    /// Only an answer is.
    pub const ASK: u32 = 2;
}

/// Values of [`Answer::outcome`].
pub mod outcome {
    /// Our thread is made and waits for the library, which it will load by the number in the answer.
    pub const SEND: u32 = 1;
    /// Our thread is made, and the library is in the process already: none is to be sent.
    pub const LOADED: u32 = 2;
    /// Our parked thread has the connection.
    pub const WOKEN: u32 = 3;
    /// A thread of ours is at work already.
    pub const BUSY: u32 = 4;
    /// It failed: step, errno and words are in the answer.
    pub const FAILED: u32 = 5;
    /// This peer may not, for the reason in `error`, see [`super::why`].
    pub const NOT_ALLOWED: u32 = 6;
    /// The parked thread, or the listener itself, is of another version (`error`).
    pub const OTHER_VERSION: u32 = 7;
    /// The answer to [`super::purpose::ASK`].
    pub const HERE: u32 = 8;
}

/// Why a peer is not let in.
pub mod why {
    /// The process is not (wholly) the peer's user's or group's, and the peer is not root.
    pub const USER: i32 = 1;
    /// The process is not dumpable.
    pub const NOT_DUMPABLE: i32 = 2;
    /// It was started with more rights than its user has (`AT_SECURE`).
    pub const SECURE: i32 = 3;
    /// It has capabilities that the peer has not, or that a peer who is not root never gets.
    pub const CAPABLE: i32 = 4;
    /// The peer is in another pid or user namespace, or it cannot be told.
    pub const NAMESPACE: i32 = 5;
    /// The process cannot learn what is needed to decide.
    pub const UNKNOWN: i32 = 6;

    /// The reason in words that follow "the listener refuses: ".
    pub fn words(code: i32) -> &'static str {
        match code {
            USER => "the process is of another user or group, in part at least",
            NOT_DUMPABLE => "the process is not dumpable",
            SECURE => "the process was started with more rights than its user has",
            CAPABLE => "the process has capabilities that the attacher lacks",
            NAMESPACE => "the attacher is in another pid or user namespace",
            UNKNOWN => "the process cannot tell who asks",
            _ => "a reason that this build does not know",
        }
    }
}

const KNOCK: u64 = u64::from_le_bytes(*b"midair\x00K");
const ANSWER: u64 = u64::from_le_bytes(*b"midair\x00A");

/// The attacher's first words.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Knock {
    magic: u64,
    /// [`VERSION`] of the attacher. Magic and version stay where they are in every version.
    pub version: u32,
    /// See [`purpose`].
    pub purpose: u32,
}

/// Bytes of a [`Knock`].
pub const KNOCK_LEN: usize = size_of::<Knock>();
/// Bytes of an [`Answer`].
pub const ANSWER_LEN: usize = size_of::<Answer>();
/// Room for the words in an answer.
pub const TEXT_LEN: usize = 512;

impl Knock {
    /// A knock of this version.
    pub fn new(purpose: u32) -> Knock {
        Knock {
            magic: KNOCK,
            version: VERSION,
            purpose,
        }
    }
    /// Its bytes.
    pub fn bytes(&self) -> [u8; KNOCK_LEN] {
        let mut bytes = [0; KNOCK_LEN];
        let (magic, rest) = bytes.split_at_mut(8);
        magic.copy_from_slice(&self.magic.to_ne_bytes());
        let (version, purpose) = rest.split_at_mut(4);
        version.copy_from_slice(&self.version.to_ne_bytes());
        purpose.copy_from_slice(&self.purpose.to_ne_bytes());
        bytes
    }
    /// Reads one of any version; `None` when the bytes are none.
    pub fn read(bytes: &[u8]) -> Option<Knock> {
        let knock = Knock {
            magic: u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?),
            version: u32::from_ne_bytes(bytes.get(8..12)?.try_into().ok()?),
            purpose: u32::from_ne_bytes(bytes.get(12..16)?.try_into().ok()?),
        };
        (knock.magic == KNOCK && bytes.len() == KNOCK_LEN).then_some(knock)
    }
}

/// What the process says.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    magic: u64,
    /// [`VERSION`] of the process's register library. Magic and version stay where they are in every version.
    pub version: u32,
    /// See [`outcome`].
    pub outcome: u32,
    /// Where it failed, see [`crate::boot::step`].
    pub step: u32,
    /// An errno, a reason of [`why`], or the other version.
    pub error: i32,
    /// Our thread, as the process's pid namespace numbers it; 0 when there is none.
    pub tid: u32,
    /// The descriptor number that the library will be loaded by.
    pub library_fd: i32,
    /// 1 when a HIP or HSA runtime is in the process.
    pub gpu: u32,
    reserved: u32,
    /// Words of the dynamic loader, ended by a zero byte.
    pub text: [u8; TEXT_LEN],
}

impl Answer {
    /// An answer without particulars.
    pub fn new(outcome: u32) -> Answer {
        Answer {
            magic: ANSWER,
            version: VERSION,
            outcome,
            step: 0,
            error: 0,
            tid: 0,
            library_fd: -1,
            gpu: 0,
            reserved: 0,
            text: [0; TEXT_LEN],
        }
    }
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: repr(C), integers and bytes only, no padding (8 + 8 * 4 + 512).
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), ANSWER_LEN) }
    }
    /// Reads one. `None` when the bytes are none; of another version only the version is right.
    pub fn read(bytes: &[u8]) -> Option<Answer> {
        let word = |at: usize| -> Option<u32> {
            Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
        };
        if bytes.get(..8)? != ANSWER.to_ne_bytes() {
            return None;
        }
        let mut answer = Answer::new(outcome::OTHER_VERSION);
        answer.version = word(8)?;
        if answer.version != VERSION {
            answer.error = answer.version.cast_signed();
            return Some(answer);
        }
        answer.outcome = word(12)?;
        answer.step = word(16)?;
        answer.error = word(20)?.cast_signed();
        answer.tid = word(24)?;
        answer.library_fd = word(28)?.cast_signed();
        answer.gpu = word(32)?;
        let text = bytes.get(40..ANSWER_LEN)?;
        answer.text.copy_from_slice(text);
        Some(answer)
    }
    /// Puts words into it, cut to what there is room for.
    pub fn say(&mut self, words: &[u8]) {
        let room = TEXT_LEN - 1;
        for (to, from) in self.text.iter_mut().zip(words.iter().take(room)) {
            *to = *from;
        }
    }
    /// The words.
    pub fn words(&self) -> &[u8] {
        let end = self.text.iter().position(|byte| *byte == 0);
        self.text.get(..end.unwrap_or(TEXT_LEN)).unwrap_or(&[])
    }
}

const _: () = assert!(ANSWER_LEN == 40 + TEXT_LEN && KNOCK_LEN == 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_filters() {
        let name = name(7, 900, 3, 2);
        assert_eq!(name.strip_prefix(&prefix(7, 900)), Some("3/2"));
        assert_eq!(filters_in("3/2"), Some(2));
        for bad in ["", "3", "4/0", "3/", "x/0", "0/-1", "0/0/0"] {
            assert_eq!(filters_in(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_said_is_read_and_nothing_else_is() {
        let knock = Knock::new(purpose::ENTER);
        assert_eq!(Knock::read(&knock.bytes()), Some(knock));
        let mut answer = Answer::new(outcome::FAILED);
        (answer.step, answer.error, answer.tid) = (4, -7, 9);
        answer.say(b"no such file");
        assert_eq!(Answer::read(answer.bytes()), Some(answer));
        assert_eq!(answer.words(), b"no such file");
        answer.say(&[b'x'; 2000]);
        assert_eq!(answer.words().len(), TEXT_LEN - 1);
        for cut in 0..ANSWER_LEN {
            let _ = Answer::read(&answer.bytes()[..cut]);
            assert_eq!(
                Knock::read(&answer.bytes()[..cut.min(KNOCK_LEN)]),
                None,
                "{cut}"
            );
        }
        assert_eq!(Knock::read(&[0; KNOCK_LEN]), None);
        let mut other = answer.bytes().to_vec();
        other[8] ^= 0x40;
        let other = Answer::read(&other[..12]).unwrap();
        assert_eq!(other.outcome, outcome::OTHER_VERSION);
        assert_ne!(other.version, VERSION);
    }
}
