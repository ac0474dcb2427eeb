//! Every precondition of an attach, one by one, found by inspection alone.
//!
//! What forbids an attach is decided in one place, by the engine's inspection
//! ([`midair_inject::approach`]). Each line here reports one fact. A fact that would forbid
//! entering by ptrace is only a note where the engine finds another entry path. Nothing is traced,
//! stopped or written. Only the target's files in `/proc` and some of its memory are read.

mod counters;
mod cuda;
mod entry;
mod environment;
mod machine;
mod target;
mod traces;

use crate::answer;
use crate::explain;
use crate::install::{self, Install, Tools};
use crate::packets;
use crate::process::{live, root_of};
use crate::request::Request;
use crate::runtime::{self, Platform};
use midair_failure::{Failure, Kind};
use midair_inject::{Approach, Inspection, Options, Refusal, approach};
use midair_procinfo::module::Modules;
use midair_procinfo::{Pid, Tid};

/// One precondition of an attach.
#[derive(Debug, Clone)]
pub struct Check {
    /// What was inspected, in a word or two. Each name occurs once.
    pub name: String,
    /// What was found, in one sentence.
    pub found: String,
    /// What that means.
    pub verdict: Verdict,
}

/// What a fact means for an attach.
#[derive(Debug, Clone)]
pub enum Verdict {
    /// The fact does not stand in the way of an attach.
    Pass,
    /// The fact decides nothing: it does not matter here, or could not be determined.
    Note,
    /// The fact forbids the attach.
    Fail(Failure),
}

impl Check {
    /// Makes a check for a precondition that is met.
    pub fn pass(name: &str, found: impl Into<String>) -> Check {
        Check::new(name, found, Verdict::Pass)
    }
    /// Makes a check for a fact that is worth reporting but decides nothing.
    pub fn note(name: &str, found: impl Into<String>) -> Check {
        Check::new(name, found, Verdict::Note)
    }
    /// Makes a check for a precondition that forbids the attach.
    pub fn fail(name: &str, failure: Failure) -> Check {
        Check::new(name, failure.what.clone(), Verdict::Fail(failure))
    }
    fn new(name: &str, found: impl Into<String>, verdict: Verdict) -> Check {
        Check {
            name: name.to_owned(),
            found: found.into(),
            verdict,
        }
    }
    /// Returns why the check forbids the attach, if it does.
    pub fn failure(&self) -> Option<&Failure> {
        match &self.verdict {
            Verdict::Fail(failure) => Some(failure),
            _ => None,
        }
    }
}

/// The checks so far, and whether the engine would enter.
#[derive(Default)]
struct Lines {
    checks: Vec<Check>,
    /// Whether the engine would enter.
    enters: bool,
}

impl Lines {
    fn pass(&mut self, name: &str, found: impl Into<String>) {
        self.checks.push(Check::pass(name, found));
    }
    fn note(&mut self, name: &str, found: impl Into<String>) {
        self.checks.push(Check::note(name, found));
    }
    fn fail(&mut self, name: &str, failure: Failure) {
        self.checks.push(Check::fail(name, failure));
    }
    fn cannot_tell(&mut self, name: &str, why: &std::io::Error) {
        self.note(name, format!("cannot be determined: {why}"));
    }
    /// Reports a fact that forbids entering by ptrace. Whether it forbids the attach depends on the engine's
    /// inspection.
    fn forbids_tracing(&mut self, name: &str, refusal: &Refusal) {
        let failure = explain::refused(refusal);
        if self.enters {
            let found = format!(
                "{}; the entry path that an attach would take does not need it",
                failure.what
            );
            self.note(name, found);
        } else {
            self.fail(name, failure);
        }
    }
    fn failed(&self) -> bool {
        self.checks.iter().any(|check| check.failure().is_some())
    }
}

/// Inspects every precondition of an attach as `request` describes it, and touches nothing. An
/// attach would be refused for the first check that fails.
pub fn checks(request: &Request) -> Vec<Check> {
    let asked = request.clone();
    let found = answer::within(request.pid, 2 * answer::LIMIT, move || inspect(&asked));
    found.unwrap_or_else(|failure| vec![Check::fail("inspection", failure)])
}

