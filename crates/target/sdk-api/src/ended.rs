//! How an API call ended that called a function of its caller.

use crate::status::Status;
use midair_tool_call::Thrown;

/// How it ended, if not with success.
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
