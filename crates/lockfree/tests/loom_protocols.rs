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
