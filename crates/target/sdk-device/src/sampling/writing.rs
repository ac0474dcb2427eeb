//! Makes records of samples.

use super::dispatches::{Dispatches, Ended};
use super::kept::{Counts, Passed};
use super::raw::{BYTES, Raw};
use crate::sink::Sink;
use crate::symbols;
use midair_record::event::{Header, PcSample, Plain};
use midair_sdk_hot::clock::now;
use std::collections::VecDeque;

/// The most samples that wait for their dispatch's end.
const MOST: usize = 1 << 18;
/// How many nanoseconds a sample waits for that. Kernels that run for longer have samples without a
/// dispatch.
const WAIT: u64 = 2_000_000_000;

/// A sample that is not written yet.
#[derive(Debug)]
struct Waiting {
    raw: Raw,
    node: u32,
    arrived: u64,
}

/// The samples of a session on their way into records.
#[derive(Debug, Default)]
pub(super) struct Writing {
    waiting: VecDeque<Waiting>,
    /// Samples without a dispatch, and those without a code object.
    unknown: (u64, u64),
}

impl Writing {
    /// Takes what has arrived. `nodes` are the agents' nodes.
    pub(super) fn arrive(&mut self, passed: Vec<Passed>, nodes: &[u32]) {
        let arrived = now();
        for Passed { agent, bytes } in passed {
            let node = nodes.get(agent).copied().unwrap_or(0);
            let (samples, _) = bytes.as_chunks::<BYTES>();
            self.waiting.extend(samples.iter().map(|bytes| Waiting {
                raw: Raw::of(bytes),
                node,
                arrived,
            }));
        }
    }

    /// Writes the samples whose dispatches have ended, or all. Returns whether any was written.
    pub(super) fn write(
        &mut self,
        kind: u8,
        dispatches: &Dispatches,
        sink: &mut Sink,
        at_end: bool,
    ) -> bool {
        let time = now();
        let mut left = VecDeque::new();
        let before = self.waiting.len();
        let mut excess = before.saturating_sub(MOST);
        while let Some(waiting) = self.waiting.pop_front() {
            let raw = &waiting.raw;
            let found = dispatches.find((raw.doorbell(), raw.slot()), raw.time);
            let is_due = at_end || excess > 0 || time.saturating_sub(waiting.arrived) > WAIT;
            if found.is_none() && !is_due {
                left.push_back(waiting);
                continue;
            }
            if !at_end && !sink.has_room(size_of::<PcSample>()) {
                left.push_back(waiting);
                left.append(&mut self.waiting);
                break;
            }
            excess = excess.saturating_sub(1);
            // What ran in a pause of the recording has no number, and its samples are not recorded.
            if found.is_some_and(|found| found.dispatch_id == 0) {
                continue;
            }
            self.put(kind, &waiting, found, sink);
        }
        self.waiting = left;
        self.waiting.len() < before
    }

    fn put(&mut self, kind: u8, waiting: &Waiting, found: Option<Ended>, sink: &mut Sink) {
        let raw = &waiting.raw;
        let code = symbols::code_object_at(raw.pc);
        self.unknown.0 += u64::from(found.is_none());
        self.unknown.1 += u64::from(code.is_none());
        let (code_object_id, base) = code.unwrap_or((0, 0));
        let record = PcSample {
            header: Header {
                size: size_of::<PcSample>() as u16,
                kind,
                ..Header::default()
            },
            time: raw.time,
            pc: raw.pc,
            exec_mask: raw.exec_mask,
            dispatch_id: found.map_or(0, |it| it.dispatch_id),
            correlation: found.map_or(0, |it| it.correlation),
            code_object_id,
            offset: raw.pc - base,
            hw_id: raw.hw_id,
            wave_in_group: raw.wave & 0x3f,
            chiplet: raw.wave >> 8 & 0xf,
            node: waiting.node,
            workgroup: raw.workgroup,
            snapshot: raw.snapshot,
        };
        sink.put(kind, record.bytes());
    }

    /// Returns notes for the user at the end.
    pub(super) fn notes(&mut self, counts: Counts) -> Vec<String> {
        let (dispatches, objects) = self.unknown;
        let all = [
            (
                counts.lost,
                "samples of program counters were lost in the device's buffers",
            ),
            (
                counts.dropped,
                "samples of program counters were lost on their way through the process",
            ),
            (
                dispatches,
                "samples of program counters are of no dispatch that was recorded",
            ),
            (
                objects,
                "samples of program counters are in no code object that is known",
            ),
        ];
        let seen = all.into_iter().filter(|(count, _)| *count > 0);
        seen.map(|(count, text)| format!("{count} {text}"))
            .collect()
    }
}
