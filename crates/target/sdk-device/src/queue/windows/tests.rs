//! Windows on modelled queues: where their packets are, what is rung, and how they end.

use super::keeper::Keeper;
use super::set_plan;
use crate::packet::Dispatch;
use crate::queue::model::{ALLOCATED, DISPATCH, ModelQueue, SIZE, Session, UserSignal};
use crate::queue::queue_state::Life;
use crate::queue::scan::Ring;
use crate::queue::state;
use crate::queue::subscriber::Enqueued;
use crate::queue::window::NO_DISPATCH;
use crate::state::STATE;
use midair_record::counter_plan::{Form, Group, Place, Plan};
use midair_record::event::{CounterWindow, Plain, WindowResult, kind};
use std::sync::atomic::Ordering::SeqCst;

/// A vendor packet with commands, with the barrier bit and no fences.
pub(super) const OURS: u64 = 0xc002_3f00_0001_0100;
pub(super) const BARRIER_AND: u16 = 3;

/// A session that counts, with one queue whose application checks for room in its ring.
pub(super) struct Counting {
    pub(super) session: Session,
    pub(super) queue: ModelQueue,
}

impl Counting {
    pub(super) fn begin() -> Counting {
        Counting::on(SIZE)
    }

    /// Starts with a ring of this size.
    pub(super) fn on(size: usize) -> Counting {
        let session = Session::begin();
        let place = Place {
            word: 1,
            form: Form::Bytes,
            offset: 16,
        };
        let group = |number| Group {
            node: 1,
            number,
            output_bytes: 24,
            start: vec![10 + number; 5],
            read_stop: vec![20 + number; 4],
            places: vec![place],
            ..Group::default()
        };
        set_plan(Plan {
            max_overhead: 100,
            interval: 0,
            exclusive: false,
            graph_kernels: false,
            groups: vec![group(0), group(1)],
            traces: Vec::new(),
        });
        let mut session = session;
        *session.harvester.counters() = Some(Keeper::open());
        let queue = session.queue_of(size);
        session.count();
        queue.state.watches_room.store(1, SeqCst);
        Counting { session, queue }
    }

    /// The device executes both midair packets around `index`. The first ends at `start`; the
    /// second starts at `end`, takes 5 ns, and writes `value` everywhere.
    pub(super) fn count(&self, index: u64, start: u64, end: u64, value: u64) {
        self.count_batch((index, 1), start, end, value);
    }

    /// The same around several packets from the first one on.
    fn count_batch(&self, (first, count): (u64, u64), start: u64, end: u64, value: u64) {
        self.queue.signal(first - 1).fire(start - 1, start);
        self.count_last(first + count - 1, end, value);
    }

    /// The same for a window on another queue of the session.
    fn count_on(&self, queue: &ModelQueue, index: u64) {
        queue.signal(index - 1).fire(99, 100);
        queue.signal(index + 1).fire(150, 155);
    }

    /// The device executes only the second packet.
    pub(super) fn count_last(&self, index: u64, end: u64, value: u64) {
        let commands = self.queue.words(index + 1)[1];
        let command = |n: usize| {
            let at = std::ptr::with_exposed_provenance::<u32>(commands as usize + 4 * n);
            // SAFETY: these are our commands, which stay until the keeper is released.
            u64::from(unsafe { at.read() })
        };
        let output = (command(1) | command(2) << 32) - 16;
        for word in 0..3 {
            let at = std::ptr::with_exposed_provenance_mut::<u64>(output as usize + 8 * word);
            // SAFETY: this is the window's output.
            unsafe { at.write(value + word as u64) };
        }
        self.queue.signal(index + 1).fire(end, end + 5);
    }

    pub(super) fn pass(&mut self) {
        self.session.pass();
        self.session.count();
    }

    pub(super) fn under_way(&mut self) -> u64 {
        let keeper = self.session.harvester.counters();
        keeper.as_ref().unwrap().under_way()
    }

    pub(super) fn finish(&mut self) {
        let session = &mut self.session;
        let keeper = session.harvester.counters().as_mut().unwrap();
        keeper.finish(&mut session.sink);
    }

