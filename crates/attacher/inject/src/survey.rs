//! Tells which threads could be borrowed now, without touching any of them.

use std::io;

use crate::error::RejectedThread;
use crate::inspection::Inspection;
use crate::options::Options;
use crate::parked::{Candidate, Judge, Verdict};

/// The result of examining all threads once.
#[derive(Debug, Default)]
pub struct Survey {
    /// Threads that are proven to be parked, best first.
    pub parked: Vec<Candidate>,
    /// Threads that seem to be parked. Only a short stop could prove it, because their stacks
    /// depend on a register.
    pub unproven: Vec<Candidate>,
    /// The other threads, each with the reason.
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
