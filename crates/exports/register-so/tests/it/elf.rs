//! The library file, as loaders, linkers and injectors see it.

use crate::common::{self, elf};

const EXPORTED: [&str; 13] = [
    // AMD's 0.6.0 exports these seven.
    "rocprofiler_register_attach",
    "rocprofiler_register_detach",
    "rocprofiler_register_error_string",
    "rocprofiler_register_invoke_all_registrations",
    "rocprofiler_register_invoke_nonpropagated_registrations",
    "rocprofiler_register_iterate_registration_info",
    "rocprofiler_register_library_api_table",
    // Newer runtimes are linked against it.
    "rocprofiler_register_runtime_tool_activation_callback",
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
    let found = elf::read(&data);
    elf::check(&found, "librocprofiler-register.so.0", &EXPORTED);
    let per_thread: Vec<&str> = found.per_thread.iter().map(String::as_str).collect();
    assert_eq!(
        per_thread,
        [
            "rocp_reg_active_corr_id",
            "rocp_reg_auto_depth_",
            "rocp_reg_auto_stack_"
        ]
    );
}

#[test]
fn every_function_of_the_abi_is_exported() {
    let abi: serde_json::Value =
        serde_json::from_str(include_str!("../../../../../api/rocprofiler_register.json")).unwrap();
    for name in abi["functions"].as_object().unwrap().keys() {
        assert!(EXPORTED.contains(&name.as_str()), "{name} is missing");
    }
}
