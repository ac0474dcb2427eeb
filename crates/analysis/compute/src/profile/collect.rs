//! Collection of counters: `rocprofv3` attaches to the process, or starts the program.

use crate::console::Console;
use crate::files;
use midair_failure::{Failure, Kind};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// What is collected.
#[derive(Debug, Clone, Default)]
pub struct Collection {
    /// The process to attach to; None: the program is started.
    pub pid: Option<String>,
    /// Milliseconds from the attach to the detach.
    pub duration: Option<String>,
    /// The program and its arguments.
    pub program: Vec<OsString>,
    /// Groups of counters.
    pub groups: Vec<Vec<String>>,
    /// A file that defines further counters.
    pub definitions: Option<PathBuf>,
    /// Kernels: an expression that their names match.
    pub kernels: Option<String>,
    /// Launches of each kernel, such as `[1,3-5]`.
    pub launches: Option<String>,
    /// The share of the time that counting may take, in percent.
    pub overhead: Option<String>,
    /// The file for the groups, if a started program runs once and the groups are multiplexed in it.
    pub turns: Option<PathBuf>,
    /// The directory for its files.
    pub directory: PathBuf,
    /// Where the collecting program writes the counts so far, while it is attached.
    pub live: Option<PathBuf>,
    /// Whether keys are read from the terminal here. Then the collecting program's standard output
    /// is not shown.
    pub keys: bool,
    /// Words that ask for samples of program counters. They are in a json file of each process, without a
    /// database.
    pub sampling: Option<Vec<String>>,
    /// Whether to print more.
    pub verbose: bool,
}

/// Returns the collecting program: `ROCPROF`; or `rocprofv3` next to our executable; or our
/// executable itself, where one file contains all programs; or the one on the path.
fn rocprofv3() -> Command {
    if let Some(named) = std::env::var_os("ROCPROF")
        && !named.is_empty()
        && named != "rocprofiler-sdk"
    {
        return Command::new(named);
    }
    let own = std::env::current_exe().unwrap_or_default();
    let beside = own.with_file_name("rocprofv3");
    if files::is_file(&beside) {
        return Command::new(beside);
    }
    if own
        .file_name()
        .is_some_and(|name| name != "rocprof-compute")
    {
        // `midair` acts as the program by whose name it is called.
        let mut command = Command::new(own);
        command.arg0("rocprofv3");
        return command;
    }
    Command::new("rocprofv3")
}

impl Collection {
    /// Returns the words of its command line.
    pub fn words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        let mut put = |all: &[&str]| words.extend(all.iter().map(OsString::from));
        if let Some(pid) = &self.pid {
            put(&["--pid", pid]);
            if let Some(duration) = &self.duration {
                put(&["--attach-duration-msec", duration]);
            }
        }
        // The files list every dispatch, with or without a window.
        let (format, name) = match (&self.sampling, self.keys) {
            (Some(_), _) => ("json", "%pid%_ps_file"),
            // With keys, the files are not kept, so take the format that is written fastest.
            (None, true) => ("csv", "pmc"),
            (None, false) => ("rocpd", "pmc"),
        };
        put(&[
            "--kernel-trace",
            "--output-format",
            format,
            "--output-file",
            name,
        ]);
        for word in self.sampling.iter().flatten() {
            put(&[word]);
        }
        if let Some(kernels) = &self.kernels {
            put(&["--kernel-include-regex", kernels]);
        }
        if let Some(launches) = &self.launches {
            put(&["--kernel-iteration-range", launches]);
        }
        if let Some(overhead) = &self.overhead {
            put(&["--max-overhead", overhead]);
        }
        if self.verbose {
            put(&["--log-level", "info"]);
        }
        match &self.turns {
            Some(file) if self.pid.is_none() => words.extend(["--input".into(), file.into()]),
            _ => {
                for group in &self.groups {
                    put(&["--pmc"]);
                    put(&group.iter().map(String::as_str).collect::<Vec<_>>());
                }
            }
        }
        if let Some(file) = &self.definitions {
            words.extend(["--extra-counters".into(), file.into()]);
        }
        if let (Some(live), Some(_)) = (&self.live, &self.pid) {
            words.extend(["--live-counters".into(), live.into()]);
        }
        words.extend(["--output-directory".into(), self.directory.clone().into()]);
        if self.pid.is_none() {
            words.push("--".into());
            words.extend(self.program.iter().cloned());
        }
        words
    }
}

/// Returns the input file by which these groups are multiplexed in one run.
fn turns(groups: &[Vec<String>]) -> String {
    let mut text = String::from("jobs:\n  - pmc_groups:\n");
    for group in groups {
        text.push_str(&format!("      - [{}]\n", group.join(", ")));
    }
    text
}