    pub(super) fn windows(&mut self) -> Vec<(CounterWindow, Vec<u64>)> {
        let mut windows = Vec::new();
        self.session.records(|header, bytes| {
            if header.kind == kind::COUNTER_COLLECTION {
                let window = CounterWindow::read(bytes).unwrap();
                let words = bytes[size_of::<CounterWindow>()..usize::from(header.size)].chunks(8);
                let words = words.map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
                windows.push((window, words.collect()));
            }
        });
        windows
    }

    pub(super) fn end(mut self) {
        self.close();
    }

    /// The session ends without waiting for any thread.
    pub(super) fn close(&mut self) {
        let Session {
            harvester, sink, ..
        } = &mut self.session;
        Keeper::close();
        harvester.close(sink);
        harvester.finish(sink);
        let mut keeper = harvester.counters().take().unwrap();
        keeper.finish(sink);
        keeper.release(sink);
        set_plan(Plan::default());
    }
}

#[test]
fn a_reservation_of_one_packet_becomes_one_of_three() {
    let mut counting = Counting::begin();
    let queue = counting.queue;
    assert_eq!(queue.reserve_one(), 1);
    assert_eq!(queue.written(), 3);
    for index in [0, 2] {
        let [header, commands, rest, .., signal] = queue.words(index);
        assert_eq!(header, OURS, "packet {index}");
        assert_eq!(commands % 256, 0);
        let words = if index == 0 { 5 } else { 4 };
        assert_eq!(rest, (10 << 32) | 0x1080_0000 | words);
        assert_ne!(signal, 0);
    }
    assert_eq!(queue.words(1)[0], 1, "the application's is its own");
    queue.write(1, DISPATCH, 0);
    // The application rings for its packet, and our packet behind it is rung for, too.
    assert_eq!(queue.ring(1), Ring::Value(2));
    counting.count(1, 100, 150, 7);
    queue.signal(1).fire(110, 140);
    counting.pass();
    let windows = counting.windows();
    let [(window, words)] = &windows[..] else {
        panic!("{windows:?}");
    };
    assert_eq!((window.start, window.end, window.read_end), (100, 150, 155));
    assert_eq!((window.dispatch_id, window.node), (1, 1));
    assert_eq!(window.result, WindowResult::Counted as u32);
    assert_eq!((window.first, window.words, window.total), (0, 3, 3));
    assert_eq!(words, &[7, 8, 9]);
    counting.end();
}

/// Our packets are valid when the reservation returns, so they are not read: to read a ring in
/// device memory is slow.
#[test]
fn packets_of_ours_are_counted_without_a_look() {
    let mut counting = Counting::begin();
    let queue = counting.queue;
    assert_eq!(queue.reserve_one(), 1);
    // A look at the first packet would take it for one that is not written yet, and stop.
    let [.., signal] = queue.words(0);
    queue.write(0, 1, signal);
    queue.write(1, DISPATCH, 0);
    assert_eq!(queue.ring(1), Ring::Value(2));
    counting.count(1, 100, 150, 7);
    queue.signal(1).fire(110, 140);
    counting.pass();
    assert_eq!(counting.windows().len(), 1);
    counting.end();
}

/// What is launched when recording ends has no record, and may run alongside a window.
#[test]
fn a_window_that_is_open_when_recording_ends_has_no_values() {
    let mut counting = Counting::begin();
    let queue = counting.queue;
    let until = 1_000_000;
    for (at, read, wanted) in [
        (0, until - 100_000, WindowResult::Counted),
        (1, until - 1_000, WindowResult::Open),
        (2, until + 1_000_000, WindowResult::Open),
    ] {
        let index = queue.reserve_one();
        assert_eq!(index, 3 * at + 1);
        queue.write(index, DISPATCH, 0);
        assert_eq!(queue.ring(index as i64), Ring::Value(index as i64 + 1));
        counting.count(index, 100, read - 5, 7);
        queue.signal(index).fire(110, 140);
        queue.take(index + 2);
        STATE.windows.until.store(until, SeqCst);
        counting.pass();
        let windows = counting.windows();
        assert_eq!(windows[0].0.result, wanted as u32, "read at {read}");
    }
    counting.end();
}

