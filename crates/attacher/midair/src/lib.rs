//! Attaches a GPU profiler to a process that is already running, and reads what it recorded.
//!
//! ```no_run
#![doc = include_str!("../examples/kernels.rs")]
//! ```
//!
//! The libraries that enter the process come from an installation of midair: the one that `$MIDAIR`
//! names (the program's path), or that has `midair` in `$PATH`, or [`Attach::program`].
#![forbid(unsafe_code)]

mod attach;
mod error;
mod recording;
mod records;
mod session;

pub use attach::Attach;
#[doc(hidden)]
pub use attach::Live;
pub use error::{Error, Kind};
pub use midair_output::Format;
pub use recording::Recording;
pub use records::{Call, Calls, Copies, Copy, Kernel, Kernels, Marker, Markers};
pub use session::Session;
