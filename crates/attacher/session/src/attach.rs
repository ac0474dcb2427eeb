//! Attaching to one process: inspect it, enter it, offer the session.

use crate::answer;
use crate::counters;
use crate::cuda::{self, CudaRequest};
use crate::cupti;
use crate::entry_lock::EntryLock;
use crate::explain;
use crate::gpu_metrics;
use crate::headroom;
use crate::identity;
use crate::install::{Install, Tools};
use crate::packets::TargetRoot;
use crate::process::{live, root_of, sees_us};
use crate::request::{Entry, Phases, Request};
use crate::rights;
use crate::runtime::{self, Platform};
use crate::session::{Prepared, Session, StartError};
use crate::starting::Starting;
use crate::target::Target;
use midair_failure::{Failure, Kind};
use midair_inject::{Approach, EnterError, EntryPath, Grade, Options, approach, enter_by};
use midair_output::RecordWriter;
use midair_procinfo::Pid;
use midair_procinfo::maps::Mapping;
use midair_record::spool::SETTINGS;
use midair_results::Identity;
use midair_settings::EXTRA_COUNTERS;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Session {
    /// Attaches. When this returns, calls and kernels are being recorded.
    ///
    /// # Errors
    /// What forbids the attach, or what went wrong. The target is then as it was before.
    pub fn attach(request: &Request) -> Result<Session, Failure> {
        Session::attach_with(request, &Install::find()?, &Options::default())
    }

    /// [`Session::attach`] with the libraries of this installation.
    ///
    /// # Errors
    /// As [`Session::attach`].
    pub fn attach_from(install: &Install, request: &Request) -> Result<Session, Failure> {
        Session::attach_with(request, install, &Options::default())
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
        headroom::require_descriptors(headroom::FOR_ONE)?;
        let starting = Starting::of(request.pid, request.wait);
        let alive = Target::hold(request.pid)
            .ok()
            .filter(|target| target.ended().is_none());
        let killed = |failure| match &alive {
            Some(target) => explain::killed(target, failure),
            None => failure,
        };
        let (mut options, mut tries) = (options.clone(), 1);
        let limit = Instant::now() + OFFERS;
        loop {
            // A process that is starting can be entered at one moment and not at the next.
            let options_now = Options {
                find: options.find.max(starting.left().min(FIND_LONGEST)),
                ..options.clone()
            };
            match Session::attach_once(request, install, &options_now) {
                // The worker thread waits some seconds for the offer. If this process got no
                // processor for so long, nothing has started, and the attach is tried again in the
                // time that is left. The worker thread then waits longer.
                Err(StartError::OfferNotTaken(_)) if tries < 2 || Instant::now() < limit => {
                    tries += 1;
                    options.boot = (2 * options.boot).min(OFFERS);
                }
                Err(StartError::OfferNotTaken(mut failure)) => {
                    failure.what = format!("{}; {tries} attempts were made", failure.what);
                    return Err(failure);
                }
                // The worker thread of the attempt before has not given up yet.
                Err(StartError::Claimed(_)) if tries > 1 && Instant::now() < limit => {
                    std::thread::sleep(CLAIMED);
                }
                Err(StartError::Claimed(failure)) => return Err(failure),
                // A shell, then `env`, then the program: all of them are the process that was
                // asked for.
                Err(StartError::OtherProgram(failure)) => {
                    let lives = alive.as_ref().is_some_and(|it| it.ended().is_none());
                    if !lives || !starting.rests() {
                        return Err(killed(failure));
                    }
                }
                Err(StartError::Failed(failure)) if starting.goes_on(&failure) => {}
                Err(StartError::Failed(failure)) => return Err(killed(starting.over(failure))),
                Ok(session) => return Ok(session),
            }
        }
    }

    fn attach_once(
        request: &Request,
        install: &Install,
        options: &Options,
    ) -> Result<Session, StartError> {
        let (began, processor) = (Instant::now(), processor_time());
        let mut phases = Phases::default();
        let _lock = EntryLock::acquire(request.pid)?;
        // Everything that is read of the process before it is entered is read on another thread,
        // since the process may block whoever reads it.
        let asked = (request.clone(), install.clone(), options.clone());
        let looked = answer::within(request.pid, 2 * answer::LIMIT, move || {
            let (request, install, options) = asked;
            Looked::at(request, &install, &options)
        });
        let Looked {
            approach,
            platform,
            tools,
            request,
            held,
            identity,
            there,
            sees_us,
            remarks,
        } = looked??;
        phases.inspect = began.elapsed();
        // Whatever can be refused is refused before the process is entered.
        let counters = match platform {
            Platform::Amd => counters::prepare(&request.settings, &identity, install, there)?,
            Platform::Cuda => None,
        };
        let gpu = match platform {
            Platform::Cuda => gpu_metrics::start(request.pid, &request.settings, install)?,
            Platform::Amd if gpu_metrics::is_asked(&request.settings) => {
                return Err(gpu_metrics::not_here().into());
            }
            Platform::Amd => None,
        };
        let (pid, request) = (approach.pid, &request);
        let library = platform.library(install)?;
        // The spool and the tools are prepared while the engine enters: neither depends on the other.
        // The process may block its attacher, too.
        let approach = Arc::new(approach);
        let entering = Instant::now();
        let (prepared, entered) = std::thread::scope(|scope| {
            let prepare = scope.spawn(|| {
                let made = Prepared::make(identity, &tools, counters, install, request, sees_us);
                (made, entering.elapsed())
            });
            let (approach, options) = (Arc::clone(&approach), options.clone());
            let enter = move || enter_by(&approach, &library, &options);
            let entered = answer::entering(pid, answer::LIMIT, enter);
            phases.enter = entering.elapsed();
            let (prepared, took) = prepare.join().unwrap_or_else(|_| {
                let failure = Failure::new(Kind::Setup, "cannot prepare the session");
                (Err(failure), Duration::ZERO)
            });
            phases.prepare = took;
            (prepared, entered)
        });
        let entered = entered?.map_err(|error| {
            let failure = explain::not_entered(&approach, &error);
            match error {
                EnterError::Ours { source, .. } if hung_up(&source) => {
                    not_taken(pid, &failure.what)
                }
                error if error.is_lost_patience() => not_taken(pid, &failure.what),
                error if explain::is_claimed(&approach, &error) => StartError::Claimed(failure),
                EnterError::Replaced { begun: false, .. } => StartError::OtherProgram(failure),
                _ => StartError::Failed(failure),
            }
        })?;
        let entry = Entry {
            via: via(&entered.via),
            is_own_thread: matches!(entered.via.path, EntryPath::OwnThread),
            rejected: entered
                .via
                .rejected
                .iter()
                .map(ToString::to_string)
                .collect(),
            seize: entered.times.seize,
            stub: entered.times.stub,
            release: entered.times.release,
            unusable_stops: entered.times.looks,
            unusable_stop_time: entered.times.looked,
            cuda: platform == Platform::Cuda,
            warnings: remarks.warnings,
            notes: remarks.notes,
            ..Entry::default()
        };
        // Permission for the tools, and for a CUPTI that the caller named, was given for the rights
        // that were inspected. So these must not have changed.
        entered.require_same_rights().map_err(|error| {
            match (entered.interrupted(), &error) {
                // The worker thread waited and gave up by itself. The process goes on.
                (None, EnterError::Gone { .. }) => not_taken(pid, "its thread ended"),
                (Some(what), EnterError::Gone { .. }) => explain::failed(pid, &what).into(),
                _ => explain::failed(pid, &error).into(),
            }
        })?;
        let target = held.with_worker(entered.worker_tid);
        // Dropping `entered` closes our end of the channel. That ends the worker thread's wait for
        // an offer, and it parks.
        let prepared = prepared?;
        let offering = Instant::now();
        match Session::over(target, &entered.channel, prepared, request, entry) {
            Ok(mut session) => {
                phases.set_up = offering.elapsed();
                phases.processor = processor_time().saturating_sub(processor);
                session.attached_after(began.elapsed(), phases);
                session.sample(gpu);
                Ok(session)
            }
            Err(start) => {
                // The worker thread's own report explains more than the silence on the channel. A
                // thread that reports has ended or will not park, so its mappings are removed.
                let options = options.clone();
                let withdraw = move || match entered.failure() {
                    None => Err(entered.interrupted()),
                    Some(error) => {
                        let _undone = entered.withdraw(&options);
                        Ok(error)
                    }
                };
                let error = match answer::entering(pid, answer::LIMIT, withdraw)? {
                    Ok(error) => error,
                    // A process that has ended meanwhile, or is stopped, is silent as well.
                    Err(Some(error)) if start.failure().kind == Kind::Setup => {
                        return Err(explain::failed(pid, &error).into());
                    }
                    Err(_) => return Err(start),
                };
                let failure = explain::not_entered(&approach, &error);
                // It gave up at the moment at which it was sent the library.
                Err(match error.is_lost_patience() {
                    true => not_taken(pid, &failure.what),
                    false => failure.into(),
                })
            }
        }
    }
}

