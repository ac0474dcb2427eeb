//! Starting a program, and options that few people need.

use super::{Category::Advanced, Front, Opt, Sets, Shape};

const NOT_STARTED: &str = "--process-sync is for programs that are started: an attach writes each process's files by itself";
const OWN_LIBRARIES: &str = "an attach brings libraries of its own: --rocm-root, --sdk-version and --sdk-soversion are for programs that are started";

/// An option that is built.
const fn built(long: &'static str, shape: Shape, sets: Sets, help: &'static str) -> Opt {
    Opt::new(long, Advanced, shape, sets, help).front(Front::Rocprofv3)
}

/// An option that is not built yet.
const fn launch(long: &'static str, shape: Shape, sets: Sets, help: &'static str) -> Opt {
    Opt::new(long, Advanced, shape, sets, help)
        .later()
        .front(Front::Rocprofv3)
}

pub(super) const OPTIONS: &[Opt] = &[
    built(
        "input",
        Shape::Text("FILE"),
        Sets::Nothing,
        "Take options from a YAML, JSON or text file",
    )
    .short('i')
    .more(
        "By the ending of its name: .yaml and .json have a list of jobs, .txt has lines as 'pmc: SQ_WAVES GRBM_COUNT'. Groups of \
         counters take turns in one session of a process that is attached to; a program that is started runs once for each.",
    ),
    built(
        "list-avail",
        Shape::Boolean,
        Sets::Nothing,
        "List the hardware counters of this machine's GPUs, and do nothing else",
    )
    .short('L')
    .more(
        "For each its block or its expression, and the dimensions of its values, as rocprofv3-avail info --pmc writes them. \
         midair counters --json lists them for programs.",
    ),
    built(
        "arch",
        Shape::Text("NAME"),
        Sets::Nothing,
        "With --list-avail: of this architecture, such as gfx942",
    ),
    built(
        "preload",
        Shape::Texts("LIB"),
        Sets::Words(&["ROCPROF_PRELOAD"], ":"),
        "Load these libraries into the started program first",
    )
    .more("They stand before what LD_PRELOAD names already. Our own libraries stand behind both."),
    built(
        "disable-signal-handlers",
        Shape::Boolean,
        Sets::Inverse("ROCPROF_SIGNAL_HANDLERS"),
        "Put no signal handlers into the started program",
    )
    .more(
        "Without it, results are written before SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGABRT or a fault ends the program, where the program \
         has no handler of its own.",
    ),
    built(
        "process-sync",
        Shape::Boolean,
        Sets::Switch("ROCPROF_PROCESS_SYNC"),
        "Let a started process end only when its siblings have written their files",
    )
    .more(
        "Siblings are the recorded processes with the same parent, such as the ranks of one host. Some launchers kill all of \
         them when the first ends. A process waits for a minute at most.",
    )
    .not_with_attach(NOT_STARTED),
    built(
        "rocm-root",
        Shape::Text("DIR"),
        Sets::Nothing,
        "Start the program with the SDK and the tool below this directory",
    )
    .more("Those in DIR/lib, instead of the ones beside this program.")
    .not_with_attach(OWN_LIBRARIES),
    built(
        "sdk-soversion",
        Shape::Text("N"),
        Sets::Nothing,
        "Start the program with SDK libraries whose names end in this number",
    )
    .more("librocprofiler-sdk.so.N and rocprofiler-sdk/librocprofiler-sdk-tool.so.N; without it, 1.")
    .not_with_attach(OWN_LIBRARIES),
    built(
        "sdk-version",
        Shape::Text("X.Y.Z"),
        Sets::Nothing,
        "Start the program with SDK libraries whose names end in this version",
    )
    .more("As --sdk-soversion, and it counts where both are given.")
    .not_with_attach(OWN_LIBRARIES),
    launch(
        "readlink",
        Shape::Boolean,
        Sets::Nothing,
        "Resolve the command's own link",
    )
    .hidden(),
    launch(
        "realpath",
        Shape::Boolean,
        Sets::Nothing,
        "Resolve the command's own path",
    )
    .hidden(),
    launch(
        "benchmark-mode",
        Shape::Text("MODE"),
        Sets::Words(&["ROCPROF_BENCHMARK_MODE"], ""),
        "Measure the tool's own cost",
    )
    .hidden(),
    built(
        "suppress-marker-preload",
        Shape::Boolean,
        Sets::Nothing,
        "Do not preload the marker library",
    )
    .hidden(),
    launch(
        "echo",
        Shape::Boolean,
        Sets::Nothing,
        "Print what would be run",
    )
    .hidden(),
];
