//! Calls of HIP's events and their barriers.

use midair_record::event::{Barrier, EventCall, flag, hip_event};
use std::collections::{BTreeMap, VecDeque};

/// The most calls, barriers and events that are kept.
const MOST: usize = if cfg!(test) { 8 } else { 1 << 17 };
/// How many records of one event are remembered for waits.
const MOST_RECORDS: usize = 64;

/// A call that is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub call: EventCall,
    /// Its barrier; `None` where none was seen, or not all of the call was.
    pub barrier: Option<Barrier>,
    /// The queue in which the event was recorded; 0 where that was not seen.
    pub source: u32,
}

/// A call that is not complete yet.
#[derive(Debug)]
struct Open {
    call: EventCall,
    /// Since its record came, a look at the packets under way did not find it.
    ended: bool,
}

/// A record of an event.
#[derive(Debug)]
struct Recorded {
    start: u64,
    correlation: u64,
    /// The queue of its barrier, once the call is complete.
    queue: u32,
}

/// What has been seen of calls and their barriers.
#[derive(Debug, Default)]
pub(crate) struct Joined {
    /// By correlation id.
    calls: BTreeMap<u64, Open>,
    /// The last barrier of each call, by the call's correlation id.
    barriers: BTreeMap<u64, Barrier>,
    /// The records of each event, in the order in which they came.
    recorded: BTreeMap<u64, VecDeque<Recorded>>,
}

impl Joined {
    /// Notes a call. One that was cut is complete at once, without a barrier. One too many counts as cut.
    pub fn saw_call(&mut self, call: &EventCall) -> Option<Event> {
        if call.result != 0 {
            return None;
        }
        if call.header.operation == hip_event::RECORD {
            self.saw_record(call);
        }
        let is_cut = call.header.flags & (flag::CUT | flag::OPEN_AT_DETACH) != 0;
        if is_cut || self.calls.len() >= MOST {
            let mut call = *call;
            // A wait without a barrier is else one that had nothing to wait for.
            call.header.flags |= flag::CUT;
            return Some(Event {
                call,
                barrier: None,
                source: 0,
            });
        }
        let open = Open {
            call: *call,
            ended: false,
        };
        self.calls.insert(call.correlation, open);
        None
    }

