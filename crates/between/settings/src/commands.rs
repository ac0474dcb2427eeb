//! Every command: what it reads, writes and runs, and with whose rights. The table in SECURITY.md is
//! made of this one, and so is the decision which commands hold what the program's file adds to its
//! user's rights ([`attaches`]).

use std::ffi::{OsStr, OsString};

/// A command.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The program, by the name that it is called by.
    pub program: &'static str,
    /// The subcommand, or what tells this use of the program from others.
    pub name: &'static str,
    /// Whether it reads or enters other processes, and holds added rights for that.
    pub attaches: bool,
    /// What it reads besides its own files and what the kernel tells of this machine.
    pub reads: &'static str,
    /// What it writes.
    pub writes: &'static str,
    /// Which programs it starts.
    pub runs: &'static str,
}

const MIDAIR: &str = "midair";
const ROCPROFV3: &str = "rocprofv3";
const COMPUTE: &str = "rocprof-compute";
const ROCPD: &str = "rocpd";
const AVAIL: &str = "rocprofv3-avail";
const DATABASES: &str = "the databases that `-i` names";
const NOTHING: &str = "nothing";
const OF_PROCESSES: &str = "the process: `/proc`, memory, and files that it names beneath its root";
const HELPERS: &str = "its helpers for counters (AMD's packets, NVIDIA's samples)";

const fn attaching(
    name: &'static str,
    reads: &'static str,
    writes: &'static str,
    runs: &'static str,
) -> Row {
    Row {
        program: MIDAIR,
        name,
        attaches: true,
        reads,
        writes,
        runs,
    }
}

const fn other(
    program: &'static str,
    name: &'static str,
    reads: &'static str,
    writes: &'static str,
    runs: &'static str,
) -> Row {
    Row {
        program,
        name,
        attaches: false,
        reads,
        writes,
        runs,
    }
}

/// All commands.
pub const COMMANDS: &[Row] = &[
    attaching(
        "attach",
        "the process: `/proc`, memory, and files that it names beneath its root; `-i`, `-E`",
        "results below `-d`; records in a file without a name in `TMPDIR`",
        HELPERS,
    ),
    attaching("flame", "as `attach`", "as `attach`", HELPERS),
    attaching(
        "top",
        OF_PROCESSES,
        "records in a file without a name in `TMPDIR`",
        HELPERS,
    ),
    attaching("why", OF_PROCESSES, NOTHING, NOTHING),
    attaching("ps", OF_PROCESSES, NOTHING, NOTHING),
    attaching(
        "doctor",
        OF_PROCESSES,
        "a file without a name in the directory for results, to see whether it can",
        NOTHING,
    ),
    other(
        MIDAIR,
        "run",
        "the head of APP's file; `-i`, `-E`",
        "libraries of the one file, into `XDG_CACHE_HOME`; the results are APP's",
        "APP, which this process becomes, and by APP its collector",
    ),
    other(
        MIDAIR,
        "show",
        "the file or directory that is named",
        NOTHING,
        NOTHING,
    ),
    other(MIDAIR, "counters", "`-E`", NOTHING, HELPERS),
    other(MIDAIR, "metrics", NOTHING, "`--samples FILE`", HELPERS),
    other(
        MIDAIR,
        "demo",
        "the program that it starts, as `attach` does",
        "results and a log below `-d`; libraries of the one file, into `XDG_CACHE_HOME`",
        "the program that comes with midair",
    ),
    other(
        MIDAIR,
        "fleet",
        "`--hosts FILE`",
        NOTHING,
        "`--ssh COMMAND`, once for each host",
    ),
    other(
        MIDAIR,
        "serve",
        "`--token-file`, `--tls-cert`, `--tls-key`, `--tls-client-ca`, `--otlp-token-file`, `--otlp-ca`; for each request the process, as `attach` does without added rights",
        "a socket at `--listen unix:PATH`; files below `--push DIRECTORY`; records and answers in files without names in `TMPDIR`",
        "midair-serve, which this process becomes, and its helpers for counters",
    ),
    other(
        MIDAIR,
        "compute",
        "as rocprof-compute",
        "as rocprof-compute",
        "as rocprof-compute",
    ),
    other(MIDAIR, "completions", NOTHING, NOTHING, NOTHING),
    other(MIDAIR, "man", NOTHING, "pages below `--directory`", NOTHING),
    other(MIDAIR, "convert", DATABASES, "as `rocpd convert`", NOTHING),
    Row {
        program: ROCPROFV3,
        name: "--pid PID",
        attaches: true,
        reads: "the process: `/proc`, memory, and files that it names beneath its root; `-i`, `-E`",
        writes: "results below `-d`; records in a file without a name in `TMPDIR`",
        runs: HELPERS,
    },
    other(
        ROCPROFV3,
        "-- APP",
        "the head of APP's file; `-i`, `-E`",
        "libraries of the one file, into `XDG_CACHE_HOME`; the results are APP's",
        "APP: this process becomes it, or it runs once for each group of counters; by APP its collector",
    ),
    other(
        COMPUTE,
        "profile",
        "what it has collected",
        "a workload directory, whose contents `--overwrite` removes",
        "rocprofv3 (`ROCPROF`), AMD's benchmark (`ROOFLINE_BIN`)",
    ),
    other(
        COMPUTE,
        "live",
        "what it has collected",
        "a directory of its own in `TMPDIR`",
        "rocprofv3 (`ROCPROF`)",
    ),
    other(
        COMPUTE,
        "analyze",
        "workload directories",
        "the files that options name (html, txt, csv, db)",
        NOTHING,
    ),
    other(
        ROCPD,
        "convert",
        DATABASES,
        "results below `-d`; records in a file without a name in `TMPDIR`",
        NOTHING,
    ),
    other(
        ROCPD,
        "query",
        "the databases that `-i` names; `--script`",
        "the answer below `-d`",
        NOTHING,
    ),
    other(ROCPD, "summary", DATABASES, "tables below `-d`", NOTHING),
    other(ROCPD, "merge", DATABASES, "a database below `-d`", NOTHING),
    other(ROCPD, "package", NOTHING, NOTHING, NOTHING),
    other(AVAIL, "list", NOTHING, NOTHING, NOTHING),
    other(AVAIL, "info", NOTHING, NOTHING, NOTHING),
    other(AVAIL, "pmc-check", NOTHING, NOTHING, NOTHING),
];

