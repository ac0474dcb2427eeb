//! A modelled GPU for AMD's real ROCr runtime, and a log of every packet that it consumed.
//!
//! ROCr 7.2 loads the library named by `HSA_MODEL_LIB` in place of a device, and passes it each
//! queue that the runtime creates. This model then does what the front end of a GPU does: it takes
//! packets from the rings, waits for dependencies, copies bytes, lets time pass for kernels (they
//! compute nothing) and completes signals.
//!
//! * [`engine`] knows packets and queues and no C: it works over the [`Machine`] trait, so that
//!   tests can give it rings of their own.
//! * [`plugin`] is the C interface: the function table that ROCr asks for, the aperture, one thread
//!   per queue.
//! * [`Device`] is the same model for runtimes of our own.
//! * [`pmu`]: hardware counters, by rules that are stated there.
//! * [`sampling`]: samples of program counters, by a rule that is stated there.
//! * [`log`] is the format of the log and its reader. **The log is the ground truth of the
//!   project's tests**: the consumer of the packets writes it, in the order of consumption, with one
//!   `write` per record before the packet's completion can be seen. So neither a killed process nor
//!   a midair defect in the profiler changes it.
//!
//! Settings come from the environment, see [`settings::Settings`].

pub mod engine;
pub mod log;
pub mod machine;
pub mod plugin;
pub mod pmu;
pub mod sampling;
pub mod settings;

pub use machine::Machine;
pub use plugin::{Device, QUEUES_PER_NODE, Served};
