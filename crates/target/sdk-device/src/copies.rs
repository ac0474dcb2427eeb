//! Asynchronous copies: which call asked for which bytes, and when the engine moved them.
//!
//! A copy always has a completion signal of the application, which we do not replace. The signal is
//! put under watch, and the runtime is asked for the copy's times when the signal has fired, or at
//! the last moment before the application uses the signal for something else. Copies that the
//! runtime does with a kernel ("blit") on a queue of its own look the same from here.
//!
//! Decisions: AMD-026, AMD-030 (`docs/deviations/amd.md`).

mod callbacks;
pub(crate) mod entry;
pub(crate) mod settle;

use crate::domain::{Device, Domain};
use crate::hooks::{self, Hook};
use crate::layout::Signal;
use crate::queries;
use crate::queue::harvest::Harvester;
use crate::queue::watch::Watcher;
use crate::sink::Sink;
use crate::state::STATE;
pub(crate) use callbacks::begins;
pub use entry::Facts;
use entry::{Entry, Outcome, Stage};
use midair_domain::KindSet;
use midair_record::event::{Copy, Header, Plain, Untimed, flag, kind};
use midair_sdk_hot::callbacks::work::Notified;
use midair_sdk_hot::wrappers::original;
use settle::times;
use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;

/// How many entries are tried for a new copy.
const TRIES: usize = 64;

/// The ticket of a copy that is about to be requested.
#[derive(Debug, Clone, Copy)]
pub struct Ticket(usize);

/// Enters a copy before the call. Returns `None` if too many copies are under way. The watch starts
/// here, since the copy may end before the call returns.
pub fn begin(mut facts: Facts) -> Option<Ticket> {
    if facts.signal != 0 {
        // Read the times of an earlier copy or dispatch with this signal, since they are about to
        // be overwritten.
        crate::queue::settle::settle(facts.signal);
        // SAFETY: the application passes the signal as a completion signal, so it is alive.
        unsafe {
            let signal = Signal(facts.signal);
            facts.value = signal.value();
            facts.stale = (signal.start_ticks(), signal.end_ticks());
        }
    }
    let first = STATE.copies.next.load(Relaxed);
    let Some((index, mut entry)) = STATE.copies.entries.claim_from(first, TRIES) else {
        STATE.copies.next.store(first.wrapping_add(TRIES), Relaxed);
        return None;
    };
    STATE.copies.next.store(index + 1, Relaxed);
    let outcome = Err(Untimed::NoSignal);
    entry.with(|entry| *entry = Entry { facts, outcome });
    STATE.copies.count.fetch_add(1, Relaxed);
    let is_watched = facts.signal != 0
        && STATE
            .watchers
            .watch(facts.signal, Watcher::Copy(index))
            .is_ok();
    entry.publish(if is_watched {
        Stage::UnderWay
    } else {
        Stage::Ended
    });
    Some(Ticket(index))
}

/// Removes a copy whose call failed. Returns what tools were notified of.
pub fn cancel(ticket: Ticket) -> Option<Notified> {
    let slot = STATE.copies.entries.get(ticket.0)?;
    let mut told = None;
    if let Some(mut entry) = slot
        .hold(Stage::UnderWay)
        .or_else(|| slot.hold(Stage::Ended))
    {
        let signal = entry.with(|entry| {
            told = entry.facts.told;
            entry.facts.signal
        });
        STATE.watchers.release(signal, Watcher::Copy(ticket.0));
        STATE.copies.count.fetch_sub(1, Relaxed);
        entry.free();
    }
    told
}

/// Returns the approximate number of copies under way.
pub fn under_way() -> usize {
    STATE.copies.count.load(Relaxed)
}

