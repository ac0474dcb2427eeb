//! The attach engine: enter a running process through one parked thread.
//!
//! Two steps. [`look()`] touches nothing and says what a process is, or why it cannot be entered. [`enter()`] borrows *one* thread
//! that is proven to be parked, for a fraction of a millisecond, to start one thread of ours; that one loads a library and
//! talks to the caller over a socket ([`Entered::channel`]). If a thread of ours is parked there since an earlier session, it
//! is woken instead and no thread of the program is touched.
//!
//! Where the process has a listener of ours, [`approach()`] and [`enter_by`] need neither step's rights: it makes or wakes our thread
//! itself, asked over a socket.
//!
//! Design constraints:
//! * the attacher may die after any single operation: the borrowed thread then restores itself (`hold`);
//! * no byte of the program's code is changed; our code page is never writable and executable at once (`mappings`);
//! * a thread inside the allocator, the loader, fork or exit is never borrowed (`parked`, `names`);
//! * every wait has a deadline ([`Options`]);
//! * each borrowing has a tracing thread of its own, whose end takes back what could not be taken back otherwise.
//!
//! Caller's part: the library must export
//! [`midair_record::boot::ENTRY`].
#![deny(unsafe_code)]

mod agent;
mod approach;
mod arch;
mod code;
mod door;
mod ending;
mod enter;
mod entered;
mod error;
pub mod filters;
mod hold;
mod inherited;
mod look;
mod mappings;
pub mod names;
mod options;
mod orphans;
mod parked;
mod safe_point;
mod still;
mod survey;
mod wake;

pub use agent::Agent;
#[doc(hidden)]
pub use agent::read_block;
pub use approach::{Approach, approach, enter_by};
pub use code::TargetCode;
pub use door::{Door, Here};
pub use enter::enter;
pub use entered::{Entered, Tier, Times, Via};
pub use error::{EnterError, Refusal, Seen};
pub use look::{LISTENER_NAME, Look, look};
pub use mappings::Mappings;
pub use options::{FaultPoint, Library, Options};
pub use parked::{Candidate, Grade};
pub use survey::{Survey, survey};
