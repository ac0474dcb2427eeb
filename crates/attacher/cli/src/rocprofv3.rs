//! `rocprofv3`: AMD's command line, for starting a program under the profiler and for attaching.

use midair_session::Pid;
use midair_session::find::named;
use std::cell::Cell;
use std::ffi::OsString;
use std::time::Duration;

use clap::{Arg, ArgAction, Command};
use midair_failure::{Failure, Kind};
use midair_settings::{COUNTER_GROUPS, COUNTERS, Front, Given, OUTPUT_PATH, Settings, Value};

use crate::attach::{self, Job, Messages, Until};
use crate::command::{self, given, with_options};
use crate::counters;
use crate::engine::{End, Engine, GroupRequest, Request, Selection, Written};
use crate::input::{self, Taken};
use crate::launch::{self, Launch, Libraries, Links};
use crate::report::Report;
use crate::version;
use crate::wait::Ended;

/// The number of dispatches after which the next of several multiplexed groups of counters is counted.
const INTERVAL: &str = "ROCPROF_COUNTER_GROUPS_INTERVAL";

/// The clap command.
pub fn command() -> Command {
    let command = Command::new("rocprofv3")
        .about("Profile GPU work of a program: start it, or attach to it while it runs")
        .after_help("Exit codes: APP's own code (126 or 127 if it cannot be started); for an attach: 0 done, 2 usage, 10-29 and 37-39 refused, 30 detach failed, 31 process killed, 32 records lost, 33 output, 34 not built yet, 35 some of several processes failed, 36 --max-size reached.")
        .override_usage("rocprofv3 [OPTIONS] -- APP [ARGUMENTS]\n       rocprofv3 --pid PID [OPTIONS]")
        .args_override_self(true)
        .disable_help_flag(true)
        .arg(Arg::new("help").short('h').long("help").action(ArgAction::Help).help("Print help (-h: available options; --help: \
        all options)"))
        .arg(
            Arg::new("application")
                .num_args(0..)
                .last(true)
                .value_name("APP")
                .value_parser(clap::value_parser!(OsString))
                .help("Program to start under the profiler, with its arguments; rocprofv3 becomes this program (exec)"),
        );
    with_options(command, Front::Rocprofv3)
}

/// Runs the command line. Returns the exit code.
pub fn main(words: Vec<OsString>, engine: &dyn Engine) -> u8 {
    let report = Report::new("rocprofv3");
    run(&words, engine, report).unwrap_or_else(|failure| report.failure(&failure))
}

fn run(words: &[OsString], engine: &dyn Engine, report: Report) -> Result<u8, Failure> {
    if words.len() <= 1 {
        report.text(command().render_help().to_string().as_bytes());
        return Ok(0);
    }
    let Some(matches) = command::parse_or_print(command(), words, report)? else {
        return Ok(0);
    };
    if matches.get_flag("version") {
        report.text(version::rocprofv3().as_bytes());
        return Ok(0);
    }
    let mut given = given(&matches, Front::Rocprofv3)?;
    let taken = input::take(&mut given)?;
    if given.is_on("list-avail") {
        let inherited = attach::environment()?;
        let resolved = counters::resolved(&given, &inherited)?;
        return counters::list_avail(given.text("arch"), &resolved.settings, report);
    }
    if given.text("arch").is_some() {
        return Err(Failure::new(Kind::Usage, "--arch requires --list-avail"));
    }
    let application: Option<Vec<OsString>> = matches
        .get_many("application")
        .map(|words| words.cloned().collect());
    let pid = given.number("pid").and_then(|pid| u32::try_from(pid).ok());
    if application.is_some() && pid.is_some() {
        return Err(Failure::new(
            Kind::Usage,
            "cannot both start a program and attach to a process",
        )
        .hint("omit --pid, or the program after --"));
    }
    if application.is_none() && pid.is_none() {
        return Err(Failure::new(
            Kind::Usage,
            "no program to start and no process to attach to",
        )
        .hint("give the program after --, or --pid PID; see --help"));
    }
    let inherited = attach::environment()?;
    let resolved = counters::resolved(&given, &inherited)?;
    let report = report.at_level_of(&resolved.settings);
    attach::report_settings(&resolved, &given, &report);
    if !resolved.records_something() {
        report.warning("No tracing options were enabled.");
    }
    let Some(pid) = pid else {
        return start(
            &application.unwrap_or_default(),
            &given,
            (resolved.settings, &taken),
            &report,
        );
    };
    let pid = named(pid)?;
    if given.is_on("echo") {
        let words = ["rocprof-attach", "--pid", &pid.to_string()].map(OsString::from);
        report.line(&launch::as_python_prints_it(&words));
        return Ok(0);
    }
    let duration = given
        .number("attach-duration-msec")
        .map(Duration::from_millis);
    let until = Until {
        duration,
        signals_alone: given.is_on("until-signal"),
    };
    let words = Lines {
        pid,
        library: engine.library().display().to_string(),
        report,
        cuda_reported: Cell::new(false),
    };
    // AMD attaches to the tree by default.
    let children = resolved.settings.boolean("ROCPROF_ATTACH_CHILDREN");
    let alone = matches!(children, Ok(Some(false)));
    let is_default = matches!(children, Ok(None));
    let merge = given.is_on("merge");
    let mut request = Request::new(pid, resolved.settings);
    request.asked.by_name = given.traces_by_name();
    request.wait = given.duration("wait");
    let job = if alone {
        Job::One(request)
    } else {
        Job::Many(GroupRequest {
            selection: Selection::Tree(pid),
            each: request,
            patient: false,
            merge,
            is_default,
        })
    };
    Ok(attach::run(engine, job, until, &words, &report))
}

