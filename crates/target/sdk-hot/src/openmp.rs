//! Events of OpenMP, which the runtime tells on the thread that they happen on ([OMPT]). An event
//! without duration becomes a record by itself. The two ends of a region become one record, as the
//! start and the end of a call do.
//!
//! The regions of a thread are nested, and are on a stack of its slot: an end belongs to the
//! innermost open region of the same operation. The runtime's own words for a tool (`ompt_data_t`)
//! are not used, so that tools in the process can have them; and LLVM's runtime passes other
//! addresses of them at an end than at the start.
//!
//! [OMPT]: https://www.openmp.org/spec-html/5.2/openmpch19.html

pub(crate) mod regions;

use crate::callbacks;
use crate::clock::now;
use crate::probe::{self, Busy};
use crate::state::STATE;
use midair_abi::ompt::operation;
use midair_record::event::{Api, Header, Plain, kind};
use regions::{MAX_REGIONS, Region};
use std::sync::atomic::Ordering::Relaxed;

/// The most words that an event has: the event of the runtime's own functions has so many.
pub const MOST_WORDS: usize = 16;
/// How many words a record has for offloaded work, in the form of AMD's union.
const UNION: usize = 5;

/// Starts a session.
pub fn begin() {
    STATE.regions_begun_before.store(0, Relaxed);
    STATE.regions_over_capacity.store(0, Relaxed);
}

/// Returns notes for the user at the end of a session.
pub fn notes() -> Vec<String> {
    let count = STATE.regions_over_capacity.load(Relaxed);
    let text = "OpenMP regions exceeded the limit of open regions: they are not in the trace";
    (count > 0)
        .then(|| format!("{count} {text}"))
        .into_iter()
        .collect()
}

/// Records and reports an event without duration. `words` are its arguments.
pub fn event(operation: u32, words: &[u64]) {
    let Some((mut busy, seen)) = probe::occurs(kind::OMPT) else {
        return;
    };
    let mut region = Region {
        start: now(),
        correlation: busy.fresh_correlation_if(seen.recorded),
        ancestor: busy.around_region(),
        operation,
        flags: busy.flags_now(),
        recorded: seen.recorded,
    };
    let frame = seen
        .reported
        .then(|| callbacks::openmp::instant(&busy, &mut region, words))
        .flatten();
    if region.recorded {
        store(&mut busy, &region, region.start, words);
    }
    drop(busy);
    if let Some(frame) = frame {
        callbacks::openmp::tell(frame);
    }
}

/// Notes and reports the start of a region.
pub fn region_begins(operation: u32, words: &[u64]) {
    let Some((mut busy, seen)) = probe::occurs(kind::OMPT) else {
        return;
    };
    let ancestor = busy.around_region();
    let correlation = busy.fresh_correlation_if(seen.recorded);
    let flags = busy.flags_now();
    let thread = busy.thread();
    let depth = busy.regions().depth;
    if depth >= MAX_REGIONS {
        busy.regions().over += 1;
        STATE.regions_over_capacity.fetch_add(1, Relaxed);
        if seen.recorded {
            busy.dropped(kind::OMPT);
        }
        return;
    }
    let mut region = Region {
        start: now(),
        correlation,
        ancestor,
        operation,
        flags,
        recorded: seen.recorded,
    };
    let told =
        seen.reported && callbacks::openmp::fill_region(&busy, thread, depth, &mut region, words);
    busy.regions().push(region);
    let generation = busy.generation();
    drop(busy);
    if told {
        callbacks::openmp::enter(thread, depth);
        // The time before was spent in a tool's function.
        if let Some(mut busy) = Busy::enter().filter(|busy| busy.generation() == generation)
            && let Some(region) = busy.regions().open.get_mut(depth)
        {
            region.start = now();
        }
    }
}

