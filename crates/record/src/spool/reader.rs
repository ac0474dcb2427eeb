//! The attaching side: makes the spool, follows it live, and trusts nothing that it reads there.

use super::{CHUNK, CHUNK_BODY, ChunkHead, DROP_SLOTS, HEAD, Head, MAGIC, SETTINGS, chunk};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// What a spool is made with.
#[derive(Debug, Clone)]
pub struct ReaderOptions {
    /// Bytes of chunks (rounded up to whole chunks).
    pub size: usize,
    /// The environment buffer for the tool.
    pub settings: Vec<u8>,
    /// See [`Head::drain_ms`].
    pub drain_ms: u32,
    /// See [`Head::lease_ms`].
    pub lease_ms: u32,
    /// Random number of the session.
    pub session: u64,
}

/// Why a spool could not be made.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// A system call failed.
    #[error("cannot make a spool of {size} bytes: {step}: {source}")]
    System {
        /// Which step.
        step: &'static str,
        /// Bytes wanted.
        size: usize,
        /// Why.
        source: io::Error,
    },
    /// The settings do not fit.
    #[error("the settings take {0} bytes, more than {SETTINGS}")]
    Settings(usize),
}

/// A spool made by this process.
#[derive(Debug)]
pub struct Reader {
    base: *mut u8,
    len: usize,
    fd: OwnedFd,
    /// What was read of each chunk so far. The target cannot change it.
    cursors: Vec<u32>,
    // The target could rewrite the head, so this copy is used.
    chunks_at: usize,
    /// Bytes from the start whose pages are populated.
    faulted: usize,
}

/// Chunks that are populated before the spool is passed on; populating all of them would cost tens of milliseconds.
const FIRST_CHUNKS: usize = 64;

// SAFETY: the mapping is owned by this value and unmapped only in drop; shared words in it are atomics.
unsafe impl Send for Reader {}

impl Reader {
    /// Makes, fills, seals and pre-faults a spool.
    ///
    /// # Errors
    /// [`MapError`] when memory or descriptors run out, or the settings are too long.
    pub fn create(options: &ReaderOptions) -> Result<Reader, MapError> {
        if options.settings.len() > SETTINGS {
            return Err(MapError::Settings(options.settings.len()));
        }
        let chunk_count = options.size.div_ceil(CHUNK).max(2);
        let chunks_at = HEAD + SETTINGS;
        let len = chunks_at + chunk_count * CHUNK;
        let fail = |step: &'static str| MapError::System {
            step,
            size: len,
            source: io::Error::last_os_error(),
        };

