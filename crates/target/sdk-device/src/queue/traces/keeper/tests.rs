//! Traces on modelled queues: who has a trace's memory, and until when.

use super::super::set_plan;
use super::super::shared::STUCK;
use super::{Keeper, PAIRS, close};
use crate::queue::model::{ALLOCATED, DISPATCH, ModelQueue, Session};
use crate::queue::points::{Point, at};
use crate::queue::queue_state::Life;
use crate::state::STATE;
use midair_record::event::{Plain, TraceData, kind};
use midair_record::trace_plan::{Engine, Spot, Trace};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

/// Bytes of the buffer, which the spool of a session cannot take at once.
const BYTES: u64 = 3 << 20;
/// The header of commands that are skipped: their number, less one, is not 0.
const SKIPPED: u32 = 0x3fff << 16;

struct Tracing {
    session: Session,
    queue: ModelQueue,
    keeper: Rc<RefCell<Keeper>>,
    allocated: i64,
}

impl Tracing {
    fn begin() -> Tracing {
        let session = Session::begin();
        STATE.windows.choices.clear();
        set_plan(vec![Trace {
            node: 1,
            memory: 0x1000 + BYTES,
            engines: vec![Engine {
                number: 0,
                offset: 0x1000,
                bytes: BYTES,
                header: 7,
            }],
            start: vec![1, 2, 3],
            start_spots: vec![Spot {
                word: 0,
                shift: 0,
                offset: 16,
            }],
            stop: vec![4, 5],
            ..Trace::default()
        }]);
        let allocated = ALLOCATED.load(SeqCst);
        let keeper = Keeper::open();
        assert_eq!((keeper.agents.len(), keeper.pairs.len()), (1, PAIRS));
        let queue = session.queue_of(512);
        queue.state.watches_room.store(1, SeqCst);
        let mut it = Tracing {
            session,
            queue,
            keeper: Rc::new(RefCell::new(keeper)),
            allocated,
        };
        it.pass();
        it
    }

    fn pass(&mut self) {
        self.session.pass();
        self.keeper.borrow_mut().pass(&mut self.session.sink);
    }

    fn word(&self, offset: u64) -> &AtomicU64 {
        let at = self.keeper.borrow().agents[0].memory.at + offset;
        // SAFETY: a word of the trace's memory, which the keeper has until the test's end.
        unsafe { &*std::ptr::with_exposed_provenance(at as usize) }
    }

    /// The application launches a kernel. Returns its packet, and the pair around it if there is one.
    fn launch(&self) -> (u64, u16) {
        let index = self.reserve();
        self.queue.ring(index as i64);
        (index, self.pair(index))
    }

    fn reserve(&self) -> u64 {
        let index = self.queue.reserve_one();
        self.queue.write(index, DISPATCH, 0);
        index
    }

    fn pair(&self, index: u64) -> u16 {
        self.queue.state.reserver(index).unwrap().window
    }

    /// Returns whether the device would execute the commands of both packets.
    fn is_open(&self, index: u64) -> bool {
        let open = [index - 1, index + 1].map(|packet| {
            let at = self.queue.words(packet)[1] as usize;
            // SAFETY: these are midair's commands, which the keeper has until the test's end.
            unsafe { std::ptr::with_exposed_provenance::<u32>(at).read() & SKIPPED == 0 }
        });
        assert_eq!(open[0], open[1]);
        open[0]
    }

    /// The device executes both packets, and writes blocks of 32 bytes where they are open.
    fn execute(&self, index: u64, blocks: u64) {
        if self.is_open(index) {
            self.word(16).store(5, SeqCst);
            self.word(8).store(blocks, SeqCst);
        }
        self.queue.signal(index - 1).fire(10, 11);
        self.queue.signal(index + 1).fire(20, 21);
    }

    fn owner(&self) -> u32 {
        STATE.traces.owners[0].load(SeqCst)
    }

    /// Returns how many bytes of traces were read since the last call.
    fn bytes(&mut self) -> u64 {
        let mut bytes = 0;
        self.session.records(|header, record| {
            if header.kind == kind::THREAD_TRACE {
                let part = TraceData::read(record).unwrap();
                assert_eq!(part.trace, 1);
                bytes += u64::from(part.bytes);
            }
        });
        bytes
    }

    /// Ends the session. Returns its notes, and how many pieces of memory stay allocated.
    fn end(mut self) -> (String, i64) {
        close();
        let mut keeper = self.keeper.take();
        keeper.finish(&mut self.session.sink);
        keeper.release(&mut self.session.sink);
        set_plan(Vec::new());
        let mut notes = String::new();
        self.session.records(|header, record| {
            if header.kind == kind::NOTE {
                notes += &String::from_utf8_lossy(&record[..usize::from(header.size)]);
            }
        });
        (notes, ALLOCATED.load(SeqCst) - self.allocated)
    }
}

