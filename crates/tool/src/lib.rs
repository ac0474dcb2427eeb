//! The default tool: collects what `ROCPROF_*` asks for into the attacher's spool.
//!
//! * [`domain`]: which setting asks for which kind of records,
//! * [`session`]: a context per domain, made once, started and stopped as each attach asks,
//! * [`sdk`]: the table of functions that our SDK binds it to,
//! * [`capi`]: what the SDK looks up in the library.
//!
//! It writes no files and runs no thread: the attaching side reads the spool and writes. It depends on no SDK library; under
//! an SDK that does not bind it (AMD's), it declines to be configured.

pub mod capi;
pub mod domain;
pub mod sdk;
pub mod session;
