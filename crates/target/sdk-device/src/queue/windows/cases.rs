//! Single cases: what else happens on a queue, and at which moments a session may end.

use super::keeper::Keeper;
use super::tests::{BARRIER_AND, Counting, OURS};
use crate::queue::model::{ALLOCATED, DISPATCH, ModelQueue, SIZE};
use crate::queue::points::{Point, at};
use crate::queue::queue_state::Life;
use crate::queue::scan::Ring;
use crate::state::STATE;
use midair_record::event::{QueueCounts, WindowResult};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};

/// A vendor packet with commands, which the runtime has written for itself.
const COMMANDS: u16 = 0;

fn is_ours(queue: &ModelQueue, index: u64) -> bool {
    queue.words(index)[0] == OURS
}

/// Every packet of the ring has an owner, and none is lost.
fn balanced(counts: &QueueCounts) {
    let known = counts.dispatches + counts.other_packets + counts.ours + counts.lost;
    assert_eq!(known, counts.last_index - counts.first_index, "{counts:?}");
    assert_eq!(counts.lost, 0, "{counts:?}");
}

#[test]
fn the_three_packets_may_lie_at_both_ends_of_the_ring() {
    for before in [SIZE as u64 - 2, SIZE as u64 - 1] {
        let mut counting = Counting::begin();
        let queue = counting.queue;
        queue.reserve(before);
        queue.take(before);
        let index = queue.reserve_one();
        assert_eq!(index, before + 1);
        assert!(is_ours(&queue, index - 1) && is_ours(&queue, index + 1));
        queue.write(index, DISPATCH, 0);
        assert_eq!(queue.ring(index as i64), Ring::Value(index as i64 + 1));
        counting.count(index, 100, 150, 7);
        queue.signal(index).fire(110, 140);
        queue.take(index + 2);
        counting.pass();
        let windows = counting.windows();
        assert_eq!(windows.len(), 1);
        assert_eq!(windows[0].0.result, WindowResult::Counted as u32);
        assert_eq!(windows[0].1, [7, 8, 9]);
        let counts = counting.session.finish();
        assert_eq!((counts.dispatches, counts.ours), (1, 2));
        counting.end();
    }
}

/// Whatever the ring holds, three more packets are taken only if half of it stays free.
#[test]
fn a_window_is_taken_in_the_first_half_of_any_ring_only() {
    for size in [SIZE as u64, 64] {
        for used in 0..=size {
            let counting = Counting::on(size as usize);
            let queue = counting.queue;
            queue.reserve(used);
            let has_room = used + 3 <= size / 2;
            let index = queue.reserve_one();
            assert_eq!(index, used + u64::from(has_room), "{used} of {size}");
            assert_eq!(queue.written(), used + if has_room { 3 } else { 1 });
            let without = STATE.windows.no_room.load(SeqCst);
            assert_eq!(without, u64::from(!has_room), "{used} of {size}");
            for packet in 0..queue.written() {
                let ours = has_room && (packet == used || packet == used + 2);
                assert_eq!(is_ours(&queue, packet), ours, "{packet}: {used} of {size}");
            }
            counting.end();
        }
    }
}

/// A second producer's window is behind the first one's, and no packet of another producer is
/// inside a window.
#[test]
fn packets_of_another_producer_stay_in_order() {
    let mut counting = Counting::begin();
    let queue = counting.queue;
    let (first, second) = (queue.reserve_one(), queue.reserve_one());
    assert_eq!((first, second), (1, 4));
    queue.write(second, DISPATCH, 0);
    // The first packet of the first window may run; the first producer's packet is not written yet.
    assert_eq!(queue.ring(second as i64), Ring::Value(0));
    queue.write(first, DISPATCH, 0);
    // The producer that closes the gap rings for both, and for our packet behind them.
    assert_eq!(queue.ring(first as i64), Ring::Value(5));
    for (index, value) in [(first, 7), (second, 9)] {
        counting.count(index, 100 * index, 100 * index + 50, value);
        queue.signal(index).fire(100 * index + 10, 100 * index + 40);
    }
    counting.pass();
    let mut values: Vec<u64> = counting.windows().iter().map(|(_, w)| w[0]).collect();
    values.sort_unstable();
    assert_eq!(values, [7, 9]);
    let counts = counting.session.finish();
    assert_eq!((counts.dispatches, counts.ours), (2, 4));
    balanced(&counts);
    counting.end();
}

