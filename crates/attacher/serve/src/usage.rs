//! What is wrong with the words.

use midair_failure::{Failure, Kind};

/// Makes a failure of it.
pub(crate) fn usage(what: String) -> Failure {
    Failure::new(Kind::Usage, what)
}
