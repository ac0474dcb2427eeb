use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use crate::added::with_added;
use crate::helper_process::{Place, in_helper_process};
use crate::progress;
use crate::watch::{self, Watch};
use crate::{Error, Pace, Registers, RemoteAddr, Result, SignalMask, Tid, arch, fault};

/// `PTRACE_EVENT_STOP` (linux/ptrace.h); libc has it only for some targets.
const EVENT_STOP: i32 = 128;
const PTRACE_GETSIGMASK: libc::c_uint = 0x420a;
const PTRACE_SETSIGMASK: libc::c_uint = 0x420b;
const PTRACE_SECCOMP_GET_FILTER: libc::c_uint = 0x420c;
const PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG: libc::c_uint = 0x4211;
const PTRACE_GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;

/// The latest moment at which a wait ends.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    /// `span` from now.
    pub fn after(span: Duration) -> Self {
        let now = Instant::now();
        Deadline(now.checked_add(span).unwrap_or(now))
    }
    /// True once it has passed.
    pub fn passed(self) -> bool {
        Instant::now() >= self.0
    }
    /// The time left; zero once the deadline has passed.
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

/// How a traced thread ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// With this exit code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
    /// The thread is gone, and no status was reported.
    Unknown,
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Death::Exited(code) => write!(f, "exit code {code}"),
            Death::Killed(signal) => write!(f, "signal {signal}"),
            Death::Unknown => f.write_str("no status"),
        }
    }
}

/// Why a thread is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopKind {
    /// It stopped at our interrupt.
    Event,
    /// Job control stopped the whole process by this signal. The process stays stopped after a
    /// detach.
    Group(i32),
    /// This signal is about to be delivered. It is lost unless it is handed back on resuming.
    Signal(i32),
    /// It is at the start or the end of a system call, see [`Stopped::resume_to_syscall`].
    Syscall,
}

/// The outcome of a wait.
#[derive(Debug)]
pub enum Waited {
    /// The thread is stopped.
    Stopped(Stopped),
    /// The deadline passed, and the thread still runs.
    TimedOut(Seized),
    /// The thread has ended.
    Gone(Death),
}

/// Runs `work`, which traces thread `tid`, on a thread of its own. A tracee that was asked to stop and has not
/// done so yet cannot be let go; when it stops at last, it would stand still. Only the end of its
/// tracer, which is a thread, undoes that. So no tracing thread outlives one borrowing.
///
/// That thread is one of another process where possible ([`in_helper_process`]): `work` reads memory of the
/// tracee's process.
///
/// # Errors
/// When no thread can be made, or `work` panicked.
pub fn trace<T: Send>(tid: Tid, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let place = Place::here();
    on_own_thread(|| {
        place.adopt();
        in_helper_process(tid, work)
    })
}

/// Runs `work` on a thread of its own, whose name says that it traces.
///
/// # Errors
/// When no thread can be made, or `work` panicked.
pub fn on_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let followed = progress::current();
    let work = || {
        progress::adopt(followed);
        work()
    };
    let done = std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("midair-ptrace".into());
        let thread = builder.spawn_scoped(scope, work)?;
        thread
            .join()
            .map_err(|_| io::Error::other("the tracing thread panicked"))
    });
    progress::here();
    done
}

/// A traced thread that runs. Dropping it stops the thread briefly, to let it go; see
/// [`trace`] for what happens when that fails.
#[derive(Debug)]
pub struct Seized {
    tid: Tid,
    /// Whether the thread has passed to another value, so that `drop` leaves it alone.
    released: bool,
    /// None once the thread has passed to another value.
    watch: Option<Watch>,
    /// The kernel knows the tracer by its thread.
    here: PhantomData<*const ()>,
}

/// A traced thread that is stopped. Dropping it detaches: the thread goes on with the registers
/// that it has at that moment.
#[derive(Debug)]
pub struct Stopped {
    tid: Tid,
    kind: StopKind,
    released: bool,
    watch: Option<Watch>,
    here: PhantomData<*const ()>,
}

