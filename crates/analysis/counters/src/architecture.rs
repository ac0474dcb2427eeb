//! Which counters a GPU has.

use crate::dimension::Dimension;
use std::sync::LazyLock;

/// Counters of one GPU architecture.
#[derive(Debug)]
pub struct Architecture {
    /// "gfx942".
    pub name: &'static str,
    /// Sorted by name.
    pub counters: &'static [Counter],
    /// Sorted by name.
    pub blocks: &'static [Block],
    /// The GPU whose instances [`Block::dimensions`] numbers.
    pub shape: Shape,
}

/// The numbers of a GPU's parts. Totals cover all XCCs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Accelerator complex dies.
    pub xccs: u32,
    /// Shader engines.
    pub engines: u32,
    /// Compute units.
    pub units: u32,
    /// Shader arrays of each engine.
    pub arrays: u32,
}

/// A counter, as AMD's definitions describe it.
#[derive(Debug, Clone, Copy)]
pub struct Counter {
    /// Its name.
    pub name: &'static str,
    /// What the author of an added counter says about it; empty for those that are built in.
    pub description: &'static str,
    /// What it is.
    pub definition: Definition,
}

/// What a counter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Definition {
    /// An event that a block of the hardware counts.
    Basic {
        /// The block.
        block: &'static str,
        /// The number of the event there.
        event: u32,
    },
    /// A value computed from other counters.
    Derived {
        /// See [`crate::expression`].
        expression: &'static str,
    },
}

/// A block of the hardware.
#[derive(Debug)]
pub struct Block {
    /// Its name, such as "SQ".
    pub name: &'static str,
    /// How many events each of its instances can count at once.
    pub counters: u32,
    /// How its instances are numbered on a GPU of [`Architecture::shape`], in the order of AMD's
    /// packet library; see [`Architecture::extents`].
    pub dimensions: &'static [(Dimension, u32)],
}

/// Blocks that each compute unit has one of. On gfx9 their instances are numbered up to the
/// greatest number that an engine may have, plus one.
const OF_UNITS: [&str; 3] = ["TA", "TCP", "TD"];

/// An architecture as the build generates it. Its counters are lines of a text with tabs between
/// the words: name, block and event, or name and expression. A table of [`Counter`]s would have to
/// be relocated in each process that has this library, while few processes ask for it.
struct Packed {
    name: &'static str,
    counters: &'static str,
    blocks: &'static [Block],
    shape: Shape,
}

include!(concat!(env!("OUT_DIR"), "/counters.rs"));

/// All architectures, unpacked at the first use.
static ARCHITECTURES: LazyLock<Vec<Architecture>> =
    LazyLock::new(|| PACKED.iter().map(Packed::unpack).collect());

/// The same architectures without counters.
static BARE: LazyLock<Vec<Architecture>> = LazyLock::new(|| {
    let bare = |packed: &Packed| Architecture {
        counters: &[],
        ..packed.unpack()
    };
    PACKED.iter().map(bare).collect()
});

impl Packed {
    fn unpack(&self) -> Architecture {
        let counters = self.counters.lines().filter_map(|line| {
            let mut parts = line.split('\t');
            let (name, what) = (parts.next()?, parts.next()?);
            let definition = match parts.next() {
                Some(event) => Definition::Basic {
                    block: what,
                    event: event.parse().ok()?,
                },
                None => Definition::Derived { expression: what },
            };
            Some(Counter {
                name,
                description: "",
                definition,
            })
        });
        Architecture {
            name: self.name,
            counters: Vec::leak(counters.collect()),
            blocks: self.blocks,
            shape: self.shape,
        }
    }
}

impl Architecture {
    /// Returns the architecture of a GPU by its target ("gfx942"; features after a colon are
    /// ignored).
    pub fn find(target: &str) -> Option<&'static Architecture> {
        let name = target.split(':').next().unwrap_or(target);
        ARCHITECTURES.iter().find(|a| a.name == name)
    }

    /// Returns all known architectures.
    pub fn all() -> &'static [Architecture] {
        &ARCHITECTURES
    }

    /// Returns the same architecture without counters, for definitions that replace all of them.
    pub fn bare(&self) -> Option<&'static Architecture> {
        BARE.iter().find(|bare| bare.name == self.name)
    }

    /// Returns a counter by its name.
    pub fn counter(&self, name: &str) -> Option<&'static Counter> {
        let at = self.counters.binary_search_by(|c| c.name.cmp(name)).ok()?;
        self.counters.get(at)
    }

    /// Returns how many events each instance of a block can count at once.
    pub fn limit(&self, block: &str) -> Option<u32> {
        Some(self.block(block)?.counters)
    }

    /// Returns a block by its name.
    pub fn block(&self, name: &str) -> Option<&'static Block> {
        self.blocks.iter().find(|b| b.name == name)
    }

    /// Returns the dimensions in which a block's instances are numbered on a GPU of this shape, and
    /// how many numbers each has. Empty for an unknown block.
    ///
    /// AMD's library was asked for these numbers for one shape. Those that depend on the shape are
    /// computed, by the rule that fits all the shapes that the library was asked about.
    pub fn extents(&self, block: &str, shape: Shape) -> Vec<(Dimension, u32)> {
        let Some(block) = self.block(block) else {
            return Vec::new();
        };
        let engines = shape.engines.max(1);
        let old = self.name.starts_with("gfx9");
        let of = |&(dimension, listed): &(Dimension, u32)| {
            let extent = match dimension {
                Dimension::Xcc => shape.xccs,
                Dimension::ShaderEngine => shape.engines / shape.xccs.max(1),
                Dimension::ShaderArray => shape.arrays,
                Dimension::Wgp => shape.units / engines / shape.arrays.max(1) / 2,
                Dimension::Instance if old && OF_UNITS.contains(&block.name) => {
                    shape.units.div_ceil(engines) + 1
                }
                _ => listed,
            };
            (dimension, extent.max(1))
        };
        let mut extents: Vec<(Dimension, u32)> = block.dimensions.iter().map(of).collect();
        // A GPU with a single XCC does not number it; a GPU with several does.
        extents.retain(|(dimension, _)| *dimension != Dimension::Xcc);
        if shape.xccs > 1 {
            extents.insert(0, (Dimension::Xcc, shape.xccs));
        }
        extents
    }

    /// Returns at most three names that resemble an unknown name, the nearest first.
    pub fn nearest(&self, name: &str) -> Vec<&'static str> {
        let wanted = name.to_ascii_uppercase();
        let mut found: Vec<(usize, &'static str)> = self
            .counters
            .iter()
            .map(|c| (distance(&wanted, &c.name.to_ascii_uppercase()), c.name))
            .filter(|(distance, _)| *distance <= wanted.len() / 3)
            .collect();
        found.sort();
        found.into_iter().take(3).map(|(_, name)| name).collect()
    }
}

