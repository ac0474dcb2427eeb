//! From a finished session to files.
//!
//! Two sides use this: the attacher (`midair-session`), and the default tool in a target where no attacher of
//! ours reads the spool. So this crate does not know the engine, never ends the process, and prints nothing.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod chosen;
mod finished;
mod identity;
mod plan;
mod together;

pub use chosen::{ChosenKernels, chosen_kernels};
pub use finished::{End, Finished, Opened, Written, check, describe, record_limit};
pub use identity::{Identity, Itself, Source};
pub use midair_output::Console;
pub use midair_output::screen::Cost;
pub use midair_output::table::Style;
pub use midair_output::{RecordFile, RecordWriter, Times};
pub use plan::window_directory;
pub use together::Together;
