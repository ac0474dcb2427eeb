//! The way in: look, enter, offer the session; and the words for every refusal of the engine.

use crate::cuda::{self, ForCuda};
use crate::cupti;
use crate::install::{Install, Tools};
use crate::request::{Entry, Request};
use crate::rights;
use crate::room;
use crate::runtime::{self, AMD_NAMES, Brand};
use crate::session::{NO_OFFER, Prepared, Session};
use crate::target::Target;
use crate::turn::Turn;
use midair_failure::{Failure, Kind};
use midair_inject::{Approach, EnterError, Grade, Options, Refusal, Tier, approach, enter_by};
use midair_procinfo::module::Modules;
use midair_procinfo::{Tid, task};
use midair_record::spool::SETTINGS;
use midair_results::Identity;
use std::path::PathBuf;
use std::time::{Duration, Instant};

impl Session {
    /// Attaches. When it returns, calls and kernels are being recorded.
    ///
    /// # Errors
    /// What forbids or went wrong; the target is then as it was.
    pub fn attach(request: &Request) -> Result<Session, Failure> {
        Session::attach_with(request, &Install::find()?, &Options::default())
    }

    /// [`Session::attach`] with libraries and deadlines of the caller's choice.
    ///
    /// # Errors
    /// As [`Session::attach`].
    pub fn attach_with(
        request: &Request,
        install: &Install,
        options: &Options,
    ) -> Result<Session, Failure> {
        match Session::attach_once(request, install, options) {
            // Our thread waits some seconds for an offer. Where this process had no turn for so long, nothing was begun: once more.
            Err(failure) if failure.what.starts_with(NO_OFFER) => {
                Session::attach_once(request, install, options)
            }
            done => done,
        }
    }

    fn attach_once(
        request: &Request,
        install: &Install,
        options: &Options,
    ) -> Result<Session, Failure> {
        let began = Instant::now();
        let root = root_of(request.pid);
        let mut tools = install.tools(&request.settings, &root)?;
        let _turn = Turn::take(request.pid)?;
        let mut approach = approach_to(request.pid)?;
        // A session that is complete is still being cleared away for a moment, longer where memory is locked.
        let patience = Instant::now() + CLEARING;
        while is_at_work(&approach) && Instant::now() < patience {
            std::thread::sleep(CLEARING / 20);
            approach = approach_to(request.pid)?;
        }
        let (brand, other) =
            runtime::chosen(&approach, options)?.ok_or_else(|| not_gpu(request.pid))?;
        let library = brand.library(install)?;
        let mut said = Said::from_other(other);
        let for_cuda;
        let request = match brand {
            Brand::Amd => {
                tools.for_process(approach.tid, install)?;
                if let Ok(look) = &approach.look {
                    one_of_each(look.pid, &look.modules)?;
                }
                request
            }
            Brand::Cuda => {
                for_cuda = cuda::request(request, &tools, install, approach.tid)?;
                if let Ok(look) = &approach.look {
                    cupti::must_be_had(look, &request.settings)?;
                }
                said.take(&for_cuda);
                tools = Tools::default();
                &for_cuda.request
            }
        };
        // Open it before entering, and check that it is still the process that was looked at.
        let pid = approach.pid;
        let held = Target::hold(pid as u32)?;
        let mut identity = Identity::read(pid as u32, approach.tid.cast_unsigned());
        if brand == Brand::Cuda {
            identity.without_driver = None;
        }
        check_request(request, &identity)?;
        room::check_ours(&brand.file(install), &tools, request)?;
        if let Ok(look) = &approach.look {
            room::check(look, brand, &tools, request)?;
        }
        // The spool and the tools are made ready while the engine enters: neither needs the other.
        let (prepared, entered) = std::thread::scope(|scope| {
            let prepare = scope.spawn(|| Prepared::make(identity, &tools, install, request));
            let entered = enter_by(&approach, &library, options);
            let panicked = |_| Err(Failure::new(Kind::Setup, "making the session ready failed"));
            (prepare.join().unwrap_or_else(panicked), entered)
        });
        let entered = entered.map_err(|error| failure_by(&approach, &error))?;
        let entry = Entry {
            via: via(&entered.via),
            rejected: entered
                .via
                .rejected
                .iter()
                .map(ToString::to_string)
                .collect(),
            seize: entered.times.seize,
            stub: entered.times.stub,
            release: entered.times.release,
            looks: entered.times.looks,
            looked: entered.times.looked,
            cuda: brand == Brand::Cuda,
            warnings: said.warnings,
            notes: said.notes,
            ..Entry::default()
        };
        let target = held.with_agent(entered.agent_tid as u32);
        // Hanging up on our thread, which dropping `entered` does, ends its wait for an offer: it parks.
        match Session::over(target, &entered.channel, prepared?, request, entry) {
            Ok(mut session) => {
                session.attached_after(began.elapsed());
                Ok(session)
            }
            Err(failure) => {
                // What our thread says of itself explains more than the silence on the channel. It has then ended, or will not
                // park: its mappings go.
                let Some(error) = entered.failure() else {
                    // A process that has ended meanwhile, or stands still, is silent, too.
                    return Err(match entered.interrupted() {
                        Some(error) if failure.kind == Kind::Setup => failure_of(pid, &error),
                        _ => failure,
                    });
                };
                let _undone = entered.withdraw(options);
                Err(failure_of(pid, &error))
            }
        }
    }
}

