//! `rocpd`: AMD's command line for rocpd databases, over `midair-rocpd`.

use crate::command;
use crate::report::Report;
use crate::version;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use midair_failure::{Failure, Kind, plain};
use midair_output::{AgentIndex, Format, PerfettoBuffers, Plan};
use midair_rocpd::{
    Bound, CsvForm, Exported, Gather, Input, SummaryNames, SummaryOptions, Target, Window, convert,
    export, merge, package, query, summary,
};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The directory of files when none is asked for, as with AMD's command.
const DIRECTORY: &str = "./rocpd-output-data";
/// The variables that name another directory and another file.
const DIRECTORY_VARIABLE: &str = "ROCPD_OUTPUT_PATH";
const NAME_VARIABLE: &str = "ROCPD_OUTPUT_NAME";
/// Options of AMD's `query` that send the answer by mail, or fill a template.
const NOT_BUILT: [&str; 9] = [
    "email-to",
    "email-from",
    "email-subject",
    "smtp-server",
    "smtp-port",
    "smtp-user",
    "smtp-password",
    "template-path",
    "export-backend",
];

/// The text below `rocpd --help`.
pub(crate) const HELP: &str = "\
Examples:
  rocpd convert -i a.db -f pftrace        for Perfetto, in rocpd-output-data
  rocpd convert -i a.db b.db -f csv json  two processes in one result
  rocpd convert -i a.db -f csv --start 30% --end 60%
  rocpd query -i a.db --query 'SELECT * FROM top_kernels'
  rocpd summary -i a.db --domain-summary  calls and times by name
  rocpd merge -i a.db b.db -o both        one database of several
  rocpd package -i a.db b.db -d run --consolidate --copy

rocpd COMMAND --help shows a command's options.";

/// The text below the help of `convert`.
const CONVERT: &str = "\
Examples:
  rocpd convert -i 4242_results.db -f pftrace
  midair convert -i 4242_results.db -f csv html -d out -o second";

/// The clap command.
pub fn command() -> Command {
    Command::new("rocpd")
        .about("Convert, query, sum up and merge rocpd databases of midair and of AMD's rocprofv3")
        .after_help(HELP)
        .arg_required_else_help(true)
        .disable_version_flag(true)
        .disable_help_subcommand(true)
        .arg(flag("version", "Print the version").short('v'))
        .subcommand(convert_command())
        .subcommand(query_command())
        .subcommand(summary_command())
        .subcommand(merge_command())
        .subcommand(package_command())
}

pub(crate) fn convert_command() -> Command {
    let formats = Arg::new("output-format")
        .short('f')
        .long("output-format")
        .value_name("FORMAT")
        .num_args(1..)
        .required(true)
        .value_parser(format)
        .help("Write these formats: csv, pftrace, otf2, json, kineto, parquet, html, …");
    let index = Arg::new("agent-index-value")
        .long("agent-index-value")
        .value_name("FORM")
        .value_parser(["absolute", "relative", "type-relative"])
        .default_value("relative")
        .help("Name agents by the number of the node, of the agent, or within the type");
    let policy = Arg::new("perfetto-buffer-fill-policy")
        .long("perfetto-buffer-fill-policy")
        .value_name("POLICY")
        .value_parser(["discard", "ring_buffer"])
        .default_value("discard");
    let backend = Arg::new("perfetto-backend")
        .long("perfetto-backend")
        .value_name("BACKEND")
        .value_parser(["inprocess", "system"])
        .default_value("inprocess");
    let kilobytes = |name: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("KB")
            .value_parser(value_parser!(u64))
            .help("Accepted for compatibility, no effect: the writer has no such buffers")
    };
    let none = "Accepted for compatibility, no effect";
    let command = Command::new("convert")
        .about("Write the records of rocpd databases in other formats")
        .after_help(CONVERT);
    let command = with_window(with_output(with_input(command), "out"));
    command
        .arg(formats)
        .arg(index)
        .arg(flag(
            "group-by-queue",
            "Show kernels and copies in pftrace by queue and not by stream",
        ))
        .arg(flag(
            "annotate-args",
            "Accepted for compatibility: arguments are always there",
        ))
        .arg(flag("annotate-pmc", none))
        .arg(flag("no-annotate-kfd", none))
        .arg(backend.help(none))
        .arg(policy.help(none))
        .arg(kilobytes("perfetto-buffer-size"))
        .arg(kilobytes("perfetto-shmem-size-hint"))
}

