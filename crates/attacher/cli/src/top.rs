//! The command `midair top`: what processes do on the GPU now.

mod screen;
mod starts;

use crate::attach::{Job, Owner, report_notice};
use crate::command::{argument, options_of};
use crate::engine::{Attached, End, Engine, Event, Notice, NoticeKind, Request};
use crate::report::Report;
use crate::wait::{Ended, Input, Signals, wait};
use clap::{Arg, ArgAction, ArgMatches, Command};
use midair_failure::{Failure, Kind};
use midair_live::{Answer, Cut, Model, Process, Snapshot, Watched};
use midair_session::Keep;
use midair_settings::{Category, Front, STACKS, duration_word};
use midair_top::{Action, By, Look, View};
use screen::Screen;
use starts::Starts;
use std::os::fd::AsFd;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Options of `midair attach` that have no meaning here.
const NOT_HERE: [&str; 13] = [
    "dry-run",
    "no-entry",
    "merge",
    "json",
    "wide",
    "quiet",
    "top",
    "interval",
    "keep",
    "trigger",
    "keep-windows",
    "keep-disk",
    "at",
];
/// The time between two drawings of the screen, unless the user says otherwise.
const INTERVAL: Duration = Duration::from_millis(500);
/// The time between two outputs where lines are written, and for which `--once` looks.
const LINES: Duration = Duration::from_secs(1);
/// The number of columns where there is no terminal.
const COLUMNS: usize = 100;
/// The longest time between two polls of the session.
const TURN: Duration = Duration::from_millis(100);
/// The time that the key `r` keeps, and the most bytes.
const KEPT: Duration = Duration::from_secs(10);
const MOST_KEPT: u64 = 1 << 30;
/// The shortest and the longest interval that may be asked for.
const SHORTEST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(60);

/// The clap command.
pub(crate) fn command(pid: Arg) -> Command {
    let top = Command::new("top")
        .about("Watch what processes do on the GPU now")
        .long_about(
            "Watch what processes do on the GPU now: GPU busy time and reasons for idle time, kernels by their share of the last \
             two seconds, copies, waiting calls, and the kernel at the head of each queue. Attaches as midair attach does, keeps \
             no records, and detaches at the end.\n\
             Without a terminal, midair prints text, or with --json one \
             line per process, at each interval. It stops at the end of standard input, on a signal, or when the process exits; \
             with --until-signal it does not read standard input.",
        )
        .args_override_self(true)
        .arg(
            pid.required(false)
                .help("Process to attach to; or --tree, --all, --name"),
        )
        .arg(
            Arg::new("once")
                .long("once")
                .action(ArgAction::SetTrue)
                .help("Watch for one interval, print the result, and detach"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print JSON, one line per process and interval"),
        )
        .arg(
            Arg::new("by")
                .long("by")
                .value_name("ROWS")
                .value_parser(["kernel", "code"])
                .default_value("kernel")
                .help("Show kernels, or the code that launches them: lines of Python (--stacks python), or functions (native)"),
        )
        .arg(
            Arg::new("interval")
                .long("interval")
                .value_name("TIME")
                .help("Refresh at this interval, 250ms to 60s (default 500ms on a terminal, else 1s)"),
        );
    options_of(Front::Midair)
        .filter(|option| !NOT_HERE.contains(&option.long))
        .filter(|option| option.category != Category::ThreadTrace)
        .fold(top, |top, option| top.arg(argument(option, Front::Midair)))
}

/// The options that only `midair top` has.
#[derive(Debug)]
pub(crate) struct Options {
    once: bool,
    json: bool,
    interval: Option<Duration>,
    by: By,
    takes_stacks: bool,
    duration: Option<Duration>,
    /// Whether standard input is left alone.
    until_signal: bool,
}

impl Options {
    /// Reads the options from the words.
    pub(crate) fn of(
        matches: &ArgMatches,
        duration: Option<Duration>,
        takes_stacks: bool,
    ) -> Result<Options, Failure> {
        let interval = match matches.get_one::<String>("interval") {
            None => None,
            Some(word) => Some(
                duration_word(word)
                    .filter(|time| (SHORTEST..=LONGEST).contains(time))
                    .ok_or_else(|| {
                        Failure::new(
                            Kind::Usage,
                            format!("--interval {word} is not a time between 250ms and 60s"),
                        )
                    })?,
            ),
        };
        Ok(Options {
            once: matches.get_flag("once"),
            json: matches.get_flag("json"),
            interval,
            by: match by_code(matches) {
                true => By::Code,
                false => By::Kernel,
            },
            takes_stacks,
            duration,
            until_signal: matches.get_flag("until-signal"),
        })
    }
}

/// Returns what `midair top` asks for where the user does not: options and their values.
pub(crate) fn defaults(matches: &ArgMatches) -> &'static [(&'static str, &'static str)] {
    match by_code(matches) {
        true => &[("stacks", "python")],
        false => &[],
    }
}