/// What is to be said of an attach.
#[derive(Debug, Default)]
struct Said {
    warnings: Vec<String>,
    notes: Vec<String>,
}

impl Said {
    fn from_other(warning: Option<String>) -> Said {
        Said {
            warnings: warning.into_iter().collect(),
            notes: Vec::new(),
        }
    }

    fn take(&mut self, told: &ForCuda) {
        self.warnings.extend_from_slice(&told.warnings);
        self.notes.extend_from_slice(&told.notes);
    }
}

/// How long a session that was on may take to be gone before another one is told that it is on.
const CLEARING: Duration = Duration::from_millis(400);

/// Whether our thread is in the process and does not wait for anybody.
fn is_at_work(approach: &Approach) -> bool {
    let agent = approach.look.as_ref().ok().and_then(|look| look.agent);
    agent.is_some_and(|agent| !agent.is_parked() && agent.block.is_none())
}

/// What would fail after the attach fails before it: settings that do not fit, results that could not be written.
fn check_request(request: &Request, identity: &Identity) -> Result<(), Failure> {
    let bytes = request
        .settings
        .encode()
        .map_err(|error| Failure::new(Kind::Usage, error.to_string()))?
        .len();
    if bytes > SETTINGS {
        return Err(Failure::new(
            Kind::Usage,
            format!("the settings take {bytes} bytes, more than {SETTINGS}"),
        )
        .hint("unset ROCPROF_* variables with long values"));
    }
    results_fit(request, identity).map(drop)
}

/// Whether the real user can write where the settings say; the directory.
pub(crate) fn results_fit(request: &Request, identity: &Identity) -> Result<PathBuf, Failure> {
    rights::as_real_user(|| midair_results::check(&request.settings, identity))
        .unwrap_or_else(|error| Err(laid_down(&error)))
}

/// A thread of a process that has not ended.
pub(crate) fn live(pid: u32) -> Option<Tid> {
    task::live(Tid::try_from(pid).ok()?).ok()?
}

/// Where a process's files are, as it sees them. A first thread that has ended has no root: another one tells.
pub(crate) fn root_of(pid: u32) -> PathBuf {
    let tid = live(pid).map_or(pid, Tid::cast_unsigned);
    PathBuf::from(format!("/proc/{pid}/task/{tid}/root"))
}

/// Files would be written with other rights than those of who runs this.
pub(crate) fn laid_down(error: &std::io::Error) -> Failure {
    Failure::new(
        Kind::Output,
        format!("the rights that this program adds to yours cannot be laid down: {error}"),
    )
    .hint("run it without its set-uid bit or file capabilities")
}

