//! The code that runs inside the application's own API calls.
//!
//! [`wrappers`] are installed in the slots of the API tables. They use [`probe`], which costs two
//! clock reads per call. It takes no lock, allocates nothing, and makes a system call only at a
//! thread's very first call. [`threads`] has the per-thread state, [`markers`] records ROCTx's
//! calls, and [`callbacks`] calls tools' functions before and after a call.

pub mod callbacks;
pub use midair_guest::clock;
pub mod external_ids;
pub mod fork;
pub mod functions;
pub mod host_functions;
mod lazy_memory;
pub mod markers;
pub mod openmp;
pub mod operations;
pub mod pause;
mod pauses;
pub mod probe;
mod state;
pub mod threads;
pub mod wrappers;

pub use state::reset_after_fork;
