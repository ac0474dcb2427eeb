//! The device's side of a target: [`queue`]s and the dispatches on them, [`copies`],
//! [`allocations`], [`scratch`] memory, [`sampling`], and the [`symbols`] of kernels. The application's threads
//! enter through [`mod@hooks`]; the worker thread does the rest.

#![deny(clippy::disallowed_methods)]

pub mod allocations;
pub mod copies;
pub mod domain;
pub mod domains;
pub mod hook;
pub mod hooks;
mod host_functions;
pub mod layout;
pub mod packet;
mod queries;
pub mod queue;
pub mod sampling;
pub mod scratch;
pub mod sink;
mod state;
pub mod symbols;

pub use state::reset_after_fork;
