//! The command line `midair`, friendlier than AMD's and over the same engine.

use midair_rocpd::CsvForm;
use midair_session::Pid;
use midair_session::find::named;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use clap_complete::Shell;
use midair_failure::{Failure, Kind};
use midair_settings::literal::literal;
use midair_settings::options::option;
use midair_settings::{
    Category, Front, Given, KEEP_RESULTS, OUTPUT_PATH, Resolved, SCREEN, STACKS, Settings,
};

use crate::attach::{self, Job, Messages, Special, Until};
use crate::command::{self, argument, given, options_of, refused, with_options};
use crate::doctor::Subject;
use crate::engine::{End, Engine, GroupRequest, Request, Requested, Selection, Written};
use crate::input;
use crate::keep::{self, At};
use crate::launch::{self, Launch};
use crate::report::{OnScreen, Report};
use crate::wait::Ended;
use crate::{
    avail, counters, demo, doctor, flame, fleet, help, man, metrics, ps, rocpd, rocprofv3, serve,
    show, top, version, why, words,
};

fn pid_argument() -> Arg {
    Arg::new("PID")
        .value_name("PROCESS")
        .help("Process to inspect: its PID, or a name that matches exactly one GPU process")
}

/// Builds the process as an option, for users who are used to it.
fn pid_option() -> Arg {
    Arg::new("pid")
        .short('p')
        .long("pid")
        .value_name("PROCESS")
        .conflicts_with("PID")
        .help("The same as PROCESS")
}

/// Builds `midair run`, with the options that say what to record and where to write it, and the
/// program.
fn run_command() -> Command {
    let run = Command::new("run")
                .about("Start a program under the profiler")
        .long_about(
            "Start a program under the profiler. midair becomes the program (exec), so the exit code is the program's. The \
             results are written when the program exits, and their names are printed on standard error.\n\
             By \
             default, HIP calls, kernels and memory copies are recorded.",
        )
        .args_override_self(true)
        .after_help(help::RUN)
        .arg(
            Arg::new("application")
                .num_args(1..)
                .required(true)
                // Words behind the program are its own, whatever they start with; one before it that
                // starts with a hyphen is an option.
                .trailing_var_arg(true)
                .value_name("APP")
                .value_parser(clap::value_parser!(OsString))
                .help("Program to start, with its arguments"),
        );
    options_of(Front::Midair)
        .filter(|option| option.category != Category::Attach)
        .fold(run, |run, option| run.arg(argument(option, Front::Midair)))
}

