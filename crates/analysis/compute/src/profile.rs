//! `rocprof-compute profile`: counts what metrics need, in a process that is running or in a
//! program that it starts, and writes a workload directory.
//!
//! The collecting is done by `rocprofv3` in a process of its own; nothing here attaches.

pub mod collect;
mod launches;
pub mod machine;
mod peaks;
pub mod plan;
mod sampling;
pub mod watch;
mod write;

use crate::analyze::words;
use crate::architecture::Form;
use crate::console::Console;
use crate::files;
use crate::panels;
use crate::read::Workload;
use crate::report::Options;
use crate::report::roofline::Level;
use crate::select::Blocks;
use crate::vintage::Vintage;
use clap::ArgMatches;
use clap::parser::ValueSource;
use collect::Collection;
use launches::LaunchOptions;
use machine::Machine;
use midair_failure::{Failure, Kind};
use midair_output::files::Directory;
use plan::Plan;
use sampling::Sampling;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use watch::{Attach, Progress, Watch};

/// Metrics have the numbers of 2025, as on AMD's documentation pages that users know, unless another version's
/// directory is written.
pub(crate) const NUMBERS: Form = Form::Means;

/// Returns the version whose directory is written.
///
/// # Errors
/// When it is none whose directories are known, or has no files in the wanted format.
fn vintage(matches: &ArgMatches) -> Result<Vintage, Failure> {
    let Some(word) = text(matches, "vintage") else {
        return Ok(Vintage::FIRST);
    };
    let known = [Vintage::FIRST, Vintage::NEWEST];
    let Some(vintage) = Vintage::read(&word).filter(|vintage| known.contains(vintage)) else {
        return Err(usage(format!("cannot write a directory of version {word}"))
            .hint(format!("known are {} and {}", known[0], known[1])));
    };
    let format = text(matches, "format-rocprof-output");
    if vintage == Vintage::NEWEST && format.as_deref() == Some("csv") {
        return Err(usage(format!(
            "--format-rocprof-output csv is not in version {vintage}"
        ))
        .hint("it has packed csv files in any case"));
    }
    Ok(vintage)
}

fn usage(what: impl Into<String>) -> Failure {
    Failure::new(Kind::Usage, what)
}

fn text(matches: &ArgMatches, name: &str) -> Option<String> {
    matches.get_one::<String>(name).cloned()
}

fn given(matches: &ArgMatches, name: &str) -> bool {
    matches.value_source(name) == Some(ValueSource::CommandLine)
}

/// Refuses options that exclude each other or are not built, before anything else is done.
fn check(matches: &ArgMatches, asked: &LaunchOptions, program: &[OsString]) -> Result<(), Failure> {
    let attaches = given(matches, "attach-pid");
    let ways = ["block", "set", "roof-only", "roofline-bench-only"]
        .into_iter()
        .filter(|name| given(matches, name));
    if ways.count() > 1 {
        return Err(usage(
            "--block, --set, and --roof-only are mutually exclusive options",
        ));
    }
    if !given(matches, "name") && asked.directory.is_none() {
        return Err(usage("the workload has no name").hint("-n NAME, or --output-directory DIR"));
    }
    let only = given(matches, "roofline-bench-only");
    if only && (attaches || !program.is_empty()) {
        return Err(usage(
            "--roofline-bench-only measures only the GPU, and takes no process or program",
        )
        .hint("use --roofline to count a process as well"));
    }
    if !attaches && program.is_empty() && !only {
        return Err(usage(
            "Profiling command required: pass application executable after -- at the end of options",
        )
        .hint("or --attach-pid PID"));
    }
    if attaches && !program.is_empty() {
        return Err(usage(
            "--attach-pid cannot be combined with a program to start",
        ));
    }
    if given(matches, "attach-duration-msec") && !attaches {
        return Err(usage("--attach-duration-msec requires --attach-pid"));
    }
    for name in ["attach-pid", "attach-duration-msec"] {
        if let Some(word) = text(matches, name)
            && word.parse::<u64>().is_err()
        {
            return Err(usage(format!("--{name} {word} is not a number")));
        }
    }
    if given(matches, "no-roof") && measures(matches) {
        return Err(usage("--no-roof and --roofline are mutually exclusive"));
    }
    if given(matches, "target-error") {
        target_error(matches)?;
        if !attaches {
            return Err(usage("--target-error requires --attach-pid")
                .hint("in a started program, every dispatch is counted"));
        }
    }
    Ok(())
}

