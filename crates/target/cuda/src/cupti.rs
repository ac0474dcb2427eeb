//! CUPTI: found in the process or in its file system ([`midair_cupti_file`]), loaded, asked for its
//! version; its records are read. It is never linked.
//!
//! * [`library`]: one opened CUPTI, with its functions as methods, and each reason why a file is
//!   not usable;
//! * [`devices`]: what CUDA's driver says about the GPUs;
//! * [`activity`], [`decode`]: records.

pub mod activity;
pub mod decode;
pub mod devices;
pub mod functions;
pub mod library;

pub use activity::Activity;
pub use decode::read;
pub use devices::Driver;
pub use functions::{Functions, NodeId, Status};
pub use library::{Cupti, load};