/// A thread that learns a queue knows its agent, since the worker thread may be preempted for as
/// long as a short session lasts.
#[test]
fn a_queue_has_no_windows_until_the_worker_thread_has_met_it() {
    let mut counting = Counting::begin();
    let queue = counting.session.queue();
    queue.state.watches_room.store(1, SeqCst);
    assert_eq!((queue.reserve_one(), queue.written()), (0, 1), "no window");
    queue.write(0, DISPATCH, 0);
    assert_eq!(queue.ring(0), Ring::Value(0));
    counting.pass();
    assert_eq!(queue.state.host_ring.load(SeqCst), 1);
    assert_eq!((queue.reserve_one(), queue.written()), (2, 4), "a window");
    counting.end();
}

/// Makes queues as ROCm 10 does: by descriptor, with the engine that processes them.
#[test]
fn a_queue_that_is_made_by_descriptor_has_windows_where_it_runs_kernels() {
    let mut counting = Counting::begin();
    // (0, for kernels; 1, for copies)
    for engine in [0, 1] {
        let queue = ModelQueue::learned(SIZE, |at| {
            let mut descriptor = [0_u64; 12];
            descriptor[0] = 1 | engine << 32;
            descriptor[4] = at;
            let at_it = descriptor.as_mut_ptr().cast();
            // SAFETY: one descriptor of a queue that stays.
            unsafe { crate::hooks::hsa_amd_queue_create(7, at_it, 1) };
            state::find(at).unwrap()
        });
        queue.state.watches_room.store(1, SeqCst);
        counting.pass();
        if engine != 0 {
            assert_eq!(queue.state.windows_of.load(SeqCst), 0);
            continue;
        }
        assert_eq!((queue.reserve_one(), queue.written()), (1, 3), "a window");
        queue.write(1, DISPATCH, 0);
        assert_eq!(queue.ring(1), Ring::Value(2));
        counting.count_on(&queue, 1);
        queue.signal(1).fire(110, 140);
        counting.pass();
        assert_eq!(counting.windows().len(), 1);
    }
    counting.end();
}

/// After a session no queue is learned for its windows.
#[test]
fn a_queue_of_a_session_that_does_not_count_has_no_windows() {
    Counting::begin().end();
    let session = Session::begin();
    let queue = session.queue();
    assert_eq!(queue.state.windows_of.load(SeqCst), 0);
}

#[test]
fn groups_take_turns_and_windows_are_used_again() {
    // A class whose groups have more windows than this may have another schedule, after a renewal,
    // which comes by time.
    const EVEN: usize = 50;
    let mut counting = Counting::begin();
    let queue = counting.queue;
    let mut groups = Vec::new();
    for round in 0..100_u64 {
        let index = queue.reserve_one();
        assert_eq!(index, 3 * round + 1);
        queue.write(index, DISPATCH, 0);
        assert_eq!(queue.ring(index as i64), Ring::Value(index as i64 + 1));
        counting.count(index, 100, 150, round);
        queue.signal(index).fire(110, 140);
        queue.take(index + 2);
        counting.pass();
        let windows = counting.windows();
        assert_eq!(windows.len(), 1);
        assert_eq!(
            (windows[0].0.window, windows[0].0.dispatch_id),
            (round + 1, round + 1)
        );
        assert_eq!(windows[0].1[0], round);
        groups.push(windows[0].0.group);
    }
    // Each group comes once in a turn. The first renewal gives the class a schedule of its own,
    // perhaps in the middle of a turn.
    let first = groups[..EVEN].iter().filter(|group| **group == 0).count();
    assert!((EVEN / 2 - 1..=EVEN / 2 + 1).contains(&first), "{groups:?}");
    let counts = counting.session.finish();
    let all = 100_u64;
    assert_eq!(
        (counts.dispatches, counts.ours, counts.other_packets),
        (all, 2 * all, 0)
    );
    assert_eq!(counts.last_index - counts.first_index, 3 * all);
    counting.end();
}

