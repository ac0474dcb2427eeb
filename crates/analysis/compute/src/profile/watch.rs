//! What was counted so far while a process is attached: how certain each metric is by now.

use crate::console::{Console, Level};
use crate::evaluate::{Value, Why};
use crate::files;
use crate::profile::collect::Follow;
use crate::read::Workload;
use crate::report::{Entry, Options, Report, report};
use crate::select::{Blocks, Dispatches};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

/// With fewer windows than this, no metric counts as certain enough.
const FEW: usize = 10;
/// How long to rest after a look at the files, as a multiple of the time that the look took.
const REST: u32 = 9;

/// The files that `rocprofv3 --live-counters` replaces.
#[derive(Debug)]
pub struct Watch {
    directory: PathBuf,
    workload: Workload,
    blocks: Blocks,
    options: Options,
    seen: Vec<(PathBuf, u64, Option<SystemTime>)>,
    next: Instant,
}

impl Watch {
    /// Watches files in this directory, for the metrics of these tables.
    pub fn new(directory: PathBuf, workload: Workload, blocks: Blocks, options: Options) -> Watch {
        Watch {
            directory,
            workload,
            blocks,
            options,
            seen: Vec::new(),
            next: Instant::now(),
        }
    }

    /// Returns the tables if the files have changed. A file that cannot be read is tried again when
    /// it has been replaced.
    pub fn look(&mut self) -> Option<Report> {
        let began = Instant::now();
        if began < self.next {
            return None;
        }
        let mut found = Vec::new();
        for path in files::entries(&self.directory).ok()? {
            if path.extension().is_some_and(|end| end == "csv")
                && let Some((bytes, changed)) = files::state(&path)
            {
                found.push((path, bytes, changed));
            }
        }
        if found.is_empty() || found == self.seen {
            return None;
        }
        self.seen = found;
        let paths: Vec<PathBuf> = self.seen.iter().map(|(path, ..)| path.clone()).collect();
        let read = self.workload.refresh(&paths);
        let filled = read.and_then(|()| {
            report(
                &self.workload,
                &self.blocks,
                &Dispatches::default(),
                &self.options,
            )
        });
        self.next = Instant::now() + began.elapsed() * REST;
        filled.ok()
    }

    /// Returns the dispatches so far.
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Returns how many dispatches have values of each of these counter groups, and how many
    /// dispatches there are.
    pub fn windows(&self, groups: &[Vec<String>]) -> (Vec<usize>, usize) {
        let frame = &self.workload.frame;
        let counted = |group: &Vec<String>| {
            let columns: Vec<_> = group.iter().filter_map(|name| frame.named(name)).collect();
            let complete = |row: &usize| columns.iter().all(|column| !column.get(*row).is_nan());
            match columns.is_empty() {
                true => 0,
                false => (0..frame.rows).filter(complete).count(),
            }
        };
        let all = crate::sample::Rows::All(frame.rows).dispatches(frame);
        (groups.iter().map(counted).collect(), all)
    }
}

/// How certain the metrics of some tables are.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sureness {
    /// The half widths of the intervals in percent of the values, in ascending order. 0: every
    /// dispatch was counted.
    pub errors: Vec<f64>,
    /// How many metrics have too few windows for an interval, or none.
    pub open: usize,
    /// The number of the least certain metric.
    pub worst: String,
    /// The greatest share of the time that the windows of a metric took, from 0 to 1.
    pub coverage: f64,
}

impl Sureness {
    /// Judges the values of a report. Values that can have no interval, such as a maximum, do not
    /// count.
    pub fn of(report: &Report) -> Sureness {
        let mut sureness = Sureness::default();
        let mut worst = -1.0;
        for line in report.sheets.iter().flat_map(|sheet| &sheet.lines) {
            for entry in &line.entries {
                let Entry::Value(value) = entry else {
                    continue;
                };
                match error(value) {
                    Some(Some(error)) => {
                        if error > worst {
                            worst = error;
                            sureness.worst.clone_from(&line.id);
                        }
                        sureness.errors.push(error);
                        sureness.coverage = sureness.coverage.max(value.coverage);
                    }
                    Some(None) => sureness.open += 1,
                    None => {}
                }
            }
        }
        sureness.errors.sort_by(f64::total_cmp);
        sureness
    }

