//! One attach, from the request to the exit code.

use midair_session::{Phases, Pid};
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use midair_failure::{Failure, Kind};
use midair_settings::{Given, Resolved, Settings};
use nix::sys::signal::Signal;

use crate::engine::{
    Attached, End, Engine, Entry, Event, GroupRequest, Notice, NoticeKind, Request, Selection,
    Trace, Written,
};
use crate::keep::{At, Keeping};
use crate::report::{Report, bytes};
use crate::wait::{Ended, Input, Signals, wait};

/// What a command line prints at each step, through its [`Report`].
pub trait Messages {
    /// Called before the attach.
    fn attaching(&self);
    /// Called when records are being made.
    fn attached(&self, took: Duration, until: Until);
    /// Called when the process is recorded as a CUDA process.
    fn cuda(&self, _pid: Pid) {}
    /// Called when the wait is over.
    fn ended(&self, ended: Ended);
    /// Called before the detach of a target that still runs.
    fn detaching(&self);
    /// Called when the target is free.
    fn detached(&self, took: Duration);
    /// Called when the detach failed.
    fn detach_failed(&self, failure: &Failure);
    /// Called when the results are written.
    fn written(&self, written: &Written);
}

/// What ends a recording, apart from the end of the process and a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Until {
    /// The time after which the recording ends.
    pub duration: Option<Duration>,
    /// Whether nothing else ends it. Standard input is then not read, as for a service, which has
    /// none.
    pub signals_alone: bool,
}

/// Describes a process, with its name where it has one.
pub fn process(engine: &dyn Engine, pid: Pid) -> String {
    match engine.name_of(pid) {
        Some(name) => format!("process {pid} ({name})"),
        None => format!("process {pid}"),
    }
}

/// What to attach to.
#[derive(Debug, Clone)]
pub enum Job {
    /// One process.
    One(Request),
    /// Several.
    Many(GroupRequest),
}

/// Attaches, waits, detaches, writes. Returns the exit code.
pub fn run(
    engine: &dyn Engine,
    job: Job,
    until: Until,
    messages: &dyn Messages,
    report: &Report,
) -> u8 {
    run_with(engine, job, until, Special::default(), messages, report)
}

/// Options that only few attaches use.
#[derive(Debug, Default)]
pub(crate) struct Special {
    /// The flight recorder.
    pub(crate) keeping: Option<Keeping>,
    /// When to start.
    pub(crate) at: Option<At>,
}

