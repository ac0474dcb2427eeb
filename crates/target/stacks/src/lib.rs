//! The stack of the thread that launches work (`--stacks`), taken in that thread.
//!
//! A stack is a list of Python frames: the function and the line of each. [`take`] walks the frames
//! of the calling thread, which cannot change meanwhile, since the thread is inside of them. Each
//! different stack is written once for each session, each function as well, and a launch then
//! refers to its stack by number.
//!
//! [`take`] allocates nothing, takes no lock and makes no system call. Its tables are mapped, with
//! their pages, when a session starts ([`begin`]).

mod known;
mod python;
mod text;

use known::{Found, Known};
use midair_record::event::{Code, Header, LaunchStack, MOST_FRAMES, Plain, Stack, kind};
use python::{Frame, Python};
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The most different stacks and functions of a session. Launches at further stacks have none.
const MOST_STACKS: usize = 1 << 16;
const MOST_FUNCTIONS: usize = 1 << 15;

/// What a session with stacks needs.
struct Session {
    python: Python,
    stacks: Known<MOST_STACKS>,
    functions: Known<MOST_FUNCTIONS>,
}

/// The mapping that holds the session's tables; it is never unmapped. Null before the first session
/// with stacks.
static MAPPED: AtomicPtr<Session> = AtomicPtr::new(std::ptr::null_mut());
/// The same while stacks are taken, otherwise null.
static ACTIVE: AtomicPtr<Session> = AtomicPtr::new(std::ptr::null_mut());

/// The record with which a session says that it takes stacks: one without a number.
pub const ON: Stack = Stack {
    header: header::<Stack>(kind::STACK, 0, 0),
    frames: 0,
    is_cut: 0,
};

/// Why no stacks are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unavailable {
    /// The process has no Python that exports its symbols.
    NoPython,
    /// Its Python is not one that can be read.
    Version,
    /// Its Python has no global lock, and its structures differ.
    FreeThreaded,
    /// The system gave no memory.
    Memory,
}

impl Unavailable {
    /// Returns the reason for the user.
    pub fn text(self) -> &'static str {
        match self {
            Unavailable::NoPython => {
                "no stacks are taken (--stacks): the process has no Python that exports its symbols"
            }
            Unavailable::Version => {
                "no stacks are taken (--stacks): only the stacks of Python 3.11 to 3.14 are read"
            }
            Unavailable::FreeThreaded => {
                "no stacks are taken (--stacks): the stacks of a Python without its global lock are not read"
            }
            Unavailable::Memory => "no stacks are taken (--stacks): no memory is left",
        }
    }
}

/// Starts to take stacks, with empty tables. Called on the worker thread while no thread can be in
/// [`take`].
///
/// # Errors
/// Why there are no stacks; then [`take`] does nothing.
pub fn begin() -> Result<(), Unavailable> {
    end();
    let python = Python::find()?;
    let mut at = MAPPED.load(Acquire);
    let is_new = at.is_null();
    if is_new {
        // SAFETY: this creates a fresh private mapping at an address that the kernel chooses. Its
        // pages are there from the start, so that no thread of the application waits for them.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<Session>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(Unavailable::Memory);
        }
        at = base.cast();
    }
    // SAFETY: the mapping has room for a session. Its first field is written before any other
    // thread knows the mapping, and never again: a process has one such Python. The tables are valid
    // when zeroed, and any thread may use them at any time.
    unsafe {
        if is_new {
            (&raw mut (*at).python).write(python);
        }
        (*at).stacks.clear();
        (*at).functions.clear();
    }
    MAPPED.store(at, Release);
    ACTIVE.store(at, Release);
    Ok(())
}

/// Stops taking stacks. A thread that is in [`take`] finishes.
pub fn end() {
    ACTIVE.store(std::ptr::null_mut(), Release);
}