fn query_command() -> Command {
    let command = Command::new("query").about("Run a query, and print or write its answer");
    let command = with_window(with_output(with_input(command), "out"));
    let command = command
        .arg(
            Arg::new("query")
                .long("query")
                .value_name("SQL")
                .required(true)
                .help("Run this SELECT over all databases; midair show FILE names the views"),
        )
        .arg(
            Arg::new("script")
                .long("script")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("Run the statements of this file first, such as temporary views"),
        )
        .arg(
            Arg::new("format")
                .long("format")
                .value_name("FORMAT")
                .default_value("console")
                .help("Print the answer (console), or write csv, json, html or md"),
        )
        .arg(flag("zip-attachments", "").hide(true))
        .arg(flag("inline-preview", "").hide(true));
    NOT_BUILT.into_iter().fold(command, |command, name| {
        command.arg(Arg::new(name).long(name).value_name("WORD").hide(true))
    })
}

fn summary_command() -> Command {
    let command = Command::new("summary").about("Print or write calls and times by name");
    let command = with_window(with_output(with_input(command), "out"));
    command
        .arg(
            Arg::new("format")
                .short('f')
                .long("format")
                .value_name("FORMAT")
                .default_value("console")
                .help("Print the tables (console), or write csv, json, html or md"),
        )
        .arg(flag(
            "domain-summary",
            "Add a table of all kinds of work and calls",
        ))
        .arg(flag("summary-by-rank", "Add each table by process"))
        .arg(
            Arg::new("region-categories")
                .long("region-categories")
                .value_name("NAME")
                .num_args(1..)
                .help("Sum up only these: HIP, HSA, MARKER, KERNEL, …; NONE: no calls"),
        )
        .arg(flag(
            "mangled-kernels",
            "Show kernels by their symbols; comes before --truncate-kernels",
        ))
        .arg(flag("truncate-kernels", "Show kernels without parameters"))
}

fn merge_command() -> Command {
    let command = Command::new("merge").about("Put several databases into one");
    with_output(with_input(command), "merged")
}

fn package_command() -> Command {
    let command = Command::new("package").about("Write an index of databases, or gather them");
    with_input(command)
        .arg(
            flag(
                "consolidate",
                "Move the databases into the directory; with --copy, copy them",
            )
            .short('c'),
        )
        .arg(flag("copy", "Copy databases instead of moving them"))
        .arg(
            Arg::new("output-path")
                .short('d')
                .long("output-path")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .help("Write index.yaml into this directory, DIR.rpdb (default: the current one)"),
        )
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .action(ArgAction::SetTrue)
        .help(help)
}

fn with_input(command: Command) -> Command {
    command.args_override_self(true).arg(
        Arg::new("input")
            .short('i')
            .long("input")
            .value_name("FILE")
            .num_args(1..)
            .required(true)
            .value_parser(value_parser!(PathBuf))
            .help("Read these databases; a directory or an index means those in it"),
    )
}

fn with_output(command: Command, name: &'static str) -> Command {
    let command = command
        .arg(
            Arg::new("output-file")
                .short('o')
                .long("output-file")
                .value_name("NAME")
                .help(format!(
                    "Set the first part of the files' names (default: ROCPD_OUTPUT_NAME, or {name})"
                )),
        )
        .arg(
            Arg::new("output-path")
                .short('d')
                .long("output-path")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .help(
                    "Write below this directory (default: ROCPD_OUTPUT_PATH, or rocpd-output-data)",
                ),
        );
    match name {
        "merged" => command,
        _ => command.arg(flag(
            "kernel-rename",
            "Name kernels by the ROCTx ranges in which they were launched, where these are known",
        )),
    }
}

fn with_window(command: Command) -> Command {
    let bound = |name: &'static str, other: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("TIME")
            .allow_hyphen_values(true)
            .conflicts_with(other)
            .help(help)
    };
    let marker = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("MESSAGE").help(help)
    };
    command
        .arg(bound(
            "start",
            "start-marker",
            "Leave out what is before this time: 30%, or nanoseconds",
        ))
        .arg(bound(
            "end",
            "end-marker",
            "Leave out what is after this time",
        ))
        .arg(marker(
            "start-marker",
            "Start where the ROCTx range with this message starts",
        ))
        .arg(marker(
            "end-marker",
            "End where the ROCTx range with this message ends",
        ))
        .arg(
            Arg::new("inclusive")
                .long("inclusive")
                .value_name("BOOL")
                .default_value("true")
                .help("Keep only what starts and ends within; false: also what reaches into it"),
        )
}

