//! The target's side: claims chunks and stores records. No allocation, no lock, no system call.

use super::{CHUNK, CHUNK_BODY, ChunkHead, HEAD, Head, MAGIC, MESSAGE, bytes, chunk};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// How many chunks a claim tries before it gives up. A chunk is still in use only if the reader is
/// far behind, or if its thread writes little. So a few tries are enough to skip the chunks of such
/// threads.
const CLAIM_TRIES: u32 = 16;

/// A spool mapped in this process. It is a copy of the address, not an owner: the code that mapped
/// the spool unmaps it when no thread writes to it any more.
///
/// The attaching side can rewrite the head at any moment. So [`Area::new`] copied the words of the
/// layout once, and checked them.
#[derive(Debug, Clone, Copy)]
pub struct Area {
    base: *mut u8,
    /// Offset of the first chunk, a multiple of 64.
    chunks_at: u32,
    /// At least 1. All chunks lie inside the mapping.
    chunk_count: u32,
    /// Offset of the settings, a multiple of 8.
    settings_at: u32,
    /// Bytes of settings. Rounded up to a multiple of 8, they lie inside the mapping.
    settings_len: u32,
}

// SAFETY: all shared state behind `base` is accessed through atomics.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    /// Checks a mapped spool of `len` bytes; `None` when its head does not describe a spool of that
    /// size.
    ///
    /// # Safety
    /// `base` must be the page-aligned start of a readable and writable mapping of `len` bytes that
    /// stays mapped while any copy of the result, or a [`ChunkWriter`] made from it, is used. In
    /// this process nothing else accesses it, except a [`Reader`](super::Reader).
    pub unsafe fn new(base: *mut u8, len: usize) -> Option<Area> {
        if len < HEAD {
            return None;
        }
        // SAFETY: the caller's promise: larger than Head, which is made of atomics.
        let head = unsafe { &*base.cast::<Head>() };
        // Each word is read only once, since it might have another value at a second read.
        let offset = |word: u64| u32::try_from(word).ok();
        let area = Area {
            base,
            chunks_at: offset(head.chunks_at.load(Acquire))?,
            chunk_count: offset(head.chunk_count.load(Acquire))?,
            settings_at: offset(head.settings_at.load(Acquire))?,
            settings_len: offset(head.settings_len.load(Acquire))?,
        };
        let ours = head.magic.load(Acquire) == MAGIC
            && head.version.load(Acquire) == crate::VERSION
            && usize::try_from(head.total_size.load(Acquire)) == Ok(len);
        let chunks = (area.chunk_count as usize).checked_mul(CHUNK)?;
        let end = (area.chunks_at as usize).checked_add(chunks)?;
        let settings = (area.settings_len as usize).checked_next_multiple_of(8)?;
        let settings_end = (area.settings_at as usize).checked_add(settings)?;
        let good = ours
            && area.chunk_count > 0
            && area.chunks_at as usize >= HEAD
            && area.chunks_at.is_multiple_of(64)
            && end <= len
            && area.settings_at as usize >= HEAD
            && area.settings_at.is_multiple_of(8)
            && settings_end <= area.chunks_at as usize;
        good.then_some(area)
    }

    /// Returns page 0. The attaching side may have changed everything in it.
    pub fn head(&self) -> &Head {
        // SAFETY: `new` promised a live mapping of at least HEAD bytes; Head is made of atomics.
        unsafe { &*self.base.cast::<Head>() }
    }

    /// Returns a copy of the current settings, which the attaching side wrote before it passed the
    /// spool on. It allocates.
    pub fn settings(&self) -> Vec<u8> {
        let len = self.settings_len as usize;
        let mut copy = vec![0; len.next_multiple_of(8)];
        // SAFETY: `new` checked that the range lies inside the mapping, in front of the chunks, and
        // is aligned to 8; nothing in this process writes there.
        unsafe { bytes::load_words(self.base.add(self.settings_at as usize), &mut copy) };
        copy.truncate(len);
        copy
    }

    /// Writes a message about a failure for the attaching side. Only the worker thread calls this.
    pub fn set_message(&self, text: &str) {
        let head = self.head();
        bytes::store_text(&head.message, text.as_bytes());
        let len = text.len().min(MESSAGE);
        head.message_len.store(len as u32, Release);
    }

    /// Counts a record of `kind` as dropped.
    pub fn drop_record(&self, kind: u8) {
        if let Some(count) = self.head().dropped.get(super::drop_slot(kind)) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Whether enough chunks are free now for `bytes` of records. Other threads may claim them
    /// first.
    pub fn has_capacity(&self, bytes: usize) -> bool {
        // In a very small spool, half of the chunks are enough: the writer that asks may hold a
        // chunk itself.
        let half = u64::from(self.chunk_count / 2);
        let wanted = (bytes.div_ceil(CHUNK_BODY) as u64).min(half);
        let next = self.head().claim.load(Relaxed);
        (0..wanted).all(|ahead| {
            // SAFETY: a chunk of this area, mapped as `new` promised; it is made of atomics.
            let chunk_head = unsafe { &*self.chunk(next.wrapping_add(ahead)) };
            chunk_head.state.load(Acquire) == chunk::FREE
        })
    }

    /// Returns the chunk that belongs to a claim; it is inside the mapping and aligned to 64.
    #[inline]
    fn chunk(&self, claim: u64) -> *mut ChunkHead {
        // The remainder fits into usize, since it is below the count. The count is not zero: see
        // `new`.
        let index = (claim % u64::from(self.chunk_count.max(1))) as usize;
        let offset = self.chunks_at as usize + index * CHUNK;
        // This is an addition inside the mapping: `new` has checked the end of the last chunk.
        self.base.wrapping_add(offset).cast()
    }

    fn claim(&self, tid: u32) -> Option<*mut ChunkHead> {
        let claims = &self.head().claim;
        for _ in 0..CLAIM_TRIES.min(self.chunk_count) {
            let claim = claims.fetch_add(1, Relaxed);
            let candidate = self.chunk(claim);
            // SAFETY: as in `has_capacity`.
            let chunk_head = unsafe { &*candidate };
            if chunk_head
                .state
                .compare_exchange(chunk::FREE, chunk::OPEN, AcqRel, Relaxed)
                .is_ok()
            {
                chunk_head.tid.store(tid, Relaxed);
                chunk_head.claimed.store(claim, Relaxed);
                return Some(candidate);
            }
        }
        None
    }
}

