//! The memory that the engine maps in a target, and what is written to it.
//!
//! One `mmap` makes all of it, readable and executable. The first thing that the code does is to
//! make everything but its own page readable and writable instead. So nothing is ever writable and
//! executable at once. It also keeps the stops few: the borrowed thread is stopped twice for each
//! system call that it makes for us, and this way it makes only one.
//!
//! Decisions: ENG-001, ENG-011 (`docs/deviations/engine.md`).

use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::mem::offset_of;
use std::ops::Range;

use midair_procinfo::status::cpu_mask;
use midair_procinfo::{Tid, show, task};
use midair_ptrace::{RemoteAddr, ticks_per_millisecond};
use midair_record::VERSION;
use midair_record::boot::{BootBlock, MAGIC};

use crate::arch;
use crate::inspection::Inspection;
use crate::options::Options;

const PAGE: u64 = arch::PAGE;
/// Length of the stub's stack, on which pthread_create and an allocator run.
const STUB_STACK: u64 = 64 * 1024;
/// Length of the worker thread's stack, on which dlopen, constructors and the library run.
const THREAD_STACK: u64 = 1024 * 1024;
/// How long the stub keeps its processor while it waits to be stopped again, which usually takes
/// less. After that it yields the processor, and again in each time slice that it gets. It does not
/// yield immediately, because a thread whose priority was not raised (the attacher may have no
/// right to do so) then waits for its next slice: 3 ms alongside one other thread.
const STUB_TURN_US: u64 = 250;

/// Length of the code mapping, bytes.
pub(crate) const CODE_LEN: u64 = PAGE;
/// Length of the data mapping, bytes: boot block, stub stack, a page without rights, thread stack.
pub(crate) const DATA_LEN: u64 = PAGE + STUB_STACK + PAGE + THREAD_STACK;
/// Length of both together, bytes. The code comes first.
pub(crate) const WHOLE_LEN: u64 = CODE_LEN + DATA_LEN;

/// `PROT_*` and `MAP_*` for these mappings (linux/mman.h).
pub(crate) mod protection {
    pub(crate) const READ_EXECUTE: u64 = 1 | 4;
    /// Private, anonymous, not counted against overcommit.
    pub(crate) const FLAGS: u64 = 0x2 | 0x20 | 0x4000;
}

/// Where the code and the data lie. They are next to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mappings {
    /// Base of the code mapping.
    pub code: RemoteAddr,
    /// Its length, bytes.
    pub code_len: u64,
    /// Base of the data mapping, which starts with the boot block.
    pub data: RemoteAddr,
    /// Its length, bytes.
    pub data_len: u64,
}

impl Mappings {
    pub(crate) fn at(base: RemoteAddr) -> Mappings {
        Mappings {
            code: base,
            code_len: CODE_LEN,
            data: base.plus(CODE_LEN),
            data_len: DATA_LEN,
        }
    }
    /// Returns the stack pointer for the stub.
    pub(crate) fn stub_stack(&self) -> RemoteAddr {
        self.data.plus(PAGE + STUB_STACK)
    }
}

/// Returns how long the worker thread waits for the first message, in ms, as the boot block has it.
pub(crate) fn boot_patience(options: &Options) -> u32 {
    u32::try_from(options.boot.as_millis()).unwrap_or(5000)
}

/// The bytes of a boot block, complete except for the addresses of the mappings.
#[derive(Debug)]
pub(crate) struct Draft {
    bytes: Vec<u8>,
}

/// Writes a member of [`BootBlock`].
macro_rules! set {
    ($bytes:expr, $member:ident, $value:expr) => {
        put(
            $bytes,
            offset_of!(BootBlock, $member),
            &$value.to_le_bytes(),
        )
    };
}

fn put(bytes: &mut [u8], offset: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(offset..offset.saturating_add(value.len())) {
        place.copy_from_slice(value);
    }
}

/// The greatest number of threads whose processors are read.
const ASKED: usize = 64;

