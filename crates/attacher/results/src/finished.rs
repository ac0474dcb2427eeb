//! A trace that is complete and has not been written yet.

use crate::identity::Identity;
use crate::plan::plan;
use midair_counters::CounterPlan;
use midair_failure::{Failure, Kind};
use midair_output::screen::{Cost, Head};
use midair_output::{
    Attach, Console, CounterReport, Format, GpuSamples, Names, Numbering, Outcome, Plan,
    RecordFile, Screen, Trace, WriteError, console_summary, table,
};
use midair_record::event::{NO_STACKS, TOO_MANY_RANGES};
use midair_record::spool::{DROP_SLOTS, outcome};
use midair_settings::{COLLECTION_PERIOD, DEFAULT_MAX_BYTES, MAX_BYTES, Settings};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How the target ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By itself, with its exit code where that is known.
    Exited(Option<i32>),
    /// By this signal.
    Signal(i32),
    /// It became another program by `exec`.
    Exec,
    /// It runs on. The session ended because another profiler wanted the process and we yielded.
    Yielded,
    /// It runs on. The session ended because its lease expired: the attacher was silent for too long.
    Lapsed,
    /// It runs on. The session ended because its records reached their greatest size.
    Full,
}

impl End {
    /// Returns the end of a process that has this wait status, as far as it is known.
    pub fn of(status: Option<i32>) -> End {
        match status {
            Some(status) if status & 0x7f != 0 => End::Signal(status & 0x7f),
            Some(status) => End::Exited(Some(status >> 8 & 0xff)),
            None => End::Exited(None),
        }
    }
}

/// Returns the warning where no files are written because too little was recorded.
pub(crate) fn too_little<'a>(
    plan: &Plan,
    records: impl Iterator<Item = &'a RecordFile> + Clone,
) -> Option<String> {
    let bytes: u64 = records.clone().map(RecordFile::bytes).sum();
    plan.is_too_little(records).then(|| {
        format!(
            "no file is written: {} KB were recorded, less than the {} of --minimum-output-data",
            bytes / 1024,
            plan.minimum_bytes.div_ceil(1024)
        )
    })
}

/// Describes how the target ended.
pub fn describe(end: End) -> String {
    match end {
        End::Exited(Some(code)) => format!("it exited with code {code}"),
        End::Exited(None) => "it exited".to_owned(),
        End::Signal(signal) => format!("it was killed by signal {signal}"),
        End::Exec => "it executed another program".to_owned(),
        End::Yielded => {
            "it keeps running; midair detached when another profiler started".to_owned()
        }
        End::Lapsed => "it keeps running, and is no longer recorded".to_owned(),
        End::Full => "it keeps running; the records reached their size limit".to_owned(),
    }
}

/// Results on the disk.
#[derive(Debug, Clone, Default)]
pub struct Written {
    /// Complete files, in the order in which they were written.
    pub files: Vec<PathBuf>,
    /// What was found, ready to print, in the style that was asked for.
    pub table: String,
    /// The same for other styles, and as a document.
    pub screen: Screen,
    /// The tables of `--summary` and where they go, when that is a console.
    pub summary: Option<(Console, String)>,
    /// What the user should know about the results.
    pub warnings: Vec<String>,
    /// Why the results are incomplete, if they are: they were saved elsewhere, records were lost, or the
    /// target was killed.
    pub incomplete: Option<Failure>,
}

/// The warning where the files contain nothing.
const NOTHING: &str = "nothing was recorded: midair saw no call or kernel of the requested kinds";

/// The same warning where no variable asks for anything (the C interface has no defaults).
const NOT_ASKED: &str = "nothing was recorded: no setting enables a domain, such as ROCPROF_KERNEL_TRACE=1, ROCPROF_HIP_RUNTIME_API_TRACE=1, ROCPROF_MEMORY_COPY_TRACE=1";

