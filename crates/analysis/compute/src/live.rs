//! `rocprof-compute live`: shows the chosen tables again and again while the program runs.
//!
//! On a terminal each picture replaces the previous one, and keys scroll. Elsewhere each is printed
//! below the previous one. No files are kept.

use crate::analyze;
use crate::architecture::Source;
use crate::console::Console;
use crate::panels;
use crate::profile::collect::{Collection, Follow};
use crate::profile::machine::Machine;
use crate::profile::watch::{Sureness, Watch};
use crate::profile::{self, plan};
use crate::read::Workload;
use crate::report::{Report, text};
use crate::vintage::Vintage;
use clap::ArgMatches;
use midair_failure::{Failure, Kind};
use nix::sys::termios::{self, LocalFlags, SetArg, Termios};
use std::io::{IsTerminal, stdin, stdout};
use std::path::Path;
use std::time::{Duration, Instant};

/// The panel that is shown where none is chosen: the speed of light.
const DEFAULT: &str = "2";

/// Runs the command. Returns the exit code of the collecting program.
///
/// # Errors
/// When something is missing, or when the process cannot be counted.
pub fn run(matches: &ArgMatches, console: &Console) -> Result<u8, Failure> {
    let number = |name: &str| -> Result<Option<u64>, Failure> {
        let Some(word) = matches.get_one::<String>(name) else {
            return Ok(None);
        };
        let number = word.parse().ok().filter(|number| *number > 0);
        let wrong = || {
            Failure::new(
                Kind::Usage,
                format!("--{name} {word} is not a positive number"),
            )
        };
        number.ok_or_else(wrong).map(Some)
    };
    let Some(pid) = number("attach-pid")? else {
        return Err(Failure::new(Kind::Usage, "no process given")
            .hint("--attach-pid PID; `midair ps` lists processes that use a GPU"));
    };
    let duration = number("attach-duration-msec")?;
    let interval = Duration::from_millis(number("interval-msec")?.unwrap_or(1000));
    let options = analyze::options(matches)?;
    let mut machine = Machine::find(matches.contains_id("config-dir"))?;
    machine.architecture = panels::chosen(matches, machine.architecture, console)?;
    let blocks = profile::chosen_or(matches, &machine, DEFAULT, console)?;
    let plan = plan::plan(machine.architecture, &blocks, profile::NUMBERS)?;
    let failed = |error: std::io::Error| {
        Failure::new(
            Kind::Output,
            format!("cannot create a temporary directory: {error}"),
        )
    };
    let temporary = tempfile::Builder::new()
        .prefix("rocprof-compute-live-")
        .tempdir()
        .map_err(failed)?;
    let here = temporary.path();
    let definitions = profile::definitions(here, &plan)?;
    let counted = here.join("counted");
    let out = here.join("out");
    for directory in [&counted, &out] {
        crate::files::make(directory)?;
    }
    let name = format!("process {pid}");
    let system = machine.system(&name, "");
    let kind = (Vintage::FIRST, plan.groups.len());
    let workload = Workload::begun(Path::new(""), &name, system, kind)?;
    let collection = Collection {
        pid: Some(pid.to_string()),
        duration: duration.map(|duration| duration.to_string()),
        groups: plan.groups,
        definitions,
        kernels: profile::kernels(matches),
        overhead: matches.get_one::<String>("max-overhead").cloned(),
        directory: out,
        live: Some(counted.clone()),
        keys: true,
        ..Collection::default()
    };
    let screen = Screen::open();
    let mut view = View {
        console,
        decimals: options.clone(),
        watch: Watch::new(counted, workload, blocks, options),
        is_screen: screen.is_some(),
        interval,
        began: Instant::now(),
        shown: None,
        report: None,
        name,
        top: 0,
        escape: 0,
    };
    if !view.is_screen && duration.is_none() {
        console.note("no terminal: tables are printed one below the other; Ctrl-C detaches, or set --attach-duration-msec");
    }
    let code = collection.run(console, &mut view);
    drop(screen);
    let code = code?;
    if view.report.is_none() && code == 0 {
        console.warning("no dispatch was seen while attached");
    }
    Ok(code)
}

/// A terminal without echo and line editing. Dropping it restores the previous settings.
struct Screen {
    before: Termios,
}

