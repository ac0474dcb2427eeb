//! How one frame leads to the one that called it: a rule for each address, from the tables of its
//! module, in one word.

use super::bounds::Bounds;
use super::modules::Tables;
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, Expression, LittleEndian, Operation,
    Register, RegisterRule, UnwindContext, UnwindContextStorage, UnwindSection,
};

/// The numbers of registers in the tables (source: the ABI for x86-64, "DWARF Register Number
/// Mapping").
const RBP: Register = Register(6);
const RSP: Register = Register(7);
const RETURN: Register = Register(16);
/// The most rows of one function. Generated functions have some thousand.
const MOST_ROWS: usize = 1 << 16;

/// Where the frame that is looked at stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Registers {
    pub(crate) pc: u64,
    pub(crate) sp: u64,
    /// None where the tables say that it is lost.
    pub(crate) fp: Option<u64>,
}

/// What a frame's end is counted from: the stack pointer as it was before the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The stack pointer, and this many bytes.
    Stack(i64),
    /// The frame pointer, and this many bytes.
    Frame(i64),
    /// The word that lies this many bytes behind the frame pointer: functions that align their stack.
    Stored(i64),
}

/// Where the caller's frame pointer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Saved {
    Unchanged,
    /// This many bytes behind the frame's end.
    Behind(i64),
    /// This many bytes behind the frame pointer.
    ByFrame(i64),
    Lost,
}

/// What leads from a frame to its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Nothing: threads and programs start here.
    Root,
    /// The module has no entry for the address. Code that keeps frame pointers can be followed.
    NoEntry,
    /// The entry has a form that is not followed.
    Unusual,
    Step(End, Saved),
}

/// Bits of a word: the kind, the saved register's kind, both distances in units of eight bytes.
const KIND: u32 = 4;
const SAVED: u32 = 2;
const DISTANCE: u32 = 24;
const OTHER: u32 = 18;
/// Bits that are left for the caller's own use.
pub(crate) const FREE: u32 = 64 - KIND - SAVED - DISTANCE - OTHER;

/// Returns a distance as a field of `bits` bits, if it fits.
fn field(distance: i64, bits: u32) -> Option<u64> {
    let units = distance / 8;
    let limit = 1_i64 << (bits - 1);
    let fits = distance % 8 == 0 && (-limit..limit).contains(&units);
    fits.then_some(units as u64 & ((1 << bits) - 1))
}

/// Returns the distance of a field.
fn distance(word: u64, bits: u32) -> i64 {
    ((word << (64 - bits)) as i64 >> (64 - bits)) * 8
}

impl Rule {
    /// Returns the rule as a word whose upper [`FREE`] bits are 0. It is never 0.
    pub(crate) fn packed(self) -> u64 {
        let (kind, end, (saved, other)) = match self {
            Rule::Root => (1, 0, (0, 0)),
            Rule::NoEntry => (2, 0, (0, 0)),
            Rule::Unusual => (3, 0, (0, 0)),
            Rule::Step(end, saved) => {
                let (kind, distance) = match end {
                    End::Stack(distance) => (4, distance),
                    End::Frame(distance) => (5, distance),
                    End::Stored(distance) => (6, distance),
                };
                let saved = match saved {
                    Saved::Unchanged => (0, 0),
                    Saved::Behind(distance) => (1, distance),
                    Saved::ByFrame(distance) => (2, distance),
                    Saved::Lost => (3, 0),
                };
                (kind, distance, saved)
            }
        };
        let (Some(end), Some(other)) = (field(end, DISTANCE), field(other, OTHER)) else {
            return Rule::Unusual.packed();
        };
        kind | saved << KIND | end << (KIND + SAVED) | other << (KIND + SAVED + DISTANCE)
    }

    pub(crate) fn unpacked(word: u64) -> Rule {
        let end = distance(word >> (KIND + SAVED), DISTANCE);
        let other = distance(word >> (KIND + SAVED + DISTANCE), OTHER);
        let saved = match word >> KIND & 3 {
            0 => Saved::Unchanged,
            1 => Saved::Behind(other),
            2 => Saved::ByFrame(other),
            _ => Saved::Lost,
        };
        match word & 15 {
            1 => Rule::Root,
            2 => Rule::NoEntry,
            4 => Rule::Step(End::Stack(end), saved),
            5 => Rule::Step(End::Frame(end), saved),
            6 => Rule::Step(End::Stored(end), saved),
            _ => Rule::Unusual,
        }
    }

