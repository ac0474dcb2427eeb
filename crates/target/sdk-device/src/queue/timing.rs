//! Times of kernels: the first subscriber of the queue service.
//!
//! A dispatch without a completion signal gets one from our [`super::pool`]. A dispatch with a
//! signal of the application keeps it and is put under [`super::watch`]. Each dispatch goes into
//! its queue's [`super::flight`] ring. When it has ended, its record is written.

use super::flight::{Facts, Flight, Launch, Stage};
use super::points::{Point, reached};
use super::queue_state::QueueState;
use super::settle::{read_flight, settle};
use super::subscriber::{Answer, Completed, Enqueued, Subscriber};
use super::watch::{Full, Watcher};
use crate::layout::Signal;
use crate::packet::Image;
use crate::sink::Sink;
use crate::state::STATE;
use crate::symbols;
use midair_record::event::{Barrier, Header, Kernel, Plain, Untimed, flag, kind};
use midair_sdk_hot::clock::now;
use midair_sdk_hot::pause;
use midair_sdk_hot::wrappers::original;
use std::collections::HashSet;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// How many free signals are kept ready: as many as eight threads use in a few milliseconds.
const READY_SIGNALS: usize = 4096;
/// How many signals are made before the hooks are installed; the first round of the session makes
/// the rest.
const FIRST_SIGNALS: usize = 1024;
/// The largest number of signals that we ever make.
const MOST_SIGNALS: usize = 60_000;
/// `HSA_AMD_SIGNAL_AMD_GPU_ONLY`: no interrupt, no event.
const GPU_ONLY: u64 = 1;

/// What the worker thread keeps for the times of kernels.
#[derive(Debug, Default)]
pub struct KernelTiming {
    /// The number of signals made so far.
    made: usize,
    /// Kernels that were launched but not known; each is looked for once.
    looked_for: HashSet<u64>,
}

impl KernelTiming {
    /// Makes signals before the hooks are installed. Returns false if the runtime gives none.
    pub(super) fn prepare(&mut self) -> bool {
        self.fill(FIRST_SIGNALS)
    }

    /// Makes signals in place of those that were used.
    pub(super) fn refill(&mut self) {
        self.fill(READY_SIGNALS);
    }

    /// Gives the runtime its signals back, after the hooks were removed.
    pub(super) fn release_signals(&mut self) {
        while let Some(signal) = STATE.signals.take() {
            // SAFETY: this is a midair signal that nothing in flight refers to. Its runtime is
            // open, since a shut-down waits for the session's end.
            unsafe { original::hsa_signal_destroy(signal.0) };
        }
        self.made = 0;
        self.looked_for.clear();
    }

    fn fill(&mut self, wanted: usize) -> bool {
        while STATE.signals.len() < wanted && self.made < MOST_SIGNALS {
            let mut handle = 0_u64;
            // SAFETY: this is the runtime's own function, the out pointer is valid, and no
            // consumers are named.
            let status = unsafe {
                original::hsa_amd_signal_create(
                    1,
                    0,
                    std::ptr::null_mut(),
                    GPU_ONLY,
                    (&raw mut handle).cast(),
                )
            };
            if status != 0 {
                return !STATE.signals.is_empty();
            }
            self.made += 1;
            if STATE.signals.put(Signal(handle)).is_err() {
                break;
            }
        }
        true
    }

    fn recycle(&mut self, signal: Signal) {
        // SAFETY: the signal is ours, and nothing in flight refers to it, since its packet has
        // completed.
        unsafe { signal.rearm() };
        if let Err(signal) = STATE.signals.put(signal) {
            // SAFETY: as above.
            unsafe { original::hsa_signal_destroy(signal.0) };
            self.made = self.made.saturating_sub(1);
        }
    }

