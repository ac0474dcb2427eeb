//! What a model keeps for [`crate::Totals`].

use crate::fast::Fast;
use crate::histogram::Histogram;
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
    pub(crate) delays: Histogram,
    pub(crate) delay: u64,
    /// The class of each kernel whose name is known.
    pub(crate) classes: HashMap<u64, &'static str, Fast>,
}

impl Sums {
    /// Counts how long a dispatch waited for its start.
    pub(crate) fn add_delay(&mut self, ns: u64) {
        self.delays.add(ns);
        self.delay = self.delay.saturating_add(ns);
    }
}
