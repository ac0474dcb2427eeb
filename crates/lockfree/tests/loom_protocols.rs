//! Protocols of other crates whose code loom cannot run (shared mappings, `membarrier`, the
//! device): the same steps with the same memory orders, written down again. Whoever changes the
//! protocol changes its model. Only with `--cfg loom`.

#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};
use loom::thread;

/// `sdk-hot`'s `probe`: a thread sets its `busy` word, then reads the generation; the worker thread
/// moves the generation, then reads every `busy`. `membarrier` on the worker's side stands for a
/// fence on both sides.
struct Session {
    busy: AtomicU32,
    generation: AtomicU64,
    /// What a record store writes to, and the worker thread unmaps.
    spool: UnsafeCell<u32>,
}

impl Session {
    /// `Busy::enter`, a record store, the end of `Busy`.
    fn store_a_record(&self) -> bool {
        self.busy.store(1, Relaxed);
        fence(SeqCst);
        let inside = self.generation.load(Acquire) != 0;
        if inside {
            // SAFETY: the model's question: loom reports it where another thread has access.
            self.spool.with_mut(|spool| unsafe { *spool += 1 });
        }
        self.busy.store(0, Release);
        inside
    }

    /// `stop` and `quiesce`.
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

/// `sdk-device`'s `symbols::leaving`: the thread that destroys an executable marks it and reads
/// whether the worker thread looks; the worker thread says that it looks and reads the mark. Both
/// sides are sequentially consistent; loom knows that of fences only.
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

/// `sdk-device`'s `queue::flight`: a ring that one producer fills at a time (under the queue's spin
/// word), that the worker thread empties, and of which an application's thread may read the times
/// of one entry that it has the address of. A ring of one entry, so that the second dispatch uses
/// the first one's.
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
        // SAFETY: the model's question.
        self.facts.with_mut(|cell| unsafe { *cell = facts });
        self.stage.store(UNDER_WAY, Release);
        self.tail.store(tail + 1, Release);
        true
    }

    /// `read_own_signal`: by an application's thread, perhaps with an address from an earlier lap.
    fn read_own_signal(&self) {
        if self
            .stage
            .compare_exchange(UNDER_WAY, READING, AcqRel, Relaxed)
            .is_ok()
        {
            // SAFETY: the model's question.
            let facts = self.facts.with(|cell| unsafe { *cell });
            assert!(facts == 7 || facts == 8);
            self.stage.store(SEEN, Release);
        }
    }

    /// A pass of the worker thread: writes a record where the times are known or can be read, and frees the entry.
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
        // SAFETY: the model's question.
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
        // The second dispatch finds room when the first one is written.
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

/// `record`'s spool: a chunk that a thread of the target claims and fills, and that the attaching side reads and frees.
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
        // SAFETY: the model's question.
        self.records[at as usize].with_mut(|cell| unsafe { *cell = record });
        self.committed.store(at + 1, Release);
    }

    /// What was committed after `from`; whether the chunk is free now.
    fn read(&self, from: u32, into: &mut Vec<u32>) -> bool {
        if self.state.load(Acquire) == FREE {
            return false;
        }
        let sealed = self.state.load(Acquire) == SEALED;
        let committed = self.committed.load(Acquire);
        for at in from..committed {
            // SAFETY: the model's question.
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
                // Full: the next record needs a chunk that is free, and is dropped where there is none.
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

/// `sdk-device`'s spin word of a queue: who rings a doorbell waits for it a bounded time, then
/// passes the queue by; the worker thread waits until it has it.
struct Doorbell {
    word: AtomicU32,
    /// What is noted of the dispatches, under the word.
    noted: UnsafeCell<u32>,
    /// Dispatches that were passed by.
    passed_by: AtomicU32,
}

impl Doorbell {
    fn try_lock(&self) -> bool {
        self.word
            .compare_exchange(UNLOCKED, LOCKED, Acquire, Relaxed)
            .is_ok()
    }

    fn note(&self) {
        // SAFETY: the model's question.
        self.noted.with_mut(|noted| unsafe { *noted += 1 });
        self.word.store(UNLOCKED, Release);
    }

    /// One try stands for all of them until the bound.
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
        // SAFETY: the model's question; all have ended.
        let noted = doorbell.noted.with(|noted| unsafe { *noted });
        assert_eq!(noted + doorbell.passed_by.load(Relaxed), 3);
        assert!(noted >= 1);
    });
}

const PARKED: u32 = 4;
const KICK: u32 = 5;
const HANDED: u32 = 8;
const TALKING: u32 = 3;

/// A boot block's mailbox and `handed`: the process's listener hands a connection to the parked
/// worker thread while an attacher that traces wakes it by a plain store from outside.
struct Mailbox {
    word: AtomicU32,
    handed: AtomicU32,
    /// How often the connection was closed or used.
    owned: AtomicU32,
}

impl Mailbox {
    /// `register`'s `hand_over`: whether the thread is to be woken by it.
    fn hand_over(&self) -> bool {
        if self.word.load(Acquire) != PARKED {
            // The connection stays the listener's.
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

    /// `guest`'s wait and what follows it. The connection is used after `HANDED`, and closed after
    /// `KICK`.
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
        // The kernel's store for an attacher that has seen the thread parked.
        mailbox.word.store(KICK, Release);
        let seen = worker.join().unwrap();
        listener.join().unwrap();
        assert!(seen == KICK || seen == HANDED);
        // What is still in the block goes to the next one that looks there; nobody has it twice.
        let left = mailbox.handed.load(Relaxed);
        assert_eq!(mailbox.owned.load(Relaxed) + left, 1);
    });
}

/// `cuda`'s pool: bits of free and filled buffers, taken and returned by CUPTI's threads, read and
/// freed by the worker thread. One buffer.
struct Pool {
    free: AtomicU32,
    full: AtomicU32,
    buffer: UnsafeCell<u32>,
}

impl Pool {
    /// A thread of CUPTI's: takes the buffer, fills it, returns it.
    fn fill(&self) -> bool {
        if self.free.fetch_and(!1, AcqRel) & 1 == 0 {
            return false;
        }
        // SAFETY: the model's question.
        self.buffer.with_mut(|buffer| unsafe { *buffer += 1 });
        self.full.fetch_or(1, Release);
        true
    }

    /// The worker thread: reads what is full and frees it.
    fn read(&self) -> bool {
        if self.full.swap(0, AcqRel) == 0 {
            return false;
        }
        // SAFETY: the model's question.
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