/// Whether the command that these words ask for reads or enters other processes. `words` starts with
/// the name by which the program was called. No more is read of them than that takes; a word that
/// names no command means one that does not.
pub fn attaches(program: &str, words: &[OsString]) -> bool {
    let mut words = words.iter().skip(1);
    match program {
        // The other two have commands of their own, of which none attaches by itself.
        COMPUTE | ROCPD | AVAIL => false,
        ROCPROFV3 => words
            .take_while(|word| *word != "--")
            .any(|word| is_pid(word)),
        _ => words.next().is_some_and(|word| {
            let named = |row: &&Row| row.program == MIDAIR && word == row.name;
            match COMMANDS.iter().find(named) {
                Some(row) => row.attaches,
                None => names_a_process(word),
            }
        }),
    }
}

/// Whether a word of rocprofv3's is, or may contain, the option that names a process.
fn is_pid(word: &OsStr) -> bool {
    let word = word.to_string_lossy();
    let long = word.split('=').next().unwrap_or_default();
    long == "--pid"
        || long == "--attach"
        || (word.starts_with('-') && !word.starts_with("--") && word.contains('p'))
}

/// Whether `midair WORD` means `midair attach WORD`.
pub fn names_a_process(word: &OsStr) -> bool {
    let Some(word) = word.to_str() else {
        return false;
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number(word)
        || word == "-p"
        || word == "--pid"
        || word.strip_prefix("-p").is_some_and(is_number)
        || word.strip_prefix("--pid=").is_some_and(is_number)
}

/// Returns the table in Markdown.
pub fn markdown() -> String {
    let mut text = String::from(
        "| command | reads | writes | starts | added rights |\n|---|---|---|---|---|\n",
    );
    for row in COMMANDS {
        let rights = match row.attaches {
            true => "held, for the kernel's files and calls alone",
            false => "dropped at the start",
        };
        text.push_str(&format!(
            "| `{} {}` | {} | {} | {} | {rights} |\n",
            row.program, row.name, row.reads, row.writes, row.runs
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_attach_are_known_by_their_first_words() {
        for (program, line, wanted) in [
            ("midair", "midair attach 5", true),
            ("midair", "midair 5 -d 1s", true),
            ("midair", "midair -p5", true),
            ("midair", "midair ps", true),
            ("midair", "midair top x", true),
            ("midair", "midair run attach", false),
            ("midair", "midair fleet a -- attach 5", false),
            ("midair", "midair compute attach", false),
            ("midair", "midair", false),
            ("midair", "midair --help", false),
            ("midair", "midair atta 5", false),
            ("rocprofv3", "rocprofv3 --hip-trace --pid 5", true),
            ("rocprofv3", "rocprofv3 --attach=5", true),
            ("rocprofv3", "rocprofv3 -rp 5", true),
            ("rocprofv3", "rocprofv3 --hip-trace -- app -p 5", false),
            (
                "rocprof-compute",
                "rocprof-compute profile --attach-pid 5",
                false,
            ),
            ("rocpd", "rocpd query -p 5", false),
            ("rocprofv3-avail", "rocprofv3-avail attach", false),
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(attaches(program, &words), wanted, "{line}");
        }
    }
}