/// Inspects what this machine and this user mean for any attach, such as `request` without its
/// process. `agents` are the machine's.
pub fn machine_checks(request: &Request, agents: &[midair_agents::Agent]) -> Vec<Check> {
    let mut lines = Lines::default();
    machine::inspect(request, agents, &mut lines);
    lines.checks
}

fn inspect(request: &Request) -> Vec<Check> {
    if let Some(failure) = live(request.pid).and_then(crate::rights::protected) {
        return protected(request, failure);
    }
    let looked = approach(request.pid);
    let mut lines = Lines {
        checks: Vec::new(),
        enters: looked.is_ok(),
    };
    let platform = looked
        .as_ref()
        .ok()
        .and_then(|approach| runtime::detect(approach, &Options::default()).ok()?)
        .map_or(Platform::Amd, |(platform, _)| platform);
    let tools = libraries(request, platform, &mut lines);
    if let Some((pid, tid)) = target::existence(request.pid, &mut lines) {
        process_checks(
            request,
            pid,
            tid,
            looked.as_ref().ok(),
            platform,
            &mut lines,
        );
        if let Some(look) = looked
            .as_ref()
            .ok()
            .and_then(|it| it.inspection.as_ref().ok())
        {
            let tools = tools.as_ref().map(|(install, tools)| (install, tools));
            environment::headroom(request, look, platform, tools, &mut lines);
        }
        if let Err(refusal) = &looked
            && !lines.failed()
        {
            // A refusal that none of the lines above reports.
            lines.fail("entering", explain::refused(refusal));
        }
        if platform == Platform::Amd {
            let identity = crate::identity::read(pid, tid);
            let approach = looked.as_ref().ok();
            let there = approach.and_then(|it| packets::library_there(tid, it, &identity));
            counters::lines(&identity.agents, pid, there, &mut lines);
        }
        environment::results(request, (pid, tid), &mut lines);
        environment::spool(request, &mut lines);
    }
    environment::kernel(&mut lines);
    lines.checks
}

/// Returns the checks of a process that protects itself: nothing is read of it.
fn protected(request: &Request, failure: Failure) -> Vec<Check> {
    let mut lines = Lines::default();
    libraries(request, Platform::Amd, &mut lines);
    target::existence(request.pid, &mut lines);
    lines.fail("permission", failure);
    environment::kernel(&mut lines);
    lines.checks
}

fn process_checks(
    request: &Request,
    pid: Pid,
    tid: Tid,
    approach: Option<&Approach>,
    platform: Platform,
    lines: &mut Lines,
) {
    let look: Option<&Inspection> = approach.and_then(|approach| approach.inspection.as_ref().ok());
    target::permission(pid, tid, lines);
    let status = midair_procinfo::task::status(tid).unwrap_or_default();
    target::own_seccomp(pid, lines);
    target::tracer(pid, &status, lines);
    target::running(pid, &status, lines);
    target::seccomp(pid, &status, lines);
    let read;
    let modules = match look {
        Some(look) => Some(&look.modules),
        None => {
            read = Modules::of(tid);
            if let Err(why) = &read {
                lines.cannot_tell("mappings", why);
            }
            read.as_ref().ok()
        }
    };
    target::machine(pid, tid, lines);
    if let Some(modules) = modules {
        target::c_library(pid, modules, lines);
        target::managed_threads(pid, tid, modules, lines);
        let copies = look.map(Inspection::copies).unwrap_or_default();
        target::runtimes(request.pid, modules, &copies, lines);
        match platform {
            Platform::Amd => target::table_source(modules, lines),
            Platform::Cuda => cuda::lines(request, (pid, tid), modules, lines),
        }
        target::other_profilers(modules, lines);
    }
    if let Some(approach) = approach {
        entry::socket(approach, &Options::default(), lines);
    }
    if let Some(look) = look {
        entry::agent(request.pid, look, lines);
        entry::recorder(request.pid, look, lines);
        entry::listener(look, lines);
        entry::threads(look, lines);
    }
    target::namespaces(tid, lines);
    environment::threads(tid, &status, lines);
    target::clock(tid, lines);
}

