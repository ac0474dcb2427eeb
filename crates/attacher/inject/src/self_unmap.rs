//! The worker thread unmaps its own memory as its last act, so that no thread of the program has to
//! be stopped for it.
//!
//! It cannot do this unaided. The thread ends inside the C library, on the very stack that is to be
//! unmapped, and that stack also holds its thread control block. So we trace it to its end. When it
//! enters its `exit` system call, the C library has finished with the thread's memory.
//!
//! The kernel itself would still write to that memory, so three registrations are removed first.
//! One is the area for restartable sequences: the kernel writes there at every return to user code,
//! and a fault there kills the process. The others are the word that the kernel clears when a
//! thread ends, and the list of robust locks. The calls that remove them are made from our code
//! page, where an `exit` follows the system call instruction. `munmap` would take that page away,
//! so it is made by the C library's own last system call instruction, which stays mapped. The C
//! library's loop around `exit` follows that instruction, and we check that it does before we
//! start. So the thread ends wherever this process may die.

use std::os::fd::OwnedFd;
use std::time::Duration;

use midair_procinfo::{Tid, task};
use midair_ptrace::{
    Deadline, Lender, Registers, RemoteAddr, Seized, StopKind, Stopped, Urgent, Waited,
    avoid_processor, fault, trace,
};

use crate::arch::{self, number};
use crate::error::{During, EnterError};
use crate::mappings::Mappings;
use crate::options::{FaultPoint, Options};
use crate::worker::Block;

/// How long the thread that lends priority may take to start.
const LENDER_LIMIT: Duration = Duration::from_millis(5);

const PHASE: &str = "the end of the worker thread";

/// Hangs up (drops `channel`), follows `worker` to its end and has it unmap `mappings` there.
/// Returns false when the thread was left to end in the usual way: something else traces it, it is
/// under seccomp filters, or it is not the thread that we take it for.
///
/// # Errors
/// [`EnterError::Silent`] when it has not come to its end by `deadline`; [`EnterError::Gone`],
/// [`EnterError::Engine`].
pub(crate) fn unmap(
    worker: Tid,
    block: Block,
    mappings: &Mappings,
    channel: &mut Option<OwnedFd>,
    deadline: Deadline,
    options: &Options,
) -> Result<bool, EnterError> {
    let Some(call) = arch::last_call() else {
        return Ok(false);
    };
    // The filters were only checked for the calls of a thread's ordinary life, and these are
    // others.
    if task::status(worker).is_ok_and(|status| status.seccomp != 0) {
        return Ok(false);
    }
    let way = Way {
        block,
        mappings,
        call: mappings.code.plus(call),
        deadline,
        options,
    };
    trace(worker, || way.go(worker, channel)).during(PHASE)?
}

struct Way<'a> {
    block: Block,
    mappings: &'a Mappings,
    /// The instruction in our page.
    call: RemoteAddr,
    deadline: Deadline,
    options: &'a Options,
}

