//! What is known about the counters of an architecture: panels, tables, metrics, sets and limits.
//!
//! The facts are in `api/compute/*.json` (their sources: `docs/sources.md#compute`) and become
//! constants at build time.

use midair_failure::{Failure, Kind};
use std::sync::LazyLock;

/// An architecture, such as `gfx942`.
#[derive(Debug)]
pub struct Architecture {
    /// Its name, as the compiler spells it.
    pub name: &'static str,
    /// Names that expressions may use after `$`, and what they stand for.
    pub builtins: &'static [(&'static str, &'static str)],
    /// What `$denom` stands for, by the word of `--normal-unit`.
    pub denominators: &'static [(&'static str, &'static str)],
    /// How many counters each block of the GPU can count at once.
    pub limits: &'static [(&'static str, u32)],
    /// The GPU models that are sold under their own names.
    pub models: &'static [Model],
    /// Metrics that fit into one pass, in the numbers of 2025.
    pub sets: &'static [Set],
    /// The same sets in the numbers of 2026, as far as these are known: name and metrics.
    pub newer_sets: &'static [(&'static str, &'static [&'static str])],
    /// The panels, by number.
    pub panels: &'static [Panel],
}

/// A GPU that is sold under a name of its own.
#[derive(Debug)]
pub struct Model {
    /// The name in small letters, such as `mi300x_a1`.
    pub name: &'static str,
    /// Its PCI device ids: of the device itself, and of its virtual function.
    pub chips: &'static [u32],
    /// The number of XCDs of a device, by the name of its compute partition.
    pub partitions: &'static [(&'static str, u32)],
}

/// Metrics that fit into one pass together.
#[derive(Debug)]
pub struct Set {
    /// The word of `--set`.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// Numbers and names of its metrics.
    pub metrics: &'static [(&'static str, &'static str)],
}

/// A panel: tables about one part of the GPU.
#[derive(Debug)]
pub struct Panel {
    /// Its number, which is the first part of its metrics' numbers.
    pub id: u32,
    /// Its title.
    pub title: &'static str,
    /// Its tables, by number.
    pub tables: &'static [Table],
}

/// A table of a panel.
#[derive(Debug)]
pub struct Table {
    /// A hundred times the panel's number plus its own.
    pub id: u32,
    /// Its title, or nothing.
    pub title: &'static str,
    /// Where its rows come from.
    pub source: Source,
    /// How a terminal shows it.
    pub style: Style,
    /// Keys and headings of its columns.
    pub columns: &'static [(&'static str, &'static str)],
    /// Its rows in the version of 2025.
    pub metrics: &'static [Metric],
    /// Its rows in the version of 2026; empty where they are not known to differ.
    pub newer: &'static [Newer],
}

/// A row of a table in the version of 2026.
#[derive(Debug)]
pub enum Newer {
    /// A row of 2025 under another number.
    Moved {
        /// Its number in 2026.
        id: &'static str,
        /// Its number in 2025.
        from: &'static str,
    },
    /// A row that 2025 did not have.
    Own(Metric),
}

/// Where a table's rows come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Expressions over counters.
    Metrics,
    /// The kernels that took the longest.
    TopKernels,
    /// The dispatches.
    Dispatches,
    /// What is known about the machine.
    System,
    /// Samples of program counters.
    PcSampling,
    /// Nowhere: the table has only a title.
    Nothing,
}

/// How a terminal shows a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// As a plain table.
    Plain,
    /// As a drawing of the path to memory.
    MemoryChart,
    /// With a bar in each row.
    Bar,
    /// With minimum, maximum and quartiles in place of the expression.
    Spread,
    /// With several values in each row.
    Bars,
}

/// A row of a table.
#[derive(Debug)]
pub struct Metric {
    /// Panel, table and place in the table, with dots.
    pub id: &'static str,
    /// What it is called. `::_1` stands for the number of each L2 channel.
    pub name: &'static str,
    /// Its unit, or nothing. `$normUnit` stands for the unit of `--normal-unit`.
    pub unit: &'static str,
    /// The level counter that `SQ_ACCUM_PREV_HIRES` sums up in its expressions, or nothing.
    pub level: &'static str,
    /// Its values.
    pub cells: &'static [Cell],
}

/// A value of a row.
#[derive(Debug)]
pub struct Cell {
    /// The key of its column.
    pub column: &'static str,
    /// What it is.
    pub content: Content,
}

