//! The command `midair demo` attaches to a program that comes with midair. So users can see what an
//! attach looks like before they have a program, a GPU or a compiler.
//!
//! The program uses HIP on stand-in runtimes with two modelled GPUs. It is a child of this process,
//! as a kernel with `kernel.yama.ptrace_scope` 1 (Ubuntu's default) requires.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Program, Stdio};
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, ArgMatches, Command};
use midair_failure::{Failure, Kind};
use midair_output::files::Directory;
use midair_session::Install;

use crate::report::Report;

/// What the program prints once it works on the GPUs.
const WORKS: &str = "iter 2\n";
/// The file of what it prints, among the results.
const LOG: &str = "program.log";
/// How long the program may take to get there.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time between two looks at what the program has printed.
const LOOK: Duration = Duration::from_millis(10);
/// The number of rounds: as many as the time allows.
const ROUNDS: &str = "0";
/// The seconds that a program is left running. It ends by the clock, since a round takes longer on a
/// busy machine.
const KEPT: &str = "600";
/// The seconds of a program that is not left running, unless something ends it before.
const SHORT: &str = "60";
/// The microseconds between two rounds.
const PAUSE: &str = "500";
/// The times of kernels in ns by the width of their grids. A matrix product takes longer than an
/// activation.
const KERNELS: &str = "16384:410000,2048:38000,1024:14000,3072:61000,1536:22000";

/// The clap command.
pub(crate) fn command() -> Command {
    Command::new("demo")
                .about("Attach to an included demo program, and show what it did; no GPU needed")
        .long_about(
            "Start an included HIP program, attach to it for two seconds while it runs, show what it did, and write results. The \
             program uses two simulated GPUs: no GPU, ROCm, compiler or root is needed. At the end, the demo prints three \
             commands to try.",
        )
        .arg(
            Arg::new("keep")
                .long("keep")
                .action(ArgAction::SetTrue)
                .help("Keep the program running for ten minutes, to try other commands on it"),
        )
        .arg(
            Arg::new("output-directory")
                .short('d')
                .long("output-directory")
                .value_name("DIR")
                .value_parser(clap::value_parser!(PathBuf))
                .default_value("midair-demo")
                .help("Write results to this directory"),
        )
}

/// The program. It ends when this value is dropped, unless it is to be kept.
struct Show {
    child: Child,
    keep: bool,
}

impl Drop for Show {
    fn drop(&mut self) {
        if !self.keep {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Runs the demonstration. `attach` is midair's command line. Returns the exit code of the attach.
pub(crate) fn run(
    matches: &ArgMatches,
    report: Report,
    attach: &mut dyn FnMut(&[OsString]) -> u8,
) -> Result<u8, Failure> {
    let keep = matches.get_flag("keep");
    let results = matches.get_one::<PathBuf>("output-directory");
    let results = results.cloned().unwrap_or_default();
    report.note("demo: preparing the included program");
    let directory = Install::find()?.demonstration()?;
    report.note("demo: starting it: HIP on two simulated GPUs, without midair in the process");
    let said = log(&results)?;
    let mut show = Show {
        child: start(&directory, &said, keep)?,
        keep: false,
    };
    let pid = show.child.id().to_string();
    wait_until_it_works(&mut show.child, &said)?;
    report.note(&format!(
        "demo: process {pid} is running; the next line is the command for your own program"
    ));
    let midair = called();
    report.note(&format!("$ {midair} attach {pid} --duration 2s"));
    let mut words: Vec<OsString> = ["midair", "attach", &pid, "--duration", "2s"]
        .map(OsString::from)
        .into();
    words
        .extend(["--output-format", "rocpd,pftrace,csv", "--output-directory"].map(OsString::from));
    words.push(results.clone().into());
    let code = attach(&words);
    if code != 0 {
        return Ok(code);
    }
    show.keep = keep;
    report.line("");
    if keep {
        let results = quoted(&results.display().to_string());
        report.line(&format!(
            "process {pid} keeps running for ten minutes; three commands to try on it:"
        ));
        report.line(&format!("  {midair} top {pid} --duration 5s"));
        report.line(&format!(
            "  {midair} attach {pid} --duration 2s -f pftrace -d {results}"
        ));
        report.line(&format!("  kill {pid}"));
    } else {
        report.line("three commands to try next:");
        report.line(&format!("  {midair} demo --keep"));
        report.line(&format!("  {midair} ps"));
        report.line(&format!("  {midair} attach --help"));
    }
    Ok(0)
}

/// Makes the file for what the program prints. A pipe would have no reader once this process has
/// ended.
fn log(results: &Path) -> Result<File, Failure> {
    let made = Directory::make(results).and_then(|results| results.create(LOG));
    made.map_err(|error| {
        let file = results.join(LOG);
        Failure::new(Kind::Output, format!("{}: {error}", file.display()))
            .hint("choose a writable directory: -d DIR")
    })
}

/// Starts the program with its output in the file `said`.
fn start(directory: &Path, said: &File, keep: bool) -> Result<Child, Failure> {
    let both = said
        .try_clone()
        .and_then(|out| Ok((out, said.try_clone()?)));
    let (out, err) = both.map_err(|error| Failure::new(Kind::Output, format!("{LOG}: {error}")))?;
    let program = directory.join("workload");
    let mut command = Program::new(&program);
    command
        .args([ROUNDS, PAUSE, "any", if keep { KEPT } else { SHORT }])
        .env("LD_LIBRARY_PATH", directory)
        .env("HSA_MODEL_TOPOLOGY", directory.join("topology"))
        .env("MODEL_LONG_KERNEL", KERNELS)
        .env("MODEL_JITTER", "12")
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        // Ctrl-C must end the attach, which then ends the program or leaves it.
        .process_group(0);
    command.spawn().map_err(|error| {
        Failure::new(
            Kind::Installation,
            format!("cannot start {}: {error}", program.display()),
        )
        .hint("if that file system is mounted noexec, choose another directory: XDG_CACHE_HOME=DIR")
    })
}

fn wait_until_it_works(child: &mut Child, said: &File) -> Result<(), Failure> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        // A program that has just started has printed nothing yet.
        let mut bytes = vec![0; 1 << 16];
        let read = said.read_at(&mut bytes, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(bytes.get(..read).unwrap_or_default());
        if text.contains(WORKS) {
            return Ok(());
        }
        let ended = child.try_wait().is_ok_and(|status| status.is_some());
        if ended || Instant::now() > deadline {
            let what = match ended {
                true => "the program exited at its start",
                false => "the program does not start its work",
            };
            let text = text.trim().to_owned();
            return Err(Failure::new(Kind::Installation, format!("{what}: {text}"))
                .hint("it needs glibc 2.34 or later"));
        }
        std::thread::sleep(LOOK);
    }
}

/// Returns the words by which this program was called, for commands to copy.
fn called() -> String {
    let word = std::env::args_os().next().unwrap_or_default();
    let word = word.to_string_lossy();
    match word.is_empty() {
        true => "midair".to_owned(),
        false => quoted(&word),
    }
}

/// Quotes a word for a shell.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+=:,@%".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_reach_a_shell_as_they_are() {
        for word in [
            "plain", "/a/b-c", "a b", "it's", "", "$HOME", "a;b", "*", "~root",
        ] {
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", &format!("printf %s {}", quoted(word))]);
            let said = shell.output().unwrap();
            assert_eq!(String::from_utf8(said.stdout).unwrap(), word);
        }
    }
}
