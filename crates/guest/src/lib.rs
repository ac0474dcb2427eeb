//! Our thread in a target, whichever runtime is recorded there.
//!
//! The engine starts it (or the process's own listener does), and it calls [`enter`] of the library that was sent. From then on:
//! an attacher's offer comes over a socket ([`talk`]), the spool is mapped and the session runs ([`session`]), the thread parks on a futex
//! word until the next one ([`life`]). What a session does is the [`Work`] of the library: AMD's runtimes (`midair-sdk`) or CUDA
//! (`midair-cuda`).
//!
//! Nothing here runs on a thread of the application, prints, or keeps a descriptor between sessions.

pub mod clock;
pub mod descriptor_path;
mod lease;
mod life;
pub mod number;
pub mod only;
mod session;
mod talk;
mod wait;
mod work;

pub use clock::now;
pub use life::enter;
pub use number::Own;
pub use wait::{BUSY_TICK, IDLE_TICK, wait_on};
pub use work::{Refused, Work};