    /// Follows a barrier of a call of an event. Only a barrier with a signal of the application is
    /// followed: its packet is left as it is, and the signal is only read. Called under the queue's
    /// spin word, as [`Subscriber::enqueue`] is.
    pub(super) fn follow_barrier(
        queue: &'static QueueState,
        image: &Image,
        index: u64,
        launch: Launch,
    ) {
        let own = image.completion();
        if own.0 == 0 || !pause::is_written(launch.flags) {
            return;
        }
        let facts = Facts {
            index,
            rung: now(),
            launch,
            signal: own.0,
            is_barrier: true,
            ..Facts::default()
        };
        // SAFETY: the application put the signal into the packet, so it is alive.
        if unsafe { own.value() } < 1 {
            // HIP gives it the value 1, so the device has run the packet since it was read. Whether the
            // signal has this packet's times is not known.
            settle(own.0);
            let reason = Untimed::NotProfiled as u32;
            let _ = queue.flights.push(facts, Stage::Untimed, reason);
            return;
        }
        // Where there is no room, the results say that no barrier of the call was seen.
        follow_own(queue, facts, own);
    }

    /// Writes the record of a barrier.
    fn barrier_ended(queue: &QueueState, ended: &Completed<'_>, sink: &mut Sink) {
        let facts = ended.facts;
        let (start, end, untimed) = match ended.outcome {
            Ok((start, end)) => (start, end, Untimed::Timed),
            Err(why) => (0, 0, why),
        };
        let seen = match untimed {
            Untimed::Timed | Untimed::NotProfiled | Untimed::BadTimes => now(),
            _ => 0,
        };
        let mut flags = facts.launch.flags;
        if untimed != Untimed::Timed {
            flags |= flag::UNTIMED;
        }
        let record = Barrier {
            header: Header {
                size: size_of::<Barrier>() as u16,
                kind: kind::BARRIER,
                flags,
                operation: 0,
            },
            start,
            end,
            rung: facts.rung,
            seen,
            correlation: facts.launch.correlation,
            packet_index: facts.index,
            queue_id: queue.id.load(Relaxed),
            node: queue.node.load(Relaxed),
            tid: facts.launch.tid,
            untimed: untimed as u32,
        };
        sink.put(kind::BARRIER, record.bytes());
    }

    /// Returns the ticks of a flight that has ended, or the reason why it has none. Returns `None`
    /// while it runs, unless `otherwise` is the reason for flights that will not be seen to end.
    /// `hooked`: the hooks are installed, so that signals of the application may be read.
    pub(super) fn ended(
        &mut self,
        queue: &QueueState,
        flight: &Flight,
        otherwise: Option<Untimed>,
        hooked: bool,
    ) -> Option<Result<(u64, u64), Untimed>> {
        match flight.stage.load(Acquire) {
            Stage::Seen => return Some(Ok((flight.start.load(Relaxed), flight.end.load(Relaxed)))),
            Stage::Untimed => return Some(Err(untimed(flight.reason.load(Relaxed)))),
            Stage::UnderWay => {}
            _ => return None,
        }
        let facts = flight.facts();
        let signal = Signal(facts.signal);
        let has_ended = facts.index < queue.ended_below.load(Relaxed);
        if facts.ours {
            // SAFETY: this is a midair signal, which is alive as long as its runtime.
            let (value, start, end) =
                unsafe { (signal.value(), signal.start_ticks(), signal.end_ticks()) };
            if value < 1 {
                self.recycle(signal);
                if facts.late && (start == 0 || end == 0) {
                    return Some(Err(Untimed::NotProfiled));
                }
                return Some(Ok((start, end)));
            }
            if has_ended {
                // The packet processor had already read the packet when our signal was put in, so
                // the signal never fires.
                return Some(Err(Untimed::PacketTakenFirst));
            }
            return otherwise.map(Err);
        }
        if !hooked && otherwise.is_none() {
            return None;
        }
        // The signal is the application's, which may be about to change it. The thread that changes
        // the stage reads the signal.
        if flight
            .stage
            .compare_exchange(Stage::UnderWay, Stage::Reading, AcqRel, Acquire)
            .is_err()
        {
            return None;
        }
        let watcher = Watcher::Flight(std::ptr::from_ref(flight).addr());
        // SAFETY: the signal is watched and the hooks are installed, so it is alive. Before the
        // application stores to it or destroys it, a hook takes the flight out of UNDER_WAY, and
        // waits for us while it is READING. Without the hooks the application may have destroyed
        // it, or used it for something else, so it is not read.
        let ticks = hooked
            .then(|| unsafe { Flight::own_ticks(facts) })
            .flatten();
        let outcome = ticks.or(otherwise.map(Err));
        match outcome {
            Some(_) => STATE.watchers.release(facts.signal, watcher),
            None => flight.stage.store(Stage::UnderWay, Release),
        }
        outcome
    }
}

