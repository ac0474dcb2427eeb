//! A borrowed thread: it is stopped, able to restore itself, and given back as it was.
//!
//! The order of operations makes the engine safe. First, a signal frame is written below the red
//! zone of the thread's own stack. From then on the thread only runs code that ends in that frame.
//! This code is either a `syscall; ret` of the C library, which returns to the C library's
//! restorer, or the stub, which leaves through the frame. So if this process dies between any two
//! operations, the kernel resumes the thread and the thread restores itself. No byte of existing
//! code is changed.

use std::time::{Duration, Instant};

use midair_procinfo::bpf::Instruction;
use midair_procinfo::module::Modules;
use midair_procinfo::syscall::Blocking;
use midair_procinfo::{Pid, Tid, task};
use midair_ptrace::{
    Deadline, FrameRegisters, Memory, Pace, Registers, RemoteAddr, Seized, SignalMask, StopKind,
    Stopped, Waited, trace,
};

use crate::arch::{self, FrameLayout};
use crate::code::TargetCode;
use crate::error::{During, EnterError, Refusal};
use crate::filters;
use crate::inspection::Inspection;
use crate::parked::{self, Candidate};

const EPERM: i32 = 1;
const SIGILL: i32 = 4;
const SIGBUS: i32 = 7;
const SIGFPE: i32 = 8;
const SIGSEGV: i32 = 11;

