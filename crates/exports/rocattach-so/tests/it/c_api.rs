//! The built library: the file itself, and its interface used from C.

use crate::{common, elf};
use std::process::Command;

#[test]
fn the_library_is_what_it_must_be() {
    let exported = [
        "attach",
        "detach",
        "rocattach_attach",
        "rocattach_attach_tree",
        "rocattach_detach",
        "rocattach_detach_tree",
        "rocattach_get_status_name",
        "rocattach_get_status_string",
        "rocattach_get_version",
        "rocattach_get_version_triplet",
    ];
    let data = std::fs::read(common::built()).unwrap();
    elf::check(
        &elf::read(&data),
        "librocprofiler-sdk-rocattach.so.1",
        &exported,
    );
}

#[test]
fn the_interface_works_from_c() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("librocprofiler-sdk-rocattach.so.1");
    std::fs::copy(common::built(), &library).unwrap();
    // This is a dummy installation, since nothing here gets far enough to load it.
    std::fs::create_dir(folder.path().join("rocprofiler-sdk")).unwrap();
    for name in [
        "librocprofiler-sdk.so.1",
        "rocprofiler-sdk/librocprofiler-sdk-tool.so.1",
    ] {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    let program = folder.path().join("api");
    crate::common::compile(
        "cc",
        &[
            "-std=c11",
            "-o",
            program.to_str().unwrap(),
            &common::source("api.c"),
            library.to_str().unwrap(),
            "-Wl,-rpath,$ORIGIN",
        ],
    );
    let out = Command::new(&program).env_clear().output().unwrap();
    let (text, errors) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    assert!(out.status.success(), "{}\n{text}\n{errors}", out.status);
    // Every failure without a status of its own prints one line.
    let (_, first_generation) = errors.split_once("-- first generation\n").unwrap();
    assert_eq!(
        first_generation.lines().collect::<Vec<_>>(),
        [
            "rocattach: error: 4294967295 is not a process id",
            "rocattach: error: 0 is not a process id",
            "rocattach: error: nothing to detach from: the attach to process 0 failed (0 is not a process id)",
        ]
    );
    assert!(errors.contains("rocattach: error: no session with process 1\n"));
}