#[test]
fn a_pair_is_not_used_again_before_its_trace_is_read() {
    let mut it = Tracing::begin();
    let (index, pair) = it.launch();
    assert!(pair != 0 && it.is_open(index));
    it.execute(index, BYTES / 32);
    it.pass();
    assert_eq!(it.owner(), u32::from(pair), "the spool has no room for all");
    // The device executes more kernels than there are pairs.
    for _ in 0..2 * PAIRS {
        let (index, other) = it.launch();
        assert_ne!(other, pair);
        assert!(other != 0 && !it.is_open(index));
        it.execute(index, 1);
        it.pass();
    }
    let mut bytes = 0;
    for _ in 0..100 {
        bytes += it.bytes();
        it.pass();
    }
    assert_eq!((bytes, it.owner()), (8 + BYTES, 0));
    // The next kernel is traced, with any pair.
    let (index, _) = it.launch();
    assert!(it.is_open(index));
    it.execute(index, 1);
    it.pass();
    assert_eq!(STATE.traces.busy.load(SeqCst), 2 * PAIRS as u64);
    let (notes, left) = it.end();
    assert!(notes.contains("was not read yet: 64"), "{notes}");
    assert_eq!(left, 0);
}

#[test]
fn a_pair_is_not_ready_while_a_thread_opens_it() {
    let mut it = Tracing::begin();
    let index = it.reserve();
    // The device skips the packets early, and the worker thread looks while a thread opens them.
    it.execute(index, 0);
    let keeper = Rc::clone(&it.keeper);
    at(Point::Opening, move || {
        keeper.borrow_mut().harvest(false);
    });
    it.queue.ring(index as i64);
    let pair = it.pair(index);
    assert_eq!(it.owner(), u32::from(pair));
    it.pass();
    assert!(!it.is_open(index));
    assert_eq!(it.owner(), 0);
    let (notes, left) = it.end();
    assert!(notes.contains("before their doorbell"), "{notes}");
    assert_eq!(left, 0);
}

#[test]
fn a_trace_that_a_queue_leaves_running_keeps_its_memory() {
    for fires in [true, false] {
        let mut it = Tracing::begin();
        let (index, pair) = it.launch();
        if fires {
            it.queue.signal(index - 1).fire(10, 11);
        } else {
            // The start runs: it has written the time.
            it.word(16).store(5, SeqCst);
        }
        it.queue.state.life.store(Life::Gone, SeqCst);
        it.pass();
        assert_eq!(it.owner(), STUCK, "not {pair}");
        // On another queue nothing is traced.
        it.queue = it.session.queue_of(512);
        it.queue.state.watches_room.store(1, SeqCst);
        it.pass();
        let (index, other) = it.launch();
        assert!(other != 0 && other != pair && !it.is_open(index));
        it.execute(index, 0);
        it.pass();
        assert_eq!(it.keeper.borrow().under_way(), 0);
        let (notes, left) = it.end();
        assert!(
            notes.contains("destroyed during its thread trace"),
            "{notes}"
        );
        assert!(notes.contains("never ended: 1"), "{notes}");
        assert_eq!(left, 2);
    }
}

#[test]
fn a_queue_that_is_destroyed_before_its_trace_gives_the_memory_back() {
    let mut it = Tracing::begin();
    let (index, _) = it.launch();
    assert!(it.is_open(index));
    // A thread still looks at the queue's packets.
    let looks = it.queue.state.lock();
    it.queue.state.life.store(Life::Gone, SeqCst);
    it.keeper.borrow_mut().pass(&mut it.session.sink);
    assert!(it.is_open(index));
    drop(looks);
    it.pass();
    assert!(!it.is_open(index));
    assert_eq!(it.owner(), 0);
    assert_eq!(it.end().1, 0);
}

#[test]
fn a_trace_without_room_ends_at_its_first_missing_part() {
    let mut it = Tracing::begin();
    let (index, _) = it.launch();
    it.execute(index, BYTES / 32);
    it.pass();
    close();
    it.keeper.borrow_mut().finish(&mut it.session.sink);
    let (mut parts, mut end, mut notes) = (0, 0, String::new());
    it.session.records(|header, record| {
        if header.kind == kind::THREAD_TRACE {
            let part = TraceData::read(record).unwrap();
            assert_eq!(part.first, end, "a part is missing");
            end += u64::from(part.bytes);
            parts += 1;
        } else if header.kind == kind::NOTE {
            notes += &String::from_utf8_lossy(&record[..usize::from(header.size)]);
        }
    });
    assert!(notes.contains("is incomplete"), "{notes}");
    assert!(parts > 1 && end < BYTES, "{parts} {end}");
    assert_eq!(it.end().1, 0);
}

#[test]
fn launches_without_a_pair_are_counted_by_reason() {
    let it = Tracing::begin();
    for _ in 0..PAIRS + 3 {
        it.launch();
    }
    it.queue.state.watches_room.store(0, SeqCst);
    for _ in 0..2 {
        it.launch();
    }
    let notes = it.end().0;
    for line in ["packets around them: 5", "were in use: 3", "cannot see: 2"] {
        assert!(notes.contains(line), "{line}: {notes}");
    }
    assert!(!notes.contains("half full"), "{notes}");
}
