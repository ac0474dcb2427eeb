//! Every exported function with any arguments, on one thread and on five.

#[allow(dead_code, reason = "what another library needs")]
#[path = "../../../sdk-so/tests/common/arguments.rs"]
mod common;

use common::{compile, function, library, run};

#[test]
fn any_arguments_get_a_documented_status() {
    let all = [
        function("rocattach_attach", "P", true),
        function("rocattach_attach_tree", "P", true),
        function("rocattach_detach", "P", true),
        function("rocattach_detach_tree", "P", true),
        function("rocattach_get_status_name", "i", false),
        function("rocattach_get_status_string", "i", false),
        function("rocattach_get_version", "ppp", true),
        function("rocattach_get_version_triplet", "p", true),
        function("attach", "P", false),
        function("detach", "", false),
    ];
    let dir = tempfile::tempdir().unwrap();
    // Seven statuses, from 0 on.
    let program = compile(dir.path(), &all, 7);
    let installed = library(
        dir.path(),
        "librocprofiler_sdk_rocattach.so",
        "librocprofiler-sdk-rocattach.so.1",
    );
    for state in ["before", "threads"] {
        let (calls, statuses) = run(&program, &installed, state, 1, 600);
        assert!(calls >= 600 && statuses >= 2, "{state}: {calls} {statuses}");
    }
}
