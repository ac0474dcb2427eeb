//! Tools that a process is started with: those in `ROCP_TOOL_LIBRARIES`, and those in its preloaded
//! or linked libraries.
//!
//! Only a process that was *started* under a profiler is searched. A process that an attacher
//! enters may contain a `rocprofiler_configure` that no user asked for (libtorch has one).

use super::client::Source;
use super::library::{bind, entry, is_ours, names, open, open_named};
use super::load;
use super::search::Search;
use crate::notes;
use crate::setting;
use crate::state::STATE;
use midair_abi::private::SdkTable;
use midair_settings::Settings;
use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::atomic::Ordering;

/// A registration library sets this while it attaches: the list then has the attacher's tools.
const TOOL_ATTACHED: &str = "ROCPROFILER_REGISTER_TOOL_ATTACHED";
/// The variable with the list of tools.
const TOOL_LIBRARIES: &str = "ROCP_TOOL_LIBRARIES";

/// Records that an attacher's engine loaded this library. From then on no tools are searched for.
pub fn entered_by_engine() {
    STATE.entered_by_engine.store(true, Ordering::Release);
}

/// Whether the search has ended, in this process or in the process that it was forked from.
pub fn is_done() -> bool {
    STATE.search.load(Ordering::Acquire) == Search::Done
}

/// Returns the list of tools in the environment. A program that runs with more rights than its
/// caller ignores it.
fn tool_list() -> Option<CString> {
    CString::new(midair_secure::variable(TOOL_LIBRARIES)?.into_encoded_bytes()).ok()
}

/// Whether a registration library is attaching now.
fn is_attaching() -> bool {
    std::env::var_os(TOOL_ATTACHED).is_some_and(|value| value == "1")
}

/// Returns the settings in the environment. In a program that runs with more rights than its
/// caller, those that name files or libraries are left out: they may be the caller's or an
/// attacher's, which cannot be distinguished.
pub fn environment() -> Settings {
    // A variable that is not UTF-8 cannot be one that we read.
    let settings = Settings::from_environment(std::env::vars_os()).unwrap_or_default();
    match midair_secure::has_more_rights() {
        true => settings.without_files(),
        false => settings,
    }
}

/// Publishes the settings of the environment, unless a session has brought others.
pub fn settings_from_environment() {
    if !setting::is_published() {
        setting::publish(environment());
    }
}

/// Finds, configures and initialises the tools that this process was started with; once. Returns
/// how many tools there are now.
///
/// * `ROCP_TOOL_LIBRARIES`, a list separated by colons, except in a program that runs with more
///   rights than its caller. While a registration library attaches, these are the attacher's tools:
///   they are named for the attach, and nothing else is searched.
/// * Every loaded library that has a `rocprofiler_configure` of its own, if at least one such
///   function is globally visible.
///
/// A later call, a call from inside a tool's own functions, and a call in a process that an engine
/// entered do nothing and return 0. If a tool cannot be loaded or declines, this is noted in the
/// session's records, and the search continues. midair's tools are bound to `host`.
pub fn find_clients(host: &'static SdkTable) -> usize {
    if STATE.entered_by_engine.load(Ordering::Acquire)
        || STATE
            .search
            .compare_exchange(
                Search::NotYet,
                Search::UnderWay,
                Ordering::AcqRel,
                Ordering::Acquire,
            )
            .is_err()
    {
        return 0;
    }
    settings_from_environment();
    let attaching = is_attaching();
    let mut found = 0;
    let mut listed: Vec<*mut c_void> = Vec::new();
    for name in tool_list().iter().flat_map(|list| names(list)) {
        let library = match open_named(&name) {
            Ok(library) => library,
            Err(why) => {
                notes::post(&format!("cannot load the tool {name}: {why}"));
                continue;
            }
        };
        listed.push(library);
        let result = if attaching {
            // SAFETY: the library was just opened, and is never closed.
            unsafe { load(library, host) }
        } else {
            super::library::hold(library);
            start(library, host)
        };
        match result {
            Ok(()) => found += 1,
            Err(status) => {
                let why = super::why(status);
                notes::post(&format!("cannot configure the tool {name}: {why}"));
            }
        }
    }
    if !attaching && is_visible() {
        for library in loaded_libraries() {
            if !listed.contains(&library) && entry(library).is_some() {
                found += usize::from(start(library, host).is_ok());
            }
        }
    }
    STATE.search.store(Search::Done, Ordering::Release);
    found
}

/// Names the tools of the list while a registration library attaches, unless tools are already
/// named. This is for a registration library that does not know `rocprofiler_load_attachment_tool`,
/// in a process that was started with tools of its own.
pub fn name_listed(host: &'static SdkTable) {
    if is_attaching()
        && !super::has_named()
        && let Some(list) = tool_list()
    {
        // A failure is noted; the attach then finds no tool.
        let _ = super::load_list(&list, host);
    }
}

/// Configures the tool of a loaded library as one that the process was started with.
fn start(library: *mut c_void, host: &'static SdkTable) -> Result<(), crate::status::Status> {
    use crate::status::Status;
    let entry = entry(library).ok_or(Status::INVALID_ARGUMENT)?;
    let function = entry.function();
    let source = Source::Start(function);
    if super::is_known(function) {
        return Ok(());
    }
    bind(library, host)?;
    super::configure_client(source, entry).map_err(super::NotConfigured::told)?;
    if is_ours(library) {
        // The tool starts its contexts when it is attached, even where the start of the process
        // counts as the attach.
        super::name_known(source);
    }
    Ok(())
}

/// Whether a `rocprofiler_configure` is globally visible.
fn is_visible() -> bool {
    // SAFETY: RTLD_DEFAULT is a valid handle, and the name is a C string.
    unsafe { !libc::dlsym(libc::RTLD_DEFAULT, c"rocprofiler_configure".as_ptr()).is_null() }
}

/// Returns handles of all loaded libraries, the program first. They stay open.
fn loaded_libraries() -> Vec<*mut c_void> {
    unsafe extern "C" fn collect(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        names: *mut c_void,
    ) -> c_int {
        // SAFETY: `info` is the loader's struct, and `names` the vector that is passed below.
        // Nothing here calls the loader, whose lock is held.
        unsafe {
            let names = &mut *names.cast::<Vec<CString>>();
            if !(*info).dlpi_name.is_null() {
                names.push(CStr::from_ptr((*info).dlpi_name).to_owned());
            }
        }
        0
    }
    let mut names: Vec<CString> = Vec::new();
    // SAFETY: the callback has the right type, and the vector lives across the call.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut names).cast()) };
    names
        .iter()
        .filter_map(|name| {
            if name.is_empty() {
                // Take the program itself. The kernel's own object has a name that opens nothing.
                // SAFETY: null means the program.
                let program = unsafe { libc::dlopen(std::ptr::null(), libc::RTLD_LAZY) };
                return (!program.is_null()).then_some(program);
            }
            open(name, libc::RTLD_NOLOAD).ok()
        })
        .collect()
}
