//! Finds and loads the SDK and the attach helper in this process.

use crate::config;
use crate::log::{Level, say};
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, Ordering};

/// `rocprofiler_set_api_table`: name, version, instance, tables, number of tables. 0: accepted.
pub type SetApiTable =
    unsafe extern "C" fn(*const c_char, u64, u64, *mut *mut c_void, u64) -> c_int;
/// `rocprofiler_attach`, `rocprofiler_detach`. 0: success.
pub type Operation = unsafe extern "C" fn() -> c_int;
/// `rocprofiler_load_attachment_tool`: path of the tool. 0: loaded.
pub type LoadTool = unsafe extern "C" fn(*const c_char) -> c_int;

/// The SDK's entry points, all from one library.
#[derive(Debug, Clone, Copy)]
pub struct Sdk {
    /// Takes a runtime's tables.
    pub set_api_table: SetApiTable,
    /// Starts the attached tools.
    pub attach: Option<Operation>,
    /// Stops the attached tools.
    pub detach: Option<Operation>,
    /// Loads a tool for an attach; only newer SDKs have it.
    pub load_tool: Option<LoadTool>,
    /// Whether it is midair's SDK, which needs no attach helper and accepts another tool at any
    /// time.
    pub ours: bool,
}

/// A function that only midair's SDK exports (`midair_record::boot::ENTRY`).
const OUR_SYMBOL: &CStr = c"midair_agent_enter";

static KNOWN: AtomicPtr<Sdk> = AtomicPtr::new(std::ptr::null_mut());

/// Returns the SDK that this process uses, once that is decided.
pub fn known() -> Option<Sdk> {
    let at = KNOWN.load(Ordering::Acquire);
    // SAFETY: the pointer is null, or a leaked box that `settle` published and that is never
    // changed or freed.
    unsafe { at.as_ref() }.copied()
}

fn settle(sdk: Sdk) -> Sdk {
    let fresh = Box::into_raw(Box::new(sdk));
    match KNOWN.compare_exchange(
        std::ptr::null_mut(),
        fresh,
        Ordering::AcqRel,
        Ordering::Acquire,
    ) {
        Ok(_) => sdk,
        Err(winner) => {
            // SAFETY: `fresh` was made above and never published.
            drop(unsafe { Box::from_raw(fresh) });
            // SAFETY: `winner` is a leaked box published by another thread.
            unsafe { *winner }
        }
    }
}

/// A loaded library. It is never unloaded, since others may hold its functions.
#[derive(Debug, Clone, Copy)]
pub struct Library(*mut c_void);

impl Library {
    /// Loads `path`, or takes a reference if it is loaded, with local visibility.
    pub fn open(path: &CStr) -> Option<Library> {
        // SAFETY: the path is NUL-terminated. The library's constructors run, as with every library
        // that is loaded.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: dlerror returns null, or a text that is valid until this thread's next dl
            // call.
            let why = unsafe {
                let text = libc::dlerror();
                if text.is_null() {
                    String::new()
                } else {
                    CStr::from_ptr(text).to_string_lossy().into_owned()
                }
            };
            say(Level::Trace, &format!("not loaded: {why}"));
            return None;
        }
        Some(Library(handle))
    }

    /// Makes the library's symbols visible to libraries that are loaded later, as AMD's tools
    /// expect.
    pub fn promote(self, path: &CStr) {
        // SAFETY: the library is loaded under this path, and RTLD_NOLOAD changes only its
        // visibility.
        unsafe {
            libc::dlopen(
                path.as_ptr(),
                libc::RTLD_LAZY | libc::RTLD_GLOBAL | libc::RTLD_NOLOAD,
            )
        };
    }

    /// Returns the address of a symbol that the library itself defines (not one of its
    /// dependencies).
    pub fn own_symbol(self, name: &CStr, anchor: *const c_void) -> *mut c_void {
        let found = symbol(self.0, name);
        if !found.is_null() && (anchor.is_null() || base_of(anchor) == base_of(found)) {
            found
        } else {
            std::ptr::null_mut()
        }
    }
}

fn symbol(handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: the handle is RTLD_DEFAULT or one that dlopen returned, and the name is
    // NUL-terminated.
    unsafe { libc::dlsym(handle, name.as_ptr()) }
}