    /// Returns where the caller of a frame stands. None at the root, and where the frame cannot be
    /// left by this rule: then its stack ends here.
    #[inline]
    pub(crate) fn step(self, at: Registers, stack: &Bounds) -> Option<Registers> {
        let (end, saved) = match self {
            Rule::Root | Rule::Unusual => return None,
            Rule::NoEntry => (End::Frame(16), Saved::ByFrame(0)),
            Rule::Step(end, saved) => (end, saved),
        };
        let end = match end {
            End::Stack(distance) => at.sp.checked_add_signed(distance)?,
            End::Frame(distance) => at.fp?.checked_add_signed(distance)?,
            End::Stored(distance) => stack.read(at.fp?.checked_add_signed(distance)?)?,
        };
        // A call has stored the address to which it returns, so each frame ends above the one before.
        if end <= at.sp {
            return None;
        }
        let pc = stack.read(end.checked_sub(8)?)?;
        let fp = match saved {
            Saved::Unchanged => at.fp,
            Saved::Behind(distance) => Some(stack.read(end.checked_add_signed(distance)?)?),
            Saved::ByFrame(distance) => Some(stack.read(at.fp?.checked_add_signed(distance)?)?),
            Saved::Lost => None,
        };
        Some(Registers { pc, sp: end, fp })
    }
}

/// Room for the rules of one function: x86-64 has 17 registers that are saved, and compilers nest
/// remembered rows once.
struct OnStack;

impl UnwindContextStorage<usize> for OnStack {
    type Rules = [(Register, RegisterRule<usize>); 20];
    type Stack = [gimli::UnwindTableRow<usize, Self>; 4];
}

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Returns the rule for an address of a module. It allocates nothing.
#[cold]
pub(crate) fn of(tables: &Tables, address: u64) -> Rule {
    match entry(tables, address) {
        Ok(Some(rule)) => rule,
        Ok(None) => Rule::NoEntry,
        Err(_) => Rule::Unusual,
    }
}

/// Returns the addresses of the function around an address, if the tables have an entry for it.
pub(crate) fn function(tables: &Tables, address: u64) -> Option<std::ops::Range<u64>> {
    let bases = bases(tables);
    let frames = EhFrame::new(&tables.frames, LittleEndian);
    let found = found(tables, &bases, &frames, address).ok()??;
    Some(found.initial_address()..found.initial_address().checked_add(found.len())?)
}

fn bases(tables: &Tables) -> BaseAddresses {
    BaseAddresses::default()
        .set_eh_frame(tables.frames_at)
        .set_eh_frame_hdr(tables.header_at)
}

fn found<'t>(
    tables: &'t Tables,
    bases: &BaseAddresses,
    frames: &EhFrame<Slice<'t>>,
    address: u64,
) -> gimli::Result<Option<gimli::FrameDescriptionEntry<Slice<'t>>>> {
    if tables.header.is_empty() {
        return Ok(None);
    }
    let header = EhFrameHdr::new(&tables.header, LittleEndian).parse(bases, 8)?;
    let Some(table) = header.table() else {
        return Ok(None);
    };
    let at = table.lookup(address, bases)?.direct()?;
    let Some(offset) = at.checked_sub(tables.frames_at) else {
        return Ok(None);
    };
    let offset = gimli::EhFrameOffset(offset as usize);
    let entry = frames.fde_from_offset(bases, offset, EhFrame::cie_from_offset)?;
    Ok(entry.contains(address).then_some(entry))
}