/// Records and reports the end of a region.
pub fn region_ends(operation: u32, words: &[u64]) {
    let end = now();
    if callbacks::is_inside() {
        return;
    }
    let Some(mut busy) = Busy::enter() else {
        return;
    };
    let thread = busy.thread();
    let (generation, regions) = (busy.generation(), busy.regions());
    let Some((depth, region)) = regions.pop(operation) else {
        if regions.over > 0 {
            regions.over -= 1;
        } else {
            STATE.regions_begun_before.fetch_add(1, Relaxed);
        }
        return;
    };
    if region.recorded {
        store(&mut busy, &region, end, words);
    }
    drop(busy);
    callbacks::openmp::exit(thread, depth, generation, words);
}

fn store(busy: &mut Busy, region: &Region, end: u64, words: &[u64]) {
    let mut tail = [0_u8; UNION * 8];
    let union = union_of(region.operation, words);
    let tail = match &union {
        None => &[][..],
        Some(union) => {
            for (to, word) in tail.as_chunks_mut::<8>().0.iter_mut().zip(union) {
                *to = word.to_ne_bytes();
            }
            &tail[..]
        }
    };
    let tid = busy.tid();
    let record = record(region, end, tid, (tail.len() / 8) as u32);
    busy.store(kind::OMPT, [record.bytes(), tail]);
}

/// Returns the record of a region or an event, behind which `nargs` words follow.
pub(crate) fn record(region: &Region, end: u64, tid: u32, nargs: u32) -> Api {
    Api {
        header: Header {
            size: (size_of::<Api>() as u32 + nargs * 8) as u16,
            kind: kind::OMPT,
            flags: region.flags,
            operation: region.operation,
        },
        start: region.start,
        end,
        correlation: region.correlation,
        ancestor: region.ancestor,
        stream: 0,
        retval: 0,
        tid,
        nargs,
    }
}

/// Returns the union of AMD's record (`rocprofiler_buffer_tracing_ompt_record_t`), which only
/// offloaded work has. What the runtime's words point to is read: the runtime keeps it during the
/// call.
fn union_of(operation: u32, words: &[u64]) -> Option<[u64; UNION]> {
    let word = |at: usize| words.get(at).copied().unwrap_or(0);
    let low = |at: usize| word(at) & 0xffff_ffff;
    let value = |at: usize| match word(at) {
        0 => 0,
        // SAFETY: the runtime passes the address of one of its own `ompt_data_t`, valid during the
        // callback that we are in.
        address => unsafe { *std::ptr::with_exposed_provenance::<u64>(address as usize) },
    };
    Some(match operation {
        // kind, endpoint, device_num, task_data, target_task_data, target_data, codeptr_ra
        operation::TARGET_EMI => [low(0) | word(2) << 32, value(3), value(5), word(6), 0],
        // endpoint, target_task_data, target_data, host_op_id, optype, src_address, src_device_num,
        // dst_address, dst_device_num, bytes, codeptr_ra
        operation::TARGET_DATA_OP_EMI => {
            [value(3), low(4) | word(6) << 32, low(8), word(9), word(10)]
        }
        // endpoint, target_data, host_op_id, requested_num_teams
        operation::TARGET_SUBMIT_EMI => [value(2), word(3) << 32, 0, 0, 0],
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offloaded_work_has_the_words_of_amds_union() {
        let (id, task, target) = (7_u64, 8_u64, 9_u64);
        let at = |value: &u64| std::ptr::from_ref(value).expose_provenance() as u64;
        let words = [1, 1, 3, at(&task), 0, at(&target), 0x1000];
        assert_eq!(
            union_of(operation::TARGET_EMI, &words),
            Some([1 | 3 << 32, 8, 9, 0x1000, 0])
        );
        let words = [1, 0, 0, at(&id), 2, 0xaaaa, 4, 0xbbbb, 5, 4096, 0x2000];
        assert_eq!(
            union_of(operation::TARGET_DATA_OP_EMI, &words),
            Some([7, 2 | 4 << 32, 5, 4096, 0x2000])
        );
        let words = [1, 0, at(&id), 6];
        assert_eq!(
            union_of(operation::TARGET_SUBMIT_EMI, &words),
            Some([7, 6 << 32, 0, 0, 0])
        );
        assert_eq!(union_of(operation::TARGET_EMI, &[]), Some([0; 5]));
        assert_eq!(union_of(operation::WORK, &[1, 2]), None);
    }
}
