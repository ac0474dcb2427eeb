//! ROCTx: marks and ranges that an application puts around what it does. Without a profiler they do nothing but keep levels and ids.
//!
//! * [`capi`]: the C names, each a jump through its table, so that a profiler can put itself between by one store per slot,
//! * [`tables`]: the three tables (layout: api/roctx.json),
//! * [`body`]: what the functions do when nobody is between,
//! * [`register`]: the tables are handed to a registration library, once, before the first call is served,
//! * [`legacy`]: the callback of the old `libroctx64.so.4`, under whose name this library may be found as well.
//!
//! An application's hot loop calls this: no allocation, no lock, no system call, no thread-local of Rust's (in a library that is
//! loaded late its first touch allocates).

pub mod body;
pub mod capi;
pub mod legacy;
pub mod register;
pub mod tables;
