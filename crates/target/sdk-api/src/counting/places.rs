//! The places of counters' values in the form that tools get: created once ([`mod@super::info`]),
//! and kept forever.

use midair_abi::counting::{DimensionInfo, DimensionInstanceInfo, RecordDimensionInfo};
use midair_counters::{Dimension, Position};
use std::collections::BTreeMap;

/// The places at which a counter has values. The pointers, and what they point to, are both arrays.
#[derive(Debug)]
pub(crate) struct Places {
    pub dimensions: &'static [RecordDimensionInfo],
    pub dimension_pointers: &'static [*const RecordDimensionInfo],
    pub instance_pointers: &'static [*const DimensionInstanceInfo],
}

// SAFETY: the pointers are to leaked data that never changes.
unsafe impl Send for Places {}
// SAFETY: as above.
unsafe impl Sync for Places {}

/// The numbers of a place. Instances of all counters with the same dimensions point to them.
pub(crate) type Numbers = &'static [*const DimensionInfo];

/// The places for one set of dimensions, with their numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut(pub &'static [(Position, Numbers)]);

// SAFETY: as above.
unsafe impl Send for Cut {}

/// What was created so far.
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