/// Reads the name of a format. AMD's command has another word for pftrace.
fn format(word: &str) -> Result<Format, String> {
    let name = word.to_ascii_lowercase().replace("perfetto", "pftrace");
    Format::of(&name).ok_or_else(|| {
        let all: Vec<&str> = Format::all().map(Format::name).collect();
        format!("one of: {}", all.join(", "))
    })
}

/// Runs the command line. Returns the exit code.
pub fn main(words: Vec<OsString>) -> u8 {
    let report = Report::new("rocpd");
    run(&words, report).unwrap_or_else(|failure| report.failure(&failure))
}

fn run(words: &[OsString], report: Report) -> Result<u8, Failure> {
    let Some(matches) = command::parse_or_print(command(), words, report)? else {
        return Ok(0);
    };
    if matches.get_flag("version") {
        report.text(version::rocprofv3().as_bytes());
        return Ok(0);
    }
    match matches.subcommand() {
        Some(("convert", matches)) => converted(matches, CsvForm::Rocpd, report),
        Some(("query", matches)) => queried(matches, report),
        Some(("summary", matches)) => summed_up(matches, report),
        Some(("merge", matches)) => merged(matches, report),
        Some(("package", matches)) => packaged(matches, report),
        Some(_) | None => {
            report.text(command().render_help().to_string().as_bytes());
            Ok(0)
        }
    }
}

fn inputs(matches: &ArgMatches) -> Vec<PathBuf> {
    let all = matches.get_many::<PathBuf>("input");
    all.into_iter().flatten().cloned().collect()
}

/// Returns the directory and the first part of the names.
fn output(matches: &ArgMatches, name: &str) -> (PathBuf, String) {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let directory = matches.get_one::<PathBuf>("output-path").cloned();
    let directory = directory.or_else(|| variable(DIRECTORY_VARIABLE).map(PathBuf::from));
    let file = matches.get_one::<String>("output-file").cloned();
    let file = file.or_else(|| variable(NAME_VARIABLE)?.into_string().ok());
    (
        directory.unwrap_or_else(|| PathBuf::from(DIRECTORY)),
        file.unwrap_or_else(|| name.to_owned()),
    )
}

fn opened(matches: &ArgMatches, report: &Report) -> Result<(Input, Option<Window>), Failure> {
    let _progress = report.progress("reading");
    let input = Input::open(&inputs(matches))?;
    let bound = |time: &str, marker: &str| -> Result<Option<Bound>, Failure> {
        if let Some(message) = matches.get_one::<String>(marker) {
            return Ok(Some(Bound::Marker(message.clone())));
        }
        let text = matches.get_one::<String>(time);
        text.map(|text| Bound::read(time, text)).transpose()
    };
    let (start, end) = (bound("start", "start-marker")?, bound("end", "end-marker")?);
    let inclusive = matches.get_one::<String>("inclusive");
    let inclusive = inclusive.is_none_or(|word| {
        let yes = ["true", "t", "yes", "1"];
        yes.contains(&word.to_ascii_lowercase().as_str())
    });
    let window = Window::of(&input, start.as_ref(), end.as_ref(), inclusive)?;
    Ok((input, window))
}

/// Runs `package`. Returns the exit code.
fn packaged(matches: &ArgMatches, report: Report) -> Result<u8, Failure> {
    let gather = match (matches.get_flag("consolidate"), matches.get_flag("copy")) {
        (false, _) => Gather::No,
        (true, false) => Gather::Move,
        (true, true) => Gather::Copy,
    };
    let directory = matches.get_one::<PathBuf>("output-path");
    let index = package(&inputs(matches), directory.map(PathBuf::as_path), gather)?;
    shown(&index, &report);
    Ok(0)
}