/// The clap command.
pub fn command() -> Command {
    let attach = Command::new("attach")
        .about("Profile a running process: attach, record, detach, show the top kernels and calls")
        .long_about(
            "Profile a running process: attach, record, detach, show the top kernels and calls, and write the results.\n\
       \
                   By default, HIP calls, kernels and memory copies are recorded; in a CUDA process kernels and copies.",
        )
        .args_override_self(true)
        .after_help(help::ATTACH)
        .arg(
            pid_argument()
                .help("Process to attach to: its PID, or a name that matches exactly one GPU process; or --tree, --all, --name"),
        )
        .arg(pid_option());
    let flame = Command::new("flame")
        .about("Record which lines of Python code the GPU's time comes from: a page with a flame graph")
        .long_about(
            "Record which lines of Python code the GPU's time comes from, and write a page with a flame graph.\n\
             The same as midair attach --stacks python -f html --duration 10s; each of these may be given otherwise.\n\
             --diff compares two recordings, and attaches to nothing.",
        )
        .args_override_self(true)
        .after_help(help::FLAME)
        .arg(pid_argument().help(
            "Process to attach to: its PID, or the name of the one GPU process that has it; or --tree, --all, --name",
        ))
        .arg(pid_option());
    Command::new("midair")
        .about("Attach a GPU profiler to a running process")
        .version(version::midair())
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .after_help(help::MIDAIR)
        .subcommand(with_options(attach, Front::Midair))
        .subcommand(flame::options(with_options(flame, Front::Midair)))
        .subcommand(run_command())
        .subcommand(top::command(pid_argument()))
        .subcommand(why::command(pid_argument()).arg(pid_option()))
        .subcommand(ps::command())
        .subcommand(
            doctor::command(
                pid_argument()
                    .help("Process to inspect, by its PID or name; omit to check the machine"),
            )
            .arg(pid_option()),
        )
        .subcommand(show::command())
        .subcommand(rocpd::convert_command())
        .subcommand(counters::command())
        .subcommand(metrics::command())
        .subcommand(demo::command())
        .subcommand(fleet::command())
        .subcommand(serve::command())
        .subcommand(
            Command::new("compute")
                .about("Show panels of hardware counters, as rocprof-compute does")
                .disable_help_flag(true)
                .arg(command::passed_on(
                    "profile, live or analyze, with their options; --help lists them",
                )),
        )
        .subcommand(
            Command::new("completions")
                .about("Print completions for a shell")
                .arg(
                    Arg::new("SHELL")
                        .required(true)
                        .value_parser(clap::value_parser!(Shell)),
                )
                .arg(
                    Arg::new("command")
                        .long("command")
                        .value_name("NAME")
                        .value_parser([
                            "midair",
                            "rocprofv3",
                            "rocprof-compute",
                            "rocpd",
                            "rocprofv3-avail",
                        ])
                        .default_value("midair")
                        .help("Print completions for this command"),
                ),
        )
        .subcommand(
            Command::new("man")
                .about("Print a manual page, or write all of them")
                .arg(
                    Arg::new("PAGE")
                        .value_parser(man::words())
                        .default_value("midair"),
                )
                .arg(
                    Arg::new("directory")
                        .long("directory")
                        .value_name("DIR")
                        .value_parser(clap::value_parser!(PathBuf))
                        .help("Write every page to this directory"),
                ),
        )
}

/// Runs the command line. Returns the exit code.
pub fn main(words: Vec<OsString>, engine: &dyn Engine) -> u8 {
    let report = Report::new("midair");
    run(&words, engine, report).unwrap_or_else(|failure| report.failure(&failure))
}

fn run(words: &[OsString], engine: &dyn Engine, report: Report) -> Result<u8, Failure> {
    let words = words::tidied(words);
    if let Some(text) = help::all(&words) {
        report.text(text.as_bytes());
        return Ok(0);
    }
    let Some(matches) = command::parse_or_print(command(), &words, report)? else {
        return Ok(0);
    };
    match matches.subcommand() {
        Some(("attach", matches)) => run_attach(matches, &[], engine, report),
        Some(("flame", matches)) if flame::is_asked(matches) => {
            flame::compare(matches, &given(matches, Front::Midair)?, &report)
        }
        Some(("flame", matches)) => run_attach(matches, &FLAME, engine, report),
        Some(("run", matches)) => start(matches, report),
        Some(("top", matches)) => watch(matches, engine, report),
        Some(("why", matches)) => why::run(matches, named_process(matches), report),
        Some(("ps", matches)) => Ok(ps::run(matches, engine, report)),
        Some(("doctor", matches)) => {
            let (resolved, report, nothing) = resolve_with_defaults(&mut Given::new(), report)?;
            let pid = named_process(matches).map(words::process).transpose()?;
            let mut request = Request::new(pid.unwrap_or_else(Pid::own), resolved.settings);
            request.asked.nothing = nothing;
            let of = if pid.is_some() {
                Subject::Process
            } else {
                Subject::Machine
            };
            doctor::check(&request, of, matches.get_flag("json"), engine, report)
        }
        Some(("show", matches)) => show::run(matches, report),
        Some(("counters", matches)) => counters::run(matches, report),
        Some(("metrics", matches)) => metrics::run(matches, report),
        Some(("fleet", matches)) => fleet::run(matches, report),
        Some(("serve", matches)) => serve::run(matches),
        Some(("demo", matches)) => demo::run(matches, report, &mut |words| {
            run(words, engine, report).unwrap_or_else(|failure| report.failure(&failure))
        }),
        Some(("compute", matches)) => {
            let words = matches.get_many("words").into_iter().flatten().cloned();
            let all = std::iter::once("midair compute".into()).chain(words);
            Ok(midair_compute::main(all.collect()))
        }
        Some(("completions", matches)) => completions(matches, report),
        Some(("man", matches)) => print_man(matches, report),
        Some(("convert", matches)) => rocpd::converted(matches, CsvForm::Attach, report),
        _ => Err(Failure::new(Kind::Usage, "no command").hint("see --help")),
    }
}

