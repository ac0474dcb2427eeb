//! The interface of a library that does a session's work in a target.

use crate::VerifiedFd;
use midair_record::offer::Offer;
use midair_record::spool::{Area, status};

/// Why a session is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The status, one of [`status`].
    pub status: u32,
    /// The text for the user of the attacher.
    pub text: String,
}

impl From<String> for Refused {
    fn from(text: String) -> Refused {
        Refused {
            status: status::OTHER,
            text,
        }
    }
}

/// What the attacher sent for a session, apart from the spool.
#[derive(Debug)]
pub struct Sent {
    /// The attacher's offer.
    pub offer: Offer,
    /// The tools' files, in the offer's order.
    pub tools: Vec<VerifiedFd>,
    /// The plan of counters ([`midair_record::counter_plan`]). Empty if there is none.
    pub plan: Vec<u8>,
}

/// The error that another session has the process and does not make way ([`Work::make_way`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept;

/// The work of a library in a target. All functions are called on the worker thread, in the order
/// in which they are defined here.
pub trait Work {
    /// Resets the library's state if the process was forked from one that had this library: threads
    /// that do not exist here may have held its locks. Called before anything else.
    fn reset_after_fork(&mut self);
    /// Ends what this library does in the process without an attacher. Called before the process is
    /// claimed for a session with one. Unless this fails, [`Work::go_on`] is called in any case.
    ///
    /// # Errors
    /// [`Kept`] when the session without an attacher does not make way.
    fn make_way(&mut self) -> Result<(), Kept> {
        Ok(())
    }
    /// Called when the process is free again: the session that made way continues.
    fn go_on(&mut self) {}
    /// Called once, when the thread is running and this copy of the library has claimed the
    /// process.
    fn entered(&mut self);
    /// Starts a session whose records go to `area`.
    ///
    /// # Errors
    /// The reason for the refusal. [`Work::give_up`] is called then.
    fn set_up(&mut self, area: Area, sent: Sent) -> Result<(), Refused>;
    /// Returns whether a line on the process's standard error says that the session has started, since
    /// the user asked for it.
    fn is_announced(&self) -> bool {
        false
    }
    /// Undoes what a failed set-up had started.
    fn give_up(&mut self);
    /// Runs a round. Returns whether the next one should follow soon ([`crate::BUSY_TICK`]).
    fn tick(&mut self) -> bool;
    /// How many slots are hooked, for the head of the spool.
    fn slots(&self) -> u32;
    /// Returns a bit of `spool::outcome` if the session has to end now for reasons in this process.
    fn leaving(&self) -> Option<u32>;
    /// Ends the session. Waits for the device until `deadline` (CLOCK_BOOTTIME, ns) at most, and
    /// restores everything. It calls `detached` as soon as nothing is recorded any more. Returns
    /// bits of `spool::outcome`.
    fn stop(&mut self, deadline: u64, detached: &dyn Fn()) -> u32;
    /// Returns what the user should know and no record can say any more. Called after
    /// [`Work::stop`].
    fn last_words(&mut self) -> String {
        String::new()
    }
    /// Called when the session is over, whether it started or not. Returns true if a thread may still
    /// write into the spool, which then stays mapped.
    fn end(&mut self) -> bool;
}
