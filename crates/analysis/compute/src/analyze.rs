//! `rocprof-compute analyze`.

use crate::architecture::{Architecture, Form};
use crate::console::Console;
use crate::panels;
use crate::read::Workload;
use crate::report::{self, Options, Report, database, files, roofline, text};
use crate::select::{Blocks, Dispatches};
use crate::vintage::Vintage;
use clap::ArgMatches;
use clap::parser::ValueSource;
use midair_failure::{Failure, Kind};
use std::path::{Path, PathBuf};

fn usage(what: impl Into<String>) -> Failure {
    Failure::new(Kind::Usage, what)
}

/// Returns all words of an option that takes a list.
pub(crate) fn words(matches: &ArgMatches, name: &str) -> Vec<String> {
    matches
        .get_many::<String>(name)
        .map(|words| words.cloned().collect())
        .unwrap_or_default()
}

/// Returns the words of each occurrence of an option that takes a list.
fn occurrences(matches: &ArgMatches, name: &str) -> Vec<Vec<String>> {
    matches
        .get_occurrences::<String>(name)
        .map(|all| all.map(|words| words.cloned().collect()).collect())
        .unwrap_or_default()
}

/// Returns what was given for one directory: the only list holds for all directories; otherwise
/// each directory has its own.
fn for_directory(all: &[Vec<String>], place: usize) -> Vec<String> {
    match all {
        [] => Vec::new(),
        [one] => one.clone(),
        all => all.get(place).cloned().unwrap_or_default(),
    }
}

/// Runs the command.
///
/// # Errors
/// When something cannot be read or written, or when what was asked for does not exist.
pub fn run(matches: &ArgMatches, console: &Console) -> Result<(), Failure> {
    let paths: Vec<PathBuf> = matches
        .get_many("path")
        .map(|paths| paths.cloned().collect())
        .unwrap_or_default();
    if paths.is_empty() {
        return Err(usage("no workload directory given").hint("-p DIR"));
    }
    let format = matches.get_one::<String>("output-format");
    if matches.contains_id("output")
        && let Some(format) = format.filter(|format| !["stdout", "txt"].contains(&format.as_str()))
    {
        return Err(
            usage(format!("-o writes text, and --output-format is {format}"))
                .hint("use --output-name with it, or -o FILE alone"),
        );
    }
    let corrections = corrections(matches)?;
    let options = options(matches)?;
    let mut workloads = Vec::new();
    for path in &paths {
        let mut workload = Workload::read(path, &corrections)?;
        workload.architecture = panels::chosen(matches, workload.architecture, console)?;
        for note in &workload.notes {
            console.info(note);
        }
        workloads.push(workload);
    }
    let first = &workloads[0];
    if let Some(other) = workloads
        .iter()
        .find(|w| w.architecture.name != first.architecture.name)
    {
        console.warning(&format!(
            "{} is of {}, {} of {}: only metrics of the same name are compared",
            first.path.display(),
            first.architecture.name,
            other.path.display(),
            other.architecture.name
        ));
    }
    let kernels = occurrences(matches, "kernel");
    let dispatches = occurrences(matches, "dispatch");
    let gpus = occurrences(matches, "gpu-id");
    let mut jobs = Vec::new();
    for (place, workload) in workloads.iter().enumerate() {
        let asked = options.form.or(options.vintage.map(Vintage::form));
        let form = asked.unwrap_or(workload.numbers);
        let blocks = blocks(matches, workload, form, console)?;
        let numbers = for_directory(&kernels, place);
        let numbers = numbers
            .iter()
            .flat_map(|word| word.split(','))
            .map(str::trim);
        let kernels: Result<Vec<u32>, Failure> = numbers
            .filter(|word| !word.is_empty())
            .map(|word| {
                word.parse().map_err(|_| {
                    usage(format!("-k {word} is not a kernel number"))
                        .hint("--list-stats lists kernels with their numbers")
                })
            })
            .collect();
        let chosen = Dispatches {
            kernels: kernels?,
            dispatches: for_directory(&dispatches, place),
            gpus: for_directory(&gpus, place),
        };
        let blocks = if matches.get_flag("list-stats") {
            // Panel 0 is always there; no other has this number.
            Blocks::read(&["0".to_owned()], workload.architecture, form, &mut |_| {})?
        } else {
            blocks
        };
        let report = report::report(workload, &blocks, &chosen, &options)?;
        jobs.push((workload, blocks, chosen, report));
    }
    output(matches, &jobs, &options, console)
}

type Job<'a> = (&'a Workload, Blocks, Dispatches, Report);

