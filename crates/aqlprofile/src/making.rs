//! AMD's packet library in the calling process, and templates of what it makes: what the helper
//! process does. No other process has it (AMD-101, AMD-131).

mod arena;
mod library;
mod make;

pub use library::Library;
pub use make::template;
