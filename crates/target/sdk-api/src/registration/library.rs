//! Tools and their libraries: how a name leads to a loaded library, and a loaded library to a tool.

use super::Entry;
use super::client::Source;
use crate::notes;
use crate::status::Status;
use midair_abi::private::{SdkTable, TOOL_BIND, ToolBind};
use std::ffi::{CStr, CString, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The path of the default tool below our directory.
const DEFAULT_TOOL: &str = "rocprofiler-sdk/librocprofiler-sdk-tool.so.1";
/// The names of the attach library in all generations. As the name of a tool they mean the default
/// tool, since callers use them so.
const ATTACH_LIBRARIES: [&str; 3] = [
    "librocprofiler-sdk-rocattach.so",
    "librocprofiler-attach.so",
    "librocprofv3-attach.so",
];

/// Returns a symbol that the library itself defines. `dlsym` would also find one in a library that
/// it depends on.
pub(super) fn own_symbol(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the caller passes an open handle, and the name is a C string.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    if address.is_null() {
        return None;
    }
    let mut map: *mut LinkMap = std::ptr::null_mut();
    // SAFETY: RTLD_DI_LINKMAP stores one pointer, for which there is room.
    if unsafe { libc::dlinfo(library, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) } != 0
        || map.is_null()
    {
        return Some(address);
    }
    // SAFETY: an all-zero Dl_info is valid.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: dladdr takes any address, and `info` is ours.
    let known = unsafe { libc::dladdr(address, &mut info) } != 0 && !info.dli_fname.is_null();
    // SAFETY: `map` belongs to the library, which is loaded; its name is a C string or null.
    let name = unsafe { (*map).name };
    if !known || name.is_null() {
        return Some(address);
    }
    // SAFETY: both are C strings of the loader's.
    let (name, found) = unsafe { (CStr::from_ptr(name), CStr::from_ptr(info.dli_fname)) };
    // The program itself has no name in the link map, but has a path in Dl_info.
    let same = name == found || name.is_empty() && info.dli_fbase == program_base();
    same.then_some(address)
}

/// Returns the base address of the library that contains this address; `None` if no library does.
pub fn base_of(address: usize) -> Option<usize> {
    // SAFETY: an all-zero Dl_info is valid, and dladdr takes any address.
    let (known, info) = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let known = libc::dladdr(std::ptr::without_provenance(address), &mut info) != 0;
        (known, info)
    };
    known.then(|| info.dli_fbase.addr())
}

/// Returns the base address of the program itself.
fn program_base() -> *mut c_void {
    // SAFETY: getauxval reads the process's own auxiliary vector, dladdr takes any address, and an
    // all-zero Dl_info is valid.
    unsafe {
        let entry = libc::getauxval(libc::AT_ENTRY) as usize;
        let mut info: libc::Dl_info = std::mem::zeroed();
        let known = libc::dladdr(std::ptr::without_provenance(entry), &mut info) != 0;
        if known {
            info.dli_fbase
        } else {
            std::ptr::null_mut()
        }
    }
}

/// The public first fields of glibc's `struct link_map`.
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const std::ffi::c_char,
}

/// Binds a midair tool to this SDK; other tools have no such function.
///
/// # Errors
/// [`Status::INCOMPATIBLE_ABI`] when the tool is of another build.
pub(super) fn bind(library: *mut c_void, host: &'static SdkTable) -> Result<(), Status> {
    let name = CString::new(TOOL_BIND).map_err(|_| Status::ERROR)?;
    let Some(bind) = own_symbol(library, &name) else {
        return Ok(());
    };
    // SAFETY: only our own tools export this name, and it has this type.
    let bind = unsafe { std::mem::transmute::<*mut c_void, ToolBind>(bind) };
    // SAFETY: the table lives forever.
    match unsafe { bind(host) } {
        0 => Ok(()),
        _ => Err(Status::INCOMPATIBLE_ABI),
    }
}

/// Whether it is one of our tools.
pub(super) fn is_ours(library: *mut c_void) -> bool {
    CString::new(TOOL_BIND).is_ok_and(|name| own_symbol(library, &name).is_some())
}

