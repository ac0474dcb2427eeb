//! The default tool: collects what the `ROCPROF_*` settings ask for into a spool.
//!
//! * [`domain`]: which setting asks for which domain,
//! * [`session`]: a context for each domain, created once; each attach starts and stops contexts,
//! * [`sdk`]: the table of functions that our SDK passes to it,
//! * [`files`]: following the spool and writing the files, where no midair attacher does this,
//! * `kernel_filter`: which kernels are counted,
//! * `counters`: the plan of counters in a process that was started with counters,
//! * `openmp`: events of OpenMP, in a process that was started with them,
//! * `peers`: what `--process-sync` waits for,
//! * `periods`: the collection periods of a process that was started with them,
//! * [`preload`]: what it does when only the tool is preloaded,
//! * [`capi`]: the functions that the SDK looks up in the library.
//!
//! Where a midair attacher reads the spool, the tool writes no files and runs no thread. It does
//! not depend on an SDK library. An SDK that does not bind it (such as AMD's) cannot configure it.

pub mod capi;
mod counters;
pub mod domain;
pub mod files;
mod kernel_filter;
mod openmp;
mod peers;
mod periods;
pub mod preload;
pub mod sdk;
pub mod session;
