//! Every exported function with any arguments, on one thread and on five.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

#[allow(dead_code, reason = "what another library needs")]
#[path = "../../sdk-so/tests/common/arguments.rs"]
mod common;

use common::{compile, function, in_state, library};

#[test]
fn any_arguments_get_a_documented_status() {
    let all = [
        function("rocpd_get_version", "ppp", true),
        function("rocpd_get_version_triplet", "p", true),
        function("rocpd_sql_load_schema", "EEEvfhcp", true),
        function("rocpd_get_status_name", "i", false),
        function("rocpd_get_status_string", "i", false),
    ];
    let dir = tempfile::tempdir().unwrap();
    // Eight statuses, from 0 on.
    let program = compile(dir.path(), &all, 8);
    let installed = library(
        dir.path(),
        "librocprofiler_sdk_rocpd.so",
        "librocprofiler-sdk-rocpd.so.1",
    );
    // Success, and what there is against an argument, the engine and the part.
    for state in ["before", "threads"] {
        in_state(&program, &installed, state, 4);
    }
}
