//! Reads what the device has written during a trace into records, as far as the spool has room.

use crate::queue::timing::to_clock;
use crate::queue::window::{NO_DISPATCH, Window};
use crate::sink::Sink;
use crate::state::STATE;
use midair_record::event::{Header, MAX_RECORD, Plain, TraceData, kind, note, trace_status};
use midair_record::trace_plan::{CONTROL, Engine, Trace};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// The most bytes of data in a record.
const MOST: u64 = (MAX_RECORD - size_of::<TraceData>()) as u64 / 8 * 8;
/// How many bytes one round takes at most.
const ROUND: u64 = 8 << 20;
/// Bytes of the blocks in which gfx9 counts what it has written, and the bits of the count.
const BLOCK: u64 = 32;
const WRITTEN: u64 = 0x3fff_ffff;
/// Bits of gfx9's status: the buffer is full; an error of memory.
const FULL: u32 = 1 << 31;
const MEMORY_ERROR: u32 = 1 << 28;
/// Bytes before an engine's data.
const HEADER: u64 = 8;
/// Bytes that a trace leaves to the session's notes, with which a cut one is reported.
const NOTES: usize = 16 << 10;
/// The most lines about buffers.
const LINES: usize = 16;

/// A trace that is being read.
#[derive(Debug)]
pub(super) struct Drain {
    /// The pair's index.
    pub pair: usize,
    /// What all its records have.
    head: TraceData,
    /// The engine that is read, and up to where.
    engine: usize,
    first: u64,
    /// Engines whose buffer was full, and those with an error.
    full: Vec<u32>,
    broken: Vec<u32>,
    has_begun: bool,
    /// Whether the device had skipped the start.
    is_lost: bool,
    /// Whether a part had no room, so the rest is left out.
    is_cut: bool,
}

/// Returns a word of the trace's memory.
///
/// # Safety
/// It is inside the memory, and aligned.
unsafe fn load(at: u64) -> u64 {
    // SAFETY: the caller's promise.
    let word: &AtomicU64 = unsafe { &*std::ptr::with_exposed_provenance(at as usize) };
    word.load(Relaxed)
}

impl Drain {
    /// Writes the next part. Returns whether everything is written. With `all`, what has no room is
    /// lost.
    pub(super) fn go_on(&mut self, trace: &Trace, memory: u64, sink: &mut Sink, all: bool) -> bool {
        if !self.has_begun {
            self.has_begun = true;
            // SAFETY: the offset is inside the memory (`trace_plan` has checked it).
            if unsafe { load(memory + time_at(trace)) } == 0 {
                self.is_lost = true;
                return true;
            }
        }
        let mut left = ROUND;
        while let Some(engine) = trace.engines.get(self.engine) {
            let (bytes, status) = written(engine, memory);
            let total = HEADER + bytes;
            while self.first < total {
                let count = MOST.min(total - self.first);
                if !all && (left < count || !sink.has_room(NOTES)) {
                    return false;
                }
                left = left.saturating_sub(count);
                if !sink.has_room(NOTES)
                    || !self.put(sink, (engine, memory), (total, status), count)
                {
                    self.is_cut = true;
                    return true;
                }
                self.first += count;
            }
            if status & trace_status::FULL != 0 {
                self.full.push(engine.number);
            }
            if status & trace_status::MEMORY_ERROR != 0 {
                self.broken.push(engine.number);
            }
            self.engine += 1;
            self.first = 0;
        }
        true
    }

