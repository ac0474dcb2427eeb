//! AMD's attach helper (`librocprofiler-sdk-attach.so`), both generations. From the start of the
//! process it records queues and code objects for AMD's SDK. It registers its own table,
//! "rocattach", through a midair function.
//!
//! It is loaded only where `ROCP_TOOL_ATTACH` asks for it, because its intercept queues slow down
//! every dispatch, and midair's SDK does not need it. When it is not available, registration and
//! our own listener work without it.

use crate::client::{HSA, ROCATTACH};
use crate::code::Code;
use crate::config;
use crate::library::{self, Library};
use crate::listener;
use crate::log::{Level, say};
use crate::registration::LibraryId;
use crate::store::{self, Entry};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The function that is passed to the helper, with the signature of
/// `rocprofiler_register_library_api_table`.
pub type Register = unsafe extern "C" fn(
    *const c_char,
    *const c_void,
    u32,
    *const *mut c_void,
    u64,
    *mut LibraryId,
) -> u32;
type Initialize = unsafe extern "C" fn(Register) -> c_int;
type SetApiTable =
    unsafe extern "C" fn(*const c_char, u64, u64, *mut *mut c_void, u64, Register) -> c_int;

/// The result of the first search.
#[derive(Debug, Clone, Copy)]
struct Helper {
    /// In newer helpers: starts the helper with any runtime.
    initialize: Option<Initialize>,
    /// In both generations: takes HSA's table.
    set_api_table: Option<SetApiTable>,
}

static FOUND: AtomicPtr<Helper> = AtomicPtr::new(std::ptr::null_mut());

fn find() -> Helper {
    // SAFETY: the pointer is null or a leaked box, which is published below and never changed.
    if let Some(helper) = unsafe { FOUND.load(Ordering::Acquire).as_ref() } {
        return *helper;
    }
    let mut helper = Helper {
        initialize: None,
        set_api_table: None,
    };
    for path in library::candidates(library::HELPER_STEM, library::SDK_STEM) {
        let Some(opened) = Library::open(&path) else {
            continue;
        };
        let own = |name: &CStr| opened.own_symbol(name, std::ptr::null());
        // SAFETY: these names have these types in every helper (`docs/sources.md#register`).
        unsafe {
            helper.initialize = library::function(own(c"rocprofiler_attach_initialize"));
            helper.set_api_table = library::function(own(c"rocprofiler_attach_set_api_table"));
        }
        // AMD's libraries look these names up among all that is visible. A helper that brings an SDK
        // along stays hidden: a visible SDK is one in use (AMD-176).
        let is_helper = helper.set_api_table.is_some() || helper.initialize.is_some();
        if is_helper && own(c"rocprofiler_set_api_table").is_null() {
            opened.promote(&path);
        }
        break;
    }
    // Found or not, the result is final: another search at every registration would delay the
    // program's start.
    FOUND.store(Box::into_raw(Box::new(helper)), Ordering::Release);
    helper
}

/// Shows a registration to the helper, if there is one, and then ensures that there is a listener.
/// Called with the registration lock held, when no SDK is in use.
pub fn see(entry: &Entry) {
    match config::attach() {
        config::Attach::Refused => return,
        config::Attach::Default => return listener::ensure(),
        config::Attach::Requested => {}
    }
    let helper = find();
    if !listener::present()
        && !store::has(ROCATTACH)
        && let Some(initialize) = helper.initialize
    {
        // SAFETY: this is the helper's own function. It is called once per process, with a function
        // of the type that it expects.
        accept(
            unsafe { initialize(register) },
            "rocprofiler_attach_initialize",
        );
    }
    if entry.client() == HSA
        && let Some(set_api_table) = helper.set_api_table
    {
        let (name, version, instance) = (
            entry.name(),
            u64::from(entry.version()),
            u64::from(entry.instance()),
        );
        // SAFETY: the arguments belong to a registration that is kept as long as the process lives.
        let result = unsafe {
            set_api_table(
                name.as_ptr(),
                version,
                instance,
                entry.tables(),
                entry.length() as u64,
                register,
            )
        };
        accept(result, "rocprofiler_attach_set_api_table");
    }
    // A helper that waits for HSA starts its listener thread then. Until that time ours is not
    // started either, or there would be two.
    let helper_comes_later =
        helper.initialize.is_none() && helper.set_api_table.is_some() && !store::has(HSA);
    if !helper_comes_later {
        listener::ensure();
    }
}

fn accept(result: c_int, what: &str) {
    if result == 0 {
        listener::mark_present();
    } else {
        say(
            Level::Warning,
            &format!("{what} returned {result}; the attach continues without AMD's attach helper"),
        );
    }
}

/// The function by which the helper registers its table. It takes no lock, because it is called
/// inside a registration.
unsafe extern "C" fn register(
    name: *const c_char,
    _import: *const c_void,
    version: u32,
    tables: *const *mut c_void,
    length: u64,
    id: *mut LibraryId,
) -> u32 {
    if name.is_null()
        || tables.is_null()
        || id.is_null()
        || length == 0
        || length > store::MAX_TABLES
    {
        return Code::InvalidArgument.raw();
    }
    // SAFETY: the helper passes a NUL-terminated name.
    let Some(client) = crate::client::find(unsafe { CStr::from_ptr(name) }) else {
        return Code::UnsupportedApi.raw();
    };
    // SAFETY: the helper passes `length` addresses that live as long as the process.
    match unsafe { store::keep(client, version, tables, length as usize) } {
        Ok(entry) => {
            // SAFETY: `id` was checked above and belongs to the caller.
            unsafe {
                id.write(LibraryId {
                    handle: entry.handle(),
                })
            };
            Code::Success.raw()
        }
        Err(code) => code.raw(),
    }
}
