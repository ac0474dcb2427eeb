//! Interception, queues and records inside a target; the tool-facing API.
//!
//! What runs on whose thread:
//! * the **application's** threads run [`wrappers`] and [`hooks`], which go through [`probe`]: no lock that another thread may
//!   hold for long, no allocation, no system call;
//! * **our own** thread runs [`agent`]: set-up, the device's side ([`queue`], [`copies`], [`symbols`]), tear-down, and the
//!   functions of tools ([`registration`], [`context`], [`buffer`]).
//!
//! The library is never unloaded, and after a detach nothing of it runs.

pub mod agent;
mod agents;
pub mod allocations;
pub mod arguments;
pub mod buffer;
pub mod callback_thread;
pub mod callbacks;
pub mod capi;
pub use midair_guest::clock;
mod code_object;
pub mod collect;
pub mod collector;
pub mod context;
mod convert;
pub mod copies;
mod current;
mod external;
mod forked;
pub mod hooks;
pub mod install;
pub mod layout;
pub mod local;
pub mod markers;
use midair_guest::only;
pub mod probe;
pub mod queue;
pub mod registration;
pub mod runtimes;
pub mod scratch;
pub mod setting;
mod signals;
mod state;
pub mod status;
pub mod symbols;
pub mod tables;
pub mod threads;
pub mod wrappers;
