//! A session in a CUDA process: CUPTI is found, switched on, drained and taken out again, all of it on our own thread.
//!
//! Of this code only four functions run on other threads: those by which CUPTI asks for buffers and gives them back ([`pool`]), its
//! clock, and the one that lets another profiler wait until we are gone ([`watch`]).

pub mod choice;
pub mod clock;
pub mod cupti;
pub mod drain;
pub mod kernels;
pub mod leave;
pub mod markers;
pub mod nvtx;
pub mod others;
pub mod pool;
pub mod session;
pub mod sink;
pub mod watch;
pub mod work;
