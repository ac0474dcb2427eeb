//! Starting a program, and options that few people need.

use super::{Category::Advanced, Front, Opt, Sets, Shape};
use crate::benchmark::{BENCHMARK_MODE, BENCHMARK_MODES};

const NOT_STARTED: &str = "--process-sync requires a started program: an attach writes each process's files independently";
const NOT_MEASURED: &str = "--benchmark-mode requires a started program: it leaves out parts of what such a program has from its start";
const OWN_LIBRARIES: &str = "--rocm-root, --sdk-version and --sdk-soversion require a started program: an attach uses midair's \
    own libraries";

/// An option that is built.
const fn built(long: &'static str, shape: Shape, sets: Sets, help: &'static str) -> Opt {
    Opt::new(long, Advanced, shape, sets, help).front(Front::Rocprofv3)
}

pub(super) const OPTIONS: &[Opt] = &[
    built(
        "input",
        Shape::Text("FILE"),
        Sets::Nothing,
        "Read options from a YAML, JSON or text file",
    )
    .short('i')
    .more(
        "The file extension selects the format: .yaml and .json have a list of jobs, .txt has lines such as 'pmc: SQ_WAVES \
         GRBM_COUNT'. In an attached process, groups of counters are multiplexed in one session; a started program runs once per \
         group.",
    ),
    built(
        "list-avail",
        Shape::Boolean,
        Sets::Nothing,
        "List the hardware counters of this machine's GPUs, and exit",
    )
    .short('L')
    .more(
        "Each with its block or expression and its dimensions, in the format of rocprofv3-avail info --pmc. For machine-readable \
         output use midair counters --json.",
    ),
    built(
        "arch",
        Shape::Text("NAME"),
        Sets::Nothing,
        "With --list-avail: list the counters of this architecture, such as gfx942",
    ),
    built(
        "preload",
        Shape::Texts("LIB"),
        Sets::Words(&["ROCPROF_PRELOAD"], ":"),
        "Preload these libraries into the started program",
    )
    .more("They precede the libraries in LD_PRELOAD; midair's libraries follow both."),
    built(
        "disable-signal-handlers",
        Shape::Boolean,
        Sets::Inverse("ROCPROF_SIGNAL_HANDLERS"),
        "Install no signal handlers in the started program",
    )
    .more(
        "By default, handlers write the results before SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGABRT or a fault ends the program, \
         unless the program has its own handler.",
    ),
    built(
        "process-sync",
        Shape::Boolean,
        Sets::Switch("ROCPROF_PROCESS_SYNC"),
        "Delay the exit of a started process until its siblings have written their files",
    )
    .more(
        "Siblings are the recorded processes with the same parent, such as the ranks on one host. Some launchers kill all of \
         them when the first one exits. A process waits at most one minute.",
    )
    .not_with_attach(NOT_STARTED),
    built(
        "rocm-root",
        Shape::Text("DIR"),
        Sets::Nothing,
        "Start the program with the SDK and tool libraries from DIR/lib",
    )
    .more("Default: the libraries installed with this program.")
    .not_with_attach(OWN_LIBRARIES),
    built(
        "sdk-soversion",
        Shape::Text("N"),
        Sets::Nothing,
        "Start the program with SDK libraries of this SONAME version (default 1)",
    )
    .more("Loads librocprofiler-sdk.so.N and rocprofiler-sdk/librocprofiler-sdk-tool.so.N.")
    .not_with_attach(OWN_LIBRARIES),
    built(
        "sdk-version",
        Shape::Text("X.Y.Z"),
        Sets::Nothing,
        "Start the program with SDK libraries of this full version",
    )
    .more("Overrides --sdk-soversion.")
    .not_with_attach(OWN_LIBRARIES),
    built(
        "readlink",
        Shape::Boolean,
        Sets::Nothing,
        "Load the libraries that symbolic links lead to",
    )
    .hidden(),
    built(
        "realpath",
        Shape::Boolean,
        Sets::Nothing,
        "Load libraries by their real paths",
    )
    .hidden(),
    built(
        "benchmark-mode",
        Shape::OneOf(BENCHMARK_MODES),
        Sets::Words(&[BENCHMARK_MODE], ""),
        "Write no files, to measure what a part of the profiler costs the program",
    )
    .not_with_attach(NOT_MEASURED)
    .hidden(),
    built(
        "suppress-marker-preload",
        Shape::Boolean,
        Sets::Nothing,
        "Do not preload the marker library",
    )
    .hidden(),
    built(
        "echo",
        Shape::Boolean,
        Sets::Nothing,
        "Print the command without running it",
    )
    .hidden(),
];
