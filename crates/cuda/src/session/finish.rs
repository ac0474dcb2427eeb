//! The end of a session: kinds off, threads out of CUPTI, what is under way waited for, everything read; CUPTI finalized where that does
//! no harm.
//!
//! Left switched off, CUPTI costs each call of CUDA's some tenths of a microsecond: a loop of nothing but launches keeps 0.8 to 0.9 of its
//! speed. Finalized, it costs nothing. What breaks processes then (all measured on an H200 with CUPTI 13.0):
//!
//! * calls that began while a kind was on, and recorded work that is under way: finalized at once, or 1 ms after the kinds went off,
//!   beside one launching thread or eight, processes crashed at one of 400 times. When both were waited for, never in 6,000 times, with
//!   kernels, copies, fills, calls and waits, beside launches, long waits and PyTorch's training, nor in 1,150 times with NVTX ranges,
//!   allocations and moves of unified memory of eight threads. So both are waited for;
//! * graphs: whatever was waited for, the next launch fails if the kinds went off beside launches of graphs. Only with all threads
//!   held outside of CUDA and the device idle *before* the kinds went off was it harmless (80 times). Nobody may wait for the device in
//!   another's process: `cuCtxSynchronize` spoils a capture, also in relaxed mode. So after graphs it is not done.
//!
//! CUPTI that stays is no harmless guest: switched off and on again beside eight launching threads, CUPTI 13.0 crashed in its own worker
//! at one of 50 times, also with nothing of ours there. It is the switching off that does it, not the switching on: with the threads held
//! outside of CUDA when the kinds went off, never in 628 times; held when they went on, at one of 43. A kind that stays on (NAME,
//! OVERHEAD) does not help. After graphs it was not seen in 190 times.
//!
//! Names that records point to are CUPTI's and go with it: all is read before.

use super::{KEEP, POOL, Reading, Session, USED, quiesce};
use midair_abi::cupti::thread_id_type;
use midair_guest::now;
use midair_record::event::kind;
use midair_record::spool::outcome;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// Between two looks at what is still under way.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Work is taken for done when nothing has come for so long, ns; longer where kernels are.
const QUIET: u64 = 6_000_000;
/// How long threads may take to leave CUPTI.
pub(super) const LEAVE_LIMIT: Duration = Duration::from_secs(2);
/// How much longer than the device the reader may take, ns.
const READ_LIMIT: u64 = 2_000_000_000;
/// With longer kernels CUPTI is not finalized: it waits for the device, and all calls of CUDA's for it. In ns.
const LONG: u64 = 100_000_000;

impl Session {
    /// Ends the session: until `deadline` (CLOCK_BOOTTIME, ns) kernels that were launched before may end. With `quick` somebody waits for
    /// us (another profiler, or the end of the process), and only what is there is taken. `detached` is called once nothing is recorded
    /// any more. Bits of [`outcome`].
    pub fn finish(mut self, deadline: u64, quick: bool, detached: &dyn Fn()) -> u32 {
        self.disable();
        // Whoever waits for us uses CUPTI in his own way from now on.
        KEEP.fetch_or(quick, SeqCst);
        let left = if quick {
            std::thread::sleep(LOOK_EVERY);
            false
        } else {
            quiesce::wait(LEAVE_LIMIT)
        };
        detached();
        if !quick {
            self.wait_for_the_device(deadline);
        }
        let untimed = self.drain.untimed;
        self.flush(true);
        // What a forced flush brings may still be written to by a thread that was inside a call: no buffer goes to CUPTI again.
        POOL.close();
        self.take();
        let reads = deadline.max(now() + if quick { 0 } else { READ_LIMIT });
        while !self.pending.is_empty() {
            if self.read_pending(1, now() >= reads) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.take();
        }
        let running = self.drain.untimed > untimed;
        KEEP.fetch_or(self.drain.graphs, SeqCst);
        let calm = left && !running && self.drain.longest < LONG;
        self.give_back(calm);
        // From here on CUPTI is as it was: whoever waits for us goes on.
        drop(self.watch.take());
        self.close_pool();
        self.say();
        let running = self.drain.untimed > 0;
        self.drain.close(now());
        self.drain.sink.seal();
        if running { outcome::STILL_RUNNING } else { 0 }
    }