/// Returns the word for the one process, in whichever form it was given.
fn named_process(matches: &ArgMatches) -> Option<&str> {
    let word = |id| matches.try_get_one::<String>(id).ok().flatten();
    word("PID").or_else(|| word("pid")).map(String::as_str)
}

/// Returns the settings. Where the user did not say what to record, these are HIP calls, kernels
/// and copies, and the boolean is true. (A CUDA process has a default of its own.)
fn resolve_with_defaults(
    given: &mut Given,
    report: Report,
) -> Result<(Resolved, Report, bool), Failure> {
    let inherited = attach::environment()?;
    let mut resolved = counters::resolved(given, &inherited)?;
    let unasked = !resolved.records_something() && !given.asks_for_traces();
    if unasked {
        for long in ["runtime-trace", "hip-trace"] {
            if let Some(option) = option(long).filter(|_| given.get(long).is_none()) {
                given.give(option, &[]).map_err(refused)?;
            }
        }
        resolved = counters::resolved(given, &inherited)?;
    }
    let mut report = report.at_level_of(&resolved.settings);
    if given.is_on("verbose") {
        report = report.verbose();
    }
    if given.is_on("timings") {
        report = report.timed();
    }
    attach::report_settings(&resolved, given, &report);
    Ok((resolved, report, unasked))
}

/// Becomes the program.
fn start(matches: &ArgMatches, report: Report) -> Result<u8, Failure> {
    let mut given = given(matches, Front::Midair)?;
    input::take(&mut given)?;
    let (resolved, report, _) = resolve_with_defaults(&mut given, report)?;
    let mut settings = resolved.settings;
    refuse_native_stacks(&settings)?;
    // The program's standard output is its own, so the screen is shown next to its messages.
    let unicode = if report.table_style().unicode {
        "u"
    } else {
        ""
    };
    settings.set(SCREEN, format!("{}{unicode}", report.error_columns()));
    if settings.get(KEEP_RESULTS).is_none() {
        settings.set(KEEP_RESULTS, "1");
    }
    let words: Vec<OsString> = matches
        .get_many("application")
        .map(|words| words.cloned().collect())
        .unwrap_or_default();
    let launch = Launch {
        words: &words,
        settings: &settings,
        preload: &[],
        echo: false,
        suppress_markers: false,
        libraries: launch::Libraries::default(),
    };
    launch::run(&launch, &report)
}

/// What the words of `midair attach` and `midair top` ask for.
struct Invocation {
    given: Given,
    target: Target,
    request: Request,
    report: Report,
}

/// What `midair flame` asks for where the user does not.
const FLAME: [Default; 3] = [
    ("stacks", "python"),
    ("output-format", "html"),
    ("duration", "10s"),
];

/// An option and its value where the user does not give it.
type Default = (&'static str, &'static str);

