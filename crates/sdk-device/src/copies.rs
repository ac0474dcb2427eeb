//! Asynchronous copies: who asked for which bytes, and when the engine moved them.
//!
//! A copy always has a completion signal of the application's. It stays; it is put under watch, and its times are asked of the
//! runtime when it has fired, or at the last moment before the application uses it for something else. Copies that the runtime does
//! with a kernel ("blit") on a queue of its own look the same from here.
//!
//! Decisions: AMD-026, AMD-030 (`docs/deviations/amd.md`).

use crate::layout::Signal;
use crate::queue::harvest::Harvester;
use crate::queue::watch::{self, Watcher};
use crate::sink::Sink;
use midair_lockfree::{AtomicEnum, Slot, SlotState, SlotTable, word_enum};
use midair_record::event::{Copy, Header, Plain, Untimed, flag, kind};
use midair_sdk_hot::wrappers::original;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// Copies that can be under way at one time.
const CAPACITY: usize = 1 << 13;

/// Entries that are tried for a new copy.
const TRIES: usize = 64;

word_enum! {
    enum Stage else Held {
        /// No copy.
        Free = 0,
        /// One thread fills the entry, reads the times, or writes the record.
        Held = 1,
        /// The engine has not ended it, as far as anybody knows.
        UnderWay = 2,
        /// Its times are known, or that it will never have any.
        Ended = 3,
    }
}

impl SlotState for Stage {
    const FREE: Stage = Stage::Free;
    const HELD: Stage = Stage::Held;
}

/// What is known when a copy is asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Facts {
    /// Destination address.
    pub dst: u64,
    /// Source address.
    pub src: u64,
    /// Agents' handles: destination.
    pub dst_agent: u64,
    /// Source.
    pub src_agent: u64,
    /// Bytes.
    pub bytes: u64,
    /// Correlation id.
    pub correlation: u64,
    /// Raw stream handle.
    pub stream: u64,
    /// Thread.
    pub tid: u32,
    /// Bits of [`flag`].
    pub flags: u8,
    /// Direction (1 H2H … 4 D2D), 0 = by the agents' types.
    pub direction: u32,
    /// Rectangular: the call names only the agent whose engine moves the bytes, in both places above.
    pub rect: bool,
    /// Completion signal.
    pub signal: u64,
    /// Its value before the copy.
    pub value: i64,
}

#[derive(Clone, Copy)]
struct Entry {
    facts: Facts,
    /// Start and end in the record clock, or the reason (an [`Untimed`]) why there are none. Once it has ended.
    outcome: Outcome,
}

/// See [`Entry::outcome`].
type Outcome = Result<(u64, u64), Untimed>;

static COPIES: SlotTable<AtomicEnum<Stage>, CAPACITY, (), Entry> = SlotTable::new(
    [const {
        Slot::new(
            AtomicEnum::new(),
            (),
            Entry {
                facts: Facts {
                    dst: 0,
                    src: 0,
                    dst_agent: 0,
                    src_agent: 0,
                    bytes: 0,
                    correlation: 0,
                    stream: 0,
                    tid: 0,
                    flags: 0,
                    direction: 0,
                    rect: false,
                    signal: 0,
                    value: 0,
                },
                outcome: Ok((0, 0)),
            },
        )
    }; CAPACITY],
);
/// Where the search for a free entry begins: behind the entry that was claimed last.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// Copies under way, about.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// A copy that is about to be asked for.
#[derive(Debug, Clone, Copy)]
pub struct Ticket(usize);

/// Enters a copy before the call; `None` when too many are under way. The watch begins here, since the copy may end before the call returns.
pub fn begin(mut facts: Facts) -> Option<Ticket> {
    if facts.signal != 0 {
        // An earlier copy or dispatch with this signal: its times are about to be overwritten.
        crate::queue::scan::settle(facts.signal);
        // SAFETY: the application passes it as a completion signal, so it is alive.
        facts.value = unsafe { Signal(facts.signal).value() };
    }
    let first = NEXT.load(Relaxed);
    let Some((index, mut entry)) = COPIES.claim_from(first, TRIES) else {
        NEXT.store(first.wrapping_add(TRIES), Relaxed);
        return None;
    };
    NEXT.store(index + 1, Relaxed);
    let outcome = Err(Untimed::NoSignal);
    entry.with(|entry| *entry = Entry { facts, outcome });
    COUNT.fetch_add(1, Relaxed);
    if facts.signal == 0 {
        entry.publish(Stage::Ended);
    } else {
        entry.publish(Stage::UnderWay);
        watch::watch(facts.signal, Watcher::Copy(index));
    }
    Some(Ticket(index))
}

