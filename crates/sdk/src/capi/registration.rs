//! Tools, attach and detach, and what registration libraries call.

use super::{list, put};
use crate::registration::discover;
use crate::status::Status;
use crate::{collect, collector, local, registration};
use midair_abi::registration::Configure;
use midair_capi_build::{c_api, edge};
use midair_settings::Settings;
use std::ffi::{CStr, c_char, c_int, c_void};

c_api! {
    /// Stores 0 before the first tool is initialised, -1 while one is, then 1.
    fn rocprofiler_is_initialized(status: *mut c_int) {
        // SAFETY: the caller's pointer.
        unsafe { put(status, registration::is_initialized()) }
    }

    /// Stores 1 after the end, else 0.
    fn rocprofiler_is_finalized(status: *mut c_int) {
        // SAFETY: the caller's pointer.
        unsafe { put(status, registration::is_finalized()) }
    }

    /// Configures and initialises a tool that is part of the application.
    fn rocprofiler_force_configure(configure_func: Option<Configure>) {
        let configure = configure_func.ok_or(Status::INVALID_ARGUMENT)?;
        // SAFETY: the caller's function.
        let forced = unsafe { registration::force(configure) };
        local::launch();
        forced
    }

    /// Attaches the tools that are loaded. Called by a registration library; settings that no session brought are taken from the
    /// environment, where it has put the attacher's.
    ///
    /// The session runs on a thread of ours, which ends with it. Refused ([`Status::CONFIGURATION_LOCKED`]) while another session is on.
    fn rocprofiler_attach() {
        discover::name_listed();
        // A variable that is not UTF-8 cannot be one that we read.
        local::attach(Settings::from_environment(std::env::vars_os()).unwrap_or_default())
    }

    /// Detaches the tools that are attached: when it returns, they have everything and files are written.
    fn rocprofiler_detach() {
        local::detach()
    }

    /// Loads the tools that are named for an attach, a list with colons, and configures and initialises those that are new. The
    /// attach library's own name means the default tool. Refused ([`Status::CONFIGURATION_LOCKED`]) while a session is on.
    fn rocprofiler_load_attachment_tool(path: *const c_char) {
        if path.is_null() {
            return Err(Status::INVALID_ARGUMENT);
        }
        if local::is_on() || collect::is_served() {
            return Err(Status::CONFIGURATION_LOCKED);
        }
        // SAFETY: the caller's C string.
        registration::load_list(unsafe { CStr::from_ptr(path) })
    }
}

/// 1 inside the configuration of a tool that was named for an attach, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_is_current_client_attachment() -> c_int {
    edge(0, || {
        c_int::from(registration::is_current_client_attachment())
    })
}

/// Names of the libraries whose tables come through [`rocprofiler_set_api_table`], and how many tables each has
/// (source: `docs/sources.md#register`).
const LIBRARIES: &[(&CStr, usize)] = &[
    (c"hsa", 1),
    (c"hip", 1),
    (c"hip_compiler", 1),
    (c"roctx", 3),
    (c"rccl", 1),
    (c"rocdecode", 1),
    (c"rocjpeg", 1),
    (c"rocattach", 1),
    (c"hipFile", 1),
    (c"rocshmem", 1),
];

c_api! {
    /// Takes a runtime's tables. A library that we do not trace is accepted and left alone. The first call is also how a process that
    /// was started under a profiler says so: its tools are found, configured and initialised before the call returns.
    fn rocprofiler_set_api_table(
        name: *const c_char,
        lib_version: u64,
        lib_instance: u64,
        tables: *mut *mut c_void,
        num_tables: u64,
    ) {
        if name.is_null() || tables.is_null() {
            return Err(Status::INVALID_ARGUMENT);
        }
        // SAFETY: the caller's C string.
        let name = unsafe { CStr::from_ptr(name) };
        let expected = LIBRARIES.iter().find(|(known, _)| *known == name).ok_or(Status::INVALID_ARGUMENT)?.1;
        let count = usize::try_from(num_tables).map_err(|_| Status::INVALID_ARGUMENT)?;
        if count < expected {
            return Err(Status::INVALID_ARGUMENT);
        }
        // SAFETY: the caller's list.
        let tables: Vec<usize> = unsafe { list(tables, count)? }.iter().map(|table| table.addr()).collect();
        if tables.contains(&0) {
            return Err(Status::INVALID_ARGUMENT);
        }
        // As AMD's: tools first, so that the first call through the tables is theirs to see.
        local::serve_the_first_table(name == c"hsa");
        collector::adopt(name, lib_version, lib_instance, &tables);
        Ok(())
    }
}
