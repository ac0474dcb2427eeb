//! The files of a workload directory.

use super::plan::Plan;
use crate::frame::{Column, Frame, field};
use crate::report::files::push;
use midair_failure::{Failure, Kind};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

pub(super) fn failed(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Kind::Output, format!("{}: {error}", path.display()))
}

fn file(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| failed(path, &error))
}

/// Whether the directory has nothing but the files that `profile` writes before it collects.
pub(super) fn is_without_results(directory: &Path) -> bool {
    let before = ["sysinfo.csv", "profiling_config.yaml", "perfmon", "out"];
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries
        .flatten()
        .all(|entry| before.iter().any(|name| entry.file_name() == *name))
        && super::collect::databases(&directory.join("out")).is_empty()
}

/// Removes the files of an earlier profile. Other files in the directory stay.
pub(super) fn clear(directory: &Path) -> Result<(), Failure> {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let ours = ["perfmon", "out"].contains(&name.as_str())
            || [".csv", ".db", ".yaml", ".csv.gz"]
                .iter()
                .any(|end| name.ends_with(end))
            || name == "log.txt";
        if !ours {
            continue;
        }
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let result = match is_directory {
            true => fs::remove_dir_all(&path),
            false => fs::remove_file(&path),
        };
        result.map_err(|error| failed(&path, &error))?;
    }
    Ok(())
}

/// Writes the groups and the definitions of counters into `perfmon/`. Returns the file of
/// definitions.
pub(super) fn perfmon(directory: &Path, plan: &Plan) -> Result<Option<PathBuf>, Failure> {
    let below = directory.join("perfmon");
    fs::create_dir_all(&below).map_err(|error| failed(&below, &error))?;
    for (place, group) in plan.groups.iter().enumerate() {
        let text = format!("jobs:\n- pmc: [{}]\n", group.join(", "));
        file(&below.join(format!("pmc_perf_{place}.yaml")), &text)?;
    }
    if plan.definitions.is_empty() {
        return Ok(None);
    }
    let path = below.join("counter_def_0.yaml");
    file(&path, &plan.definitions)?;
    Ok(Some(path))
}

/// Writes `sysinfo.csv`.
pub(super) fn system(directory: &Path, rows: &[(String, String)]) -> Result<(), Failure> {
    let (names, values): (Vec<String>, Vec<String>) = rows.iter().cloned().unzip();
    let mut text = String::new();
    push(&mut text, &names);
    push(&mut text, &values);
    file(&directory.join("sysinfo.csv"), &text)
}

/// The value of an option.
#[derive(Debug, Clone)]
pub(super) enum Setting {
    Nothing,
    Flag(bool),
    Text(String),
    List(Vec<String>),
}

/// Writes `profiling_config.yaml`: options by name.
pub(super) fn configuration(
    directory: &Path,
    all: &BTreeMap<String, Setting>,
) -> Result<(), Failure> {
    let quoted = |text: &str| {
        // Within single quotes, only the quote itself is special; a line end would end the value.
        format!("'{}'", text.replace('\'', "''").replace(['\n', '\r'], " "))
    };
    let mut text = String::new();
    for (key, value) in all {
        match value {
            Setting::Nothing => text.push_str(&format!("{key}: null\n")),
            Setting::Flag(flag) => text.push_str(&format!("{key}: {flag}\n")),
            Setting::Text(value) => text.push_str(&format!("{key}: {}\n", quoted(value))),
            Setting::List(values) if values.is_empty() => text.push_str(&format!("{key}: []\n")),
            Setting::List(values) => {
                text.push_str(&format!("{key}:\n"));
                for value in values {
                    // Numbers of metrics are written without quotes, since AMD's tests look for
                    // such lines.
                    let plain = value.bytes().all(|b| b.is_ascii_digit() || b == b'.');
                    let value = if plain { value.clone() } else { quoted(value) };
                    text.push_str(&format!("- {value}\n"));
                }
            }
        }
    }
    file(&directory.join("profiling_config.yaml"), &text)
}

/// Writes `pmc_perf.csv`: a line for each dispatch. A counter's field is empty where the dispatch
/// was not counted for it.
pub(super) fn dispatches(path: &Path, frame: &Frame) -> Result<(), Failure> {
    const FIELDS: [&str; 9] = [
        field::DISPATCH,
        field::GPU,
        field::GRID,
        field::WORKGROUP,
        field::LDS,
        "Scratch_Per_Workitem",
        "Arch_VGPR",
        "Accum_VGPR",
        "SGPR",
    ];
    let wrong = |error: std::io::Error| failed(path, &error);
    let behind = [field::START, field::END, "Kernel_ID"];
    let mut counters: Vec<&str> = frame
        .column_names()
        .filter(|name| !FIELDS.contains(name) && !behind.contains(name))
        .collect();
    counters.sort_unstable();
    let mut headings: Vec<String> = FIELDS.iter().map(|name| (*name).to_owned()).collect();
    headings.extend([field::KERNEL, "Kernel_ID"].map(str::to_owned));
    headings.extend(counters.iter().map(|name| (*name).to_owned()));
    headings.extend([field::START, field::END].map(str::to_owned));
    let mut out = BufWriter::new(fs::File::create(path).map_err(wrong)?);
    let mut line = String::new();
    push(&mut line, &headings);
    out.write_all(line.as_bytes()).map_err(wrong)?;
    let number = |column: Option<&Column>, row: usize| match column.map(|column| column.get(row)) {
        Some(value) if value.is_finite() => format!("{value}"),
        _ => String::new(),
    };
    let time = |name: &str, row: usize| match frame.named(name).map(|column| column.get(row)) {
        Some(time) if time.is_finite() => frame.origin.saturating_add(time as i64).to_string(),
        _ => String::new(),
    };
    let columns: Vec<Option<&Column>> = FIELDS.iter().map(|name| frame.named(name)).collect();
    let counts: Vec<Option<&Column>> = counters.iter().map(|name| frame.named(name)).collect();
    for row in 0..frame.rows {
        let mut words: Vec<String> = columns.iter().map(|column| number(*column, row)).collect();
        let kernel = frame.kernel.get(row).copied().unwrap_or(0);
        words.push(frame.names.text(kernel).to_owned());
        words.push(number(frame.named("Kernel_ID"), row));
        words.extend(counts.iter().map(|column| number(*column, row)));
        words.push(time(field::START, row));
        words.push(time(field::END, row));
        line.clear();
        push(&mut line, &words);
        out.write_all(line.as_bytes()).map_err(wrong)?;
    }
    out.flush().map_err(wrong)
}