/// Returns the functions that configure the library's tool. `None`: the library is not a tool.
pub(super) fn entry(library: *mut c_void) -> Option<Entry> {
    // SAFETY: in the C API the functions of these names have these types.
    unsafe {
        let entry = Entry {
            configure: own_symbol(library, c"rocprofiler_configure")
                .map(|at| std::mem::transmute::<*mut c_void, _>(at)),
            attach: own_symbol(library, c"rocprofiler_configure_attach")
                .map(|at| std::mem::transmute::<*mut c_void, _>(at)),
            experimental: own_symbol(library, c"rocprofiler_configure_experimental")
                .map(|at| std::mem::transmute::<*mut c_void, _>(at)),
        };
        (entry.configure.is_some() || entry.experimental.is_some()).then_some(entry)
    }
}

/// Names the tool of a loaded library for the next attach. Configures and initialises it, unless
/// that was done before.
///
/// # Errors
/// [`Status::INVALID_ARGUMENT`] when the library is not a tool, [`Status::INCOMPATIBLE_ABI`] when
/// it is one of midair's but of another build, [`Status::NOT_AVAILABLE`] when it declines,
/// [`Status::ERROR`] when its `initialize` fails or failed.
///
/// # Safety
/// `library` must be a handle from `dlopen` that is never closed.
pub unsafe fn load(library: *mut c_void, host: &'static SdkTable) -> Result<(), Status> {
    let source = Source::Attachment(library.addr());
    match super::name_known(source) {
        Some(true) => return Ok(()),
        Some(false) => {
            super::out::keep("it has already finished or failed in this process".to_owned());
            return Err(Status::ERROR);
        }
        None => {}
    }
    bind(library, host)?;
    let entry = entry(library).ok_or(Status::INVALID_ARGUMENT)?;
    if super::is_known(entry.function()) {
        super::out::keep("it is already configured in this process".to_owned());
        return Err(Status::CONFIGURATION_LOCKED);
    }
    hold(library);
    super::configure_client(source, entry).map_err(super::NotConfigured::told)
}

/// Prevents a tool that was loaded for us from ending the process ([`midair_tool_call::imports`]).
pub(super) fn hold(library: *mut c_void) {
    if !is_ours(library) {
        // SAFETY: the caller passes a handle from dlopen that is never closed.
        unsafe { midair_tool_call::imports::hold(library) };
    }
}

/// Loads a library with its symbols local to it. A tool need not be linked with this SDK, as with AMD's
/// loader, which makes the SDK's symbols global.
///
/// # Errors
/// The loader's message.
pub fn open(path: &CStr, more: libc::c_int) -> Result<*mut c_void, String> {
    match open_bound(path, more) {
        Err(why) if why.contains("undefined symbol: rocprofiler_") && make_global() => {
            open_bound(path, more)
        }
        other => other,
    }
}

/// Makes this library's symbols visible to libraries that are loaded later. Returns whether that was
/// done.
fn make_global() -> bool {
    // SAFETY: dladdr takes any address, and an all-zero Dl_info is valid. The name is the loader's own
    // string for this library, which is loaded for good; RTLD_NOLOAD changes only its visibility.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let own = make_global as fn() -> bool as *const c_void;
        let flags = libc::RTLD_LAZY | libc::RTLD_GLOBAL | libc::RTLD_NOLOAD;
        libc::dladdr(own, &raw mut info) != 0
            && !info.dli_fname.is_null()
            && !libc::dlopen(info.dli_fname, flags).is_null()
    }
}

/// Loads a library with all its functions bound. One that is missing is an error here; if it were
/// bound at its first call, the loader would end the process there.
fn open_bound(path: &CStr, more: libc::c_int) -> Result<*mut c_void, String> {
    // SAFETY: the path is a C string. Loading a library runs its constructors; the user named it.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | more) };
    if !library.is_null() {
        return Ok(library);
    }
    // SAFETY: the result is null, or a C string that is valid until this thread's next dl call.
    let why = unsafe { libc::dlerror() };
    if why.is_null() {
        return Err("unknown".to_owned());
    }
    // SAFETY: as above; it is not null.
    Err(unsafe { CStr::from_ptr(why) }
        .to_string_lossy()
        .into_owned())
}

