//! A session in a CUDA process: CUPTI is found, switched on, drained and taken out again, all of it on our own thread.
//!
//! Of this code only three functions run on other threads: the two by which CUPTI asks for buffers and gives them back ([`pool`]), and
//! the one that lets another profiler wait until we are gone ([`watch`]).

pub mod choice;
pub mod clock;
pub mod cupti;
pub mod leave;
pub mod pool;
pub mod watch;