    /// Writes a part. Returns whether it had room.
    fn put(
        &self,
        sink: &mut Sink,
        (engine, memory): (&Engine, u64),
        (total, status): (u64, u32),
        count: u64,
    ) -> bool {
        let record = TraceData {
            header: Header {
                size: (size_of::<TraceData>() as u64 + count) as u16,
                kind: kind::THREAD_TRACE,
                ..Header::default()
            },
            total,
            first: self.first,
            engine: engine.number,
            status,
            bytes: count as u32,
            ..self.head
        };
        let mut bytes = Vec::with_capacity(usize::from(record.header.size));
        bytes.extend_from_slice(record.bytes());
        for at in (self.first..self.first + count).step_by(8) {
            let word = match at.checked_sub(HEADER) {
                None => engine.header,
                // SAFETY: the engine's buffer is inside the memory, and `total` is within the buffer.
                Some(at) => unsafe { load(memory + engine.offset + at) },
            };
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        sink.store(kind::THREAD_TRACE, &bytes)
    }
}

/// Returns how many bytes an engine has written, and its status.
fn written(engine: &Engine, memory: u64) -> (u64, u32) {
    let control = memory + CONTROL * u64::from(engine.number);
    // SAFETY: the control block is inside the memory (`trace_plan` has checked it).
    let (status, written) = unsafe { (load(control) as u32, load(control + 8)) };
    let bytes = (written & WRITTEN) * BLOCK;
    let mut bits = 0;
    if status & FULL != 0 || bytes > engine.bytes {
        bits |= trace_status::FULL;
    }
    if status & MEMORY_ERROR != 0 {
        bits |= trace_status::MEMORY_ERROR;
    }
    (bytes.min(engine.bytes / 8 * 8), bits)
}

/// Returns where the start leaves the device's time: the first place in the control block.
pub(super) fn time_at(trace: &Trace) -> u64 {
    let buffers = trace.engines.iter().map(|engine| engine.offset).min();
    let spots = trace.start_spots.iter().map(|spot| spot.offset);
    let within = spots.filter(|offset| Some(*offset) < buffers);
    within.min().unwrap_or(0) / 8 * 8
}

/// What the traces of a session came to.
#[derive(Debug, Default)]
pub(super) struct Memo {
    traces: u64,
    /// Dispatches that the device had taken before they could be traced.
    late: u64,
    /// Lines about buffers.
    buffers: Vec<String>,
    unfinished: Vec<u64>,
}

impl Memo {
    /// Makes the reader of a pair whose trace has ended. None where the queue was destroyed.
    pub(super) fn ended(
        &mut self,
        agent: u64,
        (pair, window): (usize, &Window),
        times: [u64; 2],
        fired: bool,
    ) -> Option<Drain> {
        let dispatch = window.dispatch.load(Acquire);
        if !fired || dispatch == NO_DISPATCH {
            self.late += 1;
            return None;
        }
        let [start, end] = times.map(|ticks| to_clock(agent, ticks));
        self.traces += 1;
        Some(Drain {
            pair,
            head: TraceData {
                trace: self.traces,
                dispatch_id: dispatch,
                start,
                end,
                node: crate::symbols::agent_node(agent),
                ..TraceData::default()
            },
            engine: 0,
            first: 0,
            full: Vec::new(),
            broken: Vec::new(),
            has_begun: false,
            is_lost: false,
            is_cut: false,
        })
    }

    /// Notes a trace that was read.
    pub(super) fn drained(&mut self, drain: &Drain) {
        if drain.is_lost {
            self.traces = self.traces.saturating_sub(1);
            self.late += 1;
            return;
        }
        let dispatch = drain.head.dispatch_id;
        if drain.is_cut && self.buffers.len() < LINES {
            self.buffers.push(format!(
                "the thread trace of dispatch {dispatch} is incomplete: the records had no room for its rest"
            ));
        }
        for (engines, what) in [
            (
                &drain.full,
                "filled its buffers, so its end is missing: raise --att-buffer-size",
            ),
            (&drain.broken, "had an error of memory"),
        ] {
            if !engines.is_empty() && self.buffers.len() < LINES {
                let engines: Vec<String> = engines.iter().map(u32::to_string).collect();
                self.buffers.push(format!(
                    "the thread trace of dispatch {dispatch} {what} (shader engines {})",
                    engines.join(", ")
                ));
            }
        }
    }

    /// Notes a trace that has not ended.
    pub(super) fn unfinished(&mut self, window: &Window) {
        self.unfinished.push(window.dispatch.load(Relaxed));
    }

    /// Notes a trace whose queue was destroyed before the trace was stopped.
    pub(super) fn stuck(&mut self, node: u32, window: &Window) {
        let dispatch = window.dispatch.load(Relaxed);
        self.buffers.push(format!(
            "the queue of dispatch {dispatch} was destroyed during its thread trace: the GPU of node {node} may still write it, so its memory stays allocated, and there is no further trace"
        ));
    }