/// Whether the peaks of the GPU are measured.
fn measures(matches: &ArgMatches) -> bool {
    given(matches, "roof-only") || given(matches, "roofline-bench-only")
}

/// Returns the value of `--target-error`, in percent.
fn target_error(matches: &ArgMatches) -> Result<Option<f64>, Failure> {
    let Some(word) = text(matches, "target-error") else {
        return Ok(None);
    };
    let percent = word.trim_end_matches('%').parse::<f64>().ok();
    match percent.filter(|percent| percent.is_finite() && *percent > 0.0) {
        Some(percent) => Ok(Some(percent)),
        None => Err(usage(format!(
            "--target-error {word} is not a positive number"
        ))),
    }
}

/// Returns the expression that the names of the wanted kernels match.
pub(crate) fn kernels(matches: &ArgMatches) -> Option<String> {
    let all: Vec<String> = words(matches, "kernel")
        .iter()
        .map(|name| format!("({name})"))
        .collect();
    (!all.is_empty()).then(|| all.join("|"))
}

/// Writes the definitions of counters that AMD's tables lack. Returns the file.
pub(crate) fn definitions(directory: &Path, plan: &Plan) -> Result<Option<PathBuf>, Failure> {
    write::perfmon(directory, plan)
}

/// Runs the command. Returns the exit code.
///
/// # Errors
/// When options exclude each other, or when something cannot be read, counted or written.
pub fn run(matches: &ArgMatches, console: &Console) -> Result<u8, Failure> {
    let program: Vec<OsString> = matches
        .get_many("remaining")
        .map(|words| words.cloned().collect())
        .unwrap_or_default();
    let asked = LaunchOptions::of(matches)?;
    check(matches, &asked, &program)?;
    let vintage = vintage(matches)?;
    let sampling = Sampling::of(matches)?;
    let counts = sampling.as_ref().is_none_or(|it| it.counts);
    let levels = Level::read(&words(matches, "roofline-mem-level"))?;
    let attaches = given(matches, "attach-pid");
    let benchmark = match measures(matches) {
        true => Some(peaks::program()?),
        false => None,
    };
    let mut machine = Machine::find(matches.contains_id("config-dir"))?;
    machine.architecture = panels::chosen(matches, machine.architecture, console)?;
    let numbers = vintage.form();
    let blocks = chosen(matches, &machine, numbers, console)?.with_levels(levels);
    let plan = plan::plan(machine.architecture, &blocks, numbers)?;
    if !plan.unknown.is_empty() {
        console.warning(&format!(
            "{} has no counter {}: metrics that need it are N/A",
            machine.architecture.name,
            plan.unknown.join(", ")
        ));
    }
    let name = text(matches, "name");
    let directory = directory(matches, &asked, name.as_deref(), &machine)?;
    let name = name.unwrap_or_else(|| {
        let last = directory.file_name();
        last.map_or_else(String::new, |last| last.to_string_lossy().into_owned())
    });
    let place = prepare(
        &directory,
        matches.get_flag("overwrite"),
        &another(matches, &asked),
    )?;
    let definitions = match counts {
        true => write::perfmon(&directory, &plan)?,
        false => None,
    };
    // Arguments may be passwords.
    let kept = match matches.get_flag("with-arguments") {
        true => program.len(),
        false => 1,
    };
    let command: Vec<String> = program
        .iter()
        .take(kept)
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let mut system = machine.system(&name, &command.join(" "));
    if vintage == Vintage::NEWEST {
        machine.rename(&mut system, &directory);
    }
    write::system(&directory, &system)?;
    write::configuration(
        &directory,
        &configuration(
            matches, &asked, vintage, &name, &directory, &blocks, &command,
        ),
    )?;

    if let Some(benchmark) = benchmark {
        let device = text(matches, "device").unwrap_or_else(|| "0".to_owned());
        peaks::measure(&benchmark, &directory, &device, console)?;
        if given(matches, "roofline-bench-only") {
            console.note(&format!("Results in {}", directory.display()));
            return Ok(0);
        }
    }
    let launches = asked.launches;
    let mut collection = Collection {
        pid: text(matches, "attach-pid"),
        duration: text(matches, "attach-duration-msec"),
        program,
        groups: plan.groups.clone(),
        definitions,
        kernels: kernels(matches),
        launches: (!launches.is_empty())
            .then(|| format!("[{}]", launches.join(",").replace(':', "-"))),
        overhead: text(matches, "max-overhead"),
        verbose: console.level >= crate::console::Level::Info,
        ..Collection::default()
    };
    if let (false, Some(sampling)) = (counts, &sampling) {
        let code = sampling.collect(&collection, (&directory, &place), console)?;
        let _ = files::remove(&place, "out");
        console.note(&format!("Results in {}", directory.display()));
        return Ok(code);
    }
    let counters: usize = plan.groups.iter().map(Vec::len).sum();
    let counters = midair_failure::plain::counted(counters, "counter", "counters");
    console.note(&match plan.groups.len() {
        1 => format!("{counters} in one group"),
        groups => format!("{counters}, multiplexed in {groups} groups"),
    });
    let out = directory.join("out/pmc_1");
    files::make(&out)?;
    let live = directory.join("out/live");
    if attaches {
        files::make(&live)?;
    }
    collection.turns =
        given(matches, "iteration-multiplexing").then(|| directory.join("perfmon/groups.yaml"));
    collection.directory = out;
    collection.live = Some(live.clone());
    let kind = (vintage, plan.groups.len());
    let workload = Workload::begun(&directory, &name, system, kind)?;
    let watch = Watch::new(live, workload, blocks, Options::default());
    let attach = collection.pid.clone().map(|pid| Attach {
        pid,
        duration: collection.duration.clone(),
    });
    let target = target_error(matches)?;
    let mut progress = Progress::new(console, watch, &plan.groups, target, attach);
    let code = collection.run(console, &mut progress)?;
    drop(progress);
    // Whoever can write to the directory may have put a link in its place.
    let found = match files::is_directory(&place.at("out")) {
        true => collect::databases(&place.at("out")),
        false => Vec::new(),
    };
    for (from, name) in found.iter().zip(collect::names(&found)) {
        files::rename(from, &place, &name)?;
    }
    if let (Some(sampling), 0) = (&sampling, code) {
        sampling.collect(&collection, (&directory, &place), console)?;
    }
    let _ = files::remove(&place, "out");
    if found.is_empty() {
        console.warning(&format!(
            "No GPU kernel data collected in {}",
            directory.display()
        ));
        return Ok(code);
    }
    finish(matches, &directory, &plan, vintage, console)?;
    Ok(code)
}

