//! Memory at an address that we choose; the library believes that it is the device's.

use std::ffi::{c_int, c_void};
use std::io;

/// The size of the address range: a whole pass of a device with eight XCCs takes 300 KB.
const BYTES: usize = 64 << 20;
/// Every allocation starts at a page.
const PAGE: usize = 4096;
/// What the functions return when they fail (`HSA_STATUS_ERROR_OUT_OF_RESOURCES`).
const OUT_OF_RESOURCES: c_int = 0x1008;

/// A range of memory from which allocations are cut one after another.
pub struct Arena {
    base: *mut u8,
    used: usize,
    most: usize,
    /// Address and bytes of each allocation, in order.
    pub allocations: Vec<(u64, usize)>,
}

impl Arena {
    /// Maps an arena at an address.
    ///
    /// # Errors
    /// When something is mapped there already.
    pub fn at(address: u64) -> io::Result<Arena> {
        let wanted = std::ptr::without_provenance_mut(address as usize);
        let flags = libc::MAP_PRIVATE
            | libc::MAP_ANONYMOUS
            | libc::MAP_NORESERVE
            | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: this maps fresh memory. MAP_FIXED_NOREPLACE keeps it from replacing a mapping.
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
            most: BYTES,
            allocations: Vec::new(),
        };
        // A kernel before 4.17 treats the address as a mere hint.
        if got.addr() as u64 == address {
            Ok(arena)
        } else {
            Err(io::ErrorKind::AddrInUse.into())
        }
    }

    /// Sets how many bytes may be allocated.
    pub fn limit(&mut self, bytes: usize) {
        self.most = bytes.min(BYTES);
    }

    /// Allocates memory, which is zero.
    pub fn allocate(&mut self, bytes: usize) -> Option<*mut u8> {
        let end = self
            .used
            .checked_add(bytes)?
            .checked_next_multiple_of(PAGE)?;
        if end > self.most {
            return None;
        }
        // SAFETY: `used` is below the mapping's size.
        let at = unsafe { self.base.add(self.used) };
        self.used = end;
        self.allocations.push((at.addr() as u64, bytes));
        Some(at)
    }

    /// Returns the offset of a range that was allocated from the arena.
    fn offset(&self, address: u64, bytes: usize) -> Option<usize> {
        let offset = usize::try_from(address.checked_sub(self.base.addr() as u64)?).ok()?;
        (offset.checked_add(bytes)? <= self.used).then_some(offset)
    }

    /// Returns the words at an address; None where nothing was allocated.
    pub fn words(&self, address: u64, count: usize) -> Option<Vec<u32>> {
        let offset = self.offset(address, count.checked_mul(4)?)?;
        // SAFETY: the range is inside the mapping (checked), which lives as long as this value. It
        // is initialised, since fresh memory is zeroed.
        let bytes = unsafe { std::slice::from_raw_parts(self.base.add(offset), 4 * count) };
        let words = bytes.chunks_exact(4);
        Some(
            words
                .map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]))
                .collect(),
        )
    }

    /// Fills memory with 64-bit words: `of` returns each word for its index.
    pub fn fill(&mut self, address: u64, bytes: usize, of: impl Fn(u64) -> u64) {
        let Some(offset) = self.offset(address, bytes) else {
            return;
        };
        for word in 0..bytes / 8 {
            // SAFETY: the word is inside the mapping (checked).
            unsafe {
                let to = self.base.add(offset + 8 * word).cast::<u64>();
                to.write_unaligned(of(word as u64));
            }
        }
    }
}

impl Arena {
    /// Copies bytes into memory that was allocated here. Returns whether it was.
    ///
    /// # Safety
    /// `from` points to `bytes` readable bytes.
    pub unsafe fn write(&mut self, to: u64, from: *const c_void, bytes: usize) -> bool {
        let Some(offset) = self.offset(to, bytes) else {
            return false;
        };
        // SAFETY: the destination is inside the mapping (checked); the caller promises the source.
        unsafe { std::ptr::copy(from.cast::<u8>(), self.base.add(offset), bytes) };
        true
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference into it is left.
        unsafe { libc::munmap(self.base.cast(), BYTES) };
    }
}

/// Allocates from an [`Arena`]; the library calls this.
///
/// # Safety
/// `data` is an `Arena` that nothing else uses during the call; `to` is writable.
pub unsafe extern "C" fn allocate(
    to: *mut *mut c_void,
    bytes: usize,
    _: u32,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let arena = unsafe { &mut *data.cast::<Arena>() };
    let got = if bytes == 0 {
        Some(std::ptr::null_mut())
    } else {
        arena.allocate(bytes)
    };
    let Some(got) = got else {
        return OUT_OF_RESOURCES;
    };
    // SAFETY: the caller's promise.
    unsafe { to.write(got.cast()) };
    0
}

/// Does nothing: the arena is freed as a whole.
///
/// # Safety
/// It accesses neither argument.
pub unsafe extern "C" fn free(_: *mut c_void, _: *mut c_void) {}

/// Copies into the arena, and nowhere else.
///
/// # Safety
/// `data` is an `Arena` that nothing else uses during the call; `from` points to `bytes` readable
/// bytes.
pub unsafe extern "C" fn copy(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let arena = unsafe { &mut *data.cast::<Arena>() };
    // SAFETY: the caller's promise.
    match unsafe { arena.write(to.addr() as u64, from, bytes) } {
        true => 0,
        false => OUT_OF_RESOURCES,
    }
}
