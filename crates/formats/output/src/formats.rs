//! The formats that can be written. A new one is a module with a [`Writer`](crate::sink::Writer),
//! and a row here.

pub(crate) mod att;
pub(crate) mod below;
pub(crate) mod csv;
pub(crate) mod difference;
pub(crate) mod folded;
pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod kineto;
pub(crate) mod otf2;
pub(crate) mod parquet;
pub(crate) mod pftrace;
pub(crate) mod pprof;
pub(crate) mod rocpd;
mod sorted;
mod walks;

use crate::files::{FileSet, Numbering, Suffixes, WriteError};
use crate::job::Job;
use crate::model::{Plan, Trace};
use crate::options::{Format, SummaryTo};
use crate::sink::Opened;
use crate::{notes, summary};
use midair_trace::api::Names;
use std::path::PathBuf;

/// A row of the table.
struct Row {
    format: Format,
    /// Its name in `--output-format`.
    name: &'static str,
    /// The extension of its files.
    extension: &'static str,
    /// About how long it takes for a record, alongside the others.
    cost: u32,
    /// Starts its files.
    open: for<'a> fn(&'a [Job<'a>], &FileSet) -> Opened<'a>,
}

/// All formats, in the order in which they are offered.
static FORMATS: [Row; 11] = [
    Row {
        format: Format::Rocpd,
        name: "rocpd",
        extension: "db",
        cost: 8,
        open: rocpd::open,
    },
    Row {
        format: Format::Csv,
        name: "csv",
        extension: "csv",
        cost: 1,
        open: csv::open,
    },
    Row {
        format: Format::Json,
        name: "json",
        extension: "json",
        cost: 2,
        open: json::open,
    },
    Row {
        format: Format::Pftrace,
        name: "pftrace",
        extension: "pftrace",
        cost: 3,
        open: pftrace::open,
    },
    Row {
        format: Format::Otf2,
        name: "otf2",
        extension: "otf2",
        cost: 4,
        open: otf2::open,
    },
    Row {
        format: Format::Kineto,
        name: "kineto",
        extension: "pt.trace.json",
        cost: 3,
        open: kineto::open,
    },
    Row {
        format: Format::Parquet,
        name: "parquet",
        extension: "parquet",
        cost: 2,
        open: parquet::open,
    },
    Row {
        format: Format::Html,
        name: "html",
        extension: "html",
        cost: 1,
        open: html::open,
    },
    Row {
        format: Format::Folded,
        name: "folded",
        extension: "folded",
        cost: 1,
        open: folded::open,
    },
    Row {
        format: Format::Speedscope,
        name: "speedscope",
        extension: "speedscope.json",
        cost: 1,
        open: folded::open_speedscope,
    },
    Row {
        format: Format::Pprof,
        name: "pprof",
        extension: "pb.gz",
        cost: 1,
        open: pprof::open,
    },
];

impl Format {
    /// Returns all formats, in the order in which they are offered.
    pub fn all() -> impl Iterator<Item = Format> {
        FORMATS.iter().map(|row| row.format)
    }

    /// Returns the format with this name, in upper or lower case.
    pub fn of(name: &str) -> Option<Format> {
        let row = FORMATS
            .iter()
            .find(|row| row.name.eq_ignore_ascii_case(name))?;
        Some(row.format)
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        self.row().map_or("", |row| row.name)
    }

    /// Returns the extension of its files, without the dot.
    pub fn extension(self) -> &'static str {
        self.row().map_or("", |row| row.extension)
    }

    fn row(self) -> Option<&'static Row> {
        FORMATS.iter().find(|row| row.format == self)
    }
}

/// The most names that are tried for one result.
const MOST_NAMES: u32 = 16;

