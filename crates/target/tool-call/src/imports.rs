//! The functions of the C library that could end the target when a tool's library calls them:
//! `exit` and similar functions, and `free`.
//!
//! Only the imports of one library are changed, one that was loaded as a tool. The program and its
//! own libraries still call what they always called. Outside a tool's function, the replacements do
//! what the original functions do.
//!
//! * `exit`, `_exit`, `_Exit`, `quick_exit`, `abort` and a failed `assert`, inside a tool's
//!   function: they end the tool's function ([`crate::call`]), and the tool is no longer used.
//! * `free` and C++'s `delete`, inside a tool's function, of memory that was only lent to the
//!   function or that belongs to our library: they do nothing.

use crate::guard;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Ends the innermost call of the calling thread, or the process where there is none.
pub(crate) fn leave(name: &'static str, status: c_int) -> ! {
    guard::leave(name, status);
    // SAFETY: this is the call that the tool made.
    unsafe {
        match name {
            "_exit" | "_Exit" => libc::_exit(status),
            "quick_exit" => quick_exit(status),
            "abort" | "assert" => libc::abort(),
            _ => libc::exit(status),
        }
    }
}

unsafe extern "C" {
    /// From C11.
    fn quick_exit(status: c_int) -> !;
    fn __assert_fail(
        text: *const c_char,
        file: *const c_char,
        line: u32,
        function: *const c_char,
    ) -> !;
}

unsafe extern "C" fn exit_(status: c_int) -> ! {
    leave("exit", status)
}
unsafe extern "C" fn exit_now(status: c_int) -> ! {
    leave("_exit", status)
}
unsafe extern "C" fn exit_quickly(status: c_int) -> ! {
    leave("quick_exit", status)
}
unsafe extern "C" fn abort_() -> ! {
    leave("abort", 0)
}
unsafe extern "C" fn assert_(
    text: *const c_char,
    file: *const c_char,
    line: u32,
    function: *const c_char,
) -> ! {
    guard::leave("assert", 0);
    // SAFETY: this is the call that the tool made.
    unsafe { __assert_fail(text, file, line, function) }
}

/// The original functions that free, in the order of [`FREES`].
static REAL: [AtomicPtr<c_void>; 5] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 5];
const FREES: [&CStr; 5] = [c"free", c"_ZdlPv", c"_ZdaPv", c"_ZdlPvm", c"_ZdaPvm"];

fn is_not_theirs(address: *const c_void) -> bool {
    !address.is_null()
        && guard::is_inside()
        && (guard::is_lent(address.addr()) || image::contains(address.addr()))
}

/// Frees as function `WHICH` of [`FREES`] does. The size is passed on; functions that take no size
/// ignore the register.
unsafe extern "C" fn free_<const WHICH: usize>(address: *mut c_void, size: usize) {
    if is_not_theirs(address) {
        return;
    }
    if let Some(real) = REAL.get(WHICH).map(|real| real.load(Acquire))
        && !real.is_null()
    {
        // SAFETY: this is the function that the tool's import was bound to.
        unsafe {
            let real =
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void, usize)>(real);
            real(address, size);
        }
    }
}

/// Returns what replaces an import of this name; `None` if nothing does.
fn replacement(name: &CStr, library: *mut c_void) -> Option<usize> {
    let ends: &[(&CStr, usize)] = &[
        (c"exit", exit_ as *const () as usize),
        (c"_exit", exit_now as *const () as usize),
        (c"_Exit", exit_now as *const () as usize),
        (c"quick_exit", exit_quickly as *const () as usize),
        (c"abort", abort_ as *const () as usize),
        (c"__assert_fail", assert_ as *const () as usize),
    ];
    if let Some((_, function)) = ends.iter().find(|(known, _)| *known == name) {
        return Some(*function);
    }
    let which = FREES.iter().position(|known| *known == name)?;
    // SAFETY: the handle is open, and the name is a C string.
    let real = unsafe { libc::dlsym(library, name.as_ptr()) };
    if real.is_null() {
        return None;
    }
    let known = REAL.get(which)?;
    let before = known.load(Relaxed);
    // If an earlier tool used another allocator, this tool's import is not changed.
    if !before.is_null() && before != real {
        return None;
    }
    known.store(real, Release);
    Some(match which {
        0 => free_::<0> as *const () as usize,
        1 => free_::<1> as *const () as usize,
        2 => free_::<2> as *const () as usize,
        3 => free_::<3> as *const () as usize,
        _ => free_::<4> as *const () as usize,
    })
}

