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
        .join("libmidair_kokkos.so");
    let data = std::fs::read(library).unwrap();
    let exported = [
        "kokkosp_begin_deep_copy",
        "kokkosp_begin_fence",
        "kokkosp_begin_parallel_for",
        "kokkosp_begin_parallel_reduce",
        "kokkosp_begin_parallel_scan",
        "kokkosp_create_profile_section",
        "kokkosp_destroy_profile_section",
        "kokkosp_end_deep_copy",
        "kokkosp_end_fence",
        "kokkosp_end_parallel_for",
        "kokkosp_end_parallel_reduce",
        "kokkosp_end_parallel_scan",
        "kokkosp_finalize_library",
        "kokkosp_init_library",
        "kokkosp_pop_profile_region",
        "kokkosp_profile_event",
        "kokkosp_push_profile_region",
        "kokkosp_request_tool_settings",
        "kokkosp_start_profile_section",
        "kokkosp_stop_profile_section",
    ];
    elf::check(&elf::read(&data), "libmidair-kokkos.so.1", &exported);
}
