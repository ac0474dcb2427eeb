//! See `midair_cli::rocprofv3`.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

fn main() -> ExitCode {
    midair_session::keep_one_heap();
    let words = std::env::args_os().collect();
    let code = midair_cli::program::rocprofv3(words, &midair_cli::connect::SessionEngine);
    midair_cli::program::end(code)
}
