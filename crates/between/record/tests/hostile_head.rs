//! An attaching side that rewrites the head of its spool while threads of the target store records.
//! It may spoil its own records. It must not make the application's threads panic, or write or read
//! outside of the spool.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, which are no test functions themselves"
)]

use midair_record::event::{Api, Header, Plain, kind};
use midair_record::spool::{Area, CHUNK, CHUNK_BODY, ChunkHead, ChunkWriter, Head, Reader};
use midair_record::spool::{ReaderOptions, chunk};
use std::convert::Infallible;
use std::mem::offset_of;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};

/// Chunks of the spool.
const CHUNKS: usize = 4;
const SETTINGS: &[u8] = b"what is asked for";

fn spool() -> Reader {
    Reader::create(&ReaderOptions {
        size: CHUNKS * CHUNK,
        settings: SETTINGS.to_vec(),
        drain_ms: 1,
        lease_ms: 0,
        session: 1,
    })
    .unwrap()
}

/// The spool as the attacker sees it: a mapping of the same pages at another address.
struct Theirs {
    base: *mut u8,
    len: usize,
    mapped: bool,
}

impl Theirs {
    fn of(reader: &Reader) -> Theirs {
        let (base, len) = reader.mapping();
        if cfg!(miri) {
            // Miri does not support shared mappings; there it is the same memory.
            let mapped = false;
            return Theirs { base, len, mapped };
        }
        // SAFETY: this creates a fresh mapping of the whole file, at an address that the kernel
        // chooses.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                std::os::fd::AsRawFd::as_raw_fd(&reader.fd()),
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED);
        let (base, mapped) = (base.cast(), true);
        Theirs { base, len, mapped }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.len);
        // SAFETY: the word is inside the mapping and aligned.
        unsafe { AtomicU64::from_ptr(self.base.add(offset).cast()) }
    }

    fn half(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.len);
        // SAFETY: the word is inside the mapping and aligned.
        unsafe { AtomicU32::from_ptr(self.base.add(offset).cast()) }
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        if self.mapped {
            // SAFETY: this is the mapping made in `of`, and nothing refers to it any more.
            unsafe { libc::munmap(self.base.cast(), self.len) };
        }
    }
}

// SAFETY: this value gives out nothing but atomics.
unsafe impl Sync for Theirs {}

fn area(reader: &Reader) -> Area {
    // SAFETY: the reader outlives the area in each test.
    unsafe { reader.area() }.unwrap()
}

fn record(n: u64) -> Api {
    Api {
        header: Header {
            size: size_of::<Api>() as u16,
            kind: kind::HSA_CORE_API,
            ..Default::default()
        },
        start: n,
        ..Default::default()
    }
}

/// The values to which the words of the layout are rewritten, in turn.
const LIES: [u64; 6] = [0, 1, u64::MAX, 1 << 40, 63, CHUNK as u64];

/// Rewrites the whole head and the heads of the chunks.
fn rewrite(theirs: &Theirs, round: u64) {
    let lie = LIES[round as usize % LIES.len()];
    for offset in [
        offset_of!(Head, magic),
        offset_of!(Head, total_size),
        offset_of!(Head, settings_at),
        offset_of!(Head, settings_len),
        offset_of!(Head, chunks_at),
        offset_of!(Head, chunk_count),
        offset_of!(Head, claim),
    ] {
        theirs.word(offset).store(lie, Relaxed);
    }
    let version = offset_of!(Head, version);
    theirs.half(version).store(lie as u32, Relaxed);
    for index in 0..CHUNKS {
        let at = theirs.len - (CHUNKS - index) * CHUNK;
        let state = at + offset_of!(ChunkHead, state);
        theirs.half(state).store(chunk::FREE, Release);
        let committed = at + offset_of!(ChunkHead, committed);
        theirs.half(committed).store(lie as u32, Relaxed);
    }
}

/// The words were read and checked once, so changing them later has no effect.
#[test]
fn a_head_that_is_rewritten_moves_nothing() {
    let reader = spool();
    let (area, theirs) = (area(&reader), Theirs::of(&reader));
    let mut writer = ChunkWriter::new();
    for lie in LIES {
        theirs
            .word(offset_of!(Head, chunk_count))
            .store(lie, Relaxed);
        theirs.word(offset_of!(Head, chunks_at)).store(lie, Relaxed);
        theirs
            .word(offset_of!(Head, settings_at))
            .store(lie, Relaxed);
        theirs
            .word(offset_of!(Head, settings_len))
            .store(lie, Relaxed);
        assert!(area.has_capacity(CHUNK_BODY), "{lie}");
        // SAFETY: the area is mapped and the writer belongs to it.
        let stored = unsafe { writer.store(area, 1, kind::HSA_CORE_API, [record(1).bytes(), &[]]) };
        assert!(stored, "{lie}");
        // The next record claims another chunk.
        // SAFETY: as above, and nothing is stored now.
        unsafe { writer.seal() };
        assert_eq!(&area.settings()[..], SETTINGS, "{lie}");
        for index in 0..CHUNKS {
            let at = theirs.len - (CHUNKS - index) * CHUNK;
            theirs
                .half(at + offset_of!(ChunkHead, state))
                .store(chunk::FREE, Relaxed);
        }
    }
}

