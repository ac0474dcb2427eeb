//! Starts and ends sessions: what the worker thread does with the control page.

use super::{api_record, apply_pause, area, control, events, everyone_outside, graphs};
use crate::clock::now;
use crate::markers;
use crate::openmp;
use crate::openmp::regions::{MAX_REGIONS, Region};
use crate::state::STATE;
use crate::threads::{self, MAX_OPEN, OpenCall};
use midair_domain::{KindSet, sets};
use midair_record::event::{Header, Marker, Plain, flag, kind};
use midair_record::spool::{Area, ChunkWriter};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::time::Duration;

/// Creates the control page. Called on the worker thread, before any wrapper is installed.
pub fn prepare() -> bool {
    if control().is_some() {
        return threads::prepare();
    }
    // SAFETY: this creates a fresh private page at an address that the kernel chooses.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: the page is ours and fresh. Without MADV_WIPEONFORK (Linux 4.14) a child would
    // continue to record into its parent's spool.
    if unsafe { libc::madvise(page, 4096, libc::MADV_WIPEONFORK) } != 0 {
        // SAFETY: as above; the page was not published.
        unsafe { libc::munmap(page, 4096) };
        return false;
    }
    STATE.control.store(page.cast(), Release);
    is_ours();
    threads::prepare()
}

/// Whether this process was forked from one that has our state, and has not yet replaced it.
pub fn is_forked() -> bool {
    control().is_some_and(|control| control.ours.load(Acquire) == 0)
}

/// Notes that our state is this process's own.
pub fn is_ours() {
    if let Some(control) = control() {
        control.ours.store(1, Release);
    }
}

/// Starts a session that records nothing yet, so that hooks can be installed one after the other;
/// see [`open`]. Called on the worker thread while no thread is inside (see [`super::quiesce`]).
/// Correlation ids count from `first_correlation`. Returns the generation.
///
/// # Safety
/// `area` must stay mapped until [`super::quiesce`] has returned true after [`stop`].
pub unsafe fn start(area: Area, first_correlation: u64) -> u64 {
    let Some(control) = control() else { return 0 };
    let generation = STATE.last_generation.fetch_add(1, Relaxed) + 1;
    // SAFETY: the generation is 0 and every thread was seen outside, so no other thread reads
    // `area`.
    unsafe { *control.area.get() = Some(area) };
    control.next_correlation.store(first_correlation, Relaxed);
    control.recorded.store(KindSet::EMPTY, Relaxed);
    control.tracked.store(KindSet::EMPTY, Relaxed);
    control.called.store(KindSet::EMPTY, Relaxed);
    control.device.store(KindSet::EMPTY, Relaxed);
    control.captures.store(0, Relaxed);
    apply_pause();
    control.accepting.store(0, Relaxed);
    control.generation.store(generation, Release);
    generation
}

/// Starts recording: from now on calls, dispatches and copies are recorded, all from the same
/// moment. If recording started when each hook is installed, a dispatch could be seen when its packet
/// is reserved, and missed when its doorbell rings.
pub fn open(tracked: KindSet, recorded: KindSet) {
    set_kinds(tracked, recorded);
    if let Some(control) = control() {
        control.accepting.store(1, SeqCst);
    }
}

/// Stops recording: no call, dispatch or copy that starts from now on is recorded. Those that started
/// before are still completed. Returns false when a thread was still inside after `limit`.
pub fn close(limit: Duration) -> bool {
    if let Some(control) = control() {
        control.called.store(KindSet::EMPTY, SeqCst);
        control.tracked.store(KindSet::EMPTY, SeqCst);
        control.recorded.store(KindSet::EMPTY, SeqCst);
        control.accepting.store(0, SeqCst);
    }
    everyone_outside(limit)
}

/// Sets what is recorded in the running session.
pub fn set_kinds(tracked: KindSet, recorded: KindSet) {
    if let Some(control) = control() {
        control.tracked.store(tracked | recorded, Relaxed);
        control.recorded.store(recorded, Relaxed);
        control.device.store(tracked & sets::NEEDS_RUNTIME, Relaxed);
    }
}

/// Returns the next correlation id that would be given.
pub fn next_correlation() -> u64 {
    control().map_or(0, |c| c.next_correlation.load(Relaxed))
}

/// Sets the kinds whose calls are reported to tools; they must be among the tracked ones. See
/// [`crate::callbacks`].
pub fn set_called(called: KindSet) {
    if let Some(control) = control() {
        control.called.store(called, Relaxed);
    }
}

/// Switches the session off: no call that starts from now on is recorded. Call [`super::quiesce`]
/// afterwards.
pub fn stop() {
    if let Some(control) = control() {
        control.generation.store(0, SeqCst);
    }
}

