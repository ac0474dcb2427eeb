//! The stack of the thread that launches work (`--stacks`), taken in that thread.
//!
//! A stack is a list of frames: the function and the line of a Python frame, the module and the address
//! of a native one. [`take`] walks the frames of the calling thread, which cannot change meanwhile,
//! since the thread is inside of them. Each
//! different stack is written once for each session, each function as well, and a launch then
//! refers to its stack by number.
//!
//! [`take`] allocates nothing, takes no lock and makes no system call. Its tables are mapped, with
//! their pages, when a session starts ([`begin`]).

mod common;
mod cost;
mod key_set;
#[cfg(target_arch = "x86_64")]
mod native;
#[cfg(not(target_arch = "x86_64"))]
#[path = "no_native.rs"]
mod native;
mod python;
mod text;
mod worker;

pub use common::{ModuleRecord, Unavailable};
use common::{header, mix};
use cost::{Cost, Instead};
use key_set::{Found, KeySet};
use midair_record::event::{
    Code, Header, LaunchStack, MOST_FRAMES, NativeCode, OF_OBJECT, Plain, Stack, StackCost, kind,
};
use native::{Summary, Table};
use python::{Frame, ModuleCalls, Python};
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicPtr};
pub use worker::{Started, begin, end, refresh, release};

/// The most different stacks and functions of a session. Launches at further stacks have none.
const MOST_STACKS: usize = 1 << 16;
const MOST_FUNCTIONS: usize = 1 << 15;

/// Which stacks are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Python's frames.
    pub python: bool,
    /// Native frames.
    pub native: bool,
    /// How much of a processor native frames may take, in percent; 0 for no limit.
    pub budget: u64,
}

impl Wanted {
    /// Returns what the settings of stacks and of their budget ask for; `None` if they ask for no stacks.
    pub fn of(setting: Option<&str>, budget: Option<&str>) -> Option<Wanted> {
        let (python, native) = match setting? {
            "python" => (true, false),
            "native" => (false, true),
            "both" => (true, true),
            _ => return None,
        };
        let budget = budget.and_then(|percent| percent.parse().ok());
        Some(Wanted {
            python,
            native,
            budget: budget.unwrap_or(0).min(100),
        })
    }
}

/// What a session with stacks needs. All of it is valid when zeroed.
struct Session {
    /// The process's Python, from when on `has_python` is set. It is written once.
    python: MaybeUninit<Python>,
    has_python: AtomicBool,
    takes_python: AtomicBool,
    /// Functions whose calls are recorded for each object.
    modules: ModuleCalls,
    cost: Cost,
    /// The table for native frames; null where none are taken.
    native: AtomicPtr<Table>,
    stacks: KeySet<MOST_STACKS>,
    functions: KeySet<MOST_FUNCTIONS>,
}

/// The same mapping as the worker's while stacks are taken, otherwise null.
static ACTIVE: AtomicPtr<Session> = AtomicPtr::new(std::ptr::null_mut());

/// Whether stacks are taken.
#[inline]
pub fn is_on() -> bool {
    !ACTIVE.load(Relaxed).is_null()
}

/// Takes the calling thread's stack for the call with this correlation id, and stores it with
/// `store`, which takes a record as its kind, its fixed part and its tail. Without a correlation id (0)
/// the caller stores whose stack it is. Does nothing where no stacks are taken, or where only Python's are
/// and the thread is not in Python code. Returns the number of the stack, or 0.
#[inline]
pub fn take(correlation: u64, store: &mut dyn FnMut(u8, [&[u8]; 2]) -> bool) -> u32 {
    // SAFETY: it is null, or the mapping that `begin` has filled, which is never unmapped.
    let Some(session) = (unsafe { ACTIVE.load(Acquire).as_ref() }) else {
        return 0;
    };
    let timed = session.cost.start(correlation, cost::now);
    let number = session.take(correlation, store);
    if let Some(timed) = timed {
        session.cost.end(&timed, cost::now());
    }
    number
}

/// Returns what the stacks of the session have cost, also after its [`end`].
pub fn cost() -> StackCost {
    worker::last().map_or_else(StackCost::default, |session| session.cost.so_far())
}

/// A launch's stack, as far as its frames were only read.
#[derive(Clone, Copy)]
struct Seen<'a> {
    python: Option<&'a Python>,
    native: Option<(&'a Table, Summary)>,
}

