//! Records of HIP events and waits for them (`--hip-event-trace`): the calls, with the barrier
//! packets that they had the runtime write.
//!
//! A barrier has the correlation id of its call. Its record often comes before the call's, so
//! all barriers are read first, and then the calls, in the order in which they started: a wait waits
//! for the most recent record of its event.
//!
//! Before the barrier that is the event's own, a call may have the runtime write others into the
//! queues of streams that it has to wait for. So the last barrier of a call is taken.
//!
//! Decision: FMT-055 (`docs/deviations/formats.md`).

use crate::model::Trace;
use foldhash::fast::RandomState;
use midair_record::event::{Barrier, EventCall, Record, flag, hip_event, kind};
use midair_trace::record_file::{RecordFile, WalkError};
use std::collections::HashMap;
use std::convert::Infallible;
use std::io;

/// The most events that are reported. Further ones are counted.
const MOST_EVENTS: usize = if cfg!(test) { 16 } else { 1 << 21 };

/// A record of an event or a wait for one, as it is in the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event {
    /// Start and end of the barrier on the device. Where the device wrote none: when its doorbell rang,
    /// and when its end was seen. If that was not seen either: the call's start and end.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) node: u32,
    pub(crate) queue: u32,
    /// The queue in which the event was recorded; `None` where that was not seen.
    pub(crate) source: Option<u32>,
    remark: Option<&'static str>,
}

impl Event {
    /// Returns what a reader of its times has to know.
    pub(crate) fn remark(&self) -> Option<&'static str> {
        self.remark
    }

    fn of(barrier: &LastBarrier, start: u64, end: u64) -> Event {
        let (times, remark) = if barrier.is_timed {
            ((barrier.start, barrier.end), None)
        } else if barrier.end != 0 {
            let remark =
                "the device wrote no times: the times are from its doorbell to its observed end";
            ((barrier.start, barrier.end), Some(remark))
        } else {
            let remark = "the end of its barrier was not observed: the times are the call's times";
            ((start, end), Some(remark))
        };
        Event {
            start: times.0,
            end: times.1,
            node: barrier.node,
            queue: barrier.queue,
            source: None,
            remark,
        }
    }
}

/// What is needed of a call's last barrier.
#[derive(Debug, Clone, Copy)]
struct LastBarrier {
    /// When the doorbell rang for it, and its index in its queue.
    order: (u64, u64),
    /// The device's times; without these, when the doorbell rang, and when the end was seen, or 0.
    start: u64,
    end: u64,
    is_timed: bool,
    node: u32,
    queue: u32,
}

impl LastBarrier {
    fn of(barrier: &Barrier) -> LastBarrier {
        let is_timed = barrier.end != 0;
        let untimed = (barrier.rung, barrier.seen);
        let (start, end) = if is_timed {
            (barrier.start, barrier.end)
        } else {
            untimed
        };
        LastBarrier {
            order: (barrier.rung, barrier.packet_index),
            start,
            end,
            is_timed,
            node: barrier.node,
            queue: barrier.queue_id,
        }
    }
}

/// The records of events and the waits of a session.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// By the correlation ids of their calls.
    told: HashMap<u64, Event, RandomState>,
    /// Calls that HIP refused.
    failed: u64,
    /// Calls that ran when recording started or ended.
    cut: u64,
    /// Records of which no barrier was seen.
    records_without: u64,
    /// Waits of which no barrier was seen.
    waits_without: u64,
    /// Calls that were too many to be reported.
    beyond: u64,
    unread: Option<String>,
}

impl Events {
    /// Reads the calls of a session, and their barriers.
    pub(crate) fn read(trace: &Trace) -> Events {
        let mut all = Events::default();
        let records = &trace.records;
        if records.index().count_of(kind::HIP_EVENT) > 0 {
            let read = barriers(records).and_then(|barriers| all.read_calls(records, barriers));
            all.unread = read.err().map(|error| error.to_string());
        }
        all
    }