/// Becomes the program, or runs it once for each group of counters.
fn start(
    words: &[OsString],
    given: &Given,
    (mut settings, taken): (Settings, &Taken),
    report: &Report,
) -> Result<u8, Failure> {
    if taken.mixed {
        return Err(Failure::new(
            Kind::Usage,
            "cannot combine pmc and pmc_groups: pmc means separate runs, pmc_groups multiplexes one run",
        ));
    }
    if let Some(interval) = &taken.interval {
        settings.set(INTERVAL, interval);
    }
    let mut passes = passes(given, &settings, taken);
    if passes.len() == 1
        && let Some(only) = passes.pop()
    {
        settings = only;
    }
    let settings = &settings;
    let preload: Vec<String> = settings
        .list("ROCPROF_PRELOAD", ':')
        .into_iter()
        .map(str::to_owned)
        .collect();
    let launch = Launch {
        words,
        settings,
        preload: &preload,
        echo: given.is_on("echo"),
        suppress_markers: given.is_on("suppress-marker-preload"),
        libraries: Libraries {
            root: given.text("rocm-root"),
            ending: given.text("sdk-version").or(given.text("sdk-soversion")),
            links: Links {
                read: given.is_on("readlink"),
                real: given.is_on("realpath"),
            },
        },
    };
    if passes.is_empty() {
        launch::run(&launch, report)
    } else {
        launch::run_passes(&launch, &passes, report)
    }
}

/// Returns the runs of the program that groups of counters need, each with its settings, or nothing
/// where groups make no difference. As in AMD's tool (`docs/sources.md#rocprofv3`), each group of
/// `--pmc` and of `pmc` in an input file is a run with a directory of its own. The exception is a
/// single group of `--pmc` alone, whose results are where they are without counters. Groups of
/// `pmc_groups` are multiplexed in one run.
fn passes(given: &Given, settings: &Settings, taken: &Taken) -> Vec<Settings> {
    let Some(Value::Texts(groups)) = given.get("pmc").filter(|_| !taken.take_turns) else {
        return Vec::new();
    };
    if let ([_], 0) = (&groups[..], taken.groups) {
        return Vec::new();
    }
    let of_words = groups.len().saturating_sub(taken.groups);
    let base = settings.text(OUTPUT_PATH).unwrap_or(".");
    let pass = |(number, group): (usize, &String)| {
        let directory = match number {
            number if number < of_words => "pass_",
            _ => taken.directory,
        };
        let mut pass = settings.clone();
        pass.remove(COUNTER_GROUPS);
        pass.set(COUNTERS, format!("pmc: {group}"));
        pass.set(OUTPUT_PATH, format!("{base}/{directory}{}", number + 1));
        pass
    };
    groups.iter().enumerate().map(pass).collect()
}

/// Prints AMD's lines on standard output, character for character, because scripts look for them
/// (`docs/sources.md#rocprofv3`).
struct Lines {
    pid: Pid,
    library: String,
    report: Report,
    cuda_reported: Cell<bool>,
}

impl Messages for Lines {
    fn attaching(&self) {
        self.report.line(&format!(
            "Attaching to PID {} using library {}",
            self.pid, self.library
        ));
    }

    fn attached(&self, _took: Duration, until: Until) {
        self.report.line(&format!(
            "Attaching to PID {} using library {} :: success",
            self.pid, self.library
        ));
        match until.duration {
            None if until.signals_alone => {
                self.report.line("Send SIGINT or SIGTERM to detach...");
            }
            None => self.report.line("Press Enter to detach..."),
            Some(duration) => {
                let msec = duration.as_millis();
                self.report.line(&format!("Attaching for {msec} msec..."));
                self.report.line("");
            }
        }
    }

    fn cuda(&self, pid: Pid) {
        // The first of several processes stands for all.
        if self.cuda_reported.replace(true) {
            return;
        }
        self.report.note(&format!(
            "process {pid} is a CUDA process: midair records it through CUPTI"
        ));
    }

    fn ended(&self, ended: Ended) {
        match ended {
            Ended::Signal(signal) => {
                self.report.line("");
                self.report
                    .line(&format!("Caught signal {}", signal.as_str()));
            }
            // The results report it.
            Ended::Target(End::Yielded | End::Lapsed | End::Full) => {}
            Ended::Target(_) => self.report.note(&format!(
                "process {} exited or shut down its GPU runtime",
                self.pid
            )),
            Ended::Duration | Ended::Enter | Ended::EndOfInput => {}
        }
    }

    fn detaching(&self) {
        self.report
            .line("Detaching. Please wait, this can take up to 1-2 minutes");
    }

    fn detached(&self, _took: Duration) {
        self.report.line(&format!(
            "Detaching from PID {} using library {} :: success",
            self.pid, self.library
        ));
    }

    fn detach_failed(&self, failure: &Failure) {
        let status = midair_session::rocattach_status(failure.kind);
        self.report.line(&format!(
            "Calling detach in {} returned non-zero status {status}",
            self.library
        ));
    }

    fn written(&self, written: &Written) {
        for file in &written.files {
            self.report
                .line(&format!("Opened result file: {}", file.display()));
        }
    }
}