fn output(
    matches: &ArgMatches,
    jobs: &[Job<'_>],
    options: &Options,
    console: &Console,
) -> Result<(), Failure> {
    let format = matches
        .get_one::<String>("output-format")
        .map_or("stdout", String::as_str);
    let name = match matches.get_one::<String>("output-name") {
        Some(name) => name.clone(),
        None => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            let now = now.map_or(0, |now| now.as_nanos());
            format!("rocprof_compute_{now:016x}_{}", std::process::id())
        }
    };
    let all: Vec<database::Job<'_>> = jobs
        .iter()
        .map(|(workload, blocks, dispatches, report)| database::Job {
            workload,
            report,
            blocks,
            dispatches,
        })
        .collect();
    if let Some(file) = matches.get_one::<PathBuf>("html") {
        let pages: Vec<(&Workload, &Report)> = jobs
            .iter()
            .map(|(workload, _, _, report)| (*workload, report))
            .collect();
        report::html::write(file, &pages, options)?;
        console.note(&format!("Results in {}", file.display()));
        if matches.value_source("output-format") != Some(ValueSource::CommandLine) {
            return Ok(());
        }
    }
    if let Some(directory) = matches.get_one::<PathBuf>("save-dfs") {
        tables(directory, &all)?;
        console.note(&format!("Tables in {}", directory.display()));
    }
    if let Some(file) = matches.get_one::<PathBuf>("output") {
        crate::files::write(file, &printed(jobs, options))?;
        console.note(&format!("Results in {}", file.display()));
        return Ok(());
    }
    match format {
        "csv" => {
            let directory = PathBuf::from(&name);
            tables(&directory, &all)?;
            crate::files::make(&directory)?;
            database::views(&directory, &all, options)?;
            console.note(&format!("Results in {}", directory.display()));
        }
        "db" => {
            let file = PathBuf::from(match name.ends_with(".db") {
                true => name,
                false => format!("{name}.db"),
            });
            database::write(&file, &all, options)?;
            console.note(&format!("Results in {}", file.display()));
        }
        format => {
            let text = printed(jobs, options);
            if format == "txt" {
                let file = PathBuf::from(match name.ends_with(".txt") {
                    true => name,
                    false => format!("{name}.txt"),
                });
                crate::files::write(&file, &text)?;
                console.note(&format!("Results in {}", file.display()));
            } else {
                console.text(&text);
            }
        }
    }
    Ok(())
}

