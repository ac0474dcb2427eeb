//! What to write and where, from the settings.

use crate::identity::Identity;
use midair_failure::{Failure, Kind};
use midair_output::names::{NoName, output_name};
use midair_output::{
    AgentIndex, Console, Format, Frames, KernelFilter, KernelNames, Numbering, PerfettoBuffers,
    Plan, SummaryTo, Unit, check_group,
};
use midair_settings::literal::literal;
use midair_settings::{
    BENCHMARK_MODE, Benchmark, HIP_EVENT_TRACE, HIP_GRAPH_TRACE, KEEP_RESULTS, OUTPUT_PATH,
    STACKS_BY, Settings,
};

fn formats(settings: &Settings) -> Result<Vec<Format>, Failure> {
    let mut formats = Vec::new();
    for format in settings.list("ROCPROF_OUTPUT_FORMAT", ',') {
        let Some(format) = Format::of(format) else {
            let other = format.to_ascii_lowercase();
            let built: Vec<&str> = Format::all().map(Format::name).collect();
            return Err(Failure::new(
                Kind::NotBuilt,
                format!("the output format {other} is not built yet"),
            )
            .hint(format!("use --output-format {}", built.join(" "))));
        };
        if !formats.contains(&format) {
            formats.push(format);
        }
    }
    Ok(formats)
}

/// The expressions of `--summary-groups`.
fn summary_groups(settings: &Settings) -> Result<Vec<String>, Failure> {
    let groups = settings.text("ROCPROF_STATS_SUMMARY_GROUPS");
    let groups = groups.unwrap_or_default().split("##@@##");
    let groups = groups.filter(|group| !group.is_empty());
    let checked = |group: &str| match check_group(group) {
        Ok(()) => Ok(group.to_owned()),
        Err(why) => Err(Failure::new(
            Kind::Usage,
            format!("cannot read the group of domains '{group}' as a regular expression: {why}"),
        )
        .hint("as in --summary-groups 'HIP_API|HSA_API' 'MEMORY_.*'")),
    };
    groups.map(checked).collect()
}

/// Which dispatches are in the results.
pub(crate) fn kernel_filter(settings: &Settings) -> Result<KernelFilter, Failure> {
    let choice = settings.kernel_choice();
    let choice = choice.map_err(|bad| Failure::new(Kind::Usage, bad.to_string()))?;
    let (include, exclude) = (choice.include.as_deref(), choice.exclude.as_deref());
    KernelFilter::new(include, exclude, choice.iterations).map_err(|why| {
        Failure::new(
            Kind::Usage,
            format!("cannot read a pattern of kernel names as a regular expression: {why}"),
        )
        .hint("as in --kernel-include-regex '^gemm|conv'")
    })
}

fn summary_to(settings: &Settings) -> Result<SummaryTo, Failure> {
    match settings.text("ROCPROF_STATS_SUMMARY_OUTPUT") {
        None | Some("stdout") => Ok(SummaryTo::Console(Console::Stdout)),
        Some("stderr") => Ok(SummaryTo::Console(Console::Stderr)),
        Some(path) if path.contains('/') => Err(Failure::new(
            Kind::Usage,
            format!(
                "the summary file '{path}' has a directory: it always goes to the output directory"
            ),
        )
        .hint("give a file name; set the directory with --output-directory")),
        Some(name) => Ok(SummaryTo::File(name.to_owned())),
    }
}

