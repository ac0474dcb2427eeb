//! Tells tools' callbacks of copies: on the thread that requests a copy, and on the worker thread
//! when it has ended.

use super::Facts;
use crate::symbols;
use midair_abi::layout::rocprofiler_callback_tracing_memory_copy_data_t as theirs;
use midair_record::event::{Copy, kind};
use midair_sdk_hot::callbacks::requests::mixed;
use midair_sdk_hot::callbacks::work::{self, Notified, Work, agent_id};

const _: () = {
    assert!(theirs::SIZE == 64 && theirs::start_timestamp == 8 && theirs::end_timestamp == 16);
    assert!(theirs::dst_agent_id == 24 && theirs::src_agent_id == 32 && theirs::bytes == 40);
    assert!(theirs::dst_address == 48 && theirs::src_address == 56);
};

/// Tells tools of a copy that is about to be requested. The calling thread is not busy.
pub(crate) fn begins(facts: &Facts) -> Option<Notified> {
    let gpu = symbols::agent_is_gpu;
    let operation = match facts.direction {
        0 => match (gpu(facts.src_agent), gpu(facts.dst_agent)) {
            (false, false) => 1,
            (false, true) => 2,
            (true, false) => 3,
            (true, true) => 4,
        },
        known => known,
    };
    let agent = |agent| agent_id(symbols::agent_node(agent));
    let work = Work {
        kind: kind::MEMORY_COPY,
        operation,
        correlation: facts.correlation,
        ancestor: 0,
        tid: facts.tid,
        id: mixed(facts.correlation, facts.dst),
    };
    let payload = [
        theirs::SIZE as u64,
        0,
        0,
        agent(facts.dst_agent),
        agent(facts.src_agent),
        facts.bytes,
        facts.dst,
        facts.src,
    ];
    work::begin(&work, &payload)
}

/// Tells tools of a copy that has ended. On the worker thread.
pub(super) fn ended(told: Notified, record: &Copy) {
    let words = [
        record.start,
        record.end,
        agent_id(record.dst_node),
        agent_id(record.src_node),
    ];
    work::end(told, |payload| {
        for (to, word) in payload.iter_mut().skip(1).zip(words) {
            *to = word;
        }
    });
}
