//! The library file, as loaders, linkers and injectors see it.

use crate::common::{self, elf};

const EXPORTED: [&str; 12] = [
    // AMD's 0.6.0 exports these seven.
    "rocprofiler_register_attach",
    "rocprofiler_register_detach",
    "rocprofiler_register_error_string",
    "rocprofiler_register_invoke_all_registrations",
    "rocprofiler_register_invoke_nonpropagated_registrations",
    "rocprofiler_register_iterate_registration_info",
    "rocprofiler_register_library_api_table",
    // The first generation of attaching (`docs/sources.md#register`).
    "rocprofiler_call_client_detach",
    "rocprofiler_call_client_reattach",
    "rocprofiler_register_invoke_reattach",
    "attach",
    "detach",
];

#[test]
fn the_library_is_what_it_must_be() {
    let data = std::fs::read(common::built()).unwrap();
    elf::check(&elf::read(&data), "librocprofiler-register.so.0", &EXPORTED);
}

#[test]
fn every_function_of_the_abi_is_exported() {
    let abi: serde_json::Value =
        serde_json::from_str(include_str!("../../../../api/rocprofiler_register.json")).unwrap();
    for name in abi["functions"].as_object().unwrap().keys() {
        assert!(EXPORTED.contains(&name.as_str()), "{name} is missing");
    }
}
