//! `LD_PRELOAD=librocprofiler-sdk-tool.so PROGRAM`, without our command line and without an SDK: the tool
//! loads the SDK itself.

use midair_abi::private::{LAUNCH, Launch, TOOL_BIND};
use std::ffi::{CStr, CString, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The SDK, relative to the tool's directory.
const SDK: &str = "../librocprofiler-sdk.so.1";

/// Where this library's symbols are visible to all, which at a program's start only a preloaded library's
/// are: loads the SDK next to it, unless an SDK is loaded, and lets it serve the tools. An SDK that is not
/// ours is left alone.
pub fn at_load() {
    let own = crate::capi::midair_tool_bind as *const ();
    if visible(TOOL_BIND).addr() != own.addr() {
        return;
    }
    if visible("rocprofiler_set_api_table").is_null() {
        let path = own_path(own)
            .and_then(|path| Some(path.parent()?.join(SDK)))
            .and_then(|path| CString::new(path.into_os_string().into_encoded_bytes()).ok());
        let Some(path) = path else { return };
        // SAFETY: a NUL-terminated path of a library of ours. Without it the program runs unprofiled.
        unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    }
    // Not inside the dlopen, so that the loader's lock is free for other threads.
    let launch = visible(LAUNCH);
    if !launch.is_null() {
        // SAFETY: only our SDK exports this name, with this type.
        unsafe { std::mem::transmute::<*mut c_void, Launch>(launch)() };
    }
}

/// Address of a symbol that every library sees.
fn visible(name: &str) -> *mut c_void {
    CString::new(name).map_or(std::ptr::null_mut(), |name| {
        // SAFETY: RTLD_DEFAULT and a C string.
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
    })
}

/// The file that this library was loaded from, links followed.
fn own_path(own: *const ()) -> Option<PathBuf> {
    // SAFETY: dladdr takes any address; an all-zero Dl_info is one.
    let info = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        (libc::dladdr(own.cast(), &mut info) != 0 && !info.dli_fname.is_null()).then_some(info)
    }?;
    // SAFETY: a C string of the loader's, for a library that stays loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    Some(std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf()))
}