    fn read_calls(
        &mut self,
        records: &RecordFile,
        mut barriers: HashMap<u64, LastBarrier, RandomState>,
    ) -> io::Result<()> {
        let are_all_there = barriers.len() < MOST_EVENTS;
        let mut calls: Vec<EventCall> = Vec::new();
        walk(records, kind::HIP_EVENT, |record| {
            let Record::Event(call) = record else {
                return;
            };
            if calls.len() >= MOST_EVENTS {
                self.beyond += 1;
            } else {
                calls.push(*call);
            }
        })?;
        calls.sort_unstable_by_key(|call| (call.start, call.correlation));
        let mut recorded_in: HashMap<u64, u32, RandomState> = HashMap::default();
        for call in &calls {
            let is_record = call.header.operation == hip_event::RECORD;
            let barrier = if call.result != 0 {
                self.failed += 1;
                continue;
            } else if call.header.flags & flag::CUT != 0 {
                self.cut += 1;
                None
            } else {
                let found = barriers.remove(&call.correlation);
                let count = match (&found, are_all_there, is_record) {
                    (Some(_), ..) => None,
                    (None, false, _) => Some(&mut self.beyond),
                    (None, true, true) => Some(&mut self.records_without),
                    (None, true, false) => Some(&mut self.waits_without),
                };
                if let Some(count) = count {
                    *count += 1;
                }
                found
            };
            if is_record {
                match &barrier {
                    Some(barrier) => recorded_in.insert(call.event, barrier.queue),
                    // Later waits are not for the record before this one.
                    None => recorded_in.remove(&call.event),
                };
            }
            if let Some(barrier) = barrier {
                let event = Event {
                    source: recorded_in.get(&call.event).copied(),
                    ..Event::of(&barrier, call.start, call.end)
                };
                self.told.insert(call.correlation, event);
            }
        }
        Ok(())
    }

    /// Returns what a record of a call stands for, if it is in the results.
    pub(crate) fn of(&self, call: &EventCall) -> Option<&Event> {
        self.told.get(&call.correlation)
    }

    /// Returns what a reader has to know.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> {
        let counted = [
            (
                self.failed,
                "calls that record HIP events or wait for them failed: they are not in the results",
            ),
            (
                self.cut,
                "calls that record HIP events or wait for them ran while recording started, ended, or was paused: they are not in the results",
            ),
            (
                self.records_without,
                "records of HIP events are not in the results: their barrier packets were not observed",
            ),
            (
                self.waits_without,
                "waits for HIP events are not in the results: their barrier packets were not observed, for example because the event had completed or the next packet waits",
            ),
            (
                self.beyond,
                "calls that record HIP events or wait for them are not in the results: their number exceeds a limit",
            ),
        ];
        let unread = self.unread.iter();
        let unread = unread.map(|why| format!("cannot read HIP events: {why}"));
        let counted = counted.into_iter().filter(|(count, _)| *count > 0);
        counted
            .map(|(count, what)| format!("{count} {what}"))
            .chain(unread)
    }
}

/// Returns the last barrier of each call.
fn barriers(records: &RecordFile) -> io::Result<HashMap<u64, LastBarrier, RandomState>> {
    let mut all: HashMap<u64, LastBarrier, RandomState> = HashMap::default();
    walk(records, kind::BARRIER, |record| {
        let Record::Barrier(barrier) = record else {
            return;
        };
        let barrier = (barrier.correlation, LastBarrier::of(barrier));
        if all.len() < MOST_EVENTS || all.contains_key(&barrier.0) {
            let last = all.entry(barrier.0).or_insert(barrier.1);
            if barrier.1.order > last.order {
                *last = barrier.1;
            }
        }
    })?;
    Ok(all)
}

fn walk(records: &RecordFile, kind: u8, mut see: impl FnMut(&Record<'_>)) -> io::Result<()> {
    let walked = records.walk_all(
        |of| of == kind,
        |record| {
            see(record);
            Ok::<(), Infallible>(())
        },
    );
    walked.map_err(|error| match error {
        WalkError::Read(error) => error,
        WalkError::Visit(never) => match never {},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_record::event::{Header, encode};
    use midair_trace::record_file::RecordWriter;

    #[test]
    fn calls_beyond_the_limit_are_counted() {
        let mut writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
        for number in 1..=MOST_EVENTS as u64 + 3 {
            let call = EventCall {
                header: Header {
                    kind: kind::HIP_EVENT,
                    operation: hip_event::RECORD,
                    ..Header::default()
                },
                start: number,
                end: number + 1,
                correlation: number,
                ..EventCall::default()
            };
            writer.append(&encode(&call, &[])).unwrap();
        }
        let mut events = Events::default();
        let file = writer.finish().unwrap();
        events.read_calls(&file, HashMap::default()).unwrap();
        let without = events.records_without;
        assert_eq!((without, events.beyond), (MOST_EVENTS as u64, 3));
    }
}
