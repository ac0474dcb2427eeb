//! Calls of a library's functions with any arguments (`tests/arguments.c`): for the tests of each
//! library that exports C functions.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A function to call: its name, the letters that `arguments.c` has for its parameters, and whether
/// it gives a status.
pub type Function = (String, String, bool);

/// The letter that `arguments.c` has for a parameter.
fn kind(parameter: &Value) -> char {
    let text = |key: &str| parameter[key].as_str().unwrap_or_default();
    let (name, of) = (text("name"), text("type"));
    let counts = ["_count", "_len", "_length"];
    match (text("class"), parameter["size"].as_u64()) {
        ("fnptr", _) => 'f',
        ("ptr", _) if of == "const char *" => 's',
        ("ptr", _) => 'p',
        ("enum", _) => 'e',
        ("struct" | "union", Some(8)) => 'x',
        ("struct", Some(16)) => 'r',
        ("struct", Some(64)) => 'R',
        ("uint", _) if name == "size" || counts.iter().any(|end| name.ends_with(end)) => 'c',
        ("uint" | "int", _) => 'i',
        other => panic!("{name}: {other:?}"),
    }
}

/// The project's directory, from wherever this is included.
fn workspace() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors()
        .find(|above| above.join("crates/exports/sdk-so").is_dir())
        .unwrap()
}

/// A table of `api/`.
pub fn api(name: &str) -> Value {
    let file = workspace().join("api").join(name);
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// The functions of such a table whose names start so. `status`: the type of what gives a status.
pub fn functions(api: &Value, prefix: &str, status: &str) -> Vec<Function> {
    let functions = api["functions"].as_object().unwrap();
    let named = functions
        .iter()
        // That one is the tool's.
        .filter(|(name, _)| name.starts_with(prefix) && *name != "rocprofiler_configure");
    named
        .map(|(name, function)| {
            let parameters = function["params"].as_array().unwrap();
            let kinds = parameters.iter().map(kind).collect();
            (name.clone(), kinds, function["ret"]["type"] == status)
        })
        .collect()
}

/// A function that no table has.
pub fn function(name: &str, kinds: &str, status: bool) -> Function {
    (name.to_owned(), kinds.to_owned(), status)
}

/// How many values an enum has: they are numbered from 0 without a hole, and one of them is the
/// first number that is none.
pub fn values(api: &Value, of: &str, last: &str) -> u64 {
    api["enums"][of]["values"][last].as_u64().unwrap()
}

/// The program that calls them; `statuses` is the first number that is none.
pub fn compile(dir: &Path, functions: &[Function], statuses: u64) -> PathBuf {
    compile_with(dir, functions, statuses, &[])
}

/// The same, with more words for the compiler.
pub fn compile_with(dir: &Path, functions: &[Function], statuses: u64, more: &[String]) -> PathBuf {
    assert!(functions.len() >= 3);
    let rows: Vec<String> = functions
        .iter()
        .map(|(name, kinds, status)| {
            format!("{{\"{name}\", \"{kinds}\", {}, 0}}", u32::from(*status))
        })
        .collect();
    let source = workspace().join("crates/exports/sdk-so/tests/arguments.c");
    let program = dir.join("arguments");
    let done = Command::new("cc")
        .args(["-O1", "-g", "-Wall", "-Wextra", "-pthread", "-o"])
        .arg(&program)
        .arg(format!("-DFUNCTIONS={}", rows.join(",")))
        .arg(format!("-DSTATUSES={statuses}"))
        .arg(source)
        .args(more)
        .arg("-ldl")
        .status()
        .unwrap();
    assert!(done.success());
    program
}

/// The library of this package, as cargo built it, under the name that it is installed by.
pub fn library(dir: &Path, built: &str, installed: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let there = dir.join(installed);
    std::fs::copy(test.parent().unwrap().join(built), &there).unwrap();
    there
}

/// Calls that were made, and different statuses that were given.
pub fn run(program: &Path, library: &Path, state: &str, seed: u64, calls: u32) -> (u32, u32) {
    let out = Command::new(program)
        .arg(library)
        .args([state, &seed.to_string(), &calls.to_string()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    let errors = String::from_utf8_lossy(&out.stderr);
    let told = errors.get(errors.len().saturating_sub(2000)..);
    assert!(
        out.status.success(),
        "{state} {seed}: {}\n{said}{}",
        out.status,
        told.unwrap_or_default()
    );
    let line = said
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{state} calls ")));
    let (calls, statuses) = line.unwrap().split_once(" statuses ").unwrap();
    (calls.parse().unwrap(), statuses.parse().unwrap())
}

/// Four runs in this state.
pub fn in_state(program: &Path, library: &Path, state: &str, least_statuses: u32) {
    for seed in 0..4 {
        let (calls, statuses) = run(program, library, state, seed, 4000);
        assert!(calls >= 3000, "{state}: {calls} calls");
        assert!(statuses >= least_statuses, "{state}: {statuses} statuses");
    }
}