/// What to do while a process is attached.
pub trait Follow {
    /// Called a few times a second. Returns whether to detach now.
    fn tick(&mut self) -> bool;
    /// Called with each line that the collecting program printed on standard error.
    fn line(&mut self, text: &str);
    /// Called with each line that the collecting program printed on standard output, unless keys
    /// are read.
    fn said(&mut self, _text: &str) {}
    /// Called when a key was pressed, where keys are read ([`Collection::keys`]). Returns whether
    /// to detach now.
    fn key(&mut self, _key: u8) -> bool {
        false
    }
}

/// The time from one call of [`Follow::tick`] to the next.
const TICK: Duration = Duration::from_millis(200);

/// What can happen while we wait for the collecting program.
enum Event {
    Line(String),
    Said(String),
    Key(u8),
    /// A signal, and whether the terminal sent it to its whole foreground process group.
    Signal(Signal, bool),
    Ended(std::io::Result<ExitStatus>),
    /// The program closed its standard output or its standard error.
    Silent,
}

/// Passes on the lines of a stream, and at its end that it ended.
fn read_lines(
    stream: impl Read + Send + 'static,
    sender: &Sender<Event>,
    event: impl Fn(String) -> Event + Send + 'static,
) {
    let sender = sender.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            if sender.send(event(line)).is_err() {
                return;
            }
        }
        let _ = sender.send(Event::Silent);
    });
}

/// The code of a signal that the kernel sent (siginfo's `SI_KERNEL`), such as for a key on a
/// terminal.
const BY_KERNEL: i32 = 0x80;

/// Blocks the signals that end a profile, and reports them as events.
fn tell_signals(sender: &Sender<Event>) {
    let mut signals = SigSet::empty();
    // A signal that is ignored at the start stays so.
    let ends = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
    for signal in ends
        .into_iter()
        .filter(|signal| !midair_secure::is_ignored(*signal as i32))
    {
        signals.add(signal);
    }
    let Ok(descriptor) = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC) else {
        return;
    };
    if signals.thread_block().is_err() {
        return;
    }
    let sender = sender.clone();
    // This thread ends with the process, like the others that wait for something.
    std::thread::spawn(move || {
        while let Ok(Some(info)) = descriptor.read_signal() {
            let Ok(signal) = Signal::try_from(info.ssi_signo as i32) else {
                continue;
            };
            if sender
                .send(Event::Signal(signal, info.ssi_code == BY_KERNEL))
                .is_err()
            {
                break;
            }
        }
    });
}

impl Collection {
    /// Starts the collecting program.
    fn start(&self, console: &Console) -> Result<(PathBuf, Child), Failure> {
        if let (Some(file), None) = (&self.turns, &self.pid) {
            files::write(file, &turns(&self.groups))?;
        }
        let mut command = rocprofv3();
        let program = PathBuf::from(command.get_program());
        let words = self.words();
        console.info(&format!(
            "{} {}",
            program.display(),
            words
                .iter()
                .map(|word| word.to_string_lossy())
                .collect::<Vec<_>>()
                .join(" ")
        ));
        // The collecting program reads the Enter key, which detaches.
        command.args(&words).stdin(Stdio::inherit());
        if self.pid.is_some() {
            // Its lines and our progress line alternate. What a started program prints is left to
            // that program.
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        if self.keys {
            // We read the keys and draw the screen.
            command.stdin(Stdio::piped()).stdout(Stdio::null());
            command.process_group(0);
        }
        let child = command.spawn().map_err(|error| {
            Failure::new(
                Kind::Installation,
                format!("{}: {error}", program.display()),
            )
            .hint("rocprof-compute cannot find rocprofv3: install it in the same directory or on PATH, or set ROCPROF")
        })?;
        Ok((program, child))
    }

    /// Collects. Returns the exit code of the collecting program.
    ///
    /// # Errors
    /// When the collecting program cannot be started.
    pub fn run(&self, console: &Console, follow: &mut dyn Follow) -> Result<u8, Failure> {
        let (program, mut child) = self.start(console)?;
        let pid = i32::try_from(child.id()).map(Pid::from_raw);
        let (sender, events) = channel();
        tell_signals(&sender);
        // Keep its standard input open: end of input would make it detach.
        let _input = child.stdin.take();
        let mut open = 0;
        if let Some(stdout) = child.stdout.take() {
            open += 1;
            read_lines(stdout, &sender, Event::Said);
        }
        if let Some(stderr) = child.stderr.take() {
            open += 1;
            read_lines(stderr, &sender, Event::Line);
        }
        if self.keys && std::io::stdin().is_terminal() {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for key in BufReader::new(std::io::stdin())
                    .bytes()
                    .map_while(Result::ok)
                {
                    if sender.send(Event::Key(key)).is_err() {
                        return;
                    }
                }
            });
        }
        std::thread::spawn(move || sender.send(Event::Ended(child.wait())));