        /// `MFD_NOEXEC_SEAL` (linux/memfd.h), since Linux 6.3: never executable. Older kernels answer EINVAL.
        const NOEXEC: libc::c_uint = 8;
        let make = |flags: libc::c_uint| {
            let flags = flags | libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
            // SAFETY: a NUL-terminated name and known flags.
            unsafe { libc::memfd_create(c"midair-spool".as_ptr(), flags) }
        };
        let mut raw = make(NOEXEC);
        if raw < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) {
            raw = make(0);
        }
        if raw < 0 {
            return Err(fail("memfd_create"));
        }
        // SAFETY: memfd_create returned a descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        let file = File::from(fd);
        // The target gets the descriptor; nobody opens it by a path.
        let ours = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        file.set_permissions(ours)
            .map_err(|source| MapError::System {
                step: "fchmod",
                size: len,
                source,
            })?;
        file.set_len(len as u64)
            .map_err(|source| MapError::System {
                step: "ftruncate",
                size: len,
                source,
            })?;
        let fd = OwnedFd::from(file);
        // The size can never change: the target cannot make us fault, and we cannot make it fault.
        // SAFETY: a descriptor of ours and known flags.
        let sealed = unsafe {
            libc::fcntl(
                raw,
                libc::F_ADD_SEALS,
                libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL,
            )
        };
        if sealed < 0 {
            return Err(fail("sealing"));
        }
        // SAFETY: a fresh shared mapping of our own descriptor at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                raw,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(fail("mmap"));
        }
        // A forked child must not write to what its parent reads.
        // SAFETY: the mapping just made.
        unsafe { libc::madvise(base, len, libc::MADV_DONTFORK) };
        let mut reader = Reader {
            base: base.cast(),
            len,
            fd,
            cursors: vec![0; chunk_count],
            chunks_at,
            faulted: 0,
        };
        reader.fault_in(chunks_at + FIRST_CHUNKS * CHUNK);
        // SAFETY: the mapping is fresh, ours alone until the descriptor is passed on, large enough
        // for Head and SETTINGS, and page-aligned; the fields written are plain integers.
        unsafe {
            let head = &mut *reader.base.cast::<Head>();
            head.version = crate::VERSION;
            head.head_size = HEAD as u32;
            head.total_size = len as u64;
            head.settings_at = HEAD as u64;
            head.settings_len = options.settings.len() as u64;
            head.chunks_at = chunks_at as u64;
            head.chunk_count = chunk_count as u64;
            head.session = options.session;
            head.drain_ms = options.drain_ms;
            head.lease_ms = options.lease_ms;
            head.magic = MAGIC;
            std::ptr::copy_nonoverlapping(
                options.settings.as_ptr(),
                reader.base.add(HEAD),
                options.settings.len(),
            );
        }
        Ok(reader)
    }

    /// Populates the pages of `bytes` more, charged to our cgroup, so that the application's
    /// threads do not fault them in one by one. Call it until it returns false. A kernel before
    /// Linux 5.14 cannot, and leaves it to the first touch.
    pub fn fault_in(&mut self, bytes: usize) -> bool {
        let from = self.faulted;
        let upto = from
            .saturating_add(bytes)
            .next_multiple_of(4096)
            .min(self.len);
        if from < upto {
            // SAFETY: a page-aligned range of our own mapping; the pages' contents stay.
            unsafe {
                libc::madvise(
                    self.base.add(from).cast(),
                    upto - from,
                    libc::MADV_POPULATE_WRITE,
                )
            };
            self.faulted = upto;
        }
        self.faulted < self.len
    }

    /// The descriptor to pass to the target.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The spool as writers see it, for a spool that this process itself fills.
    ///
    /// # Safety
    /// The result, its copies, and every [`ChunkWriter`](super::ChunkWriter) that stored to it must
    /// not be used after this reader was dropped.
    pub unsafe fn area(&self) -> Option<super::Area> {
        // SAFETY: the mapping is page-aligned, of this length, and lives as long as self; the caller promises the rest.
        unsafe { super::Area::new(self.base, self.len) }
    }

    /// Address and length of the mapping, for a writer in this process; valid as long as the reader.
    pub fn mapping(&self) -> (*mut u8, usize) {
        (self.base, self.len)
    }

    /// Bytes of the whole spool.
    pub fn size(&self) -> usize {
        self.len
    }

    /// Page 0. Everything but the atomics was written by us; everything may have been changed by the target since.
    pub fn head(&self) -> &Head {
        // SAFETY: the mapping lives as long as self and is larger than Head, which is made of integers and atomics.
        unsafe { &*self.base.cast::<Head>() }
    }

    /// The target's message about a failure, made printable.
    pub fn message(&self) -> String {
        let len = (self.head().message_len.load(Acquire) as usize).min(1024);
        let mut copy = vec![0_u8; len];
        // SAFETY: message lies inside the mapped head; a concurrent change could only change the bytes we copy.
        unsafe {
            let at = (&raw const (*self.base.cast::<Head>()).message).cast::<u8>();
            std::ptr::copy_nonoverlapping(at, copy.as_mut_ptr(), len);
        }
        String::from_utf8_lossy(&copy)
            .chars()
            .filter(|c| !c.is_control())
            .collect()
    }

    /// Copies out what was committed since the last call and frees chunks that are read completely.
    /// `sink` gets the bytes as the target wrote them, one chunk at a time and in order within it.
    /// Returns the number of bytes.
    ///
    /// # Errors
    /// Whatever `sink` returns; the bytes it refused are not read again.
    pub fn drain<E>(&mut self, mut sink: impl FnMut(&[u8]) -> Result<(), E>) -> Result<usize, E> {
        // In the order of the claims, so that one thread's records keep their order.
        let mut order: Vec<(u64, usize)> = (0..self.cursors.len())
            .filter(|&index| self.chunk(index).0.state.load(Acquire) != chunk::FREE)
            .map(|index| (self.chunk(index).0.claimed.load(Relaxed), index))
            .collect();
        order.sort_unstable();
        let mut total = 0;
        let mut copy = Vec::new();
        for (_, index) in order {
            let (head, body) = self.chunk(index);
            // State before committed: if it is sealed now, committed is final.
            let sealed = head.state.load(Acquire) == chunk::SEALED;
            let committed = (head.committed.load(Acquire) as usize).min(CHUNK_BODY);
            let from = self.cursors.get(index).map_or(0, |c| *c as usize);
            if committed > from {
                copy.resize(committed - from, 0);
                // SAFETY: from < committed <= CHUNK_BODY, so the range lies inside the chunk.
                unsafe {
                    std::ptr::copy_nonoverlapping(body.add(from), copy.as_mut_ptr(), copy.len())
                };
            } else {
                copy.clear();
            }
            if let Some(cursor) = self.cursors.get_mut(index) {
                *cursor = if sealed {
                    0
                } else {
                    committed.max(from) as u32
                };
            }
            if sealed {
                let (head, _) = self.chunk(index);
                head.committed.store(0, Relaxed);
                head.state.store(chunk::FREE, Release);
            }
            if !copy.is_empty() {
                total += copy.len();
                sink(&copy)?;
            }
        }
        Ok(total)
    }

    fn chunk(&self, index: usize) -> (&ChunkHead, *const u8) {
        debug_assert!(index < self.cursors.len());
        // SAFETY: callers pass indexes below chunk_count; all chunks lie inside the mapping,
        // aligned to 64, and a ChunkHead is made of integers and atomics.
        unsafe {
            let at = self.base.add(self.chunks_at + index * CHUNK);
            (&*at.cast::<ChunkHead>(), at.add(size_of::<ChunkHead>()))
        }
    }

    /// Records that were dropped because no chunk was free, by [`super::drop_slot`].
    pub fn dropped(&self) -> [u64; DROP_SLOTS] {
        std::array::from_fn(|i| self.head().dropped.get(i).map_or(0, |d| d.load(Relaxed)))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // SAFETY: base/len are the mapping made in `create`, and no reference into it outlives self.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Area, ChunkWriter};
    use super::*;
    use crate::event::{Api, Header, Plain, kind};

    fn small() -> Reader {
        Reader::create(&ReaderOptions {
            size: 4 * CHUNK,
            settings: b"abc".to_vec(),
            drain_ms: 1,
            lease_ms: 0,
            session: 1,
        })
        .unwrap()
    }

    fn area(reader: &Reader) -> Area {
        // SAFETY: the reader outlives the area in each test.
        unsafe { reader.area() }.unwrap()
    }

    fn api(n: u64) -> Api {
        let size = size_of::<Api>() as u16;
        Api {
            header: Header {
                size,
                kind: kind::HSA_CORE_API,
                ..Default::default()
            },
            start: n,
            ..Default::default()
        }
    }

    #[test]
    fn what_is_stored_is_read_once_and_in_order() {
        let mut reader = small();
        let area = area(&reader);
        assert_eq!(area.settings(), b"abc");
        let mut writer = ChunkWriter::new();
        let mut seen = Vec::new();
        let per_chunk = CHUNK_BODY / size_of::<Api>();
        for n in 0..(per_chunk as u64 * 10) {
            // SAFETY: the area is mapped and the writer belongs to it.
            assert!(unsafe { writer.store(area, 1, kind::HSA_CORE_API, [api(n).bytes(), &[]]) });
            if n % 100 == 0 {
                reader
                    .drain(|bytes| {
                        seen.extend(
                            bytes
                                .chunks(size_of::<Api>())
                                .map(|c| Api::read(c).unwrap().start),
                        );
                        Ok::<_, ()>(())
                    })
                    .unwrap();
            }
        }
        reader
            .drain(|bytes| {
                seen.extend(
                    bytes
                        .chunks(size_of::<Api>())
                        .map(|c| Api::read(c).unwrap().start),
                );
                Ok::<_, ()>(())
            })
            .unwrap();
        assert_eq!(seen, (0..per_chunk as u64 * 10).collect::<Vec<_>>());
        assert_eq!(reader.dropped().iter().sum::<u64>(), 0);
    }

    /// Otherwise a process with the descriptor could let others open it by its number in `/proc`.
    #[test]
    fn a_spool_is_for_its_owner() {
        let reader = small();
        let file = File::from(reader.fd().try_clone_to_owned().unwrap());
        let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions());
        assert_eq!(mode & 0o7777, 0o600);
    }

    #[test]
    fn a_full_spool_drops_and_counts() {
        let reader = small();
        let area = area(&reader);
        let mut writer = ChunkWriter::new();
        let fits = 4 * (CHUNK_BODY / size_of::<Api>()) as u64;
        let mut stored = 0;
        for n in 0..fits + 100 {
            // SAFETY: the area is mapped and the writer belongs to it.
            stored += u64::from(unsafe {
                writer.store(area, 1, kind::HSA_CORE_API, [api(n).bytes(), &[]])
            });
        }
        assert_eq!(stored, fits);
        assert_eq!(reader.dropped()[kind::HSA_CORE_API as usize], 100);
    }

    #[test]
    fn a_target_that_lies_about_committed_cannot_make_us_read_outside() {
        let mut reader = small();
        let area = area(&reader);
        let mut writer = ChunkWriter::new();
        // SAFETY: the area is mapped and the writer belongs to it.
        unsafe { writer.store(area, 1, kind::HSA_CORE_API, [api(1).bytes(), &[]]) };
        // SAFETY: chunk 0 lies inside the mapping.
        let head = unsafe { &*reader.base.add(reader.chunks_at).cast::<ChunkHead>() };
        head.committed.store(u32::MAX, Release);
        let read = reader.drain(|_| Ok::<_, ()>(())).unwrap();
        assert_eq!(read, CHUNK_BODY);
    }
}
