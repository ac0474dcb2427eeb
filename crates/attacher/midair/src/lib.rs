//! Attaches a GPU profiler to a process that is already running, and reads what it recorded.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! fn main() -> Result<(), midair::Error> {
//!     let recording = midair::Attach::new(4242)
//!         .kernels()
//!         .duration(Duration::from_secs(2))
//!         .run()?;
//!     for kernel in recording.kernels() {
//!         let kernel = kernel?;
//!         println!("{} {} ns", kernel.name, kernel.duration());
//!     }
//!     recording.to_file(midair::Format::Pftrace, "trace")?;
//!     Ok(())
//! }
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
