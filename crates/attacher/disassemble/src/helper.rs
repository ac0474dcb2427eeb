//! The helper as its parent sees it: it is asked once, and ends in time.

use crate::wire::{self, BY, LONGEST_TEXT, NONE, Question};
use midair_failure::plain;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufReader, BufWriter};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How many lines may wait to be taken.
const WAITING: usize = 4096;

/// Where programs are looked for with the rights of root.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Instructions as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The disassembler's file.
    pub by: String,
    /// The texts in the question's order. Empty where the bytes are no instruction, and fewer than were asked
    /// for where the disassembler did not go on.
    pub texts: Vec<String>,
    /// Why it did not go on.
    pub cut: Option<String>,
}

/// Why there is no text.
#[derive(Debug)]
pub enum Error {
    /// The helper cannot be started.
    Start(io::Error),
    /// No disassembler was found that knows the device: why.
    None(String),
    /// The helper ended, or wrote something else.
    Odd,
    /// It did not answer within this time, and was killed.
    Silent(Duration),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Start(error) => write!(f, "its helper does not start: {error}"),
            Error::None(why) => f.write_str(why),
            Error::Odd => f.write_str("the disassembler ended without an answer"),
            Error::Silent(limit) => write!(
                f,
                "the disassembler did not answer within {} s",
                limit.as_secs()
            ),
        }
    }
}

impl std::error::Error for Error {}

/// Kills the helper when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Errors do not matter: either it is gone already, or it is killed now.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks `program` for the texts of instructions. `arguments` are what it tries ([`crate::tools`]).
///
/// # Errors
/// Why there is no text at all.
pub fn ask(
    program: &Path,
    arguments: &[OsString],
    question: Question,
    limit: Duration,
) -> Result<Answer, Error> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // Ctrl-C is for this program alone.
        .process_group(0);
    // SAFETY: takes nothing.
    let is_root = unsafe { libc::geteuid() } == 0;
    if is_root || midair_secure::has_more_rights() {
        // The environment chooses libraries and programs. Root may have another user's, and a process
        // with more rights than its user must not obey it.
        command.env_clear().env("PATH", PATH);
    }
    for name in ["LD_PRELOAD", "LD_AUDIT"] {
        command.env_remove(name);
    }
    let mut child = command.spawn().map_err(Error::Start)?;
    let (input, output) = (child.stdin.take(), child.stdout.take());
    let running = Running(child);
    let (Some(input), Some(output)) = (input, output) else {
        return Err(Error::Odd);
    };
    let until = Instant::now() + limit;
    let wanted = question.instructions.len();
    let thread = || std::thread::Builder::new().name("midair-disasm".into());
    // Both threads end when the helper does.
    thread()
        .spawn(move || question.write(BufWriter::new(input)))
        .map_err(Error::Start)?;
    let (send, lines) = mpsc::sync_channel(WAITING);
    thread()
        .spawn(move || {
            let mut output = BufReader::new(output);
            while let Ok(Some(line)) = wire::line(&mut output) {
                if send.send(line).is_err() {
                    return;
                }
            }
        })
        .map_err(Error::Start)?;
    let next = || lines.recv_timeout(until.saturating_duration_since(Instant::now()));
    let first = next().map_err(|error| match error {
        RecvTimeoutError::Timeout => Error::Silent(limit),
        RecvTimeoutError::Disconnected => Error::Odd,
    })?;
    if let Some(why) = first.strip_prefix(NONE) {
        return Err(Error::None(plain::line(why).into_owned()));
    }
    let by = first.strip_prefix(BY).ok_or(Error::Odd)?;
    let mut answer = Answer {
        by: plain::line(by).into_owned(),
        texts: Vec::new(),
        cut: None,
    };
    while answer.texts.len() < wanted {
        match next() {
            Ok(line) => answer.texts.push(shown(&line)),
            Err(RecvTimeoutError::Timeout) => {
                answer.cut = Some(Error::Silent(limit).to_string());
                break;
            }
            Err(RecvTimeoutError::Disconnected) => {
                answer.cut = Some("the disassembler ended early".to_owned());
                break;
            }
        }
    }
    drop(running);
    Ok(answer)
}

/// Returns an instruction as one line with single blanks.
fn shown(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut line = plain::line(&words.join(" ")).into_owned();
    line.truncate(line.floor_char_boundary(LONGEST_TEXT));
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn asked(script: &str) -> (Result<Answer, Error>, Duration) {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("helper");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let question = Question {
            device: "gfx942".into(),
            instructions: vec![vec![0; 4]; 3],
        };
        let started = Instant::now();
        let limit = Duration::from_secs(1);
        let answer = ask(&program, &[], question, limit);
        (answer, started.elapsed())
    }

    #[test]
    fn a_helper_that_misbehaves_is_bounded_and_named() {
        let (odd, _) = asked("exit 3");
        assert!(matches!(odd, Err(Error::Odd)), "{odd:?}");
        let (odd, _) = asked("echo hello");
        assert!(matches!(odd, Err(Error::Odd)), "{odd:?}");
        let (none, _) = asked("echo none found");
        assert_eq!(none.unwrap_err().to_string(), "found");
        let (silent, took) = asked("exec sleep 100");
        assert!(matches!(silent, Err(Error::Silent(_))), "{silent:?}");
        assert!(took < Duration::from_secs(10), "{took:?}");
        // What came before it stopped is kept.
        let (half, _) = asked("echo by x; echo s_nop 0; exec sleep 100");
        let half = half.unwrap();
        assert_eq!(half.texts, ["s_nop 0"]);
        assert!(half.cut.unwrap().contains("did not answer within 1 s"));
        // No end, and lines without one.
        let (flood, took) = asked("echo by x; exec yes s_nop");
        assert_eq!(flood.unwrap().texts, ["s_nop"; 3]);
        let (long, _) = asked("echo by x; exec tr '\\0' x < /dev/zero");
        assert!(long.unwrap().cut.is_some());
        assert!(took < Duration::from_secs(10), "{took:?}");
    }

    #[test]
    fn a_text_is_one_plain_line() {
        let (answer, _) = asked(
            "printf 'by x\\n\\ts_load  \\033[31ms3\\n\\n'; yes a | head -c 900 | tr '\\n' a; echo",
        );
        let texts = answer.unwrap().texts;
        assert!(
            texts[0].starts_with("s_load ") && !texts[0].contains('\u{1b}'),
            "{texts:?}"
        );
        assert_eq!((texts[1].as_str(), texts[2].len()), ("", LONGEST_TEXT));
    }
}
