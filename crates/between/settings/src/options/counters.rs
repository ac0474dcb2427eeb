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
        "Count these hardware counters per kernel",
    )
    .of(kind::COUNTER_COLLECTION)
    .more(
        "In an attached process, midair samples kernels and never serializes them; repeat the option to multiplex groups of \
         counters. In a started program, every kernel is counted and kernels are serialized; the program runs once per group. \
         NAME:device=1 counts on one GPU only.",
    ),
    Opt::new(
        "pmc-device",
        Counters,
        Shape::Groups("COUNTER"),
        Sets::Groups(DEVICE_COUNTERS),
        "Count these hardware counters on the whole GPU, over time",
    )
    .more(
        "midair reads them at an interval, for all processes that use the GPU, and does not touch kernels. Repeat the option to \
         multiplex groups of counters. Cannot be combined with --pmc.",
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
        "Read --pmc-device counters at this interval, in ms (default 10)",
    ),
    Opt::new(
        "gpu-metrics",
        Counters,
        Shape::Text("LIST"),
        Sets::Words(&[GPU_METRICS], ""),
        "Also sample the whole NVIDIA GPU: 'default', or a comma-separated list of sets and metrics",
    )
    .more(
        "The samples cover all processes that use the GPU. CUPTI runs in a helper process of midair, not in the attached \
         process. Each kernel gets the mean of the samples within it. midair metrics --list names sets and metrics.",
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
        "Sample the whole GPU at this rate, in Hz (default 5000)",
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
        "Sample this GPU, by its nvidia-smi index (default 0)",
    )
    .front(Front::Midair),
    Opt::new(
        "exclusive",
        Counters,
        Shape::Boolean,
        Sets::Switch(EXCLUSIVE),
        "With --pmc: count a kernel only while nothing else runs on the GPU",
    )
    .more(
        "While a kernel is counted, launches on other queues of the process wait, at most 200 us each. The counted kernel itself \
         waits up to 200 us for running work; if that work does not end, it runs uncounted.",
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
        "Limit the overhead in percent (default 2 with --pmc, else no limit)",
    )
    .more(
        "Without --pmc, in an attached process: midair records in bursts at random times, as many as their measured cost allows, \
         in percent of the application's speed; counts, totals and shares are then estimates with confidence intervals. In a \
         CUDA process midair assumes the highest cost ever measured, and bursts are seconds apart. 100 records everything. With \
         --pmc: midair measures the GPU time that counting a kernel costs, and counts as many kernels as the limit allows. 100 \
         counts every launch that it can.",
    ),
    Opt::new(
        "pmc-graph-kernels",
        Counters,
        Shape::Boolean,
        Sets::Switch("MIDAIR_PMC_GRAPH_KERNELS"),
        "Count the kernels of HIP graphs one by one",
    )
    .more(
        "By default, the kernels that HIP launches together are counted together. With this option, the GPU waits until such a \
         launch is complete, at most 50 ms, and then runs its kernels one after another.",
    ),
    Opt::new(
        "live-counters",
        Counters,
        Shape::Text("DIR"),
        Sets::Words(&[LIVE_COUNTERS], ""),
        "Write the counter values so far to DIR while attached",
    )
    .more(
        "DIR/PID.csv is replaced about every half second, less often if writing takes long. It has a line per counted dispatch, \
         and one for all other dispatches of the same kernel, grid and workgroup. Only the final results show which values \
         include other work.",
    ),
    Opt::new(
        "extra-counters",
        Counters,
        Shape::Text("FILE"),
        Sets::Words(&["ROCPROF_EXTRA_COUNTERS_CONTENTS"], ""),
        "Add the counter definitions in this YAML file",
    )
    .short('E')
    .more(
        "The file has AMD's format: rocprofiler-sdk: counters: a list of name, description and definitions, each with \
         architectures and either an expression or block and event. A definition replaces an existing counter of the same name.",
    ),
    Opt::new(
        "replay-mode",
        Counters,
        Shape::OneOf(&["kernel", "application"]),
        Sets::Nothing,
        "Replay this when the counters do not fit in one pass",
    )
    .later_words(&["kernel"])
    .more(
        "application (the default): a started program runs once per group of counters. In an attached process the groups are \
         multiplexed, and nothing is replayed.",
    ),
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
        "Set the interval of streamed counters",
    )
    .later(),
    Opt::new(
        "spm-sample-interval-unit",
        Counters,
        Shape::OneOf(&["sclk_cycles"]),
        Sets::Words(&["ROCPROF_SPM_SAMPLE_INTERVAL_UNIT"], ""),
        "Set the unit of --spm-sample-interval",
    )
    .later(),
    Opt::new(
        "pc-sampling-beta-enabled",
        Counters,
        Shape::Boolean,
        Sets::Switch("ROCPROFILER_PC_SAMPLING_BETA_ENABLED"),
        "Sample program counters of kernels; needs method, unit and interval",
    )
    .of(kind::PC_SAMPLING_HOST_TRAP),
    Opt::new(
        "pc-sampling-unit",
        Counters,
        Shape::OneOf(&["instructions", "cycles", "time"]),
        Sets::Words(&["ROCPROF_PC_SAMPLING_UNIT"], ""),
        "Set the interval's unit: time (microseconds; host_trap) or cycles (stochastic)",
    ),
    Opt::new(
        "pc-sampling-method",
        Counters,
        Shape::OneOf(&["stochastic", "host_trap"]),
        Sets::Words(&["ROCPROF_PC_SAMPLING_METHOD"], ""),
        "Sample by the driver's traps of all waves (host_trap) or by the device (stochastic)",
    ),
    Opt::new(
        "pc-sampling-interval",
        Counters,
        INTERVAL,
        Sets::Words(&["ROCPROF_PC_SAMPLING_INTERVAL"], ""),
        "Sample once in this many units; for stochastic a power of two",
    ),
];