/// One thread's chunk of the spool, and how much of it is used. It lives in that thread's slot.
/// Another thread may [`ChunkWriter::seal`] it only when the owner has ended or is outside our
/// code.
#[derive(Debug)]
pub struct ChunkWriter {
    current: *mut ChunkHead,
    used: u32,
}

// SAFETY: a writer belongs to its holder, and nothing in it is tied to a thread.
unsafe impl Send for ChunkWriter {}

impl ChunkWriter {
    /// Creates a writer with no chunk.
    pub const fn new() -> Self {
        ChunkWriter {
            current: std::ptr::null_mut(),
            used: 0,
        }
    }

    /// Stores one record made of `parts` in order; their sizes must add up to the record's size, a
    /// multiple of 8. When no chunk is free, or the size is not a multiple of 8, the record is
    /// dropped and counted.
    ///
    /// A hostile attaching side can give one chunk to two threads. Then their records are mixed up,
    /// which harms only that side: the bytes are stored by atomic words.
    ///
    /// # Safety
    /// The chunk that this writer holds, if any, must be one of `area`, and `area` must still be
    /// mapped.
    #[inline]
    pub unsafe fn store(&mut self, area: Area, tid: u32, kind: u8, parts: [&[u8]; 2]) -> bool {
        let [first, second] = parts;
        let size = first.len() + second.len();
        if !size.is_multiple_of(8) {
            area.drop_record(kind);
            return false;
        }
        if self.current.is_null() || self.used as usize + size > CHUNK_BODY {
            // SAFETY: the caller's promise.
            unsafe { self.seal() };
            match area.claim(tid) {
                Some(fresh) if size <= CHUNK_BODY => self.current = fresh,
                _ => {
                    area.drop_record(kind);
                    return false;
                }
            }
        }
        // SAFETY: `current` is a midair chunk in a live mapping, `used + size` fits into its body,
        // and `current`, `used` and `size` are multiples of 8.
        unsafe {
            let at = self.current.add(1).cast::<u8>().add(self.used as usize);
            bytes::store_words(at, parts);
            self.used += size as u32;
            (*self.current).committed.store(self.used, Release);
        }
        true
    }

    /// Whether the chunk that this writer holds has room for a record of so many bytes.
    pub fn has_room(&self, bytes: usize) -> bool {
        !self.current.is_null() && self.used as usize + bytes <= CHUNK_BODY
    }

    /// Releases the chunk: no more bytes will come.
    ///
    /// # Safety
    /// The chunk's mapping must be live, and no [`ChunkWriter::store`] of this writer may run.
    pub unsafe fn seal(&mut self) {
        if !self.current.is_null() {
            // SAFETY: the caller's promise.
            unsafe { (*self.current).state.store(chunk::SEALED, Release) };
        }
        *self = Self::new();
    }

    /// Forgets the chunk without accessing it, for when it is no longer mapped.
    pub fn forget(&mut self) {
        *self = Self::new();
    }

    /// Whether the reader has taken everything that was stored (tests).
    ///
    /// # Safety
    /// The chunk's mapping must be live.
    pub unsafe fn is_empty(&self) -> bool {
        // SAFETY: the caller's promise.
        self.current.is_null() || unsafe { (*self.current).committed.load(Acquire) } == 0
    }
}

impl Default for ChunkWriter {
    fn default() -> Self {
        Self::new()
    }
}
