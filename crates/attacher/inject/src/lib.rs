//! The attach engine: enters a running process through one of its threads.
//!
//! There are two steps. [`inspect()`] changes nothing and says what a process is, or why it cannot
//! be entered. [`enter()`] borrows *one* thread that is proven to be parked, for a fraction of a
//! millisecond, to start the worker thread. That thread loads a library and talks to the caller
//! over a socket ([`Entered::channel`]). If a worker thread is parked in the process since an
//! earlier session, it is woken instead, and no thread of the program is stopped.
//!
//! Where the process has a midair listener, [`approach()`] and [`enter_by`] stop and trace
//! nothing: they ask the listener over a socket, and it makes or wakes the worker thread itself.
//! The right to trace is needed there as well, and shown to the listener.
//!
//! Design constraints:
//! * the attacher may die after any single operation: the borrowed thread then restores itself
//!   (`hold`);
//! * no byte of the program's code is changed; our code page is never writable and executable at
//!   once (`mappings`);
//! * a thread inside the allocator, the loader, fork or exit is never borrowed (`parked`, `names`);
//! * every wait has a deadline ([`Options`]);
//! * each borrowing has a tracing thread of its own: when that thread ends, the kernel releases
//!   whatever could not be released otherwise.
//!
//! The caller's library must export [`midair_record::boot::ENTRY`].
#![deny(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod approach;
mod arch;
mod borrow;
mod code;
mod enter;
mod entered;
mod error;
pub mod filters;
mod handshake;
mod hold;
mod inherited;
mod inspection;
mod listener;
mod loader_lock;
mod managed_threads;
mod mappings;
pub mod names;
mod needs;
mod options;
mod orphans;
mod parked;
mod payload;
mod process_image;
mod pure;
mod removal;
mod reply;
mod safe_point;
mod self_unmap;
mod survey;
#[cfg(all(test, target_arch = "x86_64"))]
mod test_target;
mod turn;
mod wake;
mod worker;

pub use approach::{Approach, approach, enter_by, own_filter};
pub use code::TargetCode;
pub use enter::enter;
pub use entered::{Entered, EntryPath, Times, Via};
pub use error::{EnterError, Refusal, RejectedThread};
pub use inspection::{Inspection, LISTENER_NAME, Recorder, inspect};
pub use listener::{Accepted, Endpoint};
pub use managed_threads::{ThreadManager, find as thread_manager};
pub use mappings::Mappings;
pub use options::{FaultPoint, Library, NEVER_BORROW, Options};
pub use parked::{Candidate, Grade};
pub use survey::{Survey, survey};
pub use worker::Worker;
#[doc(hidden)]
pub use worker::read_block;
