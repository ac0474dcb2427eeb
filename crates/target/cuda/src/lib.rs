//! A session in a CUDA process: CUPTI is found, switched on, drained, and taken out again, all of
//! it on the worker thread.
//!
//! Only seven functions of this crate run on other threads: the two by which CUPTI requests and
//! returns buffers ([`pool`]), its clock, the one that makes another profiler wait until this
//! session has ended ([`watch`]), the one that holds the ends of threads ([`thread_ends`]), the one that
//! keeps the driver out of CUPTI ([`callbacks`]), and the one that takes stacks ([`launches`]).

mod bursts;
pub mod callbacks;
pub mod clock;
pub mod cupti;
pub mod drain;
pub mod exit;
pub mod hardware;
pub mod kernels;
pub mod launches;
pub mod markers;
pub mod nvtx;
pub mod pool;
pub mod selection;
pub mod session;
pub mod sink;
pub mod thread_ends;
pub mod watch;
pub mod work;
