//! NVTX ranges of a process that made its first NVTX call before the attach.
//!
//! NVTX is a header: each library that uses it has a function table of its own. At its first call
//! the table is filled with the functions of a tool, or stays empty as long as the process lives.
//! CUPTI is such a tool, but it is not asked any more after that call. So we find the tables in the
//! libraries' data ([`tables`], by their pointers into themselves), give CUPTI a midair table to
//! fill ([`functions`]), and store functions that forward to CUPTI in the empty entries of the
//! libraries' tables, one aligned store each. At the end the previous entries are restored. A table
//! that another tool has filled is not touched. Neither is the environment, which could name a tool
//! to NVTX: other threads may be reading it.
//!
//! What was named while there was no tool (domains, registered strings) is null to the application
//! from then on: such a range is in the default domain, or has a text that says so.

pub mod functions;
pub mod tables;

use crate::cupti::Cupti;
use functions::{HOOKS, Hook};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use tables::{COMPLETE, FRESH, Table};

/// The NVTX tables that contain our functions. Dropping it restores the previous entries.
#[derive(Debug)]
pub struct Nvtx {
    hooked: Vec<HookedTable>,
    /// Number of tables of another tool.
    foreign: usize,
    /// Number of tables that CUPTI filled itself, because it was there at their first call.
    filled: usize,
    /// Whether CUPTI supports NVTX in this way.
    supported: bool,
}

#[derive(Debug)]
struct HookedTable {
    table: Table,
    /// Previous values of the entries, in the order of [`HOOKS`]; `None` where ours was not stored.
    before: Vec<Option<usize>>,
}

impl Nvtx {
    /// Makes CUPTI receive the marks and ranges of this process. To be called when the kind MARKER
    /// is enabled.
    pub fn begin(cupti: &Cupti) -> Nvtx {
        let mut nvtx = Nvtx {
            hooked: Vec::new(),
            foreign: 0,
            filled: 0,
            supported: functions::connect(cupti),
        };
        if !nvtx.supported {
            return nvtx;
        }
        let library = library(
            cupti
                .functions()
                .initialize_nvtx
                .map_or(0, |it| it as usize),
        );
        for table in tables::find() {
            match owner(&table) {
                None => {}
                // It was initialised with CUPTI as its tool: CUPTI receives its ranges without our
                // functions.
                Some(function) if library.is_some() && self::library(function) == library => {
                    nvtx.filled += 1;
                    continue;
                }
                Some(_) => {
                    nvtx.foreign += 1;
                    continue;
                }
            }
            let before = vec![None; HOOKS.len()];
            nvtx.hooked.push(HookedTable { table, before });
        }
        functions::register_domains();
        nvtx.tick();
        nvtx
    }

    /// Stores our functions again in entries that are empty: a library whose first call came
    /// meanwhile has emptied them.
    pub fn tick(&mut self) {
        for hooked in &mut self.hooked {
            for (hook, before) in HOOKS.iter().zip(&mut hooked.before) {
                hooked.table.hook(hook, before);
            }
        }
    }

    /// A note for the user at the start, if there is anything to say.
    pub fn note(&self) -> Option<String> {
        const AT_START: &str =
            "only of a process that was started with NVTX_INJECTION64_PATH naming its libcupti.so";
        if !self.supported {
            return Some(format!(
                "NVTX ranges are recorded {AT_START}: this CUPTI has no other interface for them"
            ));
        }
        if self.foreign > 0 {
            return Some(format!(
                "NVTX ranges of {} libraries go to another tool, and are not recorded",
                self.foreign
            ));
        }
        (self.hooked.is_empty() && self.filled == 0).then(|| {
            format!(
                "no library of this process has an NVTX table that midair knows: ranges are recorded {AT_START}"
            )
        })
    }

    /// A note for the user at the end, if there is anything to say. To be called before this is
    /// dropped.
    pub fn last_note(&self) -> Option<&'static str> {
        (!self.hooked.is_empty() && !functions::is_filled()).then_some(
            "CUPTI did not join NVTX: ranges of libraries that made their first call before the attach are missing",
        )
    }

    /// Whether CUPTI itself has filled a library's table.
    pub fn is_cuptis(&self) -> bool {
        self.filled > 0
    }

    /// Number of tables that contain our functions.
    pub fn tables(&self) -> usize {
        self.hooked.len()
    }
}

impl Drop for Nvtx {
    fn drop(&mut self) {
        for hooked in &self.hooked {
            for (hook, before) in HOOKS.iter().zip(&hooked.before) {
                if let Some(before) = before {
                    hooked.table.restore(hook, *before);
                }
            }
        }
        functions::forget_domains();
    }
}

/// A function of another tool in a table whose first call was made.
fn owner(table: &Table) -> Option<usize> {
    if table.state() != COMPLETE {
        return None;
    }
    let mut functions = HOOKS.iter().map(|hook| table.entry(hook).load(Acquire));
    functions.find(|function| *function != 0)
}

/// Load address of the library that contains a function.
fn library(function: usize) -> Option<usize> {
    // SAFETY: all zero is a value of the struct.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: dladdr accepts any address; the out pointer is valid.
    let known = unsafe { libc::dladdr(std::ptr::without_provenance(function), &raw mut found) };
    (known != 0).then(|| found.dli_fbase.addr())
}

impl Table {
    /// Stores our function in an entry that has no tool's. `before` receives the previous value.
    fn hook(&self, hook: &Hook, before: &mut Option<usize>) {
        let (entry, ours) = (self.entry(hook), hook.address());
        let there = entry.load(Acquire);
        let state = self.state();
        // Before the first call, an entry contains the function that makes the table; that one then
        // runs after ours.
        let free = (state == COMPLETE && there == 0) || (state == FRESH && there != 0);
        if there == ours || !free {
            return;
        }
        if entry.compare_exchange(there, ours, AcqRel, Acquire).is_ok() {
            *before = Some(there);
        }
    }

    /// Restores the previous value where ours is still there.
    fn restore(&self, hook: &Hook, before: usize) {
        let (entry, ours) = (self.entry(hook), hook.address());
        if before != 0 && self.state() == FRESH {
            let _ = entry.compare_exchange(ours, before, AcqRel, Acquire);
            if self.state() == FRESH {
                return;
            }
            // The first call was made just now; the function that makes the table must not stay
            // there after it.
            let _ = entry.compare_exchange(before, 0, AcqRel, Acquire);
        }
        let _ = entry.compare_exchange(ours, 0, AcqRel, Acquire);
    }

    fn entry(&self, hook: &Hook) -> &AtomicUsize {
        self.entry_of(hook.module, hook.id)
    }
}

#[cfg(test)]
mod tests;