fn asked(
    matches: &ArgMatches,
    defaults: &[Default],
    report: Report,
) -> Result<Invocation, Failure> {
    let mut given = given(matches, Front::Midair)?;
    input::take(&mut given)?;
    for (long, word) in defaults {
        if let Some(option) = option(long).filter(|_| given.get(long).is_none()) {
            given.give(option, &[(*word).to_owned()]).map_err(refused)?;
        }
    }
    let target = target_of(matches, &given)?;
    // Read before defaults are switched on.
    let by_name = given.traces_by_name();
    let report = report.showing(OnScreen {
        rows: given
            .number("top")
            .and_then(|rows| usize::try_from(rows).ok()),
        wide: given.is_on("wide"),
        json: given.is_on("json"),
        quiet: given.is_on("quiet"),
    });
    let (resolved, report, nothing) = resolve_with_defaults(&mut given, report)?;
    let mut request = Request::new(target.pid().unwrap_or_else(Pid::own), resolved.settings);
    request.asked = Requested { nothing, by_name };
    // The results of another command must not be replaced. An explicit value in the environment has
    // precedence.
    if request.settings.get(KEEP_RESULTS).is_none() {
        request.settings.set(KEEP_RESULTS, "1");
    }
    if let Some(mib) = given.number("spool-size") {
        request.spool_bytes = mib << 20;
    }
    if let Some(drain) = given.duration("drain") {
        request.drain = drain;
    }
    request.wait = given.duration("wait");
    request.no_entry = given.is_on("no-entry");
    Ok(Invocation {
        given,
        target,
        request,
        report,
    })
}

/// `midair top`.
fn watch(matches: &ArgMatches, engine: &dyn Engine, report: Report) -> Result<u8, Failure> {
    let Invocation {
        given,
        target,
        mut request,
        report,
    } = asked(matches, top::defaults(matches), report)?;
    // Without a current directory the files of the key r go elsewhere, and are named there.
    if request.settings.text(OUTPUT_PATH) == Some("%cwd%") && std::env::current_dir().is_err() {
        let temporary = literal(&std::env::temp_dir());
        request.settings.set(OUTPUT_PATH, temporary);
    }
    refuse_native_stacks(&request.settings)?;
    let has_stacks = !matches!(request.settings.text(STACKS), None | Some("off"));
    let options = top::Options::of(matches, given.duration("duration"), has_stacks)?;
    if matches!(request.settings.burst_percent(), Ok(Some(_))) {
        return Err(Failure::new(
            Kind::Usage,
            "midair top cannot record in bursts: a GPU would seem idle between them; --max-overhead requires --pmc here",
        ));
    }
    if top::by_code(matches) && !has_stacks {
        return Err(Failure::new(
            Kind::Usage,
            "--by code requires stacks, which --stacks off excludes",
        ));
    }
    let whom = target.words(engine);
    let job = |request| target.clone().job(request, false);
    top::run(engine, job, request, &whom, options, &report)
}

/// Refuses native stacks unless they are built here.
fn refuse_native_stacks(settings: &Settings) -> Result<(), Failure> {
    let is_built = cfg!(target_arch = "x86_64");
    if is_built || !matches!(settings.text(STACKS), Some("native" | "both")) {
        return Ok(());
    }
    let what = "native stacks (--stacks native or both) are built for x86-64 only";
    Err(Failure::new(Kind::NotBuilt, what))
}

fn run_attach(
    matches: &ArgMatches,
    defaults: &[Default],
    engine: &dyn Engine,
    report: Report,
) -> Result<u8, Failure> {
    let Invocation {
        given,
        target,
        mut request,
        report,
    } = asked(matches, defaults, report)?;
    refuse_native_stacks(&request.settings)?;
    let at = given.text("at").map(At::parse).transpose()?;
    let special = Special {
        keeping: keep::of(&given, &mut request)?,
        at,
    };
    let alone = matches!(target, Target::One(_)) && !given.is_on("dry-run");
    if request.no_entry && !alone {
        return Err(Failure::new(
            Kind::Usage,
            "--no-entry requires one process: it cannot be combined with --tree, --all, --name or --dry-run",
        )
        .hint("midair attach --no-entry PID"));
    }
    if given.text("gpu-metrics").is_some() && !alone && !given.is_on("dry-run") {
        return Err(Failure::new(
            Kind::Usage,
            "--gpu-metrics requires one process: only one profiler at a time can sample a GPU",
        )
        .hint("midair metrics samples a GPU without a process"));
    }
    if given.is_on("dry-run") {
        if target.pid().is_none() {
            return Err(Failure::new(Kind::Usage, "--dry-run checks one process")
                .hint("midair ps lists the others"));
        }
        return doctor::check(&request, Subject::Process, false, engine, report);
    }
    let words = MidairMessages {
        whom: target.words(engine),
        report,
    };
    let until = Until {
        duration: given.duration("duration").or(at.and_then(|at| at.duration)),
        signals_alone: given.is_on("until-signal"),
    };
    let job = target.job(request, given.is_on("merge"));
    Ok(attach::run_with(
        engine, job, until, special, &words, &report,
    ))
}

