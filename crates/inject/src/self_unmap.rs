//! The worker thread unmaps its own memory as its last act, so that no thread of the program is stopped.
//!
//! It cannot do this unaided. It ends in the C library, on the very stack that is to be unmapped, where
//! its thread control block is as well. So it is traced to its end. When it enters its `exit`, the C
//! library is done with it. The kernel itself would still write to that memory, which is prevented
//! first: the area for restartable sequences is unregistered (the kernel writes there at every return to
//! user code, and a fault there kills the process), as are the word that is cleared when a thread ends
//! and the list of robust locks. The first two calls are made in our code page, where an `exit` follows
//! the instruction. `munmap` is made by the C library's own last instruction, which stays mapped. The C
//! library's loop around `exit` follows it, and is checked before. So wherever this process dies, the
//! thread ends.

use std::os::fd::OwnedFd;

use midair_procinfo::{Tid, task};
use midair_ptrace::{
    Boost, Deadline, Registers, RemoteAddr, Seized, StopKind, Stopped, Urgent, Waited,
    avoid_processor, fault, on_own_thread,
};

use crate::arch::{self, number};
use crate::error::{During, EnterError};
use crate::mappings::Mappings;
use crate::options::{FaultPoint, Options};
use crate::worker::Block;

const PHASE: &str = "the end of the worker thread";

/// Hangs up (drops `channel`), follows `worker` to its end and has it unmap `mappings` there. False
/// where it was left to end as ever: it is traced, under filters, or not what it is taken for.
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
    // Filters were asked for what a thread's ordinary life needs.
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
    on_own_thread(|| way.go(worker, channel)).during(PHASE)?
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
        // It stops at each of its last calls, and would wait for a time slice at each where there are
        // more threads than processors. What runs until its end is short.
        if let Ok(stat) = task::stat(worker) {
            avoid_processor(stat.processor);
        }
        let _urgent = Urgent::begin();
        let _boost = Boost::lend(worker);
        // Only now, so that it does not end before it is followed.
        if channel.take().is_some() {
            fault::step("hung up");
        }
        let base = loop {
            stopped = self.to_call(stopped, self.deadline)?;
            let regs = stopped.registers().during(PHASE)?;
            // It never comes back, so this is its beginning.
            if arch::call_begun(&regs) == number::EXIT {
                break regs;
            }
        };
        self.at_exit(stopped, &base)
    }

    /// To the next beginning or end of a system call.
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
                // All that can be are blocked: a fault of its own, or SIGSTOP, which holds the
                // whole process.
                StopKind::Signal(signal) => signal,
                // Job control holds the program's threads, and not one that ends.
                StopKind::Event | StopKind::Group(_) => 0,
            };
        }
    }

    /// It stands at the beginning of its `exit`.
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

    /// Has it make one system call; the thread then stands at its end. Whether the kernel did it.
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
