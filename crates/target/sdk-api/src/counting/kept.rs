//! The state for counters.

use super::config::Config;
use super::places::Infos;
use super::table::Table;
use midair_counters::Definitions;
use std::collections::BTreeMap;
use std::sync::Arc;

/// All of this state.
#[derive(Debug)]
pub(crate) struct Counting {
    /// Definitions that a tool has loaded, and whether they are added to AMD's.
    pub custom: Option<(Definitions, bool)>,
    pub table: Option<Table>,
    pub infos: Infos,
    /// By handle.
    pub configs: BTreeMap<u64, Arc<Config>>,
    /// The last handle.
    pub configured: u64,
}

impl Counting {
    pub const fn new() -> Counting {
        Counting {
            custom: None,
            table: None,
            infos: Infos::new(),
            configs: BTreeMap::new(),
            configured: 0,
        }
    }

    /// Returns the table, which is created at the first use.
    pub fn table(&mut self) -> &mut Table {
        let custom = self.custom.as_ref();
        self.table.get_or_insert_with(|| Table::new(custom))
    }
}