/// The same warning where only regions were to be recorded.
const NOT_SELECTED: &str = "nothing was recorded: midair saw no call or kernel of the requested kinds between roctxProfilerResume and roctxProfilerPause";

/// The same warning where only collection periods were to be recorded.
const NOT_IN_A_PERIOD: &str = "nothing was recorded: midair saw no call or kernel of the requested kinds in the collection periods";

/// The same warning where only bursts were recorded.
const NOT_IN_A_BURST: &str = "nothing was recorded: midair saw no call or kernel of the requested kinds in the bursts (--max-overhead)";

/// Why there is nothing where the session ended before the first of its bursts, or none could start.
const BEFORE_A_BURST: &str =
    "nothing was recorded: the session ended before the first burst (--max-overhead)";

/// The same warning where kernels were to be counted, and some ran.
const NOT_COUNTED: &str =
    "nothing was counted: no kernel launch got a counter window; see the notes for known reasons";

/// Why there are no counters.
const NO_COUNTERS: &str = "counters were asked for, and none could be prepared";

/// What a session recorded.
#[derive(Debug)]
pub struct Finished {
    /// The process that was traced, with the times of the session.
    pub identity: Identity,
    /// What was asked for.
    pub settings: Settings,
    /// What was recorded.
    pub records: RecordFile,
    /// Records that were dropped because the spool was full, by `midair_record::spool::drop_slot`.
    pub dropped: [u64; DROP_SLOTS],
    /// The reasons for its end that the target's side reports ([`outcome`]).
    pub outcome: u32,
    /// How the target ended, if it did.
    pub ended: Option<End>,
    /// Why the detach did not complete, if it did not.
    pub failure: Option<Failure>,
    /// Minor errors while collecting, in words.
    pub notes: Vec<String>,
    /// The plan of the counters, by which the words in the windows of counters are read.
    pub counters: CounterPlan,
    /// What the session cost, as far as that was measured.
    pub cost: Cost,
    /// How long the session was, ns, where its records cover a part of it only. The times of the
    /// process in `identity` cover this part only.
    pub session_ns: Option<u64>,
    /// For how long nothing was recorded within these times, ns: in pauses of the program, or
    /// outside of collection periods.
    pub unrecorded_ns: u64,
    /// Samples of the whole GPU that were taken meanwhile.
    pub gpu: Option<GpuSamples>,
    /// Only the caller's own tools were attached. Their records belong to them, and is in no
    /// midair file.
    pub only_others: bool,
    /// What the process was seen to do while no kernel was recorded, if that explains it.
    pub why_empty: Option<String>,
    /// The files of code objects, by the objects' numbers, where thread traces need them.
    pub code: BTreeMap<u64, Arc<[u8]>>,
}

impl Finished {
    /// Whether the process used no GPU runtime and nothing went wrong. In a group such a process is
    /// only a helper (a DataLoader's worker, say), and there is nothing to report about it.
    pub(crate) fn had_no_gpu(&self) -> bool {
        self.outcome & outcome::NO_TABLES != 0 && self.failure.is_none()
    }

    /// Writes the outputs where the settings say, with the table in this `style`.
    ///
    /// # Errors
    /// [`Kind::Output`] when no file could be written anywhere. Files that could not be written to the
    /// requested directory but were saved elsewhere are reported by [`Written::incomplete`].
    pub fn write(self, style: table::Style) -> Result<Written, Failure> {
        let plan = plan(&self.settings, &self.identity)?;
        let has_files = self.has_files();
        let ready = self.ready(plan);
        if !has_files {
            let (warnings, incomplete) = ready.words_alone();
            return Ok(Written {
                warnings,
                incomplete,
                ..Written::default()
            });
        }
        let names = Names::amd();
        let (files, saved_elsewhere) = ready.write_files(&names)?;
        let summary = console_summary(&ready.trace, &names, &ready.plan);
        let (warnings, incomplete) = ready.conclusion(saved_elsewhere);
        let counters = CounterReport::of(&ready.trace, &names, &ready.plan, style);
        let session = midair_output::screen::Session {
            label: String::new(),
            head: ready.head(),
            index: ready.trace.records.index(),
        };
        let why = incomplete.as_ref().map(|failure| failure.what.as_str());
        let screen = Screen::new(vec![session], &names, ready.plan.kernel_names, &files)
            .with_counters(counters)
            .with_warnings(&warnings, why);
        Ok(Written {
            files,
            table: screen.text(style),
            screen,
            summary,
            warnings,
            incomplete,
        })
    }