fn entry(tables: &Tables, address: u64) -> gimli::Result<Option<Rule>> {
    let bases = bases(tables);
    let frames = EhFrame::new(&tables.frames, LittleEndian);
    let Some(entry) = found(tables, &bases, &frames, address)? else {
        return Ok(None);
    };
    // A frame that a signal has made has all registers in another place.
    if entry.is_signal_trampoline() || entry.cie().return_address_register() != RETURN {
        return Ok(Some(Rule::Unusual));
    }
    let mut context = UnwindContext::<usize, OnStack>::new_in();
    let mut rows = entry.rows(&frames, &bases, &mut context)?;
    for _ in 0..MOST_ROWS {
        let Some(row) = rows.next_row()? else {
            break;
        };
        if row.contains(address) {
            let registers = [RETURN, RBP].map(|register| row.register(register));
            return Ok(Some(of_row(&frames, row.cfa(), registers)));
        }
    }
    Ok(Some(Rule::Unusual))
}

fn of_row(
    frames: &EhFrame<Slice<'_>>,
    end: &CfaRule<usize>,
    [back, saved]: [Option<RegisterRule<usize>>; 2],
) -> Rule {
    match back {
        Some(RegisterRule::Undefined) => return Rule::Root,
        Some(RegisterRule::Offset(-8)) => {}
        _ => return Rule::Unusual,
    }
    let end = match end {
        CfaRule::RegisterAndOffset { register, offset } if *register == RSP => End::Stack(*offset),
        CfaRule::RegisterAndOffset { register, offset } if *register == RBP => End::Frame(*offset),
        CfaRule::RegisterAndOffset { .. } => return Rule::Unusual,
        CfaRule::Expression(expression) => match expression.get(frames).map(by_frame) {
            Ok(Some((distance, true))) => End::Stored(distance),
            _ => return Rule::Unusual,
        },
    };
    let saved = match saved {
        None | Some(RegisterRule::SameValue) => Saved::Unchanged,
        Some(RegisterRule::Offset(distance)) => Saved::Behind(distance),
        Some(RegisterRule::Expression(expression)) => match expression.get(frames).map(by_frame) {
            Ok(Some((distance, false))) => Saved::ByFrame(distance),
            _ => Saved::Lost,
        },
        Some(_) => Saved::Lost,
    };
    Rule::Step(end, saved)
}

/// Returns an expression that is a distance from the frame pointer, and whether it is the word there.
/// Other expressions are not followed.
fn by_frame(expression: Expression<Slice<'_>>) -> Option<(i64, bool)> {
    let mut operations = expression.operations(gimli::Encoding {
        address_size: 8,
        format: gimli::Format::Dwarf32,
        version: 4,
    });
    let Ok(Some(Operation::RegisterOffset {
        register: RBP,
        offset,
        ..
    })) = operations.next()
    else {
        return None;
    };
    match operations.next() {
        Ok(None) => Some((offset, false)),
        Ok(Some(Operation::Deref {
            size: 8,
            space: false,
            ..
        })) => matches!(operations.next(), Ok(None)).then_some((offset, true)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_the_same_after_it_was_packed() {
        let mut rules = vec![Rule::Root, Rule::NoEntry, Rule::Unusual];
        for distance in [0, 8, 16, -8, 4096, -(1 << 25), (1 << 26) - 8] {
            for end in [
                End::Stack(distance),
                End::Frame(distance),
                End::Stored(distance),
            ] {
                for near in [-16, 0, 8, (1 << 20) - 8] {
                    for saved in [
                        Saved::Unchanged,
                        Saved::Behind(near),
                        Saved::ByFrame(near),
                        Saved::Lost,
                    ] {
                        rules.push(Rule::Step(end, saved));
                    }
                }
            }
        }
        for rule in rules {
            let word = rule.packed();
            assert!(word != 0 && word >> (64 - FREE) == 0, "{rule:?}");
            assert_eq!(Rule::unpacked(word), rule);
        }
    }

    #[test]
    fn a_distance_that_does_not_fit_is_not_followed() {
        for end in [4, 1 << 26, -(1 << 26) - 8, i64::MAX, i64::MIN] {
            let rule = Rule::Step(End::Stack(end), Saved::Unchanged);
            assert_eq!(Rule::unpacked(rule.packed()), Rule::Unusual);
        }
        let rule = Rule::Step(End::Stack(8), Saved::Behind(1 << 20));
        assert_eq!(Rule::unpacked(rule.packed()), Rule::Unusual);
    }
}
