//! The hot path: what a wrapper does before and after the call that it wraps.
//!
//! **Off means off.** The first thing that a wrapper reads is the *generation*, a word in a page
//! that a fork wipes; 0 means pass through. So a forked child is off from its first instruction. A
//! thread that stayed in a call across a detach (or across a detach and a new attach) finds another
//! generation at the end of the call and writes nothing.
//!
//! **Ending a session while threads write.** A thread sets its slot's `busy` and then reads the
//! generation. Whoever stops a session changes the generation first and then waits for every `busy`
//! to be 0. The processor may reorder the thread's store and load; `membarrier` on the stopping side
//! makes up for that, so that the hot path needs no fence.
//!
//! Cost per call: two clock reads, one atomic add (the correlation id), one record store. There is
//! no lock, no allocation and no system call, except in a thread's very first call, which claims its
//! slot.

pub(crate) mod control;

use crate::clock::now;
use crate::markers;
use crate::state::STATE;
use crate::threads::{self, MAX_OPEN, OpenCall, Owned, ThreadSlot};
use crate::wrappers::hip_runtime;
use control::Control;
use midair_domain::{KindSet, sets};
use midair_record::event::{Api, Header, Marker, Plain, flag, kind};
use midair_record::spool::{Area, ChunkWriter};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::compiler_fence;
use std::time::{Duration, Instant};

#[inline]
fn control() -> Option<&'static Control> {
    // SAFETY: null, or a page made by `prepare` that is never unmapped and is valid when zeroed.
    unsafe { STATE.control.load(Relaxed).as_ref() }
}

/// Makes the control page. Called on the worker thread, before any wrapper is installed.
pub fn prepare() -> bool {
    if control().is_some() {
        return threads::prepare();
    }
    // SAFETY: a fresh private page at an address of the kernel's choice.
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
    // SAFETY: our own fresh page. Without MADV_WIPEONFORK (Linux 4.14) a child would continue to
    // record into its parent's spool.
    if unsafe { libc::madvise(page, 4096, libc::MADV_WIPEONFORK) } != 0 {
        // SAFETY: as above, not published.
        unsafe { libc::munmap(page, 4096) };
        return false;
    }
    // SAFETY: a registration without arguments; failure only makes `quiesce` wait by time.
    unsafe {
        libc::syscall(
            libc::SYS_membarrier,
            libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED,
            0,
            0,
        )
    };
    STATE.control.store(page.cast(), Release);
    is_ours();
    threads::prepare()
}

/// Whether this process was forked from one that has our state, and has not yet replaced it.
pub fn is_forked() -> bool {
    control().is_some_and(|control| control.ours.load(Acquire) == 0)
}

/// Our state is this process's own.
pub fn is_ours() {
    if let Some(control) = control() {
        control.ours.store(1, Release);
    }
}

/// Begins a session that records nothing yet: hooks may be installed, one after the other; see
/// [`open`]. Called on the worker thread while no thread is inside (see [`quiesce`]). Correlation
/// ids count from `first_correlation`. Returns the generation.
///
/// # Safety
/// `area` must stay mapped until [`quiesce`] has returned true after [`stop`].
pub unsafe fn start(area: Area, first_correlation: u64) -> u64 {
    let Some(control) = control() else { return 0 };
    let generation = STATE.last_generation.fetch_add(1, Relaxed) + 1;
    // SAFETY: generation is 0 and everyone was seen outside, so no other thread reads `area`.
    unsafe { *control.area.get() = Some(area) };
    control.next_correlation.store(first_correlation, Relaxed);
    control.recorded.store(KindSet::EMPTY, Relaxed);
    control.tracked.store(KindSet::EMPTY, Relaxed);
    control.called.store(KindSet::EMPTY, Relaxed);
    control.device.store(KindSet::EMPTY, Relaxed);
    apply_pause();
    control.accepting.store(0, Relaxed);
    control.generation.store(generation, Release);
    generation
}

