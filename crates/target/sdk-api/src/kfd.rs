//! Events of the kernel driver in AMD's layouts.

use crate::agents::id_of_gpu;
use midair_abi::constants as c;
use midair_abi::layout as theirs;
use midair_record::event::KfdEvent;

/// The number of words of the largest record.
pub(crate) const WORDS: usize = 12;

/// Returns the words of AMD's record of an event, and their number.
pub(crate) fn words(event: &KfdEvent) -> ([u64; WORDS], usize) {
    let kind = event.tracing_kind as i32;
    let agent = id_of_gpu;
    // The end of a migration does not say where pages were wanted.
    let ends = kind == c::ROCPROFILER_BUFFER_TRACING_KFD_EVENT_PAGE_MIGRATE
        && event.header.operation as i32 == c::ROCPROFILER_KFD_EVENT_PAGE_MIGRATE_END;
    let wish = |gpu| if ends { 0 } else { agent(gpu) };
    let head = u64::from(event.tracing_kind) | u64::from(event.header.operation) << 32;
    let pid = u64::from(event.pid);
    let mut fields = vec![0, head, event.start];
    let is_both = matches!(
        kind,
        c::ROCPROFILER_BUFFER_TRACING_KFD_PAGE_MIGRATE
            | c::ROCPROFILER_BUFFER_TRACING_KFD_PAGE_FAULT
            | c::ROCPROFILER_BUFFER_TRACING_KFD_QUEUE
    );
    if is_both {
        fields.push(event.end);
    }
    match kind {
        c::ROCPROFILER_BUFFER_TRACING_KFD_EVENT_PAGE_MIGRATE
        | c::ROCPROFILER_BUFFER_TRACING_KFD_PAGE_MIGRATE => fields.extend([
            pid,
            event.address,
            event.end_address,
            agent(event.from),
            agent(event.to),
            wish(event.prefetch),
            wish(event.preferred),
            u64::from(event.error.cast_unsigned()),
        ]),
        c::ROCPROFILER_BUFFER_TRACING_KFD_EVENT_PAGE_FAULT
        | c::ROCPROFILER_BUFFER_TRACING_KFD_PAGE_FAULT => {
            fields.extend([pid, agent(event.from), event.address]);
        }
        c::ROCPROFILER_BUFFER_TRACING_KFD_EVENT_QUEUE | c::ROCPROFILER_BUFFER_TRACING_KFD_QUEUE => {
            fields.extend([pid, agent(event.from)])
        }
        c::ROCPROFILER_BUFFER_TRACING_KFD_EVENT_UNMAP_FROM_GPU => {
            fields.extend([pid, agent(event.from), event.address, event.end_address]);
        }
        _ => fields.push(pid | u64::from(event.count) << 32),
    }
    let mut words = [0; WORDS];
    for (word, field) in words.iter_mut().zip(&fields) {
        *word = *field;
    }
    words[0] = fields.len() as u64 * 8;
    (words, fields.len())
}

/// Checks the places of the fields in AMD's records.
const _: () = {
    use theirs::rocprofiler_buffer_tracing_kfd_event_dropped_events_record_t as dropped;
    use theirs::rocprofiler_buffer_tracing_kfd_event_page_fault_record_t as fault_event;
    use theirs::rocprofiler_buffer_tracing_kfd_event_page_migrate_record_t as migrate_event;
    use theirs::rocprofiler_buffer_tracing_kfd_event_queue_record_t as queue_event;
    use theirs::rocprofiler_buffer_tracing_kfd_event_unmap_from_gpu_record_t as unmap;
    use theirs::rocprofiler_buffer_tracing_kfd_page_fault_record_t as fault;
    use theirs::rocprofiler_buffer_tracing_kfd_page_migrate_record_t as migrate;
    use theirs::rocprofiler_buffer_tracing_kfd_queue_record_t as queue;
    assert!(migrate_event::pid == 24 && migrate_event::start_address == 32);
    assert!(migrate_event::src_agent == 48 && migrate_event::error_code == 80);
    assert!(migrate_event::SIZE == 88 && migrate::SIZE == 96 && migrate::SIZE == WORDS * 8);
    assert!(migrate::end_timestamp == 24 && migrate::pid == 32 && migrate::error_code == 88);
    assert!(fault_event::agent_id == 32 && fault_event::address == 40 && fault_event::SIZE == 48);
    assert!(fault::pid == 32 && fault::agent_id == 40 && fault::address == 48 && fault::SIZE == 56);
    assert!(queue_event::agent_id == 32 && queue_event::SIZE == 40);
    assert!(queue::pid == 32 && queue::agent_id == 40 && queue::SIZE == 48);
    assert!(unmap::agent_id == 32 && unmap::start_address == 40 && unmap::end_address == 48);
    assert!(unmap::SIZE == 56 && dropped::pid == 24 && dropped::count == 28 && dropped::SIZE == 32);
};
