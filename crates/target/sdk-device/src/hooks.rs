//! The hooks: functions that are stored in a slot instead of the plain wrapper where we need more
//! than the call's times.
//!
//! Each hook does its work while the thread is *busy* (see [`midair_sdk_hot::probe`]), leaves, and
//! then calls the plain wrapper, which records the call if that was asked for and passes it on.
//! When no session is on, a hook is its wrapper.

use crate::allocations::{
    hsa_amd_memory_pool_allocate, hsa_amd_memory_pool_free, hsa_amd_vmem_handle_create,
    hsa_amd_vmem_handle_release, hsa_memory_allocate, hsa_memory_free,
};
use crate::copies;
pub use crate::hook::{Hook, Purpose};
use crate::host_functions::__hipRegisterFunction;
use crate::layout::{KIND_DOORBELL, KIND_LEGACY_DOORBELL, QueueDescriptor, QueuePointer, Signal};
use crate::queue::callbacks::Seen;
use crate::queue::flight::Launch;
use crate::queue::queue_state::{Life, QueueState};
use crate::queue::scan::{self, Ring};
use crate::queue::serialized;
use crate::queue::settle::settle;
use crate::queue::state;
use crate::queue::traces;
use crate::queue::windows;
use crate::symbols;
use midair_record::event::{flag, kind};
use midair_sdk_hot::callbacks::work;
use midair_sdk_hot::clock::now;
use midair_sdk_hot::probe::Busy;
use midair_sdk_hot::wrappers::{self, original};
use std::ffi::c_void;
use std::sync::atomic::Ordering::Release;

fn launch(busy: &mut Busy) -> Launch {
    let (tid, flags) = (busy.tid(), busy.flags_now());
    match busy.innermost() {
        Some((correlation, stream)) => {
            busy.take_stack(correlation);
            Launch {
                correlation,
                stream,
                tid,
                flags,
                of_event: busy.is_of_event(correlation),
                window: 0,
            }
        }
        None => Launch {
            correlation: busy.fresh_correlation(),
            stream: 0,
            tid,
            flags: flags | flag::NO_CALLER,
            of_event: false,
            window: 0,
        },
    }
}

/// Reserves `count` packets of `queue` while counters are counted, with a window around them if one
/// is available. Returns the index of the first packet.
///
/// # Safety
/// The same as for the application's call, which `original` makes.
pub(crate) unsafe fn reserve(
    queue: *mut c_void,
    count: u64,
    original: impl FnOnce() -> u64,
) -> u64 {
    let Some(mut busy) = Busy::enter() else {
        return original();
    };
    let window = if busy.flags_now() & flag::PAUSED != 0 {
        None
    } else {
        // SAFETY: the caller's promise.
        unsafe {
            windows::reserve(&mut busy, queue, count, launch)
                .or_else(|| traces::reserve(&mut busy, queue, count, launch))
        }
    };
    match window {
        Some(index) => index,
        None => {
            let old = original();
            reserved(busy, queue.addr() as u64, old, count);
            old
        }
    }
}

/// Notes that the calling thread has reserved `count` packets of `queue` from `first` on.
fn reserved(mut busy: Busy, queue: u64, first: u64, count: u64) {
    if !busy.accepts() || !busy.wants(kind::KERNEL_DISPATCH) {
        return;
    }
    let mut seen = Seen::default();
    let hint = state::Hint {
        reserved: Some(first),
        ..state::Hint::default()
    };
    // SAFETY: the application has just used the queue, so it is alive.
    if let Some(state) = unsafe { state::learn(QueuePointer(queue), hint) }
        && state.is_compute()
    {
        state.reserve(first, count, launch(&mut busy));
        if state.is_direct() {
            seen = scan::reserved(state, &mut busy, first);
        }
    }
    seen.tell(busy);
}