/// Does the same as [`run`], with these options.
pub(crate) fn run_with(
    engine: &dyn Engine,
    job: Job,
    until: Until,
    special: Special,
    messages: &dyn Messages,
    report: &Report,
) -> u8 {
    let Special { keeping, at } = special;
    // Read here, before the process can be gone.
    let owner = Owner::of(engine, &job);
    let signals = match keeping {
        Some(_) => Signals::block_with_marks(),
        None => Signals::block(),
    };
    let signals = match signals {
        Ok(signals) => signals,
        Err(failure) => return report.failure(&failure),
    };
    if let Some(at) = at {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let wait = at.after(now.unwrap_or_default(), midair_session::utc_offset());
        report.note(&format!("waiting for {:.1} s", wait.as_secs_f64()));
        if let Some(signal) = signals.sleep(wait) {
            let what = format!(
                "received {} before the time of --at; nothing was attached",
                signal.as_str()
            );
            return report.failure(&Failure::new(Kind::Nothing, what));
        }
    }
    messages.attaching();
    let began = Instant::now();
    let attached = {
        let _progress = report.progress("attaching");
        signals.end_what_hangs(report, || match &job {
            Job::One(request) => engine.attach(request),
            Job::Many(request) => engine.attach_group(request.clone()),
        })
    };
    let mut attached = match attached {
        Ok(attached) => attached,
        Err(failure) => return report.failure(&failure),
    };
    messages.attached(began.elapsed(), until);
    if let Some(entry) = attached.entry() {
        report_entry(entry, &owner, report);
        if entry.cuda {
            messages.cuda(match &job {
                Job::One(request) => request.pid,
                Job::Many(request) => request.each.pid,
            });
        }
    }
    // Some notices about a single named process would repeat other output.
    let named = match job {
        Job::Many(request) => match request.selection {
            Selection::Tree(root) => Some(root),
            _ => None,
        },
        Job::One(_) => None,
    };
    let show_notices = |news: &[Notice]| {
        for news in news {
            report_notice(news, named, report);
            if matches!(&news.what, NoticeKind::Attached(entry, _) if entry.cuda) {
                messages.cuda(news.pid);
            }
        }
    };
    show_notices(&attached.news());

    let show_notices = |news: &[Notice]| {
        show_notices(news);
        if let Some(keeping) = &keeping {
            keeping.turn(&signals, report);
        }
    };
    let waited = wait_for_end(attached.as_mut(), &signals, until, &show_notices, report);
    // A failed wait is followed by a detach, because the target must be free before anything is
    // reported.
    let (ended, mut code) = match waited {
        Ok(ended) => (Some(ended), 0),
        Err(failure) => (None, report.failure(&failure)),
    };
    if let Some(ended) = ended {
        messages.ended(ended);
    }
    show_notices(&attached.news());
    let trace = match detach(attached, ended, messages, report) {
        Ok(trace) => trace,
        Err(failure) => return first_failure(code, report.failure(&failure)),
    };
    if let Some(keeping) = &keeping {
        // Reports the windows that were written at the end.
        keeping.turn(&signals, report);
    }
    signals.release();
    if let Some(keeping) = keeping {
        let failure = keeping.failure();
        let code_of = |failure: &Failure| report.failure(&owner.named_in(failure.clone()));
        if keeping.only_windows {
            return match (ended, failure) {
                (Some(Ended::Target(end)), None) if code == 0 => target_code(end, &owner, report),
                (_, Some(failure)) => first_failure(code, code_of(&failure)),
                _ => code,
            };
        }
        // The rest is written below, whatever became of the windows.
        if let Some(failure) = failure {
            code = first_failure(code, code_of(&failure));
        }
    }
    let written = {
        let _progress = report.progress_of("writing results", midair_session::written);
        trace.write(report.table_style())
    };
    match written {
        Ok(written) => {
            written
                .warnings
                .iter()
                .for_each(|warning| report.warning(&owner.names(warning)));
            messages.written(&written);
            report.summary(written.summary.as_ref());
            if let Some(failure) = &written.incomplete {
                let failure = owner.named_in(failure.clone());
                code = first_failure(code, report.failure(&failure));
            }
        }
        Err(failure) => {
            code = first_failure(code, report.failure(&owner.named_in(failure)));
        }
    }
    match ended {
        // A failure that the results have reported is not repeated.
        Some(Ended::Target(end)) if code == 0 => target_code(end, &owner, report),
        _ => code,
    }
}

/// The process to which messages refer. If a single process was named, each message names it.
pub(crate) struct Owner(Option<(Pid, String)>);

impl Owner {
    pub(crate) fn of(engine: &dyn Engine, job: &Job) -> Owner {
        match job {
            Job::One(request) => Owner(Some((request.pid, process(engine, request.pid)))),
            Job::Many(_) => Owner(None),
        }
    }

    fn one(pid: Pid, label: &str) -> Owner {
        Owner(Some((pid, label.to_owned())))
    }

    /// Returns the message, with the process before it unless the message names the process itself.
    fn names(&self, text: &str) -> String {
        match &self.0 {
            Some((pid, label)) if !mentions(text, &pid.to_string()) => format!("{label}: {text}"),
            _ => text.to_owned(),
        }
    }

    fn named_in(&self, mut failure: Failure) -> Failure {
        failure.what = self.names(&failure.what);
        failure
    }
}

/// Whether a text contains a number that is not part of a longer one.
fn mentions(text: &str, number: &str) -> bool {
    let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    text.match_indices(number).any(|(at, _)| {
        let (before, from) = text.split_at(at);
        let after = from.get(number.len()..).unwrap_or_default();
        !digit(before.chars().next_back()) && !digit(after.chars().next())
    })
}

/// The most threads that were not borrowed and get a line of their own.
const REJECTED_SHOWN: usize = 20;

