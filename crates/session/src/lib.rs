//! The attaching side: attach, collect, detach, write.
//!
//! One [`Session`] is one attach of one process. It looks before it touches anything, enters through the engine
//! (`midair-inject`), passes the spool and the libraries, follows the spool into an unlinked file while the target runs, and ends
//! with a [`Collected`] trace that `midair-output` writes. Every front (`rocprofv3`, `midair`, the C API) uses this and nothing
//! below it.

mod attach;
mod collected;
mod failure;
mod identity;
mod install;
mod request;
mod session;
mod target;
mod turn;

pub use attach::checks;
pub use collected::Collected;
pub use failure::{Failure, Kind};
pub use install::Install;
pub use midair_output::table::Style;
pub use request::{Check, End, Entry, Event, Request, Written};
pub use session::Session;
pub use target::Target;
