//! The worker thread in a target, for every runtime that can be recorded.
//!
//! The engine, or the process's own listener, starts it, and it calls [`enter`] of the library that
//! was sent. From then on an attacher's offer is received over a socket ([`connection`]), the spool
//! is mapped and the session runs ([`session`]), and the thread parks on a futex word until the
//! next one ([`life`]). What a session does is the [`Work`] of the library: AMD's runtimes
//! (`midair-sdk-control`) or CUDA (`midair-cuda`).
//!
//! Nothing here runs on a thread of the application, prints, or keeps a descriptor open between
//! sessions.

pub mod claim;
pub mod clock;
mod connection;
pub mod descriptor_path;
mod futex;
mod lease;
mod life;
mod session;
pub mod verified_fd;
mod work;

pub use clock::now;
pub use futex::{BUSY_TICK, IDLE_TICK, wait_on};
pub use life::enter;
pub use verified_fd::VerifiedFd;
pub use work::{Kept, Refused, Sent, Work};
