//! Lists the processes that use a GPU runtime, and whether each can be attached to, for `midair
//! ps`. Nothing is touched.

mod json;

use crate::answer;
use crate::cupti;
use crate::explain;
use crate::find::{Found, RuntimeKind, Scan, scan};
use crate::packets::HELPER;
use crate::rights;
use crate::runtime::{self, Platform};
use midair_failure::Failure;
use midair_inject::{Approach, Inspection, approach};
use midair_procinfo::{Pid, Tid, task};
use midair_record::boot::THREAD_NAME;
use midair_settings::Settings;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// One process in the list.
#[derive(Debug, Clone)]
pub struct Listed {
    /// The process as the scan saw it.
    pub found: Found,
    /// Its number in its own pid namespace, where that differs from ours.
    pub inner_pid: Option<Pid>,
    /// How many threads it has.
    pub threads: u64,
    /// When it started.
    pub started: SystemTime,
    /// Whether the process has a worker thread: `no`, `parked` since an earlier session, what it is
    /// doing, or `?`.
    pub attached: &'static str,
    /// The entry path in a word or two, or why there is none. None where this was not determined:
    /// for a process without a GPU runtime.
    pub attachable: Option<Result<&'static str, Failure>>,
}

/// The list.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// Processes by ascending number: those that use a GPU, those that did not answer and, on
    /// request, those that cannot be inspected.
    pub processes: Vec<Listed>,
    /// How many processes could not be inspected.
    pub unreadable: usize,
}

/// Lists the processes that use a GPU runtime. With `all`, also those about which nothing can be
/// known.
pub fn list(all: bool) -> Listing {
    let clock = Arc::new(Clock::now());
    let Scan { mut found, silent } = scan();
    let unreadable = found.iter().filter(|process| !process.readable).count();
    found.retain(|process| match is_packet_helper(process) {
        true => all,
        false => process.uses_a_gpu() || (all && !process.readable),
    });
    let pids: Vec<Pid> = found.iter().map(|process| process.pid).collect();
    let by_pid: BTreeMap<Pid, Found> = found
        .iter()
        .map(|process| (process.pid, process.clone()))
        .collect();
    let clock_of_each = Arc::clone(&clock);
    let inspected = answer::each(&pids, answer::LIMIT, move |pid| {
        let found = by_pid.get(&pid).cloned()?;
        Some(listed(found, &clock_of_each))
    });
    let mut processes: Vec<Listed> = found
        .into_iter()
        .zip(inspected)
        .map(|(found, seen)| seen.flatten().unwrap_or_else(|| unanswered(found, &clock)))
        .chain(silent.into_iter().map(|found| unanswered(found, &clock)))
        .collect();
    processes.sort_by_key(|listed| listed.found.pid);
    Listing {
        processes,
        unreadable,
    }
}

/// Whether a process is our helper that has loaded AMD's packet library, and HSA for that. It runs
/// nothing on a GPU. It is recognized by its name, which any process can give itself, so a list of
/// all processes includes it.
fn is_packet_helper(found: &Found) -> bool {
    /// The number of bytes of a name that the kernel keeps.
    const LONGEST: usize = 15;
    let program = found.command.split(' ').next().unwrap_or_default();
    let file = program.rsplit('/').next().unwrap_or_default();
    let has_hip = found
        .runtimes
        .iter()
        .any(|runtime| runtime.kind != RuntimeKind::Hsa);
    file == HELPER && HELPER.get(..LONGEST) == Some(found.name.as_str()) && !has_hip
}

/// Returns the entry for a process that did not answer.
fn unanswered(found: Found, clock: &Clock) -> Listed {
    Listed {
        inner_pid: None,
        threads: task::status(found.pid).map_or(0, |status| status.threads),
        started: clock.at(found.start_ticks),
        attached: "?",
        attachable: Some(Err(answer::no_answer(found.pid))),
        found,
    }
}

fn listed(found: Found, clock: &Clock) -> Listed {
    let pid = found.pid;
    let status = task::status(pid).unwrap_or_default();
    let inner = status.ns_tgid.last().copied().filter(|inner| *inner != pid);
    let mut attached = worker_by_name(pid);
    let attachable = (found.uses_a_gpu() || !found.readable).then(|| {
        // Nothing is read of a process that protects itself.
        if let Some(failure) = task::live(pid).ok().flatten().and_then(rights::protected) {
            return Err(failure);
        }
        let approach = approach(pid).map_err(|refusal| explain::refused(&refusal))?;
        let agent = approach
            .inspection
            .as_ref()
            .ok()
            .and_then(|look| look.worker.as_ref());
        if let Some(agent) = agent {
            attached = agent.state();
        }
        if let Some(failure) = rights::protected(approach.tid) {
            return Err(failure);
        }
        if let Ok(look) = &approach.inspection {
            check_cuda(look)?;
        }
        entry_path(&approach)
    });
    Listed {
        inner_pid: inner,
        threads: status.threads,
        started: clock.at(found.start_ticks),
        attached,
        attachable,
        found,
    }
}

