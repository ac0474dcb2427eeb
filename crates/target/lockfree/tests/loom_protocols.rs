//! Models of protocols of other crates whose code loom cannot run (shared mappings, `membarrier`,
//! the device). Each model repeats the protocol's steps with the same memory orders. Whoever
//! changes a protocol changes its model, too. Only with `--cfg loom`.

#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};
use loom::thread;

/// The protocol of `sdk-hot`'s `probe`: a thread sets its `busy` word, then reads the generation.
/// The worker thread moves the generation, then reads every `busy`. `membarrier` on the worker's
/// side stands for a fence on both sides.
struct Session {
    busy: AtomicU32,
    generation: AtomicU64,
    /// What a record store writes to, and what the worker thread unmaps.
    spool: UnsafeCell<u32>,
}

impl Session {
    /// Models `Busy::enter`, a record store, and the end of `Busy`.
    fn store_a_record(&self) -> bool {
        self.busy.store(1, Relaxed);
        fence(SeqCst);
        let inside = self.generation.load(Acquire) != 0;
        if inside {
            // SAFETY: this is what the model tests: loom reports it if another thread has access.
            self.spool.with_mut(|spool| unsafe { *spool += 1 });
        }
        self.busy.store(0, Release);
        inside
    }

    /// Models `stop` and `quiesce`.
    fn stop(&self) -> u32 {
        self.generation.store(0, SeqCst);
        fence(SeqCst);
        while self.busy.load(Acquire) != 0 {
            thread::yield_now();
        }
        // SAFETY: as above.
        self.spool
            .with_mut(|spool| unsafe { std::mem::replace(&mut *spool, 99) })
    }
}

#[test]
fn nobody_is_inside_a_record_store_once_a_session_has_stopped() {
    loom::model(|| {
        let session = Arc::new(Session {
            busy: AtomicU32::new(0),
            generation: AtomicU64::new(1),
            spool: UnsafeCell::new(0),
        });
        let thread = {
            let session = session.clone();
            thread::spawn(move || {
                u32::from(session.store_a_record()) + u32::from(session.store_a_record())
            })
        };
        let seen = session.stop();
        assert_eq!(thread.join().unwrap(), seen);
    });
}

/// The protocol of `sdk-device`'s `symbols::leaving`. The thread that destroys an executable marks
/// it, and reads whether the worker thread is looking. The worker thread says that it looks, and
/// reads the mark. Both sides are sequentially consistent, which loom models for fences only.
#[test]
fn no_executable_is_destroyed_while_it_is_looked_at() {
    loom::model(|| {
        let marked = Arc::new(AtomicBool::new(false));
        let looking = Arc::new(AtomicBool::new(false));
        let executable = Arc::new(UnsafeCell::new(()));
        let worker = {
            let (marked, looking, executable) =
                (marked.clone(), looking.clone(), executable.clone());
            thread::spawn(move || {
                looking.store(true, Release);
                fence(SeqCst);
                if !marked.load(Acquire) {
                    executable.with(|_| ());
                }
                looking.store(false, Release);
            })
        };
        marked.store(true, Release);
        fence(SeqCst);
        while looking.load(Acquire) {
            thread::yield_now();
        }
        executable.with_mut(|_| ());
        worker.join().unwrap();
    });
}

const UNDER_WAY: u32 = 0;
const READING: u32 = 1;
const SEEN: u32 = 2;
const WRITTEN: u32 = 4;

/// The protocol of `sdk-device`'s `queue::flight`: a ring that one producer at a time fills (under
/// the queue's spin word) and the worker thread empties. A thread of the application may read the
/// times of one entry whose address it has. The ring has one entry, so that the second dispatch
/// uses the first one's entry.
struct Flights {
    head: AtomicU64,
    tail: AtomicU64,
    stage: AtomicU32,
    facts: UnsafeCell<u64>,
}

impl Flights {
    fn push(&self, facts: u64) -> bool {
        let tail = self.tail.load(Relaxed);
        if tail - self.head.load(Acquire) >= 1 {
            return false;
        }
        // SAFETY: this is what the model tests.
        self.facts.with_mut(|cell| unsafe { *cell = facts });
        self.stage.store(UNDER_WAY, Release);
        self.tail.store(tail + 1, Release);
        true
    }

    /// Models `read_own_signal`, called by a thread of the application, perhaps with an address
    /// from an earlier lap.
    fn read_own_signal(&self) {
        if self
            .stage
            .compare_exchange(UNDER_WAY, READING, AcqRel, Relaxed)
            .is_ok()
        {
            // SAFETY: this is what the model tests.
            let facts = self.facts.with(|cell| unsafe { *cell });
            assert!(facts == 7 || facts == 8);
            self.stage.store(SEEN, Release);
        }
    }

