//! Native frames, on a processor for which they are not built: there are none.

use crate::common::{ModuleRecord, Unavailable};

/// There is no table.
#[derive(Debug)]
pub(crate) enum Table {}

/// There are no modules.
#[derive(Debug, Clone, Default)]
pub(crate) struct Modules;

/// See the other processor's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) module: u32,
    pub(crate) address: u64,
}

/// See the other processor's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Summary {
    pub(crate) key: u64,
    pub(crate) count: usize,
    pub(crate) is_cut: bool,
}

impl Modules {
    pub(crate) fn read(&mut self) -> Result<Vec<ModuleRecord>, Unavailable> {
        Err(Unavailable::Processor)
    }

    pub(crate) fn is_like(&self, _: &Modules) -> bool {
        true
    }
}

impl Table {
    pub(crate) fn of(_: &Modules, _: Option<u64>) -> Option<Table> {
        None
    }

    pub(crate) fn summary(&self, _: bool) -> Summary {
        match *self {}
    }

    pub(crate) fn frames(&self, _: usize, _: impl FnMut(Frame)) {
        match *self {}
    }
}

pub(crate) fn notices_changes() -> bool {
    true
}

impl Frame {
    pub(crate) fn key(self) -> u64 {
        self.address
    }
}
