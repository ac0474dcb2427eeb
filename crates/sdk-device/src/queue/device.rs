//! Counters of the whole device, over time: read at an interval, around nothing.
//!
//! A queue of ours ([`own`]) carries the commands: they start a group of counters once, read it at an
//! interval, and stop it ([`counter`]). The worker thread makes the queue when a session is set up
//! and destroys it at its end, by the runtime's own functions, so that no hook sees it. Several
//! groups take turns ([`sampler`]); or a tool says when ([`served`]).
//!
//! Nothing is put around dispatches, and nothing waits. But counters of shader engines count kernels
//! of those queues only that are switched on for it, so each queue of the application gets one packet
//! that does this, and one at the end that undoes it ([`switch`]).
//!
//! Decisions: AMD-140, AMD-141 (`docs/deviations/amd.md`).

pub mod counter;
pub mod own;
pub mod sampler;
pub mod served;
mod switch;