    /// Returns the results for a caller who reads them here.
    ///
    /// # Errors
    /// As [`check`].
    pub fn open(self) -> Result<Opened, Failure> {
        let plan = plan(&self.settings, &self.identity)?;
        Ok(Opened(self.ready(plan)))
    }

    /// Writes what was counted so far to this file, while the session goes on.
    ///
    /// # Errors
    /// [`Kind::Output`] where that cannot be.
    pub fn write_counted_so_far(self, to: &Path) -> Result<(), Failure> {
        let plan = plan(&self.settings, &self.identity)?;
        let ready = self.ready(plan);
        let names = Names::amd();
        midair_output::write_counted_so_far(&ready.trace, &names, &ready.plan, to)
            .map_err(|error| Failure::new(Kind::Output, format!("{}: {error}", to.display())))
    }

    /// Whether files are written.
    pub(crate) fn has_files(&self) -> bool {
        !self.only_others
    }

    /// Returns the trace, ready to be written.
    pub(crate) fn ready(mut self, plan: Plan) -> Ready {
        let killed = match self.ended {
            Some(end @ (End::Signal(_) | End::Exec)) => Some(end),
            _ => None,
        };
        let mut lost = lost(&self.dropped, "");
        let beyond = match self.records.no_room() {
            Some(_) => AFTER_FULL,
            None => BEYOND,
        };
        lost.extend(self::lost(self.records.beyond(), beyond));
        let full = full(&self.records, self.ended == Some(End::Full));
        let truncated = truncated(self.outcome);
        let mut notes = self.notes;
        notes.extend(outcome_notes(self.outcome));
        if let Err(error) = self.records.find_captures() {
            notes.push(format!("cannot find the captures of graphs: {error}"));
        }
        let kernels = !plan.hide_kernels;
        if let Err(error) = self
            .records
            .choose(&plan.kernel_filter, plan.kernel_names, kernels)
        {
            notes.push(format!("cannot select kernels: {error}"));
        }
        let why_empty = self.records.none_chosen().or(self.why_empty);
        notes.extend(why_empty.clone());
        let without_counters = self.settings.asks_for_counters() && self.counters.agents.is_empty();
        if without_counters {
            notes.push(NO_COUNTERS.to_owned());
        }
        let ordinary =
            killed.is_none() && self.failure.is_none() && truncated.is_none() && full.is_none();
        let text = match (&self.failure, self.ended) {
            (Some(failure), _) => failure.what.clone(),
            (None, Some(End::Yielded)) => {
                "midair detached when another profiler started".to_owned()
            }
            (None, _) if full.is_some() => full.clone().unwrap_or_default(),
            (None, _) if truncated.is_some() => truncated.unwrap_or_default().to_owned(),
            (None, Some(end)) => format!("the process ended while attached: {}", describe(end)),
            (None, None) => "complete".to_owned(),
        };
        let trace = Trace {
            known: Default::default(),
            process: self.identity.process,
            agents: self.identity.agents,
            records: self.records,
            lost,
            notes,
            outcome: Outcome { text, ordinary },
            counters: self.counters,
            gpu: self.gpu,
            attach: Attach {
                pid: Some(self.identity.seen_as),
                began: self.identity.keys.began(),
                began_ns: self.identity.began_ns,
                cost: self.cost,
                session_ns: self.session_ns,
                unrecorded_ns: self.unrecorded_ns,
                code: self.code,
            },
        };
        Ready {
            trace,
            plan,
            selects: self.settings.is_on("ROCPROF_SELECTED_REGIONS"),
            has_periods: self.settings.text(COLLECTION_PERIOD).is_some(),
            system_backend: self.settings.text("ROCPROF_PERFETTO_BACKEND") == Some("system"),
            killed,
            full,
            truncated,
            failure: self.failure,
            why_empty,
            without_counters,
            asks: self.settings.record_something()
                || self.settings.get("ROCPROF_ATTACH_TOOL_LIBRARY").is_some(),
        }
    }
}

