//! Stacks at which the application launched work (`--stacks`).
//!
//! A stack is written once for each session, and so is each function on it. A launch then takes 16
//! bytes.

use super::Header;

/// The start of the note that no stacks are taken. The attacher repeats that note at its end.
pub const NO_STACKS: &str = "no stacks are taken (--stacks): ";

/// The most frames of a stack. Further ones, the outermost, are left out.
pub const MOST_FRAMES: usize = 128;
/// The most bytes of the name of a function or of a file.
pub const MOST_CODE_NAME: usize = 1024;

/// A function that was on a stack. Its file's name (`file_len` bytes) and its own (`name_len` bytes)
/// follow, both UTF-8.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Code {
    /// Common header; `operation` is our number of the function, from 1.
    pub header: Header,
    /// Bytes of the file's name.
    pub file_len: u32,
    /// Bytes of the function's name.
    pub name_len: u32,
}

/// A stack. Its frames follow, the innermost first, each with the number of its function
/// ([`Code`]) and its line (0: not known), 32 bits each.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stack {
    /// Common header; `operation` is our number of the stack, from 1.
    pub header: Header,
    /// The number of frames that follow.
    pub frames: u32,
    /// 1 if the stack has further frames, which were left out.
    pub is_cut: u32,
}

/// A call that launched work, and the stack at which it was made.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LaunchStack {
    /// Common header; `operation` is the number of the stack, or 0 where there was no room for
    /// another one.
    pub header: Header,
    /// Correlation id of the call.
    pub correlation: u64,
}

/// Returns the frames of a stack from the bytes that follow it: function and line.
pub fn frames(bytes: &[u8]) -> impl Iterator<Item = (u32, u32)> + '_ {
    let word = |bytes: &[u8]| {
        let word = bytes.first_chunk().copied();
        word.map_or(0, u32::from_ne_bytes)
    };
    bytes
        .chunks_exact(8)
        .map(move |frame| (word(frame), word(frame.get(4..).unwrap_or_default())))
}
