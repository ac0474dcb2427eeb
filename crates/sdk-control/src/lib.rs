//! A session's life in a target.
//!
//! [`worker`] is what the worker thread does for an attacher, [`local`] the same without one; both run a
//! [`collect`]ion, which brings hooks ([`install`], [`tables`]), queues and spool into line with
//! what the contexts of `midair-sdk-api` want. The C functions that begin and end sessions are in
//! [`capi`].
//!
//! The library is never unloaded, and after a detach nothing of it runs.

pub mod capi;
pub mod collect;
mod collection;
mod counting;
mod forked;
pub mod gate;
pub mod hooks;
pub mod install;
pub mod kfd;
pub mod lent;
pub mod local;
mod runtimes;
mod signals;
mod state;
pub mod tables;
pub mod worker;
