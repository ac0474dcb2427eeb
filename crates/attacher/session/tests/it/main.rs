//! Sessions between real processes. All tests are one program, which links once.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

mod common;
mod death;
mod ends;
mod growth;
mod slow_attacher;
