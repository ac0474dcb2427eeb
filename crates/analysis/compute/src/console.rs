//! Lines on standard output and standard error. Names of kernels come from other programs, so
//! control sequences in them are replaced before a terminal could obey them.

use midair_failure::{Failure, output, plain};
use std::io::{IsTerminal, Write, stderr};

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

/// The two output streams. When their reader is gone, the text is lost and nothing fails.
#[derive(Debug, Clone, Copy, Default)]
pub struct Console {
    /// Which lines are printed.
    pub level: Level,
}

impl Console {
    /// Prints a result on standard output.
    pub fn text(&self, text: &str) {
        output::write(plain::lines(text).as_bytes());
    }

    fn line(&self, mark: &str, text: &str) {
        let _ = writeln!(stderr(), "{mark}{}", plain::line(text));
    }

    /// Replaces the current line of the terminal and leaves it open, so that the next status
    /// replaces it. An empty text clears the line. Does nothing where standard error is no
    /// terminal.
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

    /// Prints a line that the collecting program wrote.
    pub fn passed_on(&self, text: &str) {
        self.line("", text);
    }

    /// Sends a midair control sequence to the terminal.
    pub(crate) fn control(sequence: &'static str) {
        output::write(sequence.as_bytes());
    }

    /// Replaces the contents of the terminal by these lines, cut to its width.
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
        output::write(out.as_bytes());
    }

    /// Prints a line without a mark.
    pub fn note(&self, text: &str) {
        if self.level >= Level::Normal {
            self.line("", text);
        }
    }

    /// Prints a warning: something that the user should know.
    pub fn warning(&self, text: &str) {
        if self.level >= Level::Normal {
            self.line("warning: ", text);
        }
    }

    /// Prints further information for the user.
    pub fn info(&self, text: &str) {
        if self.level >= Level::Info {
            self.line("info: ", text);
        }
    }

    /// Prints a failure and its remedy. Returns the exit code.
    pub fn failure(&self, failure: &Failure) -> u8 {
        self.line("error: ", &failure.what);
        if !failure.hint.is_empty() {
            self.line("hint: ", &failure.hint);
        }
        failure.kind.exit_code()
    }
}