/// Returns the processor time of this process and of its helpers that have ended, so far.
fn processor_time() -> Duration {
    let used = [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN].map(|who| {
        getrusage(who).map_or(0, |used| {
            (used.user_time() + used.system_time()).num_microseconds()
        })
    });
    Duration::from_micros(used.iter().map(|us| u64::try_from(*us).unwrap_or(0)).sum())
}

/// The longest search for a thread before the process is inspected afresh.
const FIND_LONGEST: Duration = Duration::from_secs(10);
/// How long an attach is tried again when the worker thread gives up before it gets the offer.
const OFFERS: Duration = Duration::from_secs(30);
/// The pause before the next attempt while the worker thread of the last one has the process.
const CLAIMED: Duration = Duration::from_millis(100);
/// The remedy where the worker thread gave up each time.
pub(crate) const OFFER_HINT: &str =
    "attach on a less loaded machine: this process or the target did not run for seconds";

/// Returns the refusal for a worker thread that gave up before it got the offer, which is tried
/// again.
fn not_taken(pid: Pid, why: &str) -> StartError {
    let what = explain::offer_not_taken(pid, why);
    StartError::OfferNotTaken(Failure::new(Kind::Setup, what).hint(OFFER_HINT))
}

/// Whether the error says that the other side closed the channel.
fn hung_up(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected, UnexpectedEof};
    [BrokenPipe, ConnectionReset, NotConnected, UnexpectedEof].contains(&error.kind())
}

