//! See the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    midair_session::keep_one_heap();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let code = midair_serve::main(&words);
    midair_session::close_shared_descriptors();
    ExitCode::from(code)
}
