//! The default tool: collects what `ROCPROF_*` asks for into a spool.
//!
//! * [`domain`]: which setting asks for which domain,
//! * [`session`]: a context for each domain, made once, started and stopped as each attach asks,
//! * [`sdk`]: the table of functions that our SDK binds it to,
//! * [`files`]: following the spool and writing the files, where no attacher of ours does,
//! * `choice`: which kernels are counted,
//! * `counters`: the plan of counters in a process that was started for them,
//! * [`preload`]: what it does when it is preloaded by itself,
//! * [`capi`]: the functions that the SDK looks up in the library.
//!
//! Where an attacher of ours reads the spool, the tool writes no files and runs no thread. It depends on no
//! SDK library; an SDK that does not bind it (AMD's) cannot configure it.

pub mod capi;
mod choice;
mod counters;
pub mod domain;
pub mod files;
pub mod preload;
pub mod sdk;
pub mod session;
