//! The end of a session: kinds are disabled, threads leave CUPTI, work in progress is waited for,
//! everything is read; CUPTI is finalized where that does no harm.
//!
//! If CUPTI is only switched off, it costs each call of CUDA some tenths of a microsecond: a loop
//! of nothing but launches keeps 0.8 to 0.9 of its speed. If it is finalized, it costs nothing. But
//! finalizing can break processes, for these reasons (all measured on an H200 with CUPTI 13.0;
//! docs/sources.md#cupti):
//!
//! * Calls that started while a kind was enabled, and recorded work in progress. Finalized
//!   immediately, or 1 ms after the kinds were disabled, alongside one launching thread or eight,
//!   processes crashed in one of 400 cases. When both were waited for, they never crashed: in 6,000
//!   cases with kernels, copies, fills, calls and waits, alongside launches, long waits and PyTorch's
//!   training; nor in 1,150 cases with NVTX ranges, allocations and migrations of unified memory by
//!   eight threads. So both are waited for. Alongside hundreds of threads that was not enough:
//!   [`crate::callbacks`].
//! * Graphs. Whatever was waited for, the next launch fails if the kinds were disabled alongside
//!   launches of graphs. It was harmless only with all threads held outside of CUDA and the device
//!   idle *before* the kinds were disabled (80 cases). A profiler must not wait for the device in
//!   another process: `cuCtxSynchronize` invalidates a capture, also in relaxed mode. So after
//!   graphs CUPTI is not finalized.
//!
//! A CUPTI that stays is not harmless either. When it was switched off and on again alongside eight
//! launching threads, CUPTI 13.0 crashed in its own worker in one of 50 cases, even without any
//! midair's code. The cause is the switching off, not the switching on: it never crashed in 628
//! cases with the threads held outside of CUDA when the kinds were disabled, but in one of 43 cases
//! with the threads held when the kinds were enabled. A kind that stays enabled (NAME, OVERHEAD)
//! does not help. After graphs the crash was not seen in 190 cases.
//!
//! Names that records point to belong to CUPTI and end with it, so everything is read before it is
//! finalized.

use super::{KEEP_LOADED, ONLY_OURS, POOL, Reading, Session, USED, quiesce};
use crate::callbacks::{Callbacks, Closed};
use crate::cupti::Driver;
use midair_abi::cupti::{activity_kind, thread_id_type};
use midair_cupti_file::Origin;
use midair_guest::now;
use midair_record::event::kind;
use midair_record::spool::outcome;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// Interval at which work in progress is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Work counts as done when nothing has been returned for this long, in ns; longer if kernels are
/// longer.
const QUIET: u64 = 6_000_000;
/// How much longer than the device the reader may take, in ns.
const READ_LIMIT: u64 = 2_000_000_000;
/// After kernels longer than this CUPTI is not finalized: it waits for the device, and all calls of
/// CUDA wait for it. In ns.
const LONG: u64 = 100_000_000;

/// Why CUPTI is switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The session ends.
    Detach,
    /// It ends, and another profiler or the end of the process waits for that.
    Quick,
    /// A burst ends.
    Burst,
}

/// How CUPTI was switched off.
#[derive(Debug, Clone, Copy)]
pub struct Off {
    /// When nothing more was recorded.
    pub at: u64,
    /// How long it took until CUPTI was finalized or left, ns.
    pub took: u64,
    /// Why CUPTI was not finalized, if it was not.
    pub stays: Option<&'static str>,
}

impl Session {
    /// Ends the session: kernels that were launched before may run until `deadline`
    /// (CLOCK_BOOTTIME, ns). With `quick`, another profiler or the exit of the process waits for
    /// us, and only what is there is taken. `detached` is called once nothing is recorded any more.
    /// Returns bits of [`outcome`].
    pub fn finish(mut self, deadline: u64, quick: bool, detached: &dyn Fn()) -> u32 {
        let end = if quick { End::Quick } else { End::Detach };
        self.turn_off(deadline, end, detached);
        self.close()
    }

