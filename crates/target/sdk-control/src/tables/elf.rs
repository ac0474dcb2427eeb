//! Exported symbols of the libraries that this process has loaded, read from memory as the loader
//! reads them.
//!
//! `dlsym` is not enough: it does not see libraries that were loaded RTLD_LOCAL (Python's), and
//! needs a handle, which would keep them loaded.

use std::ffi::{CStr, c_int, c_void};

/// A loaded library, valid inside [`with_modules`].
#[derive(Debug)]
pub struct Module<'a> {
    /// The path that it was loaded from, as the loader knows it.
    pub name: String,
    base: usize,
    dynamic: &'a [Dyn],
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Dyn {
    tag: i64,
    value: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Sym {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const STT_FUNC: u8 = 2;

/// Calls `visit` for each loaded library. The loader's lock is held during the calls, so they must
/// be short and load nothing.
pub fn with_modules(mut visit: impl FnMut(&Module<'_>)) {
    let mut visit: &mut dyn FnMut(&Module<'_>) = &mut visit;
    // SAFETY: the callback gets exactly this pointer back, and only during the call.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut visit).cast()) };
}

unsafe extern "C" fn each(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: `data` is what `with_modules` passed, and `info` is valid during the callback
    // (dl_iterate_phdr(3)).
    let (visit, info) = unsafe { (&mut *data.cast::<&mut dyn FnMut(&Module<'_>)>(), &*info) };
    let base = info.dlpi_addr as usize;
    // SAFETY: the loader provides dlpi_phnum headers at dlpi_phdr.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize) };
    let Some(header) = headers
        .iter()
        .find(|header| header.p_type == libc::PT_DYNAMIC)
    else {
        return 0;
    };
    // SAFETY: the dynamic section of a loaded library is at base + p_vaddr, has p_memsz bytes, and
    // stays mapped while the library is loaded.
    let dynamic = unsafe {
        let at =
            std::ptr::with_exposed_provenance::<Dyn>(base.wrapping_add(header.p_vaddr as usize));
        std::slice::from_raw_parts(at, header.p_memsz as usize / size_of::<Dyn>())
    };
    let name = if info.dlpi_name.is_null() {
        String::new()
    } else {
        // SAFETY: it is a NUL-terminated string of the loader's.
        unsafe { CStr::from_ptr(info.dlpi_name) }
            .to_string_lossy()
            .into_owned()
    };
    visit(&Module {
        name,
        base,
        dynamic,
    });
    0
}

/// Returns how many libraries were loaded plus how many were unloaded since the start of the
/// process.
pub fn epoch() -> u64 {
    unsafe extern "C" fn first(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: `info` is valid during the callback and `data` is the counter below.
        unsafe { *data.cast::<u64>() = (*info).dlpi_adds.wrapping_add((*info).dlpi_subs) };
        1
    }
    let mut count = 0_u64;
    // SAFETY: the callback writes to `count` during the call only.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut count).cast()) };
    count
}

impl Module<'_> {
    /// Returns where it is loaded, as `dladdr` reports it for its functions.
    pub fn base(&self) -> usize {
        self.base
    }

    fn address(&self, tag: i64) -> Option<usize> {
        let value = self
            .dynamic
            .iter()
            .take_while(|entry| entry.tag != 0)
            .find(|entry| entry.tag == tag)?
            .value as usize;
        // glibc relocates these entries in place, except in the vDSO, and other loaders may not.
        // The base tells both forms apart.
        Some(if value < self.base {
            self.base + value
        } else {
            value
        })
    }

    /// Returns the address of an exported function.
    pub fn symbol(&self, name: &str) -> Option<usize> {
        let (symbols, strings, hash) = (
            self.address(DT_SYMTAB)?,
            self.address(DT_STRTAB)?,
            self.address(DT_GNU_HASH)?,
        );
        let wanted = gnu_hash(name.as_bytes());
        // SAFETY: these are the tables of a loaded library, laid out as the gABI and the GNU hash
        // section define. The loader itself relies on them, and the library stays loaded while the
        // loader's lock is held.
        unsafe {
            let word =
                |at: usize| std::ptr::read_unaligned(std::ptr::with_exposed_provenance::<u32>(at));
            let (buckets, first, bloom_words, shift) =
                (word(hash), word(hash + 4), word(hash + 8), word(hash + 12));
            if buckets == 0 || bloom_words == 0 {
                return None;
            }
            let bloom_at = hash + 16;
            let bloom_index = (wanted / 64) as usize % bloom_words as usize;
            let bloom = std::ptr::read_unaligned(std::ptr::with_exposed_provenance::<u64>(
                bloom_at + 8 * bloom_index,
            ));
            let mask = (1_u64 << (wanted % 64)) | (1_u64 << ((wanted >> shift) % 64));
            if bloom & mask != mask {
                return None;
            }
            let buckets_at = bloom_at + 8 * bloom_words as usize;
            let chain_at = buckets_at + 4 * buckets as usize;
            let mut index = word(buckets_at + 4 * (wanted % buckets) as usize);
            if index < first {
                return None;
            }
            loop {
                let link = word(chain_at + 4 * (index - first) as usize);
                if link | 1 == wanted | 1 {
                    let at = symbols + index as usize * size_of::<Sym>();
                    let symbol =
                        std::ptr::read_unaligned(std::ptr::with_exposed_provenance::<Sym>(at));
                    let text = CStr::from_ptr(std::ptr::with_exposed_provenance(
                        strings + symbol.name as usize,
                    ));
                    if text.to_bytes() == name.as_bytes()
                        && symbol.section != 0
                        && symbol.info & 0xf == STT_FUNC
                    {
                        return Some(self.base + symbol.value as usize);
                    }
                }
                if link & 1 != 0 {
                    return None;
                }
                index += 1;
            }
        }
    }
}

fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381_u32, |hash, byte| {
        hash.wrapping_mul(33).wrapping_add(u32::from(*byte))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_function_of_libc_where_dlsym_finds_it() {
        // SAFETY: the name is a constant C string.
        let expected = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"getpid".as_ptr()) }.addr();
        let mut seen = Vec::new();
        with_modules(|module| seen.extend(module.symbol("getpid")));
        assert!(seen.contains(&expected), "{seen:x?} lacks {expected:x}");
        let mut none = 0;
        with_modules(|module| {
            none += usize::from(module.symbol("no_such_function_of_anyone").is_some())
        });
        assert_eq!(none, 0);
        assert!(epoch() > 0);
    }
}
