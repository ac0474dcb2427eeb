//! Thread traces.

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
        "Trace the waves of chosen kernels, instruction by instruction",
    )
    .aliases(&["advanced-thread-trace"]),
    switch(
        "att-no-intercept",
        "ROCPROF_ATT_NO_INTERCEPT",
        "Trace threads without intercepting queues",
    )
    .later(),
    Opt::new(
        "att-library-path",
        ThreadTrace,
        Shape::Texts("DIR"),
        Sets::Words(&["ROCPROF_ATT_LIBRARY_PATH"], ":"),
        "Search these directories for AMD's decoder library",
    ),
    number(
        "att-target-cu",
        &["ROCPROF_ATT_PARAM_TARGET_CU"],
        "Trace this compute unit instruction by instruction, 0-15 (default 1)",
    ),
    number(
        "att-simd-select",
        &["ROCPROF_ATT_PARAM_SIMD_SELECT"],
        "Trace these SIMD units, as a mask (default 0xf)",
    ),
    number(
        "att-consecutive-kernels",
        &["ROCPROF_ATT_CONSECUTIVE_KERNELS"],
        "Trace this many consecutive kernels",
    )
    .later(),
    number(
        "att-buffer-size",
        &["ROCPROF_ATT_PARAM_BUFFER_SIZE"],
        "Set the size of all trace buffers, in bytes (default 0x6000000)",
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
        "Trace these shader engines, as a mask (default 0x1)",
    ),
    Opt::new(
        "att-gpu-index",
        ThreadTrace,
        Shape::Text("LIST"),
        Sets::Words(&["ROCPROF_ATT_PARAM_GPU_INDEX"], ""),
        "Trace these GPUs, by number from 0 (default: all)",
    ),
    Opt::new(
        "att-perfcounters",
        ThreadTrace,
        Shape::Text("LIST"),
        Sets::Words(&["ROCPROF_ATT_PARAM_PERFCOUNTERS"], ""),
        "Add these counters of SQ to the trace, as NAME or NAME:SIMD_MASK",
    ),
    number(
        "att-perfcounter-ctrl",
        &["ROCPROF_ATT_PARAM_PERFCOUNTER_CTRL"],
        "Read --att-perfcounters at this interval, 1-32",
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
        "Add AMD's eight activity counters to the trace, at this interval",
    ),
    switch(
        "att-serialize-all",
        "ROCPROF_ATT_PARAM_SERIALIZE_ALL",
        "Run kernels one after another while tracing",
    )
    .later(),
    switch(
        "att-no-detail",
        "ROCPROF_ATT_PARAM_NO_DETAIL",
        "Trace waves without their instructions",
    ),
];
