//! The attaching side: attach, collect, detach, write.
//!
//! One [`Session`] is one attach of one process. It looks before it touches anything, enters through the engine
//! (`midair-inject`), passes the spool and the libraries, follows the spool into an unlinked spill file while the target
//! runs, and ends with a [`Collected`] trace that `midair-output` writes. Every front (`rocprofv3`, `midair`, the C API) uses
//! this and nothing below it.

mod failure;

pub use failure::{Failure, Kind};