impl Way<'_> {
    fn go(&self, worker: Tid, channel: &mut Option<OwnedFd>) -> Result<bool, EnterError> {
        let Ok(seized) = Seized::seize(worker, false) else {
            return Ok(false);
        };
        seized.interrupt().during(PHASE)?;
        let mut stopped = seized
            .wait_for_event(Deadline::after(self.options.held))
            .during(PHASE)?;
        // The worker stops at each of its last calls. Where there are more threads than processors,
        // it would wait for a time slice after each stop. What it still has to run is short.
        if let Ok(stat) = task::stat(worker) {
            avoid_processor(stat.processor);
        }
        let lender = Lender::begin();
        lender.wait(LENDER_LIMIT);
        let _urgent = Urgent::begin();
        let _boost = lender.lend(worker);
        // We hang up only now: otherwise it could end before we follow it.
        if channel.take().is_some() {
            fault::step("hung up");
        }
        let base = loop {
            stopped = self.to_call(stopped, self.deadline)?;
            let regs = stopped.registers().during(PHASE)?;
            // `exit` never returns, so a stop at this call is at its start.
            if arch::call_begun(&regs) == number::EXIT {
                break regs;
            }
        };
        self.at_exit(stopped, &base)
    }

    /// Resumes the thread until it enters or leaves a system call.
    fn to_call(&self, stopped: Stopped, deadline: Deadline) -> Result<Stopped, EnterError> {
        let mut next = stopped;
        let mut signal = 0;
        loop {
            let running = next.resume_to_syscall_with(signal).during(PHASE)?;
            next = match running.wait(deadline).during(PHASE)? {
                Waited::Stopped(stopped) => stopped,
                Waited::Gone(_) => return Err(EnterError::Gone { during: PHASE }),
                Waited::TimedOut(_running) => return Err(EnterError::Silent { at: "its end" }),
            };
            signal = match next.kind() {
                StopKind::Syscall => return Ok(next),
                // Every signal that can be blocked is blocked in this thread. So this is a fault of
                // its own, or SIGSTOP, which stops the whole process.
                StopKind::Signal(signal) => signal,
                // Job control is for the program's threads, not for one that is about to end.
                StopKind::Event | StopKind::Group(_) => 0,
            };
        }
    }

    /// Does the rest with the thread stopped at the start of its `exit` call.
    fn at_exit(&self, stopped: Stopped, base: &Registers) -> Result<bool, EnterError> {
        let len = arch::SYSCALL_INSTRUCTION.len() as u64;
        let exit = RemoteAddr::new(base.pc()).minus(len);
        let ours = base.sp().wrapping_sub(self.mappings.data.get()) < self.mappings.data_len;
        let (before, after) = arch::AROUND_EXIT;
        let memory = &self.block.memory;
        let before = memory.read_vec(
            RemoteAddr::new(base.pc().wrapping_sub(before as u64)),
            before,
        );
        let after = memory.read_vec(RemoteAddr::new(base.pc()), after);
        let loops = match (before, after) {
            (Ok(before), Ok(after)) => arch::ends_in_exit(&before, &after),
            _ => false,
        };
        let Ok(sequences) = stopped.restartable_sequences() else {
            stopped.detach().during(PHASE)?;
            return Ok(false);
        };
        if !ours || !loops {
            stopped.detach().during(PHASE)?;
            return Ok(false);
        }
        stopped
            .set_registers(&arch::without_call(base))
            .during(PHASE)?;
        let mut stopped = self.to_call(stopped, self.soon())?;
        let mut done = true;
        if let Some((area, size, signature)) = sequences {
            /// `RSEQ_FLAG_UNREGISTER` (linux/rseq.h).
            const UNREGISTER: u64 = 1;
            let args = [area.get(), size.into(), UNREGISTER, signature.into()];
            (stopped, done) = self.call(stopped, base, self.call, number::RSEQ, &args)?;
        }
        /// Bytes of `struct robust_list_head` (linux/futex.h).
        const HEAD: u64 = 24;
        let whole = self.mappings.code_len + self.mappings.data_len;
        let rest: [(RemoteAddr, u64, &[u64]); 3] = [
            (self.call, number::SET_TID_ADDRESS, &[0]),
            (self.call, number::SET_ROBUST_LIST, &[0, HEAD]),
            (exit, number::MUNMAP, &[self.mappings.code.get(), whole]),
        ];
        for (from, nr, args) in rest {
            if done {
                (stopped, done) = self.call(stopped, base, from, nr, args)?;
            }
        }
        if done {
            FaultPoint::Unmapped.reached();
        }
        stopped
            .set_registers(&arch::call_from(base, exit, number::EXIT, &[0]))
            .during(PHASE)?;
        stopped.detach_with(0).during(PHASE)?;
        Ok(done)
    }

    /// Has the thread make one system call, at whose end it is then stopped. The flag tells whether
    /// the call succeeded.
    fn call(
        &self,
        stopped: Stopped,
        base: &Registers,
        from: RemoteAddr,
        nr: u64,
        args: &[u64],
    ) -> Result<(Stopped, bool), EnterError> {
        stopped
            .set_registers(&arch::call_from(base, from, nr, args))
            .during(PHASE)?;
        let begun = self.to_call(stopped, self.soon())?;
        let ended = self.to_call(begun, self.soon())?;
        let result = ended.registers().during(PHASE)?.result();
        Ok((ended, !(-4095..0).contains(&result)))
    }

    fn soon(&self) -> Deadline {
        Deadline::after(self.options.held)
    }
}
