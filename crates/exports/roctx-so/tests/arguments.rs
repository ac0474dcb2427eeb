//! Calls every exported function with arbitrary arguments, on one thread and on five.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

#[allow(dead_code, reason = "what another library needs")]
#[path = "../../sdk-so/tests/common/arguments.rs"]
mod common;

use common::{api, compile, function, functions, in_state, library};

#[test]
fn any_arguments_end_no_program() {
    let mut all = functions(&api("roctx.json"), "roctx", "no function gives a status");
    all.push(function("roctxRegisterTracerCallback", "f", false));
    all.push(function("roctx_version_major", "", false));
    all.push(function("roctx_version_minor", "", false));
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), &all, 1);
    let installed = library(
        dir.path(),
        "librocprofiler_sdk_roctx.so",
        "librocprofiler-sdk-roctx.so.1",
    );
    for state in ["before", "threads"] {
        in_state(&program, &installed, state, 0);
    }
}
