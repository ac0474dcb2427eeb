//! Counts *every* dispatch, in a process that was started for that: each dispatch has its GPU to
//! itself.
//!
//! We are loaded before the program makes its queues, so each of them is made as an intercept queue
//! of the runtime. The packets of an intercept queue pass through [`queue::intercept`](queue)
//! before the device gets them. A dispatch is put between barriers: the first signals that the
//! queue has reached the dispatch, the second holds the queue until it is the dispatch's turn, and
//! the last signals that the dispatch has ended. [`turns`] gives turns, one at a time on each
//! agent, in the order in which queues reach their dispatches. A dispatch that depends on a
//! dispatch of another queue is therefore behind it in the line, so no chain of dependencies in a
//! program deadlocks. Programs whose kernels must run at the same time do deadlock, under AMD's
//! tool as well as under this one (AMD-130).
//!
//! Whoever wants counts is a [`User`]. It chooses the counters before a dispatch goes to the
//! device, and receives the values afterwards. A dispatch that no user has chosen is not counted,
//! but still takes its turn.
//!
//! In a process that we attach to, [`super::windows`] is used instead, where no dispatch waits for
//! a turn.
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
