//! Reads what a worker thread reports on the channel, for a process whose boot block may not be
//! read.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use midair_procinfo::show;
use midair_ptrace::{Deadline, poll_readable, receive_now};
use midair_record::connect::{ConnectReply, REPLY_LEN, outcome};

use crate::error::EnterError;

/// How long the worker thread and its listener may take to say why they hung up.
pub(crate) const LAST_WORDS: Duration = Duration::from_millis(200);

/// Returns the failure that the worker thread reports on the channel, if it reports one. The
/// message is left in the socket.
pub(crate) fn failure_on(channel: &OwnedFd) -> Option<EnterError> {
    let readable = poll_readable(channel.as_fd(), Deadline::after(LAST_WORDS));
    if !readable.is_ok_and(|readable| readable) {
        return None;
    }
    let mut bytes = [0; REPLY_LEN];
    let got = receive_now(channel.as_fd(), &mut bytes, true).ok()?;
    let answer = ConnectReply::read(bytes.get(..got)?)?;
    (answer.outcome == outcome::FAILED).then(|| boot_failure(&answer))
}

/// Returns the failure that a reply tells of.
pub(crate) fn boot_failure(answer: &ConnectReply) -> EnterError {
    EnterError::at_step(answer.step, answer.error, show(answer.message()))
}
