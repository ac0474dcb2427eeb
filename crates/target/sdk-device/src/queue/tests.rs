//! Doorbells, gaps and times on a modelled queue.

use super::flight::Launch;
use super::model::{DISPATCH, ModelQueue, ORDERED_DISPATCH, SIZE, Session, UserSignal};
use super::queue_state::{Life, MOST};
use super::scan::Ring;
use super::settle::settle;
use super::state;
use midair_record::event::{Kernel, Plain, QueueCounts, Untimed, kind};
use midair_sdk_hot::pause::{self, Mode};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::{Duration, Instant};

/// A producer that reserved packet 0 does not come back. The application waits for packet 1.
#[test]
fn a_doorbell_that_a_gap_holds_back_is_rung_by_us() {
    let mut session = Session::begin();
    let queue = session.queue();
    queue.reserve(2);
    queue.write(1, DISPATCH, 0);
    assert_eq!(queue.ring(1), Ring::Hold);
    let limit = Instant::now() + Duration::from_secs(10);
    while session.rung().is_empty() {
        session.pass();
        assert!(Instant::now() < limit, "nobody rings");
    }
    assert_eq!(session.rung(), [(queue.doorbell, 1)]);
    for _ in 0..3 {
        session.pass();
    }
    assert_eq!(session.rung().len(), 1, "once");
    // The producer comes back after all: what it rings is passed on, and both packets are seen.
    queue.write(0, DISPATCH, 0);
    assert_eq!(queue.ring(0), Ring::Value(1));
    queue.signal(0).fire(10, 20);
    queue.signal(1).fire(20, 30);
    session.pass();
    assert_eq!(session.kernels(), [(0, 10, 20, 0), (1, 20, 30, 0)]);
}

/// The device executes what was rung, in order, as far as packets are valid.
fn carry_out(session: &Session, queue: ModelQueue, rung: i64) {
    let by_us = session.rung().into_iter().map(|(_, value)| value);
    let rung = by_us.max().unwrap_or(-1).max(rung);
    while queue.read() as i64 <= rung && queue.words(queue.read())[0] as u8 != 1 {
        let signal = queue.signal(queue.read());
        if signal.0 != 0 {
            signal.fire(10, 20);
        }
        queue.take(queue.read() + 1);
    }
}

/// A producer has reserved packet 0 and is preempted for many rounds of the worker thread, and
/// again before it rings. Other threads launch meanwhile, until the ring has wrapped around. The
/// device can do nothing before packet 0 is written, so ringing for the packets behind it gains
/// nothing.
#[test]
fn a_packet_that_others_waited_for_is_not_lost() {
    let mut session = Session::begin();
    let queue = session.queue();
    let mut rung = -1;
    let mut ring = |index: u64| {
        if let Ring::Value(value) = queue.ring(index as i64) {
            rung = rung.max(value);
        }
        rung
    };
    queue.reserve(2);
    queue.write(1, DISPATCH, 0);
    let mut upto = ring(1);
    assert_eq!(upto, -1);
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(20) {
        session.pass();
        carry_out(&session, queue, upto);
    }
    assert_eq!(queue.read(), 0);
    queue.write(0, DISPATCH, 0);
    carry_out(&session, queue, upto);
    let all = 3 * SIZE as u64;
    let limit = Instant::now() + Duration::from_secs(10);
    for index in 2..all {
        while index - queue.read() >= SIZE as u64 {
            assert!(Instant::now() < limit, "nobody rings");
            session.pass();
            carry_out(&session, queue, upto);
        }
        queue.reserve(index + 1);
        queue.write(index, DISPATCH, 0);
        upto = ring(index);
        carry_out(&session, queue, upto);
    }
    upto = ring(0);
    carry_out(&session, queue, upto);
    session.pass();
    let counts = session.finish();
    assert_eq!((counts.dispatches, counts.lost), (all, 0));
    assert_eq!(counts.timed, all);
}

#[test]
fn a_gap_that_closes_is_rung_by_who_closes_it() {
    let mut session = Session::begin();
    let queue = session.queue();
    queue.reserve(3);
    queue.write(0, DISPATCH, 0);
    assert_eq!(queue.ring(0), Ring::Value(0));
    queue.write(2, DISPATCH, 0);
    assert_eq!(queue.ring(2), Ring::Hold);
    queue.write(1, DISPATCH, 0);
    assert_eq!(queue.ring(1), Ring::Value(2));
    let inner = queue.state.lock().unwrap();
    assert_eq!((inner.held_since, inner.rung), (0, 3));
    drop(inner);
    session.pass();
    assert_eq!(session.rung(), []);
}