/// Finds our own libraries, and the tools that would be sent.
fn libraries(request: &Request, platform: Platform, lines: &mut Lines) -> Option<(Install, Tools)> {
    let install = match Install::find() {
        Ok(install) => install,
        Err(failure) => {
            lines.fail("libraries", failure);
            return None;
        }
    };
    if let Err(failure) = platform.library(&install) {
        lines.fail("libraries", failure);
        return None;
    }
    if let Err(error) = install.open(&install.tool) {
        let what = format!("cannot read {}: {error}", install.tool.display());
        let hint = format!("sudo chmod a+r {}", install.tool.display());
        lines.fail(
            "libraries",
            Failure::new(Kind::Installation, what).hint(hint),
        );
        return None;
    }
    lines.pass("libraries", format!("ours are in {}", install.place()));
    if let Some(weakness) = install::weakness() {
        lines.note("installation", weakness);
    }
    if platform == Platform::Cuda {
        lines.note("tools", "none is loaded into a CUDA process");
        return Some((install, Tools::default()));
    }
    let root = root_of(request.pid);
    let tools = install
        .tools(&request.settings, root.as_ref())
        .and_then(|mut tools| {
            if let Some(tid) = live(request.pid) {
                tools.for_process(tid, &install)?;
            }
            Ok(tools)
        });
    match tools {
        Err(failure) => {
            lines.fail("tools", failure);
            None
        }
        Ok(tools) => {
            let files = tools.files.iter().map(|file| file.display().to_string());
            let all: Vec<String> = files.chain(tools.names.iter().cloned()).collect();
            lines.pass("tools", all.join(", "));
            Some((install, tools))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_procinfo::syscall::Activity;
    use midair_settings::Settings;

    fn of(pid: Pid) -> Vec<Check> {
        checks(&Request::new(pid, Settings::new()))
    }

    fn kind_of(checks: &[Check], name: &str) -> Option<Kind> {
        let check = checks.iter().find(|check| check.name == name)?;
        check.failure().map(|failure| failure.kind)
    }

    #[test]
    fn every_name_is_there_once_and_every_failure_has_a_remedy() {
        for pid in [
            Some(Pid::own()),
            Pid::new(1),
            Pid::new(2),
            Pid::new(4_194_304),
        ]
        .into_iter()
        .flatten()
        .chain([Pid::MAX])
        {
            let found = of(pid);
            let mut names: Vec<&str> = found.iter().map(|check| check.name.as_str()).collect();
            names.sort_unstable();
            let all = names.len();
            names.dedup();
            assert_eq!(names.len(), all, "{found:?}");
            for check in &found {
                assert!(
                    !check.found.is_empty() && !check.found.ends_with('.'),
                    "{check:?}"
                );
                if let Some(failure) = check.failure() {
                    assert!(!failure.hint.is_empty(), "{pid}: {check:?}");
                }
            }
        }
    }

    #[test]
    fn who_is_no_target() {
        for nobody in [0, 4_194_305, u32::MAX - 1, u32::MAX] {
            let kind = match crate::find::named(nobody) {
                Ok(pid) => kind_of(&of(pid), "process"),
                Err(failure) => Some(failure.kind),
            };
            assert_eq!(kind, Some(Kind::NoProcess));
        }
        assert_eq!(kind_of(&of(Pid::own()), "process"), Some(Kind::Usage));
    }

    /// The reports about a child are the facts that the test arranged for it.
    #[test]
    fn a_child_that_sleeps() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        // Until its name has changed, the child is still this program, or is being loaded.
        let pid = Pid::of_child(&child);
        let sleeps = |doing: Activity| {
            let number = u64::try_from(libc::SYS_clock_nanosleep).unwrap();
            matches!(doing, Activity::Syscall(call) if call.number == number)
        };
        while !midair_procinfo::task::activity(pid).is_ok_and(sleeps) {
            std::thread::yield_now();
        }
        let found = of(pid);
        child.kill().unwrap();
        child.wait().unwrap();
        for good in [
            "process",
            "permission",
            "tracer",
            "state",
            "seccomp",
            "machine",
            "C library",
            "thread manager",
        ] {
            let check = found.iter().find(|check| check.name == good);
            assert!(
                check.is_some_and(|check| matches!(check.verdict, Verdict::Pass)),
                "{good}: {found:#?}"
            );
        }
        assert_eq!(kind_of(&found, "runtime"), Some(Kind::NotGpu));
        for told in [
            "threads",
            "namespaces",
            "descriptors",
            "address space",
            "results",
            "spool",
            "kernel",
            "clock",
        ] {
            assert!(
                found.iter().any(|check| check.name == told),
                "{told}: {found:#?}"
            );
        }
    }
}
