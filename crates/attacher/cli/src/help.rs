//! The parts of help besides the options: examples, exit codes, files. Also `--help-all`.

use clap::Command;
use std::ffi::OsString;

use crate::{avail, midair, rocpd, serve, show};

/// The word that shows everything, including options that are known and not built.
const ALL: &str = "--help-all";

/// The text below `midair --help`.
pub(crate) const MIDAIR: &str = "\
Examples:
  midair demo                    profile an included demo program; no GPU needed
  midair ps                      list the processes that use a GPU
  midair 4242 --duration 5s      profile process 4242 for five seconds (attach)
  midair attach --tree 4242      profile a launcher and all its ranks
  midair run -f csv,pftrace APP  start a program under the profiler
  midair show results            show results as tables
  midair flame 4242              show which lines of Python cost the GPU's time
  midair why 4242                show what a hanging process waits for
  midair doctor 4242             check every precondition of an attach

midair COMMAND --help shows a command's options.";

/// The text below `midair attach --help`.
pub(crate) const ATTACH: &str = "\
Examples:
  midair attach 4242                              until Enter or Ctrl-C
  midair attach train.py --duration 5s            by name, for five seconds
  midair attach 4242 -f csv pftrace -d results    for a spreadsheet and Perfetto
  midair attach 4242 --duration 2s --json         the tables as one document
  midair attach --tree 4242 --merge               all ranks, in one result
  midair attach 4242 --until-signal </dev/null    in a service: until SIGTERM

--help-all also lists options that are known and not built yet.";

/// The text below `midair flame --help`.
pub(crate) const FLAME: &str = "\
Examples:
  midair flame 4242                     ten seconds of process 4242
  midair flame train.py --duration 1m   by name, for a minute
  midair flame 4242 -f folded           stacks for flamegraph.pl, one a line
  midair flame 4242 -f speedscope       a file for www.speedscope.app
  midair flame --diff old new           what has changed between two recordings

--help-all also lists options that are known and not built yet.";

/// The text below `midair run --help`.
pub(crate) const RUN: &str = "\
Examples:
  midair run ./app input.bin                      HIP calls, kernels and copies
  midair run -f pftrace -d results -- ./app -v    pass -v to the program
  midair run --stacks python -- python3 job.py    by lines of Python code

--help-all also lists options that are known and not built yet.";

/// The text below `midair fleet --help`.
pub(crate) const FLEET: &str = "\
Examples:
  midair fleet node1 node2 -- attach --name train.py --duration 5s
  midair fleet --hosts FILE -- attach --all --merge --duration 5s -d /results
  midair fleet --ssh 'ssh -J login' node1 -- ps
  midair fleet $(scontrol show hostnames) --program /shared/midair -- doctor

--hosts also accepts mpirun host files: the first word of a line is the host.";

/// The text below `midair why --help`.
pub(crate) const WHY: &str = "\
Examples:
  midair why 4242                kernels, locks and calls that it waits for
  midair why train.py            by name
  midair why --tree 4242         all ranks: the rank that the others wait for
  midair why 4242 --time 10s     watch for progress for ten seconds
  midair why 4242 --json         as JSON";

/// The exit codes of an attach, for manual pages: numbers and words.
pub(crate) const EXIT: [(&str, &str); 11] = [
    (
        "0",
        "Done, also after Enter, Ctrl-C, the end of standard input, or the exit of the process.",
    ),
    ("2", "Invalid options."),
    (
        "10-29, 37-39",
        "The attach failed; the process keeps running as before. Standard error has the reason and a remedy.",
    ),
    ("30", "The detach timed out."),
    (
        "31",
        "The process was killed, or executed another program. The records so far are written.",
    ),
    ("32", "The results are written, but some records were lost."),
    (
        "33",
        "The results could not be written to the requested location.",
    ),
    ("34", "The option is known but not built yet."),
    (
        "35",
        "Some of several processes failed; see standard error.",
    ),
    (
        "36",
        "The records reached --max-size, or the file system of TMPDIR is full. The records so far are written.",
    ),
    (
        "41",
        "Nothing was recorded: a signal came before the time of --at, or no --trigger was met.",
    ),
];

