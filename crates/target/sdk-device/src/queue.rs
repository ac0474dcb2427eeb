//! Kernel times of queues that existed before we came, and of those made since
//! (`docs/sources.md#hsa`).
//!
//! The application's threads call [`mod@crate::hooks`]: a write-index call tells which queue is
//! used and which thread reserves packets, and a doorbell tells that packets are ready. Then, under
//! the queue's spin word, [`scan`] inspects the packets since the last time and tells the
//! subscribers of the queue [`service`] of each dispatch. [`timing`] is the first of them: it gives
//! a dispatch without a completion signal one from our [`pool`], puts the signal of any other
//! dispatch under [`watch`], and enters each dispatch into the queue's [`flight`] ring. The worker
//! thread follows the flights ([`harvest`]) and tells the subscribers when a dispatch has ended.
//! The application's threads never wait for the device and do not allocate. They call the runtime
//! for a queue's indices, and once per queue to switch its times on.

mod bus;
pub mod callbacks;
mod choosing;
mod counters;
pub mod device;
mod direct;
pub mod flight;
pub mod harvest;
mod heads;
mod kernel_lists;
mod kernels;
#[cfg(test)]
pub(crate) mod model;
mod points;
pub mod pool;
pub mod queue_state;
pub mod remap;
pub mod scan;
pub mod serialized;
pub mod service;
pub mod settle;
pub mod state;
pub mod subscriber;
#[cfg(test)]
mod tests;
pub mod timing;
pub mod traces;
pub mod watch;
pub(crate) mod window;
mod window_records;
pub mod windows;

pub use counters::Counters;
pub use kernels::Kernels;
