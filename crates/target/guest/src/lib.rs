//! The worker thread in a target, for every runtime that can be recorded.
//!
//! The engine or the process's own listener starts the thread, which calls [`enter`] of the library
//! that was sent. From then on it receives an attacher's offer over a socket ([`connection`]), maps
//! the spool and runs the session ([`session`]). Then it parks on a futex word until the next
//! session ([`life`]). What a session does is the [`Work`] of the library: AMD's runtimes
//! (`midair-sdk-control`) or CUDA (`midair-cuda`).
//!
//! Nothing here runs on a thread of the application, prints unless the user asks for it
//! ([`Work::is_announced`]), or keeps a descriptor open between sessions.

mod announcement;
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
pub use futex::{BUSY_TICK, IDLE_TICK, wait_on, wake_all};
pub use life::enter;
pub use verified_fd::VerifiedFd;
pub use work::{Kept, Refused, Sent, Work};
