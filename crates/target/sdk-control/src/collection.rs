//! The state with which the worker collects, and the state of a session that collects.

use crate::bursts::Bursting;
use crate::install::{Installed, Need};
use crate::kfd::DriverEvents;
use crate::runtimes;
use crate::state::STATE;
use crate::tables::Live;
use crate::tool_tables::ToolTables;
use midair_record::spool::{Area, ChunkWriter, Reader};
use midair_sdk_device::domain::Domain;
use midair_sdk_device::domains;
use midair_sdk_device::hooks::Hook;
use midair_sdk_device::queue::harvest::Harvester;
use midair_sdk_device::sink::Sink;
use midair_sdk_hot::markers::legacy;
use midair_sdk_hot::wrappers::TABLES;

/// The route of the records.
#[derive(Debug)]
pub(crate) enum Route {
    /// From every thread straight into the attacher's spool.
    Direct,
    /// First into a midair spool, since tools in this process want them, too.
    Relay { reader: Reader, onward: ChunkWriter },
}

/// A session that collects.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) generation: u64,
    pub(crate) need: Need,
    pub(crate) sink: Sink,
    pub(crate) route: Route,
    pub(crate) live: Vec<Live>,
    /// The runtime's table for tools, after it was found.
    pub(crate) tools: Option<Live>,
    /// Whether the HSA runtime is open and its agents are announced.
    pub(crate) hsa_open: bool,
    /// Whether signals for the device's work are prepared.
    pub(crate) hsa_ready: bool,
    /// Whether the HSA runtime is open, after its first `hsa_init`.
    pub(crate) hsa_up: bool,
    /// Whether the runtime was seen closed while kernels were wanted. Then everything on its queues
    /// was launched in this session.
    pub(crate) began_closed: bool,
    /// See [`Collection::hsa_slots_are_final`].
    pub(crate) hsa_final: bool,
    /// Why the HSA side is not ready, as text.
    pub(crate) waiting_for: &'static str,
    pub(crate) searched_at: u64,
    pub(crate) epoch: u64,
    pub(crate) reported: Vec<String>,
    /// Present where only bursts are recorded.
    pub(crate) bursts: Option<Bursting>,
}

impl Running {
    /// Whether the tables of an HSA runtime were found.
    pub(crate) fn has_hsa(&self) -> bool {
        let has = |name: &str| {
            self.live.iter().any(|live| {
                TABLES
                    .get(live.index())
                    .is_some_and(|table| table.name == name)
            })
        };
        has("CoreApiTable") && has("AmdExtTable")
    }
}

/// The collecting side of the worker.
#[derive(Debug)]
pub struct Collection {
    pub(crate) harvester: Harvester,
    /// The domains: what is done here for each kind of records.
    pub(crate) domains: Vec<Box<dyn Domain>>,
    pub(crate) installed: Installed,
    /// Tables that were lent to tools of the session.
    pub(crate) tool_tables: ToolTables,
    /// Whether stacks are taken, if the session asks for them.
    pub(crate) stacks: Option<Result<midair_stacks::Started, midair_stacks::Unavailable>>,
    /// Our callback in the old ROCTx library.
    pub(crate) roctx_tap: Option<legacy::Tap>,
    pub(crate) running: Option<Running>,
    /// Which runtimes were reported in this session.
    pub(crate) runtimes: runtimes::Reports,
    /// The attacher's spool, while a session is on.
    pub(crate) spool: Option<Area>,
    /// How the session ended: bits of `record::spool::outcome`.
    pub outcome: u32,
    /// Whether a thread may still be inside a record store of this session.
    pub memory_kept: bool,
    /// The first correlation id of the next collection. Ids are used once in a session, even when
    /// its contexts, or the runtime, stop and start again.
    pub(crate) next_correlation: u64,
}

/// What [`Collection::stop`] leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leftover {
    /// Nothing refers to the spool any more.
    Nothing,
    /// A thread may still be inside a record store: the spool must stay mapped.
    Memory,
}

impl Collection {
    /// Creates a collection with all domains that is not collecting yet. `session_hooks` are the
    /// hooks of a session's life.
    pub(crate) fn new(session_hooks: &'static [Hook]) -> Collection {
        let mut domains = domains::all();
        domains.push(Box::new(DriverEvents::default()));
        let mut hooks = vec![session_hooks, midair_sdk_device::hooks::SIGNALS];
        hooks.extend(domains.iter().map(|domain| domain.hooks()));
        Collection {
            harvester: Harvester::default(),
            domains,
            installed: Installed::new(hooks),
            tool_tables: ToolTables::default(),
            stacks: None,
            roctx_tap: None,
            running: None,
            runtimes: runtimes::Reports::new(&STATE.registered),
            spool: None,
            outcome: 0,
            memory_kept: false,
            next_correlation: 0,
        }
    }
}
