//! What can be tried on a process: its listener's socket, the tiers that trace, or both.

use midair_procinfo::bpf::Action;
use midair_procinfo::status::Status;
use midair_procinfo::{Pid, Tid, task};

use crate::door::{Door, FILTERED_LATER, Shut};
use crate::enter::{enter, read};
use crate::entered::Entered;
use crate::error::{EnterError, Refusal, Seen};
use crate::look::{LISTENER_NAME, Look, look};
use crate::options::{Library, Options};

/// A process that can be entered in one way at least.
#[derive(Debug)]
pub struct Approach {
    /// The process, as this process sees it.
    pub pid: Pid,
    /// A live thread of it, the leader if that lives.
    pub tid: Tid,
    /// The socket of its listener, where one was seen.
    pub door: Option<Door>,
    /// What the tiers that trace need, or why they may not be used.
    pub look: Result<Look, Refusal>,
}

/// Looks at the process of `pid` (any thread id of it will do), touching nothing. What only tracing needs does not have to be there
/// where the process has a listener.
///
/// # Errors
/// A [`Refusal`]: why it cannot be entered in any way.
pub fn approach(pid: Pid) -> Result<Approach, Refusal> {
    let looked = look(pid);
    let (pid, tid, status) = match &looked {
        Ok(look) => (look.pid, look.tid, look.status.clone()),
        Err(refusal) => match seen_without(pid, refusal) {
            Some((tid, status)) => (status.tgid.unwrap_or(pid), tid, status),
            None => return looked.map(|look| Approach::traced(look, None)),
        },
    };
    let door = Door::find(pid, tid, &status);
    match looked {
        Ok(look) => Ok(Approach::traced(look, door)),
        Err(refusal) if door.is_none() => Err(refusal),
        refused => Ok(Approach {
            pid,
            tid,
            door,
            look: refused,
        }),
    }
}

impl Approach {
    fn traced(look: Look, door: Option<Door>) -> Approach {
        Approach {
            pid: look.pid,
            tid: look.tid,
            door,
            look: Ok(look),
        }
    }
}

/// What everybody may see of a process that may not be traced. None where a listener would not help either: there is no such process,
/// nobody in it could answer, or our libraries could not run there.
fn seen_without(pid: Pid, refusal: &Refusal) -> Option<(Tid, Status)> {
    match refusal {
        Refusal::NotPermitted { .. } | Refusal::Traced { .. } | Refusal::Unreadable { .. } => {
            let tid = task::live(pid).ok()??;
            Some((tid, task::status(tid).ok()?))
        }
        _ => None,
    }
}

/// Enters the process: over the socket of its listener; where that cannot be, as [`enter`] does.
///
/// # Errors
/// As [`enter`]. [`EnterError::NoDoor`] when the listener does not serve and tracing is refused, for the reason in
/// [`Approach::look`].
pub fn enter_by(
    approach: &Approach,
    library: &Library,
    options: &Options,
) -> Result<Entered, EnterError> {
    let mut against = None;
    let door = approach.door.as_ref().filter(|_| options.socket);
    let later = door.is_some_and(Door::is_filtered_later);
    if later && let Ok(look) = &approach.look {
        // Tracing can find out what the filter does: it is the way in, unless that filter only refuses.
        match enter(look, library, options) {
            Err(EnterError::Refused(Refusal::Filtered {
                action: Action::Errno(_),
                ..
            })) => {}
            // Our parked thread was woken and refused a call.
            Err(
                EnterError::Silent { .. } | EnterError::Boot { .. } | EnterError::PathUnseen { .. },
            ) if look.agent.is_some() => {}
            entered => return entered,
        }
    } else if later {
        return Err(EnterError::NoDoor {
            why: format!("its listener is left alone: {FILTERED_LATER}"),
        });
    }
    if let Some(door) = door {
        let payload = read(library)?;
        match door.enter(payload.as_ref(), options) {
            Ok(entered) => return Ok(entered),
            Err(Shut::Failed(error)) => return Err(error),
            Err(Shut::Closed(why)) => {
                against = Some(Seen {
                    tid: door.listener().unwrap_or(approach.pid.leader()),
                    name: LISTENER_NAME.into(),
                    doing: format!("was not used over its socket: {why}"),
                });
            }
        }
    }
    match &approach.look {
        Ok(look) => {
            let mut entered = enter(look, library, options)?;
            entered.via.rejected.splice(0..0, against);
            Ok(entered)
        }
        Err(_) => Err(EnterError::NoDoor {
            why: against.map_or_else(|| "its listener is not to be used".into(), |it| it.doing),
        }),
    }
}
