//! Helpers that the test files share.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The library under test, as cargo built it for this test run.
pub fn built() -> PathBuf {
    let mut folder = std::env::current_exe().unwrap();
    folder.pop();
    let path = folder.join("librocprofiler_sdk_rocattach.so");
    assert!(path.is_file(), "cargo did not build {}", path.display());
    path
}

/// A path in the project.
pub fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../..")
        .canonicalize()
        .unwrap()
        .join(path)
}

/// A source of these tests.
pub fn source(name: &str) -> String {
    format!("{}/tests/c/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Runs a compiler, and shows its messages when it fails.
pub fn compile(compiler: &str, arguments: &[&str]) {
    let out = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Werror", "-O1", "-I"])
        .arg(project("include"))
        .args(arguments)
        .output()
        .unwrap_or_else(|e| panic!("{compiler} is needed: {e}"));
    assert!(
        out.status.success(),
        "{compiler} {arguments:?}:\n{}",
        String::from_utf8_lossy(&out.stderr)
    );
}
