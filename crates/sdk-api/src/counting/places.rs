//! Where counters have values, as tools are told: made once ([`mod@super::info`]), and kept for ever.

use midair_abi::counting::{DimensionInfo, DimensionInstanceInfo, RecordDimensionInfo};
use midair_counters::{Dimension, Position};
use std::collections::BTreeMap;

/// Where a counter has values. Pointers and what they lead to are arrays both.
#[derive(Debug)]
pub(crate) struct Places {
    pub dimensions: &'static [RecordDimensionInfo],
    pub dimension_pointers: &'static [*const RecordDimensionInfo],
    pub instance_pointers: &'static [*const DimensionInstanceInfo],
}

// SAFETY: the pointers are to what was leaked and never changes.
unsafe impl Send for Places {}
// SAFETY: as above.
unsafe impl Sync for Places {}

/// The numbers of a place, as the instances of every counter of that cut point to them.
pub(crate) type Numbers = &'static [*const DimensionInfo];

/// A cut's places with their numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut(pub &'static [(Position, Numbers)]);

// SAFETY: as above.
unsafe impl Send for Cut {}

/// What was made.
#[derive(Debug)]
pub(crate) struct Infos {
    /// By counter and agent.
    pub places: BTreeMap<(u64, u64), &'static Places>,
    /// By dimensions.
    pub cuts: BTreeMap<Vec<(Dimension, u32)>, Cut>,
}

impl Infos {
    pub const fn new() -> Infos {
        Infos {
            places: BTreeMap::new(),
            cuts: BTreeMap::new(),
        }
    }
}
