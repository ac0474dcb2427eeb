//! Stacks at which the application launched work (`--stacks`).
//!
//! A stack is written once for each session, and so is each function on it. A launch then takes 16
//! bytes.

use super::{Header, with_tail};

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

/// A place in a program or a library that was on a stack. Like [`Code`] it is a function to which
/// stacks refer, and its number is from the same row. A [`Code`] with the same number names it.
///
/// With [`OF_OBJECT`] in its flags it says more about a function of Python's that has a [`Code`]: this
/// call of it is for the object at `address`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NativeCode {
    /// Common header; `operation` is our number of the function, from 1.
    pub header: Header,
    /// The number of the module ([`Module`]); 0 where the code is in none.
    pub module: u32,
    /// Padding, 0.
    pub reserved: u32,
    /// The address that the module is linked for, or that in memory where there is no module.
    pub address: u64,
}

/// A program or a library that the process has mapped. Its path follows, as the kernel prints it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Module {
    /// Common header; `operation` is our number of the module, from 1.
    pub header: Header,
    /// The first address of its first mapping.
    pub base: u64,
    /// Add it to a linked address to get the address in memory.
    pub bias: u64,
    /// The device of the file, the major number in the upper half.
    pub device: u64,
    /// The inode of the file.
    pub inode: u64,
    /// Bytes of the path.
    pub path_len: u32,
    /// Padding, 0.
    pub reserved: u32,
}

/// Returns which stacks a session takes, from the `flags` of a [`Stack`] without a number: Python's,
/// and native ones. Recordings without native stacks have no flags.
pub fn stacks_of(stack: &Stack) -> (bool, bool) {
    let flags = stack.header.flags;
    (flags & NO_PYTHON == 0, flags & NATIVE != 0)
}

/// A bit of the `flags` of a [`NativeCode`]: see there.
pub const OF_OBJECT: u8 = 1;
/// A bit of the `flags` of a [`Code`]: its name is a module's, as `GPT.layers.3.attn`, and not the
/// function's.
pub const IS_MODULE: u8 = 1;

/// Bits of the `flags` of a [`Stack`] without a number: native stacks are taken, and Python's are not.
pub const NATIVE: u8 = 1;
/// See [`NATIVE`].
pub const NO_PYTHON: u8 = 2;

/// A bit of the `flags` of a [`Stack`] without a number at the end of a session: words follow, which say
/// what the stacks have cost ([`StackCost`]).
pub const COST: u8 = 4;

/// What the stacks of a session have cost the threads that launch work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StackCost {
    /// How many walks were timed: one in 64.
    pub timed: u64,
    /// Nanoseconds of these.
    pub time: u64,
    /// Launches over the budget that have the stack of an earlier launch at the same Python stack.
    pub reused: u64,
    /// Launches over the budget without native frames.
    pub python_only: u64,
    /// Launches over the budget without a stack.
    pub without: u64,
}

impl StackCost {
    /// Returns the record, and what follows it.
    pub fn record(&self) -> (Stack, [u8; 40]) {
        let words = [
            self.timed,
            self.time,
            self.reused,
            self.python_only,
            self.without,
        ];
        let mut tail = [0; 40];
        for (place, word) in tail.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        let header = Header {
            size: (size_of::<Stack>() + tail.len()) as u16,
            kind: super::kind::STACK,
            flags: COST,
            operation: 0,
        };
        let stack = Stack {
            header,
            frames: words.len() as u32,
            is_cut: 0,
        };
        (stack, tail)
    }

    /// Reads it from a stack and what follows it. None where that is a stack.
    pub fn of(stack: &Stack, tail: &[u8]) -> Option<StackCost> {
        let is_cost = stack.header.operation == 0 && stack.header.flags & COST != 0;
        let mut words = tail.as_chunks::<8>().0.iter();
        let mut word = || words.next().map(|word| u64::from_ne_bytes(*word));
        let cost = StackCost {
            timed: word()?,
            time: word()?,
            reused: word()?,
            python_only: word()?,
            without: word()?,
        };
        is_cost.then_some(cost)
    }
}

/// Decodes a function, its file's name, and its own.
pub(super) fn code(body: &[u8]) -> Option<(Code, &[u8], &[u8])> {
    let len = |code: &Code| (code.file_len as usize).saturating_add(code.name_len as usize);
    let (code, names) = with_tail(body, len)?;
    let (file, name) = names.split_at_checked(code.file_len as usize)?;
    Some((code, file, name))
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
