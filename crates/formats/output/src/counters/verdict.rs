//! Whether a window of counters can be used, and if not, why.

/// Whether a window's values belong to its dispatches, and if not, why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// No other dispatch of the process ran on the agent meanwhile.
    Alone,
    /// No other dispatch ran meanwhile than the batch's. The values cover all its
    /// dispatches together.
    Batch,
    /// Another dispatch ran meanwhile.
    Shared,
    /// Another dispatch may have run meanwhile: one has no times, or its record was lost.
    NotKnown,
    /// Another profiler restarted the counters meanwhile.
    Disturbed,
    /// Its dispatch is not among the chosen ones.
    NotSelected,
    /// The packet in it was not a dispatch.
    Empty,
    /// The device had not read the counters when recording ended.
    Open,
    /// The queue was destroyed before the counters were read.
    QueueDestroyed,
    /// It has no plausible times.
    BadTimes,
    /// The program did not ring the doorbell for a batch of kernels in time.
    TooLate,
    /// There is no record of its dispatch.
    NoDispatch,
    /// Parts of it are missing.
    Incomplete,
    /// Its data contradict each other, or do not fit what was asked for.
    Contradictory,
}

impl Verdict {
    /// All verdicts, in the order in which they are reported.
    pub(crate) const ALL: [Verdict; 14] = [
        Verdict::Alone,
        Verdict::Batch,
        Verdict::Shared,
        Verdict::NotKnown,
        Verdict::Disturbed,
        Verdict::NotSelected,
        Verdict::Empty,
        Verdict::Open,
        Verdict::QueueDestroyed,
        Verdict::BadTimes,
        Verdict::TooLate,
        Verdict::NoDispatch,
        Verdict::Incomplete,
        Verdict::Contradictory,
    ];

    /// Returns its key in files.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Verdict::Alone => "alone",
            Verdict::Batch => "batches",
            Verdict::Shared => "shared",
            Verdict::NotKnown => "not_known_to_be_alone",
            Verdict::Disturbed => "disturbed",
            Verdict::NotSelected => "of_kernels_not_chosen",
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

    /// Returns words that fit behind a number of windows.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Verdict::Alone => "had no concurrent work on the device",
            Verdict::Batch => "have values of several dispatches together",
            Verdict::Shared => "were shared with another dispatch of the process",
            Verdict::NotKnown => {
                "were perhaps shared: another dispatch has no times or was not recorded"
            }
            Verdict::Disturbed => {
                "were disturbed: GRBM_COUNT is too low for their time, as when another profiler restarts the counters"
            }
            Verdict::NotSelected => "were around kernels that were not selected",
            Verdict::Empty => "had no dispatch in them",
            Verdict::Open => "were not read before recording ended",
            Verdict::QueueDestroyed => "were lost with their queue",
            Verdict::BadTimes => "have no plausible times",
            Verdict::TooLate => "were abandoned, since a graph's launch took longer than 50 ms",
            Verdict::NoDispatch => "name a dispatch that was not recorded",
            Verdict::Incomplete => "are incomplete",
            Verdict::Contradictory => "contradict themselves or the request",
        }
    }
}
