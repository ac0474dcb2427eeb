//! The register library as its users meet it: files, symbols, programs that link it. All tests are
//! one program, which links once.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests may panic"
)]

mod amd;
mod arguments;
mod attach;
mod common;
mod elf;
mod lab;
mod layout;
mod pass;
mod registration;
mod serving;
