//! Finds out when a correlation id is no longer used (`CORRELATION_ID_RETIREMENT`): its call has
//! returned, and the work that the call caused has ended. The record of this comes after all others
//! that have the id.
//!
//! Calls and work arrive as records, in no order between threads. After a record has brought an id,
//! the id waits for two things: a look at the work under way must no longer find it ([`looked`]),
//! and everything written until that look must have been delivered ([`delivered`]).

pub(crate) mod waiting;

use crate::buffer;
use crate::context::RETIREMENT;
use crate::state::{self, STATE};
use midair_record::event::{Record, flag};
use midair_sdk_hot::clock;
use std::collections::HashSet;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Acquire, Release};
use waiting::Waiting;

fn waiting<T>(act: impl FnOnce(&mut Waiting) -> T) -> T {
    let mut all = STATE
        .retirement
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    act(all.get_or_insert_default())
}

/// Sets whether ids are followed, because some running context wants it.
pub fn follow(on: bool) {
    STATE.follows_ids.store(on, Release);
}

/// Whether ids are followed.
pub fn is_followed() -> bool {
    STATE.follows_ids.load(Acquire)
}

/// Notes a delivered record. Called on the worker thread.
pub(crate) fn saw(record: &Record<'_>) {
    if !is_followed() {
        return;
    }
    let alone = |flags: u8| flags & flag::NO_CALLER != 0;
    let (id, returned) = match record {
        Record::Api(api, _) => (api.correlation, true),
        Record::Marker(marker, _) => (marker.correlation, true),
        Record::Kernel(kernel, _) => (kernel.correlation, alone(kernel.header.flags)),
        Record::Copy(copy, _) => (copy.correlation, alone(copy.header.flags)),
        // Nothing in these tells whether the id is a call's. It waits for the call's record, or for
        // the end.
        Record::Allocation(allocation) => (allocation.correlation, false),
        Record::Scratch(scratch) => (scratch.correlation, false),
        _ => (0, false),
    };
    if id != 0 {
        waiting(|all| all.saw(id, returned));
    }
}

/// Keeps ids until another look: records with them are still to come. Called before [`delivered`].
pub(crate) fn keep(ids: &[u64]) {
    if ids.is_empty() || !is_followed() {
        return;
    }
    waiting(|all| {
        for id in ids {
            if let Some(known) = all.ids.get_mut(id) {
                known.ended = false;
            }
        }
    });
}

/// Notes a look at the work under way: `has` contains the ids of what has not ended. Called on the
/// worker thread, before what was written up to now is delivered.
pub fn looked(has: &HashSet<u64>) {
    waiting(|all| {
        for (id, known) in &mut all.ids {
            known.ended = !has.contains(id);
        }
    });
}

/// Notes that everything written before the last look was delivered, and retires the ids that were
/// done at that look. Called on the worker thread.
pub fn delivered() {
    let done: Vec<u64> = waiting(|all| {
        let done = all.ids.iter().filter(|(_, id)| id.returned && id.ended);
        let done: Vec<u64> = done.map(|(number, _)| *number).collect();
        for id in &done {
            all.ids.remove(id);
        }
        done
    });
    retire(&done);
}

/// Retires all remaining ids, because the collection is over and everything was delivered.
pub fn finish() {
    let rest: Vec<u64> = waiting(|all| std::mem::take(&mut all.ids).into_keys().collect());
    retire(&rest);
}

fn retire(ids: &[u64]) {
    let mut due = Vec::new();
    for id in ids {
        let now = clock::now();
        let mut state = state::lock();
        let crate::registry::Registry {
            contexts, buffers, ..
        } = &mut *state;
        for context in contexts
            .iter()
            .filter(|context| !context.spool && context.covers_end())
        {
            for service in context
                .services
                .iter()
                .filter(|service| service.kind == RETIREMENT)
            {
                let Some(buffer) = crate::registry::index(service.buffer)
                    .and_then(|index| buffers.get_mut(index))
                    .and_then(Option::as_mut)
                else {
                    continue;
                };
                // The record's size, kind, time and id (source: api/rocprofiler_sdk.json).
                buffer.push_plain(RETIREMENT as u32, &[SIZE, RETIREMENT as u64, now, *id]);
                if buffer.due() {
                    due.push(service.buffer);
                }
            }
        }
    }
    due.sort_unstable();
    due.dedup();
    for buffer in due {
        buffer::call(buffer);
    }
}

/// The size of the record in bytes.
const SIZE: u64 = 32;
const _: () = {
    use midair_abi::layout::rocprofiler_buffer_tracing_correlation_id_retirement_record_t as theirs;
    assert!(theirs::SIZE == SIZE as usize && theirs::kind == 8 && theirs::timestamp == 16);
    assert!(theirs::internal_correlation_id == 24);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_waits_for_its_work_and_for_what_was_written() {
        let ids = || waiting(|all| all.ids.keys().copied().collect::<Vec<_>>());
        *STATE.retirement.lock().unwrap() = Some(Waiting::default());
        // Two calls that have returned, and a dispatch whose call has not.
        for (id, returned) in [(7, true), (8, true), (9, false)] {
            waiting(|all| all.saw(id, returned));
        }
        delivered();
        assert_eq!(ids(), [7, 8, 9], "nothing was looked at");
        looked(&HashSet::from([7]));
        delivered();
        assert_eq!(ids(), [7, 9]);
        looked(&HashSet::new());
        // A record of id 7 was written in the meantime, so it needs another look.
        waiting(|all| all.saw(7, false));
        delivered();
        assert_eq!(ids(), [7, 9]);
        waiting(|all| all.saw(9, true));
        looked(&HashSet::new());
        // A record with id 9 is still to be made.
        follow(true);
        keep(&[9]);
        delivered();
        assert_eq!(ids(), [9]);
        looked(&HashSet::new());
        delivered();
        assert_eq!(ids(), []);
        follow(false);
    }
}