/// A trace that is ready to be written.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) trace: Trace,
    pub(crate) plan: Plan,
    system_backend: bool,
    /// Whether only selected regions were recorded.
    selects: bool,
    /// Whether only what started in collection periods was to be recorded.
    has_periods: bool,
    killed: Option<End>,
    full: Option<String>,
    truncated: Option<&'static str>,
    failure: Option<Failure>,
    why_empty: Option<String>,
    /// Whether counters were asked for, and none could be prepared.
    without_counters: bool,
    /// Whether anything was to be recorded, as far as midair knows.
    asks: bool,
}

/// A finished session whose records are read here, and written any number of times.
#[derive(Debug)]
pub struct Opened(Ready);

impl Opened {
    /// Returns the records and what is known besides.
    pub fn trace(&self) -> &Trace {
        &self.0.trace
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.0.plan
    }

    pub(crate) fn into_trace(self) -> Trace {
        self.0.trace
    }

    /// Returns warnings about the results, and why these are incomplete, if they are.
    pub fn conclusion(&self) -> (Vec<String>, Option<Failure>) {
        self.0.conclusion(None)
    }

    /// Writes files in this format, whose names start with `prefix`. They take the place of others.
    ///
    /// # Errors
    /// [`Kind::Output`]; then no file is left.
    pub fn write(
        &self,
        format: Format,
        (directory, prefix): (&Path, &str),
    ) -> Result<Vec<PathBuf>, Failure> {
        let plan = Plan {
            directory: directory.to_owned(),
            prefix: prefix.to_owned(),
            numbering: Numbering::Replace,
            formats: vec![format],
            ..self.0.plan.clone()
        };
        midair_output::write(&self.0.trace, &Names::amd(), &plan)
            .map_err(|error| Failure::new(Kind::Output, error.to_string()))
    }
}

impl Ready {
    /// Returns what is shown above the tables.
    pub(crate) fn head(&self) -> Head {
        Head::of(&self.trace)
    }

    /// Writes the files where the plan says, or else into a temporary directory. The failure that
    /// is returned then says so.
    pub(crate) fn write_files(
        &self,
        names: &Names,
    ) -> Result<(Vec<PathBuf>, Option<Failure>), Failure> {
        let write = |plan: &Plan| midair_output::write(&self.trace, names, plan);
        match write(&self.plan) {
            Ok(files) => Ok((files, None)),
            Err(error) => {
                let pid = self.trace.process.pid;
                let (files, failure) = save_to_temporary(pid, self.plan.clone(), &error, write)?;
                Ok((files, Some(failure)))
            }
        }
    }

    /// Does the same as [`Ready::conclusion`] where no files are written. What would be in their
    /// notes becomes warnings.
    pub(crate) fn words_alone(&self) -> (Vec<String>, Option<Failure>) {
        let (mut warnings, incomplete) = self.conclusion(None);
        warnings.retain(|warning| warning != NOTHING);
        for note in &self.trace.records.index().notes {
            if !warnings.contains(note) {
                warnings.push(note.clone());
            }
        }
        (warnings, incomplete)
    }

