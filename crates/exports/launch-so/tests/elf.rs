//! The library file itself, as the loader sees it.

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
        .join("libmidair_launch.so");
    let data = std::fs::read(library).unwrap();
    let exported = ["_exit", "_Exit", "execve", "execv", "execvp", "execvpe"];
    elf::check(&elf::read(&data), "libmidair-launch.so.1", &exported);
}