/// Does one pass of the worker thread. With `last`, copies that have not ended are ended for that
/// reason. Returns how many ended.
pub fn pass(harvester: &mut Harvester, sink: &mut Sink, last: Option<Untimed>) -> usize {
    let mut open = Some(HashSet::new());
    if STATE.copies.count.load(Relaxed) == 0 {
        harvester.copies = open;
        return 0;
    }
    let mut ended = 0;
    let mut told = Vec::new();
    for (index, slot) in STATE.copies.entries.used() {
        let stage = slot.state();
        if !matches!(stage, Stage::UnderWay | Stage::Ended) {
            if stage == Stage::Held {
                open = None;
            }
            continue;
        }
        let Some(mut entry) = slot.hold(stage) else {
            open = None;
            continue;
        };
        let Entry { facts, mut outcome } = entry.with(|entry| *entry);
        if stage == Stage::UnderWay {
            // With `last` the hooks are removed, so the application may have destroyed the signal,
            // or used it for something else.
            outcome = match last {
                Some(why) => Err(why),
                None => match times(&facts) {
                    Some(outcome) => outcome,
                    // The copy is still under way.
                    None => {
                        if let Some(open) = &mut open {
                            open.insert(facts.correlation);
                        }
                        continue;
                    }
                },
            };
            STATE.watchers.release(facts.signal, Watcher::Copy(index));
        }
        if outcome == Err(Untimed::NotProfiled) {
            harvester.copy_not_profiled([facts.dst_agent, facts.src_agent], facts.asked);
        }
        let record = write(harvester, sink, &facts, outcome);
        told.extend(facts.told.map(|of| (of, record)));
        STATE.copies.count.fetch_sub(1, Relaxed);
        entry.free();
        ended += 1;
    }
    harvester.copies = open;
    harvester.map_anew();
    // No entry is held any more, since a tool may take long.
    for (of, record) in told {
        callbacks::ended(of, &record);
    }
    ended
}

/// Returns the agent that owns the memory at an address, as far as the runtime knows. Only the
/// worker thread asks, since the runtime takes a lock for it.
fn owner(address: u64) -> Option<u64> {
    let pointer = queries::pointer(address)?;
    // Type 0 is unknown memory.
    (pointer.kind != 0 && pointer.owner != 0).then_some(pointer.owner)
}

fn write(harvester: &mut Harvester, sink: &mut Sink, facts: &Facts, outcome: Outcome) -> Copy {
    let outcome = outcome.and_then(|(start, end)| {
        if start != 0 && end >= start {
            Ok((start, end))
        } else {
            Err(Untimed::BadTimes)
        }
    });
    let mut flags = facts.flags;
    let (start, end, untimed) = match outcome {
        Ok((start, end)) => (start, end, 0),
        Err(why) => {
            flags |= flag::UNTIMED;
            if why == Untimed::RunningAtDetach {
                flags |= flag::OPEN_AT_DETACH;
            }
            (0, 0, why as u32)
        }
    };
    let mut node = |address: u64, agent: u64| {
        let owner = if facts.rect { owner(address) } else { None };
        harvester.node_of(owner.unwrap_or(agent))
    };
    let (dst_node, src_node) = (
        node(facts.dst, facts.dst_agent),
        node(facts.src, facts.src_agent),
    );
    let operation = if facts.direction != 0 {
        facts.direction
    } else {
        harvester.direction(facts.src_agent, facts.dst_agent)
    };
    let record = Copy {
        header: Header {
            size: size_of::<Copy>() as u16,
            kind: kind::MEMORY_COPY,
            flags,
            operation,
        },
        start,
        end,
        correlation: facts.correlation,
        bytes: facts.bytes,
        dst: facts.dst,
        src: facts.src,
        stream: facts.stream,
        dst_node,
        src_node,
        tid: facts.tid,
        untimed,
    };
    sink.put(kind::MEMORY_COPY, record.bytes());
    record
}

/// The domain of asynchronous copies.
#[derive(Debug, Default)]
pub struct Copies {
    /// Whether we switched the runtime's profiling of copies on.
    switched: bool,
}

impl Domain for Copies {
    fn kind(&self) -> u8 {
        kind::MEMORY_COPY
    }
    fn hooks(&self) -> &'static [Hook] {
        hooks::COPIES
    }
    fn begin(&mut self, _wanted: KindSet) {
        self.switched = false;
    }
    fn open(&mut self, _device: &mut Device<'_>) {
        if !self.switched {
            // It cannot be queried whether profiling was on already. AMD's HIP never switches it.
            // SAFETY: the runtime's own function.
            self.switched = unsafe { original::hsa_amd_profiling_async_copy_enable(1) } == 0;
        }
    }
    fn pass(&mut self, device: &mut Device<'_>) -> bool {
        pass(device.harvester, device.sink, None) > 0
    }
    fn under_way(&self) -> u64 {
        under_way() as u64
    }
    fn close(&mut self, device: &mut Device<'_>) {
        device.harvester.keep_mappings();
    }
    fn books(&mut self, device: &mut Device<'_>) {
        pass(
            device.harvester,
            device.sink,
            Some(Untimed::RunningAtDetach),
        );
        if std::mem::take(&mut self.switched) {
            // SAFETY: this is the runtime's own function, and we switched the profiling on.
            unsafe { original::hsa_amd_profiling_async_copy_enable(0) };
        }
    }
}
