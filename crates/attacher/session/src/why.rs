//! What a process waits for that hangs or crawls. Nothing is loaded into it.

use crate::{answer, explain, rights, tree};
use midair_failure::Failure;
use midair_inject::{Refusal, inspect};
use midair_procinfo::module::Modules;
use midair_procinfo::{Pid, Tid, show, task};
use midair_why::{Answer, Options, Ranks};
use std::time::Duration;

/// How long one process may take to answer, besides the time between the two looks.
const LIMIT: Duration = Duration::from_secs(30);

/// Looks at one process, which need not use a GPU.
///
/// # Errors
/// Why it may not be looked at: there is no such process, the rights are missing, or it does not
/// answer.
pub fn why(pid: Pid, options: Options) -> Result<Answer, Failure> {
    answer::within(pid, LIMIT + options.time, move || look(pid, options))?
}

/// Looks at the root and all its descendants at the same time. A process that cannot be looked at
/// becomes a note of the first one.
///
/// # Errors
/// When none of them can be looked at.
pub fn why_tree(root: Pid, options: Options) -> Result<Ranks, Failure> {
    let pids: Vec<Pid> = tree::tree(root)
        .into_iter()
        .map(|found| found.pid)
        .collect();
    if pids.is_empty() {
        return Err(explain::no_process(root.get()));
    }
    let seen = answer::each(&pids, LIMIT + options.time, move |pid| look(pid, options));
    let (mut answers, mut refused) = (Vec::new(), Vec::new());
    for (pid, seen) in pids.iter().zip(seen) {
        match seen.unwrap_or_else(|| Err(answer::no_answer(*pid))) {
            Ok(answer) => answers.push(answer),
            Err(failure) => refused.push(failure),
        }
    }
    match (answers.first_mut(), refused.is_empty()) {
        (None, _) => Err(refused
            .into_iter()
            .next()
            .unwrap_or_else(|| explain::no_process(root.get()))),
        (Some(first), false) => {
            first
                .notes
                .extend(refused.into_iter().map(|failure| failure.what));
            Ok(Ranks { answers })
        }
        (Some(_), true) => Ok(Ranks { answers }),
    }
}

fn look(pid: Pid, options: Options) -> Result<Answer, Failure> {
    if pid == Pid::own() {
        return Err(explain::itself(pid));
    }
    if let Some(failure) = task::live(pid).ok().flatten().and_then(rights::protected) {
        return Err(failure);
    }
    // Preconditions that only an entry has are not checked. A process that is stopped, is traced by
    // another user, or has another C library can be looked at all the same.
    match inspect(pid) {
        Ok(seen) => at(seen.pid, seen.tid, &seen.name, &seen.modules, options),
        Err(
            Refusal::PtraceForbidden { .. }
            | Refusal::Traced { .. }
            | Refusal::Stopped { .. }
            | Refusal::Frozen { .. }
            | Refusal::Architecture { .. }
            | Refusal::LibcTooOld { .. }
            | Refusal::LibcKind { .. }
            | Refusal::ManagedThreads { .. }
            | Refusal::Seccomp { .. }
            | Refusal::Filtered { .. }
            | Refusal::FilterUnread { .. }
            | Refusal::Dispatches { .. }
            | Refusal::LeaderEnded { .. }
            | Refusal::NoProc { .. },
        ) => {
            let gone = || explain::no_process(pid.get());
            let tid = task::live(pid).ok().flatten().ok_or_else(gone)?;
            let name = task::comm(tid).map_err(|_| gone())?;
            let modules = Modules::of(tid).map_err(|source| {
                let what = "its mappings".to_owned();
                explain::refused(&Refusal::Unreadable { pid, what, source })
            })?;
            at(pid, tid, &show(&name), &modules, options)
        }
        Err(refusal) => Err(explain::refused(&refusal)),
    }
}

fn at(
    pid: Pid,
    tid: Tid,
    name: &str,
    modules: &Modules,
    options: Options,
) -> Result<Answer, Failure> {
    match rights::protected(tid) {
        Some(failure) => Err(failure),
        None => Ok(midair_why::look(pid, tid, name, modules, options)),
    }
}
