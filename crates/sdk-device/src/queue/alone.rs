//! Counters of *every* dispatch, in a process that was started for it: each dispatch has its GPU for
//! itself.
//!
//! Queues are made while we are loaded, so each is an intercept queue of the runtime's, whose
//! packets come to [`queue::intercept`](queue) before the device has them. A dispatch is put between
//! barriers: the first tells that the queue has come to it, the second holds the queue until the
//! dispatch has its turn, and the last tells that it has ended. [`turns`] gives turns, one at a time
//! on each agent, in the order in which queues come to their dispatches: a dispatch that waits for
//! another queue's is behind that, so no chain of events of a program stands still. Programs whose
//! kernels must run at the same time do, under AMD's tool as under this one (AMD-130).
//!
//! Who counts is a [`User`]: it chooses before a dispatch goes to the device, and has its values
//! afterwards. A dispatch that nobody has chosen is counted by nobody and takes its turn all the same.
//!
//! Processes that are attached to have [`super::windows`] instead, where nobody waits.
//!
//! Decisions: AMD-130 (`docs/deviations/amd.md`).

mod afterwards;
pub mod collector;
mod gate;
pub(super) mod gates;
mod making;
pub mod planned;
mod prepared;
mod queue;
pub(crate) mod shared;
#[cfg(test)]
mod tests;
mod turns;
pub(in crate::queue) mod user;
mod users;

pub(crate) use gates::{destroys, is_made_otherwise};
pub use prepared::Prepared;
pub use queue::{Arguments, create_queue};
pub use turns::while_shut_down;
pub use user::{Choice, Counted, Dispatch, User};
pub use users::{add_user, is_asked};
