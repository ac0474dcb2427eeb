//! rocpd databases of midair and of AMD's tool: converted, queried, summed up and merged.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, too, stop at the first surprise"
)]

mod common;
mod convert;
mod cuda;
mod hip;
mod hostile;
mod merge;
mod modern;
mod newest;
mod packages;
mod queries;
