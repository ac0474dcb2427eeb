//! Turns on gates of our own, whose signals are decremented when a test says so.

use super::gate::{Gate, Pending, Signals};
use super::gates::await_values;
use super::turns::{Look, Turns};
use super::{Choice, Counted, Dispatch, User, add_user, is_asked};
use crate::layout::Signal;
use crate::packet::{PACKET_BARRIER, PACKET_BARRIER_AND, barrier, commands};
use crate::queue::model::{DISPATCH, Session, rung};
use crate::queue::points::{Point, at};
use crate::queue::scan::Ring;
use crate::sink::Sink;
use crate::state::STATE;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::time::Duration;

/// Decrements a signal, as the device does.
fn count_down(signal: Signal) {
    let value = std::ptr::with_exposed_provenance::<AtomicI64>(signal.0 as usize + 8);
    // SAFETY: this is a signal of a gate, which is not given back.
    unsafe { (*value).fetch_sub(1, SeqCst) };
}

/// Makes a gate with this many dispatches on their way.
fn gate(agent: u64, dispatches: u64) -> &'static Gate {
    let number = STATE.serialized.number().unwrap();
    let gate = Box::new(Gate::new(number, agent, 16, Signals::make().unwrap()));
    let gate = STATE.serialized.keep(gate);
    for index in 0..dispatches {
        let dispatch = Dispatch {
            dispatch_id: 10 * u64::from(number) + index,
            agent,
            ..Dispatch::default()
        };
        let chosen = None;
        gate.pending().push_back(Pending { dispatch, chosen });
        gate.open.fetch_add(1, SeqCst);
    }
    gate
}

/// Returns which gates' dispatches were let go since the last call: the gate's number, and the
/// parity of the dispatch.
fn open_gates(gates: &[&Gate]) -> Vec<(u32, usize)> {
    let stored = rung();
    let opened = stored.iter().filter(|(_, value)| *value == 0);
    let which = |handle: u64| {
        gates.iter().find_map(|gate| {
            let mut open = gate.signals.open.iter();
            Some((gate.number, open.position(|signal| signal.0 == handle)?))
        })
    };
    opened.filter_map(|(handle, _)| which(*handle)).collect()
}

fn ended() -> Vec<u64> {
    let ended = STATE.serialized.take_ended();
    ended
        .iter()
        .map(|ended| ended.pending.dispatch.dispatch_id)
        .collect()
}

#[test]
fn dispatches_of_an_agent_have_their_turn_one_after_another() {
    let _session = Session::begin();
    let (one, two, other) = (gate(7, 2), gate(7, 1), gate(8, 1));
    let gates = [one, two, other];
    let mut turns = Turns::default();
    assert_eq!(turns.look(), Look::Same);
    assert_eq!(open_gates(&gates), []);
    // The second queue reaches its dispatch first.
    count_down(two.signals.reached);
    assert_eq!(turns.look(), Look::Changed);
    assert_eq!(open_gates(&gates), [(two.number, 0)]);
    count_down(one.signals.reached);
    count_down(other.signals.reached);
    turns.look();
    assert_eq!(open_gates(&gates), [(other.number, 0)], "on another agent");
    count_down(two.signals.done);
    turns.look();
    assert_eq!(open_gates(&gates), [(one.number, 0)]);
    assert_eq!(ended(), [10 * u64::from(two.number)]);
    // The next dispatch of the same queue waits on the other signal.
    count_down(one.signals.done);
    count_down(one.signals.reached);
    turns.look();
    assert_eq!(open_gates(&gates), [(one.number, 1)]);
    count_down(one.signals.done);
    count_down(other.signals.done);
    turns.look();
    assert_eq!(turns.look(), Look::Idle);
    assert_eq!(ended().len(), 3);
}