/// Counts a thread out even if it panics; otherwise the others would wait for it.
struct Leaves<'a>(&'a AtomicUsize);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Release);
    }
}

/// Some threads store, one rewrites everything, and the reader drains, all at the same time.
#[test]
fn threads_store_while_the_head_is_rewritten() {
    let (records, rewrites) = if cfg!(miri) {
        (60, 20)
    } else {
        (200_000, 2000)
    };
    let mut reader = spool();
    let (area, theirs) = (area(&reader), Theirs::of(&reader));
    let (at_work, stored) = (AtomicUsize::new(2), AtomicU64::new(0));
    let rewritten = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 1..=2 {
            let (at_work, stored, rewritten) = (&at_work, &stored, &rewritten);
            scope.spawn(move || {
                let _leaves = Leaves(at_work);
                let mut writer = ChunkWriter::new();
                let mut done = 0;
                while done < records || !rewritten.load(Acquire) {
                    // SAFETY: the area is mapped and the writer belongs to it.
                    let good = unsafe {
                        let record = record(done);
                        writer.store(area, thread, kind::HSA_CORE_API, [record.bytes(), &[]])
                    };
                    stored.fetch_add(good.into(), Relaxed);
                    done += 1;
                    if done.is_multiple_of(16) {
                        std::hint::black_box(area.has_capacity(2 * CHUNK));
                        assert_eq!(area.settings().len(), SETTINGS.len());
                        // SAFETY: as above, and nothing is stored now.
                        unsafe { writer.seal() };
                        std::thread::yield_now();
                    }
                }
            });
        }
        let (theirs, at_work, rewritten) = (&theirs, &at_work, &rewritten);
        scope.spawn(move || {
            let mut round = 0;
            while at_work.load(Acquire) != 0 {
                rewrite(theirs, round);
                round += 1;
                if round == rewrites {
                    rewritten.store(true, Release);
                }
                std::thread::yield_now();
            }
        });
        while at_work.load(Acquire) != 0 {
            let Ok(taken) = reader.drain(|run| {
                assert!(run.len() <= CHUNK_BODY && run.len().is_multiple_of(8));
                Ok::<_, Infallible>(())
            });
            assert!(taken <= CHUNKS * CHUNK_BODY);
            std::thread::yield_now();
        }
    });
    assert!(stored.load(Relaxed) > 0);
}

/// Everything that does not describe a valid spool is refused.
#[test]
fn only_a_whole_layout_is_taken() {
    let reader = spool();
    let theirs = Theirs::of(&reader);
    let words = [
        (offset_of!(Head, magic), [0, 1, u64::MAX, 7]),
        (offset_of!(Head, total_size), [0, 4096, u64::MAX, 1 << 20]),
        (offset_of!(Head, settings_at), [0, 4097, u64::MAX, 1 << 32]),
        (
            offset_of!(Head, settings_len),
            [u64::MAX - 1, u64::MAX, 1 << 32, 1 << 30],
        ),
        (
            offset_of!(Head, chunks_at),
            [0, u64::MAX - 63, 1 << 32, 8200],
        ),
        (
            offset_of!(Head, chunk_count),
            [0, u64::MAX, 1 << 48, CHUNKS as u64 + 1],
        ),
    ];
    for (offset, lies) in words {
        let word = theirs.word(offset);
        let before = word.load(Relaxed);
        for lie in lies {
            word.store(lie, Relaxed);
            let (base, len) = reader.mapping();
            // SAFETY: it is the reader's mapping, which lives as long as the reader.
            let taken = unsafe { Area::new(base, len) };
            assert!(taken.is_none(), "{offset}: {lie}");
        }
        word.store(before, Relaxed);
    }
    let version = theirs.half(offset_of!(Head, version));
    let before = version.swap(midair_record::VERSION + 1, Relaxed);
    let (base, len) = reader.mapping();
    // SAFETY: as above.
    let taken = unsafe { Area::new(base, len) };
    assert!(taken.is_none(), "another version");
    version.store(before, Relaxed);
    area(&reader);
}
