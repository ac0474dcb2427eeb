//! Memory that devices can access: which call allocated or released which bytes of which agent.
//!
//! The call itself is the event, so the application's thread writes the record on its way out.
//! Which agent owns a pool is learned by the worker thread once the runtime is open ([`learn`]); an
//! allocation from before that moment waits in a short list until the worker thread can tell
//! ([`pass`]). Only calls that succeeded are recorded.
//!
//! Decisions: AMD-031 (`docs/deviations/amd.md`).

pub(crate) mod waiting;

use crate::domain::{Device, Domain};
use crate::hooks::{self, Hook};
use crate::queries;
use crate::sink::Sink;
use crate::state::STATE;
use crate::symbols;
use midair_abi::layout::rocprofiler_callback_tracing_memory_allocation_data_t as theirs;
use midair_domain::KindSet;
use midair_record::event::{Allocation, Header, NO_NODE, Plain, kind};
use midair_sdk_hot::callbacks::requests::mixed;
use midair_sdk_hot::callbacks::work::{self, Notified, Work, agent_id};
use midair_sdk_hot::clock::now;
use midair_sdk_hot::probe::Busy;
use midair_sdk_hot::wrappers;
use std::ffi::c_void;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use waiting::{POOLS, Stage, Waiting};

/// `rocprofiler_memory_allocation_operation_t` (source: api/rocprofiler_sdk.json).
mod operation {
    pub const ALLOCATE: u32 = 1;
    pub const VMEM_ALLOCATE: u32 = 2;
    pub const FREE: u32 = 3;
    pub const VMEM_FREE: u32 = 4;
}

/// Forgets all pools before a new session, which learns them again. Call it only while no session is
/// on.
pub fn clear() {
    STATE.allocations.known.store(0, Release);
    STATE.allocations.count.store(0, Relaxed);
    STATE.allocations.nodes.clear();
    STATE.allocations.waiting.clear();
}

/// Learns which agent owns which pool. Only on the worker thread, once the runtime is open.
pub fn learn() {
    for (agent, _) in symbols::agents() {
        let node = symbols::agent_node(agent);
        // A pool and the region of the same memory have the same handle.
        let handles = [queries::pools(agent), queries::regions(agent)].concat();
        for handle in handles {
            if node_of(handle).is_some() {
                continue;
            }
            let Some(entry) = STATE.allocations.nodes.claim_key(handle, POOLS) else {
                continue;
            };
            entry.shared().store(node, Relaxed);
            entry.publish(handle);
            STATE.allocations.known.fetch_add(1, Release);
        }
    }
}

fn node_of(pool: u64) -> Option<u32> {
    Some(
        STATE
            .allocations
            .nodes
            .find(pool, POOLS)?
            .shared()
            .load(Relaxed),
    )
}

/// Writes the allocations that waited for their pool to be known. With `last`, it also writes those
/// whose agent is not known. Returns how many were written.
pub fn pass(sink: &mut Sink, last: bool) -> usize {
    if STATE.allocations.count.load(Acquire) == 0
        || STATE.allocations.known.load(Relaxed) == 0 && !last
    {
        return 0;
    }
    let mut written = 0;
    for (_, slot) in STATE.allocations.waiting.used() {
        let Some(mut entry) = slot.hold(Stage::Waiting) else {
            continue;
        };
        entry.with(|waiting| {
            let node = node_of(waiting.pool).unwrap_or(NO_NODE);
            let record = Allocation {
                node,
                ..waiting.record
            };
            sink.put(kind::MEMORY_ALLOCATION, record.bytes());
        });
        entry.free();
        STATE.allocations.count.fetch_sub(1, Relaxed);
        written += 1;
    }
    written
}

fn wait(record: &Allocation, pool: u64) -> bool {
    let Some((_, mut entry)) = STATE.allocations.waiting.claim() else {
        return false;
    };
    entry.with(|waiting| {
        *waiting = Waiting {
            pool,
            record: *record,
        };
    });
    // Count it before it can be seen, since a pass that sees it decrements the count.
    STATE.allocations.count.fetch_add(1, Relaxed);
    entry.publish(Stage::Waiting);
    true
}

const _: () = {
    assert!(theirs::SIZE == 48 && theirs::start_timestamp == 8 && theirs::end_timestamp == 16);
    assert!(theirs::agent_id == 24 && theirs::address == 32 && theirs::allocation_size == 40);
};

