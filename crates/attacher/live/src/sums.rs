//! What a model keeps for [`crate::Totals`].

use crate::delays::Delays;
use crate::fast::Fast;
use std::collections::{BTreeMap, HashMap};

/// What the bursts so far add up to.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    pub(crate) bursts: u64,
    pub(crate) recorded: u64,
    pub(crate) time: u64,
    pub(crate) switched: u64,
    pub(crate) cost: u32,
    pub(crate) devices: BTreeMap<u32, [u64; 5]>,
    /// Times from a dispatch's doorbell to its start.
    pub(crate) delays: Delays,
    /// The class of each kernel whose name is known.
    pub(crate) classes: HashMap<u64, &'static str, Fast>,
}