/// Why a thread was not held.
pub(crate) enum NotHeld {
    /// The thread is not in the state that it was judged to be in. It was let go.
    Unsuitable(&'static str),
    Failed(EnterError),
}

impl From<EnterError> for NotHeld {
    fn from(error: EnterError) -> Self {
        NotHeld::Failed(error)
    }
}

/// A stopped thread, proven to be parked or at a safe point. Nothing of it has been changed yet.
#[derive(Debug)]
pub(crate) struct Proven {
    stopped: Stopped,
    regs: Registers,
    /// The system call that it is in. None for a thread that was stopped in its own code.
    call: Option<Blocking>,
}

impl Proven {
    /// Wraps a thread that was found at a safe point. `call` is the system call in which it waits,
    /// if it waits.
    pub(crate) fn at_safe_point(
        stopped: Stopped,
        regs: Registers,
        call: Option<Blocking>,
    ) -> Proven {
        Proven {
            stopped,
            regs,
            call,
        }
    }
}

/// Stops a candidate and proves it again.
pub(crate) fn stop(
    candidate: &Candidate,
    memory: Memory,
    suspend_seccomp: bool,
    deadline: Deadline,
) -> Result<Proven, NotHeld> {
    const PHASE: &str = "stopping a thread";
    let seized = match Seized::seize(candidate.tid, suspend_seccomp) {
        Ok(seized) => seized,
        Err(error) if error.is_gone() => return Err(NotHeld::Unsuitable("it ended meanwhile")),
        // We have the permission: it was checked before. So another tracer is attached to the thread:
        // another attacher, for a moment, or a debugger, for longer. The next inspection tells
        // which.
        Err(error) if error.errno() == Some(EPERM) => {
            return Err(NotHeld::Unsuitable("another process traces it"));
        }
        Err(error) => {
            return Err(Err::<(), _>(error)
                .during(PHASE)
                .err()
                .map_or(NotHeld::Unsuitable("it ended"), NotHeld::Failed));
        }
    };
    let stopped = match seized
        .interrupt()
        .and_then(|()| seized.wait_for_event(deadline))
    {
        Ok(stopped) => stopped,
        Err(midair_ptrace::Error::TimedOut { .. }) => {
            return Err(NotHeld::Unsuitable("it did not stop in time"));
        }
        Err(error) if error.is_gone() => return Err(NotHeld::Unsuitable("it ended meanwhile")),
        Err(error) => {
            return Err(NotHeld::Failed(EnterError::Engine {
                during: PHASE,
                source: error,
            }));
        }
    };
    if stopped.kind() != StopKind::Event {
        return Err(NotHeld::Unsuitable("it is stopped by job control"));
    }
    let regs = stopped.registers().during(PHASE)?;
    if stopped.has_shadow_stack() {
        return Err(NotHeld::Unsuitable("it has a shadow stack"));
    }
    let stack = memory.read_vec(RemoteAddr::new(regs.sp()), candidate.stack.len());
    let len = arch::SYSCALL_INSTRUCTION.len();
    let before = RemoteAddr::new(candidate.blocking.pc).minus(len as u64);
    let instruction = memory.read_vec(before, len);
    if !instruction.is_ok_and(|bytes| bytes == arch::SYSCALL_INSTRUCTION) {
        return Err(NotHeld::Unsuitable(
            "it does not stand behind a system call",
        ));
    }
    let stack = stack.map_err(|_| NotHeld::Unsuitable("its stack cannot be read"))?;
    parked::unchanged(candidate, &regs, &stack).map_err(NotHeld::Unsuitable)?;
    Ok(Proven {
        stopped,
        regs,
        call: Some(candidate.blocking),
    })
}

/// Returns the registers of a candidate whose stack cannot be unwound without them. The thread is
/// stopped briefly and then goes on.
pub(crate) fn frame_registers(candidate: &Candidate, patience: Duration) -> Option<FrameRegisters> {
    let read = || {
        let seized = Seized::seize(candidate.tid, false).ok()?;
        seized.interrupt().ok()?;
        let stopped = seized.wait_for_event(Deadline::after(patience)).ok()?;
        let regs = stopped.registers().ok()?;
        arch::stands_in(&regs, &candidate.blocking).map(|_| regs.frame())
    };
    trace(candidate.tid, read).ok()?
}

/// A borrowed thread with the frame on its stack.
#[derive(Debug)]
pub(crate) struct Hold {
    /// None only while the thread runs, or when it is gone.
    stopped: Option<Stopped>,
    memory: Memory,
    pid: Pid,
    original: Registers,
    /// The system call in which it was stopped, if it was in one.
    call: Option<Blocking>,
    mask: SignalMask,
    extended: Vec<u8>,
    layout: FrameLayout,
    /// The stack's bytes at the place of the frame, before the frame was written.
    under_frame: Vec<u8>,
    gadget: RemoteAddr,
    restorer: RemoteAddr,
    masked: bool,
    /// True when it is known that no seccomp filter applies to its system calls.
    unfiltered: bool,
    /// True while it is in the middle of the stub. It may hold a lock there, so the only way back
    /// is to let the stub finish.
    in_stub: bool,
    /// How long each stop may take.
    patience: Duration,
}

/// When the stub's result is read for the first time, and the interval after that. Each read takes
/// the lock of the target's mappings, which the stub needs, too.
const FIRST_LOOK: Duration = Duration::from_micros(30);
const NEXT_LOOK: Duration = Duration::from_micros(10);

/// What became of a stub.
pub(crate) enum StubEnd {
    /// It made the worker thread. The borrowed thread is held again.
    Made,
    /// It could not make a thread: a call of the C library refused. The borrowed thread is held
    /// again.
    Refused,
    /// It was stopped by a signal. The borrowed thread is held again, at that signal.
    Crashed { signal: i32, at: u64 },
    /// The program has the kernel turn its system calls into signals, and the stub's first call
    /// became one. The thread is held again.
    Dispatched,
    /// It did not finish in time. The borrowed thread is held, in the middle of the stub.
    Overdue,
    /// The borrowed thread restored itself before it could be stopped again. It is free.
    Freed { made: bool },
}

impl Hold {
    /// Prepares the way back: reads the whole state of the thread and writes the signal frame.
    pub(crate) fn begin(
        proven: Proven,
        (memory, pid): (Memory, Pid),
        modules: &Modules,
        code: &TargetCode,
        patience: Duration,
    ) -> Result<Hold, NotHeld> {
        const PHASE: &str = "preparing the way back";
        let Proven {
            stopped,
            regs,
            call,
        } = proven;
        let mask = stopped.signal_mask().during(PHASE)?;
        let extended = stopped.extended_state().during(PHASE)?;
        let layout = arch::lay_out(&regs, &extended);
        let room = modules
            .mapping_at(regs.sp())
            .is_some_and(|mapping| mapping.write && mapping.holds(layout.stack.get()));
        if !room {
            return Err(NotHeld::Unsuitable("its stack has no room"));
        }
        let bytes = arch::frame_bytes(
            &layout,
            &regs,
            call.as_ref(),
            mask,
            &extended,
            code.restorer,
        );
        let under_frame = memory
            .read_vec(layout.stack, bytes.len())
            .map_err(|_| NotHeld::Unsuitable("its stack has no room"))?;
        memory.write(layout.stack, &bytes).during(PHASE)?;
        Ok(Hold {
            stopped: Some(stopped),
            memory,
            pid,
            original: regs,
            call,
            mask,
            extended,
            layout,
            under_frame,
            gadget: code.gadget,
            restorer: code.restorer,
            masked: false,
            unfiltered: false,
            in_stub: false,
            patience,
        })
    }