#[test]
fn a_packet_that_is_no_dispatch_makes_the_window_void() {
    let mut counting = Counting::begin();
    let queue = counting.queue;
    assert_eq!(queue.reserve_one(), 1);
    queue.write(1, BARRIER_AND, 0);
    assert_eq!(queue.ring(1), Ring::Value(2));
    counting.count(1, 100, 150, 7);
    counting.pass();
    let windows = counting.windows();
    assert_eq!(windows.len(), 1);
    assert_eq!(windows[0].0.result, WindowResult::NoDispatch as u32);
    assert!(windows[0].1.is_empty());
    let counts = counting.session.finish();
    assert_eq!(
        (counts.dispatches, counts.ours, counts.other_packets),
        (0, 2, 1)
    );
    counting.end();
}

#[test]
fn a_ring_that_is_half_full_gets_none_and_neither_does_one_that_nobody_looks_at() {
    let counting = Counting::begin();
    let queue = counting.queue;
    queue.state.watches_room.store(0, SeqCst);
    assert_eq!((queue.reserve_one(), queue.written()), (0, 1));
    queue.state.watches_room.store(1, SeqCst);
    queue.reserve(SIZE as u64 / 2 - 2);
    assert_eq!(queue.reserve_one(), SIZE as u64 / 2 - 2);
    assert_eq!(queue.written(), SIZE as u64 / 2 - 1);
    assert_eq!(STATE.windows.no_room.load(SeqCst), 1);
    queue.take(2);
    assert_eq!(queue.reserve_one(), SIZE as u64 / 2);
    for index in [0, 2, 3, 4, 5] {
        queue.write(index, DISPATCH, 0);
    }
    counting.end();
}

/// The device takes packets before we have looked at them: it takes valid packets of a queue that
/// it remaps.
#[test]
fn a_window_that_the_device_had_before_the_doorbell() {
    let mut counting = Counting::begin();
    let queue = counting.queue;
    assert_eq!(queue.reserve_one(), 1);
    let own = UserSignal::new(1);
    queue.write(1, DISPATCH, own.0);
    counting.count(1, 100, 150, 7);
    own.fire(110, 140);
    queue.take(3);
    counting.pass();
    assert!(counting.windows().is_empty(), "nobody knows what was in it");
    assert_eq!(queue.ring(1), Ring::Value(2));
    counting.pass();
    let windows = counting.windows();
    assert_eq!(windows.len(), 1);
    assert_eq!(windows[0].0.dispatch_id, 1);
    let counts = counting.session.finish();
    assert_eq!((counts.dispatches, counts.ours, counts.lost), (1, 2, 0));
    counting.end();
}

/// If the thread that looks is preempted, the application's ring is passed on with its own value,
/// and our packet is rung for in the next round.
#[test]
fn ours_is_rung_where_the_applications_ring_went_by() {
    let mut counting = Counting::begin();
    let queue = counting.queue;
    assert_eq!(queue.reserve_one(), 1);
    queue.write(1, DISPATCH, 0);
    let held = queue.state.lock().unwrap();
    assert_eq!(queue.ring(1), Ring::Value(1));
    drop(held);
    counting.pass();
    assert_eq!(counting.session.rung(), [(queue.doorbell, 2)]);
    counting.end();
}

#[test]
fn windows_on_a_queue_that_is_destroyed_come_back() {
    let before = ALLOCATED.load(SeqCst);
    let mut counting = Counting::begin();
    let queue = counting.queue;
    assert_eq!(queue.reserve_one(), 1);
    queue.write(1, DISPATCH, 0);
    queue.ring(1);
    assert_eq!(counting.under_way(), 1);
    queue.state.life.store(Life::Gone, SeqCst);
    counting.pass();
    let windows = counting.windows();
    assert_eq!(windows[0].0.result, WindowResult::QueueDestroyed as u32);
    assert_eq!(counting.under_way(), 0);
    counting.end();
    assert_eq!(ALLOCATED.load(SeqCst), before);
}