    /// Switches CUPTI off and finalizes it, or leaves it where that could do harm. It has the
    /// arguments of [`Session::finish`].
    pub fn turn_off(&mut self, deadline: u64, end: End, detached: &dyn Fn()) -> Off {
        let begun = now();
        let quick = end == End::Quick;
        let at = self.disable();
        if !quick {
            self.count_callbacks();
        }
        // A profiler that waits for us uses CUPTI in its own way from now on.
        KEEP_LOADED.fetch_or(quick, SeqCst);
        let left = if quick && self.launches.is_none() {
            std::thread::sleep(POLL_INTERVAL);
            false
        } else {
            quiesce::wait(quiesce::LEAVE_LIMIT)
        };
        self.end_launches(left);
        detached();
        if !quick {
            self.wait_for_the_device(deadline, end == End::Burst);
        }
        let untimed = self.drain.untimed;
        self.flush(true);
        // A buffer that a forced flush returns may still be written to by a thread that was inside
        // a call: no buffer is given to CUPTI again.
        POOL.close();
        self.read_returned(deadline.max(now() + if quick { 0 } else { READ_LIMIT }));
        let running = self.drain.untimed > untimed;
        let kept_before = KEEP_LOADED.fetch_or(self.drain.graphs, SeqCst);
        let why = match self.drain.longest {
            _ if quick => Some("another profiler started, or the process was exiting"),
            _ if self.drain.graphs => Some("graphs were launched"),
            _ if kept_before => Some(
                "its NVTX calls go through CUPTI, another profiler has used CUPTI before, or an earlier session enabled hardware timing",
            ),
            _ if !left => Some("threads were inside calls of CUDA for too long"),
            _ if running => Some("kernels were still running"),
            LONG.. => Some("kernels took 0.1 s and more"),
            _ => None,
        };
        let stays = self.finalize_or_keep(why);
        let took = now() - begun;
        if end != End::Burst || stays.is_some() {
            // From here on CUPTI is as it was before, and threads that wait for us go on. Otherwise
            // another profiler is watched for until the next burst, and ends the session.
            self.leave_watch(stays.is_some());
        }
        self.close_pool();
        self.count_buffers();
        if end == End::Burst {
            self.drain.end_burst(at);
        }
        Off { at, took, stays }
    }

    /// Ends a session in which CUPTI is switched off. Returns bits of [`outcome`].
    pub fn close(mut self) -> u32 {
        drop(self.watch.take());
        self.note_counts();
        let running = self.drain.untimed > 0;
        self.drain.close(now());
        self.drain.sink.seal();
        if running { outcome::STILL_RUNNING } else { 0 }
    }

    /// Undoes what was done for a session or a burst that could not start.
    pub(super) fn undo(&mut self) {
        self.disable();
        self.count_callbacks();
        let left = quiesce::wait(quiesce::LEAVE_LIMIT);
        self.end_launches(left);
        let why = (!left).then_some("threads were inside calls of CUDA for too long");
        let stays = self.finalize_or_keep(why);
        self.leave_watch(stays.is_some());
        self.close_pool();
    }

    /// From here on other profilers do not wait. If CUPTI stays, the next session still learns of them: it must
    /// not ask CUPTI ([`super::others`]).
    fn leave_watch(&mut self, stays: bool) {
        match self.watch.take() {
            Some(watch) if stays && ONLY_OURS.load(SeqCst) => watch.keep(),
            None if self.cupti.origin() == Origin::Mapped => ONLY_OURS.store(false, SeqCst),
            _ => {}
        }
    }

    /// Disables the kinds. Returns when the last one was disabled that is not about memory.
    fn disable(&mut self) -> u64 {
        let mut at = now();
        // No new NVTX call finds CUPTI's functions; those that are inside are waited for like all
        // others.
        if let Some(nvtx) = self.nvtx.take()
            && let Some(text) = nvtx.last_note()
        {
            self.drain.sink.note(text);
        }
        self.take_calls_in();
        // CUPTI takes 2 s to switch off the counters of unified memory, so everything else is
        // switched off before, and nothing is recorded meanwhile (13.0, four processes at once;
        // docs/sources.md#cupti).
        self.enabled
            .sort_by_key(|kind| *kind != activity_kind::UNIFIED_MEMORY_COUNTER);
        let mut held = self.hold_thread_ends().ok();
        if let Some(launches) = &self.launches {
            launches.silence(&self.cupti);
        }
        while let Some(kind) = self.enabled.pop() {
            if kind == activity_kind::UNIFIED_MEMORY_COUNTER {
                held = None;
            }
            let disabled = self.cupti.disable(kind);
            self.note_error("cuptiActivityDisable", disabled);
            if kind != activity_kind::UNIFIED_MEMORY_COUNTER {
                at = now();
            }
        }
        drop(held);
        at
    }

