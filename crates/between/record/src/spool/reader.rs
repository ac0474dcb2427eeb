//! The attaching side: makes the spool, follows it live, and trusts nothing that it reads there.

use super::made::{CHUNKS_AT, FIRST_CHUNKS, head_of, made};
use super::mapping::Mapping;
use super::{
    CHUNK, CHUNK_BODY, ChunkHead, DROP_SLOTS, HEAD, Head, MAGIC, MESSAGE, SETTINGS, bytes, chunk,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The options of a new spool.
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
        /// How many bytes were wanted.
        size: usize,
        /// Why.
        source: io::Error,
    },
    /// Another process made it, of another build of midair.
    #[error("the spool is of another build of midair")]
    OtherBuild,
    /// The settings do not fit.
    #[error("the settings take {0} bytes, more than {SETTINGS}")]
    Settings(usize),
}

/// A spool made by this process.
#[derive(Debug)]
pub struct Reader {
    mapping: Mapping,
    fd: OwnedFd,
    /// How much of each chunk was read so far. The target cannot change this.
    cursors: Vec<u32>,
    // A copy of the word in the head, since the target could rewrite the head.
    chunks_at: usize,
    /// Up to this offset all pages are populated.
    faulted: usize,
}

impl Reader {
    /// Makes, fills, seals and pre-faults a spool.
    ///
    /// # Errors
    /// [`MapError`] when memory or descriptors run out, or the settings are too long.
    pub fn create(options: &ReaderOptions) -> Result<Reader, MapError> {
        let chunk_count = options.size.div_ceil(CHUNK).max(2);
        let (mapping, fd) = made(options, chunk_count)?;
        Ok(Reader::new(mapping, fd, chunk_count))
    }

    /// Reads the spool that another process made ([`super::Unread`]), by the descriptor of its file.
    ///
    /// # Errors
    /// [`MapError`] for another file, and when memory runs out.
    pub fn of(fd: OwnedFd) -> Result<Reader, MapError> {
        let mapping = Mapping::of(&fd, CHUNKS_AT + 2 * CHUNK)?;
        let head = head_of(&mapping);
        if (head.magic.load(Relaxed), head.version.load(Relaxed)) != (MAGIC, crate::VERSION) {
            return Err(MapError::OtherBuild);
        }
        let chunk_count = (mapping.len() - CHUNKS_AT) / CHUNK;
        Ok(Reader::new(mapping, fd, chunk_count))
    }

    fn new(mapping: Mapping, fd: OwnedFd, chunk_count: usize) -> Reader {
        Reader {
            mapping,
            fd,
            cursors: vec![0; chunk_count],
            chunks_at: CHUNKS_AT,
            faulted: CHUNKS_AT + FIRST_CHUNKS * CHUNK,
        }
    }

    /// Returns a copy of the settings, as they are now.
    pub fn settings(&self) -> Vec<u8> {
        let len = self.head().settings_len.load(Acquire) as usize;
        let mut copy = vec![0; len.min(SETTINGS).next_multiple_of(8)];
        // SAFETY: the place is page-aligned, SETTINGS bytes long, and in front of the chunks.
        unsafe { bytes::load_words(self.mapping.base().add(HEAD), &mut copy) };
        copy.truncate(len);
        copy
    }

    /// Populates the pages of the next `bytes`. They are charged to our cgroup, and the
    /// application's threads do not fault them in one by one. Call this until it returns false. A
    /// kernel before Linux 5.14 cannot do it; there a page is populated at its first access.
    pub fn fault_in(&mut self, bytes: usize) -> bool {
        let from = self.faulted;
        let upto = from
            .saturating_add(bytes)
            .min(self.size())
            .next_multiple_of(4096);
        if from < upto {
            self.mapping.populate(from, upto);
            self.faulted = upto;
        }
        self.faulted < self.size()
    }

    /// Returns the descriptor to pass to the target.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the spool as writers see it, for a spool that this process itself fills.
    ///
    /// # Safety
    /// The result, its copies, and every [`ChunkWriter`](super::ChunkWriter) that stored to it must
    /// not be used after this reader was dropped.
    pub unsafe fn area(&self) -> Option<super::Area> {
        // SAFETY: the mapping is page-aligned, has this length, and lives as long as self. The
        // caller promises the rest.
        unsafe { super::Area::new(self.mapping.base(), self.size()) }
    }

    /// Returns address and length of the mapping, for a writer in this process; valid as long as
    /// the reader.
    pub fn mapping(&self) -> (*mut u8, usize) {
        (self.mapping.base(), self.size())
    }

    /// Returns the size of the whole spool in bytes.
    pub fn size(&self) -> usize {
        self.mapping.len()
    }

