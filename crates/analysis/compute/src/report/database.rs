//! Reports as a database in AMD's schema 2.4.0. Values that AMD's schema has no place for are
//! additional rows of values with names of their own: `N`, `Coverage`, `Half Width 95`.

use super::files::push;
use super::text::number;
use super::{Entry, Options, Report, report, sampled, stored};
use crate::architecture::Source;
use crate::files::{self, unwritable};
use crate::frame::field;
use crate::read::Workload;
use crate::samples::Line;
use crate::select::{Blocks, Dispatches};
use midair_failure::Failure;
use midair_output::files::OneFile;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, params};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The schema that is written.
pub const SCHEMA_VERSION: &str = "2.4.0";
const SCHEMA: &str = include_str!("schema.sql");
const VIEWS: [&str; 5] = [
    "compute_kernel_view",
    "compute_kernel_metric_view",
    "compute_workload_metric_view",
    "compute_pc_sampling_summary_view",
    "compute_source_lines_view",
];

/// A workload, its report, and which parts of it were chosen.
pub struct Job<'a> {
    /// The workload.
    pub workload: &'a Workload,
    /// Its report.
    pub report: &'a Report,
    /// The tables that were chosen.
    pub blocks: &'a Blocks,
    /// The dispatches that were chosen.
    pub dispatches: &'a Dispatches,
}

/// Writes reports into a new file.
///
/// # Errors
/// When the file cannot be written.
pub fn write(path: &Path, jobs: &[Job<'_>], options: &Options) -> Result<(), Failure> {
    // The file gets its name when it is complete, so that a reader never finds half of it.
    let (mut set, file) = OneFile::reserve(path).map_err(|error| files::failed(&error))?;
    // The file was just made, and in another user's directory it may have been replaced since.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    Connection::open_with_flags(file.resolved(), flags)
        .and_then(|connection| {
            // What SQLite would keep next to the file could be anywhere.
            connection.pragma_update(None, "journal_mode", "MEMORY")?;
            fill(&connection, jobs, options)
        })
        .map_err(|error| unwritable(path, &error))?;
    set.add_reserved(file);
    set.commit()
        .map(drop)
        .map_err(|error| files::failed(&error))
}

/// Writes each view as a file of comma-separated values.
///
/// # Errors
/// When one cannot be written.
pub fn views(
    directory: &Path,
    jobs: &[Job<'_>],
    options: &Options,
) -> Result<Vec<PathBuf>, Failure> {
    let wrong = |error: rusqlite::Error| unwritable(directory, &error);
    let connection = Connection::open_in_memory().map_err(wrong)?;
    fill(&connection, jobs, options).map_err(wrong)?;
    let mut written = Vec::new();
    for view in VIEWS {
        let mut statement = connection
            .prepare(&format!("SELECT * FROM {view}"))
            .map_err(wrong)?;
        let mut text = String::new();
        let headings: Vec<String> = statement.column_names().map(str::to_owned).collect();
        push(&mut text, &headings);
        let mut rows = statement.query([]).map_err(wrong)?;
        while let Some(row) = rows.next().map_err(wrong)? {
            let mut words = Vec::with_capacity(headings.len());
            for column in 0..headings.len() {
                words.push(match row.get_ref(column).map_err(wrong)? {
                    ValueRef::Null => String::new(),
                    ValueRef::Integer(number) => number.to_string(),
                    ValueRef::Real(number) => number.to_string(),
                    ValueRef::Text(text) | ValueRef::Blob(text) => {
                        String::from_utf8_lossy(text).into_owned()
                    }
                });
            }
            push(&mut text, &words);
        }
        // AMD's names of the files.
        let name = view
            .trim_start_matches("compute_")
            .trim_end_matches("_view");
        let file = directory.join(format!("{name}.csv"));
        files::write(&file, &text)?;
        written.push(file);
    }
    for (id, job) in (1_i64..).zip(jobs) {
        let lines = lines(job, options);
        let rows = kernels(&connection, id).map_err(wrong)?;
        let by_name = rows.iter().map(|(name, id)| (name.as_str(), *id)).collect();
        stored::per_kernel(directory, job.workload, &lines, &by_name)?;
    }
    Ok(written)
}

/// Returns the samples of the chosen kernels.
fn lines<'w>(job: &Job<'w>, options: &Options) -> Vec<&'w Line> {
    let of = (!job.dispatches.kernels.is_empty()).then_some(job.report.kernels.as_slice());
    sampled::chosen(job.workload, of, options)
}