/// Whether stacks are taken.
#[inline]
pub fn is_on() -> bool {
    !ACTIVE.load(Relaxed).is_null()
}

/// Takes the calling thread's stack for the call with this correlation id, and stores it with
/// `store`, which takes a record as its kind, its fixed part and its tail. Does nothing where no
/// stacks are taken, or where the thread is not in Python code.
#[inline]
pub fn take(correlation: u64, store: &mut dyn FnMut(u8, [&[u8]; 2]) -> bool) {
    // SAFETY: it is null, or the mapping that `begin` has filled, which is never unmapped.
    if let Some(session) = unsafe { ACTIVE.load(Acquire).as_ref() } {
        session.take(correlation, store);
    }
}

impl Session {
    fn take(&self, correlation: u64, store: &mut dyn FnMut(u8, [&[u8]; 2]) -> bool) {
        // Most stacks are known: their frames are only read, not kept.
        let mut key = 0;
        let Some(_) = self
            .python
            .walk(|frame| key = self.python.mixed(key, &frame))
        else {
            return;
        };
        let number = match self.stacks.find(key) {
            Found::Known(number) => number,
            Found::New(number) => {
                self.describe(number, store);
                number
            }
            Found::Full => 0,
        };
        let launch = LaunchStack {
            header: header::<LaunchStack>(kind::LAUNCH_STACK, number, 0),
            correlation,
        };
        store(kind::LAUNCH_STACK, [launch.bytes(), &[]]);
    }

    /// Writes a stack, and those of its functions that were not written yet.
    #[cold]
    fn describe(&self, number: u32, store: &mut dyn FnMut(u8, [&[u8]; 2]) -> bool) {
        let mut tail = [0_u8; 8 * MOST_FRAMES];
        let mut places = tail.chunks_exact_mut(8);
        let mut count = 0;
        let is_cut = self.python.walk(|frame| {
            let function = match self.functions.find(self.python.function_key(&frame)) {
                Found::Known(function) => function,
                Found::New(function) => {
                    self.describe_function(function, &frame, store);
                    function
                }
                Found::Full => 0,
            };
            let line = self.python.line(&frame).unwrap_or(0);
            let word = u64::from(function) | u64::from(line) << 32;
            if let Some(into) = places.next() {
                into.copy_from_slice(&word.to_le_bytes());
                count += 1;
            }
        });
        let len = 8 * count as usize;
        let stack = Stack {
            header: header::<Stack>(kind::STACK, number, len),
            frames: count,
            is_cut: u32::from(is_cut == Some(true)),
        };
        store(
            kind::STACK,
            [stack.bytes(), tail.get(..len).unwrap_or_default()],
        );
    }

    fn describe_function(
        &self,
        number: u32,
        frame: &Frame,
        store: &mut dyn FnMut(u8, [&[u8]; 2]) -> bool,
    ) {
        let mut text = text::Text::new();
        self.python.file(frame, &mut text);
        let file = text.len();
        text.next();
        self.python.name(frame, &mut text);
        let name = text.len() - file;
        let bytes = text.padded();
        let code = Code {
            header: header::<Code>(kind::CODE, number, bytes.len()),
            file_len: file as u32,
            name_len: name as u32,
        };
        store(kind::CODE, [code.bytes(), bytes]);
    }
}

/// Returns the header of a record of type `T` with `tail` bytes behind it (a multiple of 8).
const fn header<T>(kind: u8, operation: u32, tail: usize) -> Header {
    Header {
        size: (size_of::<T>() + tail) as u16,
        kind,
        flags: 0,
        operation,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_record::event::NO_STACKS;

    #[test]
    fn each_reason_is_known_to_the_attacher_by_its_start() {
        for why in [
            Unavailable::NoPython,
            Unavailable::Version,
            Unavailable::FreeThreaded,
            Unavailable::Memory,
        ] {
            assert!(why.text().starts_with(NO_STACKS), "{why:?}");
        }
    }
}