/// Starts recording: from now on calls, dispatches and copies are recorded, all from the same
/// moment. If recording began as each hook is installed, a dispatch could be seen when its packet is
/// reserved and missed when its doorbell is rung.
pub fn open(tracked: KindSet, recorded: KindSet) {
    set_kinds(tracked, recorded);
    if let Some(control) = control() {
        control.accepting.store(1, SeqCst);
    }
}

/// Stops recording: no call, dispatch or copy that begins from now on is recorded. Those that began
/// before are still completed. False when a thread was still inside after `limit`.
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

/// Kinds of which nothing that begins in a pause is looked at. Not the calls that pause and resume,
/// which are always recorded; not those of ranges, since an end has to find its beginning; not
/// dispatches, since the packets of a queue are counted.
const CUT: KindSet = sets::AMD.without(KindSet::of(&[
    kind::MARKER_CONTROL_API,
    kind::MARKER_CORE_API,
    kind::KERNEL_DISPATCH,
]));

/// The recording was paused, or goes on: every thread's next call finds it so. Several threads may
/// call it.
pub(crate) fn apply_pause() {
    let Some(control) = control() else { return };
    loop {
        let wanted = STATE.pause.is_recording_wanted();
        let flags = if wanted { 0 } else { flag::PAUSED };
        let cut = if wanted || STATE.pause.is_shared() {
            KindSet::EMPTY
        } else {
            CUT
        };
        control.cut.store(cut, SeqCst);
        control.pause_flag.store(u64::from(flags), SeqCst);
        if STATE.pause.is_recording_wanted() == wanted {
            return;
        }
    }
}

/// The next correlation id that would be given.
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

/// Switches the session off: no call that begins from now on is recorded. Follow with [`quiesce`].
pub fn stop() {
    if let Some(control) = control() {
        control.generation.store(0, SeqCst);
    }
}

/// The running session's generation, 0 when off (also in a forked child).
#[inline]
pub fn generation() -> u64 {
    control().map_or(0, |c| c.generation.load(Acquire))
}

#[inline]
fn fresh(control: &Control) -> u64 {
    control.next_correlation.fetch_add(1, Relaxed)
}

/// The running session's spool, for code that holds a [`Busy`].
fn area(control: &Control) -> Option<Area> {
    // SAFETY: read only by threads that are busy inside a live generation, or by the worker thread;
    // written only when there is none.
    unsafe { *control.area.get() }
}

/// Waits until no thread is inside. True when every thread was seen outside before the deadline;
/// then nothing holds a reference to the spool any more, if it was called after [`stop`].
pub fn quiesce(limit: Duration) -> bool {
    everyone_outside(limit)
}

