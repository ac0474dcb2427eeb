//! The default tool: collects what the `ROCPROF_*` settings ask for into a spool.
//!
//! * [`domain`]: which setting asks for which domain,
//! * [`session`]: a context for each domain, created once; each attach starts and stops contexts,
//! * [`sdk`]: the table of functions that our SDK passes to it,
//! * [`collector`]: the process that reads the spool and writes the files, where no midair attacher
//!   does this; `channel` is the way to it, and `console` prints what it says,
//! * `kernel_filter`: which kernels are counted,
//! * `openmp`: events of OpenMP, in a process that was started with them,
//! * `periods`: the collection periods of a process that was started with them,
//! * [`preload`]: what it does when only the tool is preloaded,
//! * [`capi`]: the functions that the SDK looks up in the library.
//!
//! The tool records, and writes no file. It does not depend on an SDK library. An SDK that does not
//! bind it (such as AMD's) cannot configure it.

pub mod capi;
mod channel;
pub mod collector;
mod console;
pub mod domain;
mod kernel_filter;
mod openmp;
mod periods;
pub mod preload;
pub mod sdk;
pub mod session;
