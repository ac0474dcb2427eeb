//! Interception, queues and records inside a target; the tool-facing API.

pub mod clock;
pub mod probe;
pub mod tables;
pub mod threads;
pub mod wrappers;
