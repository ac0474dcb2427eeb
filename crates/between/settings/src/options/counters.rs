//! Hardware counters, counter streams and samples.

use super::{Category::Counters, Front, Opt, Sets, Shape};
use crate::counters::{DEVICE_COUNTERS, DEVICE_INTERVAL, EXCLUSIVE};
use crate::settings::{GPU_METRICS, GPU_METRICS_DEVICE, GPU_METRICS_RATE, LIVE_COUNTERS};
use midair_domain::kind;

const INTERVAL: Shape = Shape::Number {
    name: "N",
    min: 1,
    max: u64::MAX,
};

pub(super) const OPTIONS: &[Opt] = &[
    Opt::new(
        "pmc",
        Counters,
        Shape::Groups("COUNTER"),
        Sets::CounterGroups,
        "Count these per kernel",
    )
    .of(kind::COUNTER_COLLECTION)
    .more(
        "In a process that is attached to, kernels are sampled: some of them have counters around them, and none waits for another; \
         given several times, it makes groups that take turns. A program that is started has all its kernels counted, one at a time, and runs \
         once for each group. NAME:device=1 counts on one GPU only.",
    ),
    Opt::new(
        "pmc-device",
        Counters,
        Shape::Groups("COUNTER"),
        Sets::Groups(DEVICE_COUNTERS),
        "Count these on the whole GPU, over time",
    )
    .more(
        "They are read at an interval, whoever uses the GPU; nothing is put around kernels. Given several times, it makes groups that \
         take turns. Not together with --pmc.",
    ),
    Opt::new(
        "pmc-device-interval",
        Counters,
        Shape::Number {
            name: "MS",
            min: 1,
            max: 3_600_000,
        },
        Sets::Words(&[DEVICE_INTERVAL], ""),
        "Read counters of the whole GPU this often, in ms (default 10)",
    ),
    Opt::new(
        "gpu-metrics",
        Counters,
        Shape::Text("LIST"),
        Sets::Words(&[GPU_METRICS], ""),
        "Sample the whole NVIDIA GPU meanwhile: default, or sets and metrics, with commas between",
    )
    .more(
        "Whoever uses the GPU is counted. CUPTI does it in a helper of midair's; nothing of it is in the process. Each kernel gets the mean of \
         the samples that lie within it. midair metrics --list names sets and metrics.",
    )
    .front(Front::Midair),
    Opt::new(
        "gpu-metrics-rate",
        Counters,
        Shape::Number {
            name: "HZ",
            min: 1_000,
            max: 20_000,
        },
        Sets::Words(&[GPU_METRICS_RATE], ""),
        "Samples of the whole GPU a second (default 5000)",
    )
    .front(Front::Midair),
    Opt::new(
        "gpu-metrics-device",
        Counters,
        Shape::Number {
            name: "N",
            min: 0,
            max: 1023,
        },
        Sets::Words(&[GPU_METRICS_DEVICE], ""),
        "Which GPU is sampled, as nvidia-smi counts them (default 0)",
    )
    .front(Front::Midair),
    Opt::new(
        "exclusive",
        Counters,
        Shape::Boolean,
        Sets::Switch(EXCLUSIVE),
        "Open a window of --pmc only where nothing else runs on the GPU",
    )
    .more(
        "Launches on other queues of the process then wait for the window, at most 200 us each; a launch waits as long for what runs \
         already, and goes on without a window where that does not end.",
    ),
    Opt::new(
        "max-overhead",
        Counters,
        Shape::Number {
            name: "PERCENT",
            min: 1,
            max: 100,
        },
        Sets::Words(&["MIDAIR_MAX_OVERHEAD"], ""),
        "How much recording, or with --pmc counting, may cost, in percent (default 2 with --pmc)",
    )
    .more(
        "Without counters, in percent of the application's speed: what is recorded is recorded in bursts, at random moments, as long as their cost leaves room for, which is measured (in a CUDA process it is taken to be the most that \
         was ever measured, and bursts are seconds apart); calls, totals and shares of kernels are then estimated, with intervals. For processes that are attached to. Without the option, and \
         with 100, all is recorded. With --pmc: what a window of counters costs the GPU is measured, and there are so many as this leaves \
         room for. With 100 each launch gets one, as far as windows are ready.",
    ),
    Opt::new(
        "pmc-graph-kernels",
        Counters,
        Shape::Boolean,
        Sets::Switch("MIDAIR_PMC_GRAPH_KERNELS"),
        "Count the kernels of HIP graphs one by one",
    )
    .more(
        "HIP launches them several at once, and otherwise they are counted together. With this the GPU waits until such a launch is \
         complete, at most 50 ms, and then runs its kernels one after another.",
    ),
    Opt::new(
        "live-counters",
        Counters,
        Shape::Text("DIR"),
        Sets::Words(&[LIVE_COUNTERS], ""),
        "Write what was counted so far to DIR while attached",
    )
    .more(
        "DIR/PID.csv is replaced about every half second, less often the longer that takes: a line for each dispatch with values, and one for \
         all others of the same kernel, grid and workgroup. Which windows were shared with other work is known for good at the end.",
    ),
    Opt::new(
        "extra-counters",
        Counters,
        Shape::Text("FILE"),
        Sets::Words(&["ROCPROF_EXTRA_COUNTERS_CONTENTS"], ""),
        "File with definitions of further counters",
    )
    .short('E')
    .more(
        "YAML in AMD's form: rocprofiler-sdk: counters: a list of name, description and definitions, each with architectures and either an \
         expression or block and event. A counter of that name that is there is replaced.",
    ),
    Opt::new(
        "replay-mode",
        Counters,
        Shape::OneOf(&["kernel", "application"]),
        Sets::Nothing,
        "What is run again when the counters do not fit one pass",
    )
    .later(),
    Opt::new(
        "kernel-replay-beta-enabled",
        Counters,
        Shape::Boolean,
        Sets::Switch("ROCPROF_KERNEL_REPLAY"),
        "Allow replay of kernels",
    )
    .later(),
    Opt::new(
        "spm",
        Counters,
        Shape::Texts("COUNTER"),
        Sets::Prefixed("ROCPROF_SPM_COUNTERS", "spm: "),
        "Stream these counters",
    )
    .of(kind::SPM_COUNTER_COLLECTION),
    Opt::new(
        "spm-beta-enabled",
        Counters,
        Shape::Boolean,
        Sets::Switch("ROCPROFILER_SPM_BETA_ENABLED"),
        "Allow streaming of counters",
    )
    .later(),
    Opt::new(
        "spm-sample-interval",
        Counters,
        INTERVAL,
        Sets::Words(&["ROCPROF_SPM_SAMPLE_INTERVAL"], ""),
        "Interval of streamed counters",
    )
    .later(),
    Opt::new(
        "spm-sample-interval-unit",
        Counters,
        Shape::OneOf(&["sclk_cycles"]),
        Sets::Words(&["ROCPROF_SPM_SAMPLE_INTERVAL_UNIT"], ""),
        "Unit of that interval",
    )
    .later(),
    Opt::new(
        "pc-sampling-beta-enabled",
        Counters,
        Shape::Boolean,
        Sets::Switch("ROCPROFILER_PC_SAMPLING_BETA_ENABLED"),
        "Allow sampling of program counters",
    )
    .of(kind::PC_SAMPLING_HOST_TRAP),
    Opt::new(
        "pc-sampling-unit",
        Counters,
        Shape::OneOf(&["instructions", "cycles", "time"]),
        Sets::Words(&["ROCPROF_PC_SAMPLING_UNIT"], ""),
        "Unit of the sampling interval",
    )
    .later(),
    Opt::new(
        "pc-sampling-method",
        Counters,
        Shape::OneOf(&["stochastic", "host_trap"]),
        Sets::Words(&["ROCPROF_PC_SAMPLING_METHOD"], ""),
        "How program counters are sampled",
    )
    .later(),
    Opt::new(
        "pc-sampling-interval",
        Counters,
        INTERVAL,
        Sets::Words(&["ROCPROF_PC_SAMPLING_INTERVAL"], ""),
        "Interval between samples",
    )
    .later(),
];