/// Returns the kernels of a workload with their numbers.
fn kernels(connection: &Connection, workload: i64) -> rusqlite::Result<Vec<(String, i64)>> {
    let mut statement = connection
        .prepare("SELECT kernel_name, kernel_uuid FROM compute_kernel WHERE workload_id = ?")?;
    let rows = statement.query_map([workload], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

fn object<'t>(pairs: impl Iterator<Item = (&'t String, &'t String)>) -> String {
    let map: Map<String, Value> = pairs
        .map(|(name, value)| (name.clone(), Value::String(value.clone())))
        .collect();
    Value::Object(map).to_string()
}

fn fill(connection: &Connection, jobs: &[Job<'_>], options: &Options) -> rusqlite::Result<()> {
    // The file is new and gets its name only when it is complete, so it needs no journal.
    connection.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN;")?;
    connection.execute_batch(SCHEMA)?;
    connection.execute(
        "INSERT INTO compute_metadata VALUES (1, ?, NULL, ?)",
        params![
            concat!("midair ", env!("CARGO_PKG_VERSION")),
            SCHEMA_VERSION
        ],
    )?;
    let mut ids = Ids::default();
    for (workload, job) in (1_i64..).zip(jobs) {
        one(connection, workload, job, options, &mut ids)?;
    }
    connection.execute_batch("COMMIT;")
}

/// The last id used in each table.
#[derive(Default)]
struct Ids {
    kernel: i64,
    dispatch: i64,
    metric: i64,
    value: i64,
}

fn one(
    connection: &Connection,
    id: i64,
    job: &Job<'_>,
    options: &Options,
    ids: &mut Ids,
) -> rusqlite::Result<()> {
    let Job {
        workload, report, ..
    } = job;
    let sub = workload
        .path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    connection.execute(
        "INSERT INTO compute_workload VALUES (?, ?, ?, ?, ?, NULL)",
        params![
            id,
            workload.name,
            // Two directories of the same workload differ in this column.
            format!("{}#{id}", sub.unwrap_or_default()),
            object(workload.system.iter().map(|(name, value)| (name, value))),
            object(workload.profiling.all.iter()),
        ],
    )?;
    let frame = &workload.frame;
    let mut kernels = HashMap::new();
    let mut insert = connection.prepare("INSERT INTO compute_kernel VALUES (?, ?, ?, ?)")?;
    for kernel in &report.kernels {
        ids.kernel += 1;
        let name = frame.names.text(kernel.kernel);
        insert.execute(params![ids.kernel, id, name, short(name)])?;
        kernels.insert(kernel.kernel, ids.kernel);
    }
    let mut insert =
        connection.prepare("INSERT OR IGNORE INTO compute_dispatch VALUES (?, ?, ?, ?, ?, ?)")?;
    for row in report.rows.iter() {
        ids.dispatch += 1;
        let at = |name: &str| frame.named(name).map_or(f64::NAN, |column| column.get(row));
        let whole = |value: f64| (!value.is_nan()).then_some(value as i64);
        let time = |name: &str| whole(at(name)).map(|time| time.saturating_add(frame.origin));
        let kernel = frame.kernel.get(row).and_then(|kernel| kernels.get(kernel));
        insert.execute(params![
            ids.dispatch,
            kernel,
            whole(at(field::DISPATCH)),
            whole(at(field::GPU)),
            time(field::START),
            time(field::END),
        ])?;
    }
    drop(insert);
    let by_name = kernels
        .iter()
        .map(|(kernel, id)| (frame.names.text(*kernel), *id))
        .collect();
    stored::insert(connection, id, workload, &lines(job, options), &by_name)?;

    let mut metrics = HashMap::new();
    let mut define = connection
        .prepare("INSERT INTO compute_metric_definition VALUES (?, ?, ?, ?, '', ?, ?, ?)")?;
    for sheet in report
        .sheets
        .iter()
        .filter(|sheet| sheet.source == Source::Metrics)
    {
        for line in &sheet.lines {
            ids.metric += 1;
            let unit = sheet
                .headings
                .iter()
                .position(|heading| heading == "Unit" || heading == "Units");
            let unit = unit
                .and_then(|at| line.entries.get(at))
                .map(|entry| match entry {
                    Entry::Text(unit) => unit.clone(),
                    _ => String::new(),
                });
            define.execute(params![
                ids.metric,
                id,
                line.id,
                line.name(),
                sheet.panel_title,
                sheet.title,
                unit,
            ])?;
            metrics.insert(line.id.clone(), ids.metric);
        }
    }
    drop(define);
    values(
        connection,
        "INSERT INTO compute_workload_metric_value VALUES (?, ?, ?, ?, ?)",
        id,
        report,
        &metrics,
        ids,
    )?;
    // Write the values of each kernel by itself.
    for (place, kernel) in (0_u32..).zip(&report.kernels) {
        let Some(kernel) = kernels.get(&kernel.kernel) else {
            continue;
        };
        let alone = match report.kernels.len() {
            1 => None,
            _ => of_kernel(job, options, place),
        };
        values(
            connection,
            "INSERT INTO compute_kernel_metric_value VALUES (?, ?, ?, ?, ?)",
            *kernel,
            alone.as_ref().unwrap_or(report),
            &metrics,
            ids,
        )?;
    }
    Ok(())
}

/// Returns a report on one kernel of a report.
fn of_kernel(job: &Job<'_>, options: &Options, place: u32) -> Option<Report> {
    let frame = &job.workload.frame;
    let kernel = job.report.kernels.get(place as usize)?.kernel;
    let everything = crate::sample::Rows::All(frame.rows);
    // Kernels are chosen by their place among all kernels.
    let all = crate::select::kernel_times(frame, &everything);
    let place = all.iter().position(|time| time.kernel == kernel)?;
    let dispatches = Dispatches {
        kernels: vec![u32::try_from(place).ok()?],
        ..job.dispatches.clone()
    };
    report(job.workload, job.blocks, &dispatches, options).ok()
}

fn values(
    connection: &Connection,
    statement: &str,
    owner: i64,
    report: &Report,
    metrics: &HashMap<String, i64>,
    ids: &mut Ids,
) -> rusqlite::Result<()> {
    let mut insert = connection.prepare(statement)?;
    for sheet in report
        .sheets
        .iter()
        .filter(|sheet| sheet.source == Source::Metrics)
    {
        for line in &sheet.lines {
            let Some(metric) = metrics.get(&line.id) else {
                continue;
            };
            let mut put = |name: &str, value: Option<f64>| {
                ids.value += 1;
                insert.execute(params![ids.value, owner, metric, name, value])
            };
            for (heading, entry) in sheet.headings.iter().zip(&line.entries) {
                if matches!(entry, Entry::Value(_)) {
                    put(heading, number(entry))?;
                }
            }
            if let Some(value) = line.main()
                && value.result.is_ok()
            {
                put("N", Some(value.n as f64))?;
                put("Coverage", Some(value.coverage))?;
                if let Some(width) = value.half_width {
                    put("Half Width 95", Some(width))?;
                }
            }
        }
    }
    Ok(())
}

/// Returns a kernel's name without its parameters.
fn short(name: &str) -> &str {
    let end = name.find(['(', '<']).unwrap_or(name.len());
    let name = name[..end].trim();
    name.rsplit([' ', ':']).next().unwrap_or(name)
}
