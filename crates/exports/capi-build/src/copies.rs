//! Several copies of one library in a process.
//!
//! An attacher sends our libraries as descriptors, which the loader takes for other files than
//! those that a program of the process finds by path. Both copies would then have state of their
//! own, and hook the same tables. So the first copy of a build does all the work, and every later
//! copy of the same build passes its calls on to it. Within one build a function is at the same
//! distance from the start of its library, so nothing has to be looked up.
//!
//! Copies of different builds know nothing of each other (`midair_guest::claim`).
//!
//! Decisions: AMD-075 (`docs/deviations/amd.md`).

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicIsize;
use std::sync::atomic::Ordering::Relaxed;

/// How far the first copy lies from this one, in bytes; 0 where this one is the first.
static DISTANCE: AtomicIsize = AtomicIsize::new(0);

/// Bytes of a build id that are compared; a SHA-1 has 20.
const LONGEST: usize = 32;
/// `NT_GNU_BUILD_ID`.
const BUILD_ID: u32 = 3;

/// The build id of a library.
#[derive(Clone, Copy, PartialEq, Eq)]
struct BuildId {
    bytes: [u8; LONGEST],
    len: usize,
}

/// What the walks over the loaded libraries look for.
struct Walk {
    /// An address in this copy.
    here: usize,
    /// Base and build id of this copy, once it was met.
    own: Option<(usize, BuildId)>,
    /// Base of the first library with that build id.
    first: Option<usize>,
}

/// The function of the first copy that corresponds to `function`, an address in this one. `None`:
/// this copy is the first.
#[inline]
pub fn elsewhere(function: usize) -> Option<usize> {
    match DISTANCE.load(Relaxed) {
        0 => None,
        distance => Some(function.wrapping_add_signed(distance)),
    }
}

/// Finds the first copy of this build. To be called when the library is loaded, before any of its
/// functions. Returns whether there is an earlier copy.
pub fn find_first() -> bool {
    let mut walk = Walk {
        here: find_first as *const () as usize,
        own: None,
        first: None,
    };
    // Twice: the copy that is looked for comes before this one.
    for each in [own, first] {
        // SAFETY: the callback has the loader's type and takes the walk, which outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut walk).cast()) };
    }
    let (Some((own, _)), Some(first)) = (walk.own, walk.first) else {
        return false;
    };
    let distance = first.wrapping_sub(own).cast_signed();
    DISTANCE.store(distance, Relaxed);
    distance != 0
}

/// The program headers of a loaded library.
///
/// # Safety
/// `info` must be the loader's, during its callback.
unsafe fn headers<'a>(info: *const libc::dl_phdr_info) -> (usize, &'a [libc::Elf64_Phdr]) {
    // SAFETY: the caller's promise.
    unsafe {
        let info = &*info;
        let headers = match info.dlpi_phdr.is_null() {
            true => &[],
            false => std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)),
        };
        (info.dlpi_addr as usize, headers)
    }
}

unsafe extern "C" fn own(info: *mut libc::dl_phdr_info, _: usize, walk: *mut c_void) -> c_int {
    // SAFETY: the loader's struct, and the walk of `find_first`.
    let (walk, (base, headers)) = unsafe { (&mut *walk.cast::<Walk>(), headers(info)) };
    let holds = headers.iter().any(|part| {
        let start = base.wrapping_add(part.p_vaddr as usize);
        part.p_type == libc::PT_LOAD
            && walk.here.wrapping_sub(start) < usize::try_from(part.p_memsz).unwrap_or(0)
    });
    if !holds {
        return 0;
    }
    // SAFETY: the headers of a library that is loaded.
    walk.own = unsafe { build_id(base, headers) }.map(|id| (base, id));
    1
}

unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, walk: *mut c_void) -> c_int {
    // SAFETY: as above.
    let (walk, (base, headers)) = unsafe { (&mut *walk.cast::<Walk>(), headers(info)) };
    let Some((_, id)) = walk.own else { return 1 };
    // SAFETY: as above.
    if unsafe { build_id(base, headers) } != Some(id) {
        return 0;
    }
    walk.first = Some(base);
    1
}

/// The build id in the notes of a library.
///
/// # Safety
/// The library must be loaded at `base` with these headers, so that its segments are mapped.
unsafe fn build_id(base: usize, headers: &[libc::Elf64_Phdr]) -> Option<BuildId> {
    let notes = headers.iter().filter(|part| part.p_type == libc::PT_NOTE);
    for part in notes {
        let start = base.wrapping_add(part.p_vaddr as usize);
        // A note that is in no loaded segment is not in memory.
        let end = part.p_vaddr.checked_add(part.p_memsz)?;
        let mapped = headers.iter().any(|load| {
            load.p_type == libc::PT_LOAD
                && load.p_vaddr <= part.p_vaddr
                && end <= load.p_vaddr.saturating_add(load.p_memsz)
        });
        if !mapped {
            continue;
        }
        // SAFETY: within a loaded segment, which no code writes to.
        let bytes = unsafe {
            std::slice::from_raw_parts(
                std::ptr::with_exposed_provenance::<u8>(start),
                usize::try_from(part.p_memsz).ok()?,
            )
        };
        if let Some(id) = in_notes(bytes) {
            return Some(id);
        }
    }
    None
}

/// The build id in one segment of notes.
fn in_notes(mut bytes: &[u8]) -> Option<BuildId> {
    let word = |bytes: &[u8], at: usize| -> Option<u32> {
        Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
    };
    while bytes.len() >= 12 {
        let (name, description) = (word(bytes, 0)? as usize, word(bytes, 4)? as usize);
        let kind = word(bytes, 8)?;
        let at = 12_usize.checked_add(name.checked_next_multiple_of(4)?)?;
        let found = bytes.get(at..at.checked_add(description)?)?;
        if kind == BUILD_ID && bytes.get(12..16) == Some(b"GNU\0") && !found.is_empty() {
            let mut id = BuildId {
                bytes: [0; LONGEST],
                len: found.len(),
            };
            for (to, from) in id.bytes.iter_mut().zip(found) {
                *to = *from;
            }
            return Some(id);
        }
        bytes = bytes.get(at.checked_add(description.checked_next_multiple_of(4)?)?..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(kind: u32, name: &[u8], description: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [name.len() as u32, description.len() as u32, kind] {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        for part in [name, description] {
            bytes.extend_from_slice(part);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    #[test]
    fn a_build_id_is_found_behind_other_notes() {
        let mut notes = note(5, b"GNU\0", &[1; 16]);
        assert!(in_notes(&notes).is_none());
        notes.extend(note(3, b"GNU\0", &[7; 20]));
        let id = in_notes(&notes).unwrap();
        assert_eq!((id.len, &id.bytes[..20]), (20, &[7; 20][..]));
        // Not GNU's, cut off, of impossible sizes.
        assert!(in_notes(&note(3, b"XYZ\0", &[7; 20])).is_none());
        assert!(in_notes(&notes[..notes.len() - 4]).is_none());
        assert!(in_notes(&[0xff; 64]).is_none());
    }

    #[test]
    fn a_single_copy_is_the_first() {
        assert!(!find_first());
        assert_eq!(elsewhere(0x1000), None);
    }
}
