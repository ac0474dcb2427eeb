//! Several finished sessions: files for each, or one set of files for all, and one table.

use crate::finished::{End, Finished, Written, too_little};
use crate::identity::Identity;
use crate::plan::plan;
use midair_failure::{Failure, Kind};
use midair_ids::Pid;
use midair_output::screen::{Head, Session};
use midair_output::{CounterReport, Index, MOST_TOGETHER, Names, Plan, Screen, Trace, table};
use midair_settings::Settings;
use std::collections::HashSet;
use std::path::PathBuf;

/// What a group of sessions recorded.
#[derive(Debug)]
pub struct Together {
    /// Process, its name, and its session. Several sessions of one process are in chronological
    /// order.
    pub parts: Vec<(Pid, String, Finished)>,
    /// Processes without a session, and why.
    pub failed: Vec<(Pid, String, Failure)>,
    /// The process that names a result of all, or else the first of the parts.
    pub lead: Option<Identity>,
    /// Whether to write one set of files for all instead of one for each.
    pub merge: bool,
}

impl Together {
    /// Writes everything. [`Written::incomplete`] reports that some of many failed, and each of them has a
    /// warning.
    ///
    /// # Errors
    /// When there was no session at all: why the first failed. [`Kind::Output`] when the one set of files
    /// cannot be written.
    pub fn write(mut self, settings: &Settings, style: table::Style) -> Result<Written, Failure> {
        if self.parts.is_empty() {
            return Err(match self.failed.into_iter().next() {
                Some((_, _, failure)) => failure,
                None => Failure::new(Kind::NotGpu, "no process was attached"),
            });
        }
        // A process without a GPU is not reported if others have something to report.
        if self
            .parts
            .iter()
            .any(|(_, _, finished)| !finished.had_no_gpu())
        {
            self.parts.retain(|(_, _, finished)| !finished.had_no_gpu());
        }
        let count = self.parts.len() + self.failed.len();
        for (_, _, finished) in &mut self.parts {
            // This is expected in a group. The next session of the process, if it had one, is
            // another part.
            if finished.ended == Some(End::Exec) {
                finished.ended = None;
                finished
                    .notes
                    .push("the session ended when the process executed another program".to_owned());
            }
        }
        let mut written = Written::default();
        if self.merge && self.parts.len() > MOST_TOGETHER {
            self.merge = false;
            written.warnings.push(format!(
                "{} sessions exceed the limit of {MOST_TOGETHER} per result: each gets its own result",
                self.parts.len()
            ));
        }
        let mut failures: Vec<(String, Failure)> = self
            .failed
            .drain(..)
            .map(|(pid, name, failure)| (label(pid, &name), failure))
            .collect();
        // A group of one process keeps the failure of that process.
        let kinds = if self.merge {
            self.write_merged(settings, style, &mut written, &mut failures)?
        } else {
            self.write_each(style, &mut written, &mut failures)?
        };
        let failed = failures.len();
        for (label, failure) in &failures {
            written.warnings.push(format!("{label}: {}", failure.what));
        }
        written.incomplete = match (failed, kinds) {
            (0, _) => None,
            (_, 1) if count == 1 => failures.pop().map(|(_, failure)| failure),
            _ => Some(Failure::new(
                Kind::Partial,
                format!("{failed} of {count} sessions failed; the others are complete"),
            )),
        };
        let why = written.incomplete.as_ref();
        let screen = std::mem::take(&mut written.screen);
        written.screen = screen.with_warnings(&written.warnings, why.map(|why| why.what.as_str()));
        written.table = written.screen.text(style);
        Ok(written)
    }

    /// Writes files for each session. Returns how many sessions there were.
    fn write_each(
        &mut self,
        style: table::Style,
        written: &mut Written,
        failures: &mut Vec<(String, Failure)>,
    ) -> Result<usize, Failure> {
        let names = Names::amd();
        let lead = self.lead.as_ref().map(|lead| lead.keys.pid);
        let mut used = HashSet::new();
        // The lead keeps the requested name, whatever its number.
        self.parts
            .sort_by_key(|(pid, _, finished)| (lead != Some(finished.identity.keys.pid), *pid));
        let mut done: Vec<(String, Head, Index)> = Vec::new();
        let mut kernel_names = None;
        let mut without_files = 0;
        let mut counters = CounterReport::default();
        for (pid, name, finished) in self.parts.drain(..) {
            let label = label(pid, &name);
            let mut plan = plan(&finished.settings, &finished.identity)?;
            let inner = finished.identity.keys.pid;
            make_unique(&mut plan, (pid, inner), lead == Some(inner), &mut used);
            kernel_names.get_or_insert(plan.kernel_names);
            let has_files = finished.has_files();
            let ready = finished.ready(plan);
            if !has_files {
                let (warnings, failure) = ready.words_alone();
                for warning in warnings {
                    written.warnings.push(format!("{label}: {warning}"));
                }
                failures.extend(failure.map(|failure| (label, failure)));
                without_files += 1;
                continue;
            }
            let (files, saved_elsewhere) = match ready.write_files(&names) {
                Ok(done) => done,
                Err(failure) => {
                    failures.push((label, failure));
                    continue;
                }
            };
            written.files.extend(files);
            let summary = midair_output::console_summary(&ready.trace, &names, &ready.plan);
            if let Some((console, text)) = summary {
                let title = format!("\n{label}\n");
                let all = written.summary.get_or_insert((console, String::new()));
                all.1.push_str(&title);
                all.1.push_str(&text);
            }
            let (warnings, failure) = ready.conclusion(saved_elsewhere);
            for warning in warnings {
                written.warnings.push(format!("{label}: {warning}"));
            }
            failures.extend(failure.map(|failure| (label.clone(), failure)));
            let report = CounterReport::of(&ready.trace, &names, &ready.plan, style);
            counters.add(&label, report);
            done.push((label, ready.head(), ready.trace.records.into_index()));
        }
        let sessions: Vec<Session<'_>> = done
            .iter()
            .map(|(label, head, index)| Session {
                label: label.clone(),
                head: head.clone(),
                index,
            })
            .collect();
        let kernel_names = kernel_names.unwrap_or_default();
        written.screen =
            Screen::new(sessions, &names, kernel_names, &written.files).with_counters(counters);
        Ok(done.len() + without_files)
    }