    /// Address of the frame, for the stub.
    pub(crate) fn context(&self) -> RemoteAddr {
        self.layout.context
    }

    fn held(&self, during: &'static str) -> Result<&Stopped, EnterError> {
        self.stopped.as_ref().ok_or(EnterError::Gone { during })
    }

    fn take(&mut self, during: &'static str) -> Result<Stopped, EnterError> {
        self.stopped.take().ok_or(EnterError::Gone { during })
    }

    /// Blocks the thread's signals. This is only done once its registers point to our code: before,
    /// a thread that was resumed would not leave through the frame, which restores the mask. If the
    /// program has SIGTRAP or SIGSYS blocked, they stay blocked, since a pending one must not be
    /// delivered now.
    fn block_signals(&mut self, during: &'static str) -> Result<(), EnterError> {
        if !self.masked {
            self.held(during)?
                .set_signal_mask(SignalMask::ALL_BUT_FORCED.and(self.mask))
                .during(during)?;
            self.masked = true;
        }
        Ok(())
    }

    /// Makes a system call on the thread and returns its result. The thread is then stopped at the
    /// end of the call.
    pub(crate) fn system_call(
        &mut self,
        during: &'static str,
        nr: u64,
        args: [u64; 6],
    ) -> Result<u64, EnterError> {
        let regs = arch::for_system_call(
            &self.original,
            self.gadget,
            self.layout.stack,
            nr,
            args,
            self.restorer,
        );
        self.held(during)?.set_registers(&regs).during(during)?;
        self.block_signals(during)?;
        // The first stop is at the start of the call, the second at its end.
        for _ in 0..2 {
            self.next_syscall_stop(during)?;
        }
        let result = self.held(during)?.registers().during(during)?.result();
        if (-4095..0).contains(&result) {
            let errno = i32::try_from(-result).unwrap_or(0);
            return Err(EnterError::SystemCall {
                call: during,
                errno,
            });
        }
        Ok(result.cast_unsigned())
    }

    fn next_syscall_stop(&mut self, during: &'static str) -> Result<(), EnterError> {
        let mut signal = 0;
        loop {
            let stopped = self.take(during)?;
            let running = match signal {
                0 => stopped.resume_to_syscall(),
                // SIGTRAP and SIGSYS are not blocked. If one comes, it is meant for the program,
                // and the program's handler runs as usual.
                other => stopped.resume_to_syscall_with(other),
            }
            .during(during)?;
            match running
                .wait(Deadline::after(self.patience))
                .during(during)?
            {
                Waited::Gone(_) => return Err(EnterError::Gone { during }),
                Waited::TimedOut(_running) => return Err(EnterError::Silent { at: during }),
                Waited::Stopped(stopped) => {
                    let kind = stopped.kind();
                    let dispatched = is_dispatched(&stopped, during)?;
                    self.stopped = Some(stopped);
                    match kind {
                        StopKind::Syscall => return Ok(()),
                        StopKind::Signal(_) if dispatched => {
                            let pid = self.pid;
                            return Err(EnterError::Refused(Refusal::Dispatches { pid }));
                        }
                        StopKind::Signal(other) => signal = other,
                        // Job control has to wait until the thread is let go.
                        StopKind::Event | StopKind::Group(_) => signal = 0,
                    }
                }
            }
        }
    }