/// Waits until each thread was seen outside once. Then everything that was decided by an earlier
/// read of the control page is done.
fn everyone_outside(limit: Duration) -> bool {
    // After this, a thread either has `busy` visible, or will read the new generation.
    // SAFETY: a system call without pointers.
    let barrier = unsafe {
        libc::syscall(
            libc::SYS_membarrier,
            libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED,
            0,
            0,
        )
    };
    let end = Instant::now() + limit;
    if barrier != 0 {
        // No membarrier (seccomp, old kernel): store buffers drain within microseconds, and 20 ms is
        // far overflow that.
        std::thread::sleep(Duration::from_millis(20));
    }
    // It is enough to see each thread outside once: one that enters later reads the control page as
    // it is now.
    threads::all().iter().all(|slot| {
        loop {
            if slot.busy.load(Acquire) == 0 {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            std::thread::yield_now();
        }
    })
}

/// A thread that is inside: its slot is marked busy and the session is alive. Dropping this ends it.
#[derive(Debug)]
pub struct Busy {
    slot: &'static ThreadSlot,
    control: &'static Control,
    generation: u64,
}

impl Busy {
    /// Marks the calling thread busy. `None` when nothing is on.
    #[inline]
    pub fn enter() -> Option<Busy> {
        let control = control()?;
        if control.generation.load(Relaxed) == 0 {
            return None;
        }
        Self::enter_with(control, threads::current()?)
    }

    #[inline]
    fn enter_with(control: &'static Control, slot: &'static ThreadSlot) -> Option<Busy> {
        if slot.busy.load(Relaxed) != 0 {
            // A signal handler of the application interrupted us and calls the API itself: pass it through.
            return None;
        }
        slot.busy.store(1, Relaxed);
        compiler_fence(SeqCst); // the processor's order is made up for by membarrier in `quiesce`
        let generation = control.generation.load(Acquire);
        let busy = Busy {
            slot,
            control,
            generation,
        };
        (generation != 0).then_some(busy)
    }

    #[inline]
    fn owned(&mut self) -> &mut Owned {
        // SAFETY: this thread owns the slot and is busy.
        let owned = unsafe { self.slot.owned() };
        if owned.generation != self.generation {
            // The slot's data is of a session that ended: its chunk was sealed then and may be
            // unmapped.
            owned.generation = self.generation;
            owned.depth = 0;
            owned.writer.forget();
        }
        owned
    }

    /// Whether new work is recorded; see [`close`].
    #[inline]
    pub fn accepts(&self) -> bool {
        self.control.accepting.load(Relaxed) != 0
    }

    /// Thread id of the calling thread.
    #[inline]
    pub fn tid(&self) -> u32 {
        self.slot.tid.load(Relaxed)
    }

    /// Correlation id and stream of the innermost traced call of this thread, if any.
    #[inline]
    pub fn innermost(&mut self) -> Option<(u64, u64)> {
        let control = self.control;
        let owned = self.owned();
        let open = owned.open.get(..owned.depth)?;
        let stream = open
            .iter()
            .rev()
            .map(|call| call.stream)
            .find(|&stream| stream != 0)
            .unwrap_or(0);
        // The launching call as the user knows it: the outermost HIP call, or else the innermost
        // call. One that is recorded goes before one that is only watched: the work's id is that of
        // a call that the trace has.
        let hip = |call: &OpenCall| sets::HIP_CALLS.contains(call.kind);
        let has_id = |call: &OpenCall| call.correlation != 0;
        let at = open
            .iter()
            .position(|call| hip(call) && has_id(call))
            .or_else(|| open.iter().rposition(has_id))
            .or_else(|| open.iter().position(hip))
            .or(open.len().checked_sub(1))?;
        let correlation = owned.identify(at, || fresh(control))?;
        Some((correlation, stream))
    }

    /// Whether this thread is in a call of HIP's that launches kernels which the program names; none
    /// where it is in no call of HIP's that is known.
    #[inline]
    pub fn is_launching(&mut self) -> Option<bool> {
        let owned = self.owned();
        let mut open = owned.open.get(..owned.depth)?.iter();
        let call = open.find(|call| sets::HIP_CALLS.contains(call.kind))?;
        let word = hip_runtime::LAUNCHES.get(call.operation as usize / 64);
        Some(word.is_some_and(|word| word >> (call.operation % 64) & 1 != 0))
    }

    /// Correlation id and ancestor of the call of API `kind` from which this thread has just
    /// returned, if that call was traced and began at `since` or later. For a hook that has called
    /// the plain wrapper. A call's entry stays as it was until this thread's next call at that
    /// depth.
    pub fn returned(&mut self, kind: u8, since: u64) -> Option<(u64, u64)> {
        let control = self.control;
        let owned = self.owned();
        let call = owned.open.get(owned.depth)?;
        if call.kind != kind || call.start < since {
            return None;
        }
        let correlation = owned.identify(owned.depth, || fresh(control))?;
        Some((correlation, owned.around(owned.depth)))
    }

    /// Correlation id and ancestor of the innermost traced call that this thread is in.
    pub fn enclosing(&mut self) -> Option<(u64, u64)> {
        let control = self.control;
        let owned = self.owned();
        let open = owned.open.get(..owned.depth)?;
        let at = open
            .iter()
            .rposition(|call| call.correlation != 0)
            .or(open.len().checked_sub(1))?;
        let correlation = owned.identify(at, || fresh(control))?;
        Some((correlation, owned.around(at)))
    }

    /// Number of the session.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether the session traces this kind of the device's work. A hook may be in a slot for
    /// another reason: signals are hooked for both kernels and copies, and a hook that somebody else
    /// has wrapped stays from an earlier session.
    #[inline]
    pub fn wants(&self, kind: u8) -> bool {
        let (device, cut) = (&self.control.device, &self.control.cut);
        device
            .load(Relaxed)
            .without(cut.load(Relaxed))
            .contains(kind)
    }

    /// Whether tools are told of this kind of work, or asked about it; see [`crate::callbacks`].
    #[inline]
    pub fn tells(&self, kind: u8) -> bool {
        self.control.called.load(Relaxed).contains(kind)
    }

    /// The bits of [`flag`] for what this thread begins now.
    #[inline]
    pub fn flags_now(&self) -> u8 {
        self.control.pause_flag.load(Relaxed) as u8
    }

    /// Whether this kind of work is wanted but for a pause. Then it counts as left out.
    pub fn is_left_out(&self, kind: u8) -> bool {
        let is_left_out = self.accepts()
            && self.control.cut.load(Relaxed).contains(kind)
            && self.control.device.load(Relaxed).contains(kind);
        if is_left_out {
            STATE.pause.left_out(kind);
        }
        is_left_out
    }

    /// A fresh correlation id.
    #[inline]
    pub fn fresh_correlation(&self) -> u64 {
        fresh(self.control)
    }

    /// Counts a record that was dropped for lack of space.
    pub fn dropped(&self, kind: u8) {
        if let Some(area) = area(self.control) {
            area.drop_record(kind);
        }
    }

    /// Number of the calling thread's slot.
    #[inline]
    pub fn thread(&self) -> usize {
        threads::index_of(self.slot)
    }

    /// Whether calls of this kind that begin now are recorded.
    #[inline]
    pub fn records(&self, kind: u8) -> bool {
        self.control.recorded.load(Relaxed).contains(kind)
    }

    /// Stores a record made of a fixed part and a tail; see [`midair_record::spool::ChunkWriter::store`].
    /// Does nothing with one that began in a pause, unless others want it.
    #[inline]
    pub fn store(&mut self, kind: u8, parts: [&[u8]; 2]) -> bool {
        if !STATE.pause.is_written(flags_of(parts[0])) {
            return true;
        }
        let tid = self.tid();
        let Some(area) = area(self.control) else {
            return false;
        };
        // SAFETY: the generation was alive after `busy` was set, so the spool stays mapped until
        // this thread leaves. `owned` made sure that the writer's chunk is of this session.
        unsafe { self.owned().writer.store(area, tid, kind, parts) }
    }
}

/// The flags of a record whose fixed part this is.
#[inline]
fn flags_of(fixed: &[u8]) -> u8 {
    fixed
        .get(std::mem::offset_of!(Header, flags))
        .copied()
        .unwrap_or(0)
}

impl Drop for Busy {
    #[inline]
    fn drop(&mut self) {
        self.slot.busy.store(0, Release);
    }
}

/// A traced call between entry and exit. It is plain data without a destructor, since an exception
/// or a cancelled thread may unwind through the wrapper.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    generation: u64,
    slot: Option<&'static ThreadSlot>,
    depth: usize,
    /// What was recorded when it began.
    recorded: KindSet,
    /// It is reported to a tool.
    reported: bool,
    /// When it returned; 0: now.
    end: u64,
}

