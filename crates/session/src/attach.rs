//! The way in: look, enter, offer the session; and the words for every refusal of the engine.

use crate::cuda::{self, ForCuda};
use crate::cupti;
use crate::explain;
use crate::install::{Install, Tools};
use crate::process::root_of;
use crate::request::{Entry, Request};
use crate::rights;
use crate::room;
use crate::runtime::{self, Brand};
use crate::session::{Prepared, Session, StartError};
use crate::target::Target;
use crate::turn::Turn;
use midair_failure::{Failure, Kind};
use midair_inject::{Approach, Grade, Options, Tier, approach, enter_by};
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
            // The worker thread waits some seconds for the offer. Where this process got no processor for so long, nothing
            // was begun, and the attach is tried once more.
            Err(StartError::OfferNotTaken(_)) => {
                Session::attach_once(request, install, options).map_err(StartError::into_failure)
            }
            done => done.map_err(StartError::into_failure),
        }
    }

    fn attach_once(
        request: &Request,
        install: &Install,
        options: &Options,
    ) -> Result<Session, StartError> {
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
            runtime::chosen(&approach, options)?.ok_or_else(|| explain::not_gpu(request.pid))?;
        let library = brand.library(install)?;
        let mut said = Said::from_other(other);
        let for_cuda;
        let request = match brand {
            Brand::Amd => {
                tools.for_process(approach.tid, install)?;
                if let Ok(look) = &approach.look {
                    runtime::refuse_two_copies(look.pid, &look.modules)?;
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
        let entered = entered.map_err(|error| explain::not_entered(&approach, &error))?;
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
            Err(start) => {
                // The worker thread's own report explains more than the silence on the channel. The thread has then ended,
                // or will not park: its mappings are removed.
                let Some(error) = entered.failure() else {
                    // A process that has ended meanwhile, or is stopped, is silent, too.
                    return Err(match entered.interrupted() {
                        Some(error) if start.failure().kind == Kind::Setup => {
                            explain::failed(pid, &error).into()
                        }
                        _ => start,
                    });
                };
                let _undone = entered.withdraw(options);
                Err(explain::failed(pid, &error).into())
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
        .unwrap_or_else(|error| Err(rights::cannot_drop(&error)))
}

/// Why this process cannot be attached to, if a look at it tells.
pub(crate) fn refusal(pid: u32) -> Option<Failure> {
    let seen =
        approach_to(pid).and_then(|approach| runtime::chosen(&approach, &Options::default()));
    match seen {
        Ok(Some(_)) => None,
        Ok(None) => Some(explain::not_gpu(pid)),
        Err(failure) => Some(failure),
    }
}

fn approach_to(pid: u32) -> Result<Approach, Failure> {
    let number = i32::try_from(pid).map_err(|_| explain::no_process(pid))?;
    if pid == std::process::id() {
        return Err(explain::itself(pid));
    }
    let approach = approach(number).map_err(|refusal| explain::refused(&refusal))?;
    match rights::protected(approach.tid) {
        Some(failure) => Err(failure),
        None => Ok(approach),
    }
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
