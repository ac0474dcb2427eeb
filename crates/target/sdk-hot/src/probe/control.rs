//! The page that all threads read.

use midair_domain::AtomicKindSet;
use midair_record::spool::Area;
use std::cell::UnsafeCell;
use std::sync::atomic::AtomicU64;

/// Shared state of a session, in its own page, which a fork wipes (all zero = off).
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Control {
    /// 0 = off, else the number of the session.
    pub generation: AtomicU64,
    /// 1 while new work is recorded. 0 while a session closes, when only work that started before is
    /// completed.
    pub accepting: AtomicU64,
    /// Kinds whose calls get a correlation id.
    pub tracked: AtomicKindSet,
    /// Kinds whose calls are recorded; a subset of `tracked`.
    pub recorded: AtomicKindSet,
    /// Kinds whose calls are reported to tools; a subset of `tracked`.
    pub called: AtomicKindSet,
    /// Kinds of the device's work and memory that hooks trace, until the very end of the session.
    pub device: AtomicKindSet,
    /// While the program has paused the recording and no other tool wants records: the kinds that
    /// are not looked at when they start. Otherwise empty.
    pub cut: AtomicKindSet,
    /// [`midair_record::event::flag::PAUSED`] for what starts while the program has paused the
    /// recording, otherwise 0.
    pub pause_flag: AtomicU64,
    /// How many captures of HIP's graphs have started and not ended, as far as the session has seen both.
    pub captures: AtomicU64,
    /// The spool of the session. Written only while no thread can be inside (generation 0, and
    /// every thread seen outside).
    pub area: UnsafeCell<Option<Area>>,
    /// 1 after this process has made or replaced our state; a forked child finds 0.
    pub ours: AtomicU64,
    /// Keeps the counter, which every call writes, out of the cache line that every call reads.
    pub apart: [u64; 18],
    /// The next correlation id.
    pub next_correlation: AtomicU64,
}
