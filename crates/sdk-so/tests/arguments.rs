//! Every exported function, with any arguments, in any state, from callbacks and from any thread: a
//! documented status, and never a crash (`arguments.c`).

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what went wrong by panicking"
)]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Statuses are numbered from 0 without a hole; this is the first number that is none.
fn statuses(api: &Value) -> u64 {
    let values = &api["enums"]["rocprofiler_status_t"]["values"];
    let last = |(name, value): (&String, &Value)| {
        (name == "ROCPROFILER_STATUS_LAST").then(|| value.as_u64().unwrap())
    };
    match values.as_object() {
        Some(values) => values.iter().find_map(last).unwrap(),
        None => panic!("{values}"),
    }
}

/// The letter that `arguments.c` has for a parameter.
fn kind(parameter: &Value) -> char {
    let text = |key: &str| parameter[key].as_str().unwrap_or_default();
    let (name, of) = (text("name"), text("type"));
    match (text("class"), parameter["size"].as_u64()) {
        ("fnptr", _) => 'f',
        ("ptr", _) if of == "const char *" => 's',
        ("ptr", _) => 'p',
        ("enum", _) => 'e',
        ("struct" | "union", Some(8)) => 'x',
        ("struct", Some(16)) => 'r',
        ("struct", Some(64)) => 'R',
        ("uint", _) if name.ends_with("_count") || name.ends_with("_len") => 'c',
        ("uint" | "int", _) => 'i',
        other => panic!("{name}: {other:?}"),
    }
}

/// The program that calls the functions of `api` whose names begin so.
fn compile(dir: &Path, api: &Value, prefix: &str) -> PathBuf {
    let functions = api["functions"].as_object().unwrap();
    let rows: Vec<String> = functions
        .iter()
        // That one is the tool's.
        .filter(|(name, _)| name.starts_with(prefix) && *name != "rocprofiler_configure")
        .map(|(name, function)| {
            let kinds: String = function["params"]
                .as_array()
                .unwrap()
                .iter()
                .map(kind)
                .collect();
            let status = function["ret"]["type"] == "rocprofiler_status_t";
            format!("{{\"{name}\", \"{kinds}\", {}, 0}}", u32::from(status))
        })
        .collect();
    assert!(rows.len() >= 3, "{prefix}");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/arguments.c");
    let program = dir.join(format!("arguments-{prefix}"));
    let done = Command::new("cc")
        .args(["-O1", "-g", "-Wall", "-Wextra", "-pthread", "-o"])
        .arg(&program)
        .arg(format!("-DFUNCTIONS={}", rows.join(",")))
        .arg(format!("-DSTATUSES={}", statuses(&sdk())))
        .arg(source)
        .arg("-ldl")
        .status()
        .unwrap();
    assert!(done.success());
    program
}

fn api(name: &str) -> Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../api")
        .join(name);
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

fn sdk() -> Value {
    api("rocprofiler_sdk.json")
}

/// The library, under the name that it is installed by.
fn library(dir: &Path) -> PathBuf {
    let built = std::env::current_exe().unwrap();
    let there = dir.join("librocprofiler-sdk.so.1");
    std::fs::copy(
        built.parent().unwrap().join("librocprofiler_sdk.so"),
        &there,
    )
    .unwrap();
    there
}

/// Calls that were made, and different statuses that were given.
fn run(program: &Path, library: &Path, state: &str, seed: u64, calls: u32) -> (u32, u32) {
    let out = Command::new(program)
        .arg(library)
        .args([state, &seed.to_string(), &calls.to_string()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(
        out.status.success(),
        "{state} {seed}: {}\n{said}{errors}",
        out.status
    );
    let line = said
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{state} calls ")));
    let (calls, statuses) = line.unwrap().split_once(" statuses ").unwrap();
    (calls.parse().unwrap(), statuses.parse().unwrap())
}

fn in_state(state: &str, least_statuses: u32) {
    let dir = tempfile::tempdir().unwrap();
    let (program, library) = (
        compile(dir.path(), &sdk(), "rocprofiler_"),
        library(dir.path()),
    );
    for seed in 0..4 {
        let (calls, statuses) = run(&program, &library, state, seed, 4000);
        assert!(calls >= 3000, "{state}: {calls} calls");
        assert!(statuses >= least_statuses, "{state}: {statuses} statuses");
    }
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

#[test]
fn on_five_threads_while_contexts_run() {
    in_state("running", 4);
}

#[test]
fn in_a_tools_finalize_function() {
    in_state("finalize", 3);
}

#[test]
fn after_the_librarys_own_end() {
    in_state("after", 3);
}
