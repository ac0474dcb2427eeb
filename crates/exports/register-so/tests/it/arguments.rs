//! Every exported function with any arguments, on one thread and on five.

#[allow(dead_code, reason = "what another library needs")]
#[path = "../../../sdk-so/tests/common/arguments.rs"]
mod common;

use common::{api, compile, function, functions, in_state, library, values};

#[test]
fn any_arguments_get_a_documented_code() {
    const CODE: &str = "rocprofiler_register_error_code_t";
    let table = api("rocprofiler_register.json");
    let mut all = functions(&table, "rocprofiler_register_", CODE);
    for (name, kinds, has_code) in [
        ("rocprofiler_register_attach", "ps", true),
        ("rocprofiler_register_detach", "", true),
        ("rocprofiler_register_invoke_all_registrations", "", true),
        (
            "rocprofiler_register_invoke_nonpropagated_registrations",
            "",
            true,
        ),
        ("rocprofiler_register_invoke_reattach", "", true),
        ("rocprofiler_call_client_reattach", "", false),
        ("rocprofiler_call_client_detach", "", false),
        ("attach", "P", false),
        ("detach", "", false),
    ] {
        all.push(function(name, kinds, has_code));
    }
    let dir = tempfile::tempdir().unwrap();
    let program = compile(
        dir.path(),
        &all,
        values(&table, CODE, "ROCP_REG_ERROR_CODE_END"),
    );
    let installed = library(
        dir.path(),
        "librocprofiler_register.so",
        "librocprofiler-register.so.0",
    );
    for state in ["before", "threads"] {
        in_state(&program, &installed, state, 3);
    }
}
