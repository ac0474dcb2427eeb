//! The library file, as loaders, linkers and register libraries see it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test says what went wrong by panicking"
)]

#[path = "../../register-so/tests/it/common/elf.rs"]
mod elf;

#[test]
fn the_library_is_what_it_must_be() {
    let library = std::env::current_exe()
        .unwrap()
        .parent()
        .unwrap()
        .join("librocprofiler_sdk_attach.so");
    let data = std::fs::read(library).unwrap();
    elf::check(
        &elf::read(&data),
        "librocprofiler-sdk-attach.so.1",
        &[
            "rocprofiler_attach_get_version",
            "rocprofiler_attach_initialize",
            "rocprofiler_attach_set_api_table",
        ],
    );
}
