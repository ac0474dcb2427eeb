//! The file itself, as loaders and SDKs see it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test says what went wrong by panicking"
)]

#[path = "../../register-so/tests/it/common/elf.rs"]
mod elf;

#[test]
fn the_library_is_what_it_must_be() {
    let exported = [
        "midair_tool_bind",
        "rocprofiler_configure",
        "rocprofiler_configure_attach",
    ];
    let library = std::env::current_exe()
        .unwrap()
        .parent()
        .unwrap()
        .join("librocprofiler_sdk_tool.so");
    let data = std::fs::read(library).unwrap();
    elf::check(&elf::read(&data), "librocprofiler-sdk-tool.so.1", &exported);
}
