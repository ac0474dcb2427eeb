//! Guards on modelled queues: what the device finds at each moment, and that it never waits for long.

use super::super::keeper::Keeper;
use super::super::tests::Counting;
use super::MOST_LATE;
use crate::queue::model::{DISPATCH, UserSignal};
use crate::queue::scan::Ring;
use crate::state::STATE;
use midair_record::event::{QueueCounts, WindowResult};
use std::sync::atomic::Ordering::SeqCst;

const INVALID: u64 = 1;
/// A barrier that waits for nothing, without the barrier bit.
const NOTHING: u64 = 3;
const BARRIER_AND: u16 = 3;

fn guarded() -> Counting {
    let counting = Counting::on(64);
    STATE.windows.guards.store(true, SeqCst);
    counting
}

fn balanced(counts: &QueueCounts) {
    let seen = counts.dispatches + counts.other_packets + counts.ours + counts.lost + counts.paused;
    assert_eq!(counts.last_index - counts.first_index, seen, "{counts:?}");
}

#[test]
fn kernels_of_a_batch_are_moved_and_have_windows_of_their_own() {
    let mut counting = guarded();
    let queue = counting.queue;
    assert_eq!(queue.reserve_batch(3), 1);
    // The reservation has the guard, three packets, and room for these and three windows.
    assert_eq!(queue.written(), 13);
    let header = |index: u64| queue.words(index)[0];
    assert!((0..13).all(|index| header(index) == INVALID));
    let (own, barrier) = (UserSignal::new(1), UserSignal::new(1));
    queue.write(1, DISPATCH, own.0);
    queue.write(2, BARRIER_AND, barrier.0);
    // The application rings for its first packets, which the device must not get.
    assert_eq!(queue.ring(2), Ring::Hold);
    assert_eq!(
        (header(0), header(1) & 0xff),
        (INVALID, u64::from(DISPATCH))
    );
    queue.write(3, DISPATCH, 0);
    assert_eq!(queue.ring(3), Ring::Value(12));
    for index in 0..4 {
        assert_eq!(
            queue.words(index),
            [NOTHING, 0, 0, 0, 0, 0, 0, 0],
            "{index}"
        );
    }
    let kinds: Vec<u64> = (4..13).map(|index| header(index) & 0xff).collect();
    // The order is start, kernel, read; the barrier; start, kernel, read; and the packets that were
    // not needed.
    assert_eq!(kinds, [0, 2, 0, 3, 0, 2, 0, 3, 3]);
    assert_eq!(queue.words(5)[7], own.0, "its signal moves with it");
    assert_eq!(queue.words(7)[7], barrier.0);
    for (index, value) in [(5, 7), (9, 9)] {
        counting.count(index, 100 * index, 100 * index + 50, value);
    }
    own.fire(510, 540);
    queue.signal(9).fire(910, 940);
    counting.pass();
    let windows = counting.windows();
    let found: Vec<(u64, u32, u64)> = windows
        .iter()
        .map(|(window, words)| (window.dispatch_id, window.result, words[0]))
        .collect();
    let counted = WindowResult::Counted as u32;
    assert_eq!(found.len(), 2);
    assert!(
        found.contains(&(1, counted, 7)) && found.contains(&(2, counted, 9)),
        "{found:?}"
    );
    assert_eq!(counting.under_way(), 0);
    let counts = counting.session.finish();
    assert_eq!(
        (counts.dispatches, counts.other_packets, counts.ours),
        (2, 1, 10)
    );
    balanced(&counts);
    counting.end();
}

/// With `--exclusive`, a batch is let go as it is while another queue runs something. When that has
/// ended, the kernels of a batch have one turn together, until the last of their windows was read.
#[test]
fn kernels_of_a_batch_have_the_device_for_themselves_where_that_is_asked_for() {
    let mut counting = guarded();
    STATE.windows.exclusive.store(true, SeqCst);
    let (queue, other) = (counting.queue, counting.session.queue());
    counting.session.count();
    other.reserve(1);
    other.write(0, DISPATCH, 0);
    assert_eq!(other.ring(0), Ring::Value(0));
    let word = || STATE.windows.agents[0].turn.0.load(SeqCst);
    let header = |index: u64| queue.words(index)[0];
    assert_eq!(queue.reserve_batch(2), 1);
    // Guard, two packets, room for these and two windows.
    assert_eq!(queue.written(), 9);
    queue.write(1, DISPATCH, 0);
    queue.write(2, DISPATCH, 0);
    assert_eq!(queue.ring(2), Ring::Value(8));
    assert_eq!(STATE.windows.not_alone.load(SeqCst), 1);
    assert_eq!(
        (header(0), header(1) & 0xff),
        (NOTHING, u64::from(DISPATCH))
    );
    assert!((3..9).all(|index| header(index) == NOTHING));
    assert_eq!(word(), 0, "nobody's turn");
    counting.pass();
    assert_eq!(counting.under_way(), 0, "the windows are ready again");
    for index in [1, 2] {
        queue.signal(index).fire(10 * index, 10 * index + 5);
    }
    other.signal(0).fire(100, 140);
    // The other queue's work has ended.
    queue.take(9);
    assert_eq!(queue.reserve_batch(2), 10);
    queue.write(10, DISPATCH, 0);
    queue.write(11, DISPATCH, 0);
    assert_eq!(queue.ring(11), Ring::Value(17));
    let kinds: Vec<u64> = (9..18).map(|index| header(index) & 0xff).collect();
    // Start, kernel and read, twice.
    assert_eq!(kinds, [3, 3, 3, 0, 2, 0, 0, 2, 0]);
    assert_ne!(word(), 0, "its turn");
    for (index, value) in [(13, 7), (16, 9)] {
        counting.count(index, 100 * index, 100 * index + 50, value);
        queue.signal(index).fire(100 * index + 10, 100 * index + 40);
        counting.pass();
        assert_eq!(word() == 0, index == 16, "until the last one was read");
    }
    assert_eq!(counting.windows().len(), 2);
    assert_eq!(STATE.windows.not_alone.load(SeqCst), 1);
    counting.end();
}

