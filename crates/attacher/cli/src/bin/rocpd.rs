//! See `midair_cli::rocpd`.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let words = std::env::args_os().collect();
    midair_cli::program::end(midair_cli::program::rocpd(words))
}
