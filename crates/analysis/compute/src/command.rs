//! The command line: AMD's options, of the versions of 2025 and of 2026.

use crate::architecture::{Architecture, OF_DIRECTORY};
use crate::foreign;
use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, Command, value_parser};
use std::ffi::OsString;
use std::path::PathBuf;

/// The value of `--list-metrics` when no architecture is named: the architecture of this machine's
/// GPU.
pub(crate) const THIS_MACHINE: &str = "native";

/// The option `-d` of `profile`, which means one of two options by its words.
pub(crate) const SHORT_D: &str = "short-d";

fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .action(ArgAction::SetTrue)
        .help(help)
}

fn word(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

/// Returns an option whose values are separated by spaces or commas.
fn list(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    word(name, value, help)
        .num_args(1..)
        .action(ArgAction::Append)
}

fn architectures() -> Vec<&'static str> {
    let all = Architecture::all().iter().map(|it| it.name);
    all.chain(OF_DIRECTORY).collect()
}

/// Adds the options that may stand before and after the words `profile` and `analyze`.
fn general(command: Command) -> Command {
    let command = command
        .arg(
            Arg::new("verbose")
                .long("verbose")
                .short('V')
                .action(ArgAction::Count)
                .global(true)
                .help("Print more; repeat up to three times"),
        )
        .arg(flag("quiet", "Print only errors").short('q').global(true))
        .arg(
            word(
                "list-metrics",
                "ARCH",
                "List panels, tables and metrics with their numbers",
            )
            .value_parser(
                architectures()
                    .into_iter()
                    .map(PossibleValue::new)
                    .chain([PossibleValue::new(THIS_MACHINE).hide(true)])
                    .collect::<Vec<_>>(),
            )
            .num_args(0..=1)
            .default_missing_value(THIS_MACHINE)
            .global(true),
        )
        .arg(
            word(
                "list-blocks",
                "ARCH",
                "List panels, tables and their names for -b",
            )
            .value_parser(architectures())
            .global(true),
        )
        .arg(
            flag(
                "specs",
                "Print the specifications of this machine and its GPU",
            )
            .short('s')
            .global(true),
        )
        .arg(
            flag("experimental", "Allow experimental options")
                .global(true)
                .hide(true),
        );
    command
        .arg(flag("list-sets", "List the metric sets that fit in one pass").global(true))
        .arg(
            word(
                "config-dir",
                "DIR",
                "Use the panels in this directory, in AMD's format (analysis_configs), instead of the built-in ones",
            )
            .value_parser(value_parser!(PathBuf))
            .global(true),
        )
}

fn normal_unit() -> Arg {
    word("normal-unit", "UNIT", "Divide counts by this unit")
        .short('n')
        .value_parser(["per_wave", "per_cycle", "per_second", "per_kernel"])
        .default_value("per_kernel")
}

fn time_unit() -> Arg {
    word("time-unit", "UNIT", "Show times in this unit")
        .short('t')
        .value_parser(["s", "ms", "us", "ns"])
        .default_value("ns")
}

fn decimal() -> Arg {
    word("decimal", "N", "Show this many decimal digits")
        .value_parser(value_parser!(u8).range(0..=17))
        .default_value("2")
}

/// The levels of memory in the roofline; with the older name of the option.
fn memory_levels(help: &'static str) -> Arg {
    list("roofline-mem-level", "LEVEL", help)
        .short('m')
        .alias("mem-level")
}

