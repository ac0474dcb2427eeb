//! `attach` and `detach`, which the first generation of attaching also looked up in this library
//! (docs/sources.md#register).
//!
//! Every program that uses a GPU links this library, and functions with such common names often
//! belong to the program. A plug-in that is loaded later and calls its own `attach` through the
//! loader is bound to ours, because ours comes first in the search order. So a call is forwarded to
//! the function that would have been called without us: one of that name in the caller's own
//! module, the next one in the search order, or one anywhere else in the process (its address may
//! have been passed around). Only if there is none does the call go to the attach library next to
//! this one, which the first generation meant.

use crate::library;
use crate::log::{Level, say};
use std::ffi::{CStr, CString, c_int, c_void};

/// Selects one of the two functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// `attach(uint32_t)`.
    Attach,
    /// `detach()`.
    Detach,
}

impl Name {
    fn symbol(self) -> &'static CStr {
        match self {
            Name::Attach => c"attach",
            Name::Detach => c"detach",
        }
    }
}

/// Returns the function that a call of `name` from `caller` (the return address) is forwarded to.
/// `None` when there is none.
///
/// Nothing is cached: modules are loaded and unloaded.
pub fn target(name: Name, caller: *const c_void) -> Option<*const c_void> {
    let ours = library::base_of(target as *const c_void);
    let home = library::base_of(caller);
    let mut elsewhere = None;
    for (module, base) in modules() {
        if base == ours.addr() {
            continue;
        }
        let Some(found) = own_symbol(&module, base, name.symbol()) else {
            continue;
        };
        if base == home.addr() {
            return Some(found);
        }
        elsewhere.get_or_insert(found);
    }
    // SAFETY: the handle is RTLD_NEXT, which means the libraries after this one, and the name is a
    // C string.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.symbol().as_ptr()) };
    if !next.is_null() && library::base_of(next) != ours {
        return Some(next);
    }
    elsewhere.or_else(|| attach_library(name))
}

/// Returns the name of each loaded module, and its load address as `dladdr` returns it.
fn modules() -> Vec<(CString, usize)> {
    unsafe extern "C" fn collect(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        list: *mut c_void,
    ) -> c_int {
        // SAFETY: the struct is the loader's, and the vector is the one that is passed below.
        // Nothing here calls the loader, whose lock is held.
        unsafe {
            let list = &mut *list.cast::<Vec<(CString, usize)>>();
            let headers =
                std::slice::from_raw_parts((*info).dlpi_phdr, usize::from((*info).dlpi_phnum));
            let first = headers.iter().find(|header| header.p_type == libc::PT_LOAD);
            if !(*info).dlpi_name.is_null()
                && let Some(first) = first
            {
                let base = (*info).dlpi_addr as usize + (first.p_vaddr as usize & !0xfff);
                list.push((CStr::from_ptr((*info).dlpi_name).to_owned(), base));
            }
        }
        0
    }
    let mut list: Vec<(CString, usize)> = Vec::new();
    // SAFETY: the callback has the right type, and the vector outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut list).cast()) };
    list
}

/// Returns a function that the module at `base` itself exports.
fn own_symbol(module: &CStr, base: usize, name: &CStr) -> Option<*const c_void> {
    let path = if module.is_empty() {
        // An empty name means the program.
        std::ptr::null()
    } else {
        module.as_ptr()
    };
    // SAFETY: the path is null or a C string. RTLD_NOLOAD loads nothing, and the reference that it
    // takes is released again.
    unsafe {
        let handle = libc::dlopen(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if handle.is_null() {
            return None;
        }
        let found = libc::dlsym(handle, name.as_ptr());
        libc::dlclose(handle);
        (!found.is_null() && library::base_of(found).addr() == base).then_some(found.cast_const())
    }
}

/// Returns the function of the attach library next to this one.
fn attach_library(name: Name) -> Option<*const c_void> {
    for path in library::candidates(library::ROCATTACH_STEM, library::SDK_STEM) {
        if let Some(opened) = library::Library::open(&path) {
            let found = opened.own_symbol(name.symbol(), std::ptr::null());
            if !found.is_null()
                && library::base_of(found) != library::base_of(target as *const c_void)
            {
                return Some(found.cast_const());
            }
        }
    }
    say(
        Level::Warning,
        &format!(
            "{} was called, but there is no attach library next to this one",
            name.symbol().to_string_lossy()
        ),
    );
    None
}