/// The target of `midair attach`.
#[derive(Clone)]
enum Target {
    One(Pid),
    Many(Selection),
}

impl Target {
    /// Returns the process that was named, if one was.
    fn pid(&self) -> Option<Pid> {
        match self {
            Target::One(pid) | Target::Many(Selection::Tree(pid)) => Some(*pid),
            Target::Many(_) => None,
        }
    }

    /// Returns the job of attaching there.
    fn job(self, request: Request, merge: bool) -> Job {
        match self {
            Target::One(_) => Job::One(request),
            Target::Many(selection) => Job::Many(GroupRequest {
                selection,
                each: request,
                patient: true,
                merge,
                is_default: false,
            }),
        }
    }

    fn words(&self, engine: &dyn Engine) -> String {
        match self {
            Target::One(pid) => attach::process(engine, *pid),
            Target::Many(Selection::Tree(pid)) => {
                format!("{} and all its descendants", attach::process(engine, *pid))
            }
            Target::Many(Selection::All) => "every process with a GPU runtime".to_owned(),
            Target::Many(Selection::Named(wanted)) => format!("every process named '{wanted}'"),
        }
    }
}

/// Returns the target, for the one way of naming processes that was used.
fn target_of(matches: &ArgMatches, given: &Given) -> Result<Target, Failure> {
    let alone = named_process(matches).map(words::process);
    let alone = alone.transpose()?.map(Target::One);
    let tree = given.number("tree").and_then(|pid| u32::try_from(pid).ok());
    let tree = tree.map(named).transpose()?;
    let tree = tree.map(|pid| Target::Many(Selection::Tree(pid)));
    let all = given.is_on("all").then_some(Target::Many(Selection::All));
    let named = match given.text("name") {
        Some(wanted) => Some(Target::Many(Selection::named(wanted)?)),
        None => None,
    };
    let mut ways = [alone, tree, all, named].into_iter().flatten();
    match (ways.next(), ways.next()) {
        (Some(target), None) => Ok(target),
        (None, _) => Err(Failure::new(Kind::Usage, "no process to attach to")
            .hint("give its PID, or --tree PID, --all, or --name REGEX; see --help")),
        _ => Err(Failure::new(
            Kind::Usage,
            "PID, --tree, --all and --name are mutually exclusive",
        )),
    }
}

/// What `midair attach` prints: notes on standard error, the table and the files on standard output.
struct MidairMessages {
    whom: String,
    report: Report,
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

impl Messages for MidairMessages {
    fn attaching(&self) {
        self.report.info(&format!("attaching to {}", self.whom));
    }

    fn attached(&self, took: Duration, until: Until) {
        let end = match until.duration {
            Some(duration) => format!("for {} s", duration.as_secs_f64()),
            None if until.signals_alone => "until a signal".to_owned(),
            None => "until Enter or Ctrl-C".to_owned(),
        };
        self.report.note(&format!(
            "attached to {} in {}; recording {end}",
            self.whom,
            milliseconds(took)
        ));
    }

