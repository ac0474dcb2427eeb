//! Switches the application's queues to counting: a midair packet switches each queue on, and
//! another one switches it off at the end.
//!
//! Neither packet waits for anything, and nothing waits for it. They are only put into rings into
//! which any thread may put packets, whose application checks for room (AMD-121), and which are at
//! most half full. The kernels of a queue without such a packet are not counted, and a note says
//! so.

use crate::layout::Signal;
use crate::packet::{self, Packet};
use crate::queue::flight::Launch;
use crate::queue::queue_state::{Life, QueueState};
use crate::queue::scan::look;
use crate::queue::state;
use crate::queue::window::OURS;
use crate::queue::windows::keeper::signal;
use midair_sdk_hot::clock::now;
use midair_sdk_hot::wrappers::original;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// A midair packet in a queue of the application.
#[derive(Debug)]
struct Switch {
    queue: &'static QueueState,
    signal: Signal,
    /// Whether the device has reached it, or never will.
    is_done: bool,
}

/// The queues of an agent that are switched on.
#[derive(Debug)]
pub(super) struct Switches {
    agent: u64,
    /// The commands that switch a queue on: their address and number of words.
    on: (u64, u32),
    off: (u64, u32),
    all: Vec<Switch>,
    is_ended: bool,
}

impl Switches {
    pub(super) fn new(agent: u64, on: (u64, u32), off: (u64, u32)) -> Switches {
        Switches {
            agent,
            on,
            off,
            all: Vec::new(),
            is_ended: false,
        }
    }

    /// Switches on the queues that are not switched on yet.
    pub(super) fn follow(&mut self) {
        self.look();
        if self.is_ended {
            return;
        }
        for queue in state::all() {
            let is_ours = queue.agent.load(Acquire) == self.agent;
            if is_ours && !self.is_on(queue) && may_have_one(queue) {
                self.put(queue, self.on, true);
            }
        }
    }

    fn is_on(&self, queue: &QueueState) -> bool {
        self.all.iter().any(|on| std::ptr::eq(on.queue, queue))
    }

    /// Switches all queues off. No queue is switched on from here on.
    pub(super) fn end(&mut self) {
        if std::mem::replace(&mut self.is_ended, true) {
            return;
        }
        let queues: Vec<&'static QueueState> = self.all.iter().map(|on| on.queue).collect();
        for queue in queues {
            self.put(queue, self.off, false);
        }
    }

    fn put(&mut self, queue: &'static QueueState, commands: (u64, u32), is_observed: bool) {
        let Some(signal) = signal() else {
            return;
        };
        if insert(queue, commands, signal, is_observed) {
            self.all.push(Switch {
                queue,
                signal,
                is_done: false,
            });
        } else {
            // SAFETY: the signal was created above, and nothing uses it.
            unsafe { original::hsa_signal_destroy(signal.0) };
        }
    }

    fn look(&mut self) {
        for switch in self.all.iter_mut().filter(|switch| !switch.is_done) {
            // SAFETY: this is a midair signal, which is alive until `release`.
            let has_fired = unsafe { switch.signal.value() < 1 };
            switch.is_done = has_fired || switch.queue.life.load(Acquire) == Life::Gone;
        }
    }

    /// Returns the number of packets that the device has not reached.
    pub(super) fn under_way(&mut self) -> usize {
        self.look();
        self.all.iter().filter(|switch| !switch.is_done).count()
    }

    /// Returns the number of the agent's queues that were not switched on.
    pub(super) fn left_out(&self) -> usize {
        let queues = state::all().filter(|queue| queue.agent.load(Acquire) == self.agent);
        queues.filter(|queue| !self.is_on(queue)).count()
    }

    /// Gives the signals back, except for signals of packets that the device may still reach.
    /// Returns the number of these packets, whose commands must stay.
    pub(super) fn release(mut self) -> usize {
        let open = self.under_way();
        for switch in self.all.iter().filter(|switch| switch.is_done) {
            // SAFETY: this is a midair signal that no packet of a live queue refers to.
            unsafe { original::hsa_signal_destroy(switch.signal.0) };
        }
        open
    }
}

fn may_have_one(queue: &QueueState) -> bool {
    queue.life.load(Acquire) == Life::Alive
        && queue.intercept.load(Relaxed) == 0
        && queue.watches_room.load(Relaxed) != 0
        && !queue.is_direct()
}

/// Puts a packet into a queue of the application and rings the doorbell for it. Returns false if
/// that is not possible now. `is_observed` says that packets of the queue are looked at; then those
/// before this one are looked at first.
fn insert(
    queue: &'static QueueState,
    (address, words): (u64, u32),
    signal: Signal,
    is_observed: bool,
) -> bool {
    let Some(mut inner) = queue.lock() else {
        return false;
    };
    // The queue may have had such packets before, for the counters of another reader.
    let had = queue.has_switches.swap(1, Relaxed);
    let put = queue.visit(|pointer| {
        let raw = std::ptr::with_exposed_provenance_mut(pointer.0 as usize);
        // SAFETY: `visit` calls this only with a live queue, and any thread may reserve packets in
        // it. The packet is ours, and it is free: there was room, and the read index only grows.
        unsafe {
            if !pointer.is_for_all_threads() {
                return None;
            }
            let (ring, size) = (pointer.ring(), u64::from(pointer.size()));
            let written = original::hsa_queue_load_write_index_relaxed(raw);
            let read = original::hsa_queue_load_read_index_scacquire(raw);
            if written.wrapping_sub(read).saturating_add(1) > size / 2 {
                return None;
            }
            let next = written.wrapping_add(1);
            let old = original::hsa_queue_cas_write_index_scacq_screl(raw, written, next);
            if old != written {
                return None;
            }
            let ours = Launch {
                window: OURS,
                ..Launch::default()
            };
            // Note the owner before the packet is valid: a thread that looks at the ring meanwhile
            // must know whose packet it is.
            queue.reserve(old, 1, ours);
            let packet = Packet::at(ring, size, old);
            packet.set_body(address, words, signal);
            packet::flush();
            packet.set_commands_header_at_once();
            packet::flush();
            Some(old)
        }
    });
    let Some(index) = put.flatten() else {
        if is_observed {
            queue.has_switches.store(had, Relaxed);
        }
        return false;
    };
    inner.take_passed(queue);
    inner.asked = inner.asked.max(queue.with_ours(index.wrapping_add(1)));
    let asked = inner.asked;
    queue.covered.store(inner.rung_by_us(), Relaxed);
    let upto = if is_observed {
        queue.visit(|_| look(queue, &mut inner, None, asked));
        asked.min(inner.next.max(inner.rung))
    } else {
        asked
    };
    // Another producer's packet before ours is not written yet. The thread that writes it rings for
    // both.
    inner.held_since = match inner.held_since {
        _ if upto >= asked => 0,
        0 => now(),
        since => since,
    };
    if upto > inner.rung {
        inner.rung = upto;
        drop(inner);
        queue.visit(|_| {
            let value = upto.wrapping_sub(1) as i64;
            // SAFETY: `visit` calls this only while the queue, and with it its doorbell, is alive.
            unsafe { original::hsa_signal_store_screlease(queue.doorbell.load(Relaxed), value) };
        });
    }
    true
}