/// Changes the imports of a tool's library. An import that cannot be changed stays as it is.
///
/// # Safety
/// `library` must be a handle from `dlopen` that is never closed.
pub unsafe fn hold(library: *mut c_void) {
    let mut map: *const elf::LinkMap = std::ptr::null();
    // SAFETY: RTLD_DI_LINKMAP stores one pointer, for which there is room.
    let known = unsafe { libc::dlinfo(library, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) } == 0;
    // SAFETY: the map belongs to the loader, and lives as long as the library.
    if known && let Some(map) = unsafe { map.as_ref() } {
        image::find();
        // SAFETY: the map belongs to a loaded library.
        unsafe { elf::each_import(map, |name| replacement(name, library)) };
    }
}

/// The address range of our own library: a tool must not free pointers into our data.
mod image {
    use std::ffi::{c_int, c_void};
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    static BEGIN: AtomicUsize = AtomicUsize::new(0);
    static END: AtomicUsize = AtomicUsize::new(0);

    pub(super) fn contains(address: usize) -> bool {
        (BEGIN.load(Relaxed)..END.load(Relaxed)).contains(&address)
    }

    pub(super) fn find() {
        unsafe extern "C" fn each(
            info: *mut libc::dl_phdr_info,
            _size: usize,
            _data: *mut c_void,
        ) -> c_int {
            // SAFETY: the loader passes a valid struct with its program headers.
            let (base, segments) = unsafe {
                let info = &*info;
                if info.dlpi_phdr.is_null() {
                    return 0;
                }
                let count = usize::from(info.dlpi_phnum);
                (
                    info.dlpi_addr as usize,
                    std::slice::from_raw_parts(info.dlpi_phdr, count),
                )
            };
            let loaded = || segments.iter().filter(|it| it.p_type == libc::PT_LOAD);
            let begin = loaded().map(|it| base.wrapping_add(it.p_vaddr as usize));
            let end = loaded().map(|it| base.wrapping_add((it.p_vaddr + it.p_memsz) as usize));
            let (Some(begin), Some(end)) = (begin.min(), end.max()) else {
                return 0;
            };
            if !(begin..end).contains(&(find as *const () as usize)) {
                return 0;
            }
            BEGIN.store(begin, Relaxed);
            END.store(end, Relaxed);
            1
        }
        if END.load(Relaxed) == 0 {
            // SAFETY: the callback has the right type and keeps no pointer.
            unsafe { libc::dl_iterate_phdr(Some(each), std::ptr::null_mut()) };
        }
    }
}

/// A loaded library's imports.
mod elf {
    use std::ffi::{CStr, c_char, c_void};

    /// The public first fields of the loader's `struct link_map`.
    #[repr(C)]
    pub(super) struct LinkMap {
        base: usize,
        name: *const c_char,
        dynamic: *const [usize; 2],
    }

    /// `Elf64_Rela`.
    #[repr(C)]
    struct Relocation {
        offset: usize,
        info: u64,
        addend: i64,
    }

    /// `Elf64_Sym`, of which only the name is needed.
    #[repr(C)]
    struct Symbol {
        name: u32,
        _info: [u8; 4],
        _value: [u64; 2],
    }

    const STRINGS: usize = 5;
    const SYMBOLS: usize = 6;
    const RELA: usize = 7;
    const RELA_BYTES: usize = 8;
    const PLT_BYTES: usize = 2;
    const PLT: usize = 23;

    /// `R_*_GLOB_DAT` and `R_*_JUMP_SLOT`.
    #[cfg(target_arch = "x86_64")]
    const SLOTS: [u64; 2] = [6, 7];
    #[cfg(target_arch = "aarch64")]
    const SLOTS: [u64; 2] = [1025, 1026];

