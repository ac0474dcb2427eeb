//! Instructions of GPU code objects as text, and their lines in the sources.
//!
//! * [`Object`] reads a code object that a process has loaded: the bytes of an instruction, and its line.
//! * [`ask`] gives the instructions to the disassembler of ROCm or LLVM, in a process with limits. The
//!   disassembler sees the bytes of single instructions, and no file of the process.
//! * [`tools`] names the files that the disassembler may be.
//! * [`wire`] is what both sides write.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod helper;
mod lines;
mod object;
pub mod tools;
pub mod wire;

pub use helper::{Answer, Error, ask};
pub use object::{LONGEST, Object};

/// The helper's file, next to the default tool.
pub const HELPER: &str = "midair-disassemble";
