//! Thread trace. None is built yet.

use super::{Category::ThreadTrace, Opt, Sets, Shape};
use midair_domain::kind;

const fn number(long: &'static str, variable: &'static [&'static str], help: &'static str) -> Opt {
    Opt::new(
        long,
        ThreadTrace,
        Shape::Number {
            name: "N",
            min: 0,
            max: u64::MAX,
        },
        Sets::Words(variable, ""),
        help,
    )
    .later()
}

const fn switch(long: &'static str, variable: &'static str, help: &'static str) -> Opt {
    Opt::new(
        long,
        ThreadTrace,
        Shape::Boolean,
        Sets::Switch(variable),
        help,
    )
    .of(kind::THREAD_TRACE)
}

pub(super) const OPTIONS: &[Opt] = &[
    switch(
        "att",
        "ROCPROF_ADVANCED_THREAD_TRACE",
        "Trace the waves of compute units, instruction by instruction",
    )
    .aliases(&["advanced-thread-trace"]),
    switch(
        "att-no-intercept",
        "ROCPROF_ATT_NO_INTERCEPT",
        "Trace threads without intercepting queues",
    ),
    Opt::new(
        "att-library-path",
        ThreadTrace,
        Shape::Texts("DIR"),
        Sets::Words(&["ROCPROF_ATT_LIBRARY_PATH"], ":"),
        "Search these directories for the decoder library",
    )
    .later(),
    number(
        "att-target-cu",
        &["ROCPROF_ATT_PARAM_TARGET_CU"],
        "Trace this compute unit",
    ),
    number(
        "att-simd-select",
        &["ROCPROF_ATT_PARAM_SIMD_SELECT"],
        "Trace these SIMD units, as a mask",
    ),
    number(
        "att-consecutive-kernels",
        &["ROCPROF_ATT_CONSECUTIVE_KERNELS"],
        "Trace this many consecutive kernels",
    ),
    number(
        "att-buffer-size",
        &["ROCPROF_ATT_PARAM_BUFFER_SIZE"],
        "Set the size of the trace buffer, in bytes",
    ),
    Opt::new(
        "att-resource-mode",
        ThreadTrace,
        Shape::OneOf(&["default", "hsa", "code-object"]),
        Sets::Words(&["ROCPROF_ATT_PARAM_RESOURCE_MODE"], ""),
        "Select the source of the trace's resources",
    )
    .later(),
    number(
        "att-shader-engine-mask",
        &["ROCPROF_ATT_PARAM_SHADER_ENGINE_MASK"],
        "Trace these shader engines, as a mask",
    ),
    Opt::new(
        "att-gpu-index",
        ThreadTrace,
        Shape::Text("LIST"),
        Sets::Words(&["ROCPROF_ATT_PARAM_GPU_INDEX"], ""),
        "Trace these GPUs",
    )
    .later(),
    Opt::new(
        "att-perfcounters",
        ThreadTrace,
        Shape::Text("LIST"),
        Sets::Words(&["ROCPROF_ATT_PARAM_PERFCOUNTERS"], ""),
        "Add these counters to the trace",
    )
    .later(),
    number(
        "att-perfcounter-ctrl",
        &["ROCPROF_ATT_PARAM_PERFCOUNTER_CTRL"],
        "Set the sampling interval of --att-perfcounters",
    ),
    switch(
        "att-perfcounter-target-only",
        "ROCPROF_ATT_PARAM_PERFCOUNTER_TARGET_ONLY",
        "Read --att-perfcounters on the traced compute unit only",
    ),
    Opt::new(
        "att-activity",
        ThreadTrace,
        Shape::Number {
            name: "N",
            min: 1,
            max: 16,
        },
        Sets::Nothing,
        "Add a fixed set of activity counters to the trace",
    )
    .later(),
    switch(
        "att-serialize-all",
        "ROCPROF_ATT_PARAM_SERIALIZE_ALL",
        "Run kernels one after another while tracing",
    ),
    switch(
        "att-no-detail",
        "ROCPROF_ATT_PARAM_NO_DETAIL",
        "Trace waves without their instructions",
    ),
];