    /// Replaces each import for which `replace` returns a value.
    ///
    /// # Safety
    /// The map must belong to a library that stays loaded.
    pub(super) unsafe fn each_import(map: &LinkMap, replace: impl Fn(&CStr) -> Option<usize>) {
        let entry = |tag: usize| {
            let mut at = map.dynamic;
            // SAFETY: this is the library's dynamic section, which ends with a tag of 0.
            unsafe {
                while !at.is_null() && (*at)[0] != 0 {
                    if (*at)[0] == tag {
                        return Some((*at)[1]);
                    }
                    at = at.add(1);
                }
            }
            None
        };
        // Most loaders have already added the base.
        let address = |tag| {
            entry(tag).map(|value| {
                if value < map.base {
                    value + map.base
                } else {
                    value
                }
            })
        };
        let (Some(strings), Some(symbols)) = (address(STRINGS), address(SYMBOLS)) else {
            return;
        };
        let tables = [
            (address(RELA), entry(RELA_BYTES)),
            (address(PLT), entry(PLT_BYTES)),
        ];
        for (table, bytes) in tables {
            let (Some(table), Some(bytes)) = (table, bytes) else {
                continue;
            };
            let table = std::ptr::with_exposed_provenance::<Relocation>(table);
            for index in 0..bytes / size_of::<Relocation>() {
                // SAFETY: the index is inside the table. A relocation's symbol is in the symbol
                // table, and its name is in the string table.
                unsafe {
                    let relocation = &*table.add(index);
                    if !SLOTS.contains(&(relocation.info & 0xffff_ffff)) {
                        continue;
                    }
                    let symbol = std::ptr::with_exposed_provenance::<Symbol>(symbols)
                        .add((relocation.info >> 32) as usize);
                    let name = std::ptr::with_exposed_provenance::<c_char>(strings)
                        .add((*symbol).name as usize);
                    if let Some(function) = replace(CStr::from_ptr(name)) {
                        store(map.base + relocation.offset, function);
                    }
                }
            }
        }
    }

    /// Stores a word in a page that may have become read-only after relocation.
    unsafe fn store(slot: usize, value: usize) {
        // SAFETY: sysconf takes only a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(4096) as usize;
        let start = slot & !(page - 1);
        let read_only = is_read_only(slot);
        // SAFETY: the page belongs to a library that was loaded for us. Nothing else writes to it
        // at this time, since its tool is not configured yet. Its protection is restored
        // afterwards.
        unsafe {
            let start = std::ptr::with_exposed_provenance_mut::<c_void>(start);
            if read_only && libc::mprotect(start, page, libc::PROT_READ | libc::PROT_WRITE) != 0 {
                return;
            }
            std::ptr::with_exposed_provenance_mut::<usize>(slot).write_volatile(value);
            if read_only {
                libc::mprotect(start, page, libc::PROT_READ);
            }
        }
    }

    /// Whether a slot is in memory that the loader makes read-only.
    fn is_read_only(slot: usize) -> bool {
        struct Lookup {
            slot: usize,
            read_only: bool,
        }
        unsafe extern "C" fn each(
            info: *mut libc::dl_phdr_info,
            _size: usize,
            data: *mut c_void,
        ) -> std::ffi::c_int {
            // SAFETY: the loader passes a valid struct with its program headers, and `data` is the
            // value below.
            unsafe {
                let (info, lookup) = (&*info, &mut *data.cast::<Lookup>());
                if info.dlpi_phdr.is_null() {
                    return 0;
                }
                let count = usize::from(info.dlpi_phnum);
                for it in std::slice::from_raw_parts(info.dlpi_phdr, count) {
                    let begin = (info.dlpi_addr as usize).wrapping_add(it.p_vaddr as usize);
                    let inside = lookup.slot.wrapping_sub(begin) < it.p_memsz as usize;
                    if it.p_type == libc::PT_GNU_RELRO && inside {
                        lookup.read_only = true;
                        return 1;
                    }
                }
            }
            0
        }
        let mut lookup = Lookup {
            slot,
            read_only: false,
        };
        // SAFETY: the callback gets this pointer back, and only during the call.
        unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut lookup).cast()) };
        lookup.read_only
    }
}