/// Returns how many characters have to be inserted, removed, replaced or swapped with their
/// neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i + 1);
        for j in 0..b.len() {
            let replaced = last[j] + usize::from(a[i] != b[j]);
            let mut least = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_whole() {
        let gfx942 = Architecture::find("gfx942:sramecc+:xnack-").unwrap();
        assert_eq!(gfx942.name, "gfx942");
        assert_eq!(
            gfx942.counter("SQ_WAVES").unwrap().definition,
            Definition::Basic {
                block: "SQ",
                event: 4
            }
        );
        assert!(matches!(
            gfx942.counter("CU_NUM").unwrap().definition,
            Definition::Derived {
                expression: "simd_count/simd_per_cu"
            }
        ));
        assert_eq!(
            (gfx942.limit("SQ"), gfx942.limit("GRBM"), gfx942.limit("?")),
            (Some(8), Some(2), None)
        );
        assert_eq!(Architecture::all().len(), 6);
        assert!(gfx942.bare().unwrap().counters.is_empty());
        assert!(gfx942.bare().unwrap().limit("SQ").is_some());
        let counters: usize = Architecture::all().iter().map(|a| a.counters.len()).sum();
        assert_eq!(counters, 2044);
        assert!(Architecture::find("gfx900").is_none());
        for architecture in Architecture::all() {
            for counter in architecture.counters {
                if let Definition::Basic { block, .. } = counter.definition {
                    assert!(architecture.limit(block).is_some(), "{}", counter.name);
                }
            }
        }
    }

    #[test]
    fn extents_follow_the_shape() {
        use Dimension::{Instance, ShaderArray, ShaderEngine, Wgp, Xcc};
        for architecture in Architecture::all() {
            for block in architecture.blocks {
                let extents = architecture.extents(block.name, architecture.shape);
                assert_eq!(
                    extents, block.dimensions,
                    "{} {}",
                    architecture.name, block.name
                );
            }
        }
        let gfx942 = Architecture::find("gfx942").unwrap();
        // One XCC of the eight, as in CPX mode: AMD's library was asked about this shape, too.
        let one = Shape {
            xccs: 1,
            engines: 4,
            units: 38,
            arrays: 1,
        };
        assert_eq!(
            gfx942.extents("TA", one),
            [(Instance, 11), (ShaderEngine, 4)]
        );
        assert_eq!(gfx942.extents("TCC", one), [(Instance, 16)]);
        let whole = gfx942.extents("TA", gfx942.shape);
        assert_eq!(whole, [(Xcc, 8), (Instance, 11), (ShaderEngine, 4)]);
        assert!(gfx942.extents("NONE", one).is_empty());
        let small = Shape {
            xccs: 1,
            engines: 2,
            units: 32,
            arrays: 2,
        };
        let gfx1100 = Architecture::find("gfx1100").unwrap();
        let sq = gfx1100.extents("SQ", small);
        assert_eq!(sq, [(Wgp, 4), (ShaderEngine, 2), (ShaderArray, 2)]);
    }

    #[test]
    fn the_name_that_was_meant_is_found() {
        let gfx942 = Architecture::find("gfx942").unwrap();
        assert_eq!(gfx942.nearest("SQ_WAVE")[0], "SQ_WAVES");
        assert_eq!(gfx942.nearest("sq_waves")[0], "SQ_WAVES");
        assert_eq!(gfx942.nearest("SQ_WAEVS")[0], "SQ_WAVES");
        assert_eq!(gfx942.nearest("GRBM_GUI_ACTVE")[0], "GRBM_GUI_ACTIVE");
        assert!(gfx942.nearest("nothing like it").is_empty());
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "acb"), 1);
    }
}
