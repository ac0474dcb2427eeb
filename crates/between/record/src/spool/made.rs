//! Makes a spool, and keeps one that this process fills and another one reads.

use super::mapping::Mapping;
use super::{CHUNK, HEAD, Head, MAGIC, MapError, ReaderOptions, SETTINGS, bytes};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;

/// How many chunks are populated before the spool is passed on. Populating all of them would take
/// tens of milliseconds.
pub(super) const FIRST_CHUNKS: usize = 64;
/// Where the chunks of each spool start.
pub(super) const CHUNKS_AT: usize = HEAD + SETTINGS;

/// Makes, fills, seals and pre-faults a spool.
pub(super) fn made(
    options: &ReaderOptions,
    chunk_count: usize,
) -> Result<(Mapping, OwnedFd), MapError> {
    if options.settings.len() > SETTINGS {
        return Err(MapError::Settings(options.settings.len()));
    }
    let len = CHUNKS_AT + chunk_count * CHUNK;
    let (mapping, fd) = Mapping::new(len)?;
    mapping.populate(0, CHUNKS_AT + FIRST_CHUNKS * CHUNK);
    let head = head_of(&mapping);
    head.version.store(crate::VERSION, Relaxed);
    head.head_size.store(HEAD as u32, Relaxed);
    head.total_size.store(len as u64, Relaxed);
    head.settings_at.store(HEAD as u64, Relaxed);
    head.settings_len
        .store(options.settings.len() as u64, Relaxed);
    head.chunks_at.store(CHUNKS_AT as u64, Relaxed);
    head.chunk_count.store(chunk_count as u64, Relaxed);
    head.session.store(options.session, Relaxed);
    head.drain_ms.store(options.drain_ms, Relaxed);
    head.lease_ms.store(options.lease_ms, Relaxed);
    head.magic.store(MAGIC, Relaxed);
    let mut settings = options.settings.clone();
    settings.resize(settings.len().next_multiple_of(8), 0);
    // SAFETY: the place is page-aligned and in front of the chunks. The length is at most
    // SETTINGS, and both are multiples of 8.
    unsafe { bytes::store_words(mapping.base().add(HEAD), [&settings, &[]]) };
    Ok((mapping, fd))
}

/// Returns page 0.
pub(super) fn head_of(mapping: &Mapping) -> &Head {
    // SAFETY: the mapping is page-aligned and larger than Head, which is made of atomics. It lives
    // as long as the reference.
    unsafe { &*mapping.base().cast::<Head>() }
}

/// A spool that this process made and fills, and that another process reads ([`super::Reader::of`]).
#[derive(Debug)]
pub struct Unread {
    mapping: Mapping,
}

impl Unread {
    /// Makes one. Returns the descriptor for the process that reads it, too.
    ///
    /// # Errors
    /// As [`super::Reader::create`].
    pub fn create(options: &ReaderOptions) -> Result<(Unread, OwnedFd), MapError> {
        let (mapping, fd) = made(options, options.size.div_ceil(CHUNK).max(2))?;
        Ok((Unread { mapping }, fd))
    }

    /// Returns address and length of the mapping, which is valid as long as this value.
    pub fn mapping(&self) -> (*mut u8, usize) {
        (self.mapping.base(), self.mapping.len())
    }

    /// Returns page 0.
    pub fn head(&self) -> &Head {
        head_of(&self.mapping)
    }
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::super::{Area, ChunkWriter, Reader};
    use super::*;
    use crate::event::{Api, Header, Plain, kind};
    use std::fs::File;

    fn options(settings: &[u8]) -> ReaderOptions {
        ReaderOptions {
            size: 4 * CHUNK,
            settings: settings.to_vec(),
            drain_ms: 1,
            lease_ms: 0,
            session: 7,
        }
    }

    #[test]
    fn what_this_process_stores_another_reads_by_the_descriptor() {
        let (unread, fd) = Unread::create(&options(b"settings")).unwrap();
        let mut reader = Reader::of(fd).unwrap();
        assert_eq!(reader.settings(), b"settings");
        let (base, len) = unread.mapping();
        // SAFETY: the spool stays mapped until the end of the test.
        let area = unsafe { Area::new(base, len) }.unwrap();
        let api = |start| Api {
            header: Header {
                size: size_of::<Api>() as u16,
                kind: kind::HSA_CORE_API,
                ..Default::default()
            },
            start,
            ..Default::default()
        };
        let mut writer = ChunkWriter::new();
        for start in 0..3 {
            // SAFETY: the area is mapped and the writer belongs to it.
            assert!(unsafe {
                writer.store(area, 1, kind::HSA_CORE_API, [api(start).bytes(), &[]])
            });
        }
        unread.head().detached_at.store(5, Relaxed);
        // What was stored is there without the process that stored it.
        drop(unread);
        let mut read = Vec::new();
        let taken = reader.drain(|bytes| {
            read.extend_from_slice(bytes);
            Ok::<_, ()>(())
        });
        assert_eq!(taken, Ok(3 * size_of::<Api>()));
        let starts = read.chunks(size_of::<Api>());
        let starts: Vec<u64> = starts.map(|api| Api::read(api).unwrap().start).collect();
        assert_eq!(starts, [0, 1, 2]);
        assert_eq!(reader.head().detached_at.load(Relaxed), 5);
    }

    #[test]
    fn another_file_is_no_spool() {
        let program = File::open(std::env::current_exe().unwrap()).unwrap();
        assert!(Reader::of(program.into()).is_err(), "its size can change");
        assert!(Reader::of(File::open("/dev/null").unwrap().into()).is_err());
        let (_, fd) = Mapping::new(CHUNKS_AT).unwrap();
        assert!(Reader::of(fd).is_err(), "no chunk");
        let (unread, fd) = Unread::create(&options(b"")).unwrap();
        unread.head().version.store(crate::VERSION + 1, Relaxed);
        assert!(matches!(Reader::of(fd), Err(MapError::OtherBuild)));
    }
}