/// Returns the directory of this library's file. None where it has no file: an engine may load it
/// from memory.
fn own_folder() -> Option<PathBuf> {
    let here: fn() -> Option<PathBuf> = own_folder;
    // SAFETY: an all-zero Dl_info is valid, and dladdr takes any address.
    let info = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        (libc::dladdr(here as *const c_void, &mut info) != 0 && !info.dli_fname.is_null())
            .then_some(info)?
    };
    // SAFETY: the name is a C string of the loader's.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    let folder = path.parent()?;
    folder
        .is_absolute()
        .then(|| folder.to_path_buf())
        .filter(|folder| !folder.starts_with("/proc"))
}

/// Returns the paths to ask the loader for, one after the other, for a name in a list of tools.
fn candidates(name: &str) -> Vec<PathBuf> {
    let file = Path::new(name)
        .file_name()
        .map(|file| file.to_string_lossy().into_owned())
        .unwrap_or_default();
    let bare = !name.contains('/');
    let default = ATTACH_LIBRARIES.iter().any(|it| file.starts_with(it))
        || bare && file.starts_with("librocprofiler-sdk-tool.so");
    let folder = own_folder();
    let beside = |name: &str| folder.iter().map(|folder| folder.join(name)).collect();
    if default {
        let mut list: Vec<PathBuf> = beside(DEFAULT_TOOL);
        list.push(PathBuf::from("librocprofiler-sdk-tool.so.1"));
        return list;
    }
    let mut list = vec![PathBuf::from(name)];
    if bare {
        // As in AMD's library, the search of this process's loader comes first.
        list.extend(beside(name));
        list.extend(beside(&format!("rocprofiler-sdk/{name}")));
    }
    list
}

/// Loads the library for a name in a list of tools.
///
/// # Errors
/// The loader's message about the name itself.
pub fn open_named(name: &str) -> Result<*mut c_void, String> {
    let mut first = None;
    for path in candidates(name) {
        let Ok(path) = CString::new(path.into_os_string().into_encoded_bytes()) else {
            continue;
        };
        match open(&path, 0) {
            Ok(library) => return Ok(library),
            Err(why) => {
                first.get_or_insert(why);
            }
        }
    }
    Err(first.unwrap_or_else(|| "no such name".to_owned()))
}

/// Returns the names in a list of tools. Every name counts, including the last one, which AMD's
/// library drops.
pub(super) fn names(list: &CStr) -> Vec<String> {
    let list = list.to_string_lossy();
    let names = list.split(':').filter(|name| !name.is_empty());
    let mut seen: Vec<String> = Vec::new();
    for name in names {
        if !seen.iter().any(|it| it == name) {
            seen.push(name.to_owned());
        }
    }
    seen
}

/// Names the tools of a list (separated by colons) for the next attach, and loads and configures
/// those that are new.
///
/// # Errors
/// As [`load`]. [`Status::NOT_AVAILABLE`] also when a tool cannot be loaded; the reason goes
/// into the session's records. [`Status::INVALID_ARGUMENT`] for an empty list. The first failure
/// ends the call.
pub fn load_list(list: &CStr, host: &'static SdkTable) -> Result<(), Status> {
    super::begin_names();
    let names = names(list);
    if names.is_empty() {
        return Err(Status::INVALID_ARGUMENT);
    }
    for name in names {
        let library = open_named(&name).map_err(|why| {
            notes::post(&format!("cannot load the tool {name}: {why}"));
            Status::NOT_AVAILABLE
        })?;
        // SAFETY: the library was just opened, and is never closed.
        unsafe { load(library, host) }?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_a_list_counts_once() {
        assert_eq!(names(c"a.so:b.so"), ["a.so", "b.so"]);
        assert_eq!(names(c":/x/a.so::b.so:/x/a.so:"), ["/x/a.so", "b.so"]);
        assert_eq!(names(c""), [""; 0]);
    }

    #[test]
    fn the_attach_library_means_the_default_tool() {
        for name in [
            "/opt/rocm/lib/librocprofiler-sdk-rocattach.so.1",
            "librocprofv3-attach.so",
            "librocprofiler-sdk-tool.so",
        ] {
            let list = candidates(name);
            assert_eq!(
                list.last().unwrap(),
                Path::new("librocprofiler-sdk-tool.so.1")
            );
            assert!(
                list.iter()
                    .all(|path| path.to_string_lossy().contains("-tool.so"))
            );
        }
        assert_eq!(candidates("/x/libmine.so"), [Path::new("/x/libmine.so")]);
        assert_eq!(candidates("libmine.so")[0], Path::new("libmine.so"));
    }
}
