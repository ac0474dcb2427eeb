//! Lines on standard output and standard error. What the files say about kernels is text of other
//! programs: what a terminal would obey in it is replaced.

use midair_failure::{Failure, plain};
use std::io::{Write, stderr, stdout};

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
