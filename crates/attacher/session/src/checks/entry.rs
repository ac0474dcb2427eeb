//! The entry path that an attach would take.

use super::Lines;
use crate::explain::{failed, kept, not_entered, not_gpu, sdks};
use midair_inject::{Approach, Grade, Inspection, Options, survey};
use midair_procinfo::Pid;

/// Reports the worker thread of an earlier session.
pub(super) fn agent(pid: Pid, look: &Inspection, lines: &mut Lines) {
    const NAME: &str = "worker thread";
    match &look.worker {
        None => lines.pass(NAME, "none: no attach has been made so far"),
        Some(agent) if agent.is_parked() => lines.pass(
            NAME,
            format!(
                "thread {} has been parked there since an earlier session: midair wakes it, and touches no other thread",
                agent.tid
            ),
        ),
        Some(agent) => lines.fail(NAME, failed(pid, &agent.hindrance())),
    }
}

/// Reports a session that the process has without an attacher.
pub(super) fn recorder(pid: Pid, look: &Inspection, lines: &mut Lines) {
    const NAME: &str = "own session";
    let by = match sdks(look).as_slice() {
        [] => String::new(),
        paths => format!(", through {}", paths.join(" and ")),
    };
    match look.recorder {
        None => lines.pass(
            NAME,
            "none: the process does not profile itself with midair's SDK",
        ),
        Some(own) if own.makes_way => lines.note(
            NAME,
            format!(
                "the process profiles itself (thread {}{by}): an attach shares the records",
                own.tid
            ),
        ),
        Some(own) => lines.fail(NAME, kept(pid, Some(own.tid))),
    }
}

/// Reports the endpoint of our register library's listener, and asks it whether it would serve us.
pub(super) fn socket(approach: &Approach, options: &Options, lines: &mut Lines) {
    const NAME: &str = "listener's socket";
    let squatters = match approach.squatters {
        0 => String::new(),
        count => {
            format!("; sockets of other processes under its listener's name, not used: {count}")
        }
    };
    let Some(endpoint) = &approach.endpoint else {
        return lines.note(
            NAME,
            format!("none: no midair register library listens there{squatters}"),
        );
    };
    match (endpoint.ask(options), &approach.inspection) {
        (Ok(here), look) => {
            let mut found =
                "the listener is reachable and accepts midair: no thread is stopped or traced"
                    .to_owned();
            if look.is_err() && !here.gpu {
                return lines.fail(NAME, not_gpu(approach.pid));
            }
            if let Some(tid) = endpoint.listener() {
                found.push_str(&format!(" (thread {tid})"));
            }
            found.push_str(&squatters);
            lines.pass(NAME, found);
        }
        // Tracing is allowed, so the attach does not depend on the listener.
        (Err(error), Ok(_)) => lines.note(NAME, format!("{error}{squatters}")),
        (Err(error), Err(_)) => lines.fail(NAME, not_entered(approach, &error)),
    }
}

/// Reports the listener of a register library.
pub(super) fn listener(look: &Inspection, lines: &mut Lines) {
    const NAME: &str = "listener";
    match look.listener {
        Some(tid) => lines.pass(NAME, format!("a register library's (thread {tid})")),
        None => lines.note(NAME, "none: no register library with a listener is loaded"),
    }
}

/// Reports which thread would be borrowed now.
pub(super) fn threads(look: &Inspection, lines: &mut Lines) {
    const NAME: &str = "threads";
    let survey = match survey(look, &Options::default()) {
        Ok(survey) => survey,
        Err(why) => return lines.cannot_tell(NAME, &why),
    };
    let (parked, unproven) = (survey.parked.len(), survey.unproven.len());
    let all = parked + unproven + survey.not.len();
    let counts = format!("{parked} of {all} are parked at a safe place now");
    let best = survey.parked.iter().chain(&survey.unproven).next();
    let mut found = match best {
        Some(best) if parked == 0 => format!(
            "{counts}; {unproven} need a short stop to inspect: first {} ({}), {}",
            best.tid, best.name, best.doing
        ),
        Some(best) => format!(
            "{counts}; first {} ({}), {}",
            best.tid, best.name, best.doing
        ),
        None => {
            let mut found = counts;
            for seen in survey.not.iter().take(4) {
                found.push_str(&format!("; {seen}"));
            }
            found
        }
    };
    if best.is_some_and(|best| best.grade == Grade::Disturbed) {
        found.push_str("; its call would return EINTR once");
    }
    if look
        .worker
        .as_ref()
        .is_some_and(midair_inject::Worker::is_parked)
    {
        // The worker thread is woken, whatever the other threads do.
        lines.note(NAME, found);
    } else if best.is_some() {
        lines.pass(NAME, found);
    } else {
        // This changes from moment to moment, and an attach waits for such a thread.
        lines.note(
            NAME,
            format!("{found}; an attach waits a short time for one"),
        );
    }
}