    /// Returns warnings about the results, and why these are incomplete, if they are.
    pub(crate) fn conclusion(
        &self,
        saved_elsewhere: Option<Failure>,
    ) -> (Vec<String>, Option<Failure>) {
        let (trace, index, plan) = (&self.trace, self.trace.records.index(), &self.plan);
        let mut warnings = trace.notes.clone();
        if plan.stats
            && !plan
                .formats
                .iter()
                .any(|f| matches!(f, Format::Csv | Format::Json))
        {
            warnings.push(
                "--stats has no effect: statistics are written with csv and json only".to_owned(),
            );
        }
        warnings.extend(too_little(plan, std::iter::once(&trace.records)));
        if plan.formats.contains(&Format::Pftrace) && self.system_backend {
            warnings.push(
                "ROCPROF_PERFETTO_BACKEND=system has no effect: midair always writes the trace to a file"
                    .to_owned(),
            );
        }
        let unbalanced = index.unbalanced();
        let counts = !trace.counters.agents.is_empty() && trace.counters.interval == 0;
        let uncounted = counts && index.is_idle() && index.launched() > index.paused();
        // Kernels that were asked for were launched, and no record of one came back.
        let is_incomplete = uncounted && plan.kernel_filter.is_all() && !self.selects;
        let incomplete = saved_elsewhere.or_else(|| self.failure.clone()).or_else(|| {
            if let Some(end) = self.killed {
                return Some(Failure::new(
                    Kind::TargetKilled,
                    format!("the process ended while attached: {}", describe(end)),
                ));
            }
            if let Some(why) = &self.full {
                return Some(Failure::new(Kind::Full, why).hint(
                    match trace.records.no_room() {
                        Some(_) => "free space there, or set TMPDIR to a directory on another file system",
                        None => "record less, for a shorter time, or with a larger --max-size",
                    },
                ));
            }
            if let Some(why) = self.truncated {
                let hint = match why {
                    BEFORE_A_BURST => "attach for longer, or raise --max-overhead: bursts are rare in a CUDA process, since each has a cost; see also the notes",
                    LEASE_EXPIRED => "record again: midair did not run for seconds, since it was stopped or suspended, or got no CPU",
                    _ => "record again on a less loaded machine: midair's thread in the process did not look in time",
                };
                return Some(Failure::new(Kind::Incomplete, why).hint(hint));
            }
            // Without a launch there was nothing to count.
            if self.without_counters && index.launched() > index.paused() {
                return Some(Failure::new(Kind::NoCounters, NO_COUNTERS));
            }
            let mut lost: Vec<String> = trace
                .lost
                .iter()
                .map(|(what, count)| format!("{count} {what}"))
                .collect();
            if index.unseen() > 0 {
                lost.push(format!(
                    "{} queue packets, which were consumed before they could be inspected",
                    index.unseen()
                ));
            }
            let malformed = trace.records.malformed_bytes();
            if malformed > 0 {
                lost.push(format!("{malformed} bytes of the spool, which were not valid records"));
            }
            if let Some(first) = unbalanced.first() {
                lost.push(first.clone());
            }
            let too_many_open = trace.lost.iter().all(|(what, _)| *what == MARKERS)
                && index.notes.iter().any(|note| note.ends_with(TOO_MANY_RANGES));
            let hint = match (trace.lost.is_empty(), index.unseen() > 0) {
                (false, _) if too_many_open => {
                    "does the program forget to end ranges? It has more open ranges than midair follows (128 per thread, 4096 started)"
                }
                (false, _) if index.notes.iter().any(|note| is_cuptis_loss(note)) => {
                    "the notes say what CUPTI lost: attach again, or record fewer kinds"
                }
                (false, _) => "use a larger --spool-size, or record less",
                (true, true) => {
                    "attach again on a less loaded machine: midair's thread in the process did not get to look in time"
                }
                (true, false) => {
                    "please report this with the notes file: it should not happen"
                }
            };
            if lost.is_empty() && is_incomplete {
                let hint = "see the notes for the reason; --exclusive gives each kernel a window";
                return Some(Failure::new(Kind::Incomplete, NOT_COUNTED).hint(hint));
            }
            (!lost.is_empty()).then(|| {
                Failure::new(
                    Kind::Incomplete,
                    format!("records were lost: {}", lost.join(", ")),
                )
                .hint(hint)
            })
        });
        warnings.extend(unbalanced);
        if index.paused() > 0 {
            let when = if !index.bursts.is_empty() {
                "between the recorded bursts (--max-overhead), which represent them"
            } else if self.has_periods {
                "outside the collection periods, or while the program had paused recording"
            } else {
                "while the program had paused the recording (roctxProfilerPause)"
            };
            warnings.push(format!(
                "{} launched {when}: excluded from the results",
                midair_failure::plain::counted(index.paused(), "dispatch was", "dispatches were")
            ));
        }
        if index.is_idle() && !is_incomplete && self.truncated != Some(BEFORE_A_BURST) {
            let nothing = match self.selects {
                _ if uncounted => NOT_COUNTED,
                _ if !self.asks => NOT_ASKED,
                true => NOT_SELECTED,
                false if self.has_periods => NOT_IN_A_PERIOD,
                false if !index.bursts.is_empty() => NOT_IN_A_BURST,
                false => NOTHING,
            };
            warnings.push(nothing.to_owned());
        }
        warnings.extend(self.why_empty.clone());
        // Without stacks there is nothing to see where they were asked for.
        let no_stacks = index.notes.iter();
        warnings.extend(
            no_stacks
                .filter(|note| note.starts_with(NO_STACKS))
                .cloned(),
        );
        warnings.extend(index.stacks.notes());
        (warnings, incomplete)
    }
}

