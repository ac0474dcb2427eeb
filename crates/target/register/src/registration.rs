//! Registration: runtimes register their tables, and SDKs receive the tables that are kept.

use crate::activation;
use crate::client::{self, CLIENTS};
use crate::code::{self, Code};
use crate::config;
use crate::helper;
use crate::info;
use crate::library::{self, Sdk};
use crate::lock::{self, Which};
use crate::log::{Level, say};
use crate::store::{self, Entry};
use std::ffi::{CStr, c_char, c_void};

/// `rocprofiler_register_library_indentifier_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LibraryId {
    /// Eight times the library's index, plus the number of its copy.
    pub handle: u64,
}

/// A runtime hands over its tables (`rocprofiler_register_library_api_table`).
///
/// [`Code::NoTools`] is the normal result where there is no profiler: the tables are kept
/// nevertheless.
///
/// # Safety
/// `name` is null or NUL-terminated; `tables` is null or points to `length` table addresses that
/// stay valid as long as the process; `id` is null or writable.
pub unsafe fn library_api_table(
    name: *const c_char,
    import: *const c_void,
    version: u32,
    tables: *const *mut c_void,
    length: u64,
    id: *mut LibraryId,
) -> Code {
    // SAFETY: the caller's promise is the same.
    let code = unsafe { register(name, import, version, tables, length, id) };
    if code == Code::Success {
        activation::activate(activation::STARTUP);
    }
    code
}

/// # Safety
/// As for [`library_api_table`].
unsafe fn register(
    name: *const c_char,
    import: *const c_void,
    version: u32,
    tables: *const *mut c_void,
    length: u64,
    id: *mut LibraryId,
) -> Code {
    if !(1..=store::MAX_TABLES).contains(&length) {
        return Code::BadApiTableLength;
    }
    if !config::enabled() {
        return Code::NoTools;
    }
    if tables.is_null() || id.is_null() {
        return Code::InvalidArgument;
    }
    let Ok(_held) = lock::take(Which::Registration) else {
        return Code::Deadlock;
    };
    if name.is_null() {
        return Code::UnsupportedApi;
    }
    // SAFETY: the name is not null, and the caller vouches that it is terminated.
    let Some(client) = client::find(unsafe { CStr::from_ptr(name) }) else {
        return Code::UnsupportedApi;
    };
    if config::secure() && !comes_from_its_own_file(client, import) {
        return Code::InvalidApiAddress;
    }
    // SAFETY: the caller vouches for `length` addresses.
    let entry = match unsafe { store::keep(client, version, tables, length as usize) } {
        Ok(entry) => entry,
        Err(code) => return code,
    };
    // SAFETY: `id` was checked above, and the caller vouches that it is writable.
    unsafe {
        id.write(LibraryId {
            handle: entry.handle(),
        })
    };
    say(
        Level::Info,
        &format!(
            "kept {} version {version} instance {}",
            entry.name().to_string_lossy(),
            entry.instance()
        ),
    );

    let Some(sdk) = sdk_for_registration() else {
        helper::see(entry);
        return Code::NoTools;
    };
    // A helper's table that is already kept must reach the SDK first.
    if let Err(code) = hand_over(
        sdk,
        store::entries().filter(|e| e.client() == client::ROCATTACH),
        false,
    ) {
        return code;
    }
    let result = hand_over(sdk, std::iter::once(entry), false);
    if config::attach() != config::Attach::Refused {
        // Whether or not the process is profiled from its start, midair can attach to it.
        crate::listener::ensure();
    }
    result.err().unwrap_or(Code::Success)
}

/// Returns the SDK, if the process is being profiled or asks for that at its start.
fn sdk_for_registration() -> Option<Sdk> {
    if let Some(sdk) = library::known() {
        return Some(sdk);
    }
    if !config::force_load() && !library::tool_is_visible() {
        return None;
    }
    let sdk = library::sdk_at_start();
    if sdk.is_none() {
        // AMD's library ends the process here.
        say(
            Level::Warning,
            "cannot load librocprofiler-sdk for the requested profiling tool; continuing without it",
        );
    }
    sdk
}

fn comes_from_its_own_file(client: usize, import: *const c_void) -> bool {
    let Some(client) = CLIENTS.get(client) else {
        return false;
    };
    !import.is_null()
        && library::file_of(import)
            .and_then(|file| Some(client::file_name_fits(client, file.file_name()?.to_str()?)))
            .unwrap_or(false)
}

/// Hands entries over to the SDK. These are the entries that were not handed over yet, or all of
/// them with `again`.
///
/// # Errors
/// [`Code::RocprofilerError`] at the first entry that the SDK refuses; that one counts as not
/// handed over.
pub(crate) fn hand_over(
    sdk: Sdk,
    entries: impl Iterator<Item = &'static Entry>,
    again: bool,
) -> Result<(), Code> {
    for entry in entries {
        if !entry.claim() && !again {
            continue;
        }
        let (name, version, instance) = (
            entry.name(),
            u64::from(entry.version()),
            u64::from(entry.instance()),
        );
        // SAFETY: this is the SDK's own function. The arguments belong to a registration that is
        // kept as long as the process lives.
        let refused = unsafe {
            (sdk.set_api_table)(
                name.as_ptr(),
                version,
                instance,
                entry.tables(),
                entry.length() as u64,
            )
        };
        if refused != 0 {
            entry.unclaim();
            say(
                Level::Warning,
                &format!(
                    "the SDK refused the table of {} with {refused}",
                    name.to_string_lossy()
                ),
            );
            return Err(Code::RocprofilerError);
        }
    }
    Ok(())
}

/// Hands the kept tables over to the SDK of this process, if there is one: all of them with
/// `again`, otherwise those that it has not received
/// (`rocprofiler_register_invoke_all_registrations`, `..._invoke_nonpropagated_registrations`).
///
/// Without an SDK this succeeds without doing anything, as in AMD's library. Unlike there, the SDK
/// need not export a visible `rocprofiler_configure` as well.
pub fn invoke_registrations(again: bool) -> Code {
    let Ok(_held) = lock::take(Which::HandOver) else {
        return Code::Deadlock;
    };
    let sdk = library::visible_sdk().or_else(sdk_for_registration);
    let Some(sdk) = sdk else { return Code::Success };
    hand_over(sdk, store::entries(), again)
        .err()
        .unwrap_or(Code::Success)
}

/// Calls a callback for each registration (`rocprofiler_register_iterate_registration_info`). Its
/// argument has more fields than AMD's, see [`info`]. It always succeeds, as in AMD's library, also
/// when the callback ends it.
///
/// # Safety
/// The callback may be called with `data`.
pub unsafe fn iterate(callback: Option<info::Callback>, data: *mut c_void) -> Code {
    let Some(callback) = callback else {
        return Code::InvalidArgument;
    };
    for entry in store::entries() {
        let mut extended = info::Extended {
            info: info::Info {
                size: size_of::<info::Extended>(),
                common_name: entry.name().as_ptr(),
                lib_version: entry.version(),
                api_table_length: entry.length() as u64,
            },
            magic: info::MAGIC,
            tables: entry.tables(),
            handle: entry.handle(),
            instance: u64::from(entry.instance()),
        };
        // SAFETY: the caller vouches for the callback; the struct is alive for the call.
        if unsafe { callback((&raw mut extended).cast(), data) } != 0 {
            break;
        }
    }
    Code::Success
}

/// Returns the text for a code (`rocprofiler_register_error_string`).
pub fn error_string(raw: u32) -> *const c_char {
    code::text(raw).as_ptr()
}
