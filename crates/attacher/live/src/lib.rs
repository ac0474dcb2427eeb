//! What a running session does now.
//!
//! A [`Model`] is fed with the records of one process while they are collected. It keeps bounded
//! windows of them: when each device was busy and why it was not, kernels and calls by recent time,
//! copies, and the dispatch at the head of each queue. A [`Snapshot`] is a copy of the model's
//! contents at one moment, with names. Views show snapshots and do not know records. [`Watched`] is
//! where sessions put their models and views find them.
//!
//! Nothing here grows with the time or with the number of records. Every table has a limit, and
//! whatever exceeds it is summed up under one name.
#![forbid(unsafe_code)]

mod class;
mod code;
mod delays;
mod fast;
mod gauge;
mod histogram;
mod json;
mod lane;
mod model;
mod ran;
mod recent;
mod snapshot;
mod sums;
mod totals;
mod trigger;
mod watched;
mod wishes;

pub use code::Line;
pub use delays::{Delays, SCHEMA as DELAY_SCHEMA};
pub use gauge::Counter;
pub use histogram::{Histogram, WIDTH as HISTOGRAM_WIDTH};
pub use json::SCHEMA;
pub use model::{Flight, Model, Pulse};
pub use snapshot::{
    Call, Copies, Device, Head, Idle, Kernel, Queue, Snapshot, kernel_label, stragglers,
};
pub use totals::{STATES, Totals};
pub use trigger::{FORMS, Happened, Trigger};
pub use watched::{Process, Watched};
pub use wishes::{Answer, Cut};
