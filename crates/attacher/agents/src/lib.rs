//! The machine's CPUs and GPUs ("agents"), read from the KFD driver's topology files.
//!
//! Entry points: [`Sources::of_root`] names the files as a process sees them,
//! [`Sources::read_through`] turns them into [`Agent`]s, and [`visibility::apply`] adds what the
//! process's environment hides.
//!
//! Only files are read: no ioctl, no libdrm and no runtime is used. So this works for any process
//! whose root can be read, and on a machine without a GPU. Where AMD asks libdrm, we read what
//! libdrm itself reads, or derive the same number. The comments at those places say so
//! ([`product`]).
//!
//! The fields and their order match `rocprofiler_agent_v0_t` (source:
//! api/rocprofiler_sdk.json).
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod agent;
mod cpuinfo;
mod node;
mod processors;
pub mod product;
mod topology;
pub mod visibility;

pub use agent::{Agent, AgentType, Cache, Dim3, IoLink, MemBank, Visibility};
pub use cpuinfo::Cpu;
pub use topology::{Error, Files, HANDLE_BASE, OwnFiles, Sources};
