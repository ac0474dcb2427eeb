//! `rocprof-compute`: see `midair_compute::main`.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(midair_compute::main(std::env::args_os().collect()))
}