/// The call failed: there is no copy.
pub fn cancel(ticket: Ticket) {
    let Some(slot) = COPIES.get(ticket.0) else {
        return;
    };
    if let Some(mut entry) = slot
        .hold(Stage::UnderWay)
        .or_else(|| slot.hold(Stage::Ended))
    {
        let signal = entry.with(|entry| entry.facts.signal);
        watch::release(signal, Watcher::Copy(ticket.0));
        COUNT.fetch_sub(1, Relaxed);
        entry.free();
    }
}

/// The signal of copy `index` is about to be used for something else: reads the times now.
pub fn settle(index: usize) {
    let Some(slot) = COPIES.get(index) else {
        return;
    };
    let Some(mut entry) = slot.hold(Stage::UnderWay) else {
        for _ in 0..100_000 {
            if slot.state() != Stage::Held {
                break;
            }
            std::hint::spin_loop();
        }
        return;
    };
    entry.with(|entry| entry.outcome = times(&entry.facts).ok_or(Untimed::SignalReused));
    entry.publish(Stage::Ended);
}

/// Times in the record clock, when the copy has ended.
fn times(facts: &Facts) -> Option<(u64, u64)> {
    // SAFETY: the signal is alive: it is watched, and a hook settles the copy before it is destroyed.
    if unsafe { Signal(facts.signal).value() } >= facts.value {
        return None;
    }
    let mut time = [0_u64; 2];
    // SAFETY: the runtime's own query with a buffer of the struct's size (start, end).
    let status = unsafe {
        original::hsa_amd_profiling_get_async_copy_time(facts.signal, time.as_mut_ptr().cast())
    };
    let [start, end] = time;
    Some(if status == 0 { (start, end) } else { (0, 0) })
}

/// Copies under way, about.
pub fn under_way() -> usize {
    COUNT.load(Relaxed)
}

/// One pass of the worker thread; with `last`, ends what has not ended. Returns how many ended.
pub fn pass(harvester: &mut Harvester, sink: &mut Sink, last: Option<Untimed>) -> usize {
    if COUNT.load(Relaxed) == 0 {
        return 0;
    }
    let mut ended = 0;
    for (index, slot) in COPIES.used() {
        let stage = slot.state();
        if !matches!(stage, Stage::UnderWay | Stage::Ended) {
            continue;
        }
        let Some(mut entry) = slot.hold(stage) else {
            continue;
        };
        let Entry { facts, mut outcome } = entry.with(|entry| *entry);
        if stage == Stage::UnderWay {
            // With `last` the hooks are out: the application may have destroyed the signal, or used it for something else.
            outcome = match last {
                Some(why) => Err(why),
                None => match times(&facts) {
                    Some(times) => Ok(times),
                    // Under way again.
                    None => continue,
                },
            };
            watch::release(facts.signal, Watcher::Copy(index));
        }
        write(harvester, sink, &facts, outcome);
        COUNT.fetch_sub(1, Relaxed);
        entry.free();
        ended += 1;
    }
    ended
}

/// Whose memory an address is, as far as the runtime knows. Only the worker thread asks: the runtime takes a lock for it.
fn owner(address: u64) -> Option<u64> {
    // hsa_amd_pointer_info_t: size and type in the first word, the owner in the sixth; seven words in all (source:
    // api/hsa_types.json).
    let mut info = [0_u64; 7];
    if let Some(size) = info.first_mut() {
        *size = size_of::<[u64; 7]>() as u64;
    }
    // SAFETY: the runtime's own query: it looks the address up without touching it, and writes no more than the size says; the
    // list of agents is not asked for.
    let status = unsafe {
        original::hsa_amd_pointer_info(
            address as *mut _,
            info.as_mut_ptr().cast(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
    let [first, _, _, _, _, owner, _] = info;
    // Type 0 is unknown memory.
    (status == 0 && first >> 32 != 0 && owner != 0).then_some(owner)
}

fn write(harvester: &mut Harvester, sink: &mut Sink, facts: &Facts, outcome: Outcome) {
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
}

/// See `forked` in `midair-sdk-control`.
pub fn begin_anew() {
    // SAFETY: in a forked child before its first session: no thread holds an entry.
    unsafe { COPIES.reset() };
    for count in [&NEXT, &COUNT] {
        count.store(0, Relaxed);
    }
}