fn module_of(address: *const c_void) -> Option<libc::Dl_info> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr accepts any address and fills the struct when it returns non-zero. All zeroes
    // is a value of the struct, too.
    unsafe { (libc::dladdr(address, info.as_mut_ptr()) != 0).then(|| info.assume_init()) }
}

/// Returns the load address of the module that contains `address`, or null.
pub fn base_of(address: *const c_void) -> *mut c_void {
    module_of(address).map_or(std::ptr::null_mut(), |i| i.dli_fbase)
}

/// Returns the file that is mapped at `address`, with links resolved, as the kernel would name it.
pub fn file_of(address: *const c_void) -> Option<PathBuf> {
    let info = module_of(address)?;
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr's name belongs to the loaded object, which stays loaded while the name is
    // copied.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    Some(std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf()))
}

/// Returns the directory that contains this library.
pub fn own_directory() -> Option<PathBuf> {
    let here: fn() -> Option<PathBuf> = own_directory;
    Some(file_of(here as *const c_void)?.parent()?.to_path_buf())
}

/// Whether a symbol in the process's global scope asks to be configured. By this AMD's register
/// library decides whether the process is profiled from its start.
pub fn tool_is_visible() -> bool {
    !symbol(libc::RTLD_DEFAULT, c"rocprofiler_configure").is_null()
}

/// Converts a path for `dlopen`.
fn c_path(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}

/// Returns where a library with this stem may be. That is next to us, under any of the names that it
/// is installed under. Only when nothing of the same release (`companion`) is next to us, it is
/// wherever the loader finds it.
pub fn candidates(stem: &str, companion: &str) -> Vec<CString> {
    candidates_for(own_directory().as_deref(), stem, companion)
}

/// Does the same for a library in this directory.
fn candidates_for(directory: Option<&Path>, stem: &str, companion: &str) -> Vec<CString> {
    let names = |stem: &str| [".so.1", ".so", ".so.0"].map(|suffix| format!("{stem}{suffix}"));
    let beside = |stem: &str| -> Vec<PathBuf> {
        directory
            .iter()
            .flat_map(|f| names(stem).map(|n| f.join(n)))
            .filter(|p| p.is_file())
            .collect()
    };
    let here: Vec<CString> = beside(stem).iter().filter_map(|p| c_path(p)).collect();
    if !here.is_empty() || !beside(companion).is_empty() {
        return here;
    }
    names(stem)
        .into_iter()
        .filter_map(|n| CString::new(n).ok())
        .collect()
}

/// Stem of the SDK's file name.
pub const SDK_STEM: &str = "librocprofiler-sdk";
/// Stem of the attach library's file name. This is the library of the attaching side, not the
/// helper.
pub const ROCATTACH_STEM: &str = "librocprofiler-sdk-rocattach";
/// Stem of the attach helper's file name.
pub const HELPER_STEM: &str = "librocprofiler-sdk-attach";

/// Converts a symbol's address to a function of type `F`; `None` for null.
///
/// # Safety
/// `F` is a function pointer type that fits the function at `address`.
pub unsafe fn function<F: Copy>(address: *mut c_void) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the sizes agree, the address is not null, and the caller vouches for the type.
    (!address.is_null()).then(|| unsafe { std::mem::transmute_copy::<*mut c_void, F>(&address) })
}

fn sdk_around(set_api_table: *mut c_void, handle: *mut c_void) -> Option<Sdk> {
    // All must come from the same library, since there may be two SDKs in one process.
    let companion = |name: &CStr| Library(handle).own_symbol(name, set_api_table);
    // SAFETY: these names have these types in every SDK that exports them (`docs/sources.md#register`).
    unsafe {
        Some(Sdk {
            set_api_table: function(set_api_table)?,
            attach: function(companion(c"rocprofiler_attach")),
            detach: function(companion(c"rocprofiler_detach")),
            load_tool: function(companion(c"rocprofiler_load_attachment_tool")),
            ours: !companion(OUR_SYMBOL).is_null(),
        })
    }
}

/// Returns the SDK that is already visible in the global scope, without loading anything.
pub fn visible_sdk() -> Option<Sdk> {
    if let Some(sdk) = known() {
        return Some(sdk);
    }
    let found = symbol(libc::RTLD_DEFAULT, c"rocprofiler_set_api_table");
    sdk_around(found, libc::RTLD_DEFAULT).map(settle)
}