/// Does the same as [`chosen`], with this block where none was chosen.
pub(crate) fn chosen_or(
    matches: &ArgMatches,
    machine: &Machine,
    otherwise: &str,
    console: &Console,
) -> Result<Blocks, Failure> {
    if given(matches, "block") && given(matches, "set") {
        return Err(usage("--block and --set are mutually exclusive options"));
    }
    if !given(matches, "block") && !given(matches, "set") {
        let words = [otherwise.to_owned()];
        return Blocks::read(&words, machine.architecture, NUMBERS, &mut |_| {});
    }
    chosen(matches, machine, NUMBERS, console)
}

/// Returns the tables and metrics that `-b` or `--set` chooses.
fn chosen(
    matches: &ArgMatches,
    machine: &Machine,
    numbers: Form,
    console: &Console,
) -> Result<Blocks, Failure> {
    let mut warn = |text: String| console.warning(&text);
    let mut chosen = words(matches, "block");
    // The points of the roofline need operations, bytes and times.
    if matches!(matches.try_get_one::<bool>("roof-only"), Ok(Some(true))) {
        return Ok(Blocks::roofline());
    }
    if let Some(name) = text(matches, "set") {
        let sets = machine.architecture.sets;
        let Some(set) = sets.iter().find(|set| set.name == name) else {
            let known: Vec<&str> = sets.iter().map(|set| set.name).collect();
            return Err(usage(format!(
                "{} has no metric set {name}",
                machine.architecture.name
            ))
            .hint(format!("known are {}", known.join(", "))));
        };
        chosen = set.metrics.iter().map(|(id, _)| (*id).to_owned()).collect();
        let newer = machine.architecture.newer_sets.iter();
        if let Some((_, ids)) = newer.into_iter().find(|(known, _)| *known == name)
            && numbers == Form::Sums
        {
            chosen = ids.iter().map(|id| (*id).to_owned()).collect();
        }
    }
    Blocks::read(&chosen, machine.architecture, numbers, &mut warn)
}

