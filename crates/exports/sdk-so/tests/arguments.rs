//! Every exported function, with any arguments, in any state, from callbacks and from any thread: a
//! documented status, and never a crash (`arguments.c`).

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what went wrong by panicking"
)]

#[allow(dead_code, reason = "what another library needs")]
#[path = "common/arguments.rs"]
mod common;

use common::{api, compile, functions, library, run, values};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program and the library.
fn made(dir: &Path) -> (PathBuf, PathBuf) {
    let sdk = api("rocprofiler_sdk.json");
    let statuses = values(&sdk, "rocprofiler_status_t", "ROCPROFILER_STATUS_LAST");
    let all = functions(&sdk, "rocprofiler_", "rocprofiler_status_t");
    let library = library(dir, "librocprofiler_sdk.so", "librocprofiler-sdk.so.1");
    (compile(dir, &all, statuses), library)
}

fn in_state(state: &str, least_statuses: u32) {
    let dir = tempfile::tempdir().unwrap();
    let (program, library) = made(dir.path());
    common::in_state(&program, &library, state, least_statuses);
}

#[test]
fn before_anything_is_registered() {
    in_state("before", 3);
}

#[test]
fn in_a_tools_configure_function() {
    in_state("configure", 3);
}

#[test]
fn in_a_tools_initialize_function() {
    in_state("initialize", 6);
}

/// Among them are hundreds that make threads, while functions that are notified of each new thread make
/// more.
#[test]
fn forty_thousand_times_in_a_tools_initialize_function() {
    let dir = tempfile::tempdir().unwrap();
    let (program, library) = made(dir.path());
    let (calls, _) = run(&program, &library, "initialize", 0, 40_000);
    assert!(calls >= 40_000, "{calls} calls");
}

#[test]
fn on_five_threads_while_contexts_run() {
    in_state("running", 4);
}

/// Another thread attaches a second tool and detaches it meanwhile.
#[test]
fn on_five_threads_while_a_tool_is_attached_and_detached() {
    let dir = tempfile::tempdir().unwrap();
    let (program, library) = made(dir.path());
    let tool = dir.path().join("libtool.so");
    let done = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-o"])
        .arg(&tool)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attached_tool.c"))
        .status()
        .unwrap();
    assert!(done.success());
    common::in_state(&program, &library, "sessions", 4);
}

#[test]
fn in_a_tools_finalize_function() {
    in_state("finalize", 3);
}

#[test]
fn after_the_librarys_own_end() {
    in_state("after", 3);
}