macro_rules! add_write_index {
    ($($name:ident by $recorded:ident),*) => { $(
        /// Learns the queue, and which thread reserves packets.
        unsafe extern "C-unwind" fn $name(queue: *mut c_void, value: u64) -> u64 {
            if value != 0 && (windows::are_taken() || traces::are_taken()) {
                // SAFETY: the application's own call, passed on.
                let act = || unsafe { reserve(queue, value, || original::$name(queue, value)) };
                return wrappers::hsa_core::$recorded(queue, value, act);
            }
            // SAFETY: the application's own call, passed on.
            let old = unsafe { wrappers::hsa_core::$name(queue, value) };
            if let Some(busy) = Busy::enter() {
                reserved(busy, queue.addr() as u64, old, value);
            }
            old
        }
    )* };
}
add_write_index!(
    hsa_queue_add_write_index_scacq_screl by hsa_queue_add_write_index_scacq_screl_by,
    hsa_queue_add_write_index_scacquire by hsa_queue_add_write_index_scacquire_by,
    hsa_queue_add_write_index_relaxed by hsa_queue_add_write_index_relaxed_by,
    hsa_queue_add_write_index_screlease by hsa_queue_add_write_index_screlease_by
);

macro_rules! load_read_index {
    ($($name:ident),*) => { $(
        /// Learns that the application checks for room in its ring.
        unsafe extern "C-unwind" fn $name(queue: *mut c_void) -> u64 {
            windows::watches_room(queue.addr() as u64);
            // SAFETY: the application's own call, passed on.
            unsafe { wrappers::hsa_core::$name(queue) }
        }
    )* };
}
load_read_index!(
    hsa_queue_load_read_index_scacquire,
    hsa_queue_load_read_index_relaxed
);

macro_rules! cas_write_index {
    ($($name:ident),*) => { $(
        /// Learns the queue, and which thread reserves packets.
        unsafe extern "C-unwind" fn $name(queue: *mut c_void, expected: u64, value: u64) -> u64 {
            // SAFETY: the application's own call, passed on.
            let old = unsafe { wrappers::hsa_core::$name(queue, expected, value) };
            if old == expected && value > expected
                && let Some(busy) = Busy::enter()
            {
                windows::reserved_otherwise(&busy);
                reserved(busy, queue.addr() as u64, old, value - expected);
            }
            old
        }
    )* };
}
cas_write_index!(
    hsa_queue_cas_write_index_scacq_screl,
    hsa_queue_cas_write_index_scacquire,
    hsa_queue_cas_write_index_relaxed,
    hsa_queue_cas_write_index_screlease
);

macro_rules! store_write_index {
    ($($name:ident),*) => { $(
        /// Learns the queue, and which thread reserves packets.
        unsafe extern "C-unwind" fn $name(queue: *mut c_void, value: u64) {
            if let Some(busy) = Busy::enter() {
                // SAFETY: the application is using the queue, so it is alive.
                let old = unsafe { original::hsa_queue_load_write_index_relaxed(queue) };
                if value > old {
                    windows::reserved_otherwise(&busy);
                    reserved(busy, queue.addr() as u64, old, value - old);
                }
            }
            // SAFETY: the application's own call, passed on.
            unsafe { wrappers::hsa_core::$name(queue, value) }
        }
    )* };
}
store_write_index!(
    hsa_queue_store_write_index_relaxed,
    hsa_queue_store_write_index_screlease
);

/// Handles the doorbell of a known queue.
fn rung(queue: &'static QueueState, mut busy: Busy, value: i64) -> Ring {
    let (ring, seen) = scan::doorbell(queue, &mut busy, value);
    if windows::exclusive::is_on() && ring != Ring::Hold {
        windows::exclusive::wait(queue);
    }
    seen.tell(busy);
    ring
}

/// Handles a store to a signal: a doorbell, or the reuse of a signal that holds times.
///
/// # Safety
/// `signal` must be 0 or a live signal.
#[inline]
unsafe fn before_store(signal: u64, value: i64) -> Ring {
    let Some(busy) = Busy::enter() else {
        return Ring::Value(value);
    };
    if signal == 0 {
        return Ring::Value(value);
    }
    // SAFETY: the caller's promise.
    let signal_kind = unsafe { Signal(signal).kind() };
    if signal_kind == KIND_DOORBELL || signal_kind == KIND_LEGACY_DOORBELL {
        if !busy.wants(kind::KERNEL_DISPATCH) {
            return Ring::Value(value);
        }
        let known = state::find(signal).or_else(|| {
            if !busy.accepts() {
                return None;
            }
            // SAFETY: a doorbell in use belongs to a live queue.
            unsafe { state::learn(Signal(signal).queue(), state::Hint::default()) }
        });
        return match known {
            Some(queue) if queue.is_compute() => rung(queue, busy, value),
            _ => Ring::Value(value),
        };
    }
    if state::has_intercepts()
        && let Some(queue) = state::find(signal)
    {
        return rung(queue, busy, value);
    }
    settle(signal);
    Ring::Value(value)
}

