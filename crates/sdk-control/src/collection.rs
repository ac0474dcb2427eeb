//! What the worker collects with, and what a session that collects consists of.

use crate::install::{Installed, Need};
use crate::kfd::DriverEvents;
use crate::lent::Lent;
use crate::runtimes;
use crate::state::STATE;
use crate::tables::Live;
use midair_record::spool::{Area, ChunkWriter, Reader};
use midair_sdk_device::domain::Domain;
use midair_sdk_device::domains;
use midair_sdk_device::hooks::Hook;
use midair_sdk_device::queue::harvest::Harvester;
use midair_sdk_device::sink::Sink;
use midair_sdk_hot::markers::legacy;
use midair_sdk_hot::wrappers::TABLES;

/// Where records go.
#[derive(Debug)]
pub(crate) enum Route {
    /// From every thread straight into the attacher's spool.
    Direct,
    /// Into a spool of ours first, since tools in this process want them too.
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
    /// The runtime's table for tools, once it was found.
    pub(crate) tools: Option<Live>,
    /// The HSA runtime is open and its agents are announced.
    pub(crate) hsa_open: bool,
    /// Signals are there for the device's work.
    pub(crate) hsa_ready: bool,
    /// The HSA runtime is open, behind its first `hsa_init`.
    pub(crate) hsa_up: bool,
    /// It was seen closed while kernels were wanted: what is on its queues was all launched in this session.
    pub(crate) began_closed: bool,
    /// See [`Collection::hsa_slots_are_final`].
    pub(crate) hsa_final: bool,
    /// Why it is not, in words.
    pub(crate) waiting_for: &'static str,
    pub(crate) searched_at: u64,
    pub(crate) epoch: u64,
    pub(crate) reported: Vec<String>,
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

/// The worker's collecting side.
#[derive(Debug)]
pub struct Collection {
    pub(crate) harvester: Harvester,
    /// What happens here for each kind of records.
    pub(crate) domains: Vec<Box<dyn Domain>>,
    pub(crate) installed: Installed,
    /// Tables that tools of the session were given.
    pub(crate) lent: Lent,
    /// Our callback in the old ROCTx library.
    pub(crate) roctx_tap: Option<legacy::Tap>,
    pub(crate) running: Option<Running>,
    /// Which runtimes were reported in this session.
    pub(crate) runtimes: runtimes::Reports,
    /// The attacher's spool, while a session is on.
    pub(crate) spool: Option<Area>,
    /// How the session ended: bits of `record::spool::outcome`.
    pub outcome: u32,
    /// A thread may still be inside a record store of this session.
    pub memory_kept: bool,
    /// The first correlation id of the next collecting: ids are used once in a session, also when
    /// its contexts, or the runtime, stop and start again.
    pub(crate) next_correlation: u64,
}

/// What [`Collection::stop`] leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leftover {
    /// Nobody refers to the spool any more.
    Nothing,
    /// A thread may still be inside a record store: the spool must stay mapped.
    Memory,
}

impl Collection {
    /// One that collects nothing yet, with all domains. `session_hooks`: those of a session's life.
    pub(crate) fn new(session_hooks: &'static [Hook]) -> Collection {
        let mut domains = domains::all();
        domains.push(Box::new(DriverEvents::default()));
        let mut hooks = vec![session_hooks, midair_sdk_device::hooks::SIGNALS];
        hooks.extend(domains.iter().map(|domain| domain.hooks()));
        Collection {
            harvester: Harvester::default(),
            domains,
            installed: Installed::new(hooks),
            lent: Lent::default(),
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