    /// Whether the error of every metric is within this many percent.
    pub fn is_within(&self, percent: f64) -> bool {
        self.open == 0 && self.errors.last().is_some_and(|worst| *worst <= percent)
    }

    fn text(&self, target: Option<f64>) -> String {
        let mut text = match (self.errors.get(self.errors.len() / 2), self.errors.last()) {
            (Some(median), Some(worst)) => format!(
                "{} metrics ± {median:.1} % (worst {} ± {worst:.1} %)",
                self.errors.len(),
                self.worst
            ),
            _ => "no metric yet".to_owned(),
        };
        if self.open > 0 {
            text.push_str(&format!(", {} with too few windows", self.open));
        }
        if let Some(target) = target {
            let within = self.errors.iter().filter(|error| **error <= target).count();
            text.push_str(&format!(
                ", {within} of {} within {target} %",
                self.errors.len() + self.open
            ));
        }
        text
    }
}

/// Returns the error of a value in percent. Some(None): not known yet. None: it will never be
/// known.
fn error(value: &Value) -> Option<Option<f64>> {
    match &value.result {
        Err(Why::Uncounted | Why::Apart | Why::NoDispatch) => Some(None),
        Err(_) => None,
        Ok(_) if value.is_exact() => Some(Some(0.0)),
        Ok(_) if value.n < FEW => Some(None),
        Ok(number) => value.half_width.map(|half| {
            Some(match half == 0.0 {
                true => 0.0,
                false => 100.0 * half / number.abs(),
            })
        }),
    }
}

/// The process that is attached to, as the user named it.
#[derive(Debug, Clone)]
pub struct Attach {
    /// Its id.
    pub pid: String,
    /// Milliseconds to the detach; None: until Enter is pressed.
    pub duration: Option<String>,
}

impl Attach {
    /// Returns the sentence of AMD's tool for a line of `rocprofv3` that reports the attach. Scripts
    /// wait for these sentences.
    pub(super) fn sentence(&self, line: &str) -> Option<String> {
        let success = format!("Attach to process with ID {} is successful, ", self.pid);
        match &self.duration {
            Some(duration) => (line.starts_with("Attaching to PID ")
                && line.ends_with(":: success"))
            .then(|| format!("{success}detach will happen in {duration} milliseconds...")),
            // It says so only where it reads the key (AMD-173).
            None => (line == "Press Enter to detach...")
                .then(|| format!("{success}Press Enter to detach...")),
        }
    }
}

/// Shows the progress of `profile`; on a terminal, as one line that is replaced.
#[derive(Debug)]
pub struct Progress<'a> {
    console: &'a Console,
    watch: Watch,
    groups: &'a [Vec<String>],
    target: Option<f64>,
    attach: Option<Attach>,
    began: Instant,
    shown: Duration,
    /// The shown line, without the time.
    line: String,
    reached: bool,
}

