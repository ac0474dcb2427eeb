//! Rejects unwind tables that would take for ever, or very long, to evaluate, before they are
//! evaluated.
//!
//! The tables are the target's own. An expression in them may jump backwards, and our unwinder
//! evaluates expressions without a bound (framehop 0.16, `eval_expr`). One such entry would hang
//! this process. So the entry for each address is checked first, and is found in the same way as
//! framehop finds it. Compilers emit no such jumps.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::Arc;

use gimli::{
    BaseAddresses, CallFrameInstruction, CallFrameInstructionIter, CommonInformationEntry, EhFrame,
    EhFrameHdr, EndianSlice, LittleEndian, Operation, UnwindExpression, UnwindSection,
};

/// The most instructions of one entry. The longest real entries have some thousands.
const MOST_INSTRUCTIONS: u32 = 1 << 14;
/// The most bytes of one expression.
const MOST_EXPRESSION: usize = 1 << 12;
/// The farthest that a register may be stored from its frame, in bytes. No stack is as large, and
/// the unwinder adds such distances without a check (framehop 0.16, `translate_into_unwind_rule`).
const FARTHEST: u64 = 1 << 40;
/// The most instructions that the entries of all frames of one pass over a stack may have together.
const MOST_OF_A_PASS: u32 = 1 << 17;

/// Bytes that the unwinder and this check share.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shared(Arc<Vec<u8>>);

impl Shared {
    pub(crate) fn new(bytes: Vec<u8>) -> Shared {
        Shared(Arc::new(bytes))
    }
}

impl Deref for Shared {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

type Bytes<'a> = EndianSlice<'a, LittleEndian>;
type Table<'a> = EhFrame<Bytes<'a>>;

/// The unwind tables of one module.
#[derive(Debug)]
pub(crate) struct Tables {
    frames: Shared,
    /// None: the unwinder looks up entries by an index of its own.
    header: Option<Shared>,
    bases: BaseAddresses,
    /// Whether all entries are harmless, where there is no header: then every entry was checked at
    /// the start. With a header, each entry is checked when it is used.
    all: bool,
}

/// How many instructions one pass may still check.
#[derive(Debug)]
pub(crate) struct Budget(Cell<u32>);

impl Budget {
    pub(crate) fn of_a_pass() -> Budget {
        Budget(Cell::new(MOST_OF_A_PASS))
    }

    fn spend(&self, instructions: u32) -> Option<()> {
        self.0.set(self.0.get().checked_sub(instructions)?);
        Some(())
    }
}

impl Tables {
    /// Takes the tables of a module. `bases` are those that the unwinder uses.
    pub(crate) fn new(frames: Shared, header: Option<Shared>, bases: BaseAddresses) -> Tables {
        let mut tables = Tables {
            frames,
            header,
            bases,
            all: false,
        };
        tables.all = tables.header.is_none() && tables.every_entry().is_some();
        tables
    }

    fn table(&self) -> Table<'_> {
        let mut table = EhFrame::new(&self.frames, LittleEndian);
        table.set_address_size(8);
        table
    }

    /// Whether the entry for a linked address may be evaluated. Where there is no entry, there is
    /// nothing to evaluate.
    pub(crate) fn are_harmless_at(&self, address: u64, budget: &Budget) -> bool {
        match &self.header {
            Some(header) => self.entry_at(header, address, budget).unwrap_or(false),
            None => self.all,
        }
    }

    /// None when the entry is not harmless, or when something in it is broken, so that the unwinder
    /// would give up as well.
    fn entry_at(&self, bytes: &Shared, address: u64, budget: &Budget) -> Option<bool> {
        let header = EhFrameHdr::new(bytes, LittleEndian);
        let Ok(header) = header.parse(&self.bases, 8) else {
            return Some(true);
        };
        let table = header.table()?;
        // Gimli multiplies the number of rows by their size without a check. A row has two numbers of
        // at least two bytes, and all of them must be in the header.
        let (rows, _) = table.iter(&self.bases).size_hint();
        rows.checked_mul(4).filter(|size| *size <= bytes.len())?;
        let pointer = table.lookup(address, &self.bases).ok()?;
        // Gimli's own conversion subtracts without a check, here and in the unwinder. So the
        // subtraction is checked first.
        let begin = header.eh_frame_ptr().direct().ok()?;
        pointer.direct().ok()?.checked_sub(begin)?;
        let offset = table.pointer_to_offset(pointer).ok()?;
        let table = self.table();
        let entry = table
            .fde_from_offset(&self.bases, offset, EhFrame::cie_from_offset)
            .ok()?;
        let mut count = 0;
        instructions(
            &table,
            entry.cie().instructions(&table, &self.bases),
            entry.cie(),
            &mut count,
        )?;
        instructions(
            &table,
            entry.instructions(&table, &self.bases),
            entry.cie(),
            &mut count,
        )?;
        budget.spend(count)?;
        Some(true)
    }

    fn every_entry(&self) -> Option<()> {
        let table = self.table();
        let mut entries = table.entries(&self.bases);
        let mut total = 0_u32;
        while let Some(entry) = entries.next().ok()? {
            let gimli::CieOrFde::Fde(entry) = entry else {
                continue;
            };
            let entry = entry.parse(EhFrame::cie_from_offset).ok()?;
            let mut count = 0;
            instructions(
                &table,
                entry.cie().instructions(&table, &self.bases),
                entry.cie(),
                &mut count,
            )?;
            instructions(
                &table,
                entry.instructions(&table, &self.bases),
                entry.cie(),
                &mut count,
            )?;
            total = total
                .checked_add(count)
                .filter(|total| *total < u32::MAX >> 4)?;
        }
        Some(())
    }
}

/// Returns None when one of the instructions is not harmless.
fn instructions(
    table: &Table<'_>,
    mut all: CallFrameInstructionIter<'_, Bytes<'_>>,
    common: &CommonInformationEntry<Bytes<'_>>,
    count: &mut u32,
) -> Option<()> {
    // As gimli computes it.
    let near = |factored: i64| {
        let distance = factored.wrapping_mul(common.data_alignment_factor());
        (distance.unsigned_abs() <= FARTHEST).then_some(())
    };
    while let Some(instruction) = all.next().ok()? {
        *count += 1;
        if *count > MOST_INSTRUCTIONS {
            return None;
        }
        match instruction {
            CallFrameInstruction::DefCfaExpression { expression }
            | CallFrameInstruction::Expression { expression, .. }
            | CallFrameInstruction::ValExpression { expression, .. } => {
                straight(table, &expression, common.encoding())?;
            }
            CallFrameInstruction::Offset {
                factored_offset, ..
            } => near(factored_offset as i64)?,
            CallFrameInstruction::OffsetExtendedSf {
                factored_offset, ..
            } => near(factored_offset)?,
            _ => {}
        }
    }
    Some(())
}

/// Returns None when the expression jumps backwards or is very long. An expression that only jumps
/// forwards comes to an end.
fn straight(
    table: &Table<'_>,
    expression: &UnwindExpression<usize>,
    encoding: gimli::Encoding,
) -> Option<()> {
    let expression = expression.get(table).ok()?;
    if expression.0.len() > MOST_EXPRESSION {
        return None;
    }
    let mut operations = expression.operations(encoding);
    while let Some(operation) = operations.next().ok()? {
        if let Operation::Bra { target } | Operation::Skip { target } = operation
            && target < 0
        {
            return None;
        }
    }
    Some(())
}
