//! Which threads could be borrowed now, told without touching any.

use std::io;

use crate::error::RejectedThread;
use crate::inspection::Inspection;
use crate::options::Options;
use crate::parked::{Candidate, Judge, Verdict};

/// What one look at all threads gave.
#[derive(Debug, Default)]
pub struct Survey {
    /// Proven to be parked, best first.
    pub parked: Vec<Candidate>,
    /// They seem to be parked, but only a short stop could prove it: their stacks depend on a
    /// register.
    pub unproven: Vec<Candidate>,
    /// The others, each with the reason.
    pub not: Vec<RejectedThread>,
}

/// Examines all threads once, through `/proc` and by reading memory. Nothing is stopped, traced or
/// written.
///
/// # Errors
/// The kernel's, when the threads cannot be listed.
pub fn survey(look: &Inspection, options: &Options) -> io::Result<Survey> {
    let mut survey = Survey::default();
    let (verdicts, not) = Judge::new(look, options).survey()?;
    survey.not = not;
    for verdict in verdicts {
        match verdict {
            Verdict::Parked(candidate) => survey.parked.push(candidate),
            Verdict::AskRegisters(candidate) => survey.unproven.push(candidate),
            Verdict::Rejected(seen) => survey.not.push(seen),
        }
    }
    Ok(survey)
}
