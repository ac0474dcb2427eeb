//! Records of HIP's events and waits for them (`--hip-event-trace`): the calls, with the barrier
//! packets that they had the runtime write.
//!
//! A barrier has the correlation id of its call. Its record often comes before that of the call, so
//! all barriers are read first, and then the calls, in the order in which they began: a wait is for
//! what the last record of its event before it is in.
//!
//! Decision: FMT-055 (`docs/deviations/formats.md`).

use crate::model::Trace;
use crate::record_file::{RecordFile, WalkError};
use foldhash::fast::RandomState;
use midair_record::event::{Barrier, EventCall, Record, flag, hip_event, kind};
use std::collections::HashMap;
use std::convert::Infallible;
use std::io;

/// The most events that are told. Further ones are counted.
const MOST_EVENTS: usize = 1 << 22;

/// A record of an event or a wait for one, as it is in the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event {
    /// Start and end of the barrier on the device. Where the device wrote none, when its doorbell rang
    /// and when its end was seen; where that was not seen either, those of the call.
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

    fn of(barrier: &Barrier, start: u64, end: u64) -> Event {
        let (times, remark) = if barrier.end != 0 {
            ((barrier.start, barrier.end), None)
        } else if barrier.seen != 0 {
            let remark =
                "the device wrote no times: from when its doorbell rang to when its end was seen";
            ((barrier.rung, barrier.seen), Some(remark))
        } else {
            let remark = "its barrier was not seen to end: the times are those of the call";
            ((start, end), Some(remark))
        };
        Event {
            start: times.0,
            end: times.1,
            node: barrier.node,
            queue: barrier.queue_id,
            source: None,
            remark,
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
    /// Calls that ran when recording began or ended.
    cut: u64,
    /// Records without a barrier.
    records_without: u64,
    /// Waits without a barrier.
    waits_without: u64,
    /// Calls that were too many to be told.
    beyond: u64,
    unread: Option<String>,
}

impl Events {
    /// Reads the calls of a session, and their barriers.
    pub(crate) fn read(trace: &Trace) -> Events {
        let mut all = Events::default();
        let records = &trace.records;
        if records.index().count_of(kind::HIP_EVENT) > 0 {
            let read = barriers(records).and_then(|barriers| all.read_calls(records, &barriers));
            all.unread = read.err().map(|error| error.to_string());
        }
        all
    }

    fn read_calls(
        &mut self,
        records: &RecordFile,
        barriers: &HashMap<u64, Barrier, RandomState>,
    ) -> io::Result<()> {
        let mut calls: Vec<EventCall> = Vec::new();
        walk(records, kind::HIP_EVENT, |record| {
            let Record::Event(call) = record else {
                return;
            };
            if call.result != 0 {
                self.failed += 1;
            } else if call.header.flags & flag::CUT != 0 {
                self.cut += 1;
            } else if calls.len() >= MOST_EVENTS {
                self.beyond += 1;
            } else {
                calls.push(*call);
            }
        })?;
        calls.sort_unstable_by_key(|call| (call.start, call.correlation));
        let mut recorded_in: HashMap<u64, u32, RandomState> = HashMap::default();
        for call in &calls {
            let is_record = call.header.operation == hip_event::RECORD;
            let Some(barrier) = barriers.get(&call.correlation) else {
                if is_record {
                    self.records_without += 1;
                } else {
                    self.waits_without += 1;
                }
                continue;
            };
            if is_record {
                recorded_in.insert(call.event, barrier.queue_id);
            }
            let event = Event {
                source: recorded_in.get(&call.event).copied(),
                ..Event::of(barrier, call.start, call.end)
            };
            self.told.insert(call.correlation, event);
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
                "calls that record events of HIP or wait for them failed: they are not in the results",
            ),
            (
                self.cut,
                "calls that record events of HIP or wait for them ran when recording began, ended, or was paused: they are not in the results",
            ),
            (
                self.records_without,
                "records of events of HIP had no barrier packet of their own: they are not in the results",
            ),
            (
                self.waits_without,
                "waits for events of HIP had no barrier packet of their own, since the event had completed or the next packet waits: they are not in the results",
            ),
            (
                self.beyond,
                "calls that record events of HIP or wait for them are not in the results: they were too many",
            ),
        ];
        let unread = self.unread.iter();
        let unread = unread.map(|why| format!("events of HIP could not be read: {why}"));
        let counted = counted.into_iter().filter(|(count, _)| *count > 0);
        counted
            .map(|(count, what)| format!("{count} {what}"))
            .chain(unread)
    }
}

/// Returns the first barrier of each call.
fn barriers(records: &RecordFile) -> io::Result<HashMap<u64, Barrier, RandomState>> {
    let mut all: HashMap<u64, Barrier, RandomState> = HashMap::default();
    walk(records, kind::BARRIER, |record| {
        let Record::Barrier(barrier) = record else {
            return;
        };
        if all.len() < MOST_EVENTS || all.contains_key(&barrier.correlation) {
            let first = all.entry(barrier.correlation).or_insert(*barrier);
            if (barrier.rung, barrier.packet_index) < (first.rung, first.packet_index) {
                *first = *barrier;
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