/// Makes a ptrace request.
///
/// # Safety
/// Where the request takes `addr` or `data` as an address in this process, it must be the address
/// of a live object which the kernel may fill or read for the length that the request has.
pub(crate) unsafe fn request(
    operation: &'static str,
    code: libc::c_uint,
    tid: Tid,
    addr: usize,
    data: usize,
) -> Result<()> {
    watch::alive();
    // SAFETY: the caller promises that the addresses are valid for this request.
    let answer = unsafe {
        libc::ptrace(
            code as _,
            tid.raw(),
            addr as *mut libc::c_void,
            data as *mut libc::c_void,
        )
    };
    if answer == -1 {
        Err(Error::last(operation, tid))
    } else {
        Ok(())
    }
}

/// The requests that take no address in this process.
#[derive(Debug, Clone, Copy)]
enum Plain {
    /// With these options.
    Seize(i32),
    Interrupt,
    /// Lets the thread run on, delivering this signal (0: none).
    Continue(i32),
    /// The same, until the next start or end of a system call.
    ToSyscall(i32),
    /// Ends the tracing, delivering this signal.
    Detach(i32),
}

impl Plain {
    const fn name(self) -> &'static str {
        match self {
            Plain::Seize(_) => "PTRACE_SEIZE",
            Plain::Interrupt => "PTRACE_INTERRUPT",
            Plain::Continue(_) => "PTRACE_CONT",
            Plain::ToSyscall(_) => "PTRACE_SYSCALL",
            Plain::Detach(_) => "PTRACE_DETACH",
        }
    }

    fn make(self, tid: Tid) -> Result<()> {
        let (code, data) = match self {
            Plain::Seize(options) => (libc::PTRACE_SEIZE, options),
            Plain::Interrupt => (libc::PTRACE_INTERRUPT, 0),
            Plain::Continue(signal) => (libc::PTRACE_CONT, signal),
            Plain::ToSyscall(signal) => (libc::PTRACE_SYSCALL, signal),
            Plain::Detach(signal) => (libc::PTRACE_DETACH, signal),
        };
        // SAFETY: these requests take numbers only.
        unsafe { request(self.name(), code, tid, 0, data as usize) }
    }

    /// Makes the request and counts it as a step.
    fn step(self, tid: Tid) -> Result<()> {
        self.make(tid)?;
        fault::step(self.name());
        Ok(())
    }
}

impl Seized {
    /// Starts to trace `tid` without stopping it. With `suspend_seccomp` the thread's seccomp
    /// filters are off while it is traced; that takes CAP_SYS_ADMIN, and a tracer that is not under
    /// a filter itself.
    ///
    /// # Errors
    /// [`Error::System`] with EPERM when the thread may not be traced or already is, or with EAGAIN
    /// where this process must be watched and cannot be; [`Error::Gone`]; [`Error::TimedOut`] where
    /// the wait for the caller's work has ended ([`crate::Progress::give_up`]).
    pub fn seize(tid: impl Into<Tid>, suspend_seccomp: bool) -> Result<Seized> {
        let tid = tid.into();
        if progress::is_given_up() {
            return Err(Error::TimedOut {
                operation: "PTRACE_SEIZE",
                tid,
            });
        }
        let mut options = libc::PTRACE_O_TRACESYSGOOD;
        if suspend_seccomp {
            options |= libc::PTRACE_O_SUSPEND_SECCOMP;
        }
        let watch = Watch::begin().map_err(|source| Error::System {
            operation: "timer_create",
            tid,
            source,
        })?;
        with_added(|| Plain::Seize(options).make(tid))?;
        let seized = Seized {
            tid,
            released: false,
            watch: Some(watch),
            here: PhantomData,
        };
        fault::step("PTRACE_SEIZE");
        Ok(seized)
    }

