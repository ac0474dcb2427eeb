//! From a finished session to files.
//!
//! Two sides use this: the attacher (`midair-session`), and the collector of a program without an
//! attacher. So this crate does not know the engine, never ends the process, and prints nothing.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod finished;
mod identity;
mod labelled;
mod plan;
mod together;

pub use finished::{End, Finished, Opened, Written, check, describe, record_limit};
pub use identity::{Identity, OnItsBehalf, Source};
pub use midair_output::Console;
pub use midair_output::screen::Cost;
pub use midair_output::table::Style;
pub use midair_output::threads::use_all_processors;
pub use midair_output::{RecordFile, RecordWriter, Times};
pub use plan::window_directory;
pub use together::Together;
