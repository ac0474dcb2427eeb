//! `midair why`: what a process that hangs or crawls waits for.

use crate::doctor::json_argument;
use crate::report::Report;
use crate::words;
use clap::{Arg, ArgMatches, Command};
use midair_failure::{Failure, Kind};
use midair_session::find::named;
use midair_session::{why, why_tree};
use midair_settings::duration_word;
use midair_why::Options;
use std::time::Duration;

/// The time between the two looks, unless the user says otherwise.
const TIME: Duration = Duration::from_secs(1);
/// The longest time that may be asked for.
const LONGEST: Duration = Duration::from_secs(600);

/// The width of the first column.
const COLUMN: usize = 10;

/// The clap command; `pid` is its argument.
pub(crate) fn command(pid: Arg) -> Command {
    Command::new("why")
                .about("Show what a hanging or slow process waits for")
        .long_about(
            "Show what a hanging or slow process waits for: kernels that do not finish, packets that wait for a signal and the \
             queue that would complete it, threads in HIP, HSA, CUDA, RCCL, NCCL and MPI calls with their native and Python \
             stacks, locks and their owners; with --tree, the rank that the others wait for.\n\
             midair only reads \
             the process's memory: it loads and writes nothing there. Each running thread is stopped while its stack is read, \
             usually for less than a millisecond.",
        )
        .args_override_self(true)
        .after_help(crate::help::WHY)
        .arg(
            pid.required(false)
                .help("Process to inspect: its PID, or a name that matches exactly one GPU process; or --tree"),
        )
        .arg(
            Arg::new("tree")
                .long("tree")
                .value_name("PID")
                .value_parser(clap::value_parser!(u32))
                .conflicts_with_all(["PID", "pid"])
                .help("Inspect this process and all its descendants, such as a launcher's ranks"),
        )
        .arg(
            Arg::new("time")
                .long("time")
                .value_name("TIME")
                .help("Watch for progress for this long, at most 10m (default 1s)"),
        )
        .arg(json_argument())
}

/// Looks, and prints what was seen. Returns the exit code.
pub(crate) fn run(
    matches: &ArgMatches,
    process: Option<&str>,
    report: Report,
) -> Result<u8, Failure> {
    let time = match matches.get_one::<String>("time") {
        None => TIME,
        Some(word) => duration_word(word)
            .filter(|time| *time <= LONGEST)
            .ok_or_else(|| {
                Failure::new(
                    Kind::Usage,
                    format!("--time {word} is not a time of at most 10m"),
                )
            })?,
    };
    let options = Options { time };
    let as_json = matches.get_flag("json");
    let lines = match (matches.get_one::<u32>("tree"), process) {
        (Some(root), _) => {
            let root = named(*root)?;
            let ranks = {
                let _progress = report.progress("looking");
                why_tree(root, options)?
            };
            if as_json {
                report.json(&ranks.to_json());
                return Ok(0);
            }
            ranks.lines()
        }
        (None, Some(word)) => {
            let pid = words::process(word)?;
            let answer = {
                let _progress = report.progress("looking");
                why(pid, options)?
            };
            if as_json {
                report.json(&answer.to_json());
                return Ok(0);
            }
            midair_why::lines(&answer)
        }
        (None, None) => {
            return Err(Failure::new(Kind::Usage, "no process given")
                .hint("midair ps lists the processes that use a GPU"));
        }
    };
    for line in lines {
        // A line starts with a word of the first column, or continues the one above.
        let indent = match line.len() - line.trim_start().len() {
            0 => COLUMN,
            spaces => spaces,
        };
        report.folded(&line, indent + 2);
    }
    Ok(0)
}
