//! A session's life in a target.
//!
//! [`worker`] is the worker thread's part of a session with an attacher, and [`local`] is the same
//! without one. Both run a [`collect`]ion, which keeps hooks ([`install`], [`tables`]), queues and
//! spool in line with what the contexts of `midair-sdk-api` want. The C functions that start and
//! end sessions are in [`capi`].
//!
//! The library is never unloaded, and after a detach none of its code runs.

#![deny(clippy::disallowed_methods)]

mod bursts;
pub mod capi;
pub mod collect;
mod collection;
mod counting;
mod forked;
pub mod hooks;
pub mod install;
pub mod kfd;
pub mod local;
pub mod openmp;
mod openmp_use;
pub mod rendezvous;
mod runtimes;
mod signals;
mod state;
pub mod tables;
pub mod tool_tables;
pub mod worker;
