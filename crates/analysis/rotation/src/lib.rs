//! Decides whether the next dispatch has a window, and which counter group that window counts.
//!
//! When more counters are wanted than the hardware can count at once, they are multiplexed: each window
//! counts one *group*. The application's thread decides, after it has reserved a packet and before
//! it writes the packet: without a lock, without allocating, in a bounded number of steps.
//! Everything that takes longer is done by the worker thread, which writes its results into the
//! same table.
//!
//! * [`Rotation`] is that table, one for each agent. The application's threads call
//!   [`Rotation::next_group`] and [`Rotation::saw`].
//! * [`Scheduler`] is the worker thread's side. It is notified of dispatches and windows, and renews
//!   the table.
//! * [`Bursts`] is for recordings, not for counters: it decides when a recording is on that may cost
//!   the application only a share of its speed.
//! * [`Class`]: dispatches that are comparable: kernel, grid, workgroup, LDS (on one agent).
//!
//! **Everything is drawn at random.** Programs are periodic: layers of a network, iterations of a
//! solver. A round-robin choice would meet the same part of the period with the same group again
//! and again, and means would be wrong however many windows there are. So whether a dispatch has a
//! window is drawn for each dispatch separately, and groups follow a random permutation that
//! differs in each round. The draw does not depend on time: the first dispatch after a given moment
//! is more often one that follows a long pause.
//!
//! **A cost is measured, not assumed.** Windows of one group can take a thousand times as long as
//! another group's, since they read registers of every compute unit. Until the cost of a group's
//! windows is known, at most two such windows are open. Then the groups share the time, not the windows.
//!
//! **The kernel is not known when the choice is made**, since a packet is reserved before it is
//! written. So the class is predicted from the two previous dispatches of the queue. A wrong
//! prediction does no harm to the results, since a window is counted for the class that it turns
//! out to contain; it only uses up a turn of another class.
#![forbid(unsafe_code)]

mod accounts;
mod budget;
mod bursts;
mod class;
mod random;
mod scheduler;
mod switching;
mod table;

pub use budget::Budget;
pub use bursts::{Basis, Bursts, Period, Turn};
pub use class::{Class, ClassKey};
pub use random::{chance, mix, permuted};
pub use scheduler::Scheduler;
pub use table::{CLASSES, ENTRIES, MAX_GROUPS, Rotation};