/// Runs `convert`. Returns the exit code.
pub(crate) fn converted(
    matches: &ArgMatches,
    form: CsvForm,
    report: Report,
) -> Result<u8, Failure> {
    midair_output::threads::use_all_processors();
    let (input, window) = opened(matches, &report)?;
    let (directory, prefix) = output(matches, "out");
    let buffers = PerfettoBuffers::default();
    let number = |name: &str, otherwise: u64| matches.get_one(name).copied().unwrap_or(otherwise);
    let policy = matches.get_one::<String>("perfetto-buffer-fill-policy");
    let mut formats = Vec::new();
    for format in matches
        .get_many::<Format>("output-format")
        .into_iter()
        .flatten()
    {
        if !formats.contains(format) {
            formats.push(*format);
        }
    }
    let plan = Plan {
        raw_directory: directory.display().to_string(),
        raw_prefix: prefix.clone(),
        directory,
        prefix,
        formats,
        agent_index: match matches
            .get_one::<String>("agent-index-value")
            .map(String::as_str)
        {
            Some("absolute") => AgentIndex::Absolute,
            Some("type-relative") => AgentIndex::TypeRelative,
            _ => AgentIndex::Relative,
        },
        group_by_queue: matches.get_flag("group-by-queue"),
        rename_kernels: matches.get_flag("kernel-rename"),
        threads: midair_output::threads::most(),
        perfetto: PerfettoBuffers {
            buffer_size: number("perfetto-buffer-size", buffers.buffer_size),
            shmem_size_hint: number("perfetto-shmem-size-hint", buffers.shmem_size_hint),
            fill_policy: policy.cloned().unwrap_or(buffers.fill_policy),
        },
        ..Plan::default()
    };
    let converted = {
        let _progress = report.progress("converting");
        convert(&input, &plan, form, window)?
    };
    for note in &converted.notes {
        report.warning(note);
    }
    for file in &converted.files {
        shown(file, &report);
    }
    Ok(0)
}

/// Prints the name of a file.
fn shown(file: &Path, report: &Report) {
    report.line(&plain::line(&file.display().to_string()));
}

fn target(matches: &ArgMatches) -> Result<Target, Failure> {
    let (directory, name) = output(matches, "out");
    let word = matches.get_one::<String>("format");
    Ok(Target {
        format: export::Format::of(word.map_or("console", String::as_str))?,
        directory,
        name,
    })
}

fn queried(matches: &ArgMatches, report: Report) -> Result<u8, Failure> {
    let given = |name: &&&str| matches.contains_id(name);
    if let Some(name) = NOT_BUILT.iter().find(given) {
        return Err(
            Failure::new(Kind::NotBuilt, format!("the option --{name} is not built"))
                .hint("write the answer into a file by --format, and send that"),
        );
    }
    let target = target(matches)?;
    let (input, window) = opened(matches, &report)?;
    let sql = matches
        .get_one::<String>("query")
        .map_or("", String::as_str);
    let script = matches.get_one::<PathBuf>("script").map(PathBuf::as_path);
    let done = query(&input, sql, script, window, &target, &mut |line| {
        report.line(line)
    })?;
    match done {
        Exported::Empty => report.note("the query found no rows"),
        Exported::Printed => {}
        Exported::File(file) => shown(&file, &report),
    }
    Ok(0)
}

fn summed_up(matches: &ArgMatches, report: Report) -> Result<u8, Failure> {
    let target = target(matches)?;
    let (input, window) = opened(matches, &report)?;
    let categories = matches.get_many::<String>("region-categories");
    let options = SummaryOptions {
        domains: matches.get_flag("domain-summary"),
        by_rank: matches.get_flag("summary-by-rank"),
        categories: categories.into_iter().flatten().cloned().collect(),
        by_range: matches.get_flag("kernel-rename"),
        names: match (
            matches.get_flag("mangled-kernels"),
            matches.get_flag("truncate-kernels"),
        ) {
            (true, _) => SummaryNames::Mangled,
            (_, true) => SummaryNames::Truncated,
            _ => SummaryNames::Shown,
        },
    };
    let all = summary(&input, &options, window, &target, &mut |line| {
        report.line(line)
    })?;
    if all.iter().all(|done| *done == Exported::Empty) {
        report.note("there is nothing to sum up");
    }
    for done in &all {
        if let Exported::File(file) = done {
            shown(file, &report);
        }
    }
    Ok(0)
}

