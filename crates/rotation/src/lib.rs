//! Which group of counters the next window counts, and whether there is a window at all.
//!
//! More counters than the hardware counts at once are counted in turns: each window of counters
//! counts one *group*. The choice is made on a thread of the application, between the reservation
//! of a packet and the packet: without a lock, without memory, in a bounded number of steps. All
//! that needs thought is done by the worker thread, which writes what it found into the same table.
//!
//! * [`Rotation`] is that table, one for each agent. Application: [`Rotation::next_group`],
//!   [`Rotation::saw`].
//! * [`Scheduler`] is the worker thread's side. It is told of dispatches and windows, and renews
//!   the table.
//! * [`Class`]: dispatches that are comparable: kernel, grid, workgroup, LDS (on one agent).
//!
//! **Everything is drawn at random.** Programs are periodic: layers of a network, iterations of a
//! solver. A choice that goes round would meet the same part of the period with the same group
//! again and again, and means would be wrong however many windows there are. So whether a dispatch
//! has a window is drawn for each dispatch by itself, and groups follow a random permutation that
//! is another one in each round. It is not drawn by time: the first dispatch behind a moment is
//! more often one that follows a long pause.
//!
//! **The kernel is not known when the choice is made.** A packet is reserved before it is written.
//! So the class is predicted from the two dispatches that the queue had before. A wrong prediction
//! costs no correctness, since a window is counted for the class that it turns out to hold; it
//! only spends a turn of another class.
#![forbid(unsafe_code)]

mod budget;
mod class;
mod random;
mod scheduler;
mod table;

pub use budget::Budget;
pub use class::{Class, ClassKey};
pub use random::{chance, mix, permuted};
pub use scheduler::Scheduler;
pub use table::{CLASSES, ENTRIES, MAX_GROUPS, Rotation};
