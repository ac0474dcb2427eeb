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
        "Trace the threads of compute units",
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
        "Where the decoder library is",
    )
    .later(),
    number(
        "att-target-cu",
        &["ROCPROF_ATT_PARAM_TARGET_CU"],
        "Compute unit to trace",
    ),
    number(
        "att-simd-select",
        &["ROCPROF_ATT_PARAM_SIMD_SELECT"],
        "SIMD units to trace, as a mask",
    ),
    number(
        "att-consecutive-kernels",
        &["ROCPROF_ATT_CONSECUTIVE_KERNELS"],
        "How many kernels to trace in one go",
    ),
    number(
        "att-buffer-size",
        &["ROCPROF_ATT_PARAM_BUFFER_SIZE"],
        "Size of the trace buffer in bytes",
    ),
    Opt::new(
        "att-resource-mode",
        ThreadTrace,
        Shape::OneOf(&["default", "hsa", "code-object"]),
        Sets::Words(&["ROCPROF_ATT_PARAM_RESOURCE_MODE"], ""),
        "Where the trace's resources come from",
    )
    .later(),
    number(
        "att-shader-engine-mask",
        &["ROCPROF_ATT_PARAM_SHADER_ENGINE_MASK"],
        "Shader engines to trace, as a mask",
    ),
    Opt::new(
        "att-gpu-index",
        ThreadTrace,
        Shape::Text("LIST"),
        Sets::Words(&["ROCPROF_ATT_PARAM_GPU_INDEX"], ""),
        "Devices to trace",
    )
    .later(),
    Opt::new(
        "att-perfcounters",
        ThreadTrace,
        Shape::Text("LIST"),
        Sets::Words(&["ROCPROF_ATT_PARAM_PERFCOUNTERS"], ""),
        "Counters to put into the trace",
    )
    .later(),
    number(
        "att-perfcounter-ctrl",
        &["ROCPROF_ATT_PARAM_PERFCOUNTER_CTRL"],
        "How often those counters are read",
    ),
    switch(
        "att-perfcounter-target-only",
        "ROCPROF_ATT_PARAM_PERFCOUNTER_TARGET_ONLY",
        "Read them on the traced unit only",
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
        "Put a fixed set of activity counters into the trace",
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