fn merged(matches: &ArgMatches, report: Report) -> Result<u8, Failure> {
    let (directory, mut name) = output(matches, "merged");
    if !name.ends_with(".db") {
        name.push_str(".db");
    }
    let file = directory.join(name);
    {
        let _progress = report.progress("merging");
        merge(&inputs(matches), &file)?;
    }
    shown(&file, &report);
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table from which docs/compatibility.md is made has these commands.
    #[test]
    fn the_table_of_compatibility_has_the_commands() {
        let table = include_str!("../../../../api/compatibility.tsv");
        for (part, command) in [
            ("rocpd", command()),
            ("rocprofv3-avail", crate::avail::command()),
        ] {
            let rows = table
                .lines()
                .filter_map(|line| line.strip_prefix(part)?.strip_prefix('\t'));
            let listed: Vec<&str> = rows.filter_map(|row| row.split('\t').next()).collect();
            let all = command.get_subcommands().map(clap::Command::get_name);
            assert_eq!(all.collect::<Vec<_>>(), listed);
        }
    }

    /// It has their options, too, with what midair does of each.
    #[test]
    fn the_table_of_compatibility_has_the_options() {
        let table = include_str!("../../../../api/compatibility.tsv").lines();
        let rows = table.filter_map(|line| line.strip_prefix("rocpd-option\t--"));
        let rows: Vec<Vec<&str>> = rows.map(|row| row.split('\t').collect()).collect();
        let whole = command();
        let mut all: Vec<&Arg> = whole
            .get_subcommands()
            .flat_map(Command::get_arguments)
            .collect();
        all.sort_by_key(|arg| arg.get_long());
        all.dedup_by_key(|arg| arg.get_long());
        let names = all.iter().filter_map(|arg| arg.get_long());
        let mut names: Vec<&str> = names.filter(|name| *name != "help").collect();
        let mut listed: Vec<&str> = rows.iter().map(|row| row[0]).collect();
        names.sort_unstable();
        listed.sort_unstable();
        assert_eq!(names, listed);
        for row in rows {
            let arg = all.iter().find(|arg| arg.get_long() == Some(row[0]));
            let help = arg
                .unwrap()
                .get_help()
                .map_or(String::new(), ToString::to_string);
            let is_ignored = help.starts_with("Accepted for compatibility") || help.is_empty();
            let is_refused = NOT_BUILT.contains(&row[0]) || help.contains("[not built yet]");
            let state = match (is_refused, is_ignored) {
                (true, _) => "none",
                (false, true) => "ignored",
                (false, false) => "",
            };
            let fits =
                row[2] == state || (state.is_empty() && ["same", "differs"].contains(&row[2]));
            assert!(fits, "{row:?}: {help}");
        }
    }

    /// The lines of AMD's manual are accepted.
    #[test]
    fn amds_command_lines_are_understood() {
        for line in [
            "rocpd convert -i db1.db --output-format pftrace",
            "rocpd convert -i db1.db db2.db --output-format pftrace -d ./output/ -o two --start 30% --end 100%",
            "rocpd convert -i db3.db db4.db --output-format csv otf2 perfetto --inclusive False",
            "rocpd convert -i a.db -f CSV --agent-index-value type-relative --annotate-pmc --no-annotate-kfd",
            "rocpd convert -i a.db -f pftrace --perfetto-buffer-size 64 --perfetto-backend inprocess",
            "rocpd convert -i a.db -f pftrace --start-marker a --end-marker b",
            "rocpd merge -i a.db b.db -d merged3DBs",
            "rocpd query -i a.db --query SELECT --format csv",
            "rocpd summary -i db1.db --domain-summary",
            "rocpd summary -i a.db b.db --region-categories HIP MARKERS --domain-summary --format html",
            "rocpd summary -i a.db --region-categories NONE --summary-by-rank -f md",
            "rocpd summary -i a.db --mangled-kernels --truncate-kernels --kernel-rename",
            "rocpd package -i a.db -d x --consolidate --copy",
        ] {
            let parsed = command().try_get_matches_from(line.split(' '));
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
        for line in [
            "rocpd convert -i a.db",
            "rocpd convert -f csv",
            "rocpd convert -i a.db -f xml",
            "rocpd convert -i a.db -f csv --start 1 --start-marker a",
            "rocpd query -i a.db",
        ] {
            assert!(
                command().try_get_matches_from(line.split(' ')).is_err(),
                "{line}"
            );
        }
        command().debug_assert();
    }
}
