//! Errors, with their kind and what to do.

use midair_failure::Failure;
use std::fmt;

pub use midair_failure::Kind;

/// Why something failed.
#[derive(Debug, Clone)]
pub struct Error(Failure);

impl Error {
    pub(crate) fn new(kind: Kind, what: impl Into<String>) -> Error {
        Error(Failure::new(kind, what))
    }

    /// Returns the kind. [`Kind::exit_code`] is the exit code of `midair attach`.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Returns what the user can do. Not empty.
    pub fn remedy(&self) -> &str {
        &self.0.hint
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Error {}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        Error(failure)
    }
}