/// What must be known about a process before it is entered.
struct Looked {
    approach: Approach,
    platform: Platform,
    tools: Tools,
    /// The request as it applies to this process.
    request: Request,
    held: Target,
    identity: Identity,
    /// The root of a process whose counters are asked for, where it is another one than ours.
    there: Option<Result<TargetRoot, String>>,
    /// See [`Prepared::make`].
    sees_us: bool,
    remarks: Remarks,
}

impl Looked {
    /// Inspects the process, and refuses what can be seen to fail.
    fn at(request: Request, install: &Install, options: &Options) -> Result<Looked, Failure> {
        let root = root_of(request.pid);
        let mut tools = install.tools(&request.settings, root.as_ref())?;
        let mut approach = approach_to(request.pid)?;
        // The worker thread of a complete session needs a moment to park, and longer where memory
        // is locked.
        let looked = Instant::now();
        while worker_is_busy(&approach) && looked.elapsed() < clearing(&approach) {
            std::thread::sleep(CLEARING / 20);
            approach = approach_to(request.pid)?;
        }
        // What the worker thread would refuse inside is refused before anything is touched.
        if let Ok(look) = &approach.inspection
            && let Some(own) = look.recorder
            && !own.makes_way
        {
            return Err(explain::kept(request.pid, Some(own.tid)));
        }
        let (platform, other) =
            runtime::detect(&approach, options)?.ok_or_else(|| explain::not_gpu(request.pid))?;
        // Missing libraries are reported before anything else about the process.
        platform.library(install)?;
        let mut remarks = Remarks::from_warning(other);
        let request = match platform {
            Platform::Amd => {
                cuda::refuse_cuda_alone(&request)?;
                tools.for_process(approach.tid, install)?;
                if let Ok(look) = &approach.inspection {
                    runtime::refuse_two_copies(look.pid, &look.modules)?;
                    runtime::refuse_other_namespace(look.pid, &look.modules, platform)?;
                }
                request
            }
            Platform::Cuda => {
                let for_cuda = cuda::request(&request, &tools, install, approach.tid)?;
                if let Ok(look) = &approach.inspection {
                    runtime::refuse_other_namespace(look.pid, &look.modules, platform)?;
                    cupti::require_cupti(look, &request.settings)?;
                }
                remarks.add(&for_cuda);
                tools = Tools::default();
                for_cuda.request
            }
        };
        // Take hold of the process before entering it, and check that it is still the one that was inspected.
        let held = Target::hold(approach.pid)?;
        let mut identity = identity::read(approach.pid, approach.tid);
        if platform == Platform::Cuda {
            identity.without_driver = None;
        }
        let worker = approach
            .inspection
            .as_ref()
            .ok()
            .and_then(|look| look.worker);
        identity.attached_before = worker.is_some_and(|worker| worker.is_parked());
        check_request(&request, &identity)?;
        headroom::check_ours(&platform.file(install), &tools, &request)?;
        if let Ok(look) = &approach.inspection {
            headroom::check(look, platform, &tools, &request)?;
        }
        let sees_us = sees_us(approach.tid);
        let counts = platform == Platform::Amd && counters::are_asked(&request.settings);
        let there = counts.then(|| TargetRoot::of(&approach, &held, &identity, install));
        Ok(Looked {
            approach,
            platform,
            tools,
            request,
            held,
            identity,
            there: there.flatten(),
            sees_us,
            remarks,
        })
    }
}

/// What to report about an attach that succeeded.
#[derive(Debug, Default)]
struct Remarks {
    warnings: Vec<String>,
    notes: Vec<String>,
}