impl Screen {
    /// Returns None where standard input or standard output is no terminal.
    fn open() -> Option<Screen> {
        if !stdin().is_terminal() || !stdout().is_terminal() {
            return None;
        }
        let before = termios::tcgetattr(stdin()).ok()?;
        let mut keys = before.clone();
        keys.local_flags
            .remove(LocalFlags::ICANON | LocalFlags::ECHO);
        termios::tcsetattr(stdin(), SetArg::TCSANOW, &keys).ok()?;
        Console::control("\x1b[?1049h\x1b[?25l");
        Some(Screen { before })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        Console::control("\x1b[?25h\x1b[?1049l");
        let _ = termios::tcsetattr(stdin(), SetArg::TCSANOW, &self.before);
    }
}

/// What is shown, and how.
struct View<'a> {
    console: &'a Console,
    watch: Watch,
    decimals: crate::report::Options,
    is_screen: bool,
    interval: Duration,
    began: Instant,
    shown: Option<Instant>,
    report: Option<Report>,
    name: String,
    /// The first visible line.
    top: usize,
    /// How many bytes of an escape sequence were read so far: an arrow key sends three.
    escape: u8,
}

impl View<'_> {
    fn heading(&self) -> String {
        let seconds = self.began.elapsed().as_secs_f64();
        let Some(report) = &self.report else {
            return format!("{}  {seconds:.0} s  no counter values yet", self.name);
        };
        let frame = &self.watch.workload().frame;
        let sureness = Sureness::of(report);
        format!(
            "{}  {seconds:.0} s  {}  coverage {:.1} %  widest interval: {} ± {:.1} %",
            self.name,
            midair_failure::plain::counted(report.rows.dispatches(frame), "dispatch", "dispatches"),
            100.0 * sureness.coverage,
            match sureness.worst.as_str() {
                "" => "none",
                worst => worst,
            },
            sureness.errors.last().copied().unwrap_or(0.0)
        )
    }

    fn body(&self) -> String {
        let report = self.report.as_ref();
        report.map_or_else(String::new, |report| {
            text::render(&[(&self.name, report)], &self.decimals)
        })
    }

    fn show(&mut self) {
        self.shown = Some(Instant::now());
        if !self.is_screen {
            self.console
                .text(&format!("=== {}\n{}", self.heading(), self.body()));
            return;
        }
        let (width, height) = terminal_size::terminal_size_of(stdout())
            .map_or((80, 24), |(w, h)| (usize::from(w.0), usize::from(h.0)));
        let body = self.body();
        let lines: Vec<&str> = body.lines().collect();
        let room = height.saturating_sub(2).max(1);
        self.top = self.top.min(lines.len().saturating_sub(room));
        let mut all = vec![self.heading()];
        let seen = lines.iter().skip(self.top).take(room);
        all.extend(seen.map(|line| (*line).to_owned()));
        all.push(format!(
            "q: detach   arrows, space: scroll   lines {} to {} of {}",
            self.top.min(lines.len()) + 1,
            (self.top + room).min(lines.len()),
            lines.len()
        ));
        Console::screen(&all, width);
    }

    fn turn(&mut self, lines: isize) {
        self.escape = 0;
        self.top = self.top.saturating_add_signed(lines);
        self.show();
    }
}

impl Follow for View<'_> {
    fn tick(&mut self) -> bool {
        let due = self.shown.is_none_or(|at| at.elapsed() >= self.interval);
        if due {
            match self.watch.look() {
                Some(mut report) => {
                    // Single dispatches tell nothing about a program that goes on running.
                    report
                        .sheets
                        .retain(|sheet| sheet.source != Source::Dispatches);
                    self.report = Some(report);
                    self.show();
                }
                // Redraw the screen, so that the user sees the time advance.
                None if self.is_screen => self.show(),
                None => {}
            }
        }
        false
    }

    fn line(&mut self, text: &str) {
        if self.is_screen {
            Console::control("\x1b[?1049l");
            self.console.passed_on(text);
            Console::control("\x1b[?1049h");
        } else {
            self.console.passed_on(text);
        }
    }

    fn key(&mut self, key: u8) -> bool {
        let page = 20;
        match (self.escape, key) {
            (0, b'q' | b'Q' | b'\n' | b'\r' | 3) => return true,
            (0, 0x1b) => self.escape = 1,
            (1, b'[') => self.escape = 2,
            (2, b'A') | (0, b'k') => self.turn(-1),
            (2, b'B') | (0, b'j') => self.turn(1),
            (2, b'5') | (0, b'b') => self.turn(-page),
            (2, b'6') | (0, b' ') => self.turn(page),
            _ => self.escape = 0,
        }
        false
    }
}
