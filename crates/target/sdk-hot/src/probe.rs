//! The hot path: what a wrapper does before and after the call that it wraps.
//!
//! **Off means off.** A wrapper first reads the *generation*, a word in a page that a fork wipes; 0
//! means that it passes the call through. So a forked child is off from its first instruction. A
//! thread that stayed in a call across a detach (or across a detach and a new attach) finds another
//! generation at the end of the call, and writes nothing.
//!
//! **Ending a session while threads write.** A thread sets its slot's `busy` and then reads the
//! generation. The thread that stops a session changes the generation first, and then waits for
//! every `busy` to be 0. The processor may reorder a thread's store and load. `membarrier` on the
//! stopping side compensates for this, so that the hot path needs no fence.
//!
//! Cost per call: two clock reads, one atomic add (the correlation id), one record store. There is
//! no lock, no allocation and no system call, except in a thread's very first call, which claims
//! its slot.

pub mod barrier;
pub(crate) mod control;
mod events;
pub(crate) mod graph_steps;
mod graphs;
pub mod session;
mod stacks;

use crate::clock::now;
use crate::markers;
use crate::openmp::regions::Regions;
use crate::state::STATE;
use crate::threads::{self, OpenCall, Owned, ThreadSlot};
use crate::wrappers::hip_runtime;
use control::Control;
use graph_steps::Step;
use midair_domain::{KindSet, sets};
use midair_record::event::{Api, Header, Plain, flag, kind};
use midair_record::spool::Area;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::compiler_fence;
use std::time::{Duration, Instant};

#[inline]
fn control() -> Option<&'static Control> {
    // SAFETY: it is null, or a page made by `prepare`, which is never unmapped and is valid when
    // zeroed.
    unsafe { STATE.control.load(Relaxed).as_ref() }
}

/// The kinds that are not looked at when they start during a pause. It lacks the calls that pause
/// and resume, which are always recorded; the calls for ranges, since an end has to find its
/// start; and dispatches, since the packets of a queue are counted.
const CUT: KindSet = sets::AMD.without(KindSet::of(&[
    kind::MARKER_CONTROL_API,
    kind::MARKER_CORE_API,
    kind::KERNEL_DISPATCH,
]));

/// Applies a pause or a resume, so that every thread's next call sees it. Several threads may call
/// this.
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

/// Returns the running session's generation; 0 when off (also in a forked child).
#[inline]
pub fn generation() -> u64 {
    control().map_or(0, |c| c.generation.load(Acquire))
}

#[inline]
fn fresh(control: &Control) -> u64 {
    control.next_correlation.fetch_add(1, Relaxed)
}

/// Returns the running session's spool, for code that holds a [`Busy`].
fn area(control: &Control) -> Option<Area> {
    // SAFETY: only threads that are busy inside a live generation read it, or the worker thread. It
    // is written only when there are no such threads.
    unsafe { *control.area.get() }
}

/// Waits until no thread is inside. Returns true when every thread was seen outside before the
/// deadline. If this was called after [`session::stop`], nothing refers to the spool any more then.
pub fn quiesce(limit: Duration) -> bool {
    everyone_outside(limit)
}