/// What a value is.
#[derive(Debug)]
pub enum Content {
    /// A formula to be computed.
    Formula {
        /// The formula of 2025: a mean of the values of each dispatch.
        means: &'static str,
        /// The formula of 2026, from sums over all dispatches. None: the same as in 2025.
        sums: Option<&'static str>,
    },
    /// A word about the metric.
    Word(&'static str),
    /// No value; AMD's table has none either.
    Nothing,
}

/// Which of AMD's formulas are used, and which numbers metrics have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Form {
    /// The form of August 2025 (versions up to 3.6): means of the values of each dispatch.
    Means,
    /// The form of 2026 (from 3.7 on): sums over all dispatches.
    #[default]
    Sums,
}

impl Content {
    /// Returns the expression in this form.
    pub fn formula(&self, form: Form) -> Option<&'static str> {
        match (self, form) {
            (Content::Formula { means, .. }, Form::Means) => Some(means),
            (Content::Formula { means, sums }, Form::Sums) => Some(sums.unwrap_or(means)),
            _ => None,
        }
    }
}

/// The suffix of rows that stand for one row for each channel.
pub const CHANNEL: &str = "::_1";
/// The name of the row that says how many channels there are.
const CHANNELS: &str = "placeholder_range";

impl Table {
    /// Returns the rows in this form, with their numbers.
    pub fn rows(&self, form: Form) -> Vec<(&'static str, &'static Metric)>
    where
        Self: 'static,
    {
        let newer: &'static [Newer] = self.newer;
        let mut rows: Vec<_> = match form {
            Form::Sums if !newer.is_empty() => newer
                .iter()
                .filter_map(|row| match row {
                    Newer::Moved { id, from } => {
                        Some((*id, self.metrics.iter().find(|metric| metric.id == *from)?))
                    }
                    Newer::Own(metric) => Some((metric.id, metric)),
                })
                .collect(),
            _ => self
                .metrics
                .iter()
                .map(|metric| (metric.id, metric))
                .collect(),
        };
        rows.retain(|(_, metric)| metric.name != CHANNELS);
        rows
    }

    /// Returns where its rows come from in this form: some tables were empty in 2025.
    pub fn source(&self, form: Form) -> Source {
        match self.source {
            Source::Nothing if form == Form::Sums && !self.newer.is_empty() => Source::Metrics,
            source => source,
        }
    }

    /// Returns its number with a dot, such as `11.2`.
    pub fn number(&self) -> String {
        format!("{}.{}", self.id / 100, self.id % 100)
    }
}

/// Architectures that AMD's versions since 3.6 have tables for, and `api/compute` has not. They are read from AMD's
/// directory of panels. AMD's shorthands and units are the same for all architectures.
pub const OF_DIRECTORY: [&str; 6] = [
    "gfx1150", "gfx1151", "gfx1152", "gfx1153", "gfx1201", "gfx1250",
];

/// The same without any panel.
static WITHOUT_PANELS: LazyLock<Vec<Architecture>> = LazyLock::new(|| {
    let known = ARCHITECTURES.last();
    let bare = |name| {
        known.map(|known| Architecture {
            name,
            limits: &[],
            models: &[],
            sets: &[],
            newer_sets: &[],
            panels: &[],
            ..*known
        })
    };
    OF_DIRECTORY.into_iter().filter_map(bare).collect()
});

/// Returns why an architecture cannot be shown, and what can be.
pub(crate) fn unknown(name: &str) -> Failure {
    let known: Vec<&str> = Architecture::all().iter().map(|it| it.name).collect();
    let what = format!("no tables exist for architecture {name}");
    let known = format!("known are {}", known.join(", "));
    let failure = Failure::new(Kind::Input, what);
    match OF_DIRECTORY.contains(&name) {
        true => failure.hint(format!(
            "--config-dir DIR, such as AMD's analysis_configs, has tables for {name}; {known}"
        )),
        false => failure.hint(known),
    }
}

impl Architecture {
    /// Returns the architecture with this name. Of [`OF_DIRECTORY`] there are no panels.
    pub fn named(name: &str) -> Option<&'static Architecture> {
        let mut all = ARCHITECTURES.iter().chain(WITHOUT_PANELS.iter());
        all.find(|it| it.name == name)
    }

    /// Returns all architectures with panels.
    pub fn all() -> &'static [Architecture] {
        ARCHITECTURES
    }

    /// Returns every table with its panel.
    pub fn tables(&'static self) -> impl Iterator<Item = (&'static Panel, &'static Table)> {
        let panels = self.panels.iter();
        panels.flat_map(|panel| panel.tables.iter().map(move |table| (panel, table)))
    }
}

include!(concat!(env!("OUT_DIR"), "/architectures.rs"));
