//! What is known about CUPTI and a CUDA process without loading anything: where a CUPTI may be
//! found, whether a file is a complete library, and which other profiler the process was started
//! with.
//!
//! The worker thread in the target and the attaching side use the same code: the one before it
//! loads a CUPTI, the other to refuse an attach that would come to nothing. So every input is a
//! value ([`Process`]) or a trait ([`Files`]): inside the process they are made from its own
//! `/proc` files and file system, outside from the process's, in its own root.
//!
//! * [`search()`]: candidates for CUPTI's file, in the order in which they are tried.
//! * [`elf`]: whether a file can be given to the loader.
//! * [`process`]: mapped files and environment.
//! * [`profilers`]: other profilers.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod elf;
pub mod process;
pub mod profilers;
pub mod search;

pub use process::{Disk, Process};
pub use search::{Candidate, Files, OLDEST, Origin, Search, major_of, search};