/// `rocprof-compute analyze`.
fn analyze() -> Command {
    let command = Command::new("analyze")
        .about("Show the metrics of a workload directory")
        .arg(
            list("path", "DIR", "Analyze these workload directories; the first is the baseline of a comparison")
                .short('p')
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(flag("list-stats", "Show kernels and dispatches, with the numbers for -k and -d"))
        .arg(
            Arg::new("kernel")
                .long("kernel")
                .short('k')
                .value_name("N")
                .num_args(1..)
                .action(ArgAction::Append)
                .help("Select kernels by their numbers in --list-stats; repeat once per directory"),
        )
        .arg(
            Arg::new("dispatch")
                .long("dispatch")
                .short('d')
                .value_name("N")
                .num_args(1..)
                .action(ArgAction::Append)
                .help("Select dispatches by number, or '> N'"),
        )
        .arg(
            list("block", "ID", "Select panels, tables and metrics by number, or by the names in --list-blocks")
                .short('b'),
        )
        .arg(flag("speed-of-light", "The same as -b 2"))
        .arg(flag("memory-chart", "The same as -b 3"))
        .arg(flag("roofline", "The same as -b 4"))
        .arg(
            list("roofline-data-types", "TYPE", "Show the roofs of these data types: FP4, FP6, FP8, FP16, BF16, FP32, FP64, I8, I32, I64 [default: FP32 FP16]")
                .short('R')
                .alias("roofline-data-type"),
        )
        .arg(memory_levels("Show the roofs of these memory levels: HBM, L2, vL1D, LDS [default: all]"))
        .arg(
            word("roofline-sort", "KIND", "Place the longest kernels or the longest dispatches in the roofline: kernels, dispatches")
                .alias("sort")
                .value_parser(["kernels", "dispatches"])
                .default_value("kernels"),
        )
        .arg(list("gpu-id", "N", "Select GPUs by number"))
        .arg(
            word("output-format", "FORMAT", "Write the tables in this form: stdout, txt, csv, db")
                .value_parser(["stdout", "txt", "csv", "db"])
                .default_value("stdout"),
        )
        .arg(
            word("html", "FILE", "Write one self-contained HTML page with all tables")
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(word("output-name", "NAME", "Write to this file or directory, without an extension"))
        .arg(
            word("output", "FILE", "Write the report to this file instead of the terminal (AMD up to 3.2)")
                .short('o')
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            word("save-dfs", "DIR", "Write each table to a csv file in DIR as well (AMD up to 3.2)")
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(normal_unit())
        .arg(time_unit())
        .arg(decimal())
        .arg(
            word("max-stat-num", "N", "Show this many kernels and dispatches in panel 0")
                .value_parser(value_parser!(u32))
                .default_value("10"),
        )
        .arg(
            word("pc-sampling-sorting-type", "KIND", "Sort sampled instructions: count (the most samples first), offset")
                .value_parser(["count", "offset"])
                .default_value("count"),
        )
        .arg(
            word("pc-sampling-rows", "N", "Show this many sampled instructions; 0: all")
                .value_parser(value_parser!(u32))
                .default_value("10"),
        )
        .arg(list("cols", "N", "Show these columns of each table, by index from 0"))
        .arg(list("include-cols", "NAME", "Show these hidden columns"))
        .arg(word("specs-correction", "NAME:VALUE,...", "Override values of sysinfo.csv"))
        .arg(
            word("formulas", "YEAR", "Use AMD's formulas of 2025 (means of ratios) or 2026 (ratios of sums) [default: as the directory]")
                .value_parser(["2025", "2026"]),
        )
        .arg(word("vintage", "VERSION", "Use words, numbers and formulas of this version of AMD's, such as 3.3 or 3.9 [default: as the directory]"))
        .arg(
            word("view", "KIND", "Show the memory chart as a table")
                .value_parser(["table"]),
        )
        .arg(flag("list-available-metrics", "List the metrics of this machine's GPU"));
    foreign::add(command, "analyze")
}

/// `rocprof-compute live`.
fn live() -> Command {
    Command::new("live")
        .about("Show the tables of a running process, with updates")
        .after_help("Press q, Enter or Ctrl-C to detach. Without a terminal, updates are printed one below the other. No files \
        are written: use profile for files.")
        .args_override_self(true)
        .arg(word("attach-pid", "PID", "Attach to this running process"))
        .arg(word("attach-duration-msec", "MSEC", "Detach after this many milliseconds"))
        .arg(word("interval-msec", "MSEC", "Update at this interval at the earliest, in milliseconds [default: 1000]"))
        .arg(
            list("block", "ID", "Select panels, tables and metrics by number, or by the names in --list-blocks [default: 2]")
                .short('b'),
        )
        .arg(word("set", "NAME", "Collect a metric set that fits in one pass; see --list-sets"))
        .arg(list("kernel", "REGEX", "Count only kernels whose name matches").short('k'))
        .arg(word("max-overhead", "PERCENT", "Limit the overhead of counting, in percent"))
        .arg(normal_unit())
        .arg(time_unit())
        .arg(decimal())
}

/// `rocprof-compute profile`.
fn profile() -> Command {
    let command = Command::new("profile")
        .about("Collect the counters of metrics, in a running process or a started program")
        .args_override_self(true)
        .arg(word("name", "NAME", "Set the name of the workload").short('n'))
        .arg(word("attach-pid", "PID", "Attach to this running process"))
        .arg(word("attach-duration-msec", "MSEC", "Detach after this many milliseconds [default: on Enter]"))
        .arg(
            word("output-directory", "DIR", "Write results to this directory; placeholders such as %gpumodel% are replaced \
            [default: workloads/NAME/%gpumodel%]")
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            Arg::new(SHORT_D)
                .short('d')
                .value_name("DIR|RANGE")
                .num_args(1..)
                .action(ArgAction::Append)
                .value_parser(value_parser!(OsString))
                .help("Mean --kernel-iteration-range for numbers such as 1 3:5 (AMD up to 3.9), --output-directory for any other \
                word (AMD since 3.10)"),
        )
        .arg(
            word("path", "DIR", "Write results to a subdirectory of DIR that is named after the GPU model")
                .short('p')
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(word("subpath", "KIND", "").hide(true))
        .arg(word("vintage", "VERSION", "Write a directory as this version of AMD's does: 3.3, 3.9 [default: 3.3]"))
        .arg(flag("overwrite", "Replace an earlier profile in the directory"))
        .arg(flag("pc-sampling", "Sample program counters in an attach or run of its own; only with -b or --set collect counters as well"))
        .arg(
            word("pc-sampling-method", "METHOD", "Set who takes the samples: stochastic (the device), host_trap (the driver) [default: stochastic]")
                .value_parser(["stochastic", "host_trap"]),
        )
        .arg(word("pc-sampling-interval", "N", "Sample once in N cycles (stochastic, a power of two) or microseconds (host_trap) [default: 1048576]"))
        .arg(flag("with-arguments", "Store the program's arguments in sysinfo.csv and profiling_config.yaml"))
        .arg(list("kernel", "REGEX", "Count only kernels whose name matches").short('k'))
        .arg(
            list("kernel-iteration-range", "RANGE", "Count only these launches of each kernel, starting at 1: N, A-B, A:B")
                .alias("dispatch"),
        )
        .arg(
            list("block", "ID", "Select panels, tables and metrics by number, or by the names in --list-blocks; or the counters \
            of hardware blocks: SQ, SQC, LDS, TA, TD, TCP, TCC, SPI, CPC, CPF, GRBM")
                .short('b'),
        )
        .arg(word("set", "NAME", "Collect a metric set that fits in one pass; see --list-sets"))
        .arg(flag("list-available-metrics", "List the metrics of this machine's GPU"))
        .arg(word("max-overhead", "PERCENT", "Limit the overhead of counting, in percent"))
        .arg(word("target-error", "PERCENT", "Detach once each metric's 95 % confidence interval is within this many percent"))
        .arg(
            word("format-rocprof-output", "FORMAT", "Collect in this format")
                .value_parser(["rocpd", "csv"]),
        )
        .arg(flag("retain-rocpd-output", "Keep the databases next to pmc_perf.csv"))
        .arg(flag("no-roof", "Do not measure the GPU's peaks (default)"))
        .arg(flag("roof-only", "Measure the GPU's peaks with AMD's benchmark (ROOFLINE_BIN), and collect the roofline's counters").visible_alias("roofline"))
        .arg(memory_levels("Count the bytes of these memory levels for the roofline: HBM, L2, vL1D, LDS [default: all]"))
        .arg(flag("roofline-bench-only", "Only measure the GPU's peaks").alias("bench-only"))
        .arg(word("device", "N", "Measure the peaks of this GPU [default: 0]").alias("roofline-device"))
        .arg(
            word("iteration-multiplexing", "KIND", "Run a started program once, with all groups of counters multiplexed, instead of \
            once for each group; an attach always does. KIND: kernel, kernel_launch_params [default]")
                .num_args(0..=1)
                .default_missing_value("kernel_launch_params")
                .value_parser(["kernel", "kernel_launch_params"]),
        )
        .arg(
            Arg::new("remaining")
                .num_args(0..)
                .last(true)
                .value_name("APP")
                .value_parser(value_parser!(OsString))
                .help("Program to start, with its arguments"),
        );
    foreign::add(command, "profile")
}

/// `rocprof-compute`.
pub fn command() -> Command {
    let command = Command::new("rocprof-compute")
        .about("Profile GPU programs with hardware counters, and show derived metrics")
        .version(env!("CARGO_PKG_VERSION"))
        .arg(
            Arg::new("version")
                .long("version")
                .short('v')
                .action(ArgAction::Version)
                .help("Print the version"),
        )
        .disable_version_flag(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .args_override_self(true)
        .subcommand(profile())
        .subcommand(live())
        .subcommand(analyze())
        .subcommand(foreign::database());
    general(command)
}
