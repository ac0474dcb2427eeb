//! Notes about a trace: what a reader should know in addition to its records.

use crate::counter_findings;
use crate::files::{FileSet, WriteError};
use crate::job::Job;
use midair_trace::limits;
use std::fmt::Write;

/// The file's name behind the prefix.
pub(crate) const FILE: &str = "notes.txt";

impl Job<'_> {
    /// Returns the problems of both sides that did not end the session, in words.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = self.trace.notes.clone();
        notes.extend(self.index.notes.iter().cloned());
        notes.extend(self.index.unbalanced());
        notes.extend(self.index.stacks.notes());
        notes.extend(self.index.thread_traces.notes());
        let plan = &self.trace.counters;
        notes.extend(self.renamed.iter().filter_map(|renamed| renamed.note()));
        notes.extend(self.graphs.notes());
        notes.extend(self.events.notes());
        notes.extend(self.counting.note(plan));
        notes.extend(counter_findings::of(self).iter().cloned());
        notes.extend(self.counting.lock_note(plan, |node| self.agent_name(node)));
        notes.extend(
            self.counting
                .others_note(plan, |node| self.agent_name(node)),
        );
        if self.index.notes_left_out > 0 {
            notes.push(format!(
                "{} more notes were omitted",
                self.index.notes_left_out
            ));
        }
        if self.index.names_refused > 0 {
            notes.push(format!(
                "{} kernels or code objects are not described: this process's names exceed {} MiB",
                self.index.names_refused,
                limits::NAMES >> 20
            ));
        }
        if self.index.ids_refused > 0 {
            notes.push(format!(
                "{} kernels, code objects or devices had impossible numbers and are not described",
                self.index.ids_refused
            ));
        }
        notes
    }

    /// Returns everything that a reader should know, one line each. The text is empty when the
    /// trace is whole.
    fn report(&self) -> String {
        // Writing to a String cannot fail.
        let mut out = String::new();
        if !self.trace.outcome.ordinary {
            let _ = writeln!(out, "{}", self.trace.outcome.text);
        }
        for (what, count) in self.trace.lost.iter().filter(|(_, count)| *count > 0) {
            let _ = writeln!(out, "lost: {count} {what}");
        }
        for (reason, count) in &self.index.untimed {
            let _ = writeln!(
                out,
                "without times: {count} (start and end are 0): {reason}"
            );
        }
        let malformed = self.trace.records.malformed_bytes();
        if malformed > 0 {
            let _ = writeln!(out, "lost: {malformed} bytes that were no records");
        }
        for note in self.notes() {
            let _ = writeln!(out, "{note}");
        }
        out
    }
}

/// Writes `notes.txt` next to the files of formats that cannot hold notes, if there are any notes.
pub(crate) fn write(jobs: &[Job<'_>], files: &mut FileSet) -> Result<(), WriteError> {
    write_with(jobs, files, 0)
}

/// Does the same as [`write()`], for csv files that have this many shortened names.
pub(crate) fn write_with(
    jobs: &[Job<'_>],
    files: &mut FileSet,
    shortened: u64,
) -> Result<(), WriteError> {
    let mut report = match jobs {
        [job] => job.report(),
        jobs => jobs.iter().map(of_many).collect(),
    };
    if shortened > 0 {
        report.push_str(&format!(
            "csv: {shortened} rows have truncated kernel names: such names exceeded 64 MiB and 16 times the bytes of the records\n"
        ));
    }
    if report.is_empty() {
        // Notes about an earlier trace with this name are not true of this one.
        files.outdate(FILE);
        return Ok(());
    }
    let mut file = files.create(FILE)?;
    file.put(report.as_bytes())?;
    files.add(file)
}

/// Returns one session's lines, to stand among other sessions' lines.
fn of_many(job: &Job<'_>) -> String {
    let pid = job.trace.process.pid;
    let report = job.report();
    report
        .lines()
        .map(|line| format!("process {pid}: {line}\n"))
        .collect()
}