    /// The session could not begin: takes back what was done.
    pub(super) fn take_back(&mut self) {
        self.disable();
        let left = quiesce::wait(LEAVE_LIMIT);
        self.give_back(left);
        drop(self.watch.take());
        self.close_pool();
        self.drain.sink.seal();
    }

    fn disable(&mut self) {
        // No new call finds the way to CUPTI's functions for marks; those that are inside are waited for like all others.
        if let Some(nvtx) = self.nvtx.take()
            && let Some(text) = nvtx.last_note()
        {
            self.drain.sink.note(text);
        }
        while let Some(kind) = self.enabled.pop() {
            let disabled = self.cupti.disable(kind);
            self.told("cuptiActivityDisable", disabled);
        }
    }

    /// Work that was launched before the kinds went off comes back when it is done. CUPTI does not tell how much there is, and to ask the
    /// driver would spoil a capture of a graph: the wait ends when nothing has come for longer than any kernel took so far.
    fn wait_for_the_device(&mut self, deadline: u64) {
        let mut last = now();
        loop {
            self.flush(false);
            let before = self.drain.sink.stored;
            self.take();
            self.read_pending(usize::MAX, false);
            let at = now();
            if self.drain.sink.stored != before {
                last = at;
            }
            let patience = QUIET.max(self.drain.longest.saturating_mul(2));
            if at >= deadline || at - last >= patience {
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Finalizes CUPTI, or says that it stays.
    fn give_back(&mut self, calm: bool) {
        if self.system_ids {
            let _ = self.cupti.set_thread_id_type(thread_id_type::DEFAULT);
        }
        if calm && !KEEP.load(SeqCst) {
            let finalized = self.cupti.finalize();
            self.told("cuptiFinalize", finalized);
            USED.store(false, SeqCst);
            return;
        }
        self.drain.sink.note(
            "CUPTI stays in this process, switched off, since taking it out could harm it now: calls of CUDA cost some tenths of a \
             microsecond more until the process ends, and to attach to it again while several of its threads launch kernels may end it \
             (CUPTI's own defect)",
        );
    }

    /// Takes the buffers back. CUPTI keeps some where it is not finalized: they are its own until it gives them back.
    fn close_pool(&mut self) {
        POOL.close();
        self.take();
        while let Some(Reading { filled, .. }) = self.pending.pop_front() {
            if filled.valid > 0 {
                // It came after the last reading; the names may be gone.
                self.broken += 1;
                self.drain.sink.lost(kind::KERNEL_DISPATCH, 1);
            }
            POOL.recycle(&filled);
        }
        POOL.rest();
    }

    fn say(&mut self) {
        let (refused, foreign, unread) = POOL.counts();
        self.broken += unread as u64;
        self.drain.sink.lost(kind::KERNEL_DISPATCH, unread as u64);
        // Behind the end CUPTI may ask, and is to get nothing.
        let refused = if self.dropped > 0 { refused } else { 0 };
        let notes = [
            (
                self.dropped,
                "records were dropped by CUPTI, for want of buffers; they may be of any kind that is recorded",
            ),
            (refused, "times CUPTI asked for a buffer and none was free"),
            (
                foreign as u64,
                "buffers of another profiler's held records of this session; they were read",
            ),
            (
                self.broken,
                "buffers of CUPTI's could not be read to their end: how many records they held is not known",
            ),
        ];
        for (count, text) in notes {
            if count > 0 {
                self.drain.sink.note(&format!("{count} {text}"));
            }
        }
    }
}