impl Remarks {
    fn from_warning(warning: Option<String>) -> Remarks {
        Remarks {
            warnings: warning.into_iter().collect(),
            notes: Vec::new(),
        }
    }

    fn add(&mut self, adapted: &CudaRequest) {
        self.warnings.extend_from_slice(&adapted.warnings);
        self.notes.extend_from_slice(&adapted.notes);
    }
}

/// How long the previous session may take to clean up before the process counts as busy.
const CLEARING: Duration = Duration::from_millis(400);

/// The same where the process has no memory of a session any more. Then its worker thread only needs a
/// processor, which it may not get for long on a busy machine.
const PARKING: Duration = Duration::from_secs(3);

/// Returns how long to wait for the worker thread.
fn clearing(approach: &Approach) -> Duration {
    let is_spool = |mapping: &Mapping| mapping.path.starts_with(SPOOL);
    match &approach.inspection {
        Ok(look) if !look.modules.mappings.iter().any(is_spool) => PARKING,
        _ => CLEARING,
    }
}

/// The path of a session's memory in a list of mappings.
const SPOOL: &[u8] = b"/memfd:midair-spool";

/// Whether the process has a worker thread that is not parked and waits for no attacher.
fn worker_is_busy(approach: &Approach) -> bool {
    let agent = approach
        .inspection
        .as_ref()
        .ok()
        .and_then(|look| look.worker);
    agent.is_some_and(|agent| !agent.is_parked() && agent.block.is_none())
}

/// Checks before the attach what would fail after it: settings that do not fit, or results that
/// could not be written.
fn check_request(request: &Request, identity: &Identity) -> Result<(), Failure> {
    let mut sent = request.settings.clone();
    // This setting is read on our side alone, and may be long.
    sent.remove(EXTRA_COUNTERS);
    let bytes = sent
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

/// Returns the directory of the results, if the real user can write there.
pub(crate) fn results_fit(request: &Request, identity: &Identity) -> Result<PathBuf, Failure> {
    midair_output::threads::use_all_processors();
    let directory = rights::as_real_user(|| midair_results::check(&request.settings, identity))
        .unwrap_or_else(|error| Err(rights::cannot_drop(&error)))?;
    record_file().map(|_| directory)
}

/// Makes the file for records until they are written.
///
/// # Errors
/// [`Kind::Output`], where there can be none in the directory for temporary files.
pub(crate) fn record_file() -> Result<RecordWriter, Failure> {
    let directory = std::env::temp_dir();
    let made = rights::as_real_user(|| {
        match RecordWriter::create_in(&directory)?.with_room() {
            // The limit of this process for files, which has a refusal of its own.
            Err(error) if error.kind() == ErrorKind::FileTooLarge => {
                RecordWriter::create_in(&directory)
            }
            made => made,
        }
    });
    made.and_then(|made| made).map_err(|error| {
        Failure::new(
            Kind::Output,
            format!(
                "cannot store records in the directory for temporary files, {}: {error}",
                directory.display()
            ),
        )
        .hint("set TMPDIR to another directory")
    })
}

/// Returns why this process cannot be attached to, as far as an inspection tells.
pub(crate) fn refusal(pid: Pid) -> Option<Failure> {
    let look = move || {
        approach_to(pid).and_then(|approach| runtime::detect(&approach, &Options::default()))
    };
    match answer::within(pid, answer::LIMIT, look) {
        Ok(Ok(Some(_))) => None,
        Ok(Ok(None)) => Some(explain::not_gpu(pid)),
        Ok(Err(failure)) | Err(failure) => Some(failure),
    }
}

fn approach_to(pid: Pid) -> Result<Approach, Failure> {
    if pid == Pid::own() {
        return Err(explain::itself(pid));
    }
    // Nothing is read of a process that protects itself.
    if let Some(failure) = live(pid).and_then(rights::protected) {
        return Err(failure);
    }
    let approach = approach(pid).map_err(|refusal| explain::refused(&refusal))?;
    match rights::protected(approach.tid) {
        Some(failure) => Err(failure),
        None => Ok(approach),
    }
}

fn via(via: &midair_inject::Via) -> String {
    let how = match via.path {
        EntryPath::Socket => "the listener of the process, over its socket",
        EntryPath::OwnThread => "the worker thread of an earlier session",
        EntryPath::Listener => "the listener thread of a register library",
        EntryPath::Parked(_) => "a parked thread",
        EntryPath::SafePoint => "a running thread at a safe point",
    };
    let grade = match via.path {
        EntryPath::Parked(grade) => grade.words(),
        EntryPath::SafePoint => Grade::SafePoint.words(),
        EntryPath::Socket | EntryPath::OwnThread | EntryPath::Listener => "made for that",
    };
    format!("{how}: {} ({}), {} ({grade})", via.tid, via.name, via.doing)
}