impl Call {
    const DEAD: Call = Call {
        generation: 0,
        slot: None,
        depth: 0,
        recorded: KindSet::EMPTY,
        reported: false,
        end: 0,
    };
    /// Whether it is to be reported to a tool.
    #[inline]
    pub fn is_reported(&self) -> bool {
        self.reported
    }
    /// Number of its session.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }
    /// Number of its thread's slot, and its depth there.
    pub(crate) fn slot_and_depth(&self) -> Option<(usize, usize)> {
        self.slot.map(|slot| (threads::index_of(slot), self.depth))
    }
    /// The same call with the time of its return.
    pub(crate) fn ended_at(self, end: u64) -> Call {
        Call { end, ..self }
    }
    /// Whether anything is traced.
    #[inline]
    pub fn live(&self) -> bool {
        self.generation != 0
    }
}

/// Before the wrapped call: `kind` and `operation` of the slot, and the raw stream handle among its
/// arguments (0 = none).
#[inline]
pub fn enter(kind: u8, operation: u32, stream: u64) -> Call {
    let Some(control) = control() else {
        return Call::DEAD;
    };
    let tracked = control
        .tracked
        .load(Relaxed)
        .without(control.cut.load(Relaxed));
    if control.generation.load(Relaxed) == 0 || !tracked.contains(kind) {
        return Call::DEAD;
    }
    let Some(slot) = threads::current() else {
        return Call::DEAD;
    };
    if slot.in_tool.load(Relaxed) != 0 {
        return Call::DEAD;
    }
    let Some(mut busy) = Busy::enter_with(control, slot) else {
        return Call::DEAD;
    };
    let reported = control.called.load(Relaxed).contains(kind);
    let recorded = control.recorded.load(Relaxed);
    let generation = busy.generation;
    let flags = match kind {
        kind::MARKER_CONTROL_API => 0,
        _ => busy.flags_now(),
    };
    let owned = busy.owned();
    let marker = 0_u8;
    let frame = (&raw const marker).addr();
    // Calls whose frames are below ours were abandoned by longjmp, an exception or a cancelled
    // thread.
    while owned.depth > 0
        && owned
            .open
            .get(owned.depth - 1)
            .is_some_and(|call| call.frame <= frame)
    {
        owned.depth -= 1;
    }
    let depth = owned.depth;
    let Some(entry) = owned.open.get_mut(depth) else {
        if let (true, Some(area)) = (recorded.contains(kind), area(control)) {
            area.drop_record(kind);
        }
        return Call::DEAD;
    };
    // One that is not recorded takes none before somebody asks, see `Owned::identify`.
    let correlation = if recorded.contains(kind) {
        fresh(control)
    } else {
        0
    };
    *entry = OpenCall {
        start: now(),
        correlation,
        stream,
        frame,
        operation,
        kind,
        flags,
    };
    owned.depth = depth + 1;
    drop(busy);
    Call {
        generation,
        slot: Some(slot),
        depth,
        recorded,
        reported,
        end: 0,
    }
}

