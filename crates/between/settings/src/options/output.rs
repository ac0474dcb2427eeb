//! Where results go, in which form, and what is printed meanwhile.

use super::{
    Category::{Advanced, Output, Perfetto, Summary},
    Front, Opt, Sets, Shape,
};

const NO_BUFFER: &str = "AMD's tool collects a Perfetto trace in a buffer and loses packets that do not fit. midair writes \
    packets straight to the file.";

pub(super) const OPTIONS: &[Opt] = &[
    Opt::new(
        "output-format",
        Output,
        Shape::SomeOf(&["csv", "json", "pftrace", "otf2", "rocpd", "kineto", "parquet", "html", "folded", "speedscope", "pprof"]),
        Sets::Words(&["ROCPROF_OUTPUT_FORMAT"], ","),
        "Write results in these formats (default rocpd)",
    )
    .short('f')
    .more(
        "Overrides ROCPROF_OUTPUT_FORMAT. parquet writes directories run=/host=/rank=/kind=, for tables over many \
         processes. html is one page with a timeline. otf2 is an archive: two files and a directory. folded, speedscope \
         and pprof have the GPU's time by stack (--stacks).",
    ),
    Opt::new("output-directory", Output, Shape::Text("DIR"), Sets::Path("ROCPROF_OUTPUT_PATH"), "Write results to this directory \
        (default: ROCPROF_OUTPUT_PATH, else the current directory)")
        .short('d')
        .more(
            "Relative to the current directory of this command, not of the profiled process. Placeholders such as %hostname% and \
             %pid% are replaced.",
        ),
    Opt::new(
        "output-file",
        Output,
        Shape::Text("NAME"),
        Sets::Words(&["ROCPROF_OUTPUT_FILE_NAME"], ""),
        "Use this prefix for files (default: ROCPROF_OUTPUT_FILE_NAME, else %hostname%/%pid%)",
    )
    .short('o')
    .more(
        "Placeholders such as %hostname%, %pid%, %nid%, %rank% and %env{NAME}% are replaced by values of the profiled process.",
    ),
    Opt::new(
        "log-level",
        Output,
        Shape::OneOf(&["fatal", "error", "warning", "info", "trace", "env", "config"]),
        Sets::Words(&["ROCPROF_LOG_LEVEL", "ROCPROFILER_LOG_LEVEL", "ROCTX_LOG_LEVEL"], ""),
        "Set the log level on standard error (default warning)",
    )
    .more("env and config list the settings passed to the process, without changing the level."),
    Opt::new(
        "output-config",
        Output,
        Shape::Boolean,
        Sets::Switch("ROCPROF_OUTPUT_CONFIG_FILE"),
        "Write the settings to NAME_config.json next to the results",
    )
    .more("It has metadata.config of the json format, and no environment."),
    Opt::new(
        "minimum-output-data",
        Output,
        Shape::Number { name: "KB", min: 0, max: u64::MAX / 1024 },
        Sets::Scaled("ROCPROF_MINIMUM_OUTPUT_BYTES", 1024),
        "Write no files if less than this was recorded, in KiB (default 0)",
    )
    .more("Measured on raw records per process, or of all processes with --merge; not on output files."),
    Opt::new(
        "max-size",
        Output,
        Shape::Number { name: "MIB", min: 1, max: u64::MAX >> 20 },
        Sets::Scaled("MIDAIR_MAX_BYTES", 1 << 20),
        "Limit the records of one process on disk, in MiB (default 4096)",
    )
    .more(
        "At the limit, an attach detaches, writes the records so far, and exits with code 36. A started program continues, and \
         further records are counted as lost. Records are stored in TMPDIR until they are written. Each process has its own \
         limit. A result file is usually a few times the size of the records, at most about seventy times.",
    ),
    Opt::new("stats", Summary, Shape::Boolean, Sets::Switch("ROCPROF_STATS"), "Write statistics per kernel and call").more(
        "csv gets additional files, json a list 'summary'; other formats have no statistics.",
    ),
    Opt::new("summary", Summary, Shape::Boolean, Sets::Switch("ROCPROF_STATS_SUMMARY"), "Print one summary of all domains").short('S'),
    Opt::new(
        "summary-per-domain",
        Summary,
        Shape::Boolean,
        Sets::Switch("ROCPROF_STATS_SUMMARY_PER_DOMAIN"),
        "Print a summary for each domain",
    )
    .short('D'),
    Opt::new(
        "summary-groups",
        Summary,
        Shape::Texts("REGEX"),
        Sets::Words(&["ROCPROF_STATS_SUMMARY_GROUPS"], "##@@##"),
        "Print a summary for each group of domains",
    )
    .more(
        "Each expression selects the domains of one table and must match their full names: HSA_API, HIP_API, MARKER_API, \
         KERNEL_DISPATCH, MEMORY_COPY, SCRATCH_MEMORY, MEMORY_ALLOCATION.",
    ),
    Opt::new(
        "summary-output-file",
        Summary,
        Shape::Text("FILE"),
        Sets::Words(&["ROCPROF_STATS_SUMMARY_OUTPUT"], ""),
        "Write summaries to stdout (default), stderr or a file",
    )
    .more("A file name follows the same rules as other results, with the extension .txt."),
    Opt::new(
        "summary-units",
        Summary,
        Shape::OneOf(&["sec", "msec", "usec", "nsec"]),
        Sets::Words(&["ROCPROF_STATS_SUMMARY_UNITS"], ""),
        "Set the time unit of summaries (default nsec)",
    )
    .short('u'),
    Opt::new(
        "mangled-kernels",
        Summary,
        Shape::Boolean,
        Sets::Inverse("ROCPROF_DEMANGLE_KERNELS"),
        "Show mangled kernel names",
    )
    .short('M'),
    Opt::new(
        "truncate-kernels",
        Summary,
        Shape::Boolean,
        Sets::Switch("ROCPROF_TRUNCATE_KERNELS"),
        "Remove template arguments and parameters from kernel names",
    )
    .short('T'),
    Opt::new(
        "kernel-rename",
        Summary,
        Shape::Boolean,
        Sets::Switch("ROCPROF_KERNEL_RENAME"),
        "Name kernels after the ROCTx range around their launch; implies recording of ranges",
    ),
    Opt::new(
        "agent-index",
        Summary,
        Shape::OneOf(&["absolute", "relative", "type-relative"]),
        Sets::Words(&["ROCPROF_AGENT_INDEX"], ""),
        "Number GPUs by absolute, relative or type-relative index (default relative)",
    )
    .short('A'),
    Opt::new(
        "perfetto-backend",
        Perfetto,
        Shape::OneOf(&["inprocess", "system"]),
        Sets::Words(&["ROCPROF_PERFETTO_BACKEND"], ""),
        "Select the Perfetto backend (default inprocess)",
    )
    .later_words(&["system"])
    .more("midair writes the trace straight to its file, and refuses system, the traced daemon."),
    Opt::new(
        "perfetto-buffer-size",
        Perfetto,
        Shape::Number { name: "KB", min: 1, max: 4_194_303 },
        Sets::Words(&["ROCPROF_PERFETTO_BUFFER_SIZE_KB"], ""),
        "Accepted for compatibility; no effect: a trace of any size is written in full",
    )
    .more(NO_BUFFER),
    Opt::new(
        "perfetto-shmem-size-hint",
        Perfetto,
        Shape::Number { name: "KB", min: 1, max: 4_194_303 },
        Sets::Words(&["ROCPROF_PERFETTO_SHMEM_SIZE_HINT_KB"], ""),
        "Accepted for compatibility; no effect: midair shares no memory with Perfetto",
    )
    .more(NO_BUFFER),
    Opt::new(
        "perfetto-buffer-fill-policy",
        Perfetto,
        Shape::OneOf(&["discard", "ring_buffer"]),
        Sets::Words(&["ROCPROF_PERFETTO_BUFFER_FILL_POLICY"], ""),
        "Accepted for compatibility; no effect: midair discards no packets",
    )
    .more(NO_BUFFER),
    Opt::new("version", Advanced, Shape::Flag, Sets::Nothing, "Print versions")
        .short('v')
        .front(Front::Rocprofv3),
];