#[test]
fn a_queue_that_is_destroyed_loses_its_turn() {
    let _session = Session::begin();
    let (one, two) = (gate(7, 1), gate(7, 1));
    let mut turns = Turns::default();
    count_down(one.signals.reached);
    count_down(two.signals.reached);
    turns.look();
    assert_eq!(open_gates(&[one, two]), [(one.number, 0)]);
    one.is_gone.store(true, SeqCst);
    turns.look();
    assert_eq!(open_gates(&[one, two]), [(two.number, 0)]);
    assert_eq!(ended(), [10 * u64::from(one.number)]);
}

/// The device has read a dispatch's counters, and our thread has not looked yet.
#[test]
fn what_was_read_before_its_queue_was_destroyed_has_ended() {
    let _session = Session::begin();
    let one = gate(7, 2);
    let mut turns = Turns::default();
    count_down(one.signals.reached);
    turns.look();
    count_down(one.signals.done);
    one.is_gone.store(true, SeqCst);
    turns.look();
    let first = 10 * u64::from(one.number);
    assert_eq!(ended(), [first, first + 1]);
    assert_eq!(turns.done(one), 1, "the second one was not read");
}

/// A program destroys a queue when its last kernel has ended: its thread waits for the values.
#[test]
fn a_queue_is_destroyed_when_its_last_values_were_read() {
    let _session = Session::begin();
    let one = gate(7, 1);
    let mut turns = Turns::default();
    let has_waited = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            await_values(one, Duration::from_secs(60));
            has_waited.store(one.open.load(SeqCst) == 0, SeqCst);
        });
        count_down(one.signals.reached);
        turns.look();
        count_down(one.signals.done);
        turns.look();
    });
    assert!(has_waited.load(SeqCst));
    assert_eq!(ended(), [10 * u64::from(one.number)]);
    // Work that never ends delays the application by the limit only.
    let stuck = gate(7, 1);
    await_values(stuck, Duration::from_millis(1));
    assert_eq!(stuck.open.load(SeqCst), 1);
}

#[derive(Debug)]
struct Nobody;

impl User for Nobody {
    fn choose(&self, _dispatch: &Dispatch) -> Choice {
        Choice::default()
    }
    fn deliver(&self, _counted: &Counted<'_>, _sink: &mut Sink) {}
}

#[test]
fn nothing_is_intercepted_until_somebody_asks() {
    static NOBODY: Nobody = Nobody;
    let _session = Session::begin();
    assert!(!is_asked());
    assert_eq!(super::gates::gate_of(4096), 0);
    assert!(add_user(&NOBODY) && add_user(&NOBODY), "once is enough");
    assert!(is_asked());
}

/// A thread that finds a dispatch's note, possibly another one, hands the packet over to the
/// device. By then the signal for the times must be in the packet.
#[test]
fn a_dispatch_is_noted_when_its_packet_is_whole() {
    let session = Session::begin();
    let gate = gate(7, 0);
    let queue = session.queue();
    queue.state.serialized.store(gate.number, SeqCst);
    queue.reserve(1);
    queue.write(0, DISPATCH, 0);
    let too_early = Arc::new(AtomicBool::new(true));
    let seen = Arc::clone(&too_early);
    at(Point::Timing, move || {
        seen.store(gate.noted(0).is_some(), SeqCst);
    });
    assert_eq!(queue.ring(0), Ring::Value(0));
    assert!(!too_early.load(SeqCst), "it had no signal yet");
    assert!(gate.noted(0).is_some());
    assert_ne!(queue.signal(0).0, 0);
}

#[test]
fn packets_have_the_barrier_bit_and_no_fences() {
    let words = barrier(Some(Signal(0x40)), Signal(0x80));
    let header = u64::from(PACKET_BARRIER | u16::from(PACKET_BARRIER_AND));
    assert_eq!(words, [header, 0x40, 0, 0, 0, 0, 0, 0x80]);
    let words = commands(0x1000, 5, Signal(0x80));
    assert_eq!(words[0], 0xc002_3f00_0001_0100);
    assert_eq!(
        (words[1], words[2], words[7]),
        (0x1000, 10 << 32 | 0x1080_0005, 0x80)
    );
}
