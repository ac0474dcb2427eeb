//! The native frames of the calling thread.
//!
//! The worker thread prepares a [`Table`] of the process's modules with copies of their unwind tables.
//! A thread that launches work walks its own stack by it: it reads only its own stack and the table,
//! allocates nothing and takes no lock. Each launch is walked in full, and the rule for each address
//! is worked out once, so that no stack is taken for another one.
//!
//! framehop, by which `procinfo` walks from outside, is not used here: it evaluates a table's
//! expressions without a bound, and its cache is each walker's own.

mod bounds;
mod cache;
mod loaded;
mod modules;
mod rule;

use crate::common::{MISSED, mix};
use bounds::Bounds;
use cache::Cache;
use midair_record::event::MOST_FRAMES;
pub(crate) use modules::Modules;
use modules::Tables;
use rule::{FREE, Registers, Rule};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The most frames that a walk looks at: midair's own and the runtimes' lie below the application's.
const MOST_STEPS: usize = MOST_FRAMES + 64;
/// Libraries whose frames at the inner end of a stack belong to the call that launches.
const RUNTIMES: [&[u8]; 7] = [
    b"libamdhip64.so",
    b"libhsa-runtime64.so",
    b"libcuda.so",
    b"libcudart.so",
    b"libcupti.so",
    b"librocprofiler-sdk",
    b"librocprofiler-register.so",
];

/// Whose code it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Application,
    /// midair's own, or a runtime's.
    Runtime,
    /// The library or the program that has Python's interpreter.
    Interpreter,
}

/// Code of a module.
#[derive(Debug)]
struct Part {
    range: Range<u64>,
    module: u32,
    bias: u64,
    owner: Owner,
    tables: Arc<Tables>,
    /// What the loader said of it when the table was made.
    loaded: Option<loaded::Object>,
    /// Whether it is never unloaded: the program, and midair's own library.
    is_permanent: bool,
}

impl Part {
    /// Whether its module is still the one that is loaded at this address. `is_sure`: unwind tables
    /// alone have led here, so the thread returns to this address.
    #[inline]
    fn is_there(&self, address: u64, is_sure: bool) -> bool {
        if self.is_permanent || self.loaded.is_none() {
            return true;
        }
        if self.loaded != loaded::at(address) {
            return false;
        }
        // SAFETY: a library with a mapping of the same extent is loaded there, so its first page is in
        // memory. It stays while the thread has a frame in it. The words are aligned.
        !is_sure || unsafe { loaded::has(&self.tables.marks) }
    }
}

/// The modules at one time.
#[derive(Debug)]
pub(crate) struct Table {
    /// By address.
    parts: Vec<Part>,
    main_stack: Range<u64>,
    /// The function that executes Python code; empty without one.
    evaluates: Range<u64>,
    cache: Cache,
}

/// A frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The module's number; 0 where the code is in none.
    pub(crate) module: u32,
    /// An address inside the call's instruction, as it is linked; 0 without a module.
    pub(crate) address: u64,
}

/// The part of a stack that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Summary {
    /// A hash of its frames.
    pub(crate) key: u64,
    /// Its frames.
    pub(crate) count: usize,
    /// Whether there are further ones, or the walk broke off.
    pub(crate) is_cut: bool,
}

impl Table {
    /// Makes the table of these modules. `python` is the address of the function that executes Python
    /// code, if native frames are to end there. None if the system gives no memory.
    pub(crate) fn of(modules: &Modules, python: Option<u64>) -> Option<Table> {
        loaded::find();
        let own = modules.at(Table::of as *const () as u64);
        let own = own.map_or(0, |module| module.number);
        let evaluates = python.and_then(|at| modules.function(at));
        let interpreter = python.and_then(|at| modules.at(at));
        let interpreter = interpreter.map_or(0, |module| module.number);
        // SAFETY: it only looks a number up that the kernel has passed on.
        let headers = unsafe { libc::getauxval(libc::AT_PHDR) };
        let program = modules.around(headers);
        let program = program.map_or(0, |module| module.number);
        let mut parts = Vec::new();
        for module in &modules.list {
            let name = module.file_name();
            let is_runtime = RUNTIMES.iter().any(|runtime| name.starts_with(runtime));
            let owner = match module.number {
                number if number == own || is_runtime => Owner::Runtime,
                number if number == interpreter => Owner::Interpreter,
                _ => Owner::Application,
            };
            let is_permanent = [own, program].contains(&module.number);
            let parts_of = module.code.iter().map(|range| Part {
                range: range.clone(),
                module: module.number,
                bias: module.bias,
                owner,
                tables: Arc::clone(&module.tables),
                loaded: loaded::at(range.start),
                is_permanent,
            });
            // What the program has mapped without the loader could be replaced without a trace.
            parts.extend(
                parts_of.filter(|part| is_permanent || part.loaded.is_some() || !loaded::can_ask()),
            );
        }
        parts.sort_by_key(|part| part.range.start);
        // A rule's word has a limited number of bits for the index.
        parts.truncate(1 << FREE);
        Some(Table {
            parts,
            main_stack: modules.main_stack.clone(),
            evaluates: evaluates.unwrap_or(0..0),
            cache: Cache::new()?,
        })
    }