    /// Returns page 0. The target may have changed everything in it.
    pub fn head(&self) -> &Head {
        head_of(&self.mapping)
    }

    /// Returns the target's message about a failure, made printable.
    pub fn message(&self) -> String {
        let head = self.head();
        let len = (head.message_len.load(Acquire) as usize).min(MESSAGE);
        let copy = bytes::load_text(head.message.get(..len).unwrap_or_default());
        String::from_utf8_lossy(&copy)
            .chars()
            .filter(|c| !c.is_control())
            .collect()
    }

    /// Copies out what was committed since the last call, and frees chunks that were read
    /// completely. `sink` gets the bytes as the target wrote them, one chunk at a time, and in
    /// order within a chunk. Returns the number of bytes.
    ///
    /// # Errors
    /// The errors of `sink`; bytes that it refused are not read again.
    pub fn drain<E>(&mut self, sink: impl FnMut(&[u8]) -> Result<(), E>) -> Result<usize, E> {
        self.drain_beside(sink, || ())
    }

    /// Does the same. Tests use `beside` for what the target does between the two reads of a
    /// chunk's head.
    fn drain_beside<E>(
        &mut self,
        mut sink: impl FnMut(&[u8]) -> Result<(), E>,
        mut beside: impl FnMut(),
    ) -> Result<usize, E> {
        // Visit chunks in the order of their claims, so that one thread's records keep their order.
        // Those that were never claimed are free, and each lies in a page of its own.
        let claims = usize::try_from(self.head().claim.load(Acquire)).unwrap_or(usize::MAX);
        let mut order: Vec<(u64, usize)> = (0..self.cursors.len().min(claims))
            .filter(|&index| self.chunk(index).0.state.load(Acquire) != chunk::FREE)
            .map(|index| (self.chunk(index).0.claimed.load(Relaxed), index))
            .collect();
        order.sort_unstable();
        let mut total = 0;
        let mut copy = Vec::new();
        for (_, index) in order {
            let (head, body) = self.chunk(index);
            // Read the state before `committed`: if the chunk is sealed now, `committed` is final.
            let sealed = head.state.load(Acquire) == chunk::SEALED;
            beside();
            // Records are multiples of 8 bytes. A number that is not was not written by our code.
            let committed = (head.committed.load(Acquire) as usize).min(CHUNK_BODY) & !7;
            let from = self.cursors.get(index).map_or(0, |c| *c as usize);
            copy.resize(committed.saturating_sub(from), 0);
            // SAFETY: from + copy.len() is the greater one of from and committed, and both are at most
            // CHUNK_BODY. So the range is inside the chunk, whose body is aligned to 64; both numbers
            // are multiples of 8.
            unsafe { bytes::load_words(body.add(from), &mut copy) };
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
        // aligned to 64, and a ChunkHead is made of atomics.
        unsafe {
            let at = self.mapping.base().add(self.chunks_at + index * CHUNK);
            (&*at.cast::<ChunkHead>(), at.add(size_of::<ChunkHead>()))
        }
    }

    /// Returns how many records were dropped because no chunk was free, by [`super::drop_slot`].
    pub fn dropped(&self) -> [u64; DROP_SLOTS] {
        std::array::from_fn(|i| self.head().dropped.get(i).map_or(0, |d| d.load(Relaxed)))
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
    fn settings_may_fill_their_place_and_no_more() {
        let with = |bytes: usize| {
            Reader::create(&ReaderOptions {
                size: 4 * CHUNK,
                settings: vec![b'x'; bytes],
                drain_ms: 1,
                lease_ms: 0,
                session: 1,
            })
        };
        let reader = with(SETTINGS).unwrap();
        assert_eq!(area(&reader).settings(), vec![b'x'; SETTINGS]);
        assert!(matches!(
            with(SETTINGS + 1),
            Err(MapError::Settings(bytes)) if bytes == SETTINGS + 1
        ));
    }

    #[test]
    fn the_targets_message_is_read_without_what_controls_a_terminal() {
        let reader = small();
        let area = area(&reader);
        assert_eq!(reader.message(), "");
        area.set_message("no \u{1b}[31mroom\n");
        assert_eq!(reader.message(), "no [31mroom");
        let long = "x".repeat(MESSAGE + 7);
        area.set_message(&long);
        assert_eq!(reader.message(), "x".repeat(MESSAGE));
    }

    #[test]
    fn what_is_stored_is_read_once_and_in_order() {
        let mut reader = small();
        let area = area(&reader);
        assert_eq!(area.settings(), b"abc");
        let mut writer = ChunkWriter::new();
        let mut seen = Vec::new();
        let per_chunk = CHUNK_BODY / size_of::<Api>();
        // More chunks than the spool has.
        let chunks = if cfg!(miri) { 5 } else { 10 };
        let count = per_chunk as u64 * chunks;
        for n in 0..count {
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
        assert_eq!(seen, (0..count).collect::<Vec<_>>());
        assert_eq!(reader.dropped().iter().sum::<u64>(), 0);
    }

    /// Bytes of memory that the spool's file has.
    fn present(reader: &Reader) -> u64 {
        let file = std::fs::File::from(reader.fd().try_clone_to_owned().unwrap());
        let blocks = std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap());
        blocks * 512
    }

    /// The pages are there before the target stores to them.
    #[test]
    fn the_first_64_chunks_are_populated_and_the_others_when_asked_for() {
        let first = HEAD + SETTINGS + 64 * CHUNK;
        for (chunks, asked, left) in [
            (64, &[][..], false),
            (66, &[CHUNK, CHUNK], false),
            (66, &[1, CHUNK - 4096, CHUNK], false),
            (66, &[CHUNK, CHUNK - 4096], true),
            (66, &[usize::MAX], false),
        ] {
            let mut reader = Reader::create(&ReaderOptions {
                size: chunks * CHUNK,
                settings: Vec::new(),
                drain_ms: 1,
                lease_ms: 0,
                session: 1,
            })
            .unwrap();
            let size = HEAD + SETTINGS + chunks * CHUNK;
            assert_eq!(reader.size(), size);
            let mut upto = first;
            for (at, bytes) in asked.iter().enumerate() {
                if !cfg!(miri) {
                    assert_eq!(present(&reader), upto as u64, "{asked:?}: {at}");
                }
                upto = upto.saturating_add(*bytes).min(size).next_multiple_of(4096);
                assert_eq!(reader.fault_in(*bytes), upto < size, "{asked:?}: {at}");
            }
            assert_eq!(upto < size, left);
            assert_eq!(reader.fault_in(0), left, "{asked:?}");
            if !cfg!(miri) {
                assert_eq!(present(&reader), upto as u64, "{asked:?}");
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "its spool is no file")]
    fn a_dropped_reader_leaves_no_mapping_behind() {
        let reader = small();
        let file = std::fs::File::from(reader.fd().try_clone_to_owned().unwrap());
        // The file is still open, so nothing else has this number.
        let inode = std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap());
        let is_mapped = || {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let field = inode.to_string();
            maps.lines()
                .filter(|line| line.contains("midair-spool"))
                .any(|line| line.split_whitespace().nth(4) == Some(field.as_str()))
        };
        assert!(is_mapped());
        drop(reader);
        assert!(!is_mapped());
    }

    /// Otherwise a process with the descriptor could let others open the file through `/proc`.
    #[test]
    #[cfg_attr(miri, ignore = "its spool is no file")]
    fn a_spool_is_for_its_owner() {
        let reader = small();
        let file = std::fs::File::from(reader.fd().try_clone_to_owned().unwrap());
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

    /// Of four chunks, two are enough for whatever is to be stored.
    #[test]
    fn capacity_is_in_the_chunks_that_are_next() {
        let mut reader = small();
        let area = area(&reader);
        let mut writers: [ChunkWriter; 4] = std::array::from_fn(|_| ChunkWriter::new());
        let has =
            || [0, 1, CHUNK_BODY, CHUNK_BODY + 1, 9 * CHUNK_BODY].map(|n| area.has_capacity(n));
        for (at, wanted) in [
            [true; 5],
            [true; 5],
            [true; 5],
            // One is left, and the one behind it is in use.
            [true, true, true, false, false],
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(has(), wanted, "{at} in use");
            // SAFETY: the area is mapped and the writer belongs to it.
            unsafe {
                writers[at].store(area, 1, kind::HSA_CORE_API, [api(1).bytes(), &[]]);
            }
        }
        assert_eq!(has(), [true, false, false, false, false]);
        // The first chunk becomes free.
        // SAFETY: as above, and nothing is stored now.
        unsafe { writers[0].seal() };
        assert_eq!(starts(&mut reader, || ()), [1; 4]);
        assert_eq!(has(), [true, true, true, false, false]);
    }

    /// A thread's slot outlives a session, and the next session has another spool.
    #[test]
    fn a_writer_that_forgot_its_chunk_stores_to_another_spool() {
        let mut readers = [small(), small()];
        let areas = [area(&readers[0]), area(&readers[1])];
        let mut writer = ChunkWriter::new();
        for (n, area) in areas.into_iter().enumerate() {
            // SAFETY: both areas are mapped, and the writer has no chunk of the other one.
            unsafe {
                assert!(writer.is_empty());
                writer.store(area, 1, kind::HSA_CORE_API, [api(n as u64).bytes(), &[]]);
                assert!(!writer.is_empty());
            }
            writer.forget();
        }
        for (n, reader) in readers.iter_mut().enumerate() {
            assert_eq!(starts(reader, || ()), [n as u64]);
            // SAFETY: chunk 0 lies inside the mapping.
            let head = unsafe { &*reader.mapping().0.add(reader.chunks_at).cast::<ChunkHead>() };
            assert_eq!(head.state.load(Acquire), chunk::OPEN, "it was left alone");
        }
    }

    #[test]
    fn a_target_that_lies_about_committed_cannot_make_us_read_outside() {
        let mut reader = small();
        let area = area(&reader);
        let mut writer = ChunkWriter::new();
        // SAFETY: the area is mapped and the writer belongs to it.
        unsafe { writer.store(area, 1, kind::HSA_CORE_API, [api(1).bytes(), &[]]) };
        // SAFETY: chunk 0 lies inside the mapping.
        let head = unsafe { &*reader.mapping().0.add(reader.chunks_at).cast::<ChunkHead>() };
        head.committed.store(u32::MAX, Release);
        let read = reader.drain(|_| Ok::<_, ()>(())).unwrap();
        assert_eq!(read, CHUNK_BODY);
    }

    fn starts(reader: &mut Reader, beside: impl FnMut()) -> Vec<u64> {
        let mut seen = Vec::new();
        let take = |bytes: &[u8]| {
            let records = bytes.chunks(size_of::<Api>());
            seen.extend(records.map(|record| Api::read(record).unwrap().start));
            Ok::<_, ()>(())
        };
        reader.drain_beside(take, beside).unwrap();
        seen
    }

    /// The target stores a record and seals its chunk between the reader's two reads.
    #[test]
    fn what_is_stored_just_before_a_chunk_is_sealed_is_read() {
        let mut reader = small();
        let area = area(&reader);
        let mut writer = ChunkWriter::new();
        // SAFETY: the area is mapped and the writer belongs to it.
        unsafe { writer.store(area, 1, kind::HSA_CORE_API, [api(1).bytes(), &[]]) };
        let mut once = true;
        let mut seen = starts(&mut reader, || {
            if std::mem::take(&mut once) {
                // SAFETY: as above; nothing is stored by it after that.
                unsafe {
                    writer.store(area, 1, kind::HSA_CORE_API, [api(2).bytes(), &[]]);
                    writer.seal();
                }
            }
        });
        seen.extend(starts(&mut reader, || ()));
        assert_eq!(seen, [1, 2]);
        assert!(starts(&mut reader, || ()).is_empty());
    }

    #[test]
    fn a_target_that_takes_committed_back_gets_nothing_read_twice() {
        let mut reader = small();
        let area = area(&reader);
        let mut writer = ChunkWriter::new();
        let mut store = |n: u64| {
            // SAFETY: the area is mapped and the writer belongs to it.
            unsafe { writer.store(area, 1, kind::HSA_CORE_API, [api(n).bytes(), &[]]) };
        };
        store(1);
        store(2);
        assert_eq!(starts(&mut reader, || ()), [1, 2]);
        // SAFETY: chunk 0 lies inside the mapping.
        let head = unsafe { &*reader.mapping().0.add(reader.chunks_at).cast::<ChunkHead>() };
        let committed = head.committed.load(Acquire);
        for lower in [0, 8, committed - 8] {
            head.committed.store(lower, Release);
            assert!(starts(&mut reader, || ()).is_empty());
            head.committed.store(committed, Release);
            assert!(starts(&mut reader, || ()).is_empty(), "{lower}");
        }
        store(3);
        assert_eq!(starts(&mut reader, || ()), [3]);
    }

    /// If the target could take a page away, it could crash the reader.
    #[test]
    #[cfg_attr(miri, ignore = "its spool is no file")]
    fn the_size_of_a_spool_is_for_good() {
        let reader = small();
        let size = reader.size() as u64;
        let file = std::fs::File::from(reader.fd().try_clone_to_owned().unwrap());
        for other in [0, size - 4096, size + 4096] {
            let error = file.set_len(other).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{other}");
        }
        assert_eq!(file.metadata().unwrap().len(), size);
        // SAFETY: the call takes only numbers.
        let more = unsafe {
            libc::fcntl(
                std::os::fd::AsRawFd::as_raw_fd(&file),
                libc::F_ADD_SEALS,
                libc::F_SEAL_WRITE,
            )
        };
        assert_eq!(more, -1, "nobody seals it against writing");
    }
}
