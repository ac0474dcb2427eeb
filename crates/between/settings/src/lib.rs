//! What the user asked for: options of the command lines, `ROCPROF_*` settings, and the buffer that carries
//! settings into a target.
//!
//! * [`mod@options`] is the one table of options. The command line, its help, man pages, completions and the
//!   reference page are all derived from it; nothing else in the workspace lists options.
//! * [`commands`] is the one table of commands: what each reads, writes and runs, with whose rights.
//! * [`mod@resolve`] turns the options given, and the settings inherited from the environment, into one
//!   [`Settings`].
//! * [`Settings`] is an ordered map of names to values with typed getters, under the names of AMD's tool and
//!   the older names that its documents used.
//! * [`buffer`] is the encoding of settings that `rocprofiler_register_attach` takes.
//!
//! This crate does no I/O and has no unsafe code: everything is passed in and returned, so the same code runs
//! in the attacher, in the target, and in tests.
#![forbid(unsafe_code)]

mod benchmark;
pub mod buffer;
pub mod commands;
mod counters;
pub mod literal;
pub mod options;
mod periods;
mod ranks;
pub mod reference;
mod resolve;
pub mod sampling;
mod serve;
mod settings;
mod traces;
mod words;

pub use benchmark::{BENCHMARK_MODE, Benchmark};
pub use counters::{
    COUNTER_GROUPS, COUNTERS, CounterGroups, CounterRequest, DEVICE_INTERVAL, EXCLUSIVE,
    EXTRA_COUNTERS, KernelChoice,
};
pub use options::{Category, Front, Opt, Sets, Shape, State, options};
pub use periods::{COLLECTION_PERIOD, Period};
pub use ranks::{Choice, RANK_VARIABLE, RANKS, Rank, SIZE_VARIABLE};
pub use resolve::{Given, Refusal, Resolved, Value, resolve};
pub use sampling::{PC_SAMPLING, PC_SAMPLING_INTERVAL, PC_SAMPLING_METHOD, PC_SAMPLING_UNIT};
pub use serve::{SERVE, ServeOption};
pub use settings::{
    ALIASES, ATTACH_ANNOUNCE, BadValue, CUDA_ALL_CALLS, CUDA_DRIVER_API_TRACE, CUDA_HW_TRACE,
    CUDA_RUNTIME_API_TRACE, CUPTI, DEFAULT_MAX_BYTES, GPU_METRICS, GPU_METRICS_DEVICE,
    GPU_METRICS_RATE, GRAPH_KERNELS, HIP_EVENT_TRACE, HIP_GRAPH_TRACE, KEEP_RESULTS, KOKKOS_TRACE,
    LIVE_COUNTERS, MAX_BYTES, MAX_OVERHEAD, OURS, OUTPUT_PATH, SCREEN, STACKS, STACKS_BUDGET,
    STACKS_BY, STRICT_REATTACH, Settings, TOOLS_BY_NAME, inheritable, names_a_file,
};
pub use traces::{THREAD_TRACE, TRACE_LIBRARY_PATH, ThreadTrace};
pub use words::{Verbosity, boolean_word, duration_word, tool_boolean};