#[test]
fn what_a_gap_holds_back_is_rung_when_the_session_closes() {
    let mut session = Session::begin();
    let queue = session.queue();
    queue.reserve(2);
    queue.write(1, DISPATCH, 0);
    assert_eq!(queue.ring(1), Ring::Hold);
    session.harvester.close(&mut session.sink);
    assert_eq!(session.rung(), [(queue.doorbell, 1)]);
}

/// The thread that holds the queue's spin word is preempted: a thread that rings goes on without a
/// look, and its packets are looked at later.
#[test]
fn a_doorbell_that_went_by_is_looked_at_in_the_next_round() {
    let mut session = Session::begin();
    let queue = session.queue();
    queue.reserve(1);
    queue.write(0, DISPATCH, 0);
    let held = queue.state.lock().unwrap();
    assert_eq!(queue.ring(0), Ring::Value(0));
    drop(held);
    session.pass();
    queue.signal(0).fire(10, 20);
    session.pass();
    assert_eq!(session.kernels(), [(0, 10, 20, 0)]);
    assert_eq!(session.rung(), [], "it was rung");
}

#[test]
fn a_doorbell_that_went_by_is_looked_at_by_the_next_one() {
    let mut session = Session::begin();
    let queue = session.queue();
    queue.reserve(3);
    for index in 0..3 {
        queue.write(index, DISPATCH, 0);
    }
    let held = queue.state.lock().unwrap();
    assert_eq!(queue.ring(2), Ring::Value(2));
    drop(held);
    // Another producer rings later for an earlier packet.
    assert_eq!(queue.ring(0), Ring::Value(2));
    for index in 0..3 {
        queue.signal(index).fire(10, 20 + index);
    }
    session.pass();
    let all = [(0, 10, 20, 0), (1, 10, 21, 0), (2, 10, 22, 0)];
    assert_eq!(session.kernels(), all);
    let counts = session.finish();
    assert_eq!((counts.dispatches, counts.timed, counts.lost), (3, 3, 0));
}

/// Dispatches that are rung during a pause have a number of their own in the counts. Their packets
/// stay as they are, unless another subscriber wants to know of them.
#[test]
fn dispatches_in_a_pause_are_counted_and_have_no_records() {
    let paused = |selected| {
        pause::begin(Mode {
            honoured: true,
            selected,
            ..Mode::default()
        });
    };
    for shared in [false, true] {
        let mut session = Session::begin();
        pause::set_shared(shared);
        let queue = session.queue();
        queue.reserve(3);
        for index in 0..3 {
            queue.write(index, DISPATCH, 0);
        }
        queue.ring(0);
        paused(true);
        queue.ring(1);
        paused(false);
        queue.ring(2);
        assert_eq!(queue.signal(1).0 != 0, shared);
        for index in [0, 1, 2] {
            if queue.signal(index).0 != 0 {
                queue.signal(index).fire(10, 20 + index);
            }
        }
        session.pass();
        let written: Vec<u64> = session.kernels().iter().map(|kernel| kernel.0).collect();
        let expected: &[u64] = if shared { &[0, 1, 2] } else { &[0, 2] };
        assert_eq!(written, expected);
        let counts = session.finish();
        assert_eq!((counts.dispatches, counts.timed), (2, 2));
        assert_eq!(
            (counts.paused, counts.lost, counts.other_packets),
            (1, 0, 0)
        );
    }
}

/// Dispatches may end in a different order than they started.
#[test]
fn a_dispatch_without_the_barrier_bit_says_nothing_of_those_before_it() {
    let mut session = Session::begin();
    let queue = session.queue();
    queue.reserve(2);
    queue.write(0, DISPATCH, 0);
    queue.write(1, DISPATCH, 0);
    assert_eq!(queue.ring(1), Ring::Value(1));
    queue.take(2);
    queue.signal(1).fire(10, 20);
    session.pass();
    session.pass();
    assert_eq!(session.kernels(), [(1, 10, 20, 0)]);
    queue.signal(0).fire(5, 30);
    session.pass();
    assert_eq!(session.kernels(), [(0, 5, 30, 0)]);
}

/// The device had read packet 0 when our signal was put in, which therefore never fires.
#[test]
fn a_dispatch_with_the_barrier_bit_ends_those_before_it() {
    let mut session = Session::begin();
    let queue = session.queue();
    queue.reserve(2);
    queue.write(0, DISPATCH, 0);
    queue.write(1, ORDERED_DISPATCH, 0);
    assert_eq!(queue.ring(1), Ring::Value(1));
    queue.take(2);
    queue.signal(1).fire(10, 20);
    session.pass();
    session.pass();
    let taken = Untimed::PacketTakenFirst as u32;
    assert_eq!(session.kernels(), [(1, 10, 20, 0), (0, 0, 0, taken)]);
}

