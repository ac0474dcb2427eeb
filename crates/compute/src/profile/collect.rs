//! Collecting: `rocprofv3` attaches to the process, or starts the program.

use crate::console::Console;
use midair_failure::{Failure, Kind};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
    /// A file with definitions of counters.
    pub definitions: Option<PathBuf>,
    /// Kernels: an expression that their names match.
    pub kernels: Option<String>,
    /// Launches of each kernel, such as `[1,3-5]`.
    pub launches: Option<String>,
    /// Part of the time that counting may take, in percent.
    pub overhead: Option<String>,
    /// Where its files go.
    pub directory: PathBuf,
    /// Say more.
    pub verbose: bool,
}

/// The program that collects: `ROCPROF`, or the one beside ours, or this one where it is all of them in
/// one file, or the one on the path.
fn rocprofv3() -> Command {
    if let Some(named) = std::env::var_os("ROCPROF")
        && !named.is_empty()
        && named != "rocprofiler-sdk"
    {
        return Command::new(named);
    }
    let own = std::env::current_exe().unwrap_or_default();
    let beside = own.with_file_name("rocprofv3");
    if beside.is_file() {
        return Command::new(beside);
    }
    if own
        .file_name()
        .is_some_and(|name| name != "rocprof-compute")
    {
        // `midair` is what the name says that it is called by.
        let mut command = Command::new(own);
        command.arg0("rocprofv3");
        return command;
    }
    Command::new("rocprofv3")
}

impl Collection {
    /// The words of its command line.
    pub fn words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        let mut put = |all: &[&str]| words.extend(all.iter().map(OsString::from));
        if let Some(pid) = &self.pid {
            put(&["--pid", pid]);
            if let Some(duration) = &self.duration {
                put(&["--attach-duration-msec", duration]);
            }
        }
        // Every dispatch is in the files, with or without a window.
        put(&[
            "--kernel-trace",
            "--output-format",
            "rocpd",
            "--output-file",
            "pmc",
        ]);
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
        for group in &self.groups {
            put(&["--pmc"]);
            put(&group.iter().map(String::as_str).collect::<Vec<_>>());
        }
        if let Some(file) = &self.definitions {
            words.extend(["--extra-counters".into(), file.into()]);
        }
        words.extend(["--output-directory".into(), self.directory.clone().into()]);
        if self.pid.is_none() {
            words.push("--".into());
            words.extend(self.program.iter().cloned());
        }
        words
    }

    /// Collects. Gives the exit code of the program that did it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn run(&self, console: &Console) -> Result<u8, Failure> {
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
        let mut child = command
            .args(&words)
            // Enter detaches: it is read there.
            .stdin(Stdio::inherit())
            .spawn()
            .map_err(|error| {
                Failure::new(
                    Kind::Installation,
                    format!("{}: {error}", program.display()),
                )
                .hint("rocprof-compute needs rocprofv3 beside it, or on PATH, or in ROCPROF")
            })?;
        // A signal of the terminal reaches both of us: there it means to detach and to write what
        // was recorded, and here to wait for that. Others are passed on.
        let mut signals = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            signals.add(signal);
        }
        let blocked = signals.thread_block().is_ok();
        let pid = i32::try_from(child.id()).map(Pid::from_raw);
        if blocked && let Ok(pid) = pid {
            // Ends with this process, which has nothing else to do by then.
            std::thread::spawn(move || {
                while let Ok(signal) = signals.wait() {
                    if signal != Signal::SIGINT {
                        let _ = kill(pid, signal);
                    }
                }
            });
        }
        let status = child.wait().map_err(|error| {
            Failure::new(Kind::Output, format!("{}: {error}", program.display()))
        })?;
        Ok(status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .unwrap_or(1))
    }
}

/// The databases below a directory.
pub fn databases(below: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut open = vec![below.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory)
            .into_iter()
            .flatten()
            .flatten()
        {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "db") {
                all.push(path);
            }
        }
    }
    all.sort();
    all
}
