//! CUPTI: found in the process or on its disk, loaded, asked for its version, and its records read. It is never linked.
//!
//! * [`find`]: where to look, in which order; a pure function,
//! * [`library`]: one file opened, its functions as methods; each reason why it does not do,
//! * [`devices`]: what CUDA's driver tells of the GPUs,
//! * [`activity`], [`decode`]: records.

pub mod activity;
pub mod decode;
pub mod devices;
mod elf;
pub mod find;
pub mod functions;
pub mod library;
pub mod process;

pub use activity::Activity;
pub use decode::read;
pub use devices::Driver;
pub use functions::{Functions, Status};
pub use library::{Cupti, load};