/// The runtime reserves for itself without a call through its table.
#[test]
fn commands_of_the_runtime_are_not_taken_for_ours() {
    let mut counting = Counting::begin();
    let queue = counting.queue;
    assert_eq!(queue.reserve_one(), 1);
    queue.reserve(4);
    queue.write(3, COMMANDS, 0);
    queue.write(1, DISPATCH, 0);
    assert_eq!(queue.ring(1), Ring::Value(2));
    assert_eq!(queue.ring(3), Ring::Value(3));
    counting.count(1, 100, 150, 7);
    queue.signal(1).fire(110, 140);
    counting.pass();
    assert_eq!(counting.windows().len(), 1);
    let counts = counting.session.finish();
    assert_eq!(
        (counts.dispatches, counts.ours, counts.other_packets),
        (1, 2, 1)
    );
    balanced(&counts);
    counting.end();
}

/// Queues whose packets take other paths: through another profiler, past our hooks, or with
/// profiling that was switched on too late.
#[test]
fn some_queues_get_no_windows() {
    let counting = Counting::begin();
    let queue = counting.queue;
    let state = queue.state;
    let switches = [&state.intercept, &state.direct, &state.late];
    for (round, switch) in (0..).zip(switches) {
        switch.store(1, SeqCst);
        assert_eq!(queue.reserve_one(), round);
        switch.store(0, SeqCst);
    }
    assert_eq!(STATE.windows.unfit.load(SeqCst), 3, "and a note says so");
    state.life.store(Life::Dying, SeqCst);
    assert_eq!(queue.reserve_one(), 3);
    state.life.store(Life::Alive, SeqCst);
    for packet in 0..4 {
        assert!(!is_ours(&queue, packet));
    }
    assert_eq!(queue.reserve_one(), 5);
    counting.end();
}

/// The device takes our packets and the application's without waiting for a doorbell.
#[test]
fn an_eager_device_may_take_the_first_packet_at_once() {
    let mut counting = Counting::begin();
    let queue = counting.queue;
    assert_eq!(queue.reserve_one(), 1);
    queue.signal(0).fire(90, 100);
    queue.take(1);
    queue.write(1, DISPATCH, 0);
    assert_eq!(queue.ring(1), Ring::Value(2));
    let own = queue.signal(1);
    queue.take(2);
    counting.count_last(1, 150, 7);
    own.fire(110, 140);
    queue.take(3);
    counting.pass();
    let windows = counting.windows();
    assert_eq!(windows.len(), 1);
    assert_eq!(windows[0].0.result, WindowResult::Counted as u32);
    let counts = counting.session.finish();
    assert_eq!((counts.dispatches, counts.ours), (1, 2));
    balanced(&counts);
    counting.end();
}

/// All windows are in use, so the application goes on without one.
#[test]
fn a_launch_does_not_wait_for_a_window_that_is_free() {
    let counting = Counting::on(1024);
    let queue = counting.queue;
    // Two groups of 32 windows.
    let (mut with, mut without) = (0, 0);
    for _ in 0..100 {
        let before = queue.written();
        match queue.reserve_one() - before {
            1 => with += 1,
            _ => without += 1,
        }
    }
    assert!(with >= 32 && without >= 36, "{with} and {without}");
    assert_eq!(STATE.windows.none_ready.load(SeqCst), without);
    counting.end();
}

/// Moments in the life of a window at which a session may end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// The application's thread is in our hook.
    Inside(Point),
    /// The application has its index.
    Returned,
    /// The application has written its packet.
    Filled,
    /// The application has rung the doorbell.
    Rung,
    /// The device has started the counters.
    Started,
    /// The kernel has ended.
    Ran,
    /// The counters were read.
    Read,
}

const MOMENTS: [Moment; 12] = [
    Moment::Inside(Point::Choosing),
    Moment::Inside(Point::Taken),
    Moment::Inside(Point::Reserved),
    Moment::Inside(Point::Noted),
    Moment::Inside(Point::Written),
    Moment::Inside(Point::Valid),
    Moment::Returned,
    Moment::Filled,
    Moment::Rung,
    Moment::Started,
    Moment::Ran,
    Moment::Read,
];