    /// Writes one set of files. Returns how many sessions there were.
    fn write_merged(
        &mut self,
        settings: &Settings,
        style: table::Style,
        written: &mut Written,
        failures: &mut Vec<(String, Failure)>,
    ) -> Result<usize, Failure> {
        let names = Names::amd();
        let lead = match self.lead.take() {
            Some(lead) => lead,
            None => match self.parts.first() {
                Some((_, _, first)) => first.identity.clone(),
                None => Identity::default(),
            },
        };
        let plan = plan(settings, &lead)?;
        let mut labels = Vec::new();
        let mut heads = Vec::new();
        let mut parts: Vec<Trace> = Vec::new();
        let all = self.parts.len();
        for (pid, name, finished) in self.parts.drain(..) {
            let label = label(pid, &name);
            let has_files = finished.has_files();
            // Of the files of all, the records of all decide whether they are written.
            let ready = finished.ready(Plan {
                minimum_bytes: 0,
                ..plan.clone()
            });
            let (warnings, failure) = match has_files {
                true => ready.conclusion(None),
                false => ready.words_alone(),
            };
            for warning in warnings {
                written.warnings.push(format!("{label}: {warning}"));
            }
            failures.extend(failure.map(|failure| (label.clone(), failure)));
            if has_files {
                labels.push(label);
                heads.push(ready.head());
                parts.push(ready.trace);
            }
        }
        if parts.is_empty() {
            return Ok(all);
        }
        written.files = write_or_save(&parts, &names, &plan, lead.keys.pid, failures)?;
        let records = parts.iter().map(|trace| &trace.records);
        written.warnings.extend(too_little(&plan, records));
        written.summary = midair_output::console_summary_together(&parts, &names, &plan);
        let mut counters = CounterReport::default();
        for (label, trace) in labels.iter().zip(&parts) {
            counters.add(label, CounterReport::of(trace, &names, &plan, style));
        }
        let sessions: Vec<Session<'_>> = labels
            .into_iter()
            .zip(heads)
            .zip(&parts)
            .map(|((label, head), trace)| Session {
                label,
                head,
                index: trace.records.index(),
            })
            .collect();
        written.screen = Screen::new(sessions, &names, plan.kernel_names, &written.files)
            .with_counters(counters);
        Ok(all)
    }
}

/// Writes all sessions to the requested directory, or else to a temporary one.
fn write_or_save(
    parts: &[Trace],
    names: &Names,
    plan: &Plan,
    pid: u32,
    failures: &mut Vec<(String, Failure)>,
) -> Result<Vec<PathBuf>, Failure> {
    let error = match midair_output::write_together(parts, names, plan) {
        Ok(files) => return Ok(files),
        Err(error) => error,
    };
    let write = |plan: &Plan| midair_output::write_together(parts, names, plan);
    let (files, failure) = crate::finished::save_to_temporary(pid, plan.clone(), &error, write)?;
    failures.push(("all".to_owned(), failure));
    Ok(files)
}

fn label(pid: Pid, name: &str) -> String {
    format!("process {pid} ({name})")
}

/// Gives every session file names of its own. Where the user's name is the same for several, the
/// lead keeps it, and the others get their process's number appended. `inner` is the number in the
/// process's own pid namespace, for which the keys in names stand.
fn make_unique(
    plan: &mut Plan,
    (pid, inner): (Pid, u32),
    is_lead: bool,
    used: &mut HashSet<(PathBuf, String)>,
) {
    let wanted = plan.prefix.clone();
    let names_process = wanted.contains(&inner.to_string());
    let first = if is_lead || names_process {
        wanted.clone()
    } else {
        format!("{wanted}_{pid}")
    };
    let base = if names_process {
        wanted
    } else {
        format!("{wanted}_{pid}")
    };
    let further = (2..).map(|number| format!("{base}_{number}"));
    let free = std::iter::once(first)
        .chain(further)
        .find(|name| used.insert((plan.directory.clone(), name.clone())));
    if let Some(free) = free {
        plan.prefix = free;
    }
}
