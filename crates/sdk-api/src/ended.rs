//! How what a caller asked for ended, where that called a function of the caller's.

use crate::status::Status;
use midair_tool_call::Thrown;

/// How it ended, other than well.
#[derive(Debug)]
pub enum Ended {
    /// With a status.
    With(Status),
    /// The caller's function did not return.
    Thrown(Thrown),
}

impl From<Status> for Ended {
    fn from(status: Status) -> Ended {
        Ended::With(status)
    }
}

impl From<Thrown> for Ended {
    fn from(thrown: Thrown) -> Ended {
        Ended::Thrown(thrown)
    }
}