/// Files that an attach writes, for manual pages.
pub(crate) const FILES: [(&str, &str); 5] = [
    (
        "HOST/PID_results.db",
        "The default format, rocpd: an SQLite database. Further recordings of the same process get the names PID-2 and so on; \
         none is overwritten.",
    ),
    (
        "HOST/PID_results.pftrace",
        "-f pftrace: a trace for https://ui.perfetto.dev.",
    ),
    (
        "HOST/PID_kernel_trace.csv",
        "-f csv: one file for each kind of record.",
    ),
    (
        "HOST/PID_results.json",
        "-f json: one document, with the keys of AMD's tool.",
    ),
    (
        "HOST/PID_notes.txt",
        "Notes on the results, if there are any.",
    ),
];

/// The examples of a manual page.
pub(crate) fn examples(page: &str) -> Option<&'static str> {
    let text = match page {
        "midair" => MIDAIR,
        "midair-attach" => ATTACH,
        "midair-run" => RUN,
        "midair-fleet" => FLEET,
        "midair-flame" => FLAME,
        "midair-serve" => serve::HELP,
        "midair-why" => WHY,
        "midair-show" => show::HELP,
        "rocpd" => rocpd::HELP,
        "rocprofv3-avail" => avail::HELP,
        _ => return None,
    };
    text.strip_prefix("Examples:\n")?.split("\n\n").next()
}

/// Returns the help with everything in it, where the words before a program to start ask for it.
pub(crate) fn all(words: &[OsString]) -> Option<String> {
    let own = words.iter().take_while(|word| *word != "--");
    if !own.clone().any(|word| word == ALL) {
        return None;
    }
    let mut command = midair::command();
    let named = own.skip(1).find_map(|word| {
        let found = command.find_subcommand(word)?;
        Some(found.get_name().to_owned())
    });
    let shown = match named {
        Some(name) => {
            let found = command.find_subcommand(&name)?.clone();
            found.bin_name(format!("midair {name}"))
        }
        None => {
            // Commands that are not built are known as well.
            let names: Vec<String> = command
                .get_subcommands()
                .map(|known| known.get_name().to_owned())
                .collect();
            for name in names {
                command = command.mut_subcommand(name, |known| known.hide(false));
            }
            command
        }
    };
    Some(revealed(shown).render_long_help().to_string())
}

/// Makes a command show the options that help normally leaves out.
fn revealed(command: Command) -> Command {
    command.mut_args(|arg| arg.hide_long_help(false).hide_short_help(false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Parsed, parse};

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn help(line: &str) -> String {
        match parse(midair::command(), &words(line)) {
            Ok(Parsed::Text(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    /// A terminal of 80 columns would break them, and they are meant to be copied.
    #[test]
    fn examples_are_lines_of_80_columns() {
        for page in crate::man::PAGES {
            let lines = examples(page).unwrap_or_default().lines();
            for line in lines {
                assert!(line.chars().count() <= 80, "{page}: {line}");
            }
        }
    }

    #[test]
    fn help_shows_what_is_built_and_help_all_the_rest() {
        let built = help("midair attach --help");
        assert!(!built.contains("[not built yet]"), "{built}");
        for wanted in [
            "Examples:",
            "Attaching:",
            "Output:",
            "--top <ROWS>",
            "--until-signal",
        ] {
            assert!(built.contains(wanted), "{wanted}: {built}");
        }
        let everything = all(&words("midair attach --help-all")).unwrap();
        assert!(everything.contains("[not built yet]"), "{everything}");
        assert!(everything.len() > built.len());
        assert!(all(&words("midair run -- app --help-all")).is_none());
        assert!(all(&words("midair attach 5")).is_none());
        let top = all(&words("midair --help-all")).unwrap();
        assert!(top.contains("convert"), "{top}");
        assert!(help("midair --help").contains("midair ps  "));
    }
}
