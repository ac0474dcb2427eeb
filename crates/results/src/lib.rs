//! From a finished session to files.
//!
//! Two sides end here: the attaching one (`midair-session`), and the default tool in a target where no attacher of ours reads the
//! spool. So nothing of the engine is known in this crate, and nothing here ends the process or speaks for itself.

mod finished;
mod identity;
mod plan;
mod together;

pub use finished::{End, Finished, Written, check, describe};
pub use identity::Identity;
pub use midair_output::Console;
pub use midair_output::table::Style;
pub use midair_output::{RecordFile, RecordWriter};
pub use together::Together;
