//! What hangs on the processor: the code that runs in the target, signal frames, system call numbers, register set-up.

mod x86_64;

pub(crate) use x86_64::*;
