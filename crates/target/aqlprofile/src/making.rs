//! Loads AMD's packet library into the calling process and makes templates with it. Only the helper
//! process does this; no other process loads the library (AMD-101, AMD-131).

mod arena;
mod library;
mod make;
mod spots;
mod trace;

pub use library::Library;
pub use make::template;
pub use trace::{AGENT, is_traced, trace};
