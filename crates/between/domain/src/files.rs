//! The names of a domain in the output formats.

/// A domain's names in each format. Domains that share a file or a list have the same values here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Files {
    /// The end of its csv file's name, after the prefix.
    pub csv: Option<&'static str>,
    /// Its list among json's `buffer_records`.
    pub json: Option<Ranked>,
    /// Its category in pftrace.
    pub category: Option<&'static str>,
    /// Where pftrace shows it.
    pub track: Option<Track>,
    /// The table of rocpd in which its records become rows. The category of their events is
    /// [`crate::Domain::name`].
    pub rocpd: Option<Rocpd>,
    /// Its statistics.
    pub statistics: Option<&'static Statistics>,
    /// Heading and order of its table at the end of `midair attach`.
    pub table: Option<Ranked>,
    /// What its records are called, in the plural, in the account of lost records.
    pub records: &'static str,
    /// A phrase that tells people what is recorded, and its order among such phrases.
    pub phrase: Option<Ranked>,
}

/// A name and its rank among others of its sort: lower ranks come first. Equal ranks mean equal
/// names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranked {
    /// The name.
    pub name: &'static str,
    /// Its order.
    pub rank: u8,
}

impl Ranked {
    pub(crate) const fn some(name: &'static str, rank: u8) -> Option<Ranked> {
        Some(Ranked { name, rank })
    }
}

/// Where pftrace shows a domain's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Track {
    /// On the track of the thread that made the call.
    Thread,
    /// On the track of a stream, or of a queue or copy engine where the user groups by queue.
    Stream,
    /// On one track of its own, of this name.
    Own(&'static str),
    /// On one track for each device; this is the start of the track's name.
    PerDevice(&'static str),
}

/// A table of rocpd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rocpd {
    /// `rocpd_region`; a record that took no time is a `rocpd_sample`.
    Region,
    /// `rocpd_kernel_dispatch`.
    KernelDispatch,
    /// `rocpd_memory_copy`.
    MemoryCopy,
    /// `rocpd_memory_allocate`.
    MemoryAllocate,
    /// `rocpd_graph_launch`.
    GraphLaunch,
    /// `rocpd_pmc_event`, which belong to the events of dispatches.
    PmcEvent,
}

impl Rocpd {
    /// Returns the table's name, without prefix and guid.
    pub const fn table(self) -> &'static str {
        match self {
            Rocpd::Region => "region",
            Rocpd::KernelDispatch => "kernel_dispatch",
            Rocpd::MemoryCopy => "memory_copy",
            Rocpd::MemoryAllocate => "memory_allocate",
            Rocpd::GraphLaunch => "graph_launch",
            Rocpd::PmcEvent => "pmc_event",
        }
    }
}

/// A domain in statistics (`--stats`, `--summary`). Several domains may share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistics {
    /// Its name in tables, `domain_stats.csv` and json's `summary`.
    pub name: &'static str,
    /// The end of its csv file's name, after the prefix.
    pub csv: &'static str,
    /// Order in the summary tables.
    pub rank: u8,
    /// Order in json's `summary` and in csv files.
    pub json_rank: u8,
}