/// What a ring still refers to is left to the device.
#[test]
fn memory_of_an_open_window_is_kept() {
    let mut counting = Counting::begin();
    let allocated = ALLOCATED.load(SeqCst);
    let queue = counting.queue;
    assert_eq!(queue.reserve_one(), 1);
    queue.write(1, DISPATCH, 0);
    queue.ring(1);
    Keeper::close();
    assert_eq!(queue.reserve_one(), 3, "none is taken any more");
    let mut window = None;
    counting.finish();
    for (found, _) in counting.windows() {
        window = Some(found.result);
    }
    assert_eq!(window, Some(WindowResult::Open as u32));
    counting.end();
    assert_eq!(ALLOCATED.load(SeqCst), allocated);
}

/// A pause starts between the choice of the window and the packet: its dispatch has no number, and
/// the window comes back all the same.
#[test]
fn a_dispatch_that_is_not_recorded_leaves_its_window_empty() {
    let counting = Counting::begin();
    let queue = counting.queue;
    assert_eq!(queue.reserve_one(), 1);
    let dispatch = Enqueued {
        index: 1,
        dispatch_id: 0,
        launch: queue.state.reserver(1).unwrap(),
        dispatch: Dispatch::default(),
        after_all: false,
        packet: None,
    };
    super::enqueued(queue.state, &dispatch);
    let window = STATE.windows.numbered(dispatch.launch.window).unwrap();
    assert_eq!(window.dispatch.load(SeqCst), NO_DISPATCH);
    counting.end();
}

/// HIP reserves several packets at once for a graph; they are in one window.
#[test]
fn a_batch_has_one_window_and_names_its_packets() {
    let mut counting = Counting::begin();
    let queue = counting.queue;
    assert_eq!(queue.reserve_batch(3), 1);
    assert_eq!(queue.written(), 5);
    assert_eq!([queue.words(0)[0], queue.words(4)[0]], [OURS; 2]);
    for index in 1..4 {
        assert_eq!(
            queue.words(index)[0],
            1,
            "packet {index} is the application's"
        );
    }
    queue.write(1, DISPATCH, 0);
    queue.write(2, BARRIER_AND, 0);
    queue.write(3, DISPATCH, 0);
    // The application may ring for the first packets; our packet is behind the last one.
    assert_eq!(queue.ring(1), Ring::Value(1));
    counting.count_batch((1, 3), 100, 190, 7);
    counting.pass();
    assert!(counting.windows().is_empty(), "not all of it was looked at");
    assert_eq!(queue.ring(3), Ring::Value(4));
    queue.signal(1).fire(110, 140);
    queue.signal(3).fire(150, 180);
    counting.pass();
    let windows = counting.windows();
    let [(window, words)] = &windows[..] else {
        panic!("{windows:?}");
    };
    assert_eq!(window.result, WindowResult::Counted as u32);
    assert_eq!(
        (
            window.first_index,
            window.packets,
            window.dispatches,
            window.dispatch_id
        ),
        (1, 3, 2, 1)
    );
    assert_eq!(words, &[7, 8, 9]);
    let counts = counting.session.finish();
    assert_eq!(
        (counts.dispatches, counts.ours, counts.other_packets),
        (2, 2, 1)
    );
    assert_eq!(counts.last_index - counts.first_index, 5);
    counting.end();
}

#[test]
fn a_batch_without_a_dispatch_is_void_and_one_without_room_has_no_window() {
    let mut counting = Counting::begin();
    let queue = counting.queue;
    assert_eq!(queue.reserve_batch(2), 1);
    for index in [1, 2] {
        queue.write(index, BARRIER_AND, 0);
    }
    assert_eq!(queue.ring(2), Ring::Value(3));
    counting.count_batch((1, 2), 100, 150, 7);
    counting.pass();
    assert_eq!(
        counting.windows()[0].0.result,
        WindowResult::NoDispatch as u32
    );
    queue.take(4);
    // Eight packets and two of midair's are more than half of the ring.
    assert_eq!(queue.reserve_batch(SIZE as u64 / 2), 4);
    assert_eq!(queue.written(), 4 + SIZE as u64 / 2);
    assert_eq!(STATE.windows.no_room.load(SeqCst), 1);
    for index in 4..queue.written() {
        queue.write(index, DISPATCH, 0);
    }
    counting.end();
}
