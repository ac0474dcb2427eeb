//! Which process, for how long.

use super::{Category::Attach, Front, Opt, Sets, Shape};
use crate::settings::CUDA_HW_TRACE;

/// Greatest pid that Linux can hand out (PID_MAX_LIMIT).
const PID_MAX: u64 = 4 * 1024 * 1024;

pub(super) const OPTIONS: &[Opt] = &[
    Opt::new(
        "pid",
        Attach,
        Shape::Number { name: "PID", min: 1, max: PID_MAX },
        Sets::Words(&["ROCPROF_ATTACH_PID"], ""),
        "Attach to this running process",
    )
    .short('p')
    .aliases(&["attach"])
    .more(
        "The process needs no preparation: no variable at its start, no library loaded beforehand. It goes on running while \
         it is profiled and after it. Without this option the program behind -- is started.",
    )
    .front(Front::Rocprofv3),
    Opt::new(
        "attach-duration-msec",
        Attach,
        Shape::Number { name: "MSEC", min: 1, max: u32::MAX as u64 },
        Sets::Words(&["ROCPROF_ATTACH_DURATION"], ""),
        "Detach after this many milliseconds",
    )
    .more(
        "Without it, profiling goes on until Enter is pressed, standard input ends, SIGINT, SIGTERM or SIGHUP comes, or the \
         process ends. With it, standard input is not read.",
    )
    .front(Front::Rocprofv3),
    Opt::new("duration", Attach, Shape::Duration, Sets::Nothing, "Detach after this time: 2s, 500ms, 1m")
        .more(
            "A bare number counts seconds. Without it, profiling goes on until Enter is pressed, standard input ends, \
             SIGINT, SIGTERM or SIGHUP comes, or the process ends. With it, standard input is not read.",
        )
        .front(Front::Midair),
    Opt::new(
        "until-signal",
        Attach,
        Shape::Flag,
        Sets::Nothing,
        "Record until SIGINT, SIGTERM or SIGHUP comes, and do not read standard input",
    )
    .more(
        "For services and scripts, whose standard input may be closed: its end would end the recording. The end of the process \
         and a duration end it as well.",
    ),
    Opt::new(
        "wait",
        Attach,
        Shape::Duration,
        Sets::Nothing,
        "Wait this long for a process that has no GPU runtime, or no thread to enter by, yet",
    )
    .more(
        "Without it, a process that was started a moment ago is waited for until it is five seconds old; in its first minute the time \
         in which it waits for a processor does not count. 1ms refuses a process without a runtime at once. With --tree, --all and --name midair watches such processes anyway.",
    ),
    Opt::new(
        "drain",
        Attach,
        Shape::Duration,
        Sets::Nothing,
        "Wait at most this long at detach for work that still runs (default 100ms)",
    )
    .more("Kernels and copies that still run after it are written with the mark that they ran at detach.")
    .front(Front::Midair),
    Opt::new(
        "spool-size",
        Attach,
        Shape::Number { name: "MIB", min: 1, max: 64 * 1024 },
        Sets::Nothing,
        "Memory for records not yet taken over, in MiB (default 64)",
    )
    .more("When it is full, records are dropped and counted; the application is never made to wait.")
    .front(Front::Midair),
    Opt::new(
        "top",
        Attach,
        Shape::Number { name: "ROWS", min: 1, max: 1 << 20 },
        Sets::Nothing,
        "Rows of each table on the screen (default 10)",
    )
    .more("What took less time is summed up in one more row. --json has all rows unless this option says how many.")
    .front(Front::Midair),
    Opt::new("wide", Attach, Shape::Flag, Sets::Nothing, "Never cut the names of kernels and calls on the screen")
        .more("Where standard output is no terminal they are whole in any case.")
        .front(Front::Midair),
    Opt::new("json", Attach, Shape::Flag, Sets::Nothing, "Print everything that is on the screen as one JSON document instead")
        .more("On standard output, in one line; docs/results.md describes its members.")
        .front(Front::Midair),
    Opt::new("quiet", Attach, Shape::Flag, Sets::Nothing, "Print only the names of the files, warnings and errors")
        .short('q')
        .front(Front::Midair),
    Opt::new("verbose", Attach, Shape::Flag, Sets::Nothing, "Print by which thread the process was entered, and why the other threads were not used")
        .more("Prints what --log-level info prints about this side, and leaves the process's own level as it is.")
        .short('v')
        .front(Front::Midair),
    Opt::new("dry-run", Attach, Shape::Flag, Sets::Nothing, "Check every precondition and stop there, as midair doctor does")
        .front(Front::Midair),
    Opt::new(
        "no-entry",
        Attach,
        Shape::Flag,
        Sets::Nothing,
        "Do not enter the process: take kernels' times from the dispatch log of AMD's kernel driver",
    )
    .more(
        "Nothing is loaded into the process and no thread of it is stopped. The log, which newer drivers keep for gfx950 and gfx12, tells \
         when kernels ran, on which queue and as which packet, but no names, sizes, threads and streams. Never run with a real driver so far.",
    )
    .front(Front::Midair),
    Opt::new(
        "attach-children",
        Attach,
        Shape::Boolean,
        Sets::Either("ROCPROF_ATTACH_CHILDREN"),
        "Attach to the process's descendants, too (default true)",
    )
    .more(
        "Without the option, the attach is refused where descendants belong to another user than the process, or the process is init (1) \
         and not itself the program. \
         Children that are born while it is attached are followed. Descendants without a HIP, HSA or CUDA runtime are left alone until they \
         load one; where the process itself has none (a launcher), its descendants are attached to. Each process has files of its \
         own, or see --merge.",
    )
    .front(Front::Rocprofv3),
    Opt::new(
        "strict-reattach",
        Attach,
        Shape::Flag,
        Sets::Switch("MIDAIR_STRICT_REATTACH"),
        "Refuse a process that was attached to before with other settings",
    )
    .more(
        "As AMD's attach does, which configures its tool once. Without it, each attach records what it asks for. Where results are written \
         may always differ.",
    ),
    Opt::new(
        "tree",
        Attach,
        Shape::Number { name: "PID", min: 1, max: u32::MAX as u64 },
        Sets::Nothing,
        "Attach to this process and all that descend from it",
    )
    .more(
        "In parallel, and children that are born while it is attached are followed. Processes without a HIP, HSA or CUDA runtime are \
         watched, and attached to when they load one.",
    )
    .front(Front::Midair),
    Opt::new("all", Attach, Shape::Flag, Sets::Nothing, "Attach to every process with a HIP, HSA or CUDA runtime that may be entered")
        .more("In parallel; those that come later are attached to when they load a runtime.")
        .front(Front::Midair),
    Opt::new(
        "name",
        Attach,
        Shape::Text("REGEX"),
        Sets::Nothing,
        "Attach to every process whose name or command line matches, and all that descend from them",
    )
    .more("In parallel; those that come later are attached to as well.")
    .front(Front::Midair),
    Opt::new("merge", Attach, Shape::Flag, Sets::Nothing, "Write one result of all processes instead of one for each")
        .more(
            "It is named by the process that was asked for, or else by the first. rocpd and json keep processes apart as they do \
             in their own files, Perfetto by process tracks; csv has a column Process_Id in every table.",
        ),
    Opt::new("keep", Attach, Shape::Duration, Sets::Nothing, "Keep only what was recorded in the last so much time: 30s, 5m")
        .more(
            "A flight recorder: it may be attached for hours, and its disk does not grow. At the detach what is kept is written. SIGUSR1 to \
             midair writes it at any time and goes on, into a directory of its own below that of the results; see also --trigger.",
        )
        .front(Front::Midair),
    Opt::new(
        "trigger",
        Attach,
        Shape::Each("WHEN"),
        Sets::Nothing,
        "With --keep: write the window around each such event, and go on",
    )
    .more(
        "'kernel(REGEX) > 3*median', 'kernel(REGEX) > 5ms', 'gap > 50ms' (a GPU runs nothing), 'queue stuck > 10s', 'memory > 90%' (of a \
         GPU), 'message(REGEX)' (a ROCTx or NVTX mark or range). It may be given several times. A window has three quarters of --keep before \
         its event and a quarter after it. Then nothing else is written at the detach.",
    )
    .front(Front::Midair),
    Opt::new(
        "keep-windows",
        Attach,
        Shape::Number { name: "COUNT", min: 1, max: 100_000 },
        Sets::Nothing,
        "With --keep: windows of one process at most (default 10)",
    )
    .front(Front::Midair),
    Opt::new(
        "keep-disk",
        Attach,
        Shape::Number { name: "MIB", min: 1, max: 16 * 1024 * 1024 },
        Sets::Nothing,
        "With --keep: MiB at most for what is kept (default 1024)",
    )
    .more("All windows of one process may have as many. A window that would be too large is not left on the disk. Of what is kept the oldest goes first.")
    .front(Front::Midair),
    Opt::new(
        "at",
        Attach,
        Shape::Text("TIME"),
        Sets::Nothing,
        "Attach at this time of day: 14:00:00, or 14:00:00/10s to record for 10 seconds",
    )
    .more(
        "By this machine's clock and its time zone; a time that has passed today is tomorrow's. On many hosts whose clocks agree, all begin \
         at once.",
    )
    .front(Front::Midair),
    Opt::new(
        "cupti",
        Attach,
        Shape::Text("PATH"),
        Sets::Words(&["MIDAIR_CUPTI"], ""),
        "CUPTI library (libcupti.so.N) for a CUDA process, by its path as that process sees it",
    )
    .more(
        "Without it, a CUPTI is used that the process has mapped already, or one is searched for beside its CUDA libraries, in its Python packages, in the toolkit, and by its loader. The path is absolute. Where the process has rights that you lack, only root may name one.",
    ),
    Opt::new(
        "cuda-hw-trace",
        Attach,
        Shape::Boolean,
        Sets::Switch(CUDA_HW_TRACE),
        "Have kernels of a CUDA process timed by the GPU's own hardware, if it has none running yet",
    )
    .more(
        "NVIDIA's GPUs from Blackwell on time kernels more exactly so, and at less cost for launches (CUPTI 12.8 and later). CUPTI can switch \
         it on only while the process has no CUDA context yet, and never off again: it then stays in the process. Where it cannot be switched on, \
         kernels are timed as usual, and a note of the session says why.",
    ),
    Opt::new(
        "attach-sync-output",
        Attach,
        Shape::Boolean,
        Sets::Either("ROCPROF_ATTACH_OUTPUT_GENERATION_SYNC"),
        "Write the results before returning",
    )
    .more("Results are always complete when the command returns; both words are accepted.")
    .front(Front::Rocprofv3),
];