impl Subscriber for KernelTiming {
    fn enqueue(queue: &'static QueueState, enqueued: &Enqueued) -> Answer {
        if !pause::is_written(enqueued.launch.flags) {
            pause::left_out(kind::KERNEL_DISPATCH);
            if let Some((_, own)) = enqueued.packet
                && own.0 != 0
            {
                // Read the times of an earlier packet with this signal, since they are about to be
                // overwritten.
                settle(own.0);
            }
            return Answer::default();
        }
        let Some((packet, own)) = enqueued.packet else {
            // Its packet is gone, so no signal can be put into it.
            let facts = facts_of(enqueued);
            let reason = Untimed::PacketTakenFirst as u32;
            let pushed = queue.flights.push(facts, Stage::Untimed, reason);
            return Answer {
                is_full: pushed.is_none(),
                ..Answer::default()
            };
        };
        let mut facts = Facts {
            signal: own.0,
            late: queue.late.load(Relaxed) != 0,
            ..facts_of(enqueued)
        };
        let (mut at, mut reason) = (Stage::UnderWay, Untimed::Timed);
        if own.0 == 0 {
            match STATE.signals.take() {
                Some(signal) => {
                    facts.signal = signal.0;
                    facts.ours = true;
                    reached(Point::Timing);
                    // SAFETY: the packet is valid and its doorbell is not rung yet, and this is one
                    // aligned store. If the packet processor has taken the packet already (a queue
                    // that is mapped again takes packets without a doorbell), the signal never
                    // fires and is never used again.
                    unsafe { packet.set_completion(signal) };
                }
                None => (at, reason) = (Stage::Untimed, Untimed::NoSignal),
            }
        } else {
            return Answer {
                is_full: !follow_own(queue, facts, own),
                ..Answer::default()
            };
        }
        let pushed = queue.flights.push(facts, at, reason as u32);
        Answer {
            is_full: pushed.is_none(),
            ..Answer::default()
        }
    }

    /// Writes the dispatch's record.
    fn complete(&mut self, queue: &QueueState, dispatch: &Completed<'_>, sink: &mut Sink) {
        let facts = dispatch.facts;
        if facts.is_barrier {
            Self::barrier_ended(queue, dispatch, sink);
            return;
        }
        let (start, end, untimed) = match dispatch.outcome {
            Ok((start, end)) => (start, end, Untimed::Timed),
            Err(why) => (0, 0, why),
        };
        let has_ended = match untimed {
            Untimed::Timed => true,
            // Something else may have decremented the application's signal.
            Untimed::NotProfiled => facts.ours,
            _ => false,
        };
        if has_ended && facts.after_all {
            queue.ended_below.fetch_max(facts.index, Relaxed);
        }
        let mut flags = facts.launch.flags;
        let is_counted = flags & flag::PAUSED == 0;
        match untimed {
            Untimed::Timed if !is_counted => {}
            Untimed::Timed => {
                queue.timed.fetch_add(1, Relaxed);
            }
            why => {
                flags |= flag::UNTIMED;
                if why == Untimed::RunningAtDetach {
                    flags |= flag::OPEN_AT_DETACH;
                }
                if is_counted && let Some(count) = queue.untimed.get(why as usize) {
                    count.fetch_add(1, Relaxed);
                }
            }
        }
        let kernel = facts.dispatch.kernel_object;
        let mut kernel_id = symbols::kernel_id(kernel);
        if kernel_id == 0 && (STATE.symbols.changed.load(Relaxed) || self.looked_for.insert(kernel))
        {
            // The kernel was loaded a moment ago, or in a way that no hook sees. Look for it among
            // everything that is loaded.
            symbols::set_changed();
            symbols::refresh(sink);
            kernel_id = symbols::kernel_id(kernel);
        }
        if kernel_id == 0 {
            kernel_id = symbols::retired_kernel_id(kernel);
        }
        let record = Kernel {
            header: Header {
                size: size_of::<Kernel>() as u16,
                kind: kind::KERNEL_DISPATCH,
                flags,
                operation: 2,
            },
            start,
            end,
            correlation: facts.launch.correlation,
            rung: facts.rung,
            dispatch_id: facts.dispatch_id,
            kernel_id,
            kernel_object: kernel,
            packet_index: facts.index,
            stream: facts.launch.stream,
            queue_id: queue.id.load(Relaxed),
            node: queue.node.load(Relaxed),
            tid: facts.launch.tid,
            untimed: untimed as u32,
            private_segment: facts.dispatch.private_segment,
            group_segment: facts.dispatch.group_segment,
            workgroup: facts.dispatch.workgroup,
            grid: facts.dispatch.grid,
        };
        sink.put(kind::KERNEL_DISPATCH, record.bytes());
    }
}

