//! The end of a session: kinds off, what is under way is waited for, everything is read, CUPTI is finalized.
//!
//! The names that records point to are CUPTI's and go with it, so all is read before. It is finalized because it costs even with all
//! kinds off: a fifth of the speed of a loop of launches (measured on an H200, CUPTI 13.0), and nothing once it is finalized.

use super::{POOL, Reading, Session};
use midair_abi::cupti::thread_id_type;
use midair_guest::now;
use midair_record::event::kind;
use midair_record::spool::outcome;
use std::time::Duration;

/// Between two looks at what is still under way.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// So many looks that bring nothing new end the wait.
const QUIET_LOOKS: u32 = 3;
/// How long buffers that CUPTI has are waited for once it is finalized.
const LAST_WAIT: Duration = Duration::from_millis(50);

impl Session {
    /// Ends the session: until `deadline` (CLOCK_BOOTTIME, ns) kernels that were launched before may end, and the reader may make room.
    /// With `quick` somebody waits for us, and only what is there is taken. `detached` is called once nothing is recorded any more.
    /// Bits of [`outcome`].
    pub fn finish(mut self, deadline: u64, quick: bool, detached: &dyn Fn()) -> u32 {
        self.disable();
        self.wait_for_the_device(if quick { 0 } else { deadline });
        self.flush(true);
        // What a forced flush brings may still be written to by a thread that was inside a call: no buffer goes to CUPTI again.
        POOL.close();
        self.take();
        while !self.pending.is_empty() {
            if self.read_pending(1, now() >= deadline) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.take();
        }
        self.finalize();
        detached();
        // From here on CUPTI is as it was: whoever waits for us goes on.
        drop(self.watch.take());
        let kept = self.close_pool();
        self.say(kept);
        let running = self.drain.untimed > 0;
        self.drain.close(now());
        self.drain.sink.seal();
        if running { outcome::STILL_RUNNING } else { 0 }
    }

    /// The session could not begin: takes back what was done.
    pub(super) fn take_back(&mut self) {
        self.disable();
        self.finalize();
        drop(self.watch.take());
        self.close_pool();
        self.drain.sink.seal();
    }

    fn disable(&mut self) {
        while let Some(kind) = self.enabled.pop() {
            let disabled = self.cupti.disable(kind);
            self.told("cuptiActivityDisable", disabled);
        }
    }

    /// Work that was launched before the kinds went off comes back when it is done. CUPTI does not tell how much there is: the wait ends
    /// when nothing new has come for some looks.
    fn wait_for_the_device(&mut self, deadline: u64) {
        let mut quiet = 0;
        loop {
            // At least one: threads that are inside a call finish their records.
            std::thread::sleep(LOOK_EVERY);
            if quiet == QUIET_LOOKS || now() >= deadline {
                return;
            }
            let before = self.drain.sink.stored;
            self.flush(false);
            self.take();
            let read = self.read_pending(usize::MAX, false);
            let came = self.drain.sink.stored != before || (read == 0 && !self.pending.is_empty());
            quiet = if came { 0 } else { quiet + 1 };
        }
    }

    fn finalize(&mut self) {
        // Whether finalizing forgets it is not written anywhere.
        let _ = self.cupti.set_thread_id_type(thread_id_type::DEFAULT);
        let finalized = self.cupti.finalize();
        self.told("cuptiFinalize", finalized);
    }

    /// Takes the buffers back. How many CUPTI keeps.
    fn close_pool(&mut self) -> usize {
        POOL.close();
        let mut waited = Duration::ZERO;
        while POOL.outside() > 0 && waited < LAST_WAIT {
            std::thread::sleep(LOOK_EVERY);
            waited += LOOK_EVERY;
        }
        self.take();
        while let Some(Reading { filled, .. }) = self.pending.pop_front() {
            if filled.valid > 0 {
                // It came while CUPTI was finalized: the names are gone.
                self.broken += 1;
                self.drain.sink.lost(kind::KERNEL_DISPATCH, 1);
            }
            POOL.recycle(&filled);
        }
        let kept = POOL.outside();
        POOL.rest();
        kept
    }

    fn say(&mut self, kept: usize) {
        let (refused, foreign) = POOL.counts();
        let notes = [
            (
                self.dropped,
                "records were dropped by CUPTI, for want of buffers; they may be of any kind that is recorded",
            ),
            (refused, "times CUPTI asked for a buffer and none was free"),
            (foreign, "buffers of another profiler came to us"),
            (
                self.broken,
                "buffers of CUPTI's could not be read to their end: how many records they held is not known",
            ),
            (kept as u64, "buffers were not given back by CUPTI"),
        ];
        for (count, text) in notes {
            if count > 0 {
                self.drain.sink.note(&format!("{count} {text}"));
            }
        }
    }
}
