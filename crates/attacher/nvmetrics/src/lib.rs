//! Counters of whole NVIDIA GPUs over time: CUPTI's PM sampling, from a process of its own.
//!
//! CUPTI samples a GPU while other processes work on it, and needs nothing of theirs. It is loaded
//! into a helper, so that a crash or a hang there ends the helper only (CUDA-030).
//!
//! * [`sets`]: what is sampled, by midair's names, and by which of CUPTI's metrics.
//! * [`Sampler`] starts the helper, tries one CUPTI after another, and gives its [`Event`]s.
//! * [`Series`] sums samples up.
//! * [`sampling`] is the helper's side.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod access;
mod find;
mod helper;
pub mod sampling;
mod series;
pub mod sets;
pub mod wire;

pub use access::{Access, access, is_divided, other_profiler, too_old};
pub use find::candidates;
pub use helper::{Error, Request, Sampler, failure};
pub use series::{Line, Series};
pub use wire::{Event, Metric, Samples};

/// The helper's file, next to the default tool.
pub const HELPER: &str = "midair-nvmetrics";
/// Samples a second, at least.
pub const SLOWEST: u32 = 1_000;
/// Samples a second, at most.
pub const FASTEST: u32 = 20_000;
/// Samples a second where the user says nothing.
pub const RATE: u32 = 5_000;
