//! `LD_PRELOAD=librocprofiler-sdk-tool.so PROGRAM`, without our command line and without an SDK: the tool brings its own.

use midair_abi::private::TOOL_BIND;
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The SDK, from the tool's directory.
const SDK: &str = "../librocprofiler-sdk.so.1";

/// Loads the SDK beside this library where this library is visible to all, which only a preloaded one is at a program's start, and no
/// SDK is. The SDK then finds the tool.
pub fn at_load() {
    let Ok(name) = CString::new(TOOL_BIND) else {
        return;
    };
    let own = crate::capi::midair_tool_bind as *const ();
    // SAFETY: RTLD_DEFAULT and C strings.
    let (visible, sdk) = unsafe {
        (
            libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()),
            libc::dlsym(libc::RTLD_DEFAULT, c"rocprofiler_set_api_table".as_ptr()),
        )
    };
    if visible.addr() != own.addr() || !sdk.is_null() {
        return;
    }
    let Some(path) = own_path(own)
        .and_then(|path| Some(path.parent()?.join(SDK)))
        .and_then(|path| CString::new(path.into_os_string().into_encoded_bytes()).ok())
    else {
        return;
    };
    // SAFETY: a NUL-terminated path of a library of ours. Without it the program runs unprofiled.
    unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
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