    /// Models a pass of the worker thread: it writes a record where the times are known or can be
    /// read, and frees the entry.
    fn pass(&self) -> Option<u64> {
        let (head, tail) = (self.head.load(Relaxed), self.tail.load(Acquire));
        if head == tail {
            return None;
        }
        let mine = match self.stage.load(Acquire) {
            SEEN => true,
            UNDER_WAY => self
                .stage
                .compare_exchange(UNDER_WAY, READING, AcqRel, Acquire)
                .is_ok(),
            _ => false,
        };
        if !mine {
            return None;
        }
        // SAFETY: this is what the model tests.
        let facts = self.facts.with(|cell| unsafe { *cell });
        self.stage.store(WRITTEN, Release);
        self.head.store(head + 1, Release);
        Some(facts)
    }
}

#[test]
fn a_dispatch_is_written_once_whoever_reads_its_times() {
    loom::model(|| {
        let flights = Arc::new(Flights {
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            stage: AtomicU32::new(UNDER_WAY),
            facts: UnsafeCell::new(0),
        });
        assert!(flights.push(7));
        let application = {
            let flights = flights.clone();
            thread::spawn(move || flights.read_own_signal())
        };
        let worker = {
            let flights = flights.clone();
            thread::spawn(move || {
                let mut written = Vec::new();
                while written.len() < 2 {
                    match flights.pass() {
                        Some(facts) => written.push(facts),
                        None => thread::yield_now(),
                    }
                }
                written
            })
        };
        // The second dispatch finds room when the first one's record is written.
        while !flights.push(8) {
            thread::yield_now();
        }
        application.join().unwrap();
        assert_eq!(worker.join().unwrap(), [7, 8]);
    });
}

const FREE: u32 = 0;
const OPEN: u32 = 1;
const SEALED: u32 = 2;

/// The protocol of `record`'s spool: a thread of the target claims and fills a chunk, which the
/// attaching side reads and frees.
struct Chunk {
    state: AtomicU32,
    committed: AtomicU32,
    records: [UnsafeCell<u32>; 2],
}

impl Chunk {
    fn claim(&self) -> bool {
        self.state
            .compare_exchange(FREE, OPEN, AcqRel, Relaxed)
            .is_ok()
    }

    fn store(&self, at: u32, record: u32) {
        // SAFETY: this is what the model tests.
        self.records[at as usize].with_mut(|cell| unsafe { *cell = record });
        self.committed.store(at + 1, Release);
    }

    /// Reads what was committed after `from`, and returns whether the chunk is free now.
    fn read(&self, from: u32, into: &mut Vec<u32>) -> bool {
        if self.state.load(Acquire) == FREE {
            return false;
        }
        let sealed = self.state.load(Acquire) == SEALED;
        let committed = self.committed.load(Acquire);
        for at in from..committed {
            // SAFETY: this is what the model tests.
            into.push(self.records[at as usize].with(|cell| unsafe { *cell }));
        }
        if sealed {
            self.committed.store(0, Relaxed);
            self.state.store(FREE, Release);
        }
        sealed
    }
}

#[test]
fn every_record_of_a_chunk_is_read_once_and_whole() {
    loom::model(|| {
        let chunk = Arc::new(Chunk {
            state: AtomicU32::new(FREE),
            committed: AtomicU32::new(0),
            records: [UnsafeCell::new(0), UnsafeCell::new(0)],
        });
        let writer = {
            let chunk = chunk.clone();
            thread::spawn(move || {
                assert!(chunk.claim());
                chunk.store(0, 1);
                chunk.store(1, 2);
                chunk.state.store(SEALED, Release);
                // If the chunk is full, the next record needs a free chunk, and is dropped where
                // there is none.
                let fits = chunk.claim();
                if fits {
                    chunk.store(0, 3);
                    chunk.state.store(SEALED, Release);
                }
                fits
            })
        };
        let mut records = Vec::new();
        let mut from = 0;
        for _ in 0..2 {
            let before = records.len();
            let freed = chunk.read(from, &mut records);
            from = if freed {
                0
            } else {
                from + (records.len() - before) as u32
            };
        }
        let fits = writer.join().unwrap();
        chunk.read(from, &mut records);
        let expected: &[u32] = if fits { &[1, 2, 3] } else { &[1, 2] };
        assert_eq!(records, expected);
    });
}

const UNLOCKED: u32 = 0;
const LOCKED: u32 = 1;

/// The protocol of `sdk-device`'s spin word of a queue. A thread that rings a doorbell waits for
/// the word for a bounded time, and then skips the queue. The worker thread waits until it has the
/// word.
struct Doorbell {
    word: AtomicU32,
    /// What is noted of the dispatches, protected by the word.
    noted: UnsafeCell<u32>,
    /// The number of dispatches that were skipped.
    passed_by: AtomicU32,
}

impl Doorbell {
    fn try_lock(&self) -> bool {
        self.word
            .compare_exchange(UNLOCKED, LOCKED, Acquire, Relaxed)
            .is_ok()
    }

    fn note(&self) {
        // SAFETY: this is what the model tests.
        self.noted.with_mut(|noted| unsafe { *noted += 1 });
        self.word.store(UNLOCKED, Release);
    }

    /// One try stands for all tries up to the bound.
    fn ring(&self) {
        if self.try_lock() {
            self.note();
        } else {
            self.passed_by.fetch_add(1, Relaxed);
        }
    }
}

