//! The lists `code_objects[]`, `kernel_symbols[]` and `host_functions[]`.
//!
//! Readers index these by id, so each starts with a dummy for id 0, and gaps are filled with
//! dummies.

use super::emit::Emit;
use crate::job::Job;
use midair_record::event::{CodeObject, KernelSymbol};
use midair_trace::index::{Object, Symbol};
use midair_trace::kernel_name::{self, Spellings};
use midair_trace::limits;
use std::collections::BTreeMap;
use std::io;

/// Bytes of AMD's code object and kernel symbol data (source: api/rocprofiler_sdk.json).
const DATA_SIZE: u32 = 88;
/// `ROCPROFILER_CODE_OBJECT_STORAGE_TYPE_*`.
const STORAGE_FILE: u32 = 1;
const STORAGE_MEMORY: u32 = 2;

/// The most dummies for ids that nothing has, besides four for each id that something has. Our SDK
/// counts ids from 1, so a larger gap is a target's invention. Behind it, only existing entries are
/// listed.
const GAPS: u64 = 4096;

/// Returns the ids of a list, in order.
fn listed<T>(all: &BTreeMap<u64, T>) -> impl Iterator<Item = u64> {
    let last = all.last_key_value().map_or(0, |(id, _)| *id);
    let filled = last.min(4 * all.len() as u64 + GAPS);
    let beyond = all.range(filled + 1..).map(|(id, _)| *id);
    (0..=filled).chain(beyond)
}

pub(super) fn code_objects<W: io::Write>(out: &mut Emit<W>, job: &Job<'_>) -> io::Result<()> {
    let objects = &job.index.code_objects;
    out.key("code_objects")?;
    out.open_array()?;
    for id in listed(objects) {
        code_object(out, job, id, objects.get(&id))?;
    }
    out.close_array()
}

/// Writes the object of one code object, or the dummy for an id that none has.
pub(super) fn code_object<W: io::Write>(
    out: &mut Emit<W>,
    job: &Job<'_>,
    id: u64,
    object: Option<&Object>,
) -> io::Result<()> {
    let record = object.map_or_else(CodeObject::default, |object| object.record);
    let storage = match object {
        None => 0,
        Some(object) if object.record.memory_base != 0 => STORAGE_MEMORY,
        Some(_) => STORAGE_FILE,
    };
    let uri = object
        .map(|object| limits::text(&object.uri))
        .unwrap_or_default();
    out.open_object()?;
    out.number("size", if object.is_some() { DATA_SIZE } else { 0 })?;
    out.number("code_object_id", id)?;
    out.handle(
        "agent_id",
        if object.is_some() {
            job.handle(record.node)
        } else {
            0
        },
    )?;
    out.text("uri", &uri)?;
    out.number("load_base", record.load_base)?;
    out.number("load_size", record.load_size)?;
    out.number("load_delta", record.load_delta)?;
    out.number("storage_type", storage)?;
    match storage {
        STORAGE_MEMORY => {
            out.number("memory_base", record.memory_base)?;
            out.number("memory_size", record.memory_size)?;
        }
        // A file descriptor of the target means nothing to other processes.
        STORAGE_FILE => out.number("storage_file", -1)?,
        _ => {}
    }
    out.close_object()
}

pub(super) fn kernel_symbols<W: io::Write>(out: &mut Emit<W>, job: &Job<'_>) -> io::Result<()> {
    let symbols = &job.index.symbols;
    out.key("kernel_symbols")?;
    out.open_array()?;
    for id in listed(symbols) {
        kernel_symbol(out, job, id, symbols.get(&id))?;
    }
    out.close_array()
}

/// Writes the object of one kernel symbol, or the dummy for an id that none has.
pub(super) fn kernel_symbol<W: io::Write>(
    out: &mut Emit<W>,
    job: &Job<'_>,
    id: u64,
    symbol: Option<&Symbol>,
) -> io::Result<()> {
    let record = symbol.map_or_else(KernelSymbol::default, |symbol| symbol.record);
    let name = symbol
        .map(|symbol| limits::text(&symbol.name))
        .unwrap_or_default();
    let spellings = match symbol {
        Some(symbol) if job.is_named(id) => {
            kernel_name::spellings(&symbol.name, job.plan.kernel_names)
        }
        Some(symbol) => kernel_name::unchanged(&symbol.name),
        // AMD's dummy has this spelling.
        None => Spellings {
            formatted: "0".into(),
            demangled: "0".into(),
            truncated: "0".into(),
        },
    };
    out.open_object()?;
    out.number("size", if symbol.is_some() { DATA_SIZE } else { 0 })?;
    out.number("kernel_id", id)?;
    out.number("code_object_id", record.code_object_id)?;
    out.text("kernel_name", &name)?;
    out.number("kernel_object", record.kernel_object)?;
    out.number("kernarg_segment_size", record.kernarg_size)?;
    out.number("kernarg_segment_alignment", record.kernarg_align)?;
    out.number("group_segment_size", record.group_segment)?;
    out.number("private_segment_size", record.private_segment)?;
    out.number("sgpr_count", record.sgpr)?;
    out.number("arch_vgpr_count", record.arch_vgpr)?;
    out.number("accum_vgpr_count", record.accum_vgpr)?;
    out.number("kernel_code_entry_byte_offset", record.entry_offset)?;
    out.handle(
        "kernel_address",
        record
            .kernel_object
            .wrapping_add_signed(record.entry_offset),
    )?;
    out.text("formatted_kernel_name", &spellings.formatted)?;
    out.text("demangled_kernel_name", &spellings.demangled)?;
    out.text("truncated_kernel_name", &spellings.truncated)?;
    out.close_object()
}

/// Writes only the dummy. A compiler's code registers host functions at the program's start, which
/// is before an attach.
pub(super) fn host_functions<W: io::Write>(out: &mut Emit<W>) -> io::Result<()> {
    out.key("host_functions")?;
    out.open_array()?;
    out.open_object()?;
    for key in ["size", "host_function_id", "kernel_id", "code_object_id"] {
        out.number(key, 0)?;
    }
    out.handle("host_function", 0)?;
    out.handle("modules", 0)?;
    out.text("device_function", "")?;
    out.number("thread_limit", 0)?;
    for key in ["thread_ids", "block_ids", "block_dims", "grid_dims"] {
        out.extents(key, [0; 3])?;
    }
    out.number("workgroup_size", 0)?;
    for key in [
        "formatted_host_function_name",
        "demangled_host_function_name",
        "truncated_host_function_name",
    ] {
        out.text(key, "")?;
    }
    out.close_object()?;
    out.close_array()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(all: impl Iterator<Item = u64>) -> Vec<u64> {
        let all: BTreeMap<u64, ()> = all.map(|id| (id, ())).collect();
        listed(&all).collect()
    }

    /// Readers index the lists by id, so ids that a compiler left out have their dummies. Ids that
    /// a target made up do not fill a disk with them.
    #[test]
    fn gaps_are_filled_up_to_four_for_each_id_and_4096() {
        assert_eq!(ids([].into_iter()), [0]);
        assert_eq!(ids([1, 3].into_iter()), [0, 1, 2, 3]);
        let each_fifth: Vec<u64> = (1..=2000).map(|n| 5 * n).collect();
        assert_eq!(
            ids(each_fifth.into_iter()),
            (0..=10_000).collect::<Vec<u64>>()
        );
        let far: Vec<u64> = (0..=4096 + 4 * 2).chain([u64::MAX]).collect();
        assert_eq!(ids([1, u64::MAX].into_iter()), far);
    }
}