/// Follows a packet that keeps the application's own signal. Returns whether there was room for it.
fn follow_own(queue: &'static QueueState, mut facts: Facts, own: Signal) -> bool {
    // Read the times of an earlier packet with this signal now, before they are overwritten.
    settle(own.0);
    // SAFETY: the application put the signal into the packet, so it is alive.
    unsafe { (facts.value, facts.stale_end) = (own.value(), own.end_ticks()) };
    let Some(flight) = queue.flights.room(facts.is_barrier) else {
        return false;
    };
    let watcher = Watcher::Flight(std::ptr::from_ref(flight).addr());
    let (stage, reason) = match STATE.watchers.watch(own.0, watcher) {
        Ok(earlier) => {
            if let Some(Watcher::Flight(address)) = earlier {
                // SAFETY: the address was put under watch in this session.
                unsafe { read_flight(address) };
            }
            (Stage::UnderWay, Untimed::Timed)
        }
        // Nothing would tell us before the application destroys the signal.
        Err(Full) => (Stage::Untimed, Untimed::NoSignal),
    };
    queue.flights.push(facts, stage, reason as u32).is_some()
}

/// Returns what is known about a dispatch when it is enqueued, except for its signal.
fn facts_of(enqueued: &Enqueued) -> Facts {
    Facts {
        index: enqueued.index,
        dispatch_id: enqueued.dispatch_id,
        rung: now(),
        launch: enqueued.launch,
        dispatch: enqueued.dispatch,
        signal: 0,
        value: 0,
        stale_end: 0,
        ours: false,
        after_all: enqueued.after_all,
        is_barrier: false,
        late: false,
    }
}

fn untimed(number: u32) -> Untimed {
    Untimed::ALL
        .get(number as usize)
        .copied()
        .filter(|why| *why != Untimed::Timed)
        .unwrap_or(Untimed::BadTimes)
}

