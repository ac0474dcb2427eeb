//! What a library of ours does in a session.

use crate::Own;
use midair_record::offer::Offer;
use midair_record::spool::{Area, status};

/// Why a session cannot be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// One of [`status`].
    pub status: u32,
    /// In words, for who attached.
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

/// The work of a library in a target. All of it is called on our own thread, in the order of the functions here.
pub trait Work {
    /// Makes ready where the process was forked from one that had this library: locks may be held by threads that are not here. Called
    /// before anything else.
    fn begin_anew(&mut self);
    /// The thread is ours, and this copy of the library has the process. Called once.
    fn entered(&mut self);
    /// Begins a session whose records go to `area`. Descriptors in `tools` are the offer's.
    ///
    /// # Errors
    /// Why there can be none. [`Work::give_up`] follows then.
    fn set_up(&mut self, area: Area, offer: &Offer, tools: Vec<Own>) -> Result<(), Refused>;
    /// The set-up failed: takes back what it had begun.
    fn give_up(&mut self);
    /// A round. Whether the next one should come soon ([`crate::BUSY_TICK`]).
    fn tick(&mut self) -> bool;
    /// How much is hooked, for the head of the spool.
    fn slots(&self) -> u32;
    /// A bit of `spool::outcome` where the session has to end now by this side's reasons.
    fn leaving(&self) -> Option<u32>;
    /// Ends the session: lets the device finish until `deadline` (CLOCK_BOOTTIME, ns) at most, and puts everything back. Bits of
    /// `spool::outcome`. `detached` is to be called as soon as nothing is recorded any more.
    fn stop(&mut self, deadline: u64, detached: &dyn Fn()) -> u32;
    /// The session is over, whether it began or not. True where somebody may still write into the spool: it stays mapped then.
    fn end(&mut self) -> bool;
}