    /// Runs the stub until its result word tells that it is done, then stops the thread again.
    /// `started` is called as soon as the stub runs.
    pub(crate) fn run_stub(
        &mut self,
        stub: Stub,
        deadline: Deadline,
        started: impl FnOnce(),
    ) -> Result<StubEnd, EnterError> {
        const PHASE: &str = "the stub";
        let regs = arch::for_stub(&self.original, stub.code, stub.stack, stub.block);
        self.held(PHASE)?.set_registers(&regs).during(PHASE)?;
        self.block_signals(PHASE)?;
        self.in_stub = true;
        let mut running = self.take(PHASE)?.resume(0).during(PHASE)?;
        started();
        let mut pace = Pace::beside(running.tid());
        let mut look = Instant::now() + FIRST_LOOK;
        loop {
            if Instant::now() >= look {
                if self.memory.read_u32(stub.result).during(PHASE)? != 0 || deadline.passed() {
                    break;
                }
                look = Instant::now() + NEXT_LOOK;
            }
            // Checks without waiting whether a signal stopped the thread.
            running = match running
                .wait(Deadline::after(Duration::ZERO))
                .during(PHASE)?
            {
                Waited::TimedOut(running) => running,
                Waited::Gone(_) => return Err(EnterError::Gone { during: PHASE }),
                Waited::Stopped(stopped) => match stopped.kind() {
                    StopKind::Signal(signal @ (SIGILL | SIGBUS | SIGFPE | SIGSEGV)) => {
                        let at = stopped.registers().during(PHASE)?.pc();
                        self.stopped = Some(stopped);
                        self.in_stub = false;
                        return Ok(StubEnd::Crashed { signal, at });
                    }
                    StopKind::Signal(_) if is_dispatched(&stopped, PHASE)? => {
                        self.stopped = Some(stopped);
                        self.in_stub = false;
                        return Ok(StubEnd::Dispatched);
                    }
                    StopKind::Signal(signal) => stopped.resume(signal).during(PHASE)?,
                    _ => stopped.resume(0).during(PHASE)?,
                },
            };
            pace.rest();
        }
        running.interrupt().during(PHASE)?;
        let stopped = running
            .wait_for_event(Deadline::after(self.patience))
            .during(PHASE)?;
        let pc = stopped.registers().during(PHASE)?.pc();
        let result = self.memory.read_u32(stub.result).during(PHASE)?;
        let inside = pc.wrapping_sub(stub.code.get()) < stub.code_len;
        if result != 0 && !inside {
            // The thread waited as long as it may and restored itself before we stopped it.
            stopped.detach().during(PHASE)?;
            return Ok(StubEnd::Freed { made: result == 1 });
        }
        self.stopped = Some(stopped);
        self.in_stub = result == 0;
        Ok(match result {
            0 => StubEnd::Overdue,
            1 => StubEnd::Made,
            _ => StubEnd::Refused,
        })
    }

    /// Gives the thread back as it was and lets it go on.
    pub(crate) fn release(mut self) -> Result<(), EnterError> {
        self.restore()?;
        self.take("giving the thread back")?
            .detach_with(0)
            .during("giving the thread back")
    }

    /// Returns true if no filter applies to its system calls. This is known once
    /// [`Hold::objection`] was asked for.
    pub(crate) fn is_unfiltered(&self) -> bool {
        self.unfiltered
    }

    /// Returns the reason why no system calls can be made on this thread, or on a thread that
    /// inherits its filters. None if nothing forbids them.
    pub(crate) fn objection(
        &mut self,
        look: &Inspection,
        tid: Tid,
    ) -> Result<Option<Refusal>, EnterError> {
        const PHASE: &str = "reading the thread's filters";
        let pid = look.pid;
        let stopped = self.held(PHASE)?;
        if stopped.dispatches_calls() {
            return Ok(Some(Refusal::Dispatches { pid }));
        }
        let Ok(status) = task::status(tid) else {
            return Err(EnterError::Gone { during: PHASE });
        };
        match status.seccomp {
            0 => {
                self.unfiltered = true;
                return Ok(None);
            }
            1 => return Ok(Some(Refusal::Seccomp { pid })),
            _ => {}
        }
        let filters: Vec<Vec<Instruction>> = match stopped.seccomp_filters() {
            Ok(filters) => filters
                .into_iter()
                .map(|filter| filter.into_iter().map(Instruction::parse).collect())
                .collect(),
            Err(error) if error.is_gone() => return Err(EnterError::Gone { during: PHASE }),
            // In a container, both this process and the target are under the container's filters.
            // No process may read filters there, and we work under the same ones ourselves.
            Err(_) if look.access.same_pid_namespace && filters::as_ours(&status) => {
                return Ok(None);
            }
            Err(error) => {
                let why = match error.errno() {
                    Some(libc::EACCES) => {
                        "that needs CAP_SYS_ADMIN and no filter of one's own".into()
                    }
                    _ => error.to_string(),
                };
                return Ok(Some(Refusal::FilterUnread { pid, why }));
            }
        };
        let objection = filters::objection(&filters, self.gadget.get());
        Ok(objection.map(|found| filters::refusal(pid, found)))
    }

