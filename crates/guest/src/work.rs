//! What a library of ours does in a session.

use crate::VerifiedFd;
use midair_record::offer::Offer;
use midair_record::spool::{Area, status};

/// Why a session is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// One of [`status`].
    pub status: u32,
    /// Text for the user of the attacher.
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

/// What the attacher sent for a session beside the spool.
#[derive(Debug)]
pub struct Sent {
    /// Its offer.
    pub offer: Offer,
    /// The tools' files, in the offer's order.
    pub tools: Vec<VerifiedFd>,
    /// The plan of counters ([`midair_record::counter_plan`]); empty = none.
    pub plan: Vec<u8>,
}

/// The process is kept by a session that does not make way ([`Work::make_way`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept;

/// The work of a library in a target. All of it is called on the worker thread, in the order of the
/// functions here.
pub trait Work {
    /// Resets the library's state where the process was forked from one that had this library:
    /// locks may be held by threads that do not exist here. Called before anything else.
    fn reset_after_fork(&mut self);
    /// Ends what this library does in the process without an attacher, before it is claimed for a session with one.
    /// [`Work::go_on`] is called in any case, unless this fails.
    ///
    /// # Errors
    /// [`Kept`] when that does not make way.
    fn make_way(&mut self) -> Result<(), Kept> {
        Ok(())
    }
    /// The process is free again: what made way goes on.
    fn go_on(&mut self) {}
    /// The thread is running, and this copy of the library has claimed the process. Called once.
    fn entered(&mut self);
    /// Begins a session whose records go to `area`.
    ///
    /// # Errors
    /// Why it is refused. [`Work::give_up`] is called then.
    fn set_up(&mut self, area: Area, sent: Sent) -> Result<(), Refused>;
    /// The set-up failed: undoes what it had begun.
    fn give_up(&mut self);
    /// Runs a round. Returns whether the next one should follow soon ([`crate::BUSY_TICK`]).
    fn tick(&mut self) -> bool;
    /// How many slots are hooked, for the head of the spool.
    fn slots(&self) -> u32;
    /// A bit of `spool::outcome` where the session has to end now for reasons in this process.
    fn leaving(&self) -> Option<u32>;
    /// Ends the session: waits for the device until `deadline` (CLOCK_BOOTTIME, ns) at most, and
    /// restores everything. `detached` is to be called as soon as nothing is recorded any more.
    /// Returns bits of `spool::outcome`.
    fn stop(&mut self, deadline: u64, detached: &dyn Fn()) -> u32;
    /// After [`Work::stop`]: what the user should know and no record can say any more.
    fn last_words(&mut self) -> String {
        String::new()
    }
    /// The session is over, whether it began or not. Returns true where a thread may still write
    /// into the spool: it stays mapped then.
    fn end(&mut self) -> bool;
}
