//! Registration of runtime API tables: the logic of `librocprofiler-register.so.0`.
//!
//! GPU runtimes (HIP, HSA, ROCTx, RCCL, ...) hand over the addresses of their dispatch tables here
//! when they start. The addresses are kept whether or not there is a profiler, so that one that
//! comes later finds them. The callers are:
//!
//! * a **runtime**, from a constructor or lazily, and on any thread: [`library_api_table`];
//! * an **SDK** that started late: [`invoke_registrations`], [`iterate`] (ours reads the tables
//!   themselves there, see [`info`]);
//! * an **attacher**, on the thread that [`listener`] keeps parked for it: [`attach()`],
//!   [`detach`];
//! * midair's attacher, over the socket that the same thread listens on (see [`listener`]).
//!
//! Names, numbers and orders are as in AMD's library (`docs/sources.md#register`). Where AMD's
//! aborts the application (an SDK that cannot be loaded, an empty variable, an invalid log level),
//! this one prints a warning and goes on: a library that every GPU program links must never end the
//! program. `register-so` exports everything under the C names.
//!
//! Tables and loaded libraries survive a `fork`. The listener thread and the owners of locks do
//! not; those words lie in a page that the kernel wipes in the child ([`lock`]).

pub mod activation;
mod admit;
pub mod attach;
pub mod bounded;
pub mod client;
pub mod code;
pub mod config;
mod endpoint;
pub mod environment;
pub mod helper;
pub mod info;
pub mod library;
pub mod listener;
pub mod lock;
mod log;
mod pace;
pub mod pass;
mod procfs;
pub mod registration;
mod serve;
pub mod store;
#[cfg(test)]
mod testing;
mod token;
mod waiting;
mod worker;

pub use attach::{attach, detach, reattach};
pub use code::Code;
pub use registration::{LibraryId, error_string, invoke_registrations, iterate, library_api_table};