impl Session {
    fn take(&self, correlation: u64, store: &mut dyn FnMut(u8, [&[u8]; 2]) -> bool) -> u32 {
        // Most stacks are known: their frames are only read, not kept.
        let mut key = 0;
        let python = self.python().filter(|python| {
            let frames = python.walk(&self.modules, |frame| key = python.mixed(key, &frame));
            frames.is_some()
        });
        // SAFETY: it is null, or a table that is freed only while no thread is in here.
        let mut table = unsafe { self.native.load(Acquire).as_ref() };
        let python_key = python.map(|_| key);
        if table.is_some() && self.cost.is_over() {
            let known = match self.cost.instead(python_key) {
                Instead::Reused(number) => Some(number),
                Instead::Without => Some(0),
                Instead::PythonOnly => None,
            };
            if let Some(number) = known {
                store_launch(number, correlation, store);
                return number;
            }
            table = None;
        }
        let native = table.map(|table| (table, table.summary(python.is_some())));
        let native = native.filter(|(_, summary)| summary.count > 0);
        if let Some((_, summary)) = native {
            key = mix(mix(key, summary.key), summary.count as u64);
        }
        let number = match (python, native) {
            (None, None) if table.is_none() => return 0,
            (None, None) => 0,
            _ => match self.stacks.find(key) {
                Found::Known(number) => number,
                // The stack has another key now. Its number stays unused.
                Found::New(_) if python.is_some_and(|it| it.learn_modules(&self.modules)) => {
                    return self.take(correlation, store);
                }
                Found::New(number) => {
                    self.describe(number, Seen { python, native }, store);
                    number
                }
                Found::Full => 0,
            },
        };
        if let (Some(key), Some(_)) = (python_key, native) {
            self.cost.note(key, number);
        }
        store_launch(number, correlation, store);
        number
    }

    /// Returns the process's Python, if its frames are taken.
    fn python(&self) -> Option<&Python> {
        let is_there = self.takes_python.load(Relaxed) && self.has_python.load(Acquire);
        // SAFETY: it was written before `has_python` was set.
        is_there.then(|| unsafe { self.python.assume_init_ref() })
    }

    /// Writes a stack, and its functions that were not written yet.
    #[cold]
    fn describe(&self, number: u32, seen: Seen<'_>, store: &mut dyn FnMut(u8, [&[u8]; 2]) -> bool) {
        let mut tail = [0_u8; 8 * MOST_FRAMES];
        let mut places = tail.chunks_exact_mut(8);
        let mut count = 0;
        let mut is_cut = false;
        let mut put = |function: u32, line: u32| {
            let word = u64::from(function) | u64::from(line) << 32;
            if let Some(into) = places.next() {
                into.copy_from_slice(&word.to_le_bytes());
                count += 1;
            }
        };
        if let Some((table, summary)) = seen.native {
            is_cut = summary.is_cut;
            table.frames(summary.count, |frame| {
                let function = match self.functions.find(frame.key()) {
                    Found::Known(function) => function,
                    Found::New(function) => {
                        describe_native(function, frame, store);
                        function
                    }
                    Found::Full => 0,
                };
                put(function, 0);
            });
        }
        if let Some(python) = seen.python {
            let more = python.walk(&self.modules, |frame| {
                let function = match self.functions.find(python.function_key(&frame)) {
                    Found::Known(function) => function,
                    Found::New(function) => {
                        describe_function(python, function, &frame, store);
                        if frame.object != 0 {
                            self.modules.count();
                        }
                        function
                    }
                    Found::Full => 0,
                };
                put(function, python.line(&frame).unwrap_or(0));
            });
            is_cut |= more == Some(true);
        }
        let len = 8 * count as usize;
        let stack = Stack {
            header: header::<Stack>(kind::STACK, number, len),
            frames: count,
            is_cut: u32::from(is_cut),
        };
        store(
            kind::STACK,
            [stack.bytes(), tail.get(..len).unwrap_or_default()],
        );
    }
}

fn store_launch(number: u32, correlation: u64, store: &mut dyn FnMut(u8, [&[u8]; 2]) -> bool) {
    if correlation == 0 {
        return;
    }
    let launch = LaunchStack {
        header: header::<LaunchStack>(kind::LAUNCH_STACK, number, 0),
        correlation,
    };
    store(kind::LAUNCH_STACK, [launch.bytes(), &[]]);
}

fn describe_native(
    number: u32,
    frame: native::Frame,
    store: &mut dyn FnMut(u8, [&[u8]; 2]) -> bool,
) {
    let code = NativeCode {
        header: header::<NativeCode>(kind::NATIVE_CODE, number, 0),
        module: frame.module,
        reserved: 0,
        address: frame.address,
    };
    store(kind::NATIVE_CODE, [code.bytes(), &[]]);
}

fn describe_function(
    python: &Python,
    number: u32,
    frame: &Frame,
    store: &mut dyn FnMut(u8, [&[u8]; 2]) -> bool,
) {
    let mut text = text::Text::new();
    python.file(frame, &mut text);
    let file = text.len();
    text.next();
    python.name(frame, &mut text);
    let name = text.len() - file;
    let bytes = text.padded();
    let code = Code {
        header: header::<Code>(kind::CODE, number, bytes.len()),
        file_len: file as u32,
        name_len: name as u32,
    };
    store(kind::CODE, [code.bytes(), bytes]);
    if frame.object != 0 {
        let place = NativeCode {
            header: Header {
                flags: OF_OBJECT,
                ..header::<NativeCode>(kind::NATIVE_CODE, number, 0)
            },
            module: 0,
            reserved: 0,
            address: frame.object as u64,
        };
        store(kind::NATIVE_CODE, [place.bytes(), &[]]);
    }
}
