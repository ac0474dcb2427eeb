//! The library in a C program: levels, ids, registration, and the old callback.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the directory in which cargo puts a library that it builds for a test.
fn build_dir() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().to_owned()
}

fn run(dir: &Path, name: &str, defines: &[&str]) {
    std::fs::copy(
        build_dir().join("librocprofiler_sdk_roctx.so"),
        dir.join("librocprofiler-sdk-roctx.so.1"),
    )
    .unwrap();
    let program = dir.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/alone.c");
    let built = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-pthread", "-rdynamic"])
        .args(defines)
        .arg(source)
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(dir)
        .args(["-l:librocprofiler-sdk-roctx.so.1", "-ldl"])
        .status()
        .unwrap();
    assert!(built.success());
    let ran = Command::new(&program)
        .env("LD_LIBRARY_PATH", dir)
        .output()
        .unwrap();
    assert!(
        ran.status.success(),
        "line {:?} (mod 256) of alone.c",
        ran.status
    );
    assert!(ran.stdout.is_empty() && ran.stderr.is_empty());
}

#[test]
fn levels_and_ids_are_right_without_a_profiler() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path(), "alone", &["-Wno-unused"]);
}

#[test]
fn tables_are_registered_before_the_first_call_is_served() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path(), "registered", &["-DREGISTER"]);
}
