//! Counters of the whole device over time. They are read at an interval, and not around dispatches.
//!
//! The commands go to the device through a queue of our own ([`own`]). They start a group of
//! counters once, read it at an interval, and stop it ([`counter`]). The worker thread makes the
//! queue when a session is set up and destroys it at the session's end. It calls the runtime's own
//! functions for that, so that no hook sees the queue. Several groups are multiplexed ([`sampler`]), or
//! a tool says when to read ([`served`]).
//!
//! No packets are put around dispatches, and nothing waits. But counters of shader engines only
//! count kernels of queues for which that is switched on. So each queue of the application gets one
//! packet that switches it on, and one at the end that switches it off ([`switch`]).
//!
//! Decisions: AMD-140, AMD-141 (`docs/deviations/amd.md`).

pub mod counter;
pub mod own;
pub mod sampler;
pub mod served;
mod switch;
