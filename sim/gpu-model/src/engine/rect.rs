//! The rectangular copy packet of the SDMA engines.

use crate::machine::Machine;

/// One side of a rectangular copy. Offsets and pitches are in elements.
#[derive(Debug, Clone, Copy)]
struct Side {
    base: u64,
    x: u64,
    y: u64,
    z: u64,
    row: u64,
    slice: u64,
}

impl Side {
    /// Decodes the five dwords of a side, which start at `d[0]`.
    fn decode(d: &[u32]) -> Side {
        let word = |n: usize| u64::from(d.get(n).copied().unwrap_or(0));
        Side {
            base: word(0) | word(1) << 32,
            x: word(2) & 0x3fff,
            y: word(2) >> 16 & 0x3fff,
            z: word(3) & 0x7ff,
            row: (word(3) >> 13) + 1,
            slice: (word(4) & 0x0fff_ffff) + 1,
        }
    }
    fn at(&self, y: u64, z: u64, element: u64) -> u64 {
        self.base + ((self.z + z) * self.slice + (self.y + y) * self.row + self.x) * element
    }
}

/// A decoded rectangular copy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rect {
    element: u64,
    src: Side,
    dst: Side,
    width: u64,
    height: u64,
    depth: u64,
}

impl Rect {
    /// The number of dwords of the packet.
    pub(super) const DWORDS: u64 = 13;

    pub(super) fn decode(d: &[u32; 16]) -> Rect {
        Rect {
            element: 1 << (d[0] >> 29 & 7),
            src: Side::decode(&d[1..6]),
            dst: Side::decode(&d[6..11]),
            width: u64::from(d[11] & 0x3fff) + 1,
            height: u64::from(d[11] >> 16 & 0x3fff) + 1,
            depth: u64::from(d[12] & 0x7ff) + 1,
        }
    }
    pub(super) fn src(&self) -> u64 {
        self.src.at(0, 0, self.element)
    }
    pub(super) fn dst(&self) -> u64 {
        self.dst.at(0, 0, self.element)
    }
    pub(super) fn bytes(&self) -> u64 {
        self.width * self.height * self.depth * self.element
    }
    pub(super) fn run(&self, machine: &impl Machine) {
        for z in 0..self.depth {
            for y in 0..self.height {
                let (to, from) = (
                    self.dst.at(y, z, self.element),
                    self.src.at(y, z, self.element),
                );
                machine.copy(to, from, self.width * self.element);
            }
        }
    }
}