/// Reports how the target was entered, for how long it was stopped, and why the other threads were not used.
fn report_entry(entry: &Entry, owner: &Owner, report: &Report) {
    let info = |text: &str| report.info(&owner.names(text));
    let stopped = entry.seize + entry.stub + entry.release;
    if stopped.is_zero() {
        info(&format!(
            "entered by {}; no thread of it was stopped",
            entry.via
        ));
    } else {
        info(&format!(
            "entered by {}; that thread was stopped for {} us (stop {}, stub {}, release {})",
            entry.via,
            stopped.as_micros(),
            entry.seize.as_micros(),
            entry.stub.as_micros(),
            entry.release.as_micros()
        ));
    }
    if report.is_timed() {
        report.note(&owner.names(&phases(entry)));
    }
    entry
        .warnings
        .iter()
        .for_each(|text| report.warning(&owner.names(text)));
    entry.notes.iter().for_each(|text| info(text));
    if entry.unusable_stops > 0 {
        info(&format!(
            "before that, running threads were stopped {} times to inspect them, for {} us in total",
            entry.unusable_stops,
            entry.unusable_stop_time.as_micros()
        ));
    }
    for thread in entry.rejected.iter().take(REJECTED_SHOWN) {
        info(&format!("not used: {thread}"));
    }
    match entry.rejected.len().saturating_sub(REJECTED_SHOWN) {
        0 => {}
        more => info(&format!("not used: {more} more")),
    }
}

/// Returns the phases of an attach, in words.
fn phases(entry: &Entry) -> String {
    let Phases {
        inspect,
        prepare,
        enter,
        set_up,
        processor,
    } = *entry.phases;
    let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    format!(
        "inspect {}, prepare {} while entering, enter {}, set up {}; attached after {}, {} of midair's processor time",
        ms(inspect),
        ms(prepare),
        ms(enter),
        ms(set_up),
        ms(entry.attached_after),
        ms(processor)
    )
}

/// Reports what happened to one of several processes.
pub(crate) fn report_notice(news: &Notice, named: Option<Pid>, report: &Report) {
    let label = format!("process {} ({})", news.pid, news.name);
    match &news.what {
        NoticeKind::Attached(entry, took) => {
            let text = format!("attached to {label} in {:.1} ms", took.as_secs_f64() * 1e3);
            if named == Some(news.pid) {
                report.info(&text);
            } else {
                report.note(&text);
            }
            report_entry(entry, &Owner::one(news.pid, &label), report);
        }
        NoticeKind::Refused(failure) => {
            report.error(&format!(
                "cannot attach to {label}: {} (exit code {})",
                failure.what,
                failure.kind.exit_code()
            ));
            if !failure.hint.is_empty() {
                report.note(&format!("hint: {}", failure.hint));
            }
        }
        NoticeKind::Ended(End::Exec) => report.note(&format!(
            "{label} executed another program; its session has ended"
        )),
        NoticeKind::Ended(_) if named == Some(news.pid) => {}
        NoticeKind::Ended(end) => match runs_on(*end) {
            Some(why) => report.note(&format!("{label} keeps running; {why}")),
            None => report.note(&format!("{label} has ended")),
        },
        NoticeKind::Watched => report.note(&format!(
            "{label} has no HIP, HSA or CUDA runtime yet; waiting for one"
        )),
    }
}

/// Returns the earlier exit code, unless it is success.
fn first_failure(code: u8, next: u8) -> u8 {
    if code == 0 { next } else { code }
}

/// Returns why a session is over whose process runs on.
pub(crate) fn runs_on(end: End) -> Option<&'static str> {
    match end {
        End::Yielded => Some("midair detached when another profiler started"),
        End::Lapsed => Some("midair was unresponsive for too long, and the session ended"),
        End::Full => Some("there is no space for more records, and the session ended"),
        End::Exited(_) | End::Signal(_) | End::Exec => None,
    }
}

/// Returns the exit code for a target that ended while attached. Reports the reason where the code
/// is not 0.
pub(crate) fn target_code(end: End, owner: &Owner, report: &Report) -> u8 {
    let why = match end {
        // The trace is as complete as it can be. The warnings of the results tell the rest.
        End::Exited(_) | End::Yielded | End::Lapsed | End::Full => return 0,
        End::Signal(number) => {
            let name = Signal::try_from(number)
                .map_or_else(|_| number.to_string(), |signal| signal.as_str().to_owned());
            format!("the process was killed by signal {name}; the records so far are written")
        }
        End::Exec => {
            "the process executed another program; the records so far are written".to_owned()
        }
    };
    report.failure(&owner.named_in(Failure::new(Kind::TargetKilled, why)))
}

