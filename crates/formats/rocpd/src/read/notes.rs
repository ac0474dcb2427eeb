//! The notes of a session, without those that its records give rise to again.

use midair_output::{Names, Plan, Trace};

/// Removes the notes of each trace that the writers add by themselves.
pub(crate) fn settle(traces: &mut [Trace], names: &Names, plan: &Plan) {
    for trace in traces {
        let stored = std::mem::take(&mut trace.notes);
        let added = midair_output::notes(trace, names, plan);
        trace.notes = stored
            .into_iter()
            .filter(|note| !added.contains(note))
            .collect();
    }
}