macro_rules! signal_store {
    ($($name:ident),*) => { $(
        /// Looks at the packets behind a doorbell, then rings it.
        unsafe extern "C-unwind" fn $name(signal: u64, value: i64) {
            // SAFETY: the application stores to the signal, so it is alive.
            if let Ring::Value(value) = unsafe { before_store(signal, value) } {
                // SAFETY: the application's own call, passed on.
                unsafe { wrappers::hsa_core::$name(signal, value) }
            }
        }
    )* };
}
signal_store!(
    hsa_signal_store_relaxed,
    hsa_signal_store_screlease,
    hsa_signal_silent_store_relaxed,
    hsa_signal_silent_store_screlease
);

macro_rules! signal_exchange {
    ($($name:ident),*) => { $(
        /// Does the same as for a store, but always rings a doorbell, since the caller wants the
        /// old value.
        unsafe extern "C-unwind" fn $name(signal: u64, value: i64) -> i64 {
            // SAFETY: the application stores to the signal, so it is alive.
            unsafe { before_store(signal, value) };
            // SAFETY: the application's own call, passed on.
            unsafe { wrappers::hsa_core::$name(signal, value) }
        }
    )* };
}
signal_exchange!(
    hsa_signal_exchange_scacq_screl,
    hsa_signal_exchange_scacquire,
    hsa_signal_exchange_relaxed,
    hsa_signal_exchange_screlease
);

macro_rules! signal_change {
    ($($name:ident),*) => { $(
        /// Reads the times that the signal may hold before its next use overwrites them.
        unsafe extern "C-unwind" fn $name(signal: u64, value: i64) {
            if value > 0
                && let Some(_busy) = Busy::enter()
            {
                settle(signal);
            }
            // SAFETY: the application's own call, passed on.
            unsafe { wrappers::hsa_core::$name(signal, value) }
        }
    )* };
}
signal_change!(
    hsa_signal_add_scacq_screl,
    hsa_signal_add_scacquire,
    hsa_signal_add_relaxed,
    hsa_signal_add_screlease
);

/// Reads the times that the signal holds before it is destroyed.
unsafe extern "C-unwind" fn hsa_signal_destroy(signal: u64) -> u32 {
    if let Some(_busy) = Busy::enter() {
        settle(signal);
    }
    // SAFETY: the application's own call, passed on.
    unsafe { wrappers::hsa_core::hsa_signal_destroy(signal) }
}

/// Stops touching the queue's memory.
unsafe extern "C-unwind" fn hsa_queue_destroy(queue: *mut c_void) -> u32 {
    let leaving = serialized::destroys(queue.addr() as u64);
    let buried = Busy::enter().and_then(|busy| {
        let known = state::find(queue.addr() as u64)?;
        state::begin_destroy(known);
        Some((known, busy.generation()))
    });
    // SAFETY: the application's own call, passed on.
    let status = unsafe { wrappers::hsa_core::hsa_queue_destroy(queue) };
    if status == 0 {
        leaving.has_left();
    }
    // In a later session the state may belong to another queue.
    if let (0, Some((known, generation)), Some(busy)) = (status, buried, Busy::enter())
        && busy.generation() == generation
    {
        known.life.store(Life::Gone, Release);
    }
    status
}

/// Learns the queues that were made, and for which engines.
pub(crate) unsafe extern "C-unwind" fn hsa_amd_queue_create(
    agent: u64,
    descriptors: *mut c_void,
    count: u32,
) -> u32 {
    // SAFETY: the application's own call, passed on.
    let status = unsafe { wrappers::hsa_amd_ext::hsa_amd_queue_create(agent, descriptors, count) };
    if let Some(busy) = Busy::enter()
        && busy.accepts()
        && busy.wants(kind::KERNEL_DISPATCH)
    {
        // This is done after an error, too: one queue may have failed where others were made.
        // SAFETY: these are the descriptors that the application passed to the call, and the call
        // has filled them in.
        for made in unsafe { QueueDescriptor::all(descriptors.addr() as u64, count) } {
            let hint = state::Hint {
                agent,
                engine: Some(made.engine),
                reserved: None,
            };
            // SAFETY: the runtime has just made this queue.
            let known = unsafe { state::learn(made.queue, hint) };
            if known.is_some_and(QueueState::is_compute) {
                serialized::is_made_otherwise();
            }
        }
    }
    status
}