/// Converts device ticks to the records' clock, by the runtime's own calibration. Returns 0 if the
/// time is not known.
pub(super) fn to_clock(agent: u64, ticks: u64) -> u64 {
    if ticks == 0 {
        return 0;
    }
    let mut time = 0_u64;
    // SAFETY: this is the runtime's own function with a valid out pointer, and it returns an error
    // for an unknown agent.
    let status = unsafe {
        original::hsa_amd_profiling_convert_tick_to_system_domain(
            agent,
            ticks,
            (&raw mut time).cast(),
        )
    };
    if status == 0 { time } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::super::flight::FLIGHTS;
    use super::*;
    use crate::packet::{Dispatch, PACKET_BARRIER_AND};
    use crate::queue::subscriber::Slots;
    use std::sync::atomic::AtomicU64;

    fn free_queue() -> &'static QueueState {
        let layout = std::alloc::Layout::new::<QueueState>();
        // SAFETY: a state is a free one when all of it is zero; it stays for the rest of the process.
        unsafe { &*std::alloc::alloc_zeroed(layout).cast() }
    }

    /// The words of `amd_signal_t`.
    type Words = [AtomicU64; 8];

    /// Makes a signal of the application with the value 1 and the times of an earlier packet.
    fn signal() -> (&'static Words, u64) {
        let words: &'static Words = Box::leak(Box::default());
        words[1].store(1, Relaxed);
        words[4].store(5, Relaxed);
        words[5].store(7, Relaxed);
        (words, words.as_ptr().expose_provenance() as u64)
    }

    fn follow(queue: &'static QueueState, signal: u64) -> Option<&'static Flight> {
        let before = queue.flights.range().end;
        let image = Image::of([u64::from(PACKET_BARRIER_AND), 0, 0, 0, 0, 0, 0, signal]);
        let launch = Launch {
            of_event: true,
            ..Launch::default()
        };
        KernelTiming::follow_barrier(queue, &image, before + 3, launch);
        (queue.flights.range().end > before).then(|| queue.flights.at(before))
    }

    #[test]
    fn a_barrier_has_the_times_of_its_signal_or_none() {
        let queue = free_queue();
        let mut timing = KernelTiming::default();
        for (times, expected) in [
            (None, Err(Untimed::NotProfiled)),
            (Some((30, 40)), Ok((30, 40))),
        ] {
            let (words, handle) = signal();
            let flight = follow(queue, handle).unwrap();
            assert!(flight.facts().is_barrier && !flight.facts().ours);
            // The times of the earlier packet are not this one's.
            assert_eq!(timing.ended(queue, flight, None, true), None);
            if let Some((start, end)) = times {
                words[4].store(start, Relaxed);
                words[5].store(end, Relaxed);
            }
            words[1].store(0, Relaxed);
            // Without the hooks, the signal may be gone.
            assert_eq!(timing.ended(queue, flight, None, false), None);
            assert_eq!(timing.ended(queue, flight, None, true), Some(expected));
            // Nothing wrote to the application's signal.
            let now = [0, 1, 4, 5].map(|word| words[word].load(Relaxed));
            let (start, end) = times.unwrap_or((5, 7));
            assert_eq!(now, [0, 0, start, end]);
        }
    }

    #[test]
    fn a_barrier_whose_signal_is_used_again_was_not_seen_to_end() {
        let queue = free_queue();
        let mut timing = KernelTiming::default();
        let (_, handle) = signal();
        let flight = follow(queue, handle).unwrap();
        settle(handle);
        let outcome = timing.ended(queue, flight, None, true);
        assert_eq!(outcome, Some(Err(Untimed::SignalReused)));
        // A barrier without a signal tells nothing when it ends.
        assert!(follow(queue, 0).is_none());
    }

    #[test]
    fn a_barrier_that_has_fired_already_is_not_waited_for() {
        let queue = free_queue();
        let (words, handle) = signal();
        words[1].store(0, Relaxed);
        let flight = follow(queue, handle).unwrap();
        // The times may be an earlier packet's.
        let outcome = KernelTiming::default().ended(queue, flight, None, true);
        assert_eq!(outcome, Some(Err(Untimed::NotProfiled)));
    }

    #[test]
    fn barriers_leave_places_for_dispatches_and_are_none() {
        let queue = free_queue();
        let (_, handle) = signal();
        let followed = (0..FLIGHTS).take_while(|_| follow(queue, handle).is_some());
        assert_eq!(followed.count(), FLIGHTS / 2);
        assert_eq!(queue.flights.dispatches(), 0);
        let dispatch = Facts::default();
        let pushed = queue.flights.push(dispatch, Stage::UnderWay, 0).unwrap();
        assert_eq!(queue.flights.dispatches(), 1);
        pushed.stage.store(Stage::Written, Relaxed);
        assert_eq!(queue.flights.dispatches(), 0);
        // When they have ended, there is room again.
        for position in queue.flights.range() {
            queue
                .flights
                .at(position)
                .stage
                .store(Stage::Written, Relaxed);
        }
        queue.flights.retire();
        assert_eq!(
            (queue.flights.range().count(), queue.flights.barriers()),
            (0, 0)
        );
        assert!(follow(queue, handle).is_some());
    }

    #[test]
    fn a_consumed_packet_is_untimed_and_a_full_ring_says_so() {
        let queue = free_queue();
        let consumed = Enqueued {
            index: 3,
            dispatch_id: 1,
            launch: Launch::default(),
            dispatch: Dispatch::default(),
            after_all: false,
            packet: None,
        };
        for _ in 0..FLIGHTS {
            let answer = KernelTiming::enqueue(queue, &consumed);
            assert_eq!((answer.slots, answer.is_full), (Slots::default(), false));
        }
        assert!(KernelTiming::enqueue(queue, &consumed).is_full);
        let flight = queue.flights.at(0);
        assert_eq!(flight.stage.load(Acquire), Stage::Untimed);
        assert_eq!(flight.facts().index, 3);
        let ended = KernelTiming::default().ended(queue, flight, None, true);
        assert_eq!(ended, Some(Err(Untimed::PacketTakenFirst)));
    }
}