/// Whether the words ask for lines of code.
pub(crate) fn by_code(matches: &ArgMatches) -> bool {
    matches
        .get_one::<String>("by")
        .is_some_and(|by| by == "code")
}

/// Attaches, shows, detaches. Returns the exit code.
pub(crate) fn run(
    engine: &dyn Engine,
    job: impl Fn(Request) -> Job,
    mut request: Request,
    whom: &str,
    mut options: Options,
    report: &Report,
) -> Result<u8, Failure> {
    let signals = Signals::block()?;
    let began = Instant::now();
    loop {
        let one = request.clone();
        match watch(engine, &job, one, whom, &options, (&signals, began), report)? {
            Over::With(code) => return Ok(code),
            Over::ForStacks => {
                request.settings.set(STACKS, "python");
                (options.by, options.takes_stacks) = (By::Code, true);
            }
        }
    }
}

/// How a session of `midair top` ended.
enum Over {
    /// For good, with this exit code.
    With(u8),
    /// The user wants stacks, which needs another session.
    ForStacks,
}

/// Attaches, shows, detaches.
fn watch(
    engine: &dyn Engine,
    job: impl Fn(Request) -> Job,
    mut request: Request,
    whom: &str,
    options: &Options,
    (signals, began): (&Signals, Instant),
    report: &Report,
) -> Result<Over, Failure> {
    let watched = Watched::default();
    request.live = Some(watched.clone());
    request.keep = Keep::Latest {
        time: Duration::ZERO,
        bytes: 0,
    };
    let job = job(request);
    let owner = Owner::of(engine, &job);
    let mut attached = {
        let _progress = report.progress("attaching");
        signals.end_what_hangs(report, || match &job {
            Job::One(request) => engine.attach(request),
            Job::Many(request) => engine.attach_group(request.clone()),
        })?
    };
    report.info(&format!("attached to {whom}"));
    let mut watch = Watch {
        attached: attached.as_mut(),
        signals,
        watched: &watched,
        began,
        options,
        report,
        cpu: Cpu::new(),
        written: Vec::new(),
        wants_stacks: false,
    };
    let ended = match options.once || options.json || !screen::is_there() {
        true => watch.lines(),
        false => watch.screen(),
    };
    let mut written = std::mem::take(&mut watch.written);
    let wants_stacks = watch.wants_stacks;
    // Whatever happened, the target must be free before anything is reported.
    let trace = attached.detach();
    // The screen has gone, and what it said of files with it. Some are written at the detach.
    written.extend(answers(&watched).iter().map(told));
    written.iter().for_each(|line| report.note(line));
    let ended = ended?;
    let trace = trace?;
    if let Some(failure) = trace.detach_failure() {
        return Ok(Over::With(report.failure(failure)));
    }
    if wants_stacks {
        return Ok(Over::ForStacks);
    }
    Ok(Over::With(match ended {
        Ended::Target(end) => over(end, whom, &owner, report),
        _ => 0,
    }))
}