fn wait_for_end(
    attached: &mut dyn Attached,
    signals: &Signals,
    until: Until,
    show_notices: &dyn Fn(&[Notice]),
    report: &Report,
) -> Result<Ended, Failure> {
    let stdin = std::io::stdin();
    // With a duration, standard input belongs to the caller. It may be a pipe that others read.
    let duration = until.duration;
    let input = if duration.is_some() || until.signals_alone {
        Input::ignored()
    } else {
        Input::watched(stdin.as_fd())
    };
    let began = Instant::now();
    let mut shown_second = 0;
    let mut show = |event: Event, news: &[Notice]| {
        show_notices(news);
        let second = began.elapsed().as_secs();
        if let Event::Running {
            records,
            bytes: size,
        } = event
            && report.is_watched()
            && second > shown_second
        {
            shown_second = second;
            report.status(&format!("{second} s  {records} records  {}", bytes(size)));
        }
    };
    let ended = wait(attached, signals, input, duration, &mut show);
    if shown_second > 0 {
        report.status("");
    }
    if matches!(ended, Ok(Ended::EndOfInput))
        && !stdin.is_terminal()
        && began.elapsed() < Duration::from_secs(1)
    {
        report.warning("standard input was at its end, so midair detached; to profile longer, use --until-signal, a duration or an open standard input");
    }
    ended
}

fn detach(
    attached: Box<dyn Attached>,
    ended: Option<Ended>,
    messages: &dyn Messages,
    report: &Report,
) -> Result<Box<dyn Trace>, Failure> {
    let target_runs = !matches!(ended, Some(Ended::Target(end)) if end != End::Full);
    if target_runs {
        messages.detaching();
    }
    let began = Instant::now();
    let trace = {
        let _progress = report.progress("detaching");
        attached.detach()
    };
    match &trace {
        Ok(trace) => match trace.detach_failure() {
            Some(failure) => messages.detach_failed(failure),
            None if target_runs => messages.detached(began.elapsed()),
            None => {}
        },
        Err(failure) => messages.detach_failed(failure),
    }
    trace
}

/// Returns the settings in the environment of this process.
pub fn environment() -> Result<Settings, Failure> {
    Settings::from_environment(std::env::vars_os()).map_err(|bad| {
        Failure::new(
            Kind::Usage,
            format!("the environment variable {} {}", bad.name, bad.wanted),
        )
        .hint(format!(
            "correct the variable, or remove it: unset {}",
            bad.name
        ))
    })
}

/// Reports which of the user's settings have no effect, and lists the settings if that was asked for.
pub fn report_settings(resolved: &Resolved, given: &Given, report: &Report) {
    let file = resolved.settings.text("ROCPROF_OUTPUT_FILE_NAME");
    if let Some(file) = file.filter(|file| file.starts_with('/'))
        && given.get("output-directory").is_some()
    {
        report.warning(&format!(
            "--output-directory has no effect: --output-file {file} is an absolute path"
        ));
    }
    for (variable, option) in &resolved.without_effect {
        report.warning(&format!(
            "{variable} in the environment has no effect: --{option} is not built yet"
        ));
    }
    if !resolved.left_out.is_empty() {
        let names: Vec<String> = resolved
            .left_out
            .iter()
            .map(|long| format!("--{long}"))
            .collect();
        report.info(&format!(
            "skipped, since not built yet: {}",
            names.join(" ")
        ));
    }
    if matches!(
        given.text("log-level"),
        Some("env" | "config" | "info" | "trace")
    ) {
        for (name, value) in resolved.settings.iter() {
            report.note(&format!("{name}={value}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_names_its_process_once() {
        let pid = Pid::new(42).expect("a pid");
        let owner = Owner::one(pid, "process 42 (app)");
        for (text, wanted) in [
            ("records were lost", "process 42 (app): records were lost"),
            ("process 42 is busy", "process 42 is busy"),
            ("142 records of 420", "process 42 (app): 142 records of 420"),
        ] {
            assert_eq!(owner.names(text), wanted);
        }
        assert_eq!(Owner(None).names("x"), "x");
    }
}