/// The worker thread opens a guard that is shut for too long: nothing is moved, and the program
/// goes on.
#[test]
fn a_guard_that_is_shut_for_too_long_is_opened() {
    let mut counting = guarded();
    let queue = counting.queue;
    for round in 0..u64::from(MOST_LATE) {
        let first = queue.reserve_batch(2);
        assert_eq!(first, 9 * round + 1);
        counting.pass();
        assert_eq!(queue.words(first - 1)[0], INVALID, "it is new");
        queue.state.guard.since.store(0, SeqCst);
        counting.pass();
        assert_eq!(queue.words(first - 1)[0], NOTHING);
        assert_eq!(queue.words(first)[0], INVALID, "the application's");
        for index in first + 2..first + 8 {
            assert_eq!(queue.words(index)[0], NOTHING);
        }
        let windows = counting.windows();
        let results: Vec<(u32, u64, u64)> = windows
            .iter()
            .map(|(window, _)| (window.result, window.begin, window.read_end))
            .collect();
        assert_eq!(results, [(WindowResult::TooLate as u32, 0, 0); 2]);
        assert_eq!(counting.under_way(), 0, "they are ready again");
        queue.write(first, DISPATCH, 0);
        queue.write(first + 1, DISPATCH, 0);
        // The packets that were reserved for the windows are rung for together with it.
        assert_eq!(queue.ring(first as i64 + 1), Ring::Value(first as i64 + 7));
        queue.take(first + 8);
    }
    // This program always does so, so from now on both kernels are counted together.
    assert_eq!(queue.reserve_batch(2), 28);
    assert_eq!(queue.written(), 31);
    for index in [28, 29] {
        queue.write(index, DISPATCH, 0);
    }
    assert_eq!(queue.ring(29), Ring::Value(30));
    let counts = counting.session.finish();
    assert_eq!((counts.dispatches, counts.ours), (8, 3 * 7 + 2));
    balanced(&counts);
    counting.end();
}

#[test]
fn all_guards_are_open_when_recording_ends() {
    let mut counting = guarded();
    let queue = counting.queue;
    assert_eq!(queue.reserve_batch(2), 1);
    Keeper::close();
    assert_eq!((queue.words(0)[0], queue.words(1)[0]), (NOTHING, INVALID));
    assert_eq!((queue.words(3)[0], queue.words(8)[0]), (NOTHING, NOTHING));
    // This is a guard that a thread was about to shut meanwhile.
    STATE.windows.on.store(true, SeqCst);
    crate::queue::points::at(crate::queue::points::Point::Reserved, Keeper::close);
    assert_eq!(queue.reserve_batch(2), 10);
    assert_eq!((queue.words(9)[0], queue.words(17)[0]), (NOTHING, NOTHING));
    for index in [1, 2, 10, 11] {
        queue.write(index, DISPATCH, 0);
    }
    assert_eq!(queue.ring(11), Ring::Value(17));
    counting.pass();
    assert!(counting.windows().is_empty());
    let counts = counting.session.finish();
    assert_eq!((counts.dispatches, counts.ours), (4, 14));
    balanced(&counts);
    counting.end();
}

/// Another thread's packet behind the guard waits as long as the guard is shut, and takes no harm.
#[test]
fn a_second_producer_and_a_second_guard() {
    let mut counting = guarded();
    let queue = counting.queue;
    assert_eq!(queue.reserve_batch(2), 1);
    // There is one guard at a time, so the other batch has one window.
    assert_eq!(queue.reserve_batch(2), 10);
    assert_eq!(queue.written(), 13);
    for index in [10, 11] {
        queue.write(index, DISPATCH, 0);
    }
    assert_eq!(queue.ring(11), Ring::Hold);
    for index in [1, 2] {
        queue.write(index, DISPATCH, 0);
    }
    assert_eq!(queue.ring(2), Ring::Value(12));
    assert_eq!(queue.words(0)[0], NOTHING);
    let counts = counting.session.finish();
    assert_eq!((counts.dispatches, counts.ours), (4, 3 + 4 + 2));
    balanced(&counts);
    counting.end();
}

#[test]
fn a_batch_without_room_behind_it_has_one_window() {
    let counting = guarded();
    let queue = counting.queue;
    // Seven packets would take 29 with a guard, and 9 with one window.
    queue.reserve(8);
    assert_eq!(queue.reserve_batch(7), 9);
    assert_eq!(queue.written(), 17);
    for index in (0..8).chain(9..16) {
        queue.write(index, DISPATCH, 0);
    }
    counting.end();
}