impl<'a> Progress<'a> {
    /// Creates the progress display. The profile ends at this error, if one is given. `attach` is
    /// what is attached to, if a process is.
    pub fn new(
        console: &'a Console,
        watch: Watch,
        groups: &'a [Vec<String>],
        target: Option<f64>,
        attach: Option<Attach>,
    ) -> Progress<'a> {
        Progress {
            console,
            watch,
            groups,
            target,
            attach,
            began: Instant::now(),
            shown: Duration::ZERO,
            line: String::new(),
            reached: false,
        }
    }

    fn describe(&mut self, report: &Report) {
        let sureness = Sureness::of(report);
        let (windows, dispatches) = self.watch.windows(self.groups);
        let counted: usize = windows.iter().sum();
        let least = windows.iter().min().copied().unwrap_or(0);
        self.line = format!(
            "{dispatches} dispatches, {counted} windows, {} groups with {least} or more, coverage {:.1} %, {}",
            windows.len(),
            100.0 * sureness.coverage,
            sureness.text(self.target)
        );
        self.console.info(&format!(
            "{:.1} s: {}; windows of each group: {}",
            self.began.elapsed().as_secs_f64(),
            self.line,
            windows
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        ));
        self.reached = self.target.is_some_and(|target| sureness.is_within(target));
    }
}

impl Follow for Progress<'_> {
    fn tick(&mut self) -> bool {
        let before = self.reached;
        if let Some(report) = self.watch.look() {
            self.describe(&report);
        }
        let elapsed = self.began.elapsed();
        if elapsed.saturating_sub(self.shown) >= Duration::from_secs(1) && !self.line.is_empty() {
            self.shown = elapsed;
            self.console
                .status(&format!("{} s  {}", elapsed.as_secs(), self.line));
        }
        if self.reached && !before {
            self.console.status("");
            self.console.note(&format!(
                "every metric is within {} % after {:.1} s; detaching",
                self.target.unwrap_or_default(),
                elapsed.as_secs_f64()
            ));
        }
        self.reached
    }

    fn line(&mut self, text: &str) {
        self.console.status("");
        self.console.passed_on(text);
    }

    fn said(&mut self, text: &str) {
        self.console.status("");
        self.console.text(&format!("{text}\n"));
        let sentence = self.attach.as_ref().and_then(|it| it.sentence(text));
        if let Some(sentence) = sentence
            && self.console.level >= Level::Normal
        {
            self.console.text(&format!("{sentence}\n"));
        }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.console.status("");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn value(result: Result<f64, Why>, n: usize, half_width: Option<f64>) -> Value {
        Value {
            result,
            n,
            of: 1000,
            coverage: 0.1,
            half_width,
        }
    }

    #[test]
    fn an_error_is_relative_and_needs_some_windows() {
        let percent = |value: &Value| error(value);
        assert_eq!(percent(&value(Ok(50.0), 20, Some(1.0))), Some(Some(2.0)));
        assert_eq!(percent(&value(Ok(-50.0), 20, Some(1.0))), Some(Some(2.0)));
        assert_eq!(percent(&value(Ok(0.0), 20, Some(0.0))), Some(Some(0.0)));
        assert_eq!(
            percent(&value(Ok(0.0), 20, Some(1.0))),
            Some(Some(f64::INFINITY))
        );
        // Every dispatch was counted.
        assert_eq!(percent(&value(Ok(3.0), 1000, None)), Some(Some(0.0)));
        // Too few, or none yet.
        assert_eq!(percent(&value(Ok(3.0), FEW - 1, Some(0.0))), Some(None));
        assert_eq!(percent(&value(Err(Why::Uncounted), 0, None)), Some(None));
        // A maximum, and a value that no window can provide.
        assert_eq!(percent(&value(Ok(3.0), 20, None)), None);
        assert_eq!(percent(&value(Err(Why::NoFormula), 0, None)), None);
        assert_eq!(
            percent(&value(Err(Why::Lacks(String::new())), 0, None)),
            None
        );
    }

    #[test]
    fn all_must_be_within_the_target() {
        let mut sureness = Sureness {
            errors: vec![0.0, 1.0, 4.0],
            ..Sureness::default()
        };
        assert!(sureness.is_within(4.0) && !sureness.is_within(3.9));
        assert!(sureness.text(Some(2.0)).contains("2 of 3 within 2 %"));
        sureness.open = 1;
        assert!(!sureness.is_within(100.0));
        assert!(!Sureness::default().is_within(100.0));
    }
}