#[test]
fn a_doorbell_is_noted_by_one_at_a_time_or_passed_by() {
    loom::model(|| {
        let doorbell = Arc::new(Doorbell {
            word: AtomicU32::new(UNLOCKED),
            noted: UnsafeCell::new(0),
            passed_by: AtomicU32::new(0),
        });
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let doorbell = doorbell.clone();
                thread::spawn(move || doorbell.ring())
            })
            .collect();
        while !doorbell.try_lock() {
            thread::yield_now();
        }
        doorbell.note();
        for thread in threads {
            thread.join().unwrap();
        }
        // SAFETY: this is what the model tests. All threads have ended.
        let noted = doorbell.noted.with(|noted| unsafe { *noted });
        assert_eq!(noted + doorbell.passed_by.load(Relaxed), 3);
        assert!(noted >= 1);
    });
}

const PARKED: u32 = 4;
const KICK: u32 = 5;
const HANDED: u32 = 8;
const TALKING: u32 = 3;

/// The protocol of a boot block's mailbox and `handed`: the process's listener hands a connection
/// to the parked worker thread, while an attacher that traces wakes it by a plain store from
/// outside.
struct Mailbox {
    word: AtomicU32,
    handed: AtomicU32,
    /// How often the connection was closed or used.
    owned: AtomicU32,
}

impl Mailbox {
    /// Models `hand_over` of `register`. Returns whether the listener is to wake the thread.
    fn hand_over(&self) -> bool {
        if self.word.load(Acquire) != PARKED {
            // The connection stays with the listener.
            self.owned.fetch_add(1, Relaxed);
            return false;
        }
        if self.handed.swap(1, AcqRel) != 0 {
            self.owned.fetch_add(1, Relaxed);
        }
        let changed = self
            .word
            .compare_exchange(PARKED, HANDED, AcqRel, Acquire)
            .is_ok();
        if !changed && self.handed.swap(0, AcqRel) != 0 {
            self.owned.fetch_add(1, Relaxed);
        }
        changed
    }

    /// Models the wait of `guest`, and what follows it. The connection is used after `HANDED`, and
    /// closed after `KICK`.
    fn wake_up(&self) -> u32 {
        loop {
            let seen = self.word.load(Acquire);
            if seen != PARKED {
                if self.handed.swap(0, SeqCst) != 0 {
                    self.owned.fetch_add(1, Relaxed);
                }
                self.word.store(TALKING, Release);
                return seen;
            }
            thread::yield_now();
        }
    }
}

#[test]
fn a_connection_that_is_handed_over_has_one_owner() {
    loom::model(|| {
        let mailbox = Arc::new(Mailbox {
            word: AtomicU32::new(PARKED),
            handed: AtomicU32::new(0),
            owned: AtomicU32::new(0),
        });
        let worker = {
            let mailbox = mailbox.clone();
            thread::spawn(move || mailbox.wake_up())
        };
        let listener = {
            let mailbox = mailbox.clone();
            thread::spawn(move || mailbox.hand_over())
        };
        // This is the kernel's store for an attacher that has seen the thread parked.
        mailbox.word.store(KICK, Release);
        let seen = worker.join().unwrap();
        listener.join().unwrap();
        assert!(seen == KICK || seen == HANDED);
        // What is still in the block goes to the next thread that looks there. It is taken once.
        let left = mailbox.handed.load(Relaxed);
        assert_eq!(mailbox.owned.load(Relaxed) + left, 1);
    });
}

/// The protocol of `cuda`'s pool: bits of free and filled buffers. CUPTI's threads take and return
/// buffers, and the worker thread reads and frees them. There is one buffer.
struct Pool {
    free: AtomicU32,
    full: AtomicU32,
    buffer: UnsafeCell<u32>,
}

impl Pool {
    /// Models a thread of CUPTI's: it takes the buffer, fills it and returns it.
    fn fill(&self) -> bool {
        if self.free.fetch_and(!1, AcqRel) & 1 == 0 {
            return false;
        }
        // SAFETY: this is what the model tests.
        self.buffer.with_mut(|buffer| unsafe { *buffer += 1 });
        self.full.fetch_or(1, Release);
        true
    }

    /// Models the worker thread: it reads what is full and frees it.
    fn read(&self) -> bool {
        if self.full.swap(0, AcqRel) == 0 {
            return false;
        }
        // SAFETY: this is what the model tests.
        self.buffer.with(|buffer| unsafe { assert!(*buffer > 0) });
        self.free.fetch_or(1, Release);
        true
    }
}

#[test]
fn a_buffer_of_cuptis_is_filled_or_read_by_one() {
    loom::model(|| {
        let pool = Arc::new(Pool {
            free: AtomicU32::new(1),
            full: AtomicU32::new(0),
            buffer: UnsafeCell::new(0),
        });
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let pool = pool.clone();
                thread::spawn(move || pool.fill())
            })
            .collect();
        let mut read = u32::from(pool.read());
        let filled: u32 = threads
            .into_iter()
            .map(|thread| u32::from(thread.join().unwrap()))
            .sum();
        read += u32::from(pool.read());
        assert_eq!(read, filled);
        assert!(filled >= 1);
    });
}