    /// Walks the calling thread's stack, and sums up what is kept of it: all frames from the one that
    /// calls the runtime on, and with `until_python` only those that are inside of the innermost
    /// Python frame.
    #[inline]
    pub(crate) fn summary(&self, until_python: bool) -> Summary {
        let mut sum = Summary::default();
        let mut before_interpreter = None;
        let mut met = false;
        let is_whole = self.walk(|frame, at, owner| {
            if until_python && owner == Owner::Interpreter {
                before_interpreter.get_or_insert(sum);
                if self.evaluates.contains(&at) {
                    met = true;
                    return false;
                }
            }
            if sum.count == MOST_FRAMES {
                return false;
            }
            sum.key = frame.mixed(sum.key);
            sum.count += 1;
            true
        });
        // Without the function that executes Python code, the interpreter's first frame is the end.
        match before_interpreter {
            Some(before) if !met => before,
            _ => Summary {
                is_cut: !(is_whole || met),
                ..sum
            },
        }
    }

    /// Calls `each` with the first `count` frames.
    pub(crate) fn frames(&self, count: usize, mut each: impl FnMut(Frame)) {
        let mut left = count;
        self.walk(|frame, _, _| {
            if left > 0 {
                left -= 1;
                each(frame);
            }
            left > 0
        });
    }

    /// Calls `each` with each frame, its address in memory and its owner, from the innermost one that
    /// is not the runtime's on, until `each` returns false. Returns whether the stack's end was
    /// reached.
    #[inline]
    fn walk(&self, mut each: impl FnMut(Frame, u64, Owner) -> bool) -> bool {
        let mut at = here();
        let Some(stack) = Bounds::of_thread(at.sp, &self.main_stack) else {
            return false;
        };
        self.walk_from(&mut at, &stack, &mut each)
    }

    fn walk_from(
        &self,
        at: &mut Registers,
        stack: &Bounds,
        each: &mut impl FnMut(Frame, u64, Owner) -> bool,
    ) -> bool {
        let mut is_runtime = true;
        let mut back = 0;
        let mut known = 0;
        let mut is_sure = true;
        for _ in 0..MOST_STEPS {
            // If a call is the last instruction of a function, it returns to the start of the next one.
            let address = at.pc.wrapping_sub(back);
            back = 1;
            let found = self.rule(address).filter(|(_, part)| {
                let is_known = part.module == known || part.is_there(address, is_sure);
                known = part.module;
                is_known
            });
            let Some((rule, part)) = found else {
                // Code that no file has or a new one, or no code at all.
                if !MISSED.load(Relaxed) {
                    MISSED.store(true, Relaxed);
                }
                let frame = Frame {
                    module: 0,
                    address: 0,
                };
                each(frame, 0, Owner::Application);
                return false;
            };
            is_runtime &= part.owner == Owner::Runtime;
            let frame = Frame {
                module: part.module,
                address: address.wrapping_sub(part.bias),
            };
            if !is_runtime && !each(frame, address, part.owner) {
                return false;
            }
            is_sure &= rule != Rule::NoEntry;
            match rule.step(*at, stack) {
                Some(caller) => *at = caller,
                None => return rule == Rule::Root,
            }
        }
        false
    }

    /// Returns the rule for an address, and the part that it lies in.
    #[inline]
    fn rule(&self, address: u64) -> Option<(Rule, &Part)> {
        if address == 0 || address >> 48 != 0 {
            return None;
        }
        let word = self.cache.find(address, || {
            let after = self
                .parts
                .partition_point(|part| part.range.start <= address);
            let index = after.wrapping_sub(1);
            match self.parts.get(index) {
                Some(part) if part.range.contains(&address) => {
                    rule::of(&part.tables, address).packed() | (index as u64) << (64 - FREE)
                }
                _ => 0,
            }
        });
        let part = self.parts.get((word >> (64 - FREE)) as usize)?;
        (word != 0).then(|| (Rule::unpacked(word), part))
    }
}

impl Frame {
    fn mixed(self, key: u64) -> u64 {
        // Linked addresses have fewer bits than those in memory, and there are few modules.
        mix(key, self.address ^ u64::from(self.module) << 48)
    }

    /// Returns a key that differs between different places, and from the keys of Python's functions.
    pub(crate) fn key(self) -> u64 {
        self.mixed(11)
    }
}

/// Whether a walk notices that another library has taken a library's place.
pub(crate) fn notices_changes() -> bool {
    loaded::can_ask()
}

/// Returns where the calling function stands.
#[inline(always)]
fn here() -> Registers {
    let (pc, sp, fp): (u64, u64, u64);
    // SAFETY: it reads three registers and changes nothing but the outputs.
    unsafe {
        std::arch::asm!(
            "lea {pc}, [rip]",
            "mov {sp}, rsp",
            "mov {fp}, rbp",
            pc = out(reg) pc,
            sp = out(reg) sp,
            fp = out(reg) fp,
            options(nomem, nostack, preserves_flags),
        );
    }
    Registers {
        pc,
        sp,
        fp: Some(fp),
    }
}

#[cfg(test)]
#[path = "native/tests.rs"]
mod tests;