/// Returns what to write and where, from the settings.
///
/// # Errors
/// [`Kind::NotBuilt`] for a format that is not built, [`Kind::Usage`] for meaningless values.
pub(crate) fn plan(settings: &Settings, identity: &Identity) -> Result<Plan, Failure> {
    let raw_directory = settings.text(OUTPUT_PATH);
    let raw_prefix = settings.text("ROCPROF_OUTPUT_FILE_NAME");
    let name = output_name(raw_directory, raw_prefix, &identity.keys).map_err(no_name)?;
    let mut formats = formats(settings)?;
    if formats.is_empty() {
        formats.push(Format::Rocpd);
    }
    let agent_index = match settings.text("ROCPROF_AGENT_INDEX") {
        Some("absolute") => AgentIndex::Absolute,
        Some("type-relative") => AgentIndex::TypeRelative,
        _ => AgentIndex::Relative,
    };
    let summary_unit = settings.text("ROCPROF_STATS_SUMMARY_UNITS");
    Ok(Plan {
        labels: Vec::new(),
        directory: name.directory,
        prefix: name.prefix,
        numbering: match settings.is_on(KEEP_RESULTS) {
            true => Numbering::FromTwo,
            false if identity.attached_before => Numbering::FromOne,
            false => Numbering::Replace,
        },
        raw_directory: raw_directory.unwrap_or_default().to_owned(),
        raw_prefix: raw_prefix.unwrap_or_default().to_owned(),
        formats,
        kernel_names: KernelNames::chosen(
            settings.boolean("ROCPROF_DEMANGLE_KERNELS").ok().flatten(),
            settings.is_on("ROCPROF_TRUNCATE_KERNELS"),
        ),
        frames: Frames::of(settings.text(STACKS_BY)),
        rename_kernels: settings.is_on("ROCPROF_KERNEL_RENAME"),
        kernel_filter: kernel_filter(settings)?,
        hide_kernels: (settings.asks_for_counters()
            || settings.is_on(HIP_GRAPH_TRACE)
            || settings.is_on(HIP_EVENT_TRACE))
            && !settings.is_on("ROCPROF_KERNEL_TRACE"),
        agent_index,
        stats: settings.is_on("ROCPROF_STATS"),
        summary: settings.is_on("ROCPROF_STATS_SUMMARY"),
        summary_per_domain: settings.is_on("ROCPROF_STATS_SUMMARY_PER_DOMAIN"),
        summary_groups: summary_groups(settings)?,
        summary_to: summary_to(settings)?,
        summary_unit: summary_unit.and_then(Unit::of).unwrap_or_default(),
        group_by_queue: settings.is_on("ROCPROF_GROUP_BY_QUEUE"),
        config_file: settings.is_on("ROCPROF_OUTPUT_CONFIG_FILE"),
        profile: settings.get(BENCHMARK_MODE).and_then(Benchmark::named)
            == Some(Benchmark::Profile),
        minimum_bytes: minimum_bytes(settings)?,
        threads: midair_output::threads::most(),
        perfetto: perfetto(settings),
    })
}

/// Returns how many bytes have to be recorded for files to be written.
fn minimum_bytes(settings: &Settings) -> Result<u64, Failure> {
    let number = settings.number("ROCPROF_MINIMUM_OUTPUT_BYTES");
    let number = number.map_err(|bad| Failure::new(Kind::Usage, bad.to_string()))?;
    Ok(number.unwrap_or(0))
}

/// Returns the directory for the files of a window of a session that goes on. It is below the
/// directory of the session's results, and is named by the process and the window's end,
/// CLOCK_BOOTTIME ms, so that no window overwrites another. It is the text of a setting.
///
/// # Errors
/// As [`plan`].
pub fn window_directory(settings: &Settings, identity: &Identity) -> Result<String, Failure> {
    let plan = plan(settings, identity)?;
    let process = &identity.process;
    let name = format!("window-{}-{}", process.pid, process.fini_time / 1_000_000);
    Ok(literal(&plan.directory.join(name)))
}

fn no_name(why: NoName) -> Failure {
    let (kind, hint) = match why {
        NoName::Gone => (
            Kind::Output,
            "change to an existing directory, or give one: --output-directory /DIR",
        ),
        NoName::NotText => (
            Kind::Usage,
            "set the directory with --output-directory, and a plain file name with --output-file",
        ),
    };
    Failure::new(kind, why.to_string()).hint(hint)
}

/// Returns the settings that are copied into json's list.
fn perfetto(settings: &Settings) -> PerfettoBuffers {
    let amds = PerfettoBuffers::default();
    let number = |name: &str| settings.number(name).ok().flatten();
    PerfettoBuffers {
        shmem_size_hint: number("ROCPROF_PERFETTO_SHMEM_SIZE_HINT_KB")
            .unwrap_or(amds.shmem_size_hint),
        buffer_size: number("ROCPROF_PERFETTO_BUFFER_SIZE_KB").unwrap_or(amds.buffer_size),
        fill_policy: settings
            .text("ROCPROF_PERFETTO_BUFFER_FILL_POLICY")
            .map_or(amds.fill_policy, str::to_owned),
    }
}