/// Returns the directory for the files.
fn directory(
    matches: &ArgMatches,
    asked: &LaunchOptions,
    name: Option<&str>,
    machine: &Machine,
) -> Result<PathBuf, Failure> {
    let keys = |text: &str| -> String {
        let host = files::text(Path::new("/proc/sys/kernel/hostname")).unwrap_or_default();
        let rank = [
            "OMPI_COMM_WORLD_RANK",
            "PMI_RANK",
            "SLURM_PROCID",
            "MPI_RANK",
        ]
        .iter()
        .find_map(|name| std::env::var(name).ok());
        let mut out = text
            .replace("%hostname%", host.trim())
            .replace("%gpumodel%", &machine.model)
            .replace("%rank%", &rank.unwrap_or_default());
        // A value is not looked into.
        let mut at = 0;
        while let Some(begin) = out[at..].find("%env{").map(|begin| at + begin) {
            let Some(end) = out[begin..].find("}%") else {
                break;
            };
            let value = std::env::var(&out[begin + 5..begin + end]).unwrap_or_default();
            out.replace_range(begin..begin + end + 2, &value);
            at = begin + value.len();
        }
        out
    };
    // A part that is not text has no keys.
    let keys_of = |path: &Path| -> PathBuf {
        let parts = path.components().map(Component::as_os_str);
        let parts = parts.map(|part| {
            part.to_str()
                .map_or_else(|| part.to_owned(), |it| keys(it).into())
        });
        parts.collect()
    };
    let directory = if let Some(directory) = &asked.directory {
        keys_of(directory)
    } else {
        let name = name.unwrap_or_default();
        if name.is_empty() || name.contains('/') || name == "." || name == ".." {
            return Err(usage(format!(
                "--name {name} is not a valid directory name"
            )));
        }
        let base = match matches.get_one::<PathBuf>("path") {
            Some(path) => keys_of(path),
            None => PathBuf::from("workloads").join(name),
        };
        match text(matches, "subpath").as_deref() {
            None | Some("gpu_model") => base.join(&machine.model),
            Some("node_name") => base.join(keys("%hostname%")),
            Some(other) => base.join(keys(other)),
        }
    };
    match directory.is_absolute() {
        true => Ok(directory),
        // Make the path absolute: the collecting program and its target may have other working
        // directories.
        false => std::env::current_dir()
            .map(|here| here.join(&directory))
            .map_err(|error| write::failed(&directory, &error)),
    }
}

/// Returns the option that names the directory, with another name that no earlier profile has.
fn another(matches: &ArgMatches, asked: &LaunchOptions) -> String {
    let option = |name: &str| text(matches, name).filter(|_| given(matches, name));
    let (option, name) = match (&asked.directory, option("name")) {
        (Some(directory), _) => ("--output-directory", directory.display().to_string()),
        (None, name) => ("-n", name.unwrap_or_default()),
    };
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./%+,:@".contains(&b);
    let name = match name.bytes().all(is_plain) {
        true => name,
        false => format!("'{}'", name.replace('\'', "'\\''")),
    };
    format!("{option} {name}-$(date +%F-%H%M%S)")
}

/// Makes the directory. Empties an existing one where that is allowed, or where an earlier profile
/// left no results.
fn prepare(directory: &Path, overwrite: bool, another: &str) -> Result<Directory, Failure> {
    let place = files::make(directory)?;
    let some = files::entries(directory).is_ok_and(|entries| !entries.is_empty());
    if some && !overwrite && !write::is_without_results(directory) {
        return Err(Failure::new(
            Kind::Output,
            format!(
                "{} already has the results of a profile",
                directory.display()
            ),
        )
        .hint(format!(
            "add --overwrite to replace them, or write to another directory: {another}"
        )));
    }
    if some {
        write::clear(&place)?;
    }
    Ok(place)
}