/// Saves the results in a new directory below the temporary one, since the requested directory cannot be
/// written and a recording cannot be repeated. The failure returned tells where they are.
///
/// # Errors
/// When that fails, too.
pub(crate) fn save_to_temporary(
    pid: u32,
    mut plan: Plan,
    error: &WriteError,
    write: impl FnOnce(&Plan) -> Result<Vec<PathBuf>, WriteError>,
) -> Result<(Vec<PathBuf>, Failure), Failure> {
    let lost = |second: &dyn std::fmt::Display| {
        Failure::new(
            Kind::Output,
            format!("{error}; in the directory for temporary files: {second}"),
        )
    };
    let prefix = format!("midair-{pid}-");
    let directory = tempfile::Builder::new()
        .prefix(&prefix)
        .tempdir()
        .map_err(|second| lost(&second))?;
    plan.directory = directory.path().to_path_buf();
    plan.prefix = plan
        .prefix
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .to_owned();
    let files = write(&plan).map_err(|second| lost(&second))?;
    let directory = directory.keep();
    let failure = Failure::new(Kind::Output, error.to_string()).hint(format!(
        "the results were saved in {} instead",
        directory.display()
    ));
    Ok((files, failure))
}

/// Checks before anything is recorded whether results could be written where the settings say.
///
/// # Errors
/// [`Kind::Output`], or a setting with a meaningless value.
pub fn check(settings: &Settings, identity: &Identity) -> Result<PathBuf, Failure> {
    let plan = plan(settings, identity)?;
    midair_output::check(&plan).map_err(|error| {
        Failure::new(Kind::Output, error.to_string())
            .hint("choose another directory with --output-directory")
    })?;
    Ok(plan.directory)
}

/// The name for lost records that only describe something.
const DESCRIPTIONS: &str = "descriptions of agents, queues or kernels";

/// Whether a note of the target's side is about records that CUPTI lost, or that cannot be read.
fn is_cuptis_loss(note: &str) -> bool {
    [
        "records were dropped by CUPTI",
        "CUPTI buffers could not be read",
        "times of CUPTI match no known clock",
    ]
    .iter()
    .any(|words| note.contains(words))
}

