//! The command line: AMD's options, of the versions of 2025 and of 2026.

use crate::architecture::Architecture;
use crate::foreign;
use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, Command, value_parser};
use std::ffi::OsString;
use std::path::PathBuf;

/// The value of `--list-metrics` when no architecture is named: that of this machine's GPU.
pub(crate) const THIS_MACHINE: &str = "native";

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
    Architecture::all().iter().map(|it| it.name).collect()
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
                .help("Say more; up to three times"),
        )
        .arg(flag("quiet", "Print errors alone").short('q').global(true))
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
                "Print what is known about this machine and its GPU",
            )
            .short('s')
            .global(true),
        )
        .arg(
            flag("experimental", "Allow experimental options")
                .global(true)
                .hide(true),
        );
    let command =
        command.arg(flag("list-sets", "List sets of metrics that fit into one pass").global(true));
    foreign::add(command, "")
}

fn normal_unit() -> Arg {
    word("normal-unit", "UNIT", "What counts are divided by")
        .short('n')
        .value_parser(["per_wave", "per_cycle", "per_second", "per_kernel"])
        .default_value("per_kernel")
}

fn time_unit() -> Arg {
    word("time-unit", "UNIT", "Unit of times")
        .short('t')
        .value_parser(["s", "ms", "us", "ns"])
        .default_value("ns")
}