/// A session ends in the middle of a window, without waiting for the thread inside or for the
/// device. The queue goes on. What the device may still touch stays, and everything else is given
/// back.
#[test]
fn a_session_may_end_at_each_point_of_a_window() {
    for moment in MOMENTS {
        let allocated = ALLOCATED.load(SeqCst);
        let counting = Counting::begin();
        assert_eq!(ALLOCATED.load(SeqCst), allocated + 1);
        let queue = counting.queue;
        let counting = Rc::new(RefCell::new(counting));
        let end = {
            let counting = Rc::clone(&counting);
            move || counting.borrow_mut().close()
        };
        let now = |this: Moment| {
            if this == moment {
                counting.borrow_mut().close();
            }
        };
        if let Moment::Inside(point) = moment {
            at(point, end);
        }
        let index = queue.reserve_one();
        if moment == Moment::Inside(Point::Choosing) {
            assert_eq!((index, queue.written()), (0, 1), "no window");
            assert_eq!(ALLOCATED.load(SeqCst), allocated, "nothing refers to it");
            continue;
        }
        assert_eq!((index, queue.written()), (1, 3), "{moment:?}");
        // None of our packets waits: both are valid, and the device passes them.
        assert!(is_ours(&queue, 0) && is_ours(&queue, 2), "{moment:?}");
        now(Moment::Returned);
        queue.write(1, DISPATCH, 0);
        now(Moment::Filled);
        // Our packet behind it is rung for together with it, as long as the hooks are installed.
        assert_eq!(queue.ring(1), Ring::Value(2), "{moment:?}");
        now(Moment::Rung);
        queue.signal(0).fire(90, 100);
        now(Moment::Started);
        queue.signal(1).fire(110, 140);
        now(Moment::Ran);
        // The commands and the output must still exist.
        counting.borrow_mut().count_last(1, 150, 7);
        queue.take(3);
        if moment == Moment::Read {
            let mut counting = counting.borrow_mut();
            counting.pass();
            counting.close();
        }
        let results: Vec<u32> = {
            let windows = counting.borrow_mut().windows();
            windows.iter().map(|(window, _)| window.result).collect()
        };
        let (expected, left) = match moment {
            Moment::Read => (vec![WindowResult::Counted as u32], 0),
            // The window was not in any ring yet when the counts were written.
            Moment::Inside(Point::Taken | Point::Reserved) => (vec![], 1),
            _ => (vec![WindowResult::Open as u32], 1),
        };
        assert_eq!(results, expected, "{moment:?}");
        assert_eq!(ALLOCATED.load(SeqCst), allocated + left, "{moment:?}");
    }
}

/// The queue is destroyed at each of these moments: its window comes back, and its memory is freed.
#[test]
fn a_queue_may_be_destroyed_at_each_point_of_a_window() {
    for moment in [
        Moment::Returned,
        Moment::Filled,
        Moment::Rung,
        Moment::Started,
    ] {
        let allocated = ALLOCATED.load(SeqCst);
        let mut counting = Counting::begin();
        let queue = counting.queue;
        let die = |this: Moment| {
            if this == moment {
                queue.state.life.store(Life::Gone, SeqCst);
            }
        };
        assert_eq!(queue.reserve_one(), 1);
        die(Moment::Returned);
        if moment != Moment::Returned {
            queue.write(1, DISPATCH, 0);
            die(Moment::Filled);
        }
        if !matches!(moment, Moment::Returned | Moment::Filled) {
            queue.ring(1);
            die(Moment::Rung);
        }
        if moment == Moment::Started {
            queue.signal(0).fire(90, 100);
            die(Moment::Started);
        }
        counting.pass();
        let windows = counting.windows();
        assert_eq!(windows.len(), 1, "{moment:?}");
        let destroyed = WindowResult::QueueDestroyed as u32;
        assert_eq!(windows[0].0.result, destroyed, "{moment:?}");
        assert_eq!(counting.under_way(), 0);
        counting.end();
        assert_eq!(ALLOCATED.load(SeqCst), allocated, "{moment:?}");
    }
}

/// A device at work, which executes what was rung, in order.
struct Device {
    queue: ModelQueue,
    doorbell: AtomicI64,
    time: AtomicU64,
}