/// Has the worker thread record the names of new kernels.
unsafe extern "C-unwind" fn hsa_executable_freeze(executable: u64, options: *mut c_void) -> u32 {
    // SAFETY: the application's own call, passed on.
    let status = unsafe { wrappers::hsa_core::hsa_executable_freeze(executable, options) };
    symbols::set_changed();
    status
}

fn copy_facts(
    busy: &mut Busy,
    (dst, dst_agent): (*mut c_void, u64),
    (src, src_agent): (*mut c_void, u64),
    bytes: u64,
    signal: u64,
    direction: u32,
) -> copies::Facts {
    let launch = launch(busy);
    copies::Facts {
        dst: dst.addr() as u64,
        src: src.addr() as u64,
        dst_agent,
        src_agent,
        bytes,
        correlation: launch.correlation,
        stream: launch.stream,
        tid: launch.tid,
        flags: launch.flags,
        direction,
        rect: false,
        signal,
        value: 0,
        asked: now(),
        stale: (0, 0),
        told: None,
    }
}

fn copy_begins(facts: impl FnOnce(&mut Busy) -> copies::Facts) -> Option<copies::Ticket> {
    let mut busy = Busy::enter()?;
    let mut facts = facts(&mut busy);
    if busy.accepts() && busy.wants(kind::MEMORY_COPY) && busy.tells(kind::MEMORY_COPY) {
        drop(busy);
        facts.told = copies::begins(&facts);
        busy = Busy::enter()?;
    }
    if !busy.accepts() || !busy.wants(kind::MEMORY_COPY) {
        busy.is_left_out(kind::MEMORY_COPY);
        // The signal's last copy may still be waiting to be read.
        settle(facts.signal);
        return None;
    }
    let ticket = copies::begin(facts);
    if ticket.is_none() {
        busy.dropped(kind::MEMORY_COPY);
        drop(busy);
        if let Some(told) = facts.told {
            work::end(told, |_| ());
        }
    }
    ticket
}

fn copy_asked(ticket: Option<copies::Ticket>, status: u32) -> u32 {
    if status != 0
        && let (Some(ticket), Some(busy)) = (ticket, Busy::enter())
    {
        let told = copies::cancel(ticket);
        drop(busy);
        if let Some(told) = told {
            work::end(told, |_| ());
        }
    }
    status
}

unsafe extern "C-unwind" fn hsa_amd_memory_async_copy(
    dst: *mut c_void,
    dst_agent: u64,
    src: *mut c_void,
    src_agent: u64,
    size: u64,
    dependencies: u32,
    signals: *mut c_void,
    completion: u64,
) -> u32 {
    let ticket = copy_begins(|busy| {
        copy_facts(
            busy,
            (dst, dst_agent),
            (src, src_agent),
            size,
            completion,
            0,
        )
    });
    // SAFETY: the application's own call, passed on.
    let status = unsafe {
        wrappers::hsa_amd_ext::hsa_amd_memory_async_copy(
            dst,
            dst_agent,
            src,
            src_agent,
            size,
            dependencies,
            signals,
            completion,
        )
    };
    copy_asked(ticket, status)
}

unsafe extern "C-unwind" fn hsa_amd_memory_async_copy_on_engine(
    dst: *mut c_void,
    dst_agent: u64,
    src: *mut c_void,
    src_agent: u64,
    size: u64,
    dependencies: u32,
    signals: *mut c_void,
    completion: u64,
    engine: u32,
    force: u8,
) -> u32 {
    let ticket = copy_begins(|busy| {
        copy_facts(
            busy,
            (dst, dst_agent),
            (src, src_agent),
            size,
            completion,
            0,
        )
    });
    // SAFETY: the application's own call, passed on.
    let status = unsafe {
        wrappers::hsa_amd_ext::hsa_amd_memory_async_copy_on_engine(
            dst,
            dst_agent,
            src,
            src_agent,
            size,
            dependencies,
            signals,
            completion,
            engine,
            force,
        )
    };
    copy_asked(ticket, status)
}

