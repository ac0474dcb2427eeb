//! What runs inside the application's own API calls.
//!
//! [`wrappers`] stand in the slots of the API tables and go through [`probe`]: two clock reads, no lock, no allocation, and no
//! system call but at a thread's very first call. [`threads`] is per-thread state, [`markers`] are ROCTx's calls,
//! [`callbacks`] calls the functions of tools before and after a call.

pub mod callbacks;
pub use midair_guest::clock;
pub mod external_ids;
pub mod fork;
pub mod functions;
pub mod markers;
pub mod operations;
pub mod probe;
mod state;
pub mod threads;
pub mod wrappers;

pub use state::reset_after_fork;
