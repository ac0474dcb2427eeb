//! Directories of results.

use super::{Files, Options, Rows, Shown, Sort, Times, kernels, name, no_table, sort};
use crate::files;
use crate::read::unusable;
use midair_failure::Failure;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;

/// How deep results lie, and how many entries are looked at. Parquet files lie four directories deep.
const DEPTH: usize = 8;
const MOST: usize = 100_000;
/// The end of a csv file of kernels, and the directory of Parquet files of kernels.
const TRACE: &str = "kernel_trace.csv";
const KERNELS: &str = "kind=kernels";

/// Shows the kernels of all results in a directory, or its files of one kind.
pub(super) fn show(path: &Path, options: &Options) -> Result<Shown, Failure> {
    let (mut found, mut seen) = (Files::new(), 0);
    walk(path, DEPTH, &mut seen, &mut found)?;
    if found.is_empty() {
        let what = format!("cannot show {}: there are no results in it", path.display());
        return Err(unusable(what).hint(super::RESULTS));
    }
    match &options.table {
        Some(table) => one(path, table, &found, options),
        None => summary(path, &found, options.limit),
    }
}

/// Finds files by their names. Links to directories are not followed.
fn walk(path: &Path, deep: usize, seen: &mut usize, found: &mut Files) -> Result<(), Failure> {
    let cannot = |error: &dyn std::fmt::Display| {
        unusable(format!("cannot read {}: {error}", path.display())).hint(super::RESULTS)
    };
    for entry in files::entries(path).map_err(|error| cannot(&error))? {
        *seen += 1;
        if *seen > MOST {
            return Err(cannot(&format!("it has more than {MOST} entries")));
        }
        let known = ["db", "csv", "parquet", "json"];
        if files::is_directory(&entry) {
            if deep > 0 {
                walk(&entry, deep - 1, seen, found)?;
            }
        } else if known.iter().any(|end| ends(&entry, end)) && files::is_file(&entry) {
            found.push(entry);
        }
    }
    Ok(())
}

fn ends(path: &Path, end: &str) -> bool {
    path.extension() == Some(OsStr::new(end))
}

/// Whether a file has kernels, and is of this sort.
fn has_kernels(path: &Path, sort: Sort) -> bool {
    match sort {
        Sort::Database => ends(path, "db"),
        Sort::Csv => name(path).ends_with(TRACE),
        Sort::Parquet => ends(path, "parquet") && kind(path).as_deref() == Some(KERNELS),
        Sort::Json => name(path).ends_with("results.json"),
    }
}

/// Returns the name of the directory that a file lies in.
fn kind(path: &Path) -> Option<String> {
    path.parent().map(name)
}

/// The same recording may be there in several formats, so the files of one format are summed up.
fn summary(path: &Path, found: &Files, limit: usize) -> Result<Shown, Failure> {
    let mut shown = Shown::default();
    for sort in [Sort::Database, Sort::Csv, Sort::Parquet, Sort::Json] {
        let of_this = found.iter().filter(|file| has_kernels(file, sort));
        let of_this: Files = of_this.cloned().collect();
        let mut times = Times::default();
        for file in &of_this {
            kernels(file, sort, &mut times)?;
        }
        if !times.is_empty() {
            times.put("KERNEL", &mut shown);
            shown.notes.push(match of_this.as_slice() {
                [one] => format!("from {}", one.display()),
                more => format!("from {} files in {}", more.len(), path.display()),
            });
            return Ok(shown);
        }
    }
    let mut rows = Rows::of(vec!["file".to_owned()]);
    rows.left_out = found.len().saturating_sub(limit) as u64;
    let names = found.iter().take(limit);
    rows.rows = names.map(|file| vec![file.display().to_string()]).collect();
    shown.rows = Some(rows);
    let note = "none of these files has kernels; midair show FILE prints one";
    shown.notes.push(note.to_owned());
    Ok(shown)
}

/// Shows the one file of this kind, or the table of the one database.
fn one(path: &Path, table: &str, found: &Files, options: &Options) -> Result<Shown, Failure> {
    let is_named = |file: &&std::path::PathBuf| {
        let (name, kind) = (name(file), kind(file));
        let csv = name
            .strip_suffix(".csv")
            .and_then(|it| it.strip_suffix(table));
        csv.is_some_and(|rest| rest.is_empty() || rest.ends_with('_'))
            || (ends(file, "parquet") && kind.is_some_and(|kind| kind == format!("kind={table}")))
    };
    let named: Vec<_> = found.iter().filter(is_named).collect();
    let databases: Vec<_> = found.iter().filter(|file| ends(file, "db")).collect();
    let several = |files: &[&std::path::PathBuf]| {
        let names = files.iter().map(|file| file.display().to_string());
        let what = format!("{} files in {} may have it", files.len(), path.display());
        Failure::new(midair_failure::Kind::Usage, what)
            .hint(format!("name one: {}", super::listed(names)))
    };
    match (named.as_slice(), databases.as_slice()) {
        ([file], _) => {
            let options = Options {
                table: None,
                ..options.clone()
            };
            sort(file)?;
            super::show(file, &options)
        }
        ([], [database]) => super::show(database, options),
        ([], []) => {
            let kinds: BTreeSet<String> = found.iter().filter_map(|file| kind_of(file)).collect();
            Err(no_table(path, table, kinds.into_iter()))
        }
        ([], several_of) | (several_of, _) => Err(several(several_of)),
    }
}

/// Returns the word that chooses a file.
fn kind_of(path: &Path) -> Option<String> {
    if ends(path, "parquet") {
        return Some(kind(path)?.strip_prefix("kind=")?.to_owned());
    }
    let name = name(path);
    let name = name.strip_suffix(".csv")?;
    // What precedes it is a process's number, or a name.
    let kind = name.split_once('_').map_or(name, |(_, kind)| kind);
    Some(kind.to_owned())
}
