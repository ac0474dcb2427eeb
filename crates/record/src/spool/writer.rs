//! The target's side: claims chunks and stores records. No allocation, no lock, no system call.

use super::{CHUNK, CHUNK_BODY, ChunkHead, HEAD, Head, MAGIC, chunk};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// How many chunks a claim tries before it gives up. A chunk is still in use only when the reader is far behind or its
/// thread writes little, so a few tries are enough to skip the chunks of such threads.
const CLAIM_TRIES: u64 = 16;

/// A spool mapped in this process. It is a copy of the address, not an owner: the code that mapped
/// the spool unmaps it when no thread writes to it any more.
#[derive(Debug, Clone, Copy)]
pub struct Area {
    base: *mut u8,
}

// SAFETY: all shared state behind `base` is accessed through atomics, or belongs to the one thread that owns the chunk.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    /// For a mapped spool of `len` bytes; `None` when its head does not describe a spool of that size.
    ///
    /// # Safety
    /// `base` must be the page-aligned start of a readable and writable mapping of `len` bytes that
    /// stays mapped while any copy of the result, or a [`ChunkWriter`] made from it, is used.
    pub unsafe fn new(base: *mut u8, len: usize) -> Option<Area> {
        if len < HEAD {
            return None;
        }
        let area = Area { base };
        let head = area.head();
        let chunks = (head.chunk_count as usize).checked_mul(CHUNK)?;
        let end = (head.chunks_at as usize).checked_add(chunks)?;
        let settings_end = (head.settings_at as usize).checked_add(head.settings_len as usize)?;
        let good = head.magic == MAGIC
            && head.version == crate::VERSION
            && head.total_size as usize == len
            && head.chunk_count > 0
            && head.chunks_at as usize >= HEAD
            && head.chunks_at.is_multiple_of(64)
            && end <= len
            && settings_end <= len;
        good.then_some(area)
    }

    /// Page 0.
    pub fn head(&self) -> &Head {
        // SAFETY: `new` promised a live mapping of at least HEAD bytes; Head is made of integers and atomics.
        unsafe { &*self.base.cast::<Head>() }
    }

    /// The settings, as the attaching side wrote them before it passed the spool on.
    pub fn settings(&self) -> &[u8] {
        let head = self.head();
        // SAFETY: `new` checked that the range lies inside the mapping; nobody writes it after the spool was passed on.
        unsafe {
            std::slice::from_raw_parts(
                self.base.add(head.settings_at as usize),
                head.settings_len as usize,
            )
        }
    }

    /// Writes a message about a failure where the attaching side reads it. Only the worker thread calls this.
    pub fn set_message(&self, text: &str) {
        let len = text.len().min(1024);
        // SAFETY: the field lies inside the mapped head, and only the worker thread writes it
        // before publishing message_len.
        unsafe {
            let message = (&raw mut (*self.base.cast::<Head>()).message).cast::<u8>();
            std::ptr::copy_nonoverlapping(text.as_ptr(), message, len);
        }
        self.head().message_len.store(len as u32, Release);
    }

    /// Counts a record of `kind` as dropped.
    pub fn drop_record(&self, kind: u8) {
        if let Some(count) = self.head().dropped.get(super::drop_slot(kind)) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Whether there are free chunks now for `bytes` of records. Other threads that store may claim them first.
    pub fn has_capacity(&self, bytes: usize) -> bool {
        let head = self.head();
        // Of a very small spool half is enough: the writer that asks may hold a chunk itself.
        let wanted = (bytes.div_ceil(CHUNK_BODY) as u64).min(head.chunk_count / 2);
        let next = head.claim.load(Relaxed);
        (0..wanted).all(|ahead| {
            let index = next.wrapping_add(ahead) % head.chunk_count;
            let offset = head.chunks_at as usize + index as usize * CHUNK;
            // SAFETY: `new` checked that all chunks lie inside the mapping, aligned to 64; only an
            // atomic of it is read.
            let chunk_head = unsafe { &*self.base.add(offset).cast::<ChunkHead>() };
            chunk_head.state.load(Acquire) == chunk::FREE
        })
    }

    fn claim(&self, tid: u32) -> Option<*mut ChunkHead> {
        let head = self.head();
        for _ in 0..CLAIM_TRIES.min(head.chunk_count) {
            let claim = head.claim.fetch_add(1, Relaxed);
            let index = claim % head.chunk_count;
            let offset = head.chunks_at as usize + index as usize * CHUNK;
            // SAFETY: `new` checked that all chunks lie inside the mapping and are aligned to 64.
            let candidate = unsafe { self.base.add(offset).cast::<ChunkHead>() };
            // SAFETY: as above; only atomics of it are touched before the chunk is ours.
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

/// One thread's chunk of the spool, and how much of it is used. It lives in that thread's slot; another thread may
/// [`ChunkWriter::seal`] it only when the owner has ended or is outside.
#[derive(Debug)]
pub struct ChunkWriter {
    current: *mut ChunkHead,
    used: u32,
}

// SAFETY: a writer belongs to its holder; nothing in it is bound to a thread.
unsafe impl Send for ChunkWriter {}

impl ChunkWriter {
    /// A writer with no chunk.
    pub const fn new() -> Self {
        ChunkWriter {
            current: std::ptr::null_mut(),
            used: 0,
        }
    }

    /// Stores one record made of `parts` in order; their sizes must add up to the record's size (a
    /// multiple of 8). When no chunk is free the record is dropped and counted.
    ///
    /// # Safety
    /// The chunk that this writer holds, if any, must be one of `area`, and `area` must still be mapped.
    #[inline]
    pub unsafe fn store(&mut self, area: Area, tid: u32, kind: u8, parts: [&[u8]; 2]) -> bool {
        let [first, second] = parts;
        let size = first.len() + second.len();
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
        // SAFETY: `current` is a chunk of ours in a live mapping and `used + size` fits into its body.
        unsafe {
            let at = self.current.add(1).cast::<u8>().add(self.used as usize);
            std::ptr::copy_nonoverlapping(first.as_ptr(), at, first.len());
            std::ptr::copy_nonoverlapping(second.as_ptr(), at.add(first.len()), second.len());
            self.used += size as u32;
            (*self.current).committed.store(self.used, Release);
        }
        true
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