    /// Writes the notes of a session.
    pub(super) fn finish(&mut self, sink: &mut Sink) {
        let traces = &STATE.traces;
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        let mut all = std::mem::take(&mut self.buffers);
        for dispatch in self.unfinished.drain(..) {
            all.push(format!(
                "the thread trace of dispatch {dispatch} had not ended at the detach"
            ));
        }
        let missed = [
            (
                count(&traces.busy),
                "since the trace before was not read yet",
            ),
            (
                count(&traces.without),
                "since midair had put no packets around them",
            ),
            (
                count(&traces.stuck),
                "since a trace on their GPU never ended",
            ),
            (
                count(&traces.unknown),
                "since their kernels' names were not known yet, if they were chosen",
            ),
            (
                self.late,
                "since the device took them before their doorbell, or their queue was destroyed",
            ),
        ];
        let mut any = self.traces > 0;
        for (count, why) in missed.into_iter().filter(|(count, _)| *count > 0) {
            any = true;
            all.push(format!(
                "chosen dispatches without a thread trace, {why}: {count}"
            ));
        }
        // A launch is not yet a dispatch of a kernel, so it is not known which of these were chosen.
        let launches = [
            (
                count(&traces.none_ready),
                "all of midair's packets were in use",
            ),
            (count(&traces.no_room), "the ring was more than half full"),
            (
                count(&traces.unfit),
                "their program does not check for room, or rings in a way that midair cannot see",
            ),
        ];
        let without = count(&traces.without) > 0;
        for (count, why) in launches
            .into_iter()
            .filter(|(count, _)| without && *count > 0)
        {
            all.push(format!(
                "launches of all kernels without midair's packets for thread traces, since {why}: {count}"
            ));
        }
        if !any {
            all.push("no chosen dispatch ran: there is no thread trace".to_owned());
        }
        for text in all {
            sink.put(kind::NOTE, &note(&text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::model::Session;
    use midair_record::trace_plan::Spot;

    /// Two engines, of which the second has the number 2, with buffers of 8 KiB each.
    fn plan() -> Trace {
        let engine = |number, offset| Engine {
            number,
            offset,
            bytes: 0x2000,
            header: u64::from(number) << 32 | 7,
        };
        Trace {
            memory: 0x5000,
            engines: vec![engine(0, 0x1000), engine(2, 0x3000)],
            start_spots: vec![Spot {
                word: 0,
                shift: 0,
                offset: 20,
            }],
            ..Trace::default()
        }
    }

    /// Returns a trace's memory: the time of its start, and for each engine status and written blocks.
    fn memory(time: u64, engines: [(u64, u64); 2]) -> Vec<u64> {
        let mut words: Vec<u64> = (0..0x5000 / 8).collect();
        words[..16].fill(0);
        for (at, (status, blocks)) in [0, 8].into_iter().zip(engines) {
            (words[at], words[at + 1]) = (status, blocks);
        }
        words[2] = time;
        words
    }

    /// Of a record: engine, first byte, status, and words.
    type Part = (u32, u64, u32, Vec<u64>);

    /// Reads a trace. Returns its records.
    fn read(words: &[u64]) -> (Memo, Vec<Part>) {
        let mut session = Session::begin();
        let mut memo = Memo::default();
        let mut drain = Drain {
            pair: 0,
            head: TraceData {
                trace: 1,
                dispatch_id: 9,
                ..TraceData::default()
            },
            engine: 0,
            first: 0,
            full: Vec::new(),
            broken: Vec::new(),
            has_begun: false,
            is_lost: false,
            is_cut: false,
        };
        memo.traces = 1;
        let at = words.as_ptr().expose_provenance() as u64;
        assert!(drain.go_on(&plan(), at, &mut session.sink, false));
        memo.drained(&drain);
        let mut all = Vec::new();
        session.records(|header, bytes| {
            assert_eq!(header.kind, kind::THREAD_TRACE);
            let part = TraceData::read(bytes).unwrap();
            let words = bytes[size_of::<TraceData>()..usize::from(header.size)].chunks(8);
            let words = words.map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
            all.push((part.engine, part.first, part.status, words.collect()));
        });
        (memo, all)
    }

    #[test]
    fn engines_are_read_with_their_headers_as_far_as_they_have_written() {
        let words = memory(5, [(0, 2), (0, 200)]);
        let (memo, all) = read(&words);
        assert_eq!(memo.buffers, [""; 0]);
        // 64 bytes behind a header, then 6,400 bytes in two records.
        let (engine, first, status, data) = &all[0];
        assert_eq!((*engine, *first, *status, data.len()), (0, 0, 0, 9));
        assert_eq!((data[0], &data[1..]), (7, &words[0x200..0x208]));
        let second: Vec<u64> = all[1..].iter().flat_map(|part| part.3.clone()).collect();
        assert_eq!((all.len(), all[2].0, all[2].1), (3, 2, MOST));
        assert_eq!(
            (second[0], &second[1..]),
            (2 << 32 | 7, &words[0x600..0x600 + 800])
        );
    }

    #[test]
    fn full_buffers_are_named_and_what_they_claim_is_not_believed() {
        let words = memory(5, [(1 << 31, 256), (1 << 28, u64::MAX)]);
        let (memo, all) = read(&words);
        let bytes = |engine: u32| -> usize {
            let parts = all.iter().filter(|part| part.0 == engine);
            parts.map(|part| 8 * part.3.len()).sum()
        };
        assert_eq!((bytes(0), bytes(2)), (8 + 0x2000, 8 + 0x2000));
        assert!(
            memo.buffers[0].contains("dispatch 9 filled its buffers"),
            "{:?}",
            memo.buffers
        );
        assert!(
            memo.buffers[0].contains("(shader engines 0, 2)"),
            "{:?}",
            memo.buffers
        );
        assert!(memo.buffers[1].contains("error of memory (shader engines 2)"));
    }

    #[test]
    fn a_start_that_the_device_has_skipped_makes_no_trace() {
        let (memo, all) = read(&memory(0, [(0, 2), (0, 2)]));
        assert!(all.is_empty());
        assert_eq!((memo.traces, memo.late), (0, 1));
    }
}