/// A call that has not returned, whose thread is marked busy.
#[derive(Debug)]
pub(crate) struct RunningCall {
    /// The thread.
    pub busy: Busy,
    /// The call.
    pub open: OpenCall,
    /// Correlation id of the traced call around it, or 0.
    pub ancestor: u64,
    depth: usize,
}

impl RunningCall {
    /// Its correlation id, for somebody who is told of it.
    pub fn identify(&mut self) -> u64 {
        let control = self.busy.control;
        let id = self
            .busy
            .owned()
            .identify(self.depth, || fresh(control))
            .unwrap_or(0);
        self.open.correlation = id;
        id
    }
}

/// An open call of the calling thread. `None` when its session is over.
pub(crate) fn running_call(call: Call) -> Option<RunningCall> {
    let control = control()?;
    let mut busy = Busy::enter_with(control, call.slot?)?;
    if busy.generation != call.generation {
        return None;
    }
    let owned = busy.owned();
    let open = owned.open.get(call.depth).copied()?;
    let ancestor = owned.around(call.depth);
    Some(RunningCall {
        busy,
        open,
        ancestor,
        depth: call.depth,
    })
}

/// Sets the call's begin to now: the time before was spent in a tool's function.
pub(crate) fn restart(call: Call) {
    if let Some(mut running) = running_call(call)
        && let Some(open) = running.busy.owned().open.get_mut(call.depth)
    {
        open.start = now();
    }
}

