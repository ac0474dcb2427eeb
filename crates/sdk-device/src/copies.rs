//! Asynchronous copies: who asked for which bytes, and when the engine moved them.
//!
//! A copy always has a completion signal of the application's. It stays; it is put under watch, and its times are asked of the
//! runtime when it has fired, or at the last moment before the application uses it for something else. Copies that the runtime does
//! with a kernel ("blit") on a queue of its own look the same from here.

use crate::layout::Signal;
use crate::queue::harvest::Harvester;
use crate::queue::watch::{self, Watcher};
use crate::sink::Sink;
use midair_record::event::{Copy, Header, Plain, Untimed, flag, kind};
use midair_sdk_hot::wrappers::original;
use std::cell::UnsafeCell;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

/// Copies that can be under way at one time.
const CAPACITY: usize = 1 << 13;

mod stage {
    pub const FREE: u32 = 0;
    pub const FILLING: u32 = 1;
    pub const UNDER_WAY: u32 = 2;
    pub const READING: u32 = 3;
    pub const SEEN: u32 = 4;
    pub const UNTIMED: u32 = 5;
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

struct Entry {
    stage: AtomicU32,
    facts: UnsafeCell<Facts>,
    start: AtomicU64,
    end: AtomicU64,
    reason: AtomicU32,
}

// SAFETY: `facts` is written by whoever moved the stage from FREE to FILLING, and read only from UNDER_WAY on.
unsafe impl Sync for Entry {}

static ENTRIES: [Entry; CAPACITY] = [const {
    Entry {
        stage: AtomicU32::new(stage::FREE),
        facts: UnsafeCell::new(Facts {
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
        }),
        start: AtomicU64::new(0),
        end: AtomicU64::new(0),
        reason: AtomicU32::new(0),
    }
}; CAPACITY];
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// One past the highest entry ever used.
static HIGH: AtomicUsize = AtomicUsize::new(0);
/// Copies under way, about.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// A copy that is about to be asked for. `None` when there is no room.
#[derive(Debug, Clone, Copy)]
pub struct Ticket(usize);

/// Enters a copy before the call. The watch begins here, since the copy may end before the call returns.
pub fn begin(mut facts: Facts) -> Option<Ticket> {
    if facts.signal != 0 {
        // An earlier copy or dispatch with this signal: its times are about to be overwritten.
        crate::queue::scan::settle(facts.signal);
        // SAFETY: the application passes it as a completion signal, so it is alive.
        facts.value = unsafe { Signal(facts.signal).value() };
    }
    for _ in 0..64 {
        let index = NEXT.fetch_add(1, Relaxed) % CAPACITY;
        let entry = ENTRIES.get(index)?;
        if entry
            .stage
            .compare_exchange(stage::FREE, stage::FILLING, AcqRel, Relaxed)
            .is_ok()
        {
            // SAFETY: FILLING is ours alone.
            unsafe { *entry.facts.get() = facts };
            entry.start.store(0, Relaxed);
            entry.end.store(0, Relaxed);
            let untimed = facts.signal == 0;
            entry.reason.store(Untimed::NoSignal as u32, Relaxed);
            HIGH.fetch_max(index + 1, AcqRel);
            COUNT.fetch_add(1, Relaxed);
            entry.stage.store(
                if untimed {
                    stage::UNTIMED
                } else {
                    stage::UNDER_WAY
                },
                Release,
            );
            if !untimed {
                watch::watch(facts.signal, Watcher::Copy(index));
            }
            return Some(Ticket(index));
        }
    }
    None
}

/// The call failed: there is no copy.
pub fn cancel(ticket: Ticket) {
    let Some(entry) = ENTRIES.get(ticket.0) else {
        return;
    };
    if entry
        .stage
        .compare_exchange(stage::UNDER_WAY, stage::READING, AcqRel, Relaxed)
        .is_ok()
        || entry
            .stage
            .compare_exchange(stage::UNTIMED, stage::READING, AcqRel, Relaxed)
            .is_ok()
    {
        // SAFETY: READING is ours alone.
        let signal = unsafe { (*entry.facts.get()).signal };
        watch::release(signal, Watcher::Copy(ticket.0));
        COUNT.fetch_sub(1, Relaxed);
        entry.stage.store(stage::FREE, Release);
    }
}

/// The signal of copy `index` is about to be used for something else: takes the times now.
pub fn settle(index: usize) {
    let Some(entry) = ENTRIES.get(index) else {
        return;
    };
    if entry
        .stage
        .compare_exchange(stage::UNDER_WAY, stage::READING, AcqRel, Acquire)
        .is_err()
    {
        for _ in 0..100_000 {
            if entry.stage.load(Acquire) != stage::READING {
                break;
            }
            std::hint::spin_loop();
        }
        return;
    }
    // SAFETY: READING is ours alone.
    let facts = unsafe { *entry.facts.get() };
    match times(&facts) {
        Some((start, end)) => {
            entry.start.store(start, Relaxed);
            entry.end.store(end, Relaxed);
            entry.stage.store(stage::SEEN, Release);
        }
        None => {
            entry.reason.store(Untimed::SignalReused as u32, Relaxed);
            entry.stage.store(stage::UNTIMED, Release);
        }
    }
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

/// One pass of our own thread; with `last`, ends what has not ended. Returns how many ended.
pub fn pass(harvester: &mut Harvester, sink: &mut Sink, last: Option<Untimed>) -> usize {
    if COUNT.load(Relaxed) == 0 {
        return 0;
    }
    let mut ended = 0;
    for (index, entry) in ENTRIES.iter().enumerate().take(HIGH.load(Acquire)) {
        let outcome = match entry.stage.load(Acquire) {
            stage::SEEN => Ok((entry.start.load(Relaxed), entry.end.load(Relaxed))),
            stage::UNTIMED => Err(entry.reason.load(Relaxed)),
            stage::UNDER_WAY => {
                if entry
                    .stage
                    .compare_exchange(stage::UNDER_WAY, stage::READING, AcqRel, Acquire)
                    .is_err()
                {
                    continue;
                }
                // SAFETY: READING is ours alone.
                let facts = unsafe { *entry.facts.get() };
                // With `last` the hooks are out: the application may have destroyed the signal, or used it for something else.
                match (last, if last.is_none() { times(&facts) } else { None }) {
                    (Some(why), _) => {
                        watch::release(facts.signal, Watcher::Copy(index));
                        Err(why as u32)
                    }
                    (None, Some(times)) => {
                        watch::release(facts.signal, Watcher::Copy(index));
                        Ok(times)
                    }
                    (None, None) => {
                        entry.stage.store(stage::UNDER_WAY, Release);
                        continue;
                    }
                }
            }
            _ => continue,
        };
        // SAFETY: SEEN, UNTIMED and READING entries are not written by anyone but us.
        let facts = unsafe { *entry.facts.get() };
        write(harvester, sink, &facts, outcome);
        COUNT.fetch_sub(1, Relaxed);
        entry.stage.store(stage::FREE, Release);
        ended += 1;
    }
    ended
}

/// Whose memory an address is, as far as the runtime knows. Only our own thread asks: the runtime takes a lock for it.
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

fn write(
    harvester: &mut Harvester,
    sink: &mut Sink,
    facts: &Facts,
    outcome: Result<(u64, u64), u32>,
) {
    let outcome = outcome.and_then(|(start, end)| {
        if start != 0 && end >= start {
            Ok((start, end))
        } else {
            Err(Untimed::BadTimes as u32)
        }
    });
    let mut flags = facts.flags;
    let (start, end, untimed) = match outcome {
        Ok((start, end)) => (start, end, 0),
        Err(why) => {
            flags |= flag::UNTIMED;
            if why == Untimed::RunningAtDetach as u32 {
                flags |= flag::OPEN_AT_DETACH;
            }
            (0, 0, why)
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

/// See [`crate::forked`].
pub fn begin_anew() {
    for entry in &ENTRIES {
        entry.stage.store(stage::FREE, Release);
    }
    for count in [&NEXT, &HIGH, &COUNT] {
        count.store(0, Relaxed);
    }
}
