//! Every exported function with any arguments, on one thread and on five, while no SDK is bound.
//! `bound.rs` has the rest.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what went wrong by panicking"
)]

#[allow(dead_code, reason = "what another library needs")]
#[path = "../../sdk-so/tests/common/arguments.rs"]
mod common;

use common::{compile, function, in_state, library};

#[test]
fn any_arguments_end_no_program() {
    let all = [
        function("midair_tool_bind", "p", false),
        // Without an SDK that it knows, the tool declines: null, which is 0 here.
        function("rocprofiler_configure", "isip", true),
        function("rocprofiler_configure_attach", "isip", true),
    ];
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), &all, 1);
    let installed = library(
        dir.path(),
        "librocprofiler_sdk_tool.so",
        "librocprofiler-sdk-tool.so.1",
    );
    for state in ["before", "threads"] {
        in_state(&program, &installed, state, 1);
    }
}