    /// Whether calls are not complete yet.
    pub fn is_waiting(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Notes a look at the packets under way, which finds the ids of those that have not ended.
    pub fn looked(&mut self, finds: impl Fn(u64) -> bool) {
        for (id, open) in &mut self.calls {
            open.ended = !finds(*id);
        }
    }

    fn saw_record(&mut self, call: &EventCall) {
        if self.recorded.len() >= MOST && !self.recorded.contains_key(&call.event) {
            self.recorded.pop_first();
        }
        let records = self.recorded.entry(call.event).or_default();
        if records.len() >= MOST_RECORDS {
            records.pop_front();
        }
        records.push_back(Recorded {
            start: call.start,
            correlation: call.correlation,
            queue: 0,
        });
    }

    /// Notes a barrier.
    pub fn saw_barrier(&mut self, barrier: &Barrier) {
        let order = |barrier: &Barrier| (barrier.rung, barrier.packet_index);
        let last = self.barriers.entry(barrier.correlation).or_insert(*barrier);
        if order(barrier) > order(last) {
            *last = *barrier;
        }
        if self.barriers.len() > MOST {
            self.barriers.pop_first();
        }
    }

    /// Returns the record that a wait waits for: the last one of its event that started before it.
    fn source(&self, wait: &EventCall) -> Option<&Recorded> {
        let records = self.recorded.get(&wait.event)?.iter();
        let before = records.filter(|record| record.start < wait.start);
        before.max_by_key(|record| record.start)
    }

    /// Takes the calls that are complete, in the order in which they started. Waits whose record is not
    /// complete yet are kept, and their ids are returned as well.
    pub fn take(&mut self) -> (Vec<Event>, Vec<u64>) {
        let ended = self.calls.iter().filter(|(_, open)| open.ended);
        let mut ended: Vec<(u64, u64)> = ended.map(|(id, open)| (open.call.start, *id)).collect();
        ended.sort_unstable();
        let (mut done, mut kept) = (Vec::new(), Vec::new());
        for (_, id) in ended {
            let Some(call) = self.calls.get(&id).map(|open| open.call) else {
                continue;
            };
            let is_record = call.header.operation == hip_event::RECORD;
            let mut source = 0;
            if !is_record && let Some(record) = self.source(&call) {
                if self.calls.contains_key(&record.correlation) {
                    kept.push(id);
                    continue;
                }
                source = record.queue;
            }
            self.calls.remove(&id);
            let barrier = self.barriers.remove(&id);
            if let Some(barrier) = barrier.filter(|_| is_record) {
                source = barrier.queue_id;
                let records = self.recorded.get_mut(&call.event).into_iter().flatten();
                for record in records.filter(|record| record.correlation == id) {
                    record.queue = source;
                }
            }
            done.push(Event {
                call,
                barrier,
                source,
            });
        }
        (done, kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_record::event::Header;

    const RECORD: u32 = hip_event::RECORD;
    const WAIT: u32 = hip_event::WAIT;

    /// A call with this correlation id, which is also when it started.
    fn call(operation: u32, id: u64, event: u64) -> EventCall {
        EventCall {
            header: Header {
                operation,
                ..Header::default()
            },
            start: id,
            correlation: id,
            event,
            ..EventCall::default()
        }
    }

    fn barrier(id: u64, rung: u64, queue_id: u32) -> Barrier {
        Barrier {
            correlation: id,
            rung,
            queue_id,
            ..Barrier::default()
        }
    }

    /// Looks while these ids are under way, and returns what is complete: id, queue, source.
    fn round(all: &mut Joined, under_way: &[u64]) -> Vec<(u64, u32, u32)> {
        all.looked(|id| under_way.contains(&id));
        let taken = all.take().0.into_iter();
        taken
            .map(|event| {
                let queue = event.barrier.map_or(0, |barrier| barrier.queue_id);
                (event.call.correlation, queue, event.source)
            })
            .collect()
    }

    #[test]
    fn a_call_has_its_last_barrier_in_whatever_order_they_come() {
        let mut all = Joined::default();
        all.saw_barrier(&barrier(1, 20, 7));
        all.saw_barrier(&barrier(1, 10, 6));
        assert_eq!(all.saw_call(&call(RECORD, 1, 0xe)), None);
        assert_eq!(all.take().0, [], "no look was made");
        assert_eq!(round(&mut all, &[1]), []);
        all.saw_barrier(&barrier(1, 30, 8));
        assert_eq!(round(&mut all, &[]), [(1, 8, 8)]);
        assert_eq!(round(&mut all, &[]), []);
        assert!(all.barriers.is_empty() && all.calls.is_empty());
    }

    #[test]
    fn a_wait_waits_for_the_record_before_it() {
        let mut all = Joined::default();
        // The wait's record comes before the other call's, which started earlier.
        all.saw_call(&call(WAIT, 2, 0xe));
        all.saw_barrier(&barrier(2, 5, 9));
        all.saw_call(&call(RECORD, 1, 0xe));
        all.saw_call(&call(RECORD, 3, 0xe));
        all.saw_barrier(&barrier(3, 6, 4));
        // The later record is complete; that is not the one that the wait is for.
        assert_eq!(round(&mut all, &[1]), [(3, 4, 4)]);
        all.saw_barrier(&barrier(1, 4, 7));
        assert_eq!(round(&mut all, &[]), [(1, 7, 7), (2, 9, 7)]);
        // An event whose record was not seen has no source, and neither has another event.
        all.saw_call(&call(RECORD, 4, 0xe));
        all.saw_call(&call(WAIT, 5, 0xe));
        all.saw_call(&call(WAIT, 6, 0xf));
        all.saw_barrier(&barrier(5, 8, 9));
        all.saw_barrier(&barrier(6, 9, 9));
        assert_eq!(round(&mut all, &[]), [(4, 0, 0), (5, 9, 0), (6, 9, 0)]);
    }

    #[test]
    fn a_call_that_failed_is_none_and_one_that_was_cut_is_lost() {
        let mut all = Joined::default();
        let failed = EventCall {
            result: 1,
            ..call(RECORD, 1, 0xe)
        };
        assert_eq!(all.saw_call(&failed), None);
        let mut cut = call(RECORD, 2, 0xe);
        cut.header.flags = flag::CUT;
        let lost = all.saw_call(&cut).unwrap();
        assert_eq!((lost.call.correlation, lost.barrier), (2, None));
        all.saw_call(&call(WAIT, 3, 0xe));
        all.saw_barrier(&barrier(3, 1, 9));
        assert_eq!(
            round(&mut all, &[]),
            [(3, 9, 0)],
            "of a record that was cut"
        );
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut all = Joined::default();
        let many = MOST as u64 + 3;
        let calls = (1..=many).map(|id| call(if id < many { RECORD } else { WAIT }, id, id));
        let lost: Vec<Event> = calls.filter_map(|call| all.saw_call(&call)).collect();
        assert_eq!(lost.len(), 3);
        let are_cut = |event: &Event| event.call.header.flags & flag::CUT != 0;
        assert!(lost.iter().all(are_cut), "{lost:?}");
        (1..=many).for_each(|id| all.saw_barrier(&barrier(100 + id, 1, 1)));
        assert_eq!((all.barriers.len(), all.recorded.len()), (MOST, MOST));
        let again = MOST_RECORDS as u64 + 3;
        (1..=again).for_each(|id| all.saw_record(&call(RECORD, id, many)));
        assert_eq!(all.recorded[&many].len(), MOST_RECORDS);
    }
}
