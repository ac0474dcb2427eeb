//! Serves `LD_PRELOAD=librocprofiler-sdk-tool.so PROGRAM`, without our command line and without an
//! SDK: the tool loads the SDK itself.

use midair_abi::private::{LAUNCH, Launch, TOOL_BIND};
use std::ffi::{CStr, CString, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The path of the SDK, relative to the tool's directory.
const SDK: &str = "../librocprofiler-sdk.so.1";

/// Loads the SDK next to this library, unless an SDK is loaded already, and lets it initialise the
/// tools. It does so only where all libraries see this library's symbols; at a program's start,
/// this is true only for a preloaded library. An SDK that is not ours is left alone.
pub fn at_load() {
    let own = crate::capi::midair_tool_bind as *const ();
    if visible(TOOL_BIND).addr() != own.addr() {
        return;
    }
    midair_unseen::note_start();
    if visible("rocprofiler_set_api_table").is_null() {
        let path = own_path(own)
            .and_then(|path| Some(path.parent()?.join(SDK)))
            .and_then(|path| CString::new(path.into_os_string().into_encoded_bytes()).ok());
        let Some(path) = path else { return };
        // SAFETY: the path is NUL-terminated and names a midair library. If it cannot be loaded,
        // the program runs unprofiled.
        unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    }
    // This is not called during the dlopen, so that other threads can take the loader's lock.
    let launch = visible(LAUNCH);
    if !launch.is_null() {
        // SAFETY: only our SDK exports this name, and it has this type.
        unsafe { std::mem::transmute::<*mut c_void, Launch>(launch)() };
    }
}

/// Returns the address of a symbol that every library sees.
fn visible(name: &str) -> *mut c_void {
    CString::new(name).map_or(std::ptr::null_mut(), |name| {
        // SAFETY: RTLD_DEFAULT is a valid handle, and the name is a C string.
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
    })
}

/// Returns the file that this library was loaded from, with links resolved.
fn own_path(own: *const ()) -> Option<PathBuf> {
    // SAFETY: dladdr takes any address, and an all-zero Dl_info is valid.
    let info = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        (libc::dladdr(own.cast(), &mut info) != 0 && !info.dli_fname.is_null()).then_some(info)
    }?;
    // SAFETY: the name is a C string of the loader's, for a library that stays loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    Some(std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf()))
}