fn decimal() -> Arg {
    word("decimal", "N", "Digits behind the point")
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
        .about("Show what a workload directory says")
        .arg(
            list("path", "DIR", "Workload directories; the first is what others are compared with")
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
                .help("Kernels by their numbers in --list-stats; repeated, one for each directory"),
        )
        .arg(
            Arg::new("dispatch")
                .long("dispatch")
                .short('d')
                .value_name("N")
                .num_args(1..)
                .action(ArgAction::Append)
                .help("Dispatches by their numbers, or '> N'"),
        )
        .arg(
            list("block", "ID", "Panels, tables and metrics by number, or by the names of --list-blocks")
                .short('b'),
        )
        .arg(flag("speed-of-light", "The same as -b 2"))
        .arg(flag("memory-chart", "The same as -b 3"))
        .arg(flag("roofline", "The same as -b 4"))
        .arg(
            list("roofline-data-types", "TYPE", "Types of data whose roofs are shown: FP32, FP16, BF16, FP8, FP64, I8 [default: FP32 FP16]")
                .short('R')
                .alias("roofline-data-type"),
        )
        .arg(memory_levels("Levels of memory in the roofline: HBM, L2, vL1D, LDS [default: all]"))
        .arg(list("gpu-id", "N", "GPUs"))
        .arg(
            word("output-format", "FORMAT", "Where the tables go: stdout, txt, csv, db")
                .value_parser(["stdout", "txt", "csv", "db"])
                .default_value("stdout"),
        )
        .arg(
            word("html", "FILE", "Write one page with everything, which needs no network")
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(word("output-name", "NAME", "Name of the file or directory, without its extension"))
        .arg(normal_unit())
        .arg(time_unit())
        .arg(decimal())
        .arg(
            word("max-stat-num", "N", "Kernels and dispatches in the tables of panel 0")
                .value_parser(value_parser!(u32))
                .default_value("10"),
        )
        .arg(list("cols", "N", "Columns of each table by their places, from 0"))
        .arg(list("include-cols", "NAME", "Columns that are hidden otherwise"))
        .arg(word("specs-correction", "NAME:VALUE,...", "Other values of sysinfo.csv"))
        .arg(
            word("formulas", "YEAR", "AMD's formulas of 2025 (means of ratios) or of 2026 (ratios of sums); by the directory if left out")
                .value_parser(["2025", "2026"]),
        )
        .arg(
            word("view", "KIND", "table: the memory chart as a table")
                .value_parser(["table"]),
        )
        .arg(flag("list-available-metrics", "List the metrics of this machine's GPU"));
    foreign::add(command, "analyze")
}

/// `rocprof-compute live`.
fn live() -> Command {
    Command::new("live")
        .about("Show tables of a running process, again and again while it runs")
        .after_help("q, Enter or Ctrl-C detaches. Without a terminal each table is printed below the last. Nothing is kept: profile writes files.")
        .args_override_self(true)
        .arg(word("attach-pid", "PID", "Attach to this running process"))
        .arg(word("attach-duration-msec", "MSEC", "Detach after so many milliseconds"))
        .arg(word("interval-msec", "MSEC", "From one picture to the next, at least [default: 1000]"))
        .arg(
            list("block", "ID", "Panels, tables and metrics by number, or by the names of --list-blocks [default: 2]")
                .short('b'),
        )
        .arg(word("set", "NAME", "Metrics that fit into one pass; --list-sets"))
        .arg(list("kernel", "REGEX", "Count only kernels with such names").short('k'))
        .arg(word("max-overhead", "PERCENT", "How much of the time counting may take"))
        .arg(normal_unit())
        .arg(time_unit())
        .arg(decimal())
}

/// `rocprof-compute profile`.
fn profile() -> Command {
    let command = Command::new("profile")
        .about("Count what metrics need, in a running process or in a program that is started")
        .args_override_self(true)
        .arg(word("name", "NAME", "Name of the workload").short('n'))
        .arg(word("attach-pid", "PID", "Attach to this running process"))
        .arg(word("attach-duration-msec", "MSEC", "Detach after so many milliseconds; else at Enter"))
        .arg(
            word("output-directory", "DIR", "Directory of the results, with keys such as %gpumodel% [default: workloads/NAME/%gpumodel%]")
                .short('d')
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            word("path", "DIR", "Directory in which one named after the GPU's model is made")
                .short('p')
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(word("subpath", "KIND", "").hide(true))
        .arg(flag("overwrite", "Replace an earlier profile in the directory"))
        .arg(flag("with-arguments", "Store the program's arguments in sysinfo.csv and profiling_config.yaml"))
        .arg(list("kernel", "REGEX", "Count only kernels with such names").short('k'))
        .arg(
            list("kernel-iteration-range", "RANGE", "Count only these launches of each kernel, from 1: N, A-B, A:B")
                .alias("dispatch"),
        )
        .arg(
            list("block", "ID", "Panels, tables and metrics by number, or by the names of --list-blocks")
                .short('b'),
        )
        .arg(word("set", "NAME", "Metrics that fit into one pass; --list-sets"))
        .arg(flag("list-available-metrics", "List the metrics of this machine's GPU"))
        .arg(word("max-overhead", "PERCENT", "How much of the time counting may take"))
        .arg(word("target-error", "PERCENT", "Detach when each metric is known within so many percent of itself, with 95 % confidence"))
        .arg(
            word("format-rocprof-output", "FORMAT", "Form of what is collected")
                .value_parser(["rocpd", "csv"]),
        )
        .arg(flag("retain-rocpd-output", "Keep the databases beside pmc_perf.csv"))
        .arg(flag("no-roof", "Measure no peaks of the GPU, as without --roofline"))
        .arg(flag("roof-only", "Measure the GPU's peaks by AMD's benchmark (ROOFLINE_BIN), and count what the roofline needs").visible_alias("roofline"))
        .arg(memory_levels("Levels of memory whose bytes are counted for the roofline: HBM, L2, vL1D, LDS [default: all]"))
        .arg(flag("roofline-bench-only", "Measure the GPU's peaks alone").alias("bench-only"))
        .arg(word("device", "N", "GPU whose peaks are measured [default: 0]").alias("roofline-device"))
        .arg(word("iteration-multiplexing", "KIND", "").num_args(0..=1).hide(true))
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
        .about("Profile GPU programs by hardware counters, and show what the counters say")
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
        .subcommand(analyze());
    general(command)
}
