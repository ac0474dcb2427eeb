//! What a window of counters is worth.

/// Whether a window's values are those of its dispatches, and if not, why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// No other dispatch of the process ran on the agent meanwhile.
    Alone,
    /// The same of several dispatches that were launched at once: the values are those of all of them
    /// together.
    Batch,
    /// Another one did.
    Shared,
    /// Perhaps another one did: it has no times, or its record was lost.
    NotKnown,
    /// Its dispatch is not among the chosen ones.
    NotChosen,
    /// The packet in it was no dispatch.
    Empty,
    /// The device had not read the counters when recording ended.
    Open,
    /// The queue was destroyed before they were read.
    QueueDestroyed,
    /// It has no plausible times.
    BadTimes,
    /// The program had not rung for a batch of kernels in time.
    TooLate,
    /// There is no record of its dispatch.
    NoDispatch,
    /// Parts of it are missing.
    Incomplete,
    /// What it says does not fit together, or to what was asked for.
    Contradictory,
}

impl Verdict {
    /// All, in the order in which they are told.
    pub(crate) const ALL: [Verdict; 13] = [
        Verdict::Alone,
        Verdict::Batch,
        Verdict::Shared,
        Verdict::NotKnown,
        Verdict::NotChosen,
        Verdict::Empty,
        Verdict::Open,
        Verdict::QueueDestroyed,
        Verdict::BadTimes,
        Verdict::TooLate,
        Verdict::NoDispatch,
        Verdict::Incomplete,
        Verdict::Contradictory,
    ];

    /// Its key in files.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Verdict::Alone => "alone",
            Verdict::Batch => "batches",
            Verdict::Shared => "shared",
            Verdict::NotKnown => "not_known_to_be_alone",
            Verdict::NotChosen => "of_kernels_not_chosen",
            Verdict::Empty => "without_a_dispatch",
            Verdict::Open => "open_at_the_end",
            Verdict::QueueDestroyed => "queue_destroyed",
            Verdict::BadTimes => "without_plausible_times",
            Verdict::TooLate => "not_rung_in_time",
            Verdict::NoDispatch => "dispatch_not_recorded",
            Verdict::Incomplete => "incomplete",
            Verdict::Contradictory => "contradictory",
        }
    }

    /// In words, behind a number of windows.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Verdict::Alone => "had the device for themselves",
            Verdict::Batch => "have values of several dispatches together",
            Verdict::Shared => "were shared with another dispatch of the process",
            Verdict::NotKnown => {
                "were perhaps shared: another dispatch has no times or was not recorded"
            }
            Verdict::NotChosen => "were around kernels that were not chosen",
            Verdict::Empty => "had no dispatch in them",
            Verdict::Open => "were not read before recording ended",
            Verdict::QueueDestroyed => "were lost with their queue",
            Verdict::BadTimes => "have no plausible times",
            Verdict::TooLate => "were given up, since a graph's launch took longer than 50 ms",
            Verdict::NoDispatch => "name a dispatch that was not recorded",
            Verdict::Incomplete => "are incomplete",
            Verdict::Contradictory => "contradict themselves or what was asked for",
        }
    }
}