/// A call that has just returned, whose thread is marked busy.
#[derive(Debug)]
pub struct Ended {
    /// The thread.
    pub busy: Busy,
    /// The call.
    pub open: OpenCall,
    /// Correlation id of the traced call around it, or 0.
    pub ancestor: u64,
    /// When it returned.
    pub end: u64,
    /// What was recorded when it began.
    pub recorded: KindSet,
}

/// Removes a call from its thread's open ones. `None` when its session is over.
#[inline]
pub fn leave(call: Call) -> Option<Ended> {
    let (slot, control) = (call.slot?, control()?);
    let end = if call.end == 0 { now() } else { call.end };
    let mut busy = Busy::enter_with(control, slot)?;
    if busy.generation != call.generation {
        return None;
    }
    let owned = busy.owned();
    let open = owned.open.get(call.depth).copied()?;
    owned.depth = call.depth;
    let ancestor = owned.around(call.depth);
    Some(Ended {
        busy,
        open,
        ancestor,
        end,
        recorded: call.recorded,
    })
}

/// After the wrapped call. `arguments` is only evaluated when the call is recorded.
#[inline]
pub fn exit<const N: usize>(call: Call, arguments: impl FnOnce() -> [u64; N], retval: u64) {
    let Some(Ended {
        mut busy,
        open,
        ancestor,
        end,
        recorded,
    }) = leave(call)
    else {
        return;
    };
    if !recorded.contains(open.kind) {
        return;
    }
    let arguments = arguments();
    // SAFETY: an array of u64 is N * 8 initialised bytes.
    let tail = unsafe { std::slice::from_raw_parts(arguments.as_ptr().cast::<u8>(), N * 8) };
    let record = api_record(&open, ancestor, end, retval, busy.tid(), N as u32);
    busy.store(open.kind, [record.bytes(), tail]);
}

fn api_record(open: &OpenCall, ancestor: u64, end: u64, retval: u64, tid: u32, nargs: u32) -> Api {
    Api {
        header: Header {
            size: (size_of::<Api>() as u32 + nargs * 8) as u16,
            kind: open.kind,
            flags: open.flags,
            operation: open.operation,
        },
        start: open.start,
        end,
        correlation: open.correlation,
        ancestor,
        stream: open.stream,
        retval,
        tid,
        nargs,
    }
}

/// After [`stop`] and a successful [`quiesce`]: writes calls that are still open, marked as such,
/// and seals every thread's chunk. Only the worker thread calls it.
pub fn close_session(generation: u64, recorded: KindSet) {
    let Some(area) = control().and_then(area) else {
        return;
    };
    let end = now();
    for slot in threads::all() {
        // SAFETY: the session is stopped and every thread was seen outside. A thread that enters now
        // reads generation 0 and does not use its slot's data.
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
            // One without an id began when its kind was not recorded.
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
                // SAFETY: the spool is still mapped (the caller unmaps it after this) and the writer
                // is of this session.
                unsafe { owned.writer.store(area, tid, open.kind, [record, &[]]) };
            }
            if open.correlation != 0 {
                ancestor = open.correlation;
            }
        }
        owned.depth = 0;
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
        // SAFETY: as above; a writer of this function's.
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

/// A thread ends. Its chunk stays open in its slot, and the next thread that claims the slot
/// continues in it (records carry their thread's id). If chunks were sealed here, ten thousand short
/// threads would use up the spool with chunks of a few records each.
pub(crate) fn thread_ended(slot: &'static ThreadSlot) {
    let Some(control) = control() else { return };
    if let Some(mut busy) = Busy::enter_with(control, slot) {
        busy.owned().depth = 0;
        markers::thread_ends(&mut busy);
    }
}
