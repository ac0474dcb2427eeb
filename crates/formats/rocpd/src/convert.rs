//! `rocpd convert`: the records of databases, by the writers of an attach.

use crate::window::Window;
use crate::{Input, counters, read, tables};
use midair_failure::{Failure, Kind};
use midair_output::{Format, KnownCounts, Names, Plan, Trace, write_together};
use std::path::PathBuf;

/// The form of csv files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CsvForm {
    /// AMD's `rocpd convert`: calls in one file, the session's guid in each row.
    Rocpd,
    /// rocprofv3, and so an attach.
    Attach,
}

/// What a conversion wrote.
#[derive(Debug)]
pub struct Converted {
    /// The files.
    pub files: Vec<PathBuf>,
    /// What the databases have that the files lack, in sentences.
    pub notes: Vec<String>,
}

/// Writes the records of all databases in the formats of the plan, as one result.
///
/// # Errors
/// When a database cannot be read, is of a kind whose records cannot be made, or a file cannot be
/// written.
pub fn convert(
    input: &Input,
    plan: &Plan,
    form: CsvForm,
    window: Option<Window>,
) -> Result<Converted, Failure> {
    let mut plan = plan.clone();
    let mut tables = Vec::new();
    if form == CsvForm::Rocpd && plan.formats.contains(&Format::Csv) {
        plan.formats.retain(|format| *format != Format::Csv);
        tables = tables::write(input, &plan, window)?;
        if plan.formats.is_empty() {
            return Ok(Converted {
                files: tables,
                notes: Vec::new(),
            });
        }
    }
    let plan = &plan;
    let mut names = Names::amd();
    let mut notes = Vec::new();
    let mut traces = Vec::new();
    for part in &input.parts {
        let (mut trace, mut left) = read::trace(input, part, &mut names, window)?;
        if plan.rename_kernels {
            trace.known.ranges = read::ranges(input, part)?;
        }
        left.extend(counters::left(input, part, plan)?);
        traces.push(trace);
        for note in left {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    read::notes::settle(&mut traces, &names, plan);
    let mut files = Vec::new();
    let mut write = |traces: &[Trace], plan: &Plan| -> Result<(), Failure> {
        if !plan.formats.is_empty() {
            let written = write_together(traces, &names, plan);
            files.extend(written.map_err(|error| Failure::new(Kind::Output, error.to_string()))?);
        }
        Ok(())
    };
    // Not all writers take values without windows.
    let takes = |format: &Format| counters::WRITERS.contains(format);
    let mut known = Vec::new();
    if plan.formats.iter().any(takes) {
        for part in &input.parts {
            known.push(counters::known(input, part)?);
        }
    }
    if known.iter().all(KnownCounts::is_empty) {
        write(&traces, plan)?;
    } else {
        let (mut of_some, mut others) = (plan.clone(), plan.clone());
        of_some.formats.retain(takes);
        others.formats.retain(|format| !takes(format));
        write(&traces, &others)?;
        for (trace, known) in traces.iter_mut().zip(known) {
            trace.known.counts = known;
        }
        write(&traces, &of_some)?;
    }
    files.extend(tables);
    if plan.formats.contains(&Format::Csv) {
        files.extend(counters::write(input, plan, window)?);
    }
    Ok(Converted { files, notes })
}