/// Returns the SDK: the one in use, a visible one, or one that is loaded now. If
/// `ROCPROFILER_REGISTER_LIBRARY` is set, it names the only candidate for loading.
pub fn sdk() -> Option<Sdk> {
    sdk_of(Vec::new())
}

/// As [`sdk`], for a program that is profiled from its start: as in AMD's library, the directories
/// of `LD_LIBRARY_PATH` precede the one that contains this library. An attach needs the SDK of its
/// own release instead.
pub fn sdk_at_start() -> Option<Sdk> {
    sdk_of(in_library_path(config::library_path().as_deref(), SDK_STEM))
}

/// Returns the files with this stem in the directories of a search path.
fn in_library_path(path: Option<&CStr>, stem: &str) -> Vec<CString> {
    let bytes = path.map_or(&[][..], CStr::to_bytes);
    let directories = bytes
        .split(|b| matches!(b, b':' | b';'))
        .filter(|directory| !directory.is_empty());
    directories
        .flat_map(|directory| {
            let directory = Path::new(OsStr::from_bytes(directory));
            [".so.1", ".so", ".so.0"].map(|suffix| directory.join(format!("{stem}{suffix}")))
        })
        .filter(|file| file.is_file())
        .filter_map(|file| c_path(&file))
        .collect()
}

fn sdk_of(first: Vec<CString>) -> Option<Sdk> {
    if let Some(sdk) = visible_sdk() {
        return Some(sdk);
    }
    let paths = match config::sdk_path() {
        Some(named) => {
            // AMD's register library also tries it as a name relative to its own directory.
            let beside =
                own_directory().and_then(|f| c_path(&f.join(OsStr::from_bytes(named.to_bytes()))));
            std::iter::once(named).chain(beside).collect()
        }
        None => {
            let mut all = first;
            all.extend(candidates(SDK_STEM, SDK_STEM));
            all
        }
    };
    for path in &paths {
        let Some(library) = Library::open(path) else {
            continue;
        };
        let set_api_table = library.own_symbol(c"rocprofiler_set_api_table", std::ptr::null());
        if let Some(sdk) = sdk_around(set_api_table, library.0) {
            say(Level::Info, &format!("SDK: {}", path.to_string_lossy()));
            library.promote(path);
            return Some(settle(sdk));
        }
        say(
            Level::Warning,
            &format!(
                "{} has no rocprofiler_set_api_table",
                path.to_string_lossy()
            ),
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_searches_only_where_nothing_of_the_release_is_beside_us() {
        let searched = [".so.1", ".so", ".so.0"].map(|suffix| format!("{HELPER_STEM}{suffix}"));
        let searched = || searched.iter().map(String::as_str).collect::<Vec<_>>();
        for (there, wanted) in [
            (&[][..], searched()),
            (&["librocprofiler-sdk.so"], vec![]),
            (
                &["librocprofiler-sdk-attach.so.0", "librocprofiler-sdk.so.1"],
                vec!["librocprofiler-sdk-attach.so.0"],
            ),
            (
                &[
                    "librocprofiler-sdk-attach.so",
                    "librocprofiler-sdk-attach.so.1",
                ],
                vec![
                    "librocprofiler-sdk-attach.so.1",
                    "librocprofiler-sdk-attach.so",
                ],
            ),
            (&["librocprofiler-sdk-rocattach.so.1"], searched()),
        ] {
            let directory = tempfile::tempdir().unwrap();
            for file in there {
                std::fs::write(directory.path().join(file), "").unwrap();
            }
            let got = candidates_for(Some(directory.path()), HELPER_STEM, SDK_STEM);
            let got: Vec<&Path> = got
                .iter()
                .map(|path| Path::new(OsStr::from_bytes(path.as_bytes())))
                .map(|path| path.strip_prefix(directory.path()).unwrap_or(path))
                .collect();
            let wanted: Vec<&Path> = wanted.into_iter().map(Path::new).collect();
            assert_eq!(got, wanted, "{there:?}");
        }
        assert_eq!(candidates_for(None, HELPER_STEM, SDK_STEM).len(), 3);
    }
}
