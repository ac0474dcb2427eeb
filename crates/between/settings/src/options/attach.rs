//! Which process, for how long.

use super::{
    Category::{self, Attach},
    Front, Opt, Sets, Shape,
};
use crate::settings::{CUDA_HW_TRACE, STACKS, STACKS_BUDGET, STACKS_BY};

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
        "The process needs no preparation: no environment variable, no preloaded library. It keeps running during and after the \
         profile. Without this option, rocprofv3 starts the program behind --.",
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
        "Without it, profiling stops on Enter, at the end of standard input, on SIGINT, SIGTERM or SIGHUP, or when the process \
         exits. With it, standard input is not read.",
    )
    .front(Front::Rocprofv3),
    Opt::new("duration", Attach, Shape::Duration, Sets::Nothing, "Detach after this time: 2s, 500ms, 1m")
        .more(
            "A bare number is in seconds. Without this option, profiling stops on Enter, at the end of standard input, on \
             SIGINT, SIGTERM or SIGHUP, or when the process exits. With it, standard input is not read.",
        )
        .front(Front::Midair),
    Opt::new(
        "until-signal",
        Attach,
        Shape::Flag,
        Sets::Nothing,
        "Record until SIGINT, SIGTERM or SIGHUP, and do not read standard input",
    )
    .more(
        "For services and scripts, where standard input may be closed, which would otherwise stop the recording. The recording \
         also stops when the process exits or --duration is over.",
    ),
    Opt::new(
        "wait",
        Attach,
        Shape::Duration,
        Sets::Nothing,
        "Wait up to this long for a GPU runtime or a safe thread (default: until 5s old)",
    )
    .more(
        "In a process's first minute, the time it spends waiting for a CPU does not count towards the default. Use 1ms to fail \
         immediately. With --tree, --all and --name, midair watches such processes in any case.",
    ),
    Opt::new(
        "drain",
        Attach,
        Shape::Duration,
        Sets::Nothing,
        "Wait up to this long at detach for running GPU work (default 100ms)",
    )
    .more("Kernels and copies still running after this time are written, marked as running at detach.")
    .front(Front::Midair),
    Opt::new(
        "spool-size",
        Attach,
        Shape::Number { name: "MIB", min: 1, max: 64 * 1024 },
        Sets::Nothing,
        "Set the size of the record spool in the process, in MiB (default 64)",
    )
    .more("When the spool is full, records are dropped and counted; the application never waits.")
    .front(Front::Midair),
    Opt::new(
        "top",
        Attach,
        Shape::Number { name: "ROWS", min: 1, max: 1 << 20 },
        Sets::Nothing,
        "Show this many rows of each table (default 10)",
    )
    .more("One more row sums up the rest. --json prints all rows unless this option is given.")
    .front(Front::Midair),
    Opt::new("wide", Attach, Shape::Flag, Sets::Nothing, "Show kernel and call names in full")
        .more("Names are never truncated when the output is piped.")
        .front(Front::Midair),
    Opt::new("json", Attach, Shape::Flag, Sets::Nothing, "Print one JSON document instead of tables")
        .more("It goes to standard output, in one line. docs/results.md describes its members.")
        .front(Front::Midair),
    Opt::new("quiet", Attach, Shape::Flag, Sets::Nothing, "Print only file names, warnings and errors")
        .short('q')
        .front(Front::Midair),
    Opt::new("verbose", Attach, Shape::Flag, Sets::Nothing, "Print which thread was used to enter the process, and why other \
        threads were not")
        .more("Prints midair's own messages of --log-level info, without changing the log level in the process.")
        .short('v')
        .front(Front::Midair),
    Opt::new("timings", Attach, Shape::Flag, Sets::Nothing, "Print how long each phase of the attach took, in ms")
        .more("The phases: inspect the process, prepare the session while the process is entered, and set up: load midair's libraries \
            there and hook its calls.")
        .front(Front::Midair),
    Opt::new("dry-run", Attach, Shape::Flag, Sets::Nothing, "Check every precondition, as midair doctor does, without attaching")
        .front(Front::Midair),
    Opt::new(
        "no-entry",
        Attach,
        Shape::Flag,
        Sets::Nothing,
        "Read kernel times from AMD's driver log, without entering the process",
    )
    .more(
        "Nothing is loaded into the process and no thread is stopped. Newer drivers keep this log for gfx950 and gfx12. It has \
         times, queues and packet numbers, but no names, sizes, threads or streams. Not yet tested with a real driver.",
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
        "If the option is not given, midair refuses to attach when a descendant belongs to another user, or when PID is 1 and \
         init is not the GPU program. Children started later are followed. midair attaches to descendants once they load a HIP, \
         HSA or CUDA runtime; PID itself may be a launcher without one. Each process gets its own files, unless --merge is \
         given.",
    )
    .front(Front::Rocprofv3),
    Opt::new(
        "strict-reattach",
        Attach,
        Shape::Flag,
        Sets::Switch("MIDAIR_STRICT_REATTACH"),
        "Refuse a process that was previously attached with different settings",
    )
    .more(
        "AMD's attach does this, because it configures its tool once. Without this option, each attach uses its own settings. \
         The output location may always differ.",
    ),
    Opt::new(
        "tree",
        Attach,
        Shape::Number { name: "PID", min: 1, max: u32::MAX as u64 },
        Sets::Nothing,
        "Attach to this process and all its descendants",
    )
    .more(
        "All are attached in parallel, and children started later are followed. midair attaches to the other processes once they \
         load a HIP, HSA or CUDA runtime.",
    )
    .front(Front::Midair),
    Opt::new("all", Attach, Shape::Flag, Sets::Nothing, "Attach to every process with a HIP, HSA or CUDA runtime that you may attach to")
        .more("All are attached in parallel. Processes started later are attached once they load a runtime.")
        .front(Front::Midair),
    Opt::new(
        "name",
        Attach,
        Shape::Text("REGEX"),
        Sets::Nothing,
        "Attach to every process whose name or command line matches, and to all its descendants",
    )
    .more("All are attached in parallel, including processes started later.")
    .front(Front::Midair),
    Opt::new("merge", Attach, Shape::Flag, Sets::Nothing, "Write one merged result instead of one per process")
        .more(
            "It is named after the requested PID, else the first process. rocpd and json keep processes separate, Perfetto shows \
             a track per process, and every csv table has a column Process_Id.",
        ),
    Opt::new("keep", Attach, Shape::Duration, Sets::Nothing, "Record continuously and keep only the last TIME: 30s, 5m (flight \
        recorder)")
        .more(
            "Disk use stays bounded for hours. The kept window is written at detach. Send SIGUSR1 to midair to write it at any \
             time and continue; each such window goes to its own subdirectory of the output directory. See also --trigger.",
        )
        .front(Front::Midair),
    Opt::new(
        "trigger",
        Attach,
        Shape::Each("WHEN"),
        Sets::Nothing,
        "With --keep: write a window around each matching event, and continue",
    )
    .more(
        "'kernel(REGEX) > 3*median', 'kernel(REGEX) > 5ms', 'gap > 50ms' (an idle GPU), 'queue stuck > 10s', 'memory > 90%' (of \
         a GPU), 'message(REGEX)' (a ROCTx or NVTX mark or range). May be repeated. A window has three quarters of --keep before \
         its event and a quarter after it. With triggers, nothing else is written at detach.",
    )
    .front(Front::Midair),
    Opt::new(
        "keep-windows",
        Attach,
        Shape::Number { name: "COUNT", min: 1, max: 100_000 },
        Sets::Nothing,
        "With --keep: write at most this many windows per process (default 10)",
    )
    .front(Front::Midair),
    Opt::new(
        "keep-disk",
        Attach,
        Shape::Number { name: "MIB", min: 1, max: 16 * 1024 * 1024 },
        Sets::Nothing,
        "With --keep: use at most this much disk per process, in MiB (default 1024)",
    )
    .more("The written windows of a process have a limit of the same size. A window that exceeds it is deleted. When the limit \
        is reached, the oldest kept records are dropped first.")
    .front(Front::Midair),
    Opt::new(
        "at",
        Attach,
        Shape::Text("TIME"),
        Sets::Nothing,
        "Attach at this time of day: 14:00:00, or 14:00:00/10s to record for 10 seconds",
    )
    .more(
        "Uses this machine's clock and time zone; past times mean tomorrow. Hosts with synchronized clocks start together.",
    )
    .front(Front::Midair),
    Opt::new(
        "cupti",
        Attach,
        Shape::Text("PATH"),
        Sets::Words(&["MIDAIR_CUPTI"], ""),
        "Use this CUPTI library (libcupti.so.N); absolute path as the process sees it",
    )
    .more(
        "By default, midair uses a CUPTI that the process has already mapped, or searches next to its CUDA libraries, in its \
         Python packages, in the toolkit, and with its loader. If the process has privileges that you lack, only root may name \
         one.",
    ),
    Opt::new(
        "stacks",
        Category::Counters,
        Shape::OneOf(&["python", "native", "both", "off"]),
        Sets::Words(&[STACKS], ""),
        "Record at which lines or functions work is launched (default off)",
    )
    .more(
        "The stack of each launch of a kernel or a copy: python for the frames of CPython 3.9 to 3.14, native for the functions of \
         C++, Rust and others, both for native frames inside of Python's. The screen then shows the lines or functions that cost the \
         GPU's time, and -f folded writes all stacks for flame graphs.",
    )
    .front(Front::Midair),
    Opt::new(
        "stacks-budget",
        Category::Counters,
        Shape::Number { name: "PERCENT", min: 1, max: 100 },
        Sets::Words(&[STACKS_BUDGET], ""),
        "Limit native stacks to this share of a processor in each second (default no limit)",
    )
    .more(
        "When the threads of a process have walked for so long, the launches of the rest of the second have no native frames, or, \
         with --stacks both, the stack of an earlier launch at the same Python stack. The results say how many.",
    )
    .front(Front::Midair),
    Opt::new(
        "stacks-by",
        Category::Counters,
        Shape::OneOf(&["frame", "operator", "module", "kernel"]),
        Sets::Words(&[STACKS_BY], ""),
        "Show stacks by these parts of the code (default frame: all of them)",
    )
    .more(
        "operator leaves out the frames of dispatchers and runtimes around PyTorch's operators; module has only the paths of PyTorch's \
         modules, as GPT.layers.3.attn; kernel has no frames. html starts with this choice, folded, speedscope and pprof have \
         nothing else; all other formats have all frames.",
    )
    .front(Front::Midair),
    Opt::new(
        "cuda-hw-trace",
        Attach,
        Shape::Boolean,
        Sets::Switch(CUDA_HW_TRACE),
        "Time kernels of a CUDA process by GPU hardware, if the process has no CUDA context yet",
    )
    .more(
        "On Blackwell and later, with CUPTI 12.8 or later, this is more exact and makes launches cheaper. CUPTI can enable it \
         only before the process has a CUDA context, and can never disable it, so it stays on after detach. If it cannot be \
         enabled, kernels are timed as usual, and a note says why.",
    ),
    Opt::new(
        "attach-sync-output",
        Attach,
        Shape::Boolean,
        Sets::Either("ROCPROF_ATTACH_OUTPUT_GENERATION_SYNC"),
        "Write the results before returning",
    )
    .more("Accepted for compatibility; no effect: results are always complete when the command returns.")
    .front(Front::Rocprofv3),
];
