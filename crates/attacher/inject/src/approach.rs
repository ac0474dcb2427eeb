//! Finds the entry paths of a process: its listener's socket, the paths that trace, or both.

use std::io;

use midair_procinfo::bpf::Action;
use midair_procinfo::status::Status;
use midair_procinfo::{Pid, Tid, task};
use midair_ptrace::sys::ptrace_refused;

use crate::enter::enter;
use crate::entered::Entered;
use crate::error::{EnterError, Refusal, RejectedThread};
use crate::inspection::{Inspection, LISTENER_NAME, inspect};
use crate::listener::{Endpoint, FILTERED_LATER, NotServed};
use crate::options::{Library, Options};
use crate::payload::read;

/// A process that can be entered in at least one way.
#[derive(Debug)]
pub struct Approach {
    /// The process, as this process sees it.
    pub pid: Pid,
    /// A live thread of it, the leader if that lives.
    pub tid: Tid,
    /// The socket of its listener, if one was seen.
    pub endpoint: Option<Endpoint>,
    /// The number of listening sockets of other processes under the name that only its listener
    /// should have. They are not used.
    pub squatters: usize,
    /// What the tracing paths need, or why they may not be used.
    pub inspection: Result<Inspection, Refusal>,
}

/// Inspects the process of `pid` (any thread id of it will do) and changes nothing. If the process
/// has a listener, whatever only tracing needs may be missing.
///
/// # Errors
/// A [`Refusal`]: why it cannot be entered in any way.
pub fn approach(pid: Pid) -> Result<Approach, Refusal> {
    let looked = inspect(pid).and_then(|look| match own_filter() {
        Some(source) => Err(Refusal::PtraceForbidden {
            pid: look.pid,
            source,
        }),
        None => Ok(look),
    });
    let (pid, tid, status) = match &looked {
        Ok(look) => (look.pid, look.tid, look.status.clone()),
        Err(refusal) => match seen_without(pid, refusal) {
            Some((tid, status)) => (status.tgid.unwrap_or(pid), tid, status),
            None => return looked.map(|look| Approach::traced(look, None, 0)),
        },
    };
    let (endpoint, squatters) = Endpoint::find(pid, tid, &status);
    match looked {
        Ok(look) => Ok(Approach::traced(look, endpoint, squatters)),
        Err(refusal) if endpoint.is_none() => Err(refusal),
        refused => Ok(Approach {
            pid,
            tid,
            endpoint,
            squatters,
            inspection: refused,
        }),
    }
}

/// Returns how a system call filter that this process is under keeps it from `ptrace`, if one does.
pub fn own_filter() -> Option<io::Error> {
    let filtered = task::status(Pid::own()).is_ok_and(|status| status.seccomp != 0);
    filtered.then(ptrace_refused)?
}

impl Approach {
    fn traced(look: Inspection, endpoint: Option<Endpoint>, squatters: usize) -> Approach {
        Approach {
            pid: look.pid,
            tid: look.tid,
            endpoint,
            squatters,
            inspection: Ok(look),
        }
    }
}

/// Returns what everybody may see of a process that cannot be traced now. None if a listener would
/// not help either. Then there is no such process, nothing in it could answer, our libraries could
/// not run there, or we may not trace it: its listener only serves those who may.
fn seen_without(pid: Pid, refusal: &Refusal) -> Option<(Tid, Status)> {
    match refusal {
        Refusal::Traced { .. } | Refusal::Unreadable { .. } | Refusal::PtraceForbidden { .. } => {
            let tid = task::live(pid).ok()??;
            Some((tid, task::status(tid).ok()?))
        }
        _ => None,
    }
}

/// Enters the process over the socket of its listener. If that is not possible, enters it as
/// [`enter`] does.
///
/// # Errors
/// As [`enter`]. [`EnterError::ListenerUnusable`] when the listener does not serve and tracing is
/// refused, for the reason in [`Approach::inspection`].
pub fn enter_by(
    approach: &Approach,
    library: &Library,
    options: &Options,
) -> Result<Entered, EnterError> {
    let mut against = None;
    let endpoint = approach.endpoint.as_ref().filter(|_| options.socket);
    let later = endpoint.is_some_and(Endpoint::is_filtered_later);
    if later && let Ok(look) = &approach.inspection {
        // Tracing can find out what the filter does. So it is the entry path here, unless the
        // filter merely refuses a call.
        match enter(look, library, options) {
            Err(EnterError::Refused(Refusal::Filtered {
                action: Action::Errno(_),
                ..
            })) => {}
            // The parked worker thread was woken, and the filter refused one of its calls.
            Err(
                EnterError::Silent { .. } | EnterError::Boot { .. } | EnterError::PathUnseen { .. },
            ) if look.worker.is_some() => {}
            entered => return entered,
        }
    } else if later {
        return Err(EnterError::ListenerUnusable {
            why: format!("its listener is left alone: {FILTERED_LATER}"),
        });
    }
    if let Some(endpoint) = endpoint {
        let payload = read(library)?;
        match endpoint.enter(payload.as_ref(), options) {
            Ok(entered) => return Ok(entered),
            Err(NotServed::Failed(error)) => return Err(error),
            Err(NotServed::Refused(why)) => {
                against = Some(RejectedThread {
                    tid: endpoint.listener().unwrap_or(approach.pid.leader()),
                    name: LISTENER_NAME.into(),
                    doing: format!("was not used over its socket: {why}"),
                });
            }
        }
    }
    match &approach.inspection {
        Ok(look) => {
            let mut entered = enter(look, library, options)?;
            entered.via.rejected.splice(0..0, against);
            Ok(entered)
        }
        Err(_) => Err(EnterError::ListenerUnusable {
            why: against.map_or_else(|| "its listener is not to be used".into(), |it| it.doing),
        }),
    }
}