/// Writes the calls that are still open, marked as such, and seals every thread's chunk. Only the
/// worker thread calls this, after [`stop`] and a successful [`super::quiesce`].
pub fn close_session(generation: u64, recorded: KindSet) {
    let Some(area) = control().and_then(area) else {
        return;
    };
    let end = now();
    for slot in threads::all() {
        // SAFETY: the session is stopped, and every thread was seen outside. A thread that enters
        // now reads generation 0 and does not use its slot's data.
        let owned = unsafe { slot.owned() };
        if owned.generation != generation {
            continue;
        }
        let tid = slot.tid.load(Relaxed);
        let mut ancestor = 0;
        for open in owned
            .open
            .get(..owned.depth.min(MAX_OPEN))
            .unwrap_or_default()
        {
            // A call without an id started when its kind was not recorded.
            if recorded.contains(open.kind)
                && open.correlation != 0
                && STATE.pause.is_written(open.flags)
                && tid != 0
            {
                let open = OpenCall {
                    flags: open.flags | flag::OPEN_AT_DETACH,
                    ..*open
                };
                let api = api_record(&open, ancestor, end, 0, tid, 0);
                let marker = Marker {
                    header: Header {
                        size: size_of::<Marker>() as u16,
                        ..api.header
                    },
                    start: api.start,
                    end,
                    correlation: api.correlation,
                    ancestor,
                    retval: 0,
                    tid,
                    len: 0,
                };
                let record = if markers::is_marker(open.kind) {
                    marker.bytes()
                } else {
                    api.bytes()
                };
                // SAFETY: the spool is still mapped (the caller unmaps it after this), and the
                // writer belongs to this session.
                unsafe { owned.writer.store(area, tid, open.kind, [record, &[]]) };
            }
            // What it launched after recording had ended is not known, so it is marked as cut.
            let of_graph = graphs::operation(recorded, open.kind, open.operation);
            if let Some(operation) = of_graph
                && STATE.pause.is_written(open.flags)
                && tid != 0
            {
                let flags = open.flags | flag::OPEN_AT_DETACH | flag::CUT;
                let times = [open.start, end];
                let record = graphs::record(open, operation, ancestor, times, (0, 0), tid, flags);
                // SAFETY: as above.
                unsafe {
                    owned
                        .writer
                        .store(area, tid, kind::HIP_GRAPH, [record.bytes(), &[]])
                };
            }
            let of_event = events::operation(recorded, open.kind, open.operation);
            if let Some(operation) = of_event
                && STATE.pause.is_written(open.flags)
                && tid != 0
            {
                let flags = open.flags | flag::OPEN_AT_DETACH | flag::CUT;
                let times = [open.start, end];
                let record = events::record(open, operation, ancestor, times, (0, 0), tid, flags);
                // SAFETY: as above.
                unsafe {
                    owned
                        .writer
                        .store(area, tid, kind::HIP_EVENT, [record.bytes(), &[]])
                };
            }
            if open.correlation != 0 {
                ancestor = open.correlation;
            }
        }
        owned.depth = 0;
        let regions = owned.regions.depth.min(MAX_REGIONS);
        for open in owned.regions.open.get(..regions).unwrap_or_default() {
            if open.recorded && STATE.pause.is_written(open.flags) && tid != 0 {
                let open = Region {
                    flags: open.flags | flag::OPEN_AT_DETACH,
                    ..*open
                };
                let record = openmp::record(&open, end, tid, 0);
                // SAFETY: as above.
                unsafe {
                    owned
                        .writer
                        .store(area, tid, kind::OMPT, [record.bytes(), &[]])
                };
            }
        }
        (owned.regions.depth, owned.regions.over) = (0, 0);
        markers::open_thread_ranges(threads::index_of(slot), generation, |range, message| {
            if !STATE.pause.is_written(range.flags) {
                return;
            }
            let record = range.record(end, flag::OPEN_AT_DETACH, message);
            // SAFETY: as above.
            unsafe {
                owned.writer.store(
                    area,
                    range.tid,
                    kind::MARKER_CORE_RANGE_API,
                    [record.bytes(), message],
                )
            };
        });
        // SAFETY: as above.
        unsafe { owned.writer.seal() };
    }
    let mut writer = ChunkWriter::new();
    markers::open_process_ranges(generation, |range, message| {
        if !STATE.pause.is_written(range.flags) {
            return;
        }
        let record = range.record(end, flag::OPEN_AT_DETACH, message);
        // SAFETY: as above; the writer is local to this function.
        unsafe {
            writer.store(
                area,
                range.tid,
                kind::MARKER_CORE_RANGE_API,
                [record.bytes(), message],
            )
        };
    });
    // SAFETY: as above.
    unsafe { writer.seal() };
}