    /// The thread's id.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Asks the thread to stop; [`Seized::wait`] tells when it has.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn interrupt(&self) -> Result<()> {
        Plain::Interrupt.step(self.tid)
    }

    /// Waits until the thread is stopped for any reason.
    ///
    /// # Errors
    /// [`Error::System`] when waiting itself fails.
    pub fn wait(mut self, deadline: Deadline) -> Result<Waited> {
        // Blocking for ever is not allowed here, and no descriptor becomes readable when a tracee
        // stops: so this polls.
        let mut pace = Pace::beside(self.tid);
        loop {
            let mut status = 0;
            // SAFETY: `status` outlives the call.
            let got =
                unsafe { libc::waitpid(self.tid.raw(), &mut status, libc::WNOHANG | libc::__WALL) };
            if got == self.tid.raw() {
                self.released = true;
                fault::step("waitpid");
                return Ok(match decode(status) {
                    Ok(kind) => Waited::Stopped(Stopped {
                        tid: self.tid,
                        kind,
                        released: false,
                        watch: self.watch.take(),
                        here: PhantomData,
                    }),
                    Err(death) => Waited::Gone(death),
                });
            }
            if got < 0 {
                let source = io::Error::last_os_error();
                match source.raw_os_error() {
                    Some(libc::EINTR) => continue,
                    Some(libc::ECHILD) => {
                        self.released = true;
                        return Ok(Waited::Gone(Death::Unknown));
                    }
                    _ => {
                        return Err(Error::System {
                            operation: "waitpid",
                            tid: self.tid,
                            source,
                        });
                    }
                }
            }
            if deadline.passed() {
                return Ok(Waited::TimedOut(self));
            }
            watch::alive();
            pace.rest();
        }
    }

    /// Waits for the stop that [`Seized::interrupt`] asked for. Signals that arrive before it are
    /// passed on to the thread.
    ///
    /// # Errors
    /// [`Error::TimedOut`] (the thread is still traced until the drop of this value has let it go),
    /// [`Error::Gone`].
    pub fn wait_for_event(self, deadline: Deadline) -> Result<Stopped> {
        let tid = self.tid;
        let operation = "PTRACE_INTERRUPT";
        let mut running = self;
        loop {
            match running.wait(deadline)? {
                Waited::Gone(death) => {
                    return Err(Error::Gone {
                        operation,
                        tid,
                        death,
                    });
                }
                Waited::TimedOut(_still) => return Err(Error::TimedOut { operation, tid }),
                Waited::Stopped(stopped) => match stopped.kind {
                    StopKind::Event | StopKind::Group(_) => return Ok(stopped),
                    StopKind::Signal(signal) => running = stopped.resume(signal)?,
                    // The interrupt stop follows before the thread is back in user code.
                    StopKind::Syscall => running = stopped.resume(0)?,
                },
            }
        }
    }
}

impl Drop for Seized {
    fn drop(&mut self) {
        if self.released {
            return;
        }
        // PTRACE_DETACH works on stopped threads only. If the thread does not stop in time
        // (uninterruptible sleep, or no processor time), it stays traced until our tracing thread
        // ends and the kernel lets it go.
        let again = Seized {
            tid: self.tid,
            released: true,
            watch: self.watch.take(),
            here: PhantomData,
        };
        if again.interrupt().is_err() {
            return;
        }
        if let Ok(stopped) = again.wait_for_event(Deadline::after(Duration::from_millis(20))) {
            drop(stopped);
        }
    }
}

fn decode(status: i32) -> std::result::Result<StopKind, Death> {
    if libc::WIFEXITED(status) {
        return Err(Death::Exited(libc::WEXITSTATUS(status)));
    }
    if libc::WIFSIGNALED(status) {
        return Err(Death::Killed(libc::WTERMSIG(status)));
    }
    if !libc::WIFSTOPPED(status) {
        return Err(Death::Unknown);
    }
    let signal = libc::WSTOPSIG(status);
    let event = status >> 16;
    Ok(match (event, signal) {
        (EVENT_STOP, libc::SIGTRAP) => StopKind::Event,
        (EVENT_STOP, other) => StopKind::Group(other),
        (0, other) if other == (libc::SIGTRAP | 0x80) => StopKind::Syscall,
        (0, other) => StopKind::Signal(other),
        // We ask for no other event. The kernel would report it with SIGTRAP, which must not reach
        // the program.
        (_, _) => StopKind::Event,
    })
}

impl Stopped {
    /// The thread's id.
    pub fn tid(&self) -> Tid {
        self.tid
    }
    /// Why the thread is stopped.
    pub fn kind(&self) -> StopKind {
        self.kind
    }

