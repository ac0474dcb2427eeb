//! Live tables that are lent to tools (`rocprofiler_at_intercept_table_registration`).
//!
//! In AMD's SDK, a tool that comes into a running process gets the tables that the runtimes
//! registered long ago, after the SDK's own functions were put in. So the tool's functions are on
//! top, and stay there. A tool gets the same tables here, at the same moment. Nothing of a tool may
//! run after a detach. So the slots that it changed are found by comparing each table before and
//! after the tool's call. When the session ends, they get their previous values, unless another
//! party has changed them since.
//!
//! Decisions: AMD-066 (`docs/deviations/amd.md`).

use crate::runtimes::Registry;
use crate::tables::{Live, tools};
use midair_abi::constants as c;
use midair_abi::tables::TableId;
use midair_sdk_api::intercept;
use midair_sdk_hot::wrappers::{Slot, TABLES};
use std::ffi::c_int;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// A slot that a tool has changed.
#[derive(Debug)]
struct Changed {
    cell: &'static AtomicPtr<()>,
    before: *mut (),
    after: *mut (),
    /// Its slot, if we know the function of that slot.
    slot: Option<&'static Slot>,
}

// SAFETY: the pointers are addresses of functions, which are compared and stored, but never
// followed.
unsafe impl Send for Changed {}

impl Changed {
    /// Restores the previous value. Returns false if another party has changed the slot since.
    fn undo(&self) -> bool {
        let undone = self
            .cell
            .compare_exchange(self.after, self.before, AcqRel, Relaxed)
            .is_ok();
        // If our wrapper was put over the tool's function, it must call the previous function
        // again.
        if let Some(slot) = self.slot
            && undone
            && self.before.cast_const() != slot.wrapper
        {
            let _ = slot
                .original
                .compare_exchange(self.after, self.before, AcqRel, Relaxed);
        }
        undone
    }
}

/// What tools have changed in tables that were lent to them.
#[derive(Debug, Default)]
pub struct ToolTables {
    /// The changes, in their order.
    changed: Vec<Changed>,
    /// When tables were last searched for, and at which count of loaded libraries.
    pub(crate) looked: Option<(u64, u64)>,
}

/// Returns the kind of table that tools ask for, for a table that starts with its size.
fn kind_of(id: TableId) -> Option<c_int> {
    Some(match id {
        TableId::HipRuntime => c::ROCPROFILER_HIP_RUNTIME_TABLE,
        TableId::HipCompiler => c::ROCPROFILER_HIP_COMPILER_TABLE,
        TableId::RoctxCore => c::ROCPROFILER_MARKER_CORE_TABLE,
        TableId::RoctxControl => c::ROCPROFILER_MARKER_CONTROL_TABLE,
        TableId::RoctxName => c::ROCPROFILER_MARKER_NAME_TABLE,
        TableId::Rccl => c::ROCPROFILER_RCCL_TABLE,
        TableId::Rocdecode => c::ROCPROFILER_ROCDECODE_TABLE,
        TableId::Rocjpeg => c::ROCPROFILER_ROCJPEG_TABLE,
        // Tools get the root table for these.
        TableId::HsaCore | TableId::HsaAmdExt | TableId::HsaImageExt | TableId::HsaFinalizeExt => {
            return None;
        }
    })
}

/// Returns the cells of tables with their values.
fn snapshot<'a>(
    tables: impl IntoIterator<Item = &'a Live>,
) -> Vec<(&'static AtomicPtr<()>, *mut (), Option<&'static Slot>)> {
    let mut all = Vec::new();
    for live in tables {
        let known = TABLES
            .get(live.index())
            .map_or(&[][..], |table| table.slots);
        for cell in live.slots() {
            let slot = known.iter().find(|slot| {
                live.slot_of(slot)
                    .is_some_and(|other| std::ptr::eq(other, cell))
            });
            all.push((cell, cell.load(Acquire), slot));
        }
    }
    all
}

impl ToolTables {
    /// Lends live tables to the tools of the session that want them and do not have them.
    /// `hsa_open`: the HSA runtime is open, so its slots have their final values. `root`: where
    /// HSA's root table is according to a register library, or 0.
    pub fn lend(&mut self, found: &[Live], hsa_open: bool, root: usize, registry: &Registry) {
        for live in found {
            let id = TABLES.get(live.index()).map(|table| table.id);
            if let Some(kind) = id.and_then(kind_of) {
                self.give(kind, live.base(), std::slice::from_ref(live), registry);
            }
        }
        if intercept::kinds() & c::ROCPROFILER_HSA_TABLE == 0 || !hsa_open {
            return;
        }
        if let Some(address) = tools::root(found, root) {
            let mut tables: Vec<Live> = found.iter().copied().filter(Live::is_hsa).collect();
            tables.extend(tools::find(found, root));
            self.give(c::ROCPROFILER_HSA_TABLE, address, &tables, registry);
        }
    }

    fn give(&mut self, kind: c_int, address: usize, tables: &[Live], registry: &Registry) {
        for taker in intercept::takers(kind, address) {
            let before = snapshot(tables);
            let home = tables.first().map_or(0, Live::home);
            let (version, instance) = registry.version(kind, home);
            let returned = taker.give(kind, address, version, instance);
            let changed: Vec<Changed> = before
                .into_iter()
                .map(|(cell, before, slot)| Changed {
                    cell,
                    before,
                    after: cell.load(Acquire),
                    slot,
                })
                .filter(|changed| changed.before != changed.after)
                .collect();
            if returned {
                self.changed.extend(changed);
            } else {
                for change in changed.iter().rev() {
                    change.undo();
                }
            }
        }
    }

    /// Restores what tools have replaced, the last change first. A slot where another party's
    /// function covers the tool's cannot be restored; the next call tries again.
    pub fn take_back(&mut self) {
        let mut left: Vec<Changed> = std::mem::take(&mut self.changed);
        left.reverse();
        left.retain(|changed| !changed.undo());
        left.reverse();
        self.changed = left;
    }

    /// Ends the session. Returns how many slots still lead to a tool.
    pub fn end(&mut self) -> usize {
        self.take_back();
        intercept::taken_back();
        self.looked = None;
        std::mem::take(&mut self.changed).len()
    }

    /// Whether tools have changed anything.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty()
    }
}
