//! Memory at an address that we choose, which the library takes for the device's.

use std::ffi::{c_int, c_void};
use std::io;

/// So much address space: a whole pass of a device with eight XCCs takes 300 KB.
const BYTES: usize = 64 << 20;
/// What the library gets begins at a page.
const PAGE: usize = 4096;
/// What the functions answer when they cannot do it (`HSA_STATUS_ERROR_OUT_OF_RESOURCES`).
const OUT_OF_RESOURCES: c_int = 0x1008;

/// A range of memory from which allocations are cut one after another.
pub struct Arena {
    base: *mut u8,
    used: usize,
    /// Address and bytes of each allocation, in order.
    pub allocations: Vec<(u64, usize)>,
}

impl Arena {
    /// Maps one at an address.
    ///
    /// # Errors
    /// When something is there.
    pub fn at(address: u64) -> io::Result<Arena> {
        let wanted = std::ptr::without_provenance_mut(address as usize);
        let flags = libc::MAP_PRIVATE
            | libc::MAP_ANONYMOUS
            | libc::MAP_NORESERVE
            | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: maps fresh memory, and nothing where something is.
        let got = unsafe {
            libc::mmap(
                wanted,
                BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                -1,
                0,
            )
        };
        if got == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let arena = Arena {
            base: got.cast(),
            used: 0,
            allocations: Vec::new(),
        };
        // A kernel before 4.17 takes the address for a wish.
        if got.addr() as u64 == address {
            Ok(arena)
        } else {
            Err(io::ErrorKind::AddrInUse.into())
        }
    }

    fn allocate(&mut self, bytes: usize) -> Option<*mut u8> {
        let end = self
            .used
            .checked_add(bytes)?
            .checked_next_multiple_of(PAGE)?;
        if end > BYTES {
            return None;
        }
        // SAFETY: `used` is below the mapping's size.
        let at = unsafe { self.base.add(self.used) };
        self.used = end;
        self.allocations.push((at.addr() as u64, bytes));
        Some(at)
    }

    /// Offset of a range of the arena.
    fn offset(&self, address: u64, bytes: usize) -> Option<usize> {
        let offset = usize::try_from(address.checked_sub(self.base.addr() as u64)?).ok()?;
        (offset.checked_add(bytes)? <= self.used).then_some(offset)
    }

    /// Words at an address; none where nothing was allocated.
    pub fn words(&self, address: u64, count: usize) -> Option<Vec<u32>> {
        let offset = self.offset(address, count.checked_mul(4)?)?;
        // SAFETY: within the mapping (checked), which lives as long as this value, and initialised,
        // as all fresh memory is.
        let bytes = unsafe { std::slice::from_raw_parts(self.base.add(offset), 4 * count) };
        let words = bytes.chunks_exact(4);
        Some(
            words
                .map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]))
                .collect(),
        )
    }

    /// Fills memory with 64-bit words: `of` tells each from its number.
    pub fn fill(&mut self, address: u64, bytes: usize, of: impl Fn(u64) -> u64) {
        let Some(offset) = self.offset(address, bytes) else {
            return;
        };
        for word in 0..bytes / 8 {
            // SAFETY: within the mapping (checked).
            unsafe {
                let to = self.base.add(offset + 8 * word).cast::<u64>();
                to.write_unaligned(of(word as u64));
            }
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing of it is used any more.
        unsafe { libc::munmap(self.base.cast(), BYTES) };
    }
}

/// The library's way to [`Arena`].
///
/// # Safety
/// `data` is an `Arena` that nobody else uses during the call; `to` may be written.
pub unsafe extern "C" fn allocate(
    to: *mut *mut c_void,
    bytes: usize,
    _: u32,
    data: *mut c_void,
) -> c_int {
    // SAFETY: as above.
    let arena = unsafe { &mut *data.cast::<Arena>() };
    let got = if bytes == 0 {
        Some(std::ptr::null_mut())
    } else {
        arena.allocate(bytes)
    };
    let Some(got) = got else {
        return OUT_OF_RESOURCES;
    };
    // SAFETY: as above.
    unsafe { to.write(got.cast()) };
    0
}

/// Nothing: the arena goes as a whole.
///
/// # Safety
/// Uses nothing.
pub unsafe extern "C" fn free(_: *mut c_void, _: *mut c_void) {}

/// Copies into the arena, and nowhere else.
///
/// # Safety
/// `data` is an `Arena` that nobody else uses during the call; `from` has `bytes` bytes.
pub unsafe extern "C" fn copy(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    data: *mut c_void,
) -> c_int {
    // SAFETY: as above.
    let arena = unsafe { &mut *data.cast::<Arena>() };
    let Some(offset) = arena.offset(to.addr() as u64, bytes) else {
        return OUT_OF_RESOURCES;
    };
    // SAFETY: within the mapping (checked); the library's own buffer is another.
    unsafe { std::ptr::copy(from.cast::<u8>(), arena.base.add(offset), bytes) };
    0
}
