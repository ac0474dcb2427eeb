//! What is shown, and what the user chose.

use crate::rows::Row;
use midair_live::Snapshot;

/// What the terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Colours may be used.
    pub colour: bool,
    /// Characters beyond ASCII may be used.
    pub unicode: bool,
}

/// By what kernels are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    /// Share of the time now.
    #[default]
    Share,
    /// Change of that share.
    Change,
    /// Dispatches in a second.
    Rate,
    /// Time of one.
    Mean,
    /// Time since the attach.
    Total,
    /// Name.
    Name,
}

impl Sort {
    /// The one after it; the first after the last.
    pub fn next(self) -> Sort {
        match self {
            Sort::Share => Sort::Change,
            Sort::Change => Sort::Rate,
            Sort::Rate => Sort::Mean,
            Sort::Mean => Sort::Total,
            Sort::Total => Sort::Name,
            Sort::Name => Sort::Share,
        }
    }

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Sort::Share => "share",
            Sort::Change => "change",
            Sort::Rate => "rate",
            Sort::Mean => "mean",
            Sort::Total => "total",
            Sort::Name => "name",
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct View {
    pub(crate) look: Look,
    pub(crate) sort: Sort,
    /// What the names of kernels that are shown contain, in lower case.
    pub(crate) filter: String,
    /// A filter that is being typed.
    pub(crate) typed: Option<String>,
    pub(crate) paused: bool,
    pub(crate) help: bool,
    /// The name of the kernel whose line is marked.
    pub(crate) selected: Option<String>,
    /// Details of that kernel are shown.
    pub(crate) open: bool,
    pub(crate) snapshots: Vec<Snapshot>,
    /// Share of one processor that the attacher takes.
    pub(crate) own: f64,
    /// The last thing that happened.
    pub(crate) message: String,
}

impl View {
    /// An empty view.
    pub fn new(look: Look) -> View {
        View {
            look,
            sort: Sort::default(),
            filter: String::new(),
            typed: None,
            paused: false,
            help: false,
            selected: None,
            open: false,
            snapshots: Vec::new(),
            own: 0.0,
            message: String::new(),
        }
    }

    /// What processes do now, and the share of one processor that the attacher takes. It is not
    /// shown while the view is paused.
    pub fn show(&mut self, snapshots: Vec<Snapshot>, own: f64) {
        if !self.paused {
            self.snapshots = snapshots;
            self.own = own;
        }
    }

    /// Something happened that the user should know.
    pub fn tell(&mut self, message: impl Into<String>) {
        self.message = message.into();
    }

    pub(crate) fn pause(&mut self) {
        self.paused = !self.paused;
    }

    pub(crate) fn filter_by(&mut self, typed: &str) {
        self.filter = typed.to_lowercase();
    }

    /// Marks another line, so many further down.
    pub(crate) fn select(&mut self, by: isize) {
        let rows = self.rows();
        let at = self
            .marked(&rows)
            .map_or(0, |at| at.saturating_add_signed(by));
        let at = at.min(rows.len().saturating_sub(1));
        self.selected = rows.get(at).map(|row| row.name.clone());
    }

    /// The place of the marked line.
    pub(crate) fn marked(&self, rows: &[Row]) -> Option<usize> {
        let selected = self.selected.as_ref()?;
        rows.iter().position(|row| row.name == *selected)
    }

    pub(crate) fn open(&mut self) {
        if self.selected.is_none() {
            self.select(0);
        }
        self.open = self.selected.is_some() && !self.open;
    }

    pub(crate) fn close(&mut self) {
        if self.open {
            self.open = false;
        } else if self.help {
            self.help = false;
        } else {
            self.filter.clear();
            self.selected = None;
        }
    }
}
