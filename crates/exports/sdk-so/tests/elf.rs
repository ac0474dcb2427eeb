//! The file itself: what loaders, linkers and injectors see of it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test says what went wrong by panicking"
)]

#[path = "../../register-so/tests/it/common/elf.rs"]
mod elf;

use midair_abi::functions::SDK_FUNCTIONS;
use midair_sdk_api::capi::{BEYOND_HEADERS, not_implemented};

#[test]
fn the_library_is_what_it_must_be() {
    // Of the headers' functions, one is inline there and one is exported by tools.
    let not_ours = [
        "rocprofiler_record_header_compute_hash",
        "rocprofiler_configure",
    ];
    let mut exported: Vec<&str> = SDK_FUNCTIONS
        .iter()
        .map(|f| f.name)
        .filter(|name| !not_ours.contains(name))
        .collect();
    assert!(
        exported.len() > 50
            && not_implemented::BUILT
                .iter()
                .all(|name| exported.contains(name))
    );
    exported.extend(BEYOND_HEADERS);
    exported.extend(not_implemented::HARDWARE);
    exported.extend([
        midair_record::boot::ENTRY,
        midair_abi::private::LAUNCH,
        midair_abi::private::LEAVE,
    ]);
    let library = std::env::current_exe()
        .unwrap()
        .parent()
        .unwrap()
        .join("librocprofiler_sdk.so");
    let data = std::fs::read(library).unwrap();
    elf::check(&elf::read(&data), "librocprofiler-sdk.so.1", &exported);
}