/// Checks what a CUDA process needs in addition.
fn check_cuda(look: &Inspection) -> Result<(), Failure> {
    let Some((Platform::Cuda, _)) = runtime::detect_mapped(look)? else {
        return Ok(());
    };
    cupti::require_cupti(look, &Settings::new())
}

/// Returns the entry path that an attach would try first, determined without contacting the
/// listener.
fn entry_path(approach: &Approach) -> Result<&'static str, Failure> {
    let look = approach.inspection.as_ref().ok();
    let agent = look.and_then(|look| look.worker.as_ref());
    if let Some(own) = look.and_then(|look| look.recorder)
        && !own.makes_way
    {
        return Err(explain::kept(approach.pid, Some(own.tid)));
    }
    match agent {
        Some(agent) if !agent.is_parked() => Err(explain::failed(approach.pid, &agent.hindrance())),
        _ if approach.endpoint.is_some() => Ok("listener's socket"),
        Some(_) => Ok("parked worker thread"),
        None if look.is_some_and(|look| look.listener.is_some()) => Ok("listener"),
        None => Ok("a parked thread"),
    }
}

/// Recognizes a worker thread by its name alone, where nothing else can be read.
fn worker_by_name(pid: Pid) -> &'static str {
    let tids = task::list(pid).unwrap_or_default();
    let ours = |tid: &Tid| task::comm(*tid).is_ok_and(|comm| comm == THREAD_NAME.as_bytes());
    if tids.iter().any(ours) { "there" } else { "no" }
}

/// Converts the kernel's start times to wall-clock times.
struct Clock {
    now: SystemTime,
    since_boot: Duration,
    ticks_per_second: u64,
}

impl Clock {
    fn now() -> Clock {
        let boot = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME);
        Clock {
            now: SystemTime::now(),
            since_boot: boot.map_or(Duration::ZERO, Duration::from),
            ticks_per_second: midair_ptrace::sys::clock_ticks_per_second(),
        }
    }

    fn at(&self, ticks: u64) -> SystemTime {
        let whole = Duration::from_secs(ticks / self.ticks_per_second);
        let part = (ticks % self.ticks_per_second) as f64 / self.ticks_per_second as f64;
        let age = self
            .since_boot
            .saturating_sub(whole + Duration::from_secs_f64(part));
        self.now.checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_began_now() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let found = crate::find::process(Pid::of_child(&child)).unwrap();
        let listed = listed(found, &Clock::now());
        child.kill().unwrap();
        child.wait().unwrap();
        let age = listed.started.elapsed().unwrap_or_default();
        assert!(age < Duration::from_secs(30), "{age:?}");
        assert_eq!((listed.threads, listed.attached), (1, "no"));
        assert!(listed.inner_pid.is_none() && listed.attachable.is_none());
    }

    #[test]
    fn our_packet_helper_is_told_from_programs() {
        let found = |name: &str, command: &str, kind| Found {
            pid: Pid::own(),
            parent: None,
            start_ticks: 0,
            uids: [0; 3],
            name: name.to_owned(),
            command: command.to_owned(),
            runtimes: vec![crate::find::Runtime {
                kind,
                version: String::new(),
                path: "/x/libhsa-runtime64.so.1".into(),
                deleted: false,
            }],
            readable: true,
        };
        let helper = "/opt/midair/lib/rocprofiler-sdk/midair-aqlprofile libaqlprofile64.so";
        let (hsa, hip) = (RuntimeKind::Hsa, RuntimeKind::Hip);
        assert!(is_packet_helper(&found("midair-aqlprofi", helper, hsa)));
        for program in [
            found("train", helper, hsa),
            found("midair-aqlprofi", helper, hip),
            found("midair-aqlprofi", "/bin/train midair-aqlprofile", hsa),
        ] {
            assert!(!is_packet_helper(&program), "{program:?}");
        }
    }

    #[test]
    fn only_what_uses_a_gpu_or_cannot_be_read() {
        let listing = list(true);
        assert!(
            listing
                .processes
                .iter()
                .all(|it| it.found.uses_a_gpu() || !it.found.readable)
        );
        let unreadable = listing.processes.iter().filter(|it| !it.found.readable);
        assert_eq!(unreadable.count(), listing.unreadable);
        let pids: Vec<Pid> = listing.processes.iter().map(|it| it.found.pid).collect();
        assert!(pids.is_sorted());
    }
}
