//! The counter registers of gfx908, gfx90a, gfx942 and gfx950, which are the same, and the
//! registers of gfx1100 and gfx1201.
//!
//! Source: decoded from packets of AMD's library (`docs/sources.md#counters`). Addresses are in
//! words, as in PM4.

use super::gpu::Family;

/// `GRBM_GFX_INDEX`.
pub const GRBM_GFX_INDEX: u32 = 0xc200;
/// `CP_PERFMON_CNTL`.
pub const CP_PERFMON_CNTL: u32 = 0xd808;
/// `COMPUTE_PERFCOUNT_ENABLE`, of the queue.
pub const COMPUTE_PERFCOUNT_ENABLE: u32 = 0x2e0b;

/// What `GRBM_GFX_INDEX` refers to; `None` means all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unit {
    /// Shader engine of the XCC.
    pub engine: Option<u32>,
    /// Shader array of the engine.
    pub array: Option<u32>,
    /// Instance in it.
    pub instance: Option<u32>,
}

impl Unit {
    /// All units.
    pub const ALL: Unit = Unit {
        engine: None,
        array: None,
        instance: None,
    };

    /// Decodes a value of the register: bits 0-7 instance, 8-15 array, 16-23 engine; bit 29 all
    /// arrays, 30 all instances, 31 all engines.
    pub fn of(index: u32) -> Unit {
        let field = |shift: u32, all: u32| (index >> all & 1 == 0).then_some(index >> shift & 0xff);
        Unit {
            engine: field(16, 31),
            array: field(8, 29),
            instance: field(0, 30),
        }
    }

    /// Returns whether this includes everything that `other` refers to.
    fn covers(self, other: Unit) -> bool {
        let covers = |mine: Option<u32>, theirs: Option<u32>| mine.is_none() || mine == theirs;
        covers(self.engine, other.engine)
            && covers(self.array, other.array)
            && covers(self.instance, other.instance)
    }

    /// Returns whether both refer to a common unit.
    fn meets(self, other: Unit) -> bool {
        let meets = |mine: Option<u32>, theirs: Option<u32>| {
            mine.is_none() || theirs.is_none() || mine == theirs
        };
        meets(self.engine, other.engine)
            && meets(self.array, other.array)
            && meets(self.instance, other.instance)
    }
}

/// Registers that each unit has for itself: the writes that are still valid for some unit, oldest
/// first.
#[derive(Debug, Default)]
pub struct Banked(std::collections::BTreeMap<u32, Vec<(Unit, u32)>>);

impl Banked {
    /// Writes a register of these units.
    pub fn set(&mut self, register: u32, unit: Unit, value: u32) {
        let writes = self.0.entry(register).or_default();
        writes.retain(|(older, _)| !unit.covers(*older));
        writes.push((unit, value));
    }

    /// Returns what was last written for one of these units, or `None` if nothing was.
    pub fn get(&self, register: u32, unit: Unit) -> Option<u32> {
        let writes = self.0.get(&register)?;
        let last = writes.iter().rev().find(|(written, _)| written.meets(unit));
        last.map(|(_, value)| *value)
    }
}

/// The place where a block has its counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// One in each XCC.
    Xcc,
    /// One in each of this many channels of an XCC.
    Channels(u32),
    /// One in each shader engine.
    Engine,
    /// One in each WGP of each array: bits 2-7 of the instance.
    Wgp,
    /// One in each compute unit.
    Unit,
}

/// One counter of a block.
#[derive(Debug)]
pub struct Slot {
    /// Register that selects the event.
    pub select: u32,
    /// Register of the low half.
    pub low: u32,
    /// Register of the high half.
    pub high: u32,
}

/// A block with counters.
#[derive(Debug)]
pub struct Block {
    /// AMD's name.
    pub name: &'static str,
    /// Where it is.
    pub place: Place,
    /// How many bits of a select register name the event.
    pub events: u32,
    /// Its counters.
    pub slots: &'static [Slot],
}

const fn slot(select: u32, low: u32, high: u32) -> Slot {
    Slot { select, low, high }
}

/// Returns a counter with the low half first.
const fn up(select: u32, low: u32) -> Slot {
    slot(select, low, low + 1)
}

