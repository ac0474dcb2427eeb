//! Passes runtimes' tables to tools that put their own functions into them
//! (`rocprofiler_at_intercept_table_registration`).
//!
//! A tool gets a table when the runtime registers it, before our own functions go in. So our
//! functions call what the tool leaves in a slot. In a process that is attached to, a table may be
//! older than the tool. Such a table is *lent* to the tool until the end of the session (AMD-066);
//! [`takers`] returns the tools that want it.

pub(crate) mod held;

pub use held::InterceptCallback;

use crate::notes;
use crate::registration;
use crate::state::{self, STATE};
use crate::status::Status;
use held::{Given, Interceptor};
use midair_abi::constants as c;
use midair_sdk_hot::operations::Opaque;
use std::ffi::{CStr, c_int, c_void};
use std::sync::{MutexGuard, PoisonError};

/// The tables by the names under which libraries register them, in the order of the registered
/// list.
const TABLES: &[(&CStr, &[c_int])] = &[
    (c"hsa", &[c::ROCPROFILER_HSA_TABLE]),
    (c"hip", &[c::ROCPROFILER_HIP_RUNTIME_TABLE]),
    (c"hip_compiler", &[c::ROCPROFILER_HIP_COMPILER_TABLE]),
    (
        c"roctx",
        &[
            c::ROCPROFILER_MARKER_CORE_TABLE,
            c::ROCPROFILER_MARKER_CONTROL_TABLE,
            c::ROCPROFILER_MARKER_NAME_TABLE,
        ],
    ),
    (c"rccl", &[c::ROCPROFILER_RCCL_TABLE]),
    (c"rocdecode", &[c::ROCPROFILER_ROCDECODE_TABLE]),
    (c"rocjpeg", &[c::ROCPROFILER_ROCJPEG_TABLE]),
];

/// Registers a tool's function for tables of the set `libraries`.
///
/// # Errors
/// [`Status::CONFIGURATION_LOCKED`] when no tool is being configured, [`Status::INVALID_ARGUMENT`]
/// for an empty set, [`Status::NOT_IMPLEMENTED`] for a table that does not exist.
pub fn register(
    callback: InterceptCallback,
    libraries: c_int,
    data: *mut c_void,
) -> Result<(), Status> {
    if !state::lock().busy {
        return Err(Status::CONFIGURATION_LOCKED);
    }
    if libraries == 0 {
        return Err(Status::INVALID_ARGUMENT);
    }
    let known = TABLES
        .iter()
        .flat_map(|(_, tables)| *tables)
        .fold(0, |all, table| all | table);
    if libraries & !known != 0 {
        return Err(Status::NOT_IMPLEMENTED);
    }
    all().push(Interceptor {
        callback,
        libraries,
        data: Opaque(data),
        given: Vec::new(),
    });
    Ok(())
}

/// Locks the list of tools' functions.
fn all() -> MutexGuard<'static, Vec<Interceptor>> {
    STATE
        .interceptors
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Calls a tool's function with a table, and notes that the tool has it. Returns false if the
/// function did not return; it is then never called again.
fn give(to: &Interceptor, version: u64, instance: u64, given: Given) -> bool {
    let mut table: *mut c_void = std::ptr::with_exposed_provenance_mut(given.table);
    // SAFETY: the tool gave us this function for such calls. The table is a runtime's, and the list
    // has one element.
    let called = midair_tool_call::call(&[], || unsafe {
        (to.callback)(given.kind, version, instance, &raw mut table, 1, to.data.0)
    });
    let is_it = |it: &Interceptor| std::ptr::fn_addr_eq(it.callback, to.callback);
    match called {
        Ok(()) => {
            for it in all().iter_mut().filter(|it| is_it(it)) {
                if it.wants(given.kind, given.table) {
                    it.given.push(given);
                }
            }
            true
        }
        Err(thrown) => {
            notes::post(&format!("a tool that was given a table: {thrown}"));
            all().retain(|it| !is_it(it));
            false
        }
    }
}

/// Passes the tables of a library that registers itself to the tools that want them.
pub fn offer(name: &CStr, version: u64, instance: u64, tables: &[*mut c_void]) {
    let Some((_, kinds)) = TABLES.iter().find(|(of, _)| *of == name) else {
        return;
    };
    for (&kind, table) in kinds.iter().zip(tables) {
        let table = table.expose_provenance();
        let takers = all().clone();
        for taker in takers.iter().filter(|taker| taker.wants(kind, table)) {
            let given = Given {
                kind,
                table,
                lent: false,
            };
            give(taker, version, instance, given);
        }
    }
}

/// A tool of this session that wants a live table and does not have it yet.
#[derive(Debug)]
pub struct Taker(Interceptor);

impl Taker {
    /// Passes the tool the table of this kind at this address. Returns false if its function did
    /// not return.
    pub fn give(&self, kind: c_int, table: usize, version: u64, instance: u64) -> bool {
        let given = Given {
            kind,
            table,
            lent: true,
        };
        give(&self.0, version, instance, given)
    }
}

/// Returns the tools that want this live table. Tools outside this session get none.
pub fn takers(kind: c_int, table: usize) -> Vec<Taker> {
    let wanting = all().clone().into_iter();
    wanting
        .filter(|it| it.wants(kind, table) && registration::is_at_work(it.callback as usize))
        .map(Taker)
        .collect()
}

/// Returns the kinds of tables that tools asked for, whether or not they have them.
pub fn kinds() -> c_int {
    all().iter().fold(0, |kinds, it| kinds | it.libraries)
}

/// Forgets the lent tables at the end of a session: they were taken back, and are lent again in the
/// next session.
pub fn taken_back() {
    for it in all().iter_mut() {
        it.given.retain(|given| !given.lent);
    }
}