/// The same, and the queue is destroyed before the worker thread has seen packet 1 end. Packet 0 was
/// counted as lost with its queue, which packet 2 is.
#[test]
fn a_dispatch_that_ended_is_not_lost_with_its_queue() {
    let mut session = Session::begin();
    let queue = session.queue();
    queue.reserve(3);
    queue.write(0, DISPATCH, 0);
    queue.write(1, ORDERED_DISPATCH, 0);
    queue.write(2, DISPATCH, 0);
    assert_eq!(queue.ring(2), Ring::Value(2));
    queue.take(2);
    queue.signal(1).fire(10, 20);
    queue.state.life.store(Life::Gone, Release);
    session.pass();
    let (taken, lost) = (
        Untimed::PacketTakenFirst as u32,
        Untimed::QueueDestroyed as u32,
    );
    assert_eq!(
        session.kernels(),
        [(1, 10, 20, 0), (0, 0, 0, taken), (2, 0, 0, lost)]
    );
}

/// Each thread of a program has a queue and ends. There is room for [`MOST`] queues at one time, and
/// kernels of all that came later were not recorded. A state that is used again knows nothing of its
/// last queue.
#[test]
fn the_state_of_a_queue_that_is_gone_is_used_again() {
    let mut session = Session::begin();
    let queues = MOST + 50;
    let (mut kernels, mut counts, mut states) = (Vec::new(), Vec::new(), BTreeSet::new());
    for number in 0..queues {
        let queue = session.queue();
        states.insert(std::ptr::from_ref(queue.state).addr());
        assert_eq!(queue.state.ended_below.load(Relaxed), 0);
        assert!(queue.state.reserver(1).is_none(), "queue {number}");
        let launch = Launch {
            correlation: 1,
            ..Launch::default()
        };
        queue.state.reserve(0, 2, launch);
        queue.reserve(2);
        queue.write(0, ORDERED_DISPATCH, 0);
        queue.write(1, ORDERED_DISPATCH, 0);
        assert_eq!(queue.ring(1), Ring::Value(1));
        queue.signal(0).fire(10, 20);
        // The second one is lost with its queue.
        state::begin_destroy(queue.state);
        queue.state.life.store(Life::Gone, Release);
        session.pass();
        session.records(|header, bytes| match header.kind {
            kind::KERNEL_DISPATCH => kernels.push(Kernel::read(bytes).unwrap()),
            kind::QUEUE_COUNTS => counts.push(QueueCounts::read(bytes).unwrap()),
            _ => {}
        });
    }
    assert!(states.len() < 5, "{} states", states.len());
    assert_eq!(state::launches(), Some(2 * queues as u64));
    let ids = |all: &mut dyn Iterator<Item = u32>| all.collect::<BTreeSet<_>>().len();
    assert_eq!(ids(&mut counts.iter().map(|it| it.queue_id)), queues);
    assert_eq!(ids(&mut kernels.iter().map(|it| it.queue_id)), queues);
    assert_eq!((kernels.len(), counts.len()), (2 * queues, queues));
    for it in counts {
        let destroyed = it.untimed[Untimed::QueueDestroyed as usize];
        assert_eq!((it.dispatches, it.timed, destroyed), (2, 1, 1));
    }
}

/// The application's own signal still has the times of its last use, which was not traced.
#[test]
fn times_of_an_earlier_use_are_not_those_of_this_one() {
    let mut session = Session::begin();
    let queue = session.queue();
    let signal = UserSignal::new(1);
    signal.write_times(5, 6);
    queue.reserve(3);
    queue.write(0, DISPATCH, signal.0);
    assert_eq!(queue.ring(0), Ring::Value(0));
    session.pass();
    assert_eq!(session.kernels(), [], "it runs");
    // The application destroys the signal, or stores to it, before the device has ended.
    settle(signal.0);
    session.pass();
    let reused = Untimed::SignalReused as u32;
    assert_eq!(session.kernels(), [(0, 0, 0, reused)]);
    // The same happens with the next use, which ends in time, and the signal is handed to another
    // packet at once.
    signal.arm();
    queue.write(1, DISPATCH, signal.0);
    assert_eq!(queue.ring(1), Ring::Value(1));
    signal.fire(10, 20);
    signal.arm();
    queue.write(2, DISPATCH, signal.0);
    assert_eq!(queue.ring(2), Ring::Value(2));
    session.pass();
    assert_eq!(session.kernels(), [(1, 10, 20, 0)]);
    signal.fire(30, 40);
    session.pass();
    assert_eq!(session.kernels(), [(2, 30, 40, 0)]);
}