    /// Leads the driver's calls into CUPTI through functions of midair, which can keep threads out of it.
    pub(super) fn relay_callbacks(&mut self) {
        let cupti = self.cupti.functions().finalize as usize;
        let Some(driver) = Driver::open() else {
            return;
        };
        match &mut self.callbacks {
            // CUPTI may have stored its function again.
            Some(callbacks) => {
                let _ = callbacks.replace_more(cupti, driver.function());
            }
            None => self.callbacks = Callbacks::replace(cupti, driver.function()),
        }
    }

    /// The same; from here on all threads in CUPTI are counted.
    fn count_callbacks(&mut self) {
        self.relay_callbacks();
        self.callbacks.iter().for_each(Callbacks::count_all);
    }

    /// Waits for work that was launched before the kinds were disabled, and that is returned when
    /// it is done. CUPTI does not tell how much there is, and asking the driver would invalidate
    /// the capture of a graph. So the wait ends when nothing has been returned for longer than any
    /// kernel took so far. After a burst it does not end before CUPTI has returned all buffers: the
    /// device may lag behind, and CUPTI must not stay because of that.
    fn wait_for_the_device(&mut self, deadline: u64, burst: bool) {
        let mut last = now();
        loop {
            self.flush(false);
            let before = self.drain.sink.stored;
            self.take_returned();
            self.read_pending(usize::MAX, false);
            let at = now();
            if self.drain.sink.stored != before {
                last = at;
            }
            let patience = QUIET.max(self.drain.longest.saturating_mul(2));
            let lags = burst && POOL.outstanding() > 0;
            if at >= deadline || at - last >= patience && !lags {
                return;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Reads all buffers that CUPTI has returned; from `deadline` on also where the spool has no space.
    fn read_returned(&mut self, deadline: u64) {
        self.take_returned();
        while !self.pending.is_empty() {
            if self.read_pending(1, now() >= deadline) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.take_returned();
        }
    }

    /// Finalizes CUPTI; or notes that it stays, and returns why it does.
    fn finalize_or_keep(&mut self, why: Option<&'static str>) -> Option<&'static str> {
        if std::mem::take(&mut self.system_ids) {
            let _ = self.cupti.set_thread_id_type(thread_id_type::DEFAULT);
        }
        let may = why.is_none() && !KEEP_LOADED.load(SeqCst);
        let callbacks = self.callbacks.take();
        let closed = match &callbacks {
            Some(callbacks) if may => callbacks.close().map(Some),
            _ => Ok(None),
        };
        // A thread that made or destroyed a context may have returned a buffer since the last flush.
        self.read_returned(0);
        // Last: a thread's end is held for no longer than that may take.
        let held = (may && closed.is_ok()).then(|| self.hold_thread_ends());
        if let (Some(Ok(_)), true) = (&held, closed.is_ok()) {
            let finalized = self.cupti.finalize();
            drop(held);
            self.thread_ends = None;
            self.finalized = finalized.is_ok();
            if self.finalized {
                closed.into_iter().flatten().for_each(Closed::stay);
                callbacks.into_iter().for_each(Callbacks::end);
            }
            self.note_error("cuptiFinalize", finalized);
            USED.store(false, SeqCst);
            return (!self.finalized).then_some("cuptiFinalize failed");
        }
        self.thread_ends = None;
        let cannot_hold = held.and_then(Result::err);
        let why = why
            .or(cannot_hold)
            .or(closed.err())
            .unwrap_or("another profiler has used CUPTI before");
        self.drain.sink.note(&format!(
            "CUPTI stays in this process, disabled, since removing it is unsafe now ({why}): CUDA calls cost some tenths of a \
             microsecond more until the process exits, and another attach while several threads launch kernels may crash the \
             process (a CUPTI defect)",
        ));
        Some(why)
    }

    /// Takes the buffers back. Where CUPTI is not finalized it keeps some: they belong to it until
    /// it returns them.
    fn close_pool(&mut self) {
        POOL.close();
        self.take_returned();
        while let Some(Reading { filled, .. }) = self.pending.pop_front() {
            if filled.valid > 0 {
                // It was returned after the last reading; the names may be gone.
                self.counts.broken += 1;
                self.drain.sink.lost(kind::KERNEL_DISPATCH, 1);
            }
            POOL.recycle(&filled);
        }
        POOL.release_memory();
    }
}