/// The name for lost marks and ranges.
const MARKERS: &str = "markers";

/// The end of the name of records that were left out because of the limit of their size.
const BEYOND: &str = " beyond --max-size";

/// The same where the file system had no more room.
const AFTER_FULL: &str = " after the file system was full";

/// Returns a note about a session whose records reached the limit of their size.
fn full(records: &RecordFile, has_ended: bool) -> Option<String> {
    let beyond = records.beyond().iter().any(|count| *count > 0);
    if let Some(no_room) = records.no_room().filter(|_| beyond || has_ended) {
        return Some(format!(
            "recording ended early: the file system of {}, which stores the records (TMPDIR), is full ({}); the records so far are written",
            no_room.directory.display(),
            no_room.why
        ));
    }
    beyond.then(|| {
        format!(
            "recording ended early: the records reached --max-size ({} MiB); the records so far are written",
            records.limit() >> 20
        )
    })
}

/// Returns the limit of the bytes of one session's records.
///
/// # Errors
/// [`Kind::Usage`] where the setting is no number.
pub fn record_limit(settings: &Settings) -> Result<u64, Failure> {
    let number = settings.number(MAX_BYTES);
    let number = number.map_err(|bad| Failure::new(Kind::Usage, bad.to_string()))?;
    Ok(number.unwrap_or(DEFAULT_MAX_BYTES))
}

fn lost(dropped: &[u64; DROP_SLOTS], how: &str) -> Vec<(String, u64)> {
    let what = |number: usize| {
        let domain = u8::try_from(number).ok().and_then(midair_domain::domain);
        let records = domain
            .filter(|domain| domain.built)
            .map_or(DESCRIPTIONS, |domain| domain.files.records);
        format!("{records}{how}")
    };
    let mut lost: Vec<(String, u64)> = Vec::new();
    for (number, count) in dropped.iter().enumerate().filter(|(_, count)| **count > 0) {
        let what = what(number);
        match lost.iter_mut().find(|(name, _)| *name == what) {
            Some((_, sum)) => *sum += count,
            None => lost.push((what, *count)),
        }
    }
    lost
}

/// What is missing where the attacher was not heard for too long.
const LEASE_EXPIRED: &str = "the session ended early, since midair was unresponsive for too long: later records are missing";

/// Returns why a session that has ended lacks part of what happened, if it does.
fn truncated(word: u32) -> Option<&'static str> {
    [
        (outcome::LEASE_EXPIRED, LEASE_EXPIRED),
        (outcome::HOOKED_LATE, "the process used its GPU runtime before midair could hook it: its first records may be missing"),
        (outcome::NO_BURST, BEFORE_A_BURST),
    ]
    .into_iter()
    .find(|(bit, _)| word & bit != 0)
    .map(|(_, text)| text)
}

/// Returns in words what the target's side reports about its end.
fn outcome_notes(word: u32) -> Vec<String> {
    [
        (outcome::SLOT_KEPT, "another library has wrapped midair's hooks: they stay in place and only pass calls on"),
        (outcome::STILL_RUNNING, "work was still running on the device at detach: it is marked as running"),
        (outcome::RUNTIME_SHUT_DOWN, "the process shut down its GPU runtime: recording ended there"),
        (outcome::MEMORY_KEPT, "a thread of the process was delayed while storing a record: some of midair's memory stays mapped there"),
        (outcome::YIELDED, "midair detached when another profiler started: the records until then are complete"),
        (outcome::NO_TABLES, "the process used no GPU runtime: there was nothing to record"),
        (outcome::BURSTS_ENDED, "no burst was possible after the last one (see the notes for the reason): later work was not recorded"),
    ]
    .into_iter()
    .filter(|(bit, _)| word & bit != 0)
    .map(|(_, text)| text.to_owned())
    .collect()
}

#[cfg(test)]
mod tests;
