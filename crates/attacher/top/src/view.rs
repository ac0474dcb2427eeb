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

/// The rows of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum By {
    /// Kernels.
    #[default]
    Kernel,
    /// Lines of the application's code that launch work.
    Code,
}

/// How kernels are sorted.
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
    /// Returns the order after this one, and the first after the last.
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

    /// Returns its name.
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

/// The state of the screens; see the module.
#[derive(Debug)]
pub struct View {
    pub(crate) look: Look,
    pub(crate) sort: Sort,
    pub(crate) by: By,
    /// The text that the names of shown kernels contain, in lower case.
    pub(crate) filter: String,
    /// The filter that is being typed.
    pub(crate) typed: Option<String>,
    pub(crate) paused: bool,
    pub(crate) help: bool,
    /// The name of the kernel whose line is marked.
    pub(crate) selected: Option<String>,
    /// Whether details of that kernel are shown.
    pub(crate) open: bool,
    pub(crate) snapshots: Vec<Snapshot>,
    /// The share of one processor that the attacher takes.
    pub(crate) own: f64,
    /// The last message to the user.
    pub(crate) message: String,
}

impl View {
    /// Makes an empty view.
    pub fn new(look: Look) -> View {
        View {
            look,
            sort: Sort::default(),
            by: By::default(),
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

    /// Chooses the rows of the table.
    pub fn show_by(&mut self, by: By) {
        self.by = by;
        self.selected = None;
        self.open = false;
    }

    /// Whether some session takes stacks, or says why it does not.
    pub(crate) fn has_code(&self) -> bool {
        let mut all = self.snapshots.iter();
        all.any(|it| it.code.is_some() || it.no_stacks.is_some())
    }

    /// Takes what processes do now, and the share of one processor that the attacher takes. A
    /// paused view ignores both.
    pub fn show(&mut self, snapshots: Vec<Snapshot>, own: f64) {
        if !self.paused {
            self.snapshots = snapshots;
            self.own = own;
        }
    }

    /// Shows a message that the user should know.
    pub fn tell(&mut self, message: impl Into<String>) {
        self.message = message.into();
    }

    pub(crate) fn pause(&mut self) {
        self.paused = !self.paused;
    }

    pub(crate) fn filter_by(&mut self, typed: &str) {
        self.filter = typed.to_lowercase();
    }

    /// Marks the line that is this many lines further down.
    pub(crate) fn select(&mut self, by: isize) {
        let rows = self.rows();
        let at = self
            .marked(&rows)
            .map_or(0, |at| at.saturating_add_signed(by));
        let at = at.min(rows.len().saturating_sub(1));
        self.selected = rows.get(at).map(|row| row.name.clone());
    }

    /// Returns the position of the marked line.
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
