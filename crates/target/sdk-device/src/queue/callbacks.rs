//! Tells tools' callbacks of dispatches: after the dispatches were seen at a doorbell and before
//! the doorbell is rung, on the thread that rings it.

use super::flight::Facts;
use super::queue_state::QueueState;
use super::windows::tool_requests;
use crate::symbols;
use midair_abi::constants as c;
use midair_abi::layout::rocprofiler_callback_tracing_kernel_dispatch_data_t as theirs;
use midair_abi::layout::rocprofiler_kernel_dispatch_info_t as info;
use midair_record::event::kind;
use midair_sdk_hot::callbacks::work::{self, Work, agent_id};
use midair_sdk_hot::probe::Busy;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How long the worker thread is given to learn the name of a kernel that was loaded a moment ago.
const NAME_LIMIT: Duration = Duration::from_millis(50);

const _: () = {
    assert!(theirs::SIZE == 152 && theirs::dispatch_info == 24);
    assert!(info::agent_id == 8 && info::queue_id == 16 && info::kernel_id == 24);
    assert!(info::dispatch_id == 32 && info::private_segment_size == 40);
    assert!(info::group_segment_size == 44 && info::workgroup_size == 48 && info::grid_size == 60);
};

/// The dispatches of a queue that were seen, as positions in its ring of flights.
#[derive(Debug, Default)]
pub struct Seen {
    of: Option<(&'static QueueState, u64, u64)>,
}

impl Seen {
    /// Starts with no dispatches. Called under the queue's spin word.
    pub(super) fn before(queue: &'static QueueState) -> Seen {
        let end = queue.flights.range().end;
        Seen {
            of: Some((queue, end, end)),
        }
    }

    /// Returns the dispatches that were seen since then. Called while the spin word is still held.
    pub(super) fn until_now(self) -> Seen {
        Seen {
            of: self
                .of
                .map(|(queue, begin, _)| (queue, begin, queue.flights.range().end)),
        }
    }

    /// Tells the tools that want to know of dispatches, and asks those that choose counters. The
    /// caller holds no lock. `busy` is dropped first, so a detach does not wait for a tool's
    /// function.
    #[inline]
    pub fn tell(self, busy: Busy) {
        let Some((queue, begin, end)) = self.of else {
            return;
        };
        let (is_told, is_asked) = (busy.tells(kind::KERNEL_DISPATCH), tool_requests::is_on());
        if begin == end || !is_told && !is_asked {
            return;
        }
        drop(busy);
        if is_told {
            tell(queue, begin, end);
        }
        if is_asked {
            tool_requests::ask(queue, begin, end);
        }
    }
}

#[cold]
#[inline(never)]
fn tell(queue: &'static QueueState, begin: u64, end: u64) {
    let node = if queue.announced.load(Relaxed) != 0 {
        queue.node.load(Relaxed)
    } else {
        // The worker thread has not asked for the queue's agent yet.
        // SAFETY: the application is ringing this queue's doorbell, so the queue exists.
        let agent = queue.visit(|pointer| unsafe { symbols::queue_agent(pointer.0) });
        symbols::agent_node(agent.unwrap_or(0))
    };
    let (agent, queue_id) = (agent_id(node), u64::from(queue.id.load(Relaxed)));
    let seen = (begin..end).filter_map(|position| queue.flights.still(position));
    for facts in seen.filter(|facts| !facts.is_barrier) {
        let work = Work {
            kind: kind::KERNEL_DISPATCH,
            operation: c::ROCPROFILER_KERNEL_DISPATCH_ENQUEUE as u32,
            correlation: facts.launch.correlation,
            ancestor: 0,
            tid: facts.launch.tid,
            id: facts.dispatch_id,
        };
        work::enqueued(&work, &payload(&facts, agent, queue_id));
    }
}

fn payload(facts: &Facts, agent: u64, queue_id: u64) -> [u64; theirs::SIZE / 8] {
    let dispatch = &facts.dispatch;
    let [wx, wy, wz] = dispatch.workgroup;
    let [gx, gy, gz] = dispatch.grid;
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let words = [
        theirs::SIZE as u64,
        0,
        0,
        info::SIZE as u64,
        agent,
        queue_id,
        symbols::kernel_id_within(dispatch.kernel_object, NAME_LIMIT),
        facts.dispatch_id,
        pair(dispatch.private_segment, dispatch.group_segment),
        pair(wx, wy),
        pair(wz, gx),
        pair(gy, gz),
    ];
    let mut all = [0; theirs::SIZE / 8];
    for (to, word) in all.iter_mut().zip(words) {
        *to = word;
    }
    all
}