/// Returns the processors on which the worker thread may run: all on which any thread of the
/// process may. The mask of one thread is not enough, since the borrowed thread may be pinned to
/// one processor, and so may the first thread. The worker thread, and the threads that CUPTI makes
/// from it, would then alternate with the application's threads on that processor.
fn processors(look: &Inspection) -> Vec<u8> {
    let mut all = cpu_mask(&look.status.cpus_allowed);
    let threads = task::list(look.tid).unwrap_or_default();
    for status in threads.into_iter().take(ASKED).map(task::status) {
        let mask = status.map_or_else(|_| Vec::new(), |status| cpu_mask(&status.cpus_allowed));
        all.resize(all.len().max(mask.len()), 0);
        all.iter_mut().zip(mask).for_each(|(all, one)| *all |= one);
    }
    all
}

impl Draft {
    /// Fills in everything that does not depend on the mappings, so that no time goes into it while
    /// a thread is held.
    pub(crate) fn new(
        look: &Inspection,
        options: &Options,
        library_fd: i32,
        entry: Option<RemoteAddr>,
    ) -> Draft {
        let mut bytes = vec![0; size_of::<BootBlock>()];
        let code = &look.code;
        set!(&mut bytes, magic, MAGIC);
        set!(&mut bytes, version, VERSION);
        set!(&mut bytes, fd_near, -1_i32);
        set!(&mut bytes, fd_far, -1_i32);
        set!(&mut bytes, library_fd, library_fd);
        set!(&mut bytes, fn_entry, entry.map_or(0, RemoteAddr::get));
        set!(&mut bytes, fn_pthread_create, code.pthread_create.get());
        set!(&mut bytes, fn_attr_init, code.attr_init.get());
        set!(
            &mut bytes,
            fn_attr_setdetachstate,
            code.attr_setdetachstate.get()
        );
        set!(&mut bytes, fn_attr_setstack, code.attr_setstack.get());
        set!(&mut bytes, fn_dlopen, code.dlopen.get());
        set!(&mut bytes, fn_dlsym, code.dlsym.get());
        set!(&mut bytes, fn_dlerror, code.dlerror.get());
        let patience_us = u64::try_from(options.patience.as_micros()).unwrap_or(20_000);
        set!(
            &mut bytes,
            stub_patience_ticks,
            (ticks_per_millisecond().saturating_mul(patience_us) / 1000)
        );
        set!(&mut bytes, patience_ms, boot_patience(options));
        let mask = processors(look);
        let mask = &mask[..mask.len().min(128)];
        set!(&mut bytes, affinity_len, (mask.len() as u32));
        put(&mut bytes, offset_of!(BootBlock, affinity), mask);
        Draft { bytes }
    }

    /// Returns what is to be written at the base of the mappings: the page of code, then the block.
    /// `borrowed` is the thread that makes the worker thread, by its id in the target. None, which
    /// is written as 0, means that the id is not known. `may_yield` tells that no filter applies to
    /// its system calls.
    pub(crate) fn finish(
        mut self,
        mappings: &Mappings,
        context: RemoteAddr,
        borrowed: Option<Tid>,
        may_yield: bool,
    ) -> Vec<u8> {
        let bytes = &mut self.bytes;
        set!(bytes, borrowed, borrowed.map_or(0, Tid::get));
        let turn = if may_yield { STUB_TURN_US } else { 0 };
        let turn = ticks_per_millisecond().saturating_mul(turn) / 1000;
        set!(bytes, stub_turn_ticks, u32::try_from(turn).unwrap_or(0));
        let base = mappings.data.get();
        let guard = base.wrapping_add(PAGE + STUB_STACK);
        set!(bytes, code_base, mappings.code.get());
        set!(bytes, code_len, mappings.code_len);
        set!(bytes, data_base, base);
        set!(bytes, data_len, mappings.data_len);
        set!(bytes, stack_base, guard.wrapping_add(PAGE));
        set!(bytes, stack_len, THREAD_STACK);
        set!(bytes, stub_stack_top, mappings.stub_stack().get());
        set!(bytes, sigframe, context.get());
        arch::fill_scratch(bytes, base, (guard, PAGE));
        let mut whole = arch::code().to_vec();
        whole.resize(CODE_LEN as usize, 0);
        whole.append(&mut self.bytes);
        whole
    }
}