/// Waits until each thread was seen outside once. Then everything that was decided from an earlier
/// read of the control page is done.
fn everyone_outside(limit: Duration) -> bool {
    let barred = barrier::all_threads();
    let end = Instant::now() + limit;
    if !barred {
        // There is no membarrier (seccomp, old kernel). Store buffers drain within microseconds,
        // and 20 ms is far more than that.
        std::thread::sleep(Duration::from_millis(20));
    }
    // It is enough to see each thread outside once: a thread that enters later reads the control
    // page as it is now.
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

/// A thread that is inside: its slot is marked busy, and the session is alive. Dropping this
/// leaves.
#[derive(Debug)]
pub struct Busy {
    slot: &'static ThreadSlot,
    control: &'static Control,
    generation: u64,
}

impl Busy {
    /// Marks the calling thread as busy. Returns `None` when no session is on.
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
            // A signal handler of the application has interrupted us and calls the API itself: pass
            // its call through.
            return None;
        }
        slot.busy.store(1, Relaxed);
        compiler_fence(SeqCst); // `quiesce` compensates for the processor's order by membarrier
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
            // The slot's data belongs to a session that has ended. Its chunk was sealed then, and
            // may be unmapped.
            owned.generation = self.generation;
            owned.depth = 0;
            (owned.regions.depth, owned.regions.over) = (0, 0);
            owned.writer.forget();
        }
        owned
    }

    /// Returns the open regions of OpenMP of the calling thread.
    pub(crate) fn regions(&mut self) -> &mut Regions {
        &mut self.owned().regions
    }

    /// Returns the correlation id of the calling thread's innermost region of OpenMP or, where it is
    /// in none, of its innermost call; 0 for none.
    pub(crate) fn around_region(&mut self) -> u64 {
        let owned = self.owned();
        match owned.regions.innermost() {
            0 => owned.around(owned.depth),
            region => region,
        }
    }

    /// Whether new work is recorded; see [`session::close`].
    #[inline]
    pub fn accepts(&self) -> bool {
        self.control.accepting.load(Relaxed) != 0
    }

    /// Returns the thread id of the calling thread.
    #[inline]
    pub fn tid(&self) -> u32 {
        self.slot.tid.load(Relaxed)
    }

    /// Returns correlation id and stream of this thread's innermost traced call, if any.
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
        // call. Recorded calls are preferred to calls that are only watched, so that the work has
        // the id of a call that is in the trace.
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

    /// Whether this thread is in a HIP call that launches kernels named by the program; None where
    /// it is in no known HIP call.
    #[inline]
    pub fn is_launching(&mut self) -> Option<bool> {
        let owned = self.owned();
        let mut open = owned.open.get(..owned.depth)?.iter();
        let call = open.find(|call| sets::HIP_CALLS.contains(call.kind))?;
        let word = hip_runtime::LAUNCHES.get(call.operation as usize / 64);
        Some(word.is_some_and(|word| word >> (call.operation % 64) & 1 != 0))
    }

    /// Returns correlation id and ancestor of the call of API `kind` from which this thread has
    /// just returned, if that call was traced and started at `since` or later. This is for a hook
    /// that has called the plain wrapper. A call's entry stays unchanged until this thread's next
    /// call at that depth.
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

    /// Returns correlation id and ancestor of the innermost traced call that this thread is in.
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

    /// Notes a dispatch that the open call with this correlation id has launched.
    #[inline]
    pub fn saw_dispatch_of(&mut self, correlation: u64) {
        if self.records(kind::HIP_GRAPH) {
            self.owned().saw_dispatch_of(correlation);
        }
    }

    /// Whether the open call with this correlation id records an event of HIP or waits for one, and is
    /// recorded for that.
    #[inline]
    pub fn is_of_event(&mut self, correlation: u64) -> bool {
        let recorded = self.control.recorded.load(Relaxed);
        if !recorded.contains(kind::HIP_EVENT) {
            return false;
        }
        let owned = self.owned();
        let mut open = owned.open.iter().take(owned.depth);
        open.any(|call| {
            call.correlation == correlation
                && events::operation(recorded, call.kind, call.operation).is_some()
        })
    }

    /// Returns the number of the session.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether the session traces this kind of device work. A hook may be in a slot for another
    /// reason: signals are hooked for both kernels and copies, and a hook that another tool has
    /// wrapped stays from an earlier session.
    #[inline]
    pub fn wants(&self, kind: u8) -> bool {
        let (device, cut) = (&self.control.device, &self.control.cut);
        device
            .load(Relaxed)
            .without(cut.load(Relaxed))
            .contains(kind)
    }

    /// Whether this kind of work is reported to tools, or they are asked about it; see
    /// [`crate::callbacks`].
    #[inline]
    pub fn tells(&self, kind: u8) -> bool {
        self.control.called.load(Relaxed).contains(kind)
    }

    /// Returns the bits of [`flag`] for what this thread starts now.
    #[inline]
    pub fn flags_now(&self) -> u8 {
        self.control.pause_flag.load(Relaxed) as u8
    }

    /// Whether only a pause keeps this kind of work from being recorded. If so, counts it as left
    /// out.
    pub fn is_left_out(&self, kind: u8) -> bool {
        let is_left_out = self.accepts()
            && self.control.cut.load(Relaxed).contains(kind)
            && self.control.device.load(Relaxed).contains(kind);
        if is_left_out {
            STATE.pause.left_out(kind);
        }
        is_left_out
    }

    /// Returns a fresh correlation id.
    #[inline]
    pub fn fresh_correlation(&self) -> u64 {
        fresh(self.control)
    }

    /// Returns a fresh correlation id, or 0 where `wanted` is false.
    pub(crate) fn fresh_correlation_if(&self, wanted: bool) -> u64 {
        if wanted { self.fresh_correlation() } else { 0 }
    }

    /// Counts a record that was dropped for lack of space.
    pub fn dropped(&self, kind: u8) {
        if let Some(area) = area(self.control) {
            area.drop_record(kind);
        }
    }

    /// Returns the number of the calling thread's slot.
    #[inline]
    pub fn thread(&self) -> usize {
        threads::index_of(self.slot)
    }

    /// Whether calls of this kind that start now are recorded.
    #[inline]
    pub fn records(&self, kind: u8) -> bool {
        self.control.recorded.load(Relaxed).contains(kind)
    }

    /// Stores a record made of a fixed part and a tail; see
    /// [`midair_record::spool::ChunkWriter::store`]. Does nothing with a record that started during a
    /// pause, unless others want it.
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
        // this thread leaves. `owned` made sure that the writer's chunk belongs to this session.
        unsafe { self.owned().writer.store(area, tid, kind, parts) }
    }
}