unsafe extern "C-unwind" fn hsa_amd_memory_async_copy_rect(
    dst: *mut c_void,
    dst_offset: *mut c_void,
    src: *mut c_void,
    src_offset: *mut c_void,
    range: *mut c_void,
    agent: u64,
    direction: u32,
    dependencies: u32,
    signals: *mut c_void,
    completion: u64,
) -> u32 {
    let ticket = copy_begins(|busy| {
        // hsa_pitched_ptr_t starts with its base; hsa_dim3_t is three u32 (x in bytes).
        // SAFETY: the application passes these structs to the call.
        let (to, from, [x, y, z]) = unsafe {
            (
                dst.cast::<*mut c_void>().read(),
                src.cast::<*mut c_void>().read(),
                range.cast::<[u32; 3]>().read(),
            )
        };
        let bytes = u64::from(x) * u64::from(y) * u64::from(z);
        // hsa_amd_copy_direction_t has the order of AMD's memory-copy operations, but counts from
        // 0.
        copies::Facts {
            rect: true,
            ..copy_facts(
                busy,
                (to, agent),
                (from, agent),
                bytes,
                completion,
                direction.min(3) + 1,
            )
        }
    });
    // SAFETY: the application's own call, passed on.
    let status = unsafe {
        wrappers::hsa_amd_ext::hsa_amd_memory_async_copy_rect(
            dst,
            dst_offset,
            src,
            src_offset,
            range,
            agent,
            direction,
            dependencies,
            signals,
            completion,
        )
    };
    copy_asked(ticket, status)
}

/// Counts copies that are requested many at a time as lost, since we know of no place where their
/// times are.
unsafe extern "C-unwind" fn hsa_amd_memory_async_batch_copy(
    copies: *mut c_void,
    count: u32,
    dependencies: u32,
    signals: *mut c_void,
) -> u32 {
    // SAFETY: the application's own call, passed on.
    let status = unsafe {
        wrappers::hsa_amd_ext::hsa_amd_memory_async_batch_copy(copies, count, dependencies, signals)
    };
    if status == 0
        && let Some(busy) = Busy::enter()
        && busy.accepts()
        && busy.wants(kind::MEMORY_COPY)
    {
        for _ in 0..count {
            busy.dropped(kind::MEMORY_COPY);
        }
    }
    status
}

/// The hooks for dispatches.
pub static KERNELS: &[Hook] = crate::hooks! {
    Kernels:
        hsa_queue_add_write_index_scacq_screl, hsa_queue_add_write_index_scacquire,
        hsa_queue_add_write_index_relaxed, hsa_queue_add_write_index_screlease,
        hsa_queue_cas_write_index_scacq_screl, hsa_queue_cas_write_index_scacquire,
        hsa_queue_cas_write_index_relaxed, hsa_queue_cas_write_index_screlease,
        hsa_queue_store_write_index_relaxed, hsa_queue_store_write_index_screlease,
        hsa_queue_destroy, hsa_amd_queue_create, hsa_executable_freeze, __hipRegisterFunction;
};

/// The hooks for counters.
pub static COUNTERS: &[Hook] = crate::hooks! {
    Counters:
        hsa_queue_load_read_index_scacquire, hsa_queue_load_read_index_relaxed;
};

/// The hooks for signals that hold times, which dispatches and copies need.
pub static SIGNALS: &[Hook] = crate::hooks! {
    Signals:
        hsa_signal_store_relaxed, hsa_signal_store_screlease,
        hsa_signal_silent_store_relaxed, hsa_signal_silent_store_screlease,
        hsa_signal_exchange_scacq_screl, hsa_signal_exchange_scacquire,
        hsa_signal_exchange_relaxed, hsa_signal_exchange_screlease,
        hsa_signal_add_scacq_screl, hsa_signal_add_scacquire,
        hsa_signal_add_relaxed, hsa_signal_add_screlease,
        hsa_signal_destroy;
};

/// The hooks for copies.
pub static COPIES: &[Hook] = crate::hooks! {
    Copies:
        hsa_amd_memory_async_copy, hsa_amd_memory_async_copy_on_engine, hsa_amd_memory_async_copy_rect,
        hsa_amd_memory_async_batch_copy;
};

/// The hooks for allocations.
pub static ALLOCATIONS: &[Hook] = crate::hooks! {
    Allocations:
        hsa_memory_allocate, hsa_memory_free, hsa_amd_memory_pool_allocate, hsa_amd_memory_pool_free,
        hsa_amd_vmem_handle_create, hsa_amd_vmem_handle_release;
};