/// Why this process cannot be attached to, if a look at it tells.
pub(crate) fn refusal(pid: u32) -> Option<Failure> {
    let seen =
        approach_to(pid).and_then(|approach| runtime::chosen(&approach, &Options::default()));
    match seen {
        Ok(Some(_)) => None,
        Ok(None) => Some(not_gpu(pid)),
        Err(failure) => Some(failure),
    }
}

fn approach_to(pid: u32) -> Result<Approach, Failure> {
    let number = i32::try_from(pid)
        .map_err(|_| Failure::new(Kind::NoProcess, format!("there is no process {pid}")))?;
    if pid == std::process::id() {
        return Err(itself(pid));
    }
    let approach = approach(number).map_err(|refusal| failure_of_refusal(&refusal))?;
    match rights::protected(approach.tid) {
        Some(failure) => Err(failure),
        None => Ok(approach),
    }
}

/// The words for what went wrong. Where the listener did not serve, what forbids tracing is the failure, and why it did not is told
/// with it.
pub(crate) fn failure_by(approach: &Approach, error: &EnterError) -> Failure {
    match (error, &approach.look) {
        (EnterError::NoDoor { why }, Err(refusal)) => {
            let mut failure = failure_of_refusal(refusal);
            failure.what = format!("{}; {why}", failure.what);
            failure
        }
        _ => failure_of(approach.pid, error),
    }
}

pub(crate) fn itself(pid: u32) -> Failure {
    Failure::new(Kind::Usage, format!("process {pid} is this program itself"))
        .hint("name another process: see midair ps")
}

/// Refuses a process with two copies of one runtime: which of them it works with cannot be told, and a trace of the other would look
/// as if nothing had happened.
pub(crate) fn one_of_each(pid: i32, modules: &Modules) -> Result<(), Failure> {
    for usual in AMD_NAMES {
        let mut copies = modules
            .list
            .iter()
            .filter(|module| module.file_name().starts_with(usual))
            .map(|module| midair_procinfo::show(&module.path));
        if let (Some(first), Some(second)) = (copies.next(), copies.next()) {
            return Err(Failure::new(
                Kind::Ambiguous,
                format!(
                    "process {pid} has two copies of {}: {first} and {second}",
                    String::from_utf8_lossy(usual)
                ),
            )
            .hint("let the program load one (see LD_LIBRARY_PATH, RUNPATH, and what its Python packages bring)"));
        }
    }
    Ok(())
}

pub(crate) fn not_gpu(pid: u32) -> Failure {
    Failure::new(
        Kind::NotGpu,
        format!("process {pid} has no HIP, HSA or CUDA runtime loaded"),
    )
    .hint("is it the right process? A launcher often runs the work in a child: see ps --forest")
}

pub(crate) fn busy(pid: u32, state: &str) -> Failure {
    Failure::new(Kind::Busy, format!("process {pid} is attached already ({state})"))
        .hint("wait for the other session to end, or end it; when its attacher died, its lease runs out within seconds")
}

fn via(via: &midair_inject::Via) -> String {
    let how = match via.tier {
        Tier::Socket => "the listener of the process, over its socket",
        Tier::OwnThread => "our own thread of an earlier session",
        Tier::Listener => "the listener thread of a register library",
        Tier::Parked(_) => "a parked thread",
        Tier::SafePoint => "a running thread at a safe point",
    };
    let grade = match via.tier {
        Tier::Parked(grade) => grade.words(),
        Tier::SafePoint => Grade::SafePoint.words(),
        Tier::Socket | Tier::OwnThread | Tier::Listener => "made for that",
    };
    format!("{how}: {} ({}), {} ({grade})", via.tid, via.name, via.doing)
}

