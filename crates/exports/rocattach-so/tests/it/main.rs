//! The attach library as its users see it: symbols, C and Python callers, whole jobs. All tests are
//! one program, which links once.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests may panic"
)]

mod arguments;
mod c_api;
mod common;
#[path = "../../../register-so/tests/it/common/elf.rs"]
mod elf;
mod front_ends;
mod whole_job;
