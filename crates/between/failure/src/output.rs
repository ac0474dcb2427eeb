//! Standard output, and whether all of it arrived.
//!
//! A program goes on when its output is lost: a target that stays attached would be worse than a
//! lost line. At its end the program reports the loss ([`lost`]). A closed pipe is no loss, since its
//! reader wants no more (`| head`), and neither is a terminal that is gone.

use crate::{Failure, Kind};
use std::io::{self, ErrorKind, IsTerminal, Write, stdout};
use std::sync::OnceLock;

/// The first error of a write.
static LOST: OnceLock<String> = OnceLock::new();

/// Writes text to standard output, and flushes it.
pub fn write(text: &[u8]) {
    let mut out = stdout().lock();
    let written = out.write_all(text).and_then(|()| out.flush());
    if let Err(error) = written
        && is_loss(&error)
        && !out.is_terminal()
    {
        LOST.get_or_init(|| error.to_string());
    }
}

fn is_loss(error: &io::Error) -> bool {
    error.kind() != ErrorKind::BrokenPipe
}

/// Returns a failure if standard output lost something that was written.
pub fn lost() -> Option<Failure> {
    let why = LOST.get()?;
    let what = format!("cannot write to standard output: {why}");
    let hint = "check the file or device that it leads to, its permissions, and free space";
    Some(Failure::new(Kind::Output, what).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_is_gone_is_no_loss() {
        let error = |number| io::Error::from_raw_os_error(number);
        // EPIPE, ENOSPC, EIO.
        assert!(!is_loss(&error(32)) && is_loss(&error(28)) && is_loss(&error(5)));
    }
}