pub(crate) fn failure_of_refusal(refusal: &Refusal) -> Failure {
    let (kind, hint) = match refusal {
        Refusal::NoProcess { .. } => (
            Kind::NoProcess,
            "midair ps lists the processes that use a GPU",
        ),
        Refusal::Zombie { .. } => (
            Kind::Zombie,
            "its parent has not reaped it; there is nothing left to look at",
        ),
        Refusal::KernelThread { .. } => {
            (Kind::KernelThread, "only user programs use a GPU runtime")
        }
        Refusal::NotPermitted { hint, .. } => (Kind::NotPermitted, *hint),
        Refusal::Traced { .. } => (
            Kind::Busy,
            "end that tracer first (gdb, strace, another profiler)",
        ),
        Refusal::Stopped { .. } => (
            Kind::Stopped,
            "let it go on first (kill -CONT, or fg in its shell)",
        ),
        Refusal::Architecture { .. } => (
            Kind::Architecture,
            "use a build of midair for that machine type",
        ),
        Refusal::LibcTooOld { .. } => (
            Kind::Libc,
            "processes on glibc 2.34 or newer can be entered",
        ),
        Refusal::LibcKind { .. } => (
            Kind::Libc,
            "our libraries need glibc 2.34 or newer in the process",
        ),
        Refusal::Seccomp { .. } => (
            Kind::Filtered,
            "start the process without seccomp's strict mode",
        ),
        Refusal::Filtered { .. } => (
            Kind::Filtered,
            "let the filter allow that call, or load our register library into the process at its start: its listener needs fewer",
        ),
        Refusal::SharesMemory { .. } => (
            Kind::Enter,
            "attach to its parent, or again once it has started its program",
        ),
        Refusal::FilterUnread { .. } => (
            Kind::Filtered,
            "run this as root outside of the container, or inside of it under the same filters",
        ),
        Refusal::Dispatches { .. } => (
            Kind::Filtered,
            "it cannot be entered while it does; run its native form",
        ),
        Refusal::NoProc { .. } => (
            Kind::NoProc,
            "mount one there: nsenter --mount --pid --target PID mount -t proc proc /proc",
        ),
        _ => (Kind::Enter, "run this as root"),
    };
    Failure::new(kind, refusal.to_string()).hint(hint)
}

fn failure_of(pid: i32, error: &EnterError) -> Failure {
    let (kind, hint) = match error {
        EnterError::Refused(refusal) => return failure_of_refusal(refusal),
        EnterError::NoneParked { .. } => (
            Kind::NoParkedThread,
            "try again: threads park between pieces of work",
        ),
        EnterError::Busy { state, .. } => return busy(pid as u32, state),
        EnterError::OtherVersion { .. } | EnterError::OtherBuild { .. } => (
            Kind::Busy,
            "use the midair that attached first, or restart the process",
        ),
        EnterError::Gone { .. } | EnterError::Replaced { .. } => (Kind::NoProcess, ""),
        EnterError::Standing { .. } => (
            Kind::Stopped,
            "let it go on first: in its debugger, by kill -CONT, or by fg in its shell",
        ),
        // The look had found no tracer and that we may: one has come since.
        EnterError::Engine { source, .. } if source.errno() == Some(libc::EPERM) => {
            return busy(pid as u32, "another tracer holds a thread of it just now");
        }
        // Our library says so where another copy of it is at work.
        EnterError::Boot { errno, .. } if *errno == libc::EBUSY => {
            return busy(pid as u32, "by another copy of midair");
        }
        // Limits that were not looked at, or that were met meanwhile. What was begun is undone.
        EnterError::ThreadRefused { errno } if *errno == libc::EAGAIN => (
            Kind::NoRoom,
            "its user has as many threads as it may (RLIMIT_NPROC), or its pids cgroup is full: raise that limit",
        ),
        EnterError::SystemCall { errno, .. } | EnterError::Boot { errno, .. }
            if [libc::ENOMEM, libc::EAGAIN, libc::EMFILE, libc::ENFILE].contains(errno) =>
        {
            (
                Kind::NoRoom,
                "a limit of the process is met (address space, locked memory, mappings, descriptors): see midair doctor",
            )
        }
        EnterError::PathUnseen { .. } => (
            Kind::NoProc,
            "it must see itself in /proc: nsenter --mount --pid --target PID mount -t proc proc /proc",
        ),
        EnterError::Boot { .. } => (Kind::Setup, ""),
        _ => (Kind::Enter, "the process goes on as before"),
    };
    Failure::new(kind, error.to_string()).hint(hint)
}
