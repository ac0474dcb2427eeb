//! Whether a library that the table has is still the one that is loaded at its place. The application
//! may unload it and load another one at any time.
//!
//! `_dl_find_object` says so to unwinders in any thread at any time: it takes no lock and allocates
//! nothing (source: the glibc manual, "Dynamic Linker Introspection"). Before 2.35 there is none; then
//! the worker thread alone notices that libraries come and go.

use std::ffi::c_void;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// The function's address; 0 where there is none.
static FUNCTION: AtomicUsize = AtomicUsize::new(0);

/// What the function says: flags, the mapping's start and end, the loader's object, the unwind tables.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Object {
    flags: u64,
    start: usize,
    end: usize,
    link_map: usize,
    tables: usize,
    reserved: [u64; 7],
}

/// Finds the function. Called on the worker thread.
pub(crate) fn find() {
    FUNCTION.store(crate::common::symbol(c"_dl_find_object"), Relaxed);
}

/// Returns the loaded object around an address. None where the loader knows none, or there is no such
/// function.
#[inline]
pub(crate) fn at(address: u64) -> Option<Object> {
    let function = FUNCTION.load(Relaxed);
    if function == 0 {
        return None;
    }
    let mut object = Object::default();
    // SAFETY: the address is this function's, which has this type and lays out its result like this
    // (source: glibc's dlfcn.h for x86-64, elf/dl_find_object.h). It only looks the address up.
    let error = unsafe {
        let find = std::mem::transmute::<
            *const c_void,
            unsafe extern "C" fn(*const c_void, *mut Object) -> i32,
        >(std::ptr::with_exposed_provenance(function));
        find(
            std::ptr::without_provenance(address as usize),
            &raw mut object,
        )
    };
    (error == 0).then_some(Object {
        // Their meaning may come with a later version.
        flags: 0,
        reserved: [0; 7],
        ..object
    })
}

/// Whether the loader can be asked.
pub(crate) fn can_ask() -> bool {
    FUNCTION.load(Relaxed) != 0
}

/// Whether these words are in memory.
///
/// # Safety
/// They must be aligned, and in a library that is loaded and stays until this returns.
#[inline]
pub(crate) unsafe fn has(marks: &[(u64, u64)]) -> bool {
    marks.iter().all(|(at, word)| {
        let at = std::ptr::with_exposed_provenance::<u64>(*at as usize);
        // SAFETY: the caller's promise.
        unsafe { at.read_volatile() == *word }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_another_than_the_program() {
        find();
        let own = at(find as *const () as u64).expect("glibc 2.35");
        let other = at(crate::common::symbol(c"malloc") as u64).expect("glibc 2.35");
        assert_ne!(own, other);
        assert!(other.start < other.end && other.tables != 0);
        assert_eq!(at(0), None);
    }
}
