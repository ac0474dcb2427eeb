//! A program that runs with more rights than its caller loads no tools that its caller names.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test says what went wrong by panicking"
)]

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/auxv.h>
int main(int argc, char **argv) {
  void *sdk = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
  if (!sdk) return puts(dlerror()), 1;
  int (*set)(const char *, uint64_t, uint64_t, void **, uint64_t) = dlsym(sdk, "rocprofiler_set_api_table");
  uint64_t table[2] = {16, 0};
  void *tables[1] = {table};
  printf("secure %lu\n", getauxval(AT_SECURE));
  printf("set %d\n", set("rccl", 1, 0, tables, 1));
  return 0;
}
"#;

const TOOL: &str = r#"
#include <stdint.h>
#include <stdio.h>
void *rocprofiler_configure(uint32_t version, const char *text, uint32_t priority, void *id) {
  (void)text, (void)priority, (void)id;
  printf("configured by %u\n", version);
  return NULL;
}
"#;

fn compile(dir: &Path, name: &str, text: &str, more: &[&str]) {
    let source = dir.join(format!("{name}.c"));
    std::fs::write(&source, text).unwrap();
    let done = Command::new("cc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(dir.join(name))
        .arg(source)
        .args(more)
        .status()
        .unwrap();
    assert!(done.success());
}

#[test]
fn more_rights_than_the_caller_mean_no_tools_of_the_caller() {
    let dir = tempfile::tempdir().unwrap();
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    mode(dir.path(), 0o755);
    compile(dir.path(), "program", PROGRAM, &["-ldl"]);
    compile(dir.path(), "tool.so", TOOL, &["-shared", "-fPIC"]);
    let built = std::env::current_exe().unwrap();
    let sdk = dir.path().join("librocprofiler-sdk.so.1");
    std::fs::copy(built.parent().unwrap().join("librocprofiler_sdk.so"), &sdk).unwrap();
    mode(&sdk, 0o755);
    let program = dir.path().join("program");
    let run = |other: bool| {
        let mut command = Command::new(&program);
        command
            .arg(&sdk)
            .env_clear()
            .env("ROCP_TOOL_LIBRARIES", dir.path().join("tool.so"));
        if other {
            command.uid(65534).gid(65534);
        }
        let out = command.output().unwrap();
        assert!(out.status.success(), "{out:?}");
        String::from_utf8(out.stdout).unwrap()
    };
    assert_eq!(run(false), "secure 0\nconfigured by 10201\nset 0\n");
    // Set-user-id, and another user runs it: only root can make that so.
    if !midair_tests::is_root_for("to make a set-user-id program").unwrap() {
        return;
    }
    mode(&program, 0o4755);
    assert_eq!(run(true), "secure 1\nset 0\n");
}