/// Returns the exit code where the target ended.
fn over(end: End, whom: &str, owner: &Owner, report: &Report) -> u8 {
    match end {
        End::Signal(_) | End::Exec => crate::attach::target_code(end, owner, report),
        end => {
            report.note(&match crate::attach::runs_on(end) {
                Some(why) => format!("{whom} keeps running; {why}"),
                None => format!("{whom} exited or shut down its GPU runtime"),
            });
            0
        }
    }
}

/// An attached `midair top`.
struct Watch<'a> {
    attached: &'a mut dyn Attached,
    signals: &'a Signals,
    watched: &'a Watched,
    /// When the first session started.
    began: Instant,
    options: &'a Options,
    report: &'a Report,
    cpu: Cpu,
    /// What the screen said of files.
    written: Vec<String>,
    /// Whether the user wants stacks, which this session does not take.
    wants_stacks: bool,
}

impl Watch<'_> {
    fn view(&self) -> View {
        let style = self.report.table_style();
        let mut view = View::new(Look {
            colour: style.colour,
            unicode: style.unicode,
        });
        view.show_by(self.options.by);
        view
    }

    /// Writes lines with the present state at each interval, until something ends it.
    fn lines(&mut self) -> Result<Ended, Failure> {
        let (options, report) = (self.options, self.report);
        let interval = options.interval.unwrap_or(LINES);
        let mut view = self.view();
        let columns = report.columns().unwrap_or(COLUMNS);
        let began = self.began;
        // As with midair attach, a time or --until-signal says when it ends.
        let reads = !(options.once || options.until_signal || options.duration.is_some());
        let stdin = std::io::stdin();
        let mut starts = Starts::default();
        loop {
            note(starts.turn(&snapshots(self.watched), false), report);
            let left = options
                .duration
                .map(|duration| duration.saturating_sub(began.elapsed()));
            let pause = interval.min(left.unwrap_or(Duration::MAX));
            let mut seen = |_: Event, news: &[Notice]| {
                news.iter()
                    .for_each(|notice| report_notice(notice, None, report));
            };
            let input = match reads {
                true => Input::watched(stdin.as_fd()),
                false => Input::ignored(),
            };
            let ended = wait(self.attached, self.signals, input, Some(pause), &mut seen)?;
            let snapshots = snapshots(self.watched);
            note(starts.turn(&snapshots, options.once), report);
            if options.json {
                for snapshot in &snapshots {
                    let mut document = snapshot.to_json();
                    document["attacher_share"] = self.cpu.share().into();
                    report.json(&document);
                }
            } else {
                view.show(snapshots, self.cpu.share());
                report.text(format!("{}\n", view.text(columns)).as_bytes());
            }
            let over = left.is_some_and(|left| left <= interval);
            if ended != Ended::Duration || options.once || over {
                return Ok(ended);
            }
        }
    }

    /// Draws the present state, until something ends it.
    fn screen(&mut self) -> Result<Ended, Failure> {
        let interval = self.options.interval.unwrap_or(INTERVAL);
        let mut view = self.view();
        let mut screen = Screen::open()?;
        let mut starts = Starts::default();
        let began = self.began;
        let mut next = Instant::now();
        loop {
            let event = self.attached.poll()?;
            for notice in self.attached.news() {
                view.tell(words(&notice));
            }
            for answer in answers(self.watched) {
                view.tell(told(&answer));
                self.written.push(told(&answer));
            }
            if let Event::TargetExited(end) = event {
                return Ok(Ended::Target(end));
            }
            if let Some(signal) = self.signals.next() {
                return Ok(Ended::Signal(signal));
            }
            let over = |duration| began.elapsed() >= duration;
            if self.options.duration.is_some_and(over) {
                return Ok(Ended::Duration);
            }
            if Instant::now() >= next {
                next = Instant::now() + interval;
                let snapshots = snapshots(self.watched);
                if let Some(text) = starts.turn(&snapshots, false) {
                    view.tell(text);
                }
                view.show(snapshots, self.cpu.share());
                screen.draw(&view)?;
            }
            let pause = next.saturating_duration_since(Instant::now());
            let Some(key) = screen.key(pause.min(TURN))? else {
                continue;
            };
            match view.key(key) {
                Action::Draw => {}
                Action::Quit => return Ok(Ended::Enter),
                // The session may take stacks and have none yet.
                Action::TakeStacks if self.options.takes_stacks => {}
                Action::TakeStacks => {
                    self.wants_stacks = true;
                    return Ok(Ended::Enter);
                }
                Action::Keep => {
                    keep(self.watched);
                    let seconds = KEPT.as_secs();
                    view.tell(format!("keeping the next {seconds} s as files"));
                }
            }
            screen.draw(&view)?;
        }
    }
}

