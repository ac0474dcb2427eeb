//! C functions that start and end sessions: those that attachers, registration libraries and tools
//! call and that hook something.

use crate::local;
use midair_abi::private::{ChoosesKernel, SDK_TABLE_VERSION, SdkTable};
use midair_abi::registration::Configure;
use midair_capi_build::{c_api, edge};
use midair_sdk_api::c_api_calling;
use midair_sdk_api::capi::{context as api, list};
use midair_sdk_api::counting::devices;
use midair_sdk_api::intercept;
use midair_sdk_api::registration::{self, discover};
use midair_sdk_api::status::Status;
use midair_sdk_api::{context, notes, setting};
use midair_sdk_device::symbols::kernel_filter::{KernelChoice, set_kernel_choice};
use midair_sdk_hot::pause;
use std::ffi::{CStr, c_char, c_int, c_void};

c_api! {
    /// Starts a context. In a process that was started with tools, a session may start with it.
    /// Refused ([`Status::CONFIGURATION_LOCKED`]) while another build of this library records this
    /// process.
    fn rocprofiler_start_context(context_id: u64) {
        context::start(context_id)?;
        local::context_started().inspect_err(|_| {
            let _ = context::stop(context_id);
        })?;
        devices::start(context_id)
    }

    /// Attaches the loaded tools. A registration library calls this. If no session has brought
    /// settings, they are taken from the environment, where the registration library has put the
    /// attacher's.
    ///
    /// The session runs on a midair thread, which ends with it. Refused
    /// ([`Status::CONFIGURATION_LOCKED`]) while another session is on.
    fn rocprofiler_attach() {
        discover::name_listed(table());
        local::attach(discover::environment())
    }

    /// Detaches the attached tools. When it returns, they have all records, and files are written.
    fn rocprofiler_detach() {
        local::detach()
    }

    /// Loads the tools that are named for an attach (a list separated by colons), and configures
    /// and initialises those that are new. The attach library's own name means the default tool.
    /// Refused ([`Status::CONFIGURATION_LOCKED`]) while a session is on.
    fn rocprofiler_load_attachment_tool(path: *const c_char) {
        if path.is_null() {
            return Err(Status::INVALID_ARGUMENT);
        }
        if local::is_kept() {
            return Err(Status::CONFIGURATION_LOCKED);
        }
        // SAFETY: the caller promises a C string.
        registration::load_list(unsafe { CStr::from_ptr(path) }, table())
    }
}

c_api_calling! {
    /// Configures and initialises a tool that is part of the application. What the tool's functions
    /// throw passes through this function; nothing of the tool is left then.
    fn rocprofiler_force_configure(configure_func: Option<Configure>) {
        let configure = configure_func.ok_or(Status::INVALID_ARGUMENT)?;
        // SAFETY: the caller promises a function of this type.
        let forced = unsafe { registration::force(configure) }?;
        local::launch();
        Ok(forced?)
    }
}

/// The names of the libraries whose tables are passed to [`rocprofiler_set_api_table`], and how
/// many tables each has (source: `docs/sources.md#register`).
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
    /// Takes a runtime's tables. A library that we do not trace is accepted and left alone. In a
    /// process that was started under a profiler, the first call also finds, configures and
    /// initialises the process's tools before it returns.
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
        // SAFETY: the caller promises a C string.
        let name = unsafe { CStr::from_ptr(name) };
        let expected = LIBRARIES.iter().find(|(known, _)| *known == name).ok_or(Status::INVALID_ARGUMENT)?.1;
        let count = usize::try_from(num_tables).map_err(|_| Status::INVALID_ARGUMENT)?;
        if count < expected {
            return Err(Status::INVALID_ARGUMENT);
        }
        // SAFETY: the caller promises a list of this length.
        let tables_given = tables;
        // SAFETY: the caller promises a list of this length.
        let tables: Vec<usize> = unsafe { list(tables, count)? }.iter().map(|table| table.addr()).collect();
        if tables.contains(&0) {
            return Err(Status::INVALID_ARGUMENT);
        }
        // As in AMD's library, tools come first, so that they see the first call through the
        // tables.
        local::serve_the_first_table(name == c"hsa", table());
        // SAFETY: as above; a tool may replace functions in the tables.
        let offered: Vec<*mut c_void> = unsafe { list(tables_given, count)? }.to_vec();
        intercept::offer(name, lib_version, lib_instance, &offered);
        local::adopt(name, lib_version, lib_instance, &tables);
        Ok(())
    }
}

/// Returns the table for our own tool.
pub fn table() -> &'static SdkTable {
    static TABLE: SdkTable = SdkTable {
        size: size_of::<SdkTable>(),
        version: SDK_TABLE_VERSION,
        sdk_version: registration::VERSION_NUMBER,
        create_context: api::rocprofiler_create_context,
        start_context: rocprofiler_start_context,
        stop_context: api::rocprofiler_stop_context,
        context_is_active: api::rocprofiler_context_is_active,
        configure_buffer_tracing_service: api::rocprofiler_configure_buffer_tracing_service,
        use_spool,
        get_setting,
        note,
        session_kind,
        give_spool,
        set_pauses,
        count_every,
        choose_kernels,
        set_period,
    };
    &TABLE
}

unsafe extern "C" fn use_spool(context: u64) -> c_int {
    edge(1, || {
        midair_sdk_api::context::use_spool(context).map_or_else(c_int::from, |()| 0)
    })
}

unsafe extern "C" fn get_setting(name: *const c_char) -> *const c_char {
    edge(std::ptr::null(), || {
        if name.is_null() {
            return std::ptr::null();
        }
        // SAFETY: our own tool passes C strings.
        let name = unsafe { CStr::from_ptr(name) };
        setting::get(name)
    })
}

unsafe extern "C" fn set_pauses(bits: u32) {
    edge((), || pause::begin(pause::Mode::of_word(bits)));
}

unsafe extern "C" fn set_period(open: u32) {
    edge((), || pause::set_period(open != 0));
}

unsafe extern "C" fn session_kind() -> c_int {
    edge(0, || local::kind() as c_int)
}

unsafe extern "C" fn give_spool(base: *mut u8, len: usize) -> c_int {
    edge(1, || {
        // SAFETY: our own tool promises what this function of the table requires.
        unsafe { local::give_spool(base, len) }.map_or_else(c_int::from, |()| 0)
    })
}

unsafe extern "C" fn count_every(plan: *const u8, len: usize, interval: u64) -> c_int {
    edge(1, || {
        // SAFETY: our own tool passes a plan of this length.
        let bytes = unsafe { std::slice::from_raw_parts(plan, len) };
        local::count_every(bytes, interval).map_or_else(c_int::from, |()| 0)
    })
}

unsafe extern "C" fn choose_kernels(
    takes: Option<ChoosesKernel>,
    ranges: *const u64,
    words: usize,
) {
    edge((), || {
        let ranges = match words {
            0 => &[],
            // SAFETY: our own tool passes this many words.
            _ => unsafe { std::slice::from_raw_parts(ranges, words) },
        };
        let pairs = ranges.as_chunks::<2>().0.iter();
        let is_all = takes.is_none() && ranges.is_empty();
        set_kernel_choice((!is_all).then(|| KernelChoice {
            takes,
            iterations: pairs.map(|&[first, last]| first..=last).collect(),
        }));
    });
}

unsafe extern "C" fn note(text: *const c_char) {
    edge((), || {
        if !text.is_null() {
            // SAFETY: our own tool passes C strings.
            notes::post(&unsafe { CStr::from_ptr(text) }.to_string_lossy());
        }
    });
}
