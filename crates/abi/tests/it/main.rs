//! The tables of names and layouts, against the sources that they were made from. All tests are one program, which links once.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

mod against_amd;
mod cupti;