    fn ended(&self, ended: Ended) {
        match ended {
            Ended::Signal(signal) => self.report.note(&format!("received {}", signal.as_str())),
            // The results report it.
            Ended::Target(End::Yielded | End::Lapsed | End::Full) => {}
            Ended::Target(_) => self.report.note(&format!(
                "{} exited or shut down its GPU runtime",
                self.whom
            )),
            Ended::Duration | Ended::Enter | Ended::EndOfInput => {}
        }
    }

    fn detaching(&self) {}

    fn detached(&self, took: Duration) {
        self.report.note(&format!(
            "detached from {} in {}",
            self.whom,
            milliseconds(took)
        ));
    }

    fn detach_failed(&self, _failure: &Failure) {}

    fn written(&self, written: &Written) {
        let screen = self.report.on_screen();
        if screen.json {
            let rows = screen.rows.unwrap_or(usize::MAX);
            self.report.json(&written.screen.json(rows));
            return;
        }
        if !written.table.is_empty() && !screen.quiet {
            let table = written.table.trim_end();
            self.report.table(&format!("{table}\n\n"));
        }
        for file in &written.files {
            self.report.line(&file.display().to_string());
        }
    }
}

fn completions(matches: &ArgMatches, report: Report) -> Result<u8, Failure> {
    let Some(shell) = matches.get_one::<Shell>("SHELL").copied() else {
        return Err(Failure::new(Kind::Usage, "no shell named"));
    };
    let name = matches
        .get_one::<String>("command")
        .map_or("midair", String::as_str);
    let mut command = match name {
        "rocprofv3" => rocprofv3::command(),
        "rocprof-compute" => midair_compute::command::command(),
        "rocpd" => rocpd::command(),
        "rocprofv3-avail" => avail::command(),
        // Whatever follows `compute` belongs to the other program.
        _ => command().mut_subcommand("compute", |_| {
            let compute = midair_compute::command::command();
            compute.name("compute").display_name("midair-compute")
        }),
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    if name == "midair" {
        script.extend_from_slice(pids_for(shell).as_bytes());
    }
    report.text(&script);
    Ok(0)
}

/// Returns what adds the processes of `midair ps` to a shell's completions. Its first column has
/// the pids.
fn pids_for(shell: Shell) -> &'static str {
    match shell {
        Shell::Bash => {
            r#"
_midair_with_pids() {
    _midair "$@"
    case "${COMP_WORDS[1]}" in
        attach|doctor|top|why)
            COMPREPLY+=($(compgen -W "$(midair ps 2>/dev/null | awk '$1 ~ /^[0-9]+$/ {print $1}')" -- "${COMP_WORDS[COMP_CWORD]}"))
            ;;
    esac
}
complete -F _midair_with_pids -o nosort -o bashdefault -o default midair
"#
        }
        Shell::Zsh => {
            r#"
_midair_with_pids() {
    _midair "$@"
    case "$words[2]" in
        (attach|doctor|top|why)
            compadd -- ${(f)"$(midair ps 2>/dev/null | awk '$1 ~ /^[0-9]+$/ {print $1}')"}
            ;;
    esac
}
compdef _midair_with_pids midair
"#
        }
        Shell::Fish => {
            r#"
complete -c midair -n "__fish_seen_subcommand_from attach doctor top why" -f -a "(midair ps 2>/dev/null | string match -rg '^\s*([0-9]+)\s')"
"#
        }
        _ => "",
    }
}

fn print_man(matches: &ArgMatches, report: Report) -> Result<u8, Failure> {
    if let Some(directory) = matches.get_one::<PathBuf>("directory") {
        let written = man::write_all(directory);
        written.map_err(|error| Failure::new(Kind::Output, error.to_string()))?;
        return Ok(0);
    }
    let name = matches
        .get_one::<String>("PAGE")
        .map_or("midair", String::as_str);
    let name = man::name(name);
    let page = man::page(&name)
        .map_err(|error| Failure::new(Kind::Output, format!("manual page {name}: {error}")))?;
    report.text(&page);
    Ok(0)
}
