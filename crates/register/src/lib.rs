//! Registration of runtime API tables: the logic of `librocprofiler-register.so.0`.
//!
//! GPU runtimes (HIP, HSA, ROCTx, RCCL, ...) hand over the addresses of their dispatch tables here when they start. They are
//! kept whether or not anybody profiles, so that a profiler that comes later finds them. Three parties call in:
//!
//! * a **runtime**, from a constructor or lazily and from any thread: [`library_api_table`];
//! * an **SDK** that started late: [`invoke_registrations`], [`iterate`] (ours reads the tables themselves there, see [`info`]);
//! * an **attacher**, on the thread that [`listener`] keeps parked for it: [`attach()`], [`detach`];
//! * midair's attacher, over the socket that the same thread listens on ([`listener`] says how).
//!
//! Names, numbers and orders are those of AMD's library (`docs/sources.md#register`). Where AMD's aborts the application
//! (an SDK that cannot be loaded, an empty variable, a log level that is no word), this one warns and goes on: a library that
//! every GPU program links must never be the one that ends it. `register-so` exports it all under the C names.
//!
//! What outlives a `fork`: tables and loaded libraries. What does not: the listener thread, and who holds which lock; those
//! words lie in a page that the kernel wipes in the child ([`lock`]).

mod admit;
mod agent;
pub mod attach;
pub mod bounded;
pub mod client;
pub mod code;
pub mod config;
mod door;
pub mod environment;
pub mod helper;
pub mod info;
pub mod library;
pub mod listener;
pub mod lock;
mod log;
pub mod pass;
mod procfs;
pub mod registration;
mod serve;
pub mod store;

pub use attach::{attach, detach, reattach};
pub use code::Code;
pub use registration::{LibraryId, error_string, invoke_registrations, iterate, library_api_table};