/// Writes the tables of each report into a directory, or into one of its own below it.
fn tables(directory: &Path, all: &[database::Job<'_>]) -> Result<(), Failure> {
    for (place, job) in all.iter().enumerate() {
        let directory = match all.len() {
            1 => directory.to_owned(),
            // The name is out of a file, and may have any characters.
            _ => directory.join(format!("{place}_{}", files::plain(&job.workload.name))),
        };
        files::write(&directory, job.report)?;
    }
    Ok(())
}

/// Returns the reports as a terminal shows them.
fn printed(jobs: &[Job<'_>], options: &Options) -> String {
    let names: Vec<String> = names(jobs);
    let reports: Vec<(&str, &Report)> = names
        .iter()
        .zip(jobs)
        .map(|(name, (_, _, _, report))| (name.as_str(), report))
        .collect();
    text::render(&reports, options)
}

/// Returns the name of each workload in headings.
fn names(jobs: &[Job<'_>]) -> Vec<String> {
    let plain: Vec<String> = jobs
        .iter()
        .map(|(workload, ..)| workload.name.clone())
        .collect();
    let unique = |name: &String| plain.iter().filter(|other| *other == name).count() == 1;
    plain
        .iter()
        .enumerate()
        .map(|(place, name)| match unique(name) && !name.is_empty() {
            true => name.clone(),
            false => format!("{name}#{place}"),
        })
        .collect()
}

fn blocks(
    matches: &ArgMatches,
    workload: &Workload,
    form: Form,
    console: &Console,
) -> Result<Blocks, Failure> {
    let mut chosen = words(matches, "block");
    for (name, id) in [
        ("speed-of-light", "2"),
        ("memory-chart", "3"),
        ("roofline", "4"),
    ] {
        if matches.get_flag(name) {
            chosen.push(id.to_owned());
        }
    }
    let mut warn = |text: String| console.warning(&text);
    if chosen.is_empty() {
        // Show what was profiled. Its numbers belong to the version that wrote them. Here they
        // only tell what was collected; a value that was not collected gives its own reason.
        let profiled = &workload.profiling.blocks;
        if !profiled.is_empty() {
            return Blocks::read(profiled, workload.architecture, form, &mut |_| {})
                .or_else(|_| Ok(Blocks::default()));
        }
    }
    Blocks::read(&chosen, workload.architecture, form, &mut warn)
}

fn corrections(matches: &ArgMatches) -> Result<Vec<(String, String)>, Failure> {
    let Some(text) = matches.get_one::<String>("specs-correction") else {
        return Ok(Vec::new());
    };
    text.split(',')
        .map(|pair| match pair.split_once(':') {
            Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
            None => Err(usage(format!(
                "--specs-correction: {pair} is not NAME:VALUE"
            ))),
        })
        .collect()
}

/// Returns the version that `--vintage` names.
///
/// # Errors
/// When it is no version of AMD's.
pub(crate) fn vintage(matches: &ArgMatches) -> Result<Option<Vintage>, Failure> {
    let Some(word) = matches.try_get_one::<String>("vintage").ok().flatten() else {
        return Ok(None);
    };
    match Vintage::read(word).filter(|vintage| *vintage >= Vintage::FIRST) {
        Some(vintage) => Ok(Some(vintage)),
        None => Err(
            usage(format!("--vintage {word} is no version of AMD's tool"))
                .hint(format!("{} and later", Vintage::FIRST)),
        ),
    }
}

pub(crate) fn options(matches: &ArgMatches) -> Result<Options, Failure> {
    // `live` has only some of these options.
    let text = |name: &str| {
        let found = matches.try_get_one::<String>(name).ok().flatten();
        found.cloned().unwrap_or_default()
    };
    let list = |name: &str| match matches.try_contains_id(name) {
        Ok(true) => words(matches, name),
        _ => Vec::new(),
    };
    let columns: Result<Vec<usize>, Failure> = list("cols")
        .iter()
        .flat_map(|word| word.split(','))
        .map(|word| {
            word.trim()
                .parse()
                .map_err(|_| usage(format!("--cols {word} is not a column index")))
        })
        .collect();
    let mut data_types = Vec::new();
    let asked = match matches.try_contains_id("roofline-data-types") {
        Ok(_) => words(matches, "roofline-data-types"),
        Err(_) => Vec::new(),
    };
    for word in asked.iter().flat_map(|word| word.split([',', ' '])) {
        let word = word.trim().to_ascii_uppercase();
        if !word.is_empty() && !roofline::types().contains(&word.as_str()) {
            return Err(usage(format!("no peak is known for the type {word}"))
                .hint(format!("known are {}", roofline::types().join(", "))));
        }
        data_types.extend((!word.is_empty()).then_some(word));
    }
    Ok(Options {
        data_types,
        memory_levels: roofline::Level::read(&list("roofline-mem-level"))?,
        by_offset: text("pc-sampling-sorting-type") == "offset",
        sample_rows: matches
            .try_get_one::<u32>("pc-sampling-rows")
            .ok()
            .flatten()
            .map_or(10, |rows| *rows as usize),
        of_dispatches: text("roofline-sort") == "dispatches",
        normal_unit: text("normal-unit"),
        time_unit: text("time-unit"),
        decimals: matches
            .get_one::<u8>("decimal")
            .map_or(2, |digits| usize::from(*digits)),
        most: matches
            .try_get_one::<u32>("max-stat-num")
            .ok()
            .flatten()
            .map_or(10, |most| *most as usize),
        form: match text("formulas").as_str() {
            "2025" => Some(Form::Means),
            "2026" => Some(Form::Sums),
            _ => None,
        },
        vintage: vintage(matches)?,
        plain_tables: text("view") == "table",
        include: list("include-cols"),
        columns: columns?,
    })
}

/// Returns the text of `--list-metrics`: each part of a number is indented one step further.
pub fn list_metrics(architecture: &'static Architecture, form: Form) -> String {
    let mut out = String::new();
    for panel in architecture.panels {
        out.push_str(&format!("{} -> {}\n", panel.id, panel.title));
        for table in panel.tables {
            out.push_str(&format!("\t{} -> {}\n", table.number(), table.title));
            for (number, metric) in table.rows(form) {
                if metric.name != crate::architecture::CHANNEL {
                    out.push_str(&format!("\t\t{number} -> {}\n", metric.name));
                }
            }
        }
    }
    out
}

/// Returns the text of `--list-blocks`.
pub fn list_blocks(architecture: &'static Architecture) -> String {
    let alias = |number: &str| {
        let all: Vec<&str> = crate::select::aliases()
            .filter(|(_, id)| *id == number)
            .map(|(alias, _)| alias)
            .collect();
        match all.is_empty() {
            true => String::new(),
            false => format!(" [{}]", all.join(", ")),
        }
    };
    let mut out = String::new();
    for panel in architecture.panels {
        let number = panel.id.to_string();
        out.push_str(&format!("{number} -> {}{}\n", panel.title, alias(&number)));
        for table in panel.tables {
            let number = table.number();
            out.push_str(&format!(
                "\t{number} -> {}{}\n",
                table.title,
                alias(&number)
            ));
        }
    }
    out
}

/// Returns the text of `--list-sets`.
pub fn list_sets(architecture: &'static Architecture) -> String {
    let mut rows = Vec::new();
    for set in architecture.sets {
        for (place, (id, name)) in set.metrics.iter().enumerate() {
            let (option, title) = if place == 0 {
                (set.name, set.title)
            } else {
                ("", "")
            };
            rows.push([option, title, *name, *id].map(str::to_owned).to_vec());
        }
    }
    let headings = ["Set Option", "Set Title", "Metric Name", "Metric ID"].map(str::to_owned);
    report::grid::draw(&headings, &rows, &[report::grid::Side::Left; 4])
}
