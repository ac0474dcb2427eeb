//! How CPython lays out its threads, frames and code objects.
//!
//! Two readers share this: `midair why` reads a process from outside, and a session with `--stacks`
//! reads the stack of the thread that launches work, from within.

mod lines;
mod offsets;

pub use offsets::{Form, Known, OWNED_BY_INTERPRETER, Offsets, Refused};
