//! What is sent.

/// A kind of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Signal {
    Metrics,
    Profiles,
}

impl Signal {
    /// Returns its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Signal::Metrics => "metrics",
            Signal::Profiles => "profiles",
        }
    }
}
