//! Where results go, in which form, and what is printed meanwhile.

use super::{
    Category::{Advanced, Output, Perfetto, Summary},
    Front, Opt, Sets, Shape,
};

const NO_BUFFER: &str = "AMD's tool gathers a Perfetto trace in a buffer and loses what does not fit. Ours has no buffer: packets are \
     written to the file one after the other.";

pub(super) const OPTIONS: &[Opt] = &[
    Opt::new(
        "output-format",
        Output,
        Shape::SomeOf(&["csv", "json", "pftrace", "otf2", "rocpd", "kineto", "parquet", "html"]),
        Sets::Words(&["ROCPROF_OUTPUT_FORMAT"], ","),
        "Formats of the results (default rocpd)",
    )
    .short('f')
    .more(
        "Several may be named. Exactly these are written: a value in ROCPROF_OUTPUT_FORMAT counts only without this \
         option. parquet makes directories run=/host=/rank=/kind=, for tables of many processes, and is written by an \
         attach only. html is one page for a browser, with a timeline. otf2 is an archive: two \
         files and a directory.",
    ),
    Opt::new("output-directory", Output, Shape::Text("DIR"), Sets::Path("ROCPROF_OUTPUT_PATH"), "Directory of the results")
        .short('d')
        .more(
            "A relative name counts from the directory in which this command is run, not from the profiled process's. Keys \
             such as %hostname% and %pid% are replaced. Default: ROCPROF_OUTPUT_PATH, else the current directory.",
        ),
    Opt::new(
        "output-file",
        Output,
        Shape::Text("NAME"),
        Sets::Words(&["ROCPROF_OUTPUT_FILE_NAME"], ""),
        "What the names of the results begin with",
    )
    .short('o')
    .more(
        "Keys such as %hostname%, %pid%, %nid%, %rank% and %env{NAME}% are replaced by values of the profiled process. \
         Default: ROCPROF_OUTPUT_FILE_NAME, else %hostname%/%pid%.",
    ),
    Opt::new(
        "log-level",
        Output,
        Shape::OneOf(&["fatal", "error", "warning", "info", "trace", "env", "config"]),
        Sets::Words(&["ROCPROF_LOG_LEVEL", "ROCPROFILER_LOG_LEVEL", "ROCTX_LOG_LEVEL"], ""),
        "How much is printed on standard error",
    )
    .more("The words env and config list the settings that go to the process and leave the level as it is."),
    Opt::new(
        "output-config",
        Output,
        Shape::Boolean,
        Sets::Switch("ROCPROF_OUTPUT_CONFIG_FILE"),
        "Write the settings beside the results, as NAME_config.json",
    )
    .more("One object, as json has it in its member metadata.config."),
    Opt::new(
        "minimum-output-data",
        Output,
        Shape::Number { name: "KB", min: 0, max: u64::MAX / 1024 },
        Sets::Scaled("ROCPROF_MINIMUM_OUTPUT_BYTES", 1024),
        "Write no files where fewer kilobytes were recorded",
    )
    .more("The bytes of records count, of one process or, with --merge, of all; not those of the files."),
    Opt::new(
        "max-size",
        Output,
        Shape::Number { name: "MIB", min: 1, max: u64::MAX >> 20 },
        Sets::Scaled("MIDAIR_MAX_BYTES", 1 << 20),
        "Most that the records of one process may take on the disk, in MiB (default 4096)",
    )
    .more(
        "When that is reached, an attach detaches, writes what was recorded until then, and ends with code 36. In a program that \
         was started under the profiler, further records are counted as lost. Records wait in the directory for temporary \
         files (TMPDIR). Of several processes each has its own limit. A file of results has at most some seventy times the \
         bytes of the records, in most cases a few times.",
    ),
    Opt::new("stats", Summary, Shape::Boolean, Sets::Switch("ROCPROF_STATS"), "Write statistics per kernel and call").more(
        "With csv in files of their own beside the traces, with json in its list summary; other formats have none.",
    ),
    Opt::new("summary", Summary, Shape::Boolean, Sets::Switch("ROCPROF_STATS_SUMMARY"), "Print one summary of all").short('S'),
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
        "Each expression makes one table of the domains whose whole names it matches: HSA_API, HIP_API, MARKER_API, \
         KERNEL_DISPATCH, MEMORY_COPY, SCRATCH_MEMORY, MEMORY_ALLOCATION.",
    ),
    Opt::new(
        "summary-output-file",
        Summary,
        Shape::Text("FILE"),
        Sets::Words(&["ROCPROF_STATS_SUMMARY_OUTPUT"], ""),
        "Where summaries go: stdout (default), stderr or a file",
    )
    .more("A file is named as the other results are, with .txt at its end."),
    Opt::new(
        "summary-units",
        Summary,
        Shape::OneOf(&["sec", "msec", "usec", "nsec"]),
        Sets::Words(&["ROCPROF_STATS_SUMMARY_UNITS"], ""),
        "Unit of times in summaries (default nsec)",
    )
    .short('u'),
    Opt::new(
        "mangled-kernels",
        Summary,
        Shape::Boolean,
        Sets::Inverse("ROCPROF_DEMANGLE_KERNELS"),
        "Leave kernel names as the compiler made them",
    )
    .short('M'),
    Opt::new(
        "truncate-kernels",
        Summary,
        Shape::Boolean,
        Sets::Switch("ROCPROF_TRUNCATE_KERNELS"),
        "Cut template arguments and parameters from kernel names",
    )
    .short('T'),
    Opt::new(
        "kernel-rename",
        Summary,
        Shape::Boolean,
        Sets::Switch("ROCPROF_KERNEL_RENAME"),
        "Name kernels after the ROCTx range around their launch; ranges are recorded, too",
    ),
    Opt::new(
        "agent-index",
        Summary,
        Shape::OneOf(&["absolute", "relative", "type-relative"]),
        Sets::Words(&["ROCPROF_AGENT_INDEX"], ""),
        "How devices are numbered",
    )
    .short('A'),
    Opt::new(
        "perfetto-backend",
        Perfetto,
        Shape::OneOf(&["inprocess", "system"]),
        Sets::Words(&["ROCPROF_PERFETTO_BACKEND"], ""),
        "Where the Perfetto trace is gathered: inprocess is what happens",
    )
    .later_words(&["system"])
    .more("The trace goes straight to its file. Handing it to the traced daemon (system) is refused."),
    Opt::new(
        "perfetto-buffer-size",
        Perfetto,
        Shape::Number { name: "KB", min: 1, max: 4_194_303 },
        Sets::Words(&["ROCPROF_PERFETTO_BUFFER_SIZE_KB"], ""),
        "Accepted without effect: a trace of any size is written whole",
    )
    .more(NO_BUFFER),
    Opt::new(
        "perfetto-shmem-size-hint",
        Perfetto,
        Shape::Number { name: "KB", min: 1, max: 4_194_303 },
        Sets::Words(&["ROCPROF_PERFETTO_SHMEM_SIZE_HINT_KB"], ""),
        "Accepted without effect: no memory is shared with Perfetto",
    )
    .more(NO_BUFFER),
    Opt::new(
        "perfetto-buffer-fill-policy",
        Perfetto,
        Shape::OneOf(&["discard", "ring_buffer"]),
        Sets::Words(&["ROCPROF_PERFETTO_BUFFER_FILL_POLICY"], ""),
        "Accepted without effect: nothing is ever discarded",
    )
    .more(NO_BUFFER),
    Opt::new("version", Advanced, Shape::Flag, Sets::Nothing, "Print versions")
        .short('v')
        .front(Front::Rocprofv3),
];
