//! Every exported function, and every function of the table "rocattach", with any arguments, on one
//! thread and on five: a documented status, and never a crash.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what went wrong by panicking"
)]

#[allow(dead_code, reason = "what another library needs")]
#[path = "../../sdk-so/tests/common/arguments.rs"]
mod common;

use common::{api, compile, function, in_state, library, values};
use midair_abi::tables::HSA_CORE;
use std::path::Path;
use std::process::Command;

const BUILT: &str = "librocprofiler_sdk_attach.so";
const INSTALLED: &str = "librocprofiler-sdk-attach.so.1";

fn statuses() -> u64 {
    values(
        &api("rocprofiler_sdk.json"),
        "rocprofiler_status_t",
        "ROCPROFILER_STATUS_LAST",
    )
}

/// No call hooks anything here: the tables are too short, or have no functions.
#[test]
fn any_arguments_get_a_documented_status() {
    let all = [
        function("rocprofiler_attach_get_version", "", false),
        function("rocprofiler_attach_initialize", "f", true),
        function("rocprofiler_attach_set_api_table", "siiTcf", true),
    ];
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), &all, statuses());
    let installed = library(dir.path(), BUILT, INSTALLED);
    for state in ["before", "threads"] {
        // Success, an argument, and tables that are not available.
        in_state(&program, &installed, state, 3);
    }
}

/// A runtime makes and destroys queues and executables meanwhile, and callbacks call on.
#[test]
fn any_arguments_of_the_table_get_a_documented_status() {
    let table =
        |name: &str, kinds: &str, status| function(&format!("rocattach_{name}"), kinds, status);
    let runtime = |name: &str, kinds: &str| function(&format!("hsa_{name}"), kinds, true);
    let all = [
        table("get_version", "", false),
        table("iterate_all_queues", "fp", true),
        table("set_write_interceptor", "xfp", true),
        table("iterate_all_code_objects", "fp", true),
        table("add_code_object_cb", "fp", true),
        table("remove_code_object_cb", "f", true),
        table("add_queue_cb", "fp", true),
        table("remove_queue_cb", "f", true),
        table("lookup_memory_codeobj_data", "xpp", true),
        table("is_hsa_interception_active", "", false),
        table("initialize_hsa_interception", "t", true),
        table("hook_the_runtime", "", true),
        runtime("queue_create", "x"),
        runtime("queue_destroy", "x"),
        runtime("executable_freeze", "x"),
        runtime("executable_destroy", "x"),
        runtime("reader_create", ""),
        runtime("reader_destroy", "x"),
        runtime("load", "xx"),
    ];
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), &all, statuses());
    library(dir.path(), BUILT, INSTALLED);
    let functions = dir.path().join("libtable.so");
    let place = |name: &str| {
        let found = HSA_CORE
            .functions
            .iter()
            .find(|it| it.name.as_str() == name);
        found.unwrap().offset
    };
    let done = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-o"])
        .arg(&functions)
        .arg(format!("-DCORE_SIZE={}", HSA_CORE.size))
        .args(
            [
                ("CREATE", "hsa_queue_create"),
                ("DESTROY", "hsa_queue_destroy"),
                ("FREEZE", "hsa_executable_freeze"),
                ("END", "hsa_executable_destroy"),
                ("READER", "hsa_code_object_reader_create_from_memory"),
                ("CLOSE", "hsa_code_object_reader_destroy"),
                ("LOAD", "hsa_executable_load_agent_code_object"),
            ]
            .map(|(short, name)| format!("-D{short}={}", place(name))),
        )
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/table.c"))
        .arg("-ldl")
        .status()
        .unwrap();
    assert!(done.success());
    for state in ["before", "threads"] {
        in_state(&program, &functions, state, 3);
    }
}