/// Writes all formats of a plan. Each thread that the plan allows walks over the records of each
/// session once. The files are the same with any number of threads.
pub(crate) fn write(
    parts: &[Trace],
    names: &Names,
    plan: &Plan,
) -> Result<Vec<PathBuf>, WriteError> {
    if plan.is_too_little(parts.iter().map(|trace| &trace.records)) {
        return Ok(Vec::new());
    }
    if plan.numbering == Numbering::Replace {
        let files = FileSet::new(&plan.directory, &plan.prefix)?;
        return write_set(parts, names, plan, files);
    }
    let suffixes = suffixes(plan);
    let mut from = 1;
    for _ in 0..MOST_NAMES {
        let (files, number, prefix) = FileSet::of_its_own(
            &plan.directory,
            (plan.numbering, &plan.prefix),
            from,
            &suffixes,
        )?;
        let plan = Plan {
            prefix,
            ..plan.clone()
        };
        match write_set(parts, names, &plan, files) {
            // Something else has made a file with one of the names meanwhile.
            Err(error) if error.is_taken() => from = number.saturating_add(1),
            written => return written,
        }
    }
    Err(WriteError::Directory {
        path: plan.directory.clone(),
        source: std::io::ErrorKind::AlreadyExists.into(),
    })
}

fn write_set(
    parts: &[Trace],
    names: &Names,
    plan: &Plan,
    mut files: FileSet,
) -> Result<Vec<PathBuf>, WriteError> {
    let jobs: Vec<Job<'_>> = parts
        .iter()
        .map(|trace| Job::new(trace, names, plan))
        .collect();
    if !plan.profile {
        let rows: Vec<&Row> = plan.formats.iter().filter_map(|of| of.row()).collect();
        walks::write(&jobs, &rows, plan.threads, &mut files)?;
        summary::write(&jobs, plan, &mut files)?;
        att::write(&jobs, &mut files)?;
    }
    if let Some(job) = jobs.first().filter(|_| plan.config_file) {
        let mut file = files.create(CONFIG)?;
        let config = json::pieces::config_file(job).map_err(|source| file.failed(source))?;
        file.put(config.as_bytes())?;
        file.put(b"\n")?;
        files.add(file)?;
    }
    files.commit()
}

/// The name of the file with the settings.
const CONFIG: &str = "config.json";

/// Returns the names that files of a result may have behind the prefix.
fn suffixes(plan: &Plan) -> Suffixes {
    let main = |format: &Format| match format {
        Format::Csv => csv::AGENTS.to_owned(),
        format => format!("results.{}", format.extension()),
    };
    let of_formats = FORMATS.iter().map(|row| main(&row.format));
    let mut all: Vec<String> = of_formats.collect();
    all.extend(csv::suffixes().map(str::to_owned));
    let others = [
        rocpd::LEFT.as_slice(),
        &otf2::FURTHER,
        &[CONFIG, notes::FILE],
    ];
    all.extend(others.into_iter().flatten().map(|name| (*name).to_owned()));
    all.push(kineto::suffix(0));
    let summary = match &plan.summary_to {
        SummaryTo::File(name) => name,
        SummaryTo::Console(_) => "summary",
    };
    all.push(summary::suffix(summary));
    Suffixes {
        likely: plan.formats.iter().map(main).collect(),
        all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_found_by_its_name() {
        for format in Format::all() {
            assert_eq!(Format::of(&format.name().to_uppercase()), Some(format));
            assert!(!format.extension().is_empty());
        }
        assert_eq!((Format::all().count(), Format::of("otf")), (11, None));
    }

    #[test]
    fn files_have_the_extensions_of_their_formats() {
        let wanted = [
            (Format::Rocpd, "db"),
            (Format::Csv, "csv"),
            (Format::Json, "json"),
            (Format::Pftrace, "pftrace"),
            (Format::Otf2, "otf2"),
            (Format::Kineto, "pt.trace.json"),
            (Format::Parquet, "parquet"),
            (Format::Html, "html"),
            (Format::Folded, "folded"),
            (Format::Speedscope, "speedscope.json"),
            (Format::Pprof, "pb.gz"),
        ];
        for (format, extension) in wanted {
            assert_eq!(format.extension(), extension);
        }
    }
}