    /// Reads the thread's general registers.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn registers(&self) -> Result<Registers> {
        Registers::read(self.tid)
    }

    /// Sets all of the thread's general registers at once.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn set_registers(&self, regs: &Registers) -> Result<()> {
        regs.write(self.tid)?;
        fault::step("PTRACE_SETREGS");
        Ok(())
    }

    /// Reads the thread's vector and floating-point state, of the size that the kernel reports and
    /// in the processor's own format.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn extended_state(&self) -> Result<Vec<u8>> {
        arch::read_extended(self.tid)
    }

    /// Sets the extended state to what [`Stopped::extended_state`] returned.
    ///
    /// # Errors
    /// [`Error::System`] when the bytes are not such a state; [`Error::Gone`].
    pub fn set_extended_state(&self, bytes: &[u8]) -> Result<()> {
        arch::write_extended(self.tid, bytes)?;
        fault::step("PTRACE_SETREGSET");
        Ok(())
    }

    /// Whether the thread also keeps its return addresses on a second stack; such a thread cannot
    /// be sent to other code. True only where it takes a stop to find out; elsewhere `/proc` tells.
    pub fn has_shadow_stack(&self) -> bool {
        arch::shadow_stack(self.tid)
    }

    /// Reads the thread's signal mask.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn signal_mask(&self) -> Result<SignalMask> {
        let mut mask = 0_u64;
        // SAFETY: the kernel fills the 8 bytes of `mask`.
        unsafe {
            request(
                "PTRACE_GETSIGMASK",
                PTRACE_GETSIGMASK,
                self.tid,
                8,
                (&raw mut mask) as usize,
            )
        }?;
        Ok(SignalMask(mask))
    }

    /// Sets the thread's signal mask.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn set_signal_mask(&self, mask: SignalMask) -> Result<()> {
        // SAFETY: the kernel reads the 8 bytes of `mask`.
        unsafe {
            request(
                "PTRACE_SETSIGMASK",
                PTRACE_SETSIGMASK,
                self.tid,
                8,
                (&raw const mask.0) as usize,
            )
        }?;
        fault::step("PTRACE_SETSIGMASK");
        Ok(())
    }

    /// Reads the thread's seccomp filters, the last installed one first. Instructions have eight
    /// bytes each (`struct sock_filter`). Empty when there are none.
    ///
    /// # Errors
    /// [`Error::System`] with EACCES without CAP_SYS_ADMIN or when this process is under a filter
    /// itself, EIO where the kernel cannot tell; [`Error::Gone`].
    pub fn seccomp_filters(&self) -> Result<Vec<Vec<[u8; 8]>>> {
        let get = |index: usize, to: *mut [u8; 8]| -> Result<usize> {
            with_added(|| {
                // SAFETY: `to` is null, which asks for the length, or has space for as many
                // instructions as that call said. Filters are never changed, and the thread is
                // stopped.
                let answer = unsafe {
                    libc::ptrace(
                        PTRACE_SECCOMP_GET_FILTER as _,
                        self.tid.raw(),
                        index as *mut libc::c_void,
                        to.cast::<libc::c_void>(),
                    )
                };
                let name = "PTRACE_SECCOMP_GET_FILTER";
                usize::try_from(answer).map_err(|_| Error::last(name, self.tid))
            })
        };
        let mut filters = Vec::new();
        loop {
            let len = match get(filters.len(), std::ptr::null_mut()) {
                Ok(len) => len,
                // There are no more filters, or none at all.
                Err(error) if matches!(error.errno(), Some(libc::ENOENT | libc::EINVAL)) => break,
                Err(error) => return Err(error),
            };
            let mut program = vec![[0; 8]; len];
            get(filters.len(), program.as_mut_ptr())?;
            filters.push(program);
        }
        filters.reverse();
        Ok(filters)
    }

    /// Whether the thread's system calls may be turned into signals (syscall user dispatch: Wine,
    /// emulators). Calls from our code would then be taken for the program's. Kernels before Linux
    /// 6.4 do not tell, and this returns false; use [`Stopped::call_was_dispatched`] there.
    pub fn dispatches_calls(&self) -> bool {
        // struct ptrace_sud_config (linux/ptrace.h): mode, selector, offset, length. Mode 0 is off.
        let mut configuration = [0_u64; 4];
        // SAFETY: the kernel fills `configuration`, whose length it receives.
        let told = unsafe {
            request(
                "PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG",
                PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG,
                self.tid,
                std::mem::size_of_val(&configuration),
                (&raw mut configuration) as usize,
            )
        };
        told.is_ok() && configuration[0] != 0
    }

    /// Whether the thread is stopped at the signal that syscall user dispatch made of a system
    /// call. Kernels before Linux 6.4 reveal the dispatch in no other way.
    ///
    /// # Errors
    /// [`Error::System`] when the thread is not stopped at a signal; [`Error::Gone`].
    pub fn call_was_dispatched(&self) -> Result<bool> {
        /// `SYS_USER_DISPATCH` (asm-generic/siginfo.h).
        const BY_DISPATCH: i32 = 2;
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: the kernel writes one `siginfo_t`, for which there is room.
        unsafe {
            request(
                "PTRACE_GETSIGINFO",
                libc::PTRACE_GETSIGINFO as libc::c_uint,
                self.tid,
                0,
                info.as_mut_ptr() as usize,
            )
        }?;
        // SAFETY: all bytes are initialised (zero at first), and any bytes are a valid `siginfo_t`.
        let info = unsafe { info.assume_init() };
        Ok(info.si_signo == libc::SIGSYS && info.si_code == BY_DISPATCH)
    }

    /// The thread's restartable-sequences area: its address, its length, and the signature that it
    /// was registered with. None when the thread registered none.
    ///
    /// # Errors
    /// [`Error::System`] on kernels that do not tell (before Linux 5.13); [`Error::Gone`].
    pub fn restartable_sequences(&self) -> Result<Option<(RemoteAddr, u32, u32)>> {
        // struct ptrace_rseq_configuration (linux/ptrace.h): address, size, signature, flags,
        // padding.
        let mut configuration = [0_u64; 3];
        // SAFETY: the kernel fills `configuration`, whose length it receives.
        unsafe {
            request(
                "PTRACE_GET_RSEQ_CONFIGURATION",
                PTRACE_GET_RSEQ_CONFIGURATION,
                self.tid,
                std::mem::size_of_val(&configuration),
                (&raw mut configuration) as usize,
            )
        }?;
        let [address, size_and_signature, _] = configuration;
        let (size, signature) = (size_and_signature as u32, (size_and_signature >> 32) as u32);
        Ok((address != 0).then_some((RemoteAddr::new(address), size, signature)))
    }

    /// Lets the thread run on, delivering `signal` (0: none).
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn resume(self, signal: i32) -> Result<Seized> {
        self.go(Plain::Continue(signal))
    }

    /// Lets the thread run to the next start or end of a system call.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn resume_to_syscall(self) -> Result<Seized> {
        self.go(Plain::ToSyscall(0))
    }

    /// As [`Stopped::resume_to_syscall`], and delivers `signal` on the way.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn resume_to_syscall_with(self, signal: i32) -> Result<Seized> {
        self.go(Plain::ToSyscall(signal))
    }

    fn go(mut self, how: Plain) -> Result<Seized> {
        how.make(self.tid)?;
        self.released = true;
        fault::step(how.name());
        Ok(Seized {
            tid: self.tid,
            released: false,
            watch: self.watch.take(),
            here: PhantomData,
        })
    }

    /// Asks for one more stop before the thread is back in user code. Then resume the thread, and
    /// wait.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn interrupt_again(&self) -> Result<()> {
        Plain::Interrupt.step(self.tid)
    }

    /// Ends the tracing. A pending signal is delivered, and a group stop stays in force.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn detach(self) -> Result<()> {
        let signal = match self.kind {
            StopKind::Signal(signal) => signal,
            _ => 0,
        };
        self.detach_with(signal)
    }

    /// Ends the tracing, and delivers `signal` instead of a pending one (0: none).
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn detach_with(mut self, signal: i32) -> Result<()> {
        self.released = true;
        Plain::Detach(signal).step(self.tid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if self.released {
            return;
        }
        let signal = match self.kind {
            StopKind::Signal(signal) => signal,
            _ => 0,
        };
        // Nothing can be done about a failure: the thread is gone then.
        let _gone = Plain::Detach(signal).make(self.tid);
    }
}