        let mut ended = None;
        let mut detached = false;
        let mut ticked = Instant::now();
        let tell = |signal| {
            if let Ok(pid) = pid {
                let _ = kill(pid, signal);
            }
        };
        let last_lines = Duration::from_millis(500);
        while ended.is_none() || open > 0 {
            let patience = if ended.is_some() { last_lines } else { TICK };
            let mut detach = false;
            match events.recv_timeout(patience) {
                Ok(Event::Line(line)) => follow.line(&line),
                Ok(Event::Said(line)) => follow.said(&line),
                Ok(Event::Key(key)) => detach = follow.key(key),
                // A signal from the terminal reaches both processes. The collecting program
                // detaches and writes what was recorded; we wait for that.
                Ok(Event::Signal(Signal::SIGINT, true)) if !self.keys => {}
                Ok(Event::Signal(signal, _)) if ended.is_none() => tell(signal),
                Ok(Event::Signal(..)) => {}
                Ok(Event::Ended(status)) => ended = Some(status),
                Ok(Event::Silent) => open -= 1,
                Err(RecvTimeoutError::Timeout) if ended.is_some() => break,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if ended.is_none() && self.pid.is_some() && ticked.elapsed() >= TICK {
                detach |= follow.tick();
                ticked = Instant::now();
            }
            if detach && !detached && ended.is_none() {
                detached = true;
                tell(Signal::SIGINT);
            }
        }
        let status = match ended {
            Some(Ok(status)) => status,
            Some(Err(error)) => {
                let what = format!("{}: {error}", program.display());
                return Err(Failure::new(Kind::Output, what));
            }
            None => return Ok(1),
        };
        Ok(status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .unwrap_or(1))
    }
}

/// Returns the names of databases in the workload directory. A pass is one run of the whole
/// program; if that has several processes, the pass has a file for each. The processes of one
/// attach are not separate passes.
pub(super) fn names(found: &[PathBuf]) -> Vec<String> {
    let pass = |file: &PathBuf| {
        let mut above = file.iter().rev().filter_map(|part| part.to_str());
        above.find_map(|part| part.strip_prefix("pass_")?.parse::<usize>().ok())
    };
    let passes: Vec<Option<usize>> = found.iter().map(pass).collect();
    let of = |wanted: Option<usize>| passes.iter().filter(|pass| **pass == wanted).count();
    let mut processes = std::collections::HashMap::new();
    let name = |pass: &Option<usize>| {
        let process: &mut usize = processes.entry(*pass).or_default();
        *process += 1;
        match (pass, of(*pass), *process - 1) {
            (None, 1, _) => "pmc_perf_0.db".to_owned(),
            (None, _, process) => format!("process_{process}.db"),
            (Some(pass), 1, _) => format!("pmc_perf_{}.db", pass.saturating_sub(1)),
            (Some(pass), _, process) => {
                format!("pmc_perf_{}.process_{process}.db", pass.saturating_sub(1))
            }
        }
    };
    passes.iter().map(name).collect()
}

/// Returns the databases below a directory.
pub fn databases(below: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut open = vec![below.to_owned()];
    while let Some(directory) = open.pop() {
        for path in files::entries(&directory).unwrap_or_default() {
            if files::is_directory(&path) {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "db") {
                all.push(path);
            }
        }
    }
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_and_processes_have_names_of_their_own() {
        let named = |files: &[&str]| {
            let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
            names(&files)
        };
        assert_eq!(named(&["o/pmc.db"]), ["pmc_perf_0.db"]);
        assert_eq!(
            named(&["o/1.db", "o/2.db"]),
            ["process_0.db", "process_1.db"]
        );
        assert_eq!(
            named(&["o/pass_1/a.db", "o/pass_10/a.db", "o/pass_2/a.db"]),
            ["pmc_perf_0.db", "pmc_perf_9.db", "pmc_perf_1.db"]
        );
        assert_eq!(
            named(&["o/pass_1/1.db", "o/pass_1/2.db", "o/pass_2/3.db"]),
            [
                "pmc_perf_0.process_0.db",
                "pmc_perf_0.process_1.db",
                "pmc_perf_1.db"
            ]
        );
    }
}