/// Writes a message, unless it only takes the last one away.
fn note(text: Option<String>, report: &Report) {
    if let Some(text) = text.filter(|text| !text.is_empty()) {
        report.note(&text);
    }
}

/// Returns the outcomes of requests for files since the last call.
fn answers(watched: &Watched) -> Vec<Answer> {
    let processes = watched.processes();
    let answers = processes.iter().map(|process| held(process).answers());
    answers.flatten().collect()
}

/// Requests files of the next seconds of all processes.
fn keep(watched: &Watched) {
    for process in watched.processes() {
        let mut model = held(&process);
        let now = model.now();
        model.wish_to_keep(Keep::Latest {
            time: 2 * KEPT,
            bytes: MOST_KEPT,
        });
        model.wish_for(Cut {
            from: now,
            to: now.saturating_add(KEPT.as_nanos() as u64),
            why: "requested in midair top".to_owned(),
        });
    }
}

/// Returns an answer as one line.
pub(crate) fn told(answer: &Answer) -> String {
    match &answer.files {
        Ok(files) => format!("written: {}", files.join(" ")),
        Err(why) => format!("not written: {why}"),
    }
}

fn words(notice: &Notice) -> String {
    let who = format!("process {} ({})", notice.pid, notice.name);
    match &notice.what {
        NoticeKind::Attached(_, took) => {
            format!("attached to {who} in {:.1} ms", took.as_secs_f64() * 1e3)
        }
        NoticeKind::Refused(failure) => format!("cannot attach to {who}: {}", failure.what),
        NoticeKind::Ended(_) => format!("{who} has ended"),
        NoticeKind::Watched => format!("{who} has no GPU runtime yet; waiting for one"),
    }
}

/// The processor time of this process.
#[derive(Debug)]
struct Cpu {
    wall: Instant,
    spent: Duration,
}

impl Cpu {
    fn new() -> Cpu {
        Cpu {
            wall: Instant::now(),
            spent: spent(),
        }
    }

    /// Returns the share of one processor since the last call, or since the attach.
    fn share(&mut self) -> f64 {
        let (wall, now) = (Instant::now(), spent());
        let time = wall.duration_since(self.wall).as_secs_f64();
        let share = now.saturating_sub(self.spent).as_secs_f64() / time.max(1e-3);
        (self.wall, self.spent) = (wall, now);
        share
    }
}

fn spent() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID)
        .map(Duration::from)
        .unwrap_or_default()
}

/// Returns the model of a process. If a thread panicked while it held the model, the model is shown
/// all the same.
pub(crate) fn held(process: &Process) -> MutexGuard<'_, Model> {
    process.model.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns what all processes do now.
fn snapshots(watched: &Watched) -> Vec<Snapshot> {
    let processes = watched.processes();
    let snapshot = |process: &Process| Snapshot::of(process.pid, &process.name, &held(process));
    processes.iter().map(snapshot).collect()
}
