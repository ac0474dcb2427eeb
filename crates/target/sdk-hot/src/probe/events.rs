//! Calls that record HIP's events or have a stream wait for one. They become records of their own,
//! alongside the records of calls.

use crate::threads::OpenCall;
use crate::wrappers::hip_runtime::{
    EVENT_RECORD, EVENT_RECORD_SPT, EVENT_RECORD_WITH_FLAGS, STREAM_WAIT_EVENT,
    STREAM_WAIT_EVENT_SPT,
};
use midair_domain::KindSet;
use midair_record::event::{EventCall, Header, hip_event, kind};

/// Returns which operation on an event a call is; `None` where it is none, or none are recorded.
#[inline]
pub(super) fn operation(recorded: KindSet, of: u8, operation: u32) -> Option<u32> {
    if !recorded.contains(kind::HIP_EVENT) || of != kind::HIP_RUNTIME_API_EXT {
        return None;
    }
    match operation {
        EVENT_RECORD | EVENT_RECORD_SPT | EVENT_RECORD_WITH_FLAGS => Some(hip_event::RECORD),
        STREAM_WAIT_EVENT | STREAM_WAIT_EVENT_SPT => Some(hip_event::WAIT),
        _ => None,
    }
}

/// Returns the event that a call with these arguments is about.
pub(super) fn handle(operation: u32, arguments: &[u64]) -> u64 {
    let at = usize::from(operation == hip_event::WAIT);
    arguments.get(at).copied().unwrap_or(0)
}

pub(super) fn record(
    open: &OpenCall,
    operation: u32,
    ancestor: u64,
    [start, end]: [u64; 2],
    (event, result): (u64, u64),
    tid: u32,
    flags: u8,
) -> EventCall {
    EventCall {
        header: Header {
            size: size_of::<EventCall>() as u16,
            kind: kind::HIP_EVENT,
            flags,
            operation,
        },
        start,
        end,
        correlation: open.correlation,
        ancestor,
        stream: open.stream,
        event,
        result: result as u32,
        tid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_of_events_are_and_only_where_they_are_recorded() {
        let events = KindSet::of(&[kind::HIP_EVENT]);
        let hip = kind::HIP_RUNTIME_API_EXT;
        for number in [EVENT_RECORD, EVENT_RECORD_SPT, EVENT_RECORD_WITH_FLAGS] {
            assert_eq!(operation(events, hip, number), Some(hip_event::RECORD));
        }
        for number in [STREAM_WAIT_EVENT, STREAM_WAIT_EVENT_SPT] {
            assert_eq!(operation(events, hip, number), Some(hip_event::WAIT));
        }
        assert_eq!(operation(events, hip, EVENT_RECORD + 1), None);
        assert_eq!(operation(events, kind::HSA_CORE_API, EVENT_RECORD), None);
        assert_eq!(operation(KindSet::of(&[hip]), hip, EVENT_RECORD), None);
    }

    #[test]
    fn the_event_is_the_first_argument_of_a_record_and_the_second_of_a_wait() {
        assert_eq!(handle(hip_event::RECORD, &[7, 8, 9]), 7);
        assert_eq!(handle(hip_event::WAIT, &[7, 8, 9]), 8);
        assert_eq!(handle(hip_event::WAIT, &[]), 0);
    }
}
