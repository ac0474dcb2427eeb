//! The tables of names and layouts, compared with the sources that they were made from. All tests
//! are one program, so that it is linked only once.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

mod against_amd;
mod cupti;