/// A call under way.
#[derive(Debug, Clone, Copy)]
struct Begun {
    generation: u64,
    start: u64,
    /// Bits of [`midair_record::event::flag`].
    flags: u8,
    /// Present if tools were notified that the call starts.
    told: Option<Notified>,
}

fn begin(operation: u32, pool: Option<u64>, address: u64, bytes: u64) -> Option<Begun> {
    let mut busy = Busy::enter()?;
    if !busy.accepts() || !busy.wants(kind::MEMORY_ALLOCATION) {
        busy.is_left_out(kind::MEMORY_ALLOCATION);
        return None;
    }
    let mut begun = Begun {
        generation: busy.generation(),
        start: now(),
        flags: busy.flags_now(),
        told: None,
    };
    if busy.tells(kind::MEMORY_ALLOCATION) {
        let (correlation, ancestor) = busy
            .enclosing()
            .unwrap_or_else(|| (busy.fresh_correlation(), 0));
        let work = Work {
            kind: kind::MEMORY_ALLOCATION,
            operation,
            correlation,
            ancestor,
            tid: busy.tid(),
            id: mixed(begun.start, u64::from(busy.tid())),
        };
        drop(busy);
        let agent = pool.and_then(node_of).map_or(0, agent_id);
        begun.told = work::begin(&work, &[theirs::SIZE as u64, 0, 0, agent, address, bytes]);
    }
    Some(begun)
}

/// Tells tools that the call failed.
fn failed(begun: Option<Begun>) {
    if let Some(told) = begun.and_then(|begun| begun.told) {
        let words = [begun.map_or(0, |begun| begun.start), now()];
        work::end(told, |payload| {
            for (to, word) in payload.iter_mut().skip(1).zip(words) {
                *to = word;
            }
        });
    }
}

/// What the call did.
#[derive(Debug, Clone, Copy)]
struct Done {
    operation: u32,
    /// The address or the handle.
    address: u64,
    bytes: u64,
    /// The pool or region; `None` for a release.
    pool: Option<u64>,
    /// The kind of the API that the call belongs to.
    api: u8,
}

fn end(begun: Option<Begun>, done: impl FnOnce() -> Done) {
    let Some(begun) = begun else { return };
    let end = now();
    let done = done();
    if let Some(told) = begun.told {
        let agent = done.pool.and_then(node_of).map_or(0, agent_id);
        let words = [begun.start, end, agent, done.address, done.bytes];
        work::end(told, |payload| {
            for (to, word) in payload.iter_mut().skip(1).zip(words) {
                *to = word;
            }
        });
    }
    let Some(mut busy) = Busy::enter() else {
        return;
    };
    if busy.generation() != begun.generation {
        return;
    }
    let stream = busy.innermost().map_or(0, |(_, stream)| stream);
    // The correlation id is as in AMD's records: the call's own id if it is traced, otherwise the
    // id of the innermost traced call around it. So an allocation is found by the id of the HIP
    // call that made it.
    let (correlation, ancestor) = busy
        .returned(done.api, begun.start)
        .or_else(|| busy.enclosing())
        .unwrap_or_else(|| (busy.fresh_correlation(), 0));
    let node = match done.pool {
        None => Some(NO_NODE),
        Some(pool) => node_of(pool),
    };
    let record = Allocation {
        header: Header {
            size: size_of::<Allocation>() as u16,
            kind: kind::MEMORY_ALLOCATION,
            flags: begun.flags,
            operation: done.operation,
        },
        start: begun.start,
        end,
        correlation,
        ancestor,
        address: done.address,
        bytes: done.bytes,
        stream,
        node: node.unwrap_or(NO_NODE),
        tid: busy.tid(),
    };
    if node.is_some() {
        busy.store(kind::MEMORY_ALLOCATION, [record.bytes(), &[]]);
    } else if !wait(&record, done.pool.unwrap_or(0)) {
        busy.dropped(kind::MEMORY_ALLOCATION);
    }
}

/// Returns what a successful call has stored in its out parameter.
fn out(parameter: *mut c_void) -> u64 {
    // SAFETY: the call that was given this out parameter (8 bytes: a pointer or a handle) has
    // succeeded, so it was written.
    unsafe { parameter.cast::<u64>().read_unaligned() }
}