/// Returns the options as `profiling_config.yaml` has them.
fn configuration(
    matches: &ArgMatches,
    asked: &LaunchOptions,
    vintage: Vintage,
    name: &str,
    directory: &Path,
    blocks: &Blocks,
    command: &[String],
) -> BTreeMap<String, write::Setting> {
    use write::Setting::{Flag, List, Nothing, Text};
    let mut all = BTreeMap::new();
    let mut put = |key: &str, value| {
        all.insert(key.to_owned(), value);
    };
    let word = |name: &str| text(matches, name).map_or(Nothing, Text);
    let list = |name: &str| match words(matches, name) {
        words if words.is_empty() => Nothing,
        words => List(words),
    };
    put("attach_pid", word("attach-pid"));
    put("attach_duration_msec", word("attach-duration-msec"));
    let panels = matches.get_one::<PathBuf>("config-dir");
    put(
        "config_dir",
        panels.map_or(Nothing, |it| Text(it.display().to_string())),
    );
    put("dispatch", Nothing);
    put("filter_blocks", List(blocks.numbers()));
    put(
        "format_rocprof_output",
        Text(text(matches, "format-rocprof-output").unwrap_or_else(|| "rocpd".to_owned())),
    );
    put("iteration_multiplexing", word("iteration-multiplexing"));
    put("kernel", list("kernel"));
    put(
        "kernel_iteration_range",
        match asked.launches.is_empty() {
            true => Nothing,
            false => List(asked.launches.clone()),
        },
    );
    put(crate::read::OWN, Text(env!("CARGO_PKG_VERSION").to_owned()));
    put("mode", Text("profile".to_owned()));
    put("name", Text(name.to_owned()));
    put("no_roof", Flag(!measures(matches)));
    put("output_directory", Text(directory.display().to_string()));
    put("path", Text(directory.display().to_string()));
    put("remaining", Text(command.join(" ")));
    put("roof_only", Flag(given(matches, "roof-only")));
    put("set_selected", word("set"));
    put("target_error", word("target-error"));
    put("verbose", Text(matches.get_count("verbose").to_string()));
    put(crate::read::VINTAGE, Text(vintage.to_string()));
    if vintage == Vintage::NEWEST {
        // Options that were removed, and options that came.
        all.remove("format_rocprof_output");
        all.remove("path");
        all.insert(
            "device".to_owned(),
            Text(text(matches, "device").unwrap_or_else(|| "0".to_owned())),
        );
        for key in [
            "bench_only",
            "experimental",
            "membw_analysis",
            "pc_sampling",
            "quiet",
        ] {
            all.insert(key.to_owned(), Flag(false));
        }
        let is_sampled = matches!(Sampling::of(matches), Ok(Some(_)));
        all.insert("pc_sampling".to_owned(), Flag(is_sampled));
    }
    all
}

/// Reads the collected data back, reports what there is, and writes it as csv where that was asked
/// for.
fn finish(
    matches: &ArgMatches,
    directory: &Path,
    plan: &Plan,
    vintage: Vintage,
    console: &Console,
) -> Result<(), Failure> {
    let as_csv = text(matches, "format-rocprof-output").as_deref() == Some("csv");
    let as_packed = vintage == Vintage::NEWEST;
    let workload = match as_csv || as_packed {
        true => Workload::read_whole(directory)?,
        false => Workload::read(directory, &[])?,
    };
    let frame = &workload.frame;
    for (place, group) in plan.groups.iter().enumerate() {
        let columns: Vec<_> = group.iter().filter_map(|name| frame.named(name)).collect();
        let counted = (0..frame.rows)
            .filter(|row| {
                !columns.is_empty() && columns.iter().all(|column| !column.get(*row).is_nan())
            })
            .count();
        let line = format!(
            "group {} of {}: {counted} of {} dispatches counted",
            place + 1,
            plan.groups.len(),
            frame.rows
        );
        if counted == 0 {
            console.warning(&line);
        } else {
            console.note(&line);
        }
    }
    if as_packed {
        for (place, group) in plan.groups.iter().enumerate() {
            let path = directory.join(format!("results_pmc_perf_{place}.csv.gz"));
            write::packed(&path, frame, group)?;
        }
    }
    if as_csv {
        write::dispatches(&directory.join("pmc_perf.csv"), frame, &plan.groups)?;
        if !matches.get_flag("retain-rocpd-output") {
            let place = files::make(directory)?;
            for file in collect::databases(directory) {
                if let Some(name) = file.strip_prefix(directory).ok().and_then(Path::to_str) {
                    let _ = files::remove(&place, name);
                }
            }
        }
    }
    console.note(&format!("Results in {}", directory.display()));
    Ok(())
}
