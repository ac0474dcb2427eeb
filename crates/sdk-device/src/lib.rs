//! The device's side of a target: [`queue`]s and the dispatches on them, [`copies`], [`allocations`], [`scratch`] memory, and
//! the [`symbols`] of kernels. Application threads come in through [`mod@hooks`]; the worker thread does the rest.

pub mod allocations;
pub mod copies;
pub mod hooks;
pub mod layout;
pub mod queue;
pub mod scratch;
pub mod sink;
pub mod symbols;

/// In a forked child before its first session.
pub fn begin_anew() {
    symbols::begin_anew();
    copies::begin_anew();
    queue::state::begin_anew();
    queue::pool::POOL.begin_anew();
}