impl Device {
    /// Takes the next packet, if it was rung and is valid.
    fn step(&self, counting: &mut Counting) -> bool {
        let index = self.queue.read();
        let rung = self.doorbell.load(SeqCst).max(
            counting
                .session
                .rung()
                .iter()
                .map(|(_, value)| *value)
                .max()
                .unwrap_or(-1),
        );
        if index as i64 > rung {
            return false;
        }
        let header = self.queue.words(index)[0];
        if header as u8 == 1 {
            return false;
        }
        let now = self.time.fetch_add(100, SeqCst) + 1;
        if header != OURS {
            let signal = self.queue.signal(index);
            if signal.0 != 0 {
                signal.fire(now, now + 50);
            }
        } else {
            self.queue.signal(index).fire(now, now + 50);
        }
        self.queue.take(index + 1);
        true
    }
}

/// Two threads launch on one ring that is soon full and wraps around many times, while a third
/// thread plays the device and the worker thread.
fn two_producers_on(size: usize, each: u64) {
    let mut counting = Counting::on(size);
    let queue = counting.queue;
    let device = Device {
        queue,
        doorbell: AtomicI64::new(-1),
        time: AtomicU64::new(1000),
    };
    let others = AtomicU64::new(0);
    let failed = AtomicBool::new(false);
    let mut windows = Vec::new();
    std::thread::scope(|scope| {
        let producers: Vec<_> = (0..2)
            .map(|_| {
                let (device, others, failed) = (&device, &others, &failed);
                scope.spawn(move || {
                    for round in 0..each {
                        let index = queue.reserve_one();
                        // As programs do: a place is free when the device has passed it.
                        while index - queue.read() >= size as u64 {
                            if failed.load(SeqCst) {
                                return;
                            }
                            std::thread::yield_now();
                        }
                        let what = if round % 7 == 3 {
                            BARRIER_AND
                        } else {
                            DISPATCH
                        };
                        others.fetch_add(u64::from(what != DISPATCH), SeqCst);
                        queue.write(index, what, 0);
                        if let Ring::Value(value) = queue.ring(index as i64) {
                            device.doorbell.fetch_max(value, SeqCst);
                        }
                    }
                })
            })
            .collect();
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let mut steps = 0_u32;
        while producers.iter().any(|p| !p.is_finished()) || queue.read() < queue.written() {
            if !device.step(&mut counting) {
                counting.pass();
                std::thread::yield_now();
            }
            steps += 1;
            if steps.is_multiple_of(8) {
                counting.pass();
                windows.extend(counting.windows());
            }
            if std::time::Instant::now() > limit {
                failed.store(true, SeqCst);
                panic!("{} of {} taken", queue.read(), queue.written());
            }
        }
    });
    counting.pass();
    windows.extend(counting.windows());
    let of = |result: WindowResult| {
        let all = windows.iter().filter(|(w, _)| w.result == result as u32);
        all.count() as u64
    };
    let (counted, empty) = (of(WindowResult::Counted), of(WindowResult::NoDispatch));
    assert_eq!(counted + empty, windows.len() as u64);
    assert!(counted > 0);
    let counts = counting.session.finish();
    let others = others.into_inner();
    assert_eq!(counts.dispatches, 2 * each - others, "{counts:?}");
    assert_eq!(counts.other_packets, others);
    assert_eq!(counts.ours, 2 * windows.len() as u64);
    assert_eq!(counts.timed, counts.dispatches);
    balanced(&counts);
    counting.end();
}

#[test]
fn two_producers_on_a_small_ring() {
    two_producers_on(SIZE, 1_500);
}

#[test]
fn two_producers_on_a_ring_of_64() {
    two_producers_on(64, 3_000);
}

/// What a session leaves behind does not disturb the next session on the same queue.
#[test]
fn windows_on_and_off_500_times() {
    let before = ALLOCATED.load(SeqCst);
    for round in 0..500_u64 {
        let mut counting = Counting::begin();
        let queue = counting.queue;
        if round % 2 == 1 {
            Keeper::close();
            assert_eq!(queue.reserve_one(), 0);
        } else {
            let index = queue.reserve_one();
            queue.write(index, DISPATCH, 0);
            assert_eq!(queue.ring(1), Ring::Value(2));
            counting.count(1, 100, 150, round);
            queue.signal(1).fire(110, 140);
            counting.pass();
            let windows = counting.windows();
            assert_eq!((windows.len(), windows[0].1[0]), (1, round));
        }
        counting.end();
        assert_eq!(ALLOCATED.load(SeqCst), before, "round {round}");
    }
}