pub(crate) unsafe extern "C-unwind" fn hsa_memory_allocate(
    region: u64,
    size: u64,
    ptr: *mut c_void,
) -> u32 {
    let begun = begin(operation::ALLOCATE, Some(region), 0, size);
    // SAFETY: the application's own call, passed on.
    let status = unsafe { wrappers::hsa_core::hsa_memory_allocate(region, size, ptr) };
    if status == 0 {
        end(begun, || Done {
            operation: operation::ALLOCATE,
            address: out(ptr),
            bytes: size,
            pool: Some(region),
            api: kind::HSA_CORE_API,
        });
    } else {
        failed(begun);
    }
    status
}

pub(crate) unsafe extern "C-unwind" fn hsa_memory_free(ptr: *mut c_void) -> u32 {
    let begun = begin(operation::FREE, None, ptr.addr() as u64, 0);
    // SAFETY: the application's own call, passed on.
    let status = unsafe { wrappers::hsa_core::hsa_memory_free(ptr) };
    if status == 0 {
        end(begun, || Done {
            operation: operation::FREE,
            address: ptr.addr() as u64,
            bytes: 0,
            pool: None,
            api: kind::HSA_CORE_API,
        });
    } else {
        failed(begun);
    }
    status
}

pub(crate) unsafe extern "C-unwind" fn hsa_amd_memory_pool_allocate(
    pool: u64,
    size: u64,
    flags: u32,
    ptr: *mut c_void,
) -> u32 {
    let begun = begin(operation::ALLOCATE, Some(pool), 0, size);
    // SAFETY: the application's own call, passed on.
    let status =
        unsafe { wrappers::hsa_amd_ext::hsa_amd_memory_pool_allocate(pool, size, flags, ptr) };
    if status == 0 {
        end(begun, || Done {
            operation: operation::ALLOCATE,
            address: out(ptr),
            bytes: size,
            pool: Some(pool),
            api: kind::HSA_AMD_EXT_API,
        });
    } else {
        failed(begun);
    }
    status
}

pub(crate) unsafe extern "C-unwind" fn hsa_amd_memory_pool_free(ptr: *mut c_void) -> u32 {
    let begun = begin(operation::FREE, None, ptr.addr() as u64, 0);
    // SAFETY: the application's own call, passed on.
    let status = unsafe { wrappers::hsa_amd_ext::hsa_amd_memory_pool_free(ptr) };
    if status == 0 {
        end(begun, || Done {
            operation: operation::FREE,
            address: ptr.addr() as u64,
            bytes: 0,
            pool: None,
            api: kind::HSA_AMD_EXT_API,
        });
    } else {
        failed(begun);
    }
    status
}

pub(crate) unsafe extern "C-unwind" fn hsa_amd_vmem_handle_create(
    pool: u64,
    size: u64,
    memory_type: u32,
    flags: u64,
    handle: *mut c_void,
) -> u32 {
    let begun = begin(operation::VMEM_ALLOCATE, Some(pool), 0, size);
    // SAFETY: the application's own call, passed on.
    let status = unsafe {
        wrappers::hsa_amd_ext::hsa_amd_vmem_handle_create(pool, size, memory_type, flags, handle)
    };
    if status == 0 {
        end(begun, || Done {
            operation: operation::VMEM_ALLOCATE,
            address: out(handle),
            bytes: size,
            pool: Some(pool),
            api: kind::HSA_AMD_EXT_API,
        });
    } else {
        failed(begun);
    }
    status
}

pub(crate) unsafe extern "C-unwind" fn hsa_amd_vmem_handle_release(handle: u64) -> u32 {
    let begun = begin(operation::VMEM_FREE, None, handle, 0);
    // SAFETY: the application's own call, passed on.
    let status = unsafe { wrappers::hsa_amd_ext::hsa_amd_vmem_handle_release(handle) };
    if status == 0 {
        end(begun, || Done {
            operation: operation::VMEM_FREE,
            address: handle,
            bytes: 0,
            pool: None,
            api: kind::HSA_AMD_EXT_API,
        });
    } else {
        failed(begun);
    }
    status
}

/// The domain of allocations.
#[derive(Debug, Clone, Copy)]
pub struct Allocations;

impl Domain for Allocations {
    fn kind(&self) -> u8 {
        kind::MEMORY_ALLOCATION
    }
    fn hooks(&self) -> &'static [Hook] {
        hooks::ALLOCATIONS
    }
    fn begin(&mut self, _wanted: KindSet) {
        clear();
    }
    fn runtime_is_open(&mut self, _born_here: bool) {
        learn();
    }
    fn pass(&mut self, device: &mut Device<'_>) -> bool {
        pass(device.sink, false) > 0
    }
    fn books(&mut self, device: &mut Device<'_>) {
        pass(device.sink, true);
    }
}