/// Returns the flags of the record with this fixed part.
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
    /// The kinds that were recorded when it started.
    recorded: KindSet,
    /// Whether it is reported to a tool.
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
    /// Whether it has to be reported to a tool.
    #[inline]
    pub fn is_reported(&self) -> bool {
        self.reported
    }
    /// Returns the number of its session.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }
    /// Returns the number of its thread's slot, and its depth there.
    pub(crate) fn slot_and_depth(&self) -> Option<(usize, usize)> {
        self.slot.map(|slot| (threads::index_of(slot), self.depth))
    }
    /// Returns the same call with the time of its return.
    pub(crate) fn ended_at(self, end: u64) -> Call {
        Call { end, ..self }
    }
    /// Whether anything is traced.
    #[inline]
    pub fn live(&self) -> bool {
        self.generation != 0
    }
}

/// Called before the wrapped call, with the slot's `kind` and `operation`, and the raw stream
/// handle among its arguments (0 = none).
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
    // A call that is not recorded gets no id before something asks for it, see `Owned::identify`.
    let has_own_record = graphs::operation(recorded, kind, operation).is_some()
        || events::operation(recorded, kind, operation).is_some();
    let correlation = if recorded.contains(kind) || has_own_record {
        fresh(control)
    } else {
        0
    };
    // Recording is just start, so the call's first packets may be left out.
    let is_cut = has_own_record && control.accepting.load(Relaxed) == 0;
    let flags = if is_cut { flags | flag::CUT } else { flags };
    *entry = OpenCall {
        start: now(),
        correlation,
        stream,
        frame,
        operation,
        kind,
        flags,
        has_stack: false,
        dispatches: 0,
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

/// What becomes of something that a runtime tells by itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    /// It becomes a record.
    pub recorded: bool,
    /// Tools may want a notification.
    pub reported: bool,
}

/// Marks the calling thread as busy for something of this kind that happens now, and says what
/// becomes of it. `None`: nothing. What a tool's function causes is left out.
pub(crate) fn occurs(kind: u8) -> Option<(Busy, Seen)> {
    let control = control()?;
    let tracked = control
        .tracked
        .load(Relaxed)
        .without(control.cut.load(Relaxed));
    if control.generation.load(Relaxed) == 0 || !tracked.contains(kind) {
        return None;
    }
    let slot = threads::current()?;
    if slot.in_tool.load(Relaxed) != 0 {
        return None;
    }
    let busy = Busy::enter_with(control, slot)?;
    let seen = Seen {
        recorded: control.recorded.load(Relaxed).contains(kind),
        reported: control.called.load(Relaxed).contains(kind),
    };
    Some((busy, seen))
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
    /// Returns its correlation id, for a tool that gets it reported.
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

/// Returns an open call of the calling thread. `None` when its session is over.
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

/// Sets the call's start to now, since the time before was spent in a tool's function.
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
    /// The kinds that were recorded when it started.
    pub recorded: KindSet,
}

/// Removes a call from its thread's open calls. `None` when its session is over.
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

/// Called after the wrapped call. `arguments` is only evaluated when the call is recorded.
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
    let of_graph = graphs::operation(recorded, open.kind, open.operation);
    let of_event = events::operation(recorded, open.kind, open.operation);
    let is_recorded = recorded.contains(open.kind);
    let step = busy.step(&open);
    if !is_recorded && of_graph.is_none() && of_event.is_none() && step == Step::None {
        return;
    }
    let arguments = arguments();
    if step != Step::None {
        busy.store_step(step, (&open, call.depth), end, &arguments, retval);
    }
    if let Some(operation) = of_graph {
        let graph = arguments.first().copied().unwrap_or(0);
        let flags = graphs::flags(&open, busy.accepts(), busy.flags_now());
        let times = [open.start, end];
        let record = graphs::record(
            &open,
            operation,
            ancestor,
            times,
            (graph, retval),
            busy.tid(),
            flags,
        );
        busy.store(kind::HIP_GRAPH, [record.bytes(), &[]]);
    }
    if let Some(operation) = of_event {
        let event = events::handle(operation, &arguments);
        let flags = graphs::flags(&open, busy.accepts(), busy.flags_now());
        let record = events::record(
            &open,
            operation,
            ancestor,
            [open.start, end],
            (event, retval),
            busy.tid(),
            flags,
        );
        busy.store(kind::HIP_EVENT, [record.bytes(), &[]]);
    }
    if !is_recorded {
        return;
    }
    // SAFETY: an array of N u64 consists of N * 8 initialised bytes.
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

/// Ends a thread's use of its slot. Its chunk stays open in the slot, and the next thread that
/// claims the slot continues in it (records contain their thread's id). If chunks were sealed here,
/// ten thousand short threads would use up the spool with chunks of a few records each.
pub(crate) fn thread_ended(slot: &'static ThreadSlot) {
    let Some(control) = control() else { return };
    if let Some(mut busy) = Busy::enter_with(control, slot) {
        let owned = busy.owned();
        owned.depth = 0;
        (owned.regions.depth, owned.regions.over) = (0, 0);
        markers::thread_ends(&mut busy);
    }
}
