//! The engine on programs of this machine. All tests are one program, so that its parts share what
//! they compile, and so that it links only once.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

mod common;
mod death;
mod ends;
mod lab;
mod library;
mod limits;
mod own_allocator;
mod places;
mod plain;
mod refusals;
mod safe_point;
mod seccomp;
mod socket;
mod starting;
mod states;
mod watch;