    /// Returns the registers of the thread, which is in the middle of the stub.
    pub(crate) fn registers(&self) -> Result<Registers, EnterError> {
        self.held("reading registers")?
            .registers()
            .during("reading registers")
    }

    /// Gives up the stub before its end, so that the thread can be given back. Only for a thread
    /// that waits for a lock and holds no lock that the stub took.
    pub(crate) fn abandon_stub(&mut self) {
        self.in_stub = false;
    }

    /// Lets the thread go on in the middle of the stub, which brings it back through the frame.
    pub(crate) fn leave(mut self) -> Result<(), EnterError> {
        self.take("leaving the thread")?
            .detach_with(0)
            .during("leaving the thread")
    }

    fn restore(&mut self) -> Result<(), EnterError> {
        const PHASE: &str = "restoring the thread";
        let rearm = arch::rearm(&self.original, self.call.as_ref());
        if let Some(rearm) = rearm {
            self.system_call(PHASE, rearm.number, rearm.args)?;
            // These registers no longer lead to the frame. So all else that the frame would restore
            // comes first.
            self.restore_all_but_registers(PHASE)?;
            self.held(PHASE)?
                .set_registers(&rearm.registers)
                .during(PHASE)?;
        }
        if matches!(self.held(PHASE)?.kind(), StopKind::Syscall) {
            // Registers that ask for a restart of the system call must not be set at a system call
            // stop. The kernel only looks at them on its way out of a stop for signals.
            let stopped = self.take(PHASE)?;
            stopped.interrupt_again().during(PHASE)?;
            let running = stopped.resume(0).during(PHASE)?;
            self.stopped = Some(
                running
                    .wait_for_event(Deadline::after(self.patience))
                    .during(PHASE)?,
            );
        }
        if rearm.is_none() {
            self.restore_all_but_registers(PHASE)?;
        }
        self.held(PHASE)?
            .set_registers(&self.original)
            .during(PHASE)?;
        self.memory
            .write(self.layout.stack, &self.under_frame)
            .during(PHASE)
    }

    fn restore_all_but_registers(&mut self, during: &'static str) -> Result<(), EnterError> {
        let stopped = self.held(during)?;
        stopped.set_signal_mask(self.mask).during(during)?;
        stopped.set_extended_state(&self.extended).during(during)?;
        self.masked = false;
        Ok(())
    }
}

impl Drop for Hold {
    /// Gives the thread back as it was after a failure half way, if the thread is stopped. If it
    /// runs, the frame brings it back.
    fn drop(&mut self) {
        if !self.in_stub && self.stopped.is_some() && self.restore().is_ok() {
            // Not left to the drop of `Stopped`: that would deliver the signal at which the thread
            // stopped.
            if let Some(stopped) = self.stopped.take() {
                let _gone = stopped.detach_with(0);
            }
        }
    }
}

/// The addresses of the stub, of its stack and of the words that it reads and writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stub {
    pub(crate) code: RemoteAddr,
    pub(crate) code_len: u64,
    pub(crate) stack: RemoteAddr,
    pub(crate) block: RemoteAddr,
    pub(crate) result: RemoteAddr,
}

/// Returns true if the thread is stopped by the signal into which one of our system calls was
/// turned. No handler of the program is to receive that signal.
fn is_dispatched(stopped: &Stopped, during: &'static str) -> Result<bool, EnterError> {
    match stopped.kind() {
        StopKind::Signal(libc::SIGSYS) => stopped.call_was_dispatched().during(during),
        _ => Ok(false),
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
