//! Lines on standard output and standard error. What the files say about kernels is text of other
//! programs: what a terminal would obey in it is replaced.

use midair_failure::{Failure, plain};
use std::io::{IsTerminal, Write, stderr, stdout};

/// Which lines are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    /// Errors.
    Error,
    /// Warnings as well.
    #[default]
    Normal,
    /// Information as well.
    Info,
}

/// The two streams. A reader that has gone loses text, and nothing fails.
#[derive(Debug, Clone, Copy, Default)]
pub struct Console {
    /// Which lines are printed.
    pub level: Level,
}

impl Console {
    /// The result, on standard output.
    pub fn text(&self, text: &str) {
        let _ = stdout().write_all(plain::lines(text).as_bytes());
        let _ = stdout().flush();
    }

    fn line(&self, mark: &str, text: &str) {
        let _ = writeln!(stderr(), "{mark}{}", plain::line(text));
    }

    /// The terminal's current line, which is left open and replaced by the next; empty: closed. Elsewhere
    /// nothing.
    pub fn status(&self, text: &str) {
        if self.level < Level::Normal || !stderr().is_terminal() {
            return;
        }
        let width =
            terminal_size::terminal_size_of(stderr()).map_or(80, |(width, _)| usize::from(width.0));
        let text: String = text.chars().take(width.saturating_sub(1)).collect();
        let _ = write!(stderr(), "\r\x1b[K{}", plain::line(&text));
        let _ = stderr().flush();
    }

    /// A line of the program that collects.
    pub fn passed_on(&self, text: &str) {
        self.line("", text);
    }

    /// A sequence of ours that the terminal obeys.
    pub(crate) fn control(sequence: &'static str) {
        let _ = stdout().write_all(sequence.as_bytes());
        let _ = stdout().flush();
    }

    /// Replaces what the terminal shows by these lines, cut to its width.
    pub(crate) fn screen(lines: &[String], width: usize) {
        let mut out = String::from("\x1b[H");
        for (place, line) in lines.iter().enumerate() {
            if place > 0 {
                out.push_str("\r\n");
            }
            let line: String = line.chars().take(width).collect();
            out.push_str(&plain::line(&line));
            out.push_str("\x1b[K");
        }
        out.push_str("\x1b[J");
        let _ = stdout().write_all(out.as_bytes());
        let _ = stdout().flush();
    }

    /// A line without a mark.
    pub fn note(&self, text: &str) {
        if self.level >= Level::Normal {
            self.line("", text);
        }
    }

    /// Something that the user should know.
    pub fn warning(&self, text: &str) {
        if self.level >= Level::Normal {
            self.line("warning: ", text);
        }
    }

    /// More for the user.
    pub fn info(&self, text: &str) {
        if self.level >= Level::Info {
            self.line("info: ", text);
        }
    }

    /// A failure and its remedy; gives the exit code.
    pub fn failure(&self, failure: &Failure) -> u8 {
        self.line("error: ", &failure.what);
        if !failure.hint.is_empty() {
            self.line("hint: ", &failure.hint);
        }
        failure.kind.exit_code()
    }
}