const CPC: Block = Block {
    name: "CPC",
    place: Place::Xcc,
    events: 0x3ff,
    slots: &[up(0xd809, 0xd006), up(0xd803, 0xd004)],
};
const CPF: Block = Block {
    name: "CPF",
    place: Place::Xcc,
    events: 0x3ff,
    slots: &[up(0xd807, 0xd00a), up(0xd805, 0xd008)],
};
const GRBM: Block = Block {
    name: "GRBM",
    place: Place::Xcc,
    events: 0x3f,
    slots: &[up(0xd840, 0xd040), up(0xd841, 0xd043)],
};
const SPI: Block = Block {
    name: "SPI",
    place: Place::Engine,
    events: 0x3ff,
    // Here the low half comes after the high half.
    slots: &[
        slot(0xd980, 0xd181, 0xd180),
        slot(0xd981, 0xd183, 0xd182),
        slot(0xd982, 0xd185, 0xd184),
        slot(0xd983, 0xd187, 0xd186),
        slot(0xd988, 0xd189, 0xd188),
        slot(0xd989, 0xd18b, 0xd18a),
    ],
};
const SQ: Block = Block {
    name: "SQ",
    place: Place::Engine,
    events: 0x1ff,
    slots: &[
        up(0xd9c0, 0xd1c0),
        up(0xd9c1, 0xd1c2),
        up(0xd9c2, 0xd1c4),
        up(0xd9c3, 0xd1c6),
        up(0xd9c4, 0xd1c8),
        up(0xd9c5, 0xd1ca),
        up(0xd9c6, 0xd1cc),
        up(0xd9c7, 0xd1ce),
    ],
};
const TA: Block = Block {
    name: "TA",
    place: Place::Unit,
    events: 0x3ff,
    slots: &[up(0xdac0, 0xd2c0), up(0xdac2, 0xd2c2)],
};
const TD: Block = Block {
    name: "TD",
    place: Place::Unit,
    events: 0x3ff,
    slots: &[up(0xdb00, 0xd300), up(0xdb02, 0xd302)],
};
const TCP: Block = Block {
    name: "TCP",
    place: Place::Unit,
    events: 0x3ff,
    slots: &[
        up(0xdb40, 0xd340),
        up(0xdb42, 0xd342),
        up(0xdb44, 0xd344),
        up(0xdb45, 0xd346),
    ],
};
const TCC: Block = Block {
    name: "TCC",
    place: Place::Channels(16),
    events: 0x3ff,
    slots: &[
        up(0xdb80, 0xd380),
        up(0xdb82, 0xd382),
        up(0xdb84, 0xd384),
        up(0xdb85, 0xd386),
    ],
};
const TCA: Block = Block {
    name: "TCA",
    place: Place::Channels(32),
    events: 0x3ff,
    slots: &[
        up(0xdb90, 0xd390),
        up(0xdb92, 0xd392),
        up(0xdb94, 0xd394),
        up(0xdb95, 0xd396),
    ],
};
/// On GPUs with WGPs each of them has its own counters, of 32 bits.
const SQ_OF_WGP: Block = Block {
    name: "SQ",
    place: Place::Wgp,
    events: 0x1ff,
    slots: &[
        up(0xd9c0, 0xd1c0),
        up(0xd9c2, 0xd1c2),
        up(0xd9c4, 0xd1c4),
        up(0xd9c6, 0xd1c6),
        up(0xd9c8, 0xd1c8),
        up(0xd9ca, 0xd1ca),
        up(0xd9cc, 0xd1cc),
        up(0xd9ce, 0xd1ce),
    ],
};
const SPI_OF_GFX12: Block = Block {
    slots: &[
        slot(0xd980, 0xd181, 0xd180),
        slot(0xd981, 0xd183, 0xd182),
        slot(0xd982, 0xd185, 0xd184),
        slot(0xd983, 0xd187, 0xd186),
        slot(0xd984, 0xd189, 0xd188),
        slot(0xd985, 0xd18b, 0xd18a),
    ],
    ..SPI
};

/// All blocks that the model counts for, by family.
static GFX9: [Block; 10] = [CPC, CPF, GRBM, SPI, SQ, TA, TD, TCP, TCC, TCA];
static GFX11: [Block; 8] = [CPC, CPF, GRBM, SPI, SQ_OF_WGP, TA, TD, TCP];
static GFX12: [Block; 8] = [CPC, CPF, GRBM, SPI_OF_GFX12, SQ_OF_WGP, TA, TD, TCP];

impl Family {
    /// Returns the blocks that the model counts for.
    pub fn blocks(self) -> &'static [Block] {
        match self {
            Family::Gfx9 => &GFX9,
            Family::Gfx11 => &GFX11,
            Family::Gfx12 => &GFX12,
        }
    }
}

/// The counter that a register belongs to.
#[derive(Debug, Clone, Copy)]
pub struct Counter {
    /// Its block.
    pub block: &'static Block,
    /// Its number in the block.
    pub slot: usize,
}

impl Counter {
    /// Returns the counter that a register reads, and whether the register is the high half.
    pub fn read_by(family: Family, register: u32) -> Option<(Counter, bool)> {
        family.blocks().iter().find_map(|block| {
            let slot = block
                .slots
                .iter()
                .position(|s| s.low == register || s.high == register)?;
            let high = block.slots[slot].high == register;
            Some((Counter { block, slot }, high))
        })
    }
}

/// Returns a block of a family by its name.
pub fn block(family: Family, name: &str) -> Option<&'static Block> {
    family.blocks().iter().find(|block| block.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_register_belongs_to_two_counters() {
        for family in [Family::Gfx9, Family::Gfx11, Family::Gfx12] {
            let mut seen = std::collections::BTreeSet::new();
            for slot in family.blocks().iter().flat_map(|block| block.slots) {
                for register in [slot.select, slot.low, slot.high] {
                    assert!(seen.insert(register), "{family:?}: {register:#x}");
                }
            }
        }
    }

    #[test]
    fn a_write_to_all_takes_the_place_of_those_to_one() {
        let one = Unit::of(2 << 16 | 5);
        assert_eq!(
            (one.engine, one.array, one.instance),
            (Some(2), Some(0), Some(5))
        );
        let mut banked = Banked::default();
        banked.set(7, Unit::ALL, 1);
        banked.set(7, one, 2);
        assert_eq!(banked.get(7, one), Some(2));
        assert_eq!(banked.get(7, Unit::of(1 << 16)), Some(1));
        assert_eq!(Unit::of(0xe000_0000), Unit::ALL);
        banked.set(7, Unit::ALL, 3);
        assert_eq!(banked.get(7, one), Some(3));
        assert_eq!(banked.get(8, one), None);
    }
}
