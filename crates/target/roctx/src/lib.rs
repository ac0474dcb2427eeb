//! ROCTx: marks and ranges by which an application annotates what it does. Without a profiler the
//! functions only maintain levels and ids.
//!
//! * [`capi`]: the C names, each a jump through its table, so that a profiler can interpose by one
//!   store per slot;
//! * [`tables`]: the three tables (layout: api/roctx.json);
//! * [`body`]: what the functions do when no profiler has replaced them;
//! * [`register`]: passes the tables to a registration library, once, before the first call is
//!   served;
//! * [`legacy`]: the callback of the old `libroctx64.so.4`, under whose name this library may be
//!   found as well.
//!
//! Hot loops of applications call this code. So it makes no allocation, takes no lock, makes no
//! system call, and uses no Rust thread-local (in a library that is loaded late, the first access
//! to one allocates).

pub mod body;
pub mod capi;
pub mod legacy;
pub mod register;
pub mod tables;