/// Returns a descriptor number for the library that no earlier load had. glibc tells libraries
/// apart by the path from which they were loaded. Each midair library has its number in the name
/// of its memory file, which `maps` shows as long as it is loaded. The number is chosen at random
/// among the highest that are free: if two attachers chose the same one at the same time, the
/// second would be given the library of the first.
pub(crate) fn library_fd(look: &Inspection) -> i32 {
    let limit = task::descriptor_limit(look.tid).unwrap_or(256).min(1024);
    let table = task::descriptor_table(look.tid).unwrap_or(0);
    let mut used: HashSet<i32> = task::descriptors(look.tid)
        .unwrap_or_default()
        .into_iter()
        .collect();
    let loaded = look.modules.mappings.iter();
    used.extend(loaded.filter_map(|mapping| number_in(&mapping.path)));
    // A tool's number is not in the name of its memory file. A forked child may have a smaller table, whose
    // upper half has that number.
    let mut mappings = look.modules.mappings.iter();
    let has_tool = mappings.any(|mapping| mapping.path.starts_with(TOOL));
    let free = free_numbers(limit, if has_tool { 0 } else { table }, &used);
    let chance = RandomState::new().build_hasher().finish() as usize;
    let chosen = chance.checked_rem(free.len()).and_then(|n| free.get(n));
    chosen
        .copied()
        .unwrap_or(i32::try_from(limit).unwrap_or(256) - 1)
}

/// Returns the highest free numbers below the limit. The table of a process with several threads
/// is enlarged only after all processors were seen outside of it, which takes 10 ms and more, and it
/// stays large. So the upper half of the present table is enough where it has free numbers.
fn free_numbers(limit: u64, table: u64, used: &HashSet<i32>) -> Vec<i32> {
    let highest = |range: Range<u64>| -> Vec<i32> {
        let numbers = range.rev().filter_map(|number| i32::try_from(number).ok());
        numbers
            .filter(|number| !used.contains(number))
            .take(CHOICES)
            .collect()
    };
    let table = table.min(limit);
    let near = highest((table / 2).max(3)..table);
    if near.len() >= FEWEST {
        return near;
    }
    highest(3..limit)
}

/// How few free numbers are enough for the choice.
const FEWEST: usize = 16;
/// The path of a tool, which the worker thread loads by a number of its own.
const TOOL: &[u8] = b"/memfd:midair-tool";

/// How many free numbers the choice is made among.
const CHOICES: usize = 64;

/// Returns the number in the path of a mapping, if it is a midair library.
fn number_in(path: &[u8]) -> Option<i32> {
    let name = MEMFD.as_bytes();
    if !path.windows(name.len()).any(|window| window == name) {
        return None;
    }
    // "/memfd:midair-agent-WORD-9.so (deleted)"
    let text = show(path);
    let (_, end) = text.rsplit_once('-')?;
    end.split_once(".so")?.0.parse().ok()
}

/// The start of the names of these memory files.
const MEMFD: &str = "midair-agent";

/// Returns the name of the memory file for a library with this number. `word` tells which library
/// it is, and is empty for the usual one.
pub(crate) fn memfd_name(word: &str, fd: i32) -> String {
    match word {
        "" => format!("{MEMFD}-{fd}.so"),
        _ => format!("{MEMFD}-{word}-{fd}.so"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_from_the_upper_half_of_the_table_if_it_has_enough() {
        let used: HashSet<i32> = (0..20).chain([60, 63]).collect();
        let near = free_numbers(1024, 64, &used);
        assert_eq!(near.len(), 30);
        assert!(
            near.iter()
                .all(|number| (32..63).contains(number) && *number != 60)
        );
        let full: HashSet<i32> = (0..50).collect();
        assert_eq!(
            free_numbers(1024, 64, &full),
            (960..1024).rev().collect::<Vec<_>>()
        );
        assert_eq!(
            free_numbers(1024, 0, &used),
            (960..1024).rev().collect::<Vec<_>>()
        );
        assert_eq!(
            free_numbers(40, 64, &HashSet::new()),
            (20..40).rev().collect::<Vec<_>>()
        );
    }

    #[test]
    fn libraries_of_ours_tell_their_number() {
        for fd in [9, 99, 1023] {
            for word in ["", "cuda"] {
                let path = format!("/memfd:{} (deleted)", memfd_name(word, fd));
                assert_eq!(number_in(path.as_bytes()), Some(fd), "{path}");
            }
        }
        for other in ["", "/usr/lib/libx-9.so", "/memfd:midair-agent (deleted)"] {
            assert_eq!(number_in(other.as_bytes()), None, "{other}");
        }
    }
}
