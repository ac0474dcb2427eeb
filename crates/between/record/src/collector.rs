//! What a tool in a process without an attacher and its collector say to each other.
//!
//! The tool makes the spool and starts the collector, a process of its own ([`PROGRAM`]). The
//! collector has one end of a socket pair as its standard input and the spool as its standard
//! output; its arguments are an [`Order`], and the settings are in the spool. It answers that it is
//! ready, or why it is not. [`END`] of the tool's says that no more records come. Then the collector
//! writes the files and says what is to be printed, because the console is the application's. At
//! last it says [`message::DONE`].
//!
//! Every message of the collector's is a [`Head`] and as many bytes as it says.

use std::io::{self, Write};

/// The name of the collector's file, which lies next to the tool.
pub const PROGRAM: &str = "midair-collector";

/// The tool's only message: no more records come.
pub const END: u8 = b'E';

/// The kinds of the collector's messages.
pub mod message {
    /// It follows the spool. The bytes are the plan of counters for the SDK, or none.
    pub const READY: u8 = 1;
    /// It collects nothing. The bytes are the reason, and a hint behind a zero byte.
    pub const REFUSED: u8 = 2;
    /// A sentence to print on standard error behind the program's name.
    pub const SENTENCE: u8 = 3;
    /// A line to print on standard error.
    pub const LINE: u8 = 4;
    /// Text to print on standard output.
    pub const OUTPUT: u8 = 5;
    /// Text to print on standard error.
    pub const ERROR: u8 = 6;
    /// All files are complete. One byte: whether there was anything to write.
    pub const DONE: u8 = 7;
}

/// The most bytes of one message.
pub const MOST: usize = 64 << 20;
/// The most bytes of a text that is to be printed. A longer one is several messages.
const PIECE: usize = 1 << 20;

/// What comes before each message of the collector's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// See [`message`].
    pub kind: u8,
    /// How many bytes follow, at most [`MOST`].
    pub len: usize,
}

/// The size of a [`Head`] in bytes.
pub const HEAD: usize = 5;

impl Head {
    /// Reads it. None where it announces more than [`MOST`].
    pub fn read(bytes: [u8; HEAD]) -> Option<Head> {
        let [kind, len @ ..] = bytes;
        let len = u32::from_le_bytes(len) as usize;
        (len <= MOST).then_some(Head { kind, len })
    }

    fn bytes(self) -> [u8; HEAD] {
        let [a, b, c, d] = (self.len as u32).to_le_bytes();
        [self.kind, a, b, c, d]
    }
}

/// Writes a message.
///
/// # Errors
/// Where it is longer than [`MOST`], or the socket refuses it.
pub fn say(to: &mut impl Write, kind: u8, bytes: &[u8]) -> io::Result<()> {
    let len = bytes.len();
    if len > MOST {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    to.write_all(&Head { kind, len }.bytes())?;
    to.write_all(bytes)
}

/// Writes a text of any length that is to be printed.
///
/// # Errors
/// Where the socket refuses it.
pub fn print(to: &mut impl Write, kind: u8, text: &str) -> io::Result<()> {
    let mut pieces = text.as_bytes().chunks(PIECE);
    pieces.try_for_each(|piece| say(to, kind, piece))
}

/// What the collector is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// Whether the process was started with the tool. Otherwise another injector attached.
    pub is_launched: bool,
    /// Whether anything is to be printed.
    pub prints: bool,
    /// The process.
    pub pid: u32,
    /// A thread of it that has not ended.
    pub tid: u32,
}

const LAUNCHED: &str = "started";
const ATTACHED: &str = "attached";
const PRINTS: &str = "aloud";
const SILENT: &str = "silent";

impl Order {
    /// Returns it as the collector's arguments.
    pub fn words(self) -> [String; 4] {
        let choose = |first, one: &str, other: &str| if first { one } else { other }.to_owned();
        [
            choose(self.is_launched, LAUNCHED, ATTACHED),
            choose(self.prints, PRINTS, SILENT),
            self.pid.to_string(),
            self.tid.to_string(),
        ]
    }

    /// Reads the collector's arguments.
    pub fn read(words: &[String]) -> Option<Order> {
        let [kind, prints, pid, tid] = words else {
            return None;
        };
        let chosen = |word: &str, one: &str, other: &str| match word {
            word if word == one => Some(true),
            word if word == other => Some(false),
            _ => None,
        };
        Some(Order {
            is_launched: chosen(kind, LAUNCHED, ATTACHED)?,
            prints: chosen(prints, PRINTS, SILENT)?,
            pid: pid.parse().ok()?,
            tid: tid.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let mut written = Vec::new();
        say(&mut written, message::READY, b"plan").unwrap();
        let (head, rest) = written.split_at(HEAD);
        let head = Head::read(head.try_into().unwrap()).unwrap();
        assert_eq!(
            (head.kind, head.len, rest),
            (message::READY, 4, &b"plan"[..])
        );
        assert_eq!(Head::read([1, 1, 0, 0, 4]), None, "one byte too many");
        assert!(Head::read([1, 0, 0, 0, 4]).is_some());
        let mut written = Vec::new();
        print(&mut written, message::OUTPUT, &"x".repeat(PIECE + 1)).unwrap();
        assert_eq!(written.len(), PIECE + 1 + 2 * HEAD);
    }

    #[test]
    fn an_order_is_read_as_it_was_given() {
        for (is_launched, prints) in [(true, true), (true, false), (false, true), (false, false)] {
            let order = Order {
                is_launched,
                prints,
                pid: 7,
                tid: 8,
            };
            assert_eq!(Order::read(&order.words()), Some(order));
        }
        let words = |words: &[&str]| words.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        for other in [
            &["started", "aloud", "7"][..],
            &["started", "aloud", "7", "x"],
            &["stopped", "aloud", "7", "8"],
            &["started", "loud", "7", "8"],
        ] {
            assert_eq!(Order::read(&words(other)), None, "{other:?}");
        }
    }
}
