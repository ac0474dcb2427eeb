//! The files of a workload directory.

use super::plan::Plan;
use crate::files;
use crate::frame::{Column, Frame, field};
use crate::report::files::push;
use flate2::Compression;
use flate2::write::GzEncoder;
use midair_failure::{Failure, Kind};
use midair_output::WriteError;
use midair_output::files::{Directory, OneFile};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

pub(super) fn failed(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Kind::Output, format!("{}: {error}", path.display()))
}

/// Whether the directory has nothing but the files that `profile` writes before it collects.
pub(super) fn is_without_results(directory: &Path) -> bool {
    let before = ["sysinfo.csv", "profiling_config.yaml", "perfmon", "out"];
    let entries = files::entries(directory).unwrap_or_default();
    let is_before = |entry: &PathBuf| {
        before
            .iter()
            .any(|name| entry.file_name() == Some(name.as_ref()))
    };
    entries.iter().all(is_before) && super::collect::databases(&directory.join("out")).is_empty()
}

/// Removes the files of an earlier profile. Other files in the directory stay.
pub(super) fn clear(directory: &Directory) -> Result<(), Failure> {
    for entry in files::entries(&directory.at("")).unwrap_or_default() {
        let name = entry.file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        let ours = ["perfmon", "out"].contains(&name.as_str())
            || [".csv", ".db", ".yaml", ".csv.gz", "_ps_file_results.json"]
                .iter()
                .any(|end| name.ends_with(end))
            || name == "log.txt";
        if ours {
            files::remove(directory, &name)?;
        }
    }
    Ok(())
}

/// Writes the groups and the definitions of counters into `perfmon/`. Returns the file of
/// definitions.
pub(super) fn perfmon(directory: &Path, plan: &Plan) -> Result<Option<PathBuf>, Failure> {
    let below = directory.join("perfmon");
    files::make(&below)?;
    for (place, group) in plan.groups.iter().enumerate() {
        let text = format!("jobs:\n- pmc: [{}]\n", group.join(", "));
        files::write(&below.join(format!("pmc_perf_{place}.yaml")), &text)?;
    }
    if plan.definitions.is_empty() {
        return Ok(None);
    }
    let path = below.join("counter_def_0.yaml");
    files::write(&path, &plan.definitions)?;
    Ok(Some(path))
}

/// Writes `sysinfo.csv`.
pub(super) fn system(directory: &Path, rows: &[(String, String)]) -> Result<(), Failure> {
    let (names, values): (Vec<String>, Vec<String>) = rows.iter().cloned().unzip();
    let mut text = String::new();
    push(&mut text, &names);
    push(&mut text, &values);
    files::write(&directory.join("sysinfo.csv"), &text)
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
                    // such lines. Numbers of blocks and tables are numbers to YAML, and AMD's
                    // programs need texts.
                    let plain = value.bytes().all(|b| b.is_ascii_digit() || b == b'.')
                        && value.bytes().filter(|b| *b == b'.').count() == 2;
                    let value = if plain { value.clone() } else { quoted(value) };
                    text.push_str(&format!("- {value}\n"));
                }
            }
        }
    }
    files::write(&directory.join("profiling_config.yaml"), &text)
}

/// Writes `pmc_perf.csv`: a line for each dispatch, with AMD's columns in AMD's order. A counter's
/// field is empty where the dispatch was not counted for it. Behind AMD's columns are the groups
/// that counted the dispatch, by their numbers in `perfmon/`, and whether something ran alongside it
/// while it was counted, so that its values were left out.
pub(super) fn dispatches(
    path: &Path,
    frame: &Frame,
    groups: &[Vec<String>],
) -> Result<(), Failure> {
    let wrong = |error: WriteError| files::failed(&error);
    let behind = [
        field::CORRELATION,
        field::KERNEL_ID,
        field::START,
        field::END,
        field::SHARED,
    ];
    let mut counters: Vec<&str> = frame
        .column_names()
        .filter(|name| !field::OF_DISPATCH.contains(name) && !behind.contains(name))
        .collect();
    counters.sort_unstable();
    let mut headings: Vec<&str> = field::OF_DISPATCH.to_vec();
    headings.extend([field::KERNEL, field::CORRELATION, field::KERNEL_ID]);
    headings.extend(&counters);
    headings.extend([field::START, field::END, field::GROUP, field::SHARED]);
    let headings: Vec<String> = headings.into_iter().map(str::to_owned).collect();
    let mut out = OneFile::create(path).map_err(wrong)?;
    let mut line = String::new();
    push(&mut line, &headings);
    out.put(line.as_bytes()).map_err(wrong)?;
    let number = |column: Option<&Column>, row: usize| match column.map(|column| column.get(row)) {
        Some(value) if value.is_finite() => format!("{value}"),
        _ => String::new(),
    };
    let time = |name: &str, row: usize| match frame.named(name).map(|column| column.get(row)) {
        Some(time) if time.is_finite() => frame.origin.saturating_add(time as i64).to_string(),
        _ => String::new(),
    };
    let all = |names: &[&str]| -> Vec<Option<&Column>> {
        names.iter().map(|name| frame.named(name)).collect()
    };
    let (columns, counts) = (all(&field::OF_DISPATCH), all(&counters));
    let calls = all(&[field::CORRELATION, field::KERNEL_ID]);
    let groups: Vec<Vec<&Column>> = groups
        .iter()
        .map(|group| group.iter().filter_map(|name| frame.named(name)).collect())
        .collect();
    for row in 0..frame.rows {
        let mut words: Vec<String> = columns.iter().map(|column| number(*column, row)).collect();
        let kernel = frame.kernel.get(row).copied().unwrap_or(0);
        words.push(frame.names.text(kernel).to_owned());
        words.extend(calls.iter().map(|column| number(*column, row)));
        words.extend(counts.iter().map(|column| number(*column, row)));
        words.push(time(field::START, row));
        words.push(time(field::END, row));
        words.push(groups_of(&groups, row));
        words.push(number(frame.named(field::SHARED), row));
        line.clear();
        push(&mut line, &words);
        out.put(line.as_bytes()).map_err(wrong)?;
    }
    out.finish().map_err(wrong)
}

/// The columns of a packed file, in AMD's order.
const LONG: [&str; 17] = [
    "GPU_ID",
    "GUID",
    "Correlation_Id",
    "Dispatch_ID",
    "Grid_Size",
    "Workgroup_Size",
    "LDS_Per_Workgroup",
    "Scratch_Per_Workitem",
    "Arch_VGPR",
    "Accum_VGPR",
    "SGPR",
    "Kernel_Name",
    "Start_Timestamp",
    "End_Timestamp",
    "Kernel_ID",
    "Counter_Name",
    "Counter_Value",
];

/// Writes a pass as AMD's 3.9 does: a line for each counter of each dispatch that has a value, packed by gzip as
/// one part.
pub(super) fn packed(path: &Path, frame: &Frame, group: &[String]) -> Result<(), Failure> {
    let wrong = |error: std::io::Error| files::unwritable(path, &error);
    let out = OneFile::create(path).map_err(|error| files::failed(&error))?;
    // AMD's level.
    let mut out = GzEncoder::new(std::io::BufWriter::new(out), Compression::new(1));
    let mut line = String::new();
    push(&mut line, &LONG.map(str::to_owned));
    out.write_all(line.as_bytes()).map_err(wrong)?;
    // Of a counter of several channels, each is counted by itself.
    let is_of = |name: &str| {
        let plain = name.split('[').next().unwrap_or(name);
        group.iter().any(|counter| counter == plain)
    };
    let counters: Vec<(&str, &Column)> = frame
        .column_names()
        .filter(|name| is_of(name))
        .filter_map(|name| Some((name, frame.named(name)?)))
        .collect();
    let number = |name: &str, row: usize| match frame.named(name).map(|column| column.get(row)) {
        Some(value) if value.is_finite() => format!("{value}"),
        _ => String::new(),
    };
    let time = |name: &str, row: usize| match frame.named(name).map(|column| column.get(row)) {
        Some(time) if time.is_finite() => frame.origin.saturating_add(time as i64).to_string(),
        _ => String::new(),
    };
    for row in 0..frame.rows {
        let kernel = frame.kernel.get(row).copied().unwrap_or(0);
        let of_dispatch: Vec<String> = LONG
            .iter()
            .map(|column| match *column {
                // The database's own, which nothing reads here.
                "GUID" => String::new(),
                "Correlation_Id" => number(field::CORRELATION, row),
                field::KERNEL => frame.names.text(kernel).to_owned(),
                name @ (field::START | field::END) => time(name, row),
                name => number(name, row),
            })
            .collect();
        for (name, column) in &counters {
            let value = column.get(row);
            if !value.is_finite() {
                continue;
            }
            let mut words = of_dispatch.clone();
            words[LONG.len() - 2] = (*name).to_owned();
            words[LONG.len() - 1] = format!("{value:?}");
            line.clear();
            push(&mut line, &words);
            out.write_all(line.as_bytes()).map_err(wrong)?;
        }
    }
    let out = out.finish().map_err(wrong)?;
    let out = out
        .into_inner()
        .map_err(|error| wrong(error.into_error()))?;
    out.finish().map_err(|error| files::failed(&error))
}

/// Returns the numbers of the groups that have a dispatch's values. A dispatch of a running process
/// has one group, or none.
fn groups_of(groups: &[Vec<&Column>], row: usize) -> String {
    let counted = |columns: &Vec<&Column>| {
        !columns.is_empty() && columns.iter().all(|column| !column.get(row).is_nan())
    };
    let numbers = groups
        .iter()
        .enumerate()
        .filter(|(_, group)| counted(group));
    let numbers: Vec<String> = numbers.map(|(place, _)| place.to_string()).collect();
    numbers.join(" ")
}

#[cfg(test)]
mod tests {
    use super::groups_of;
    use crate::frame::Column;

    #[test]
    fn a_dispatch_has_the_groups_whose_counters_it_has_all() {
        let (full, half) = (
            Column::Wide(vec![1.0, 2.0, 3.0]),
            Column::Wide(vec![f64::NAN, 0.0, 5.0]),
        );
        let groups = [vec![&full], vec![&full, &half], vec![], vec![&half]];
        let all: Vec<String> = (0..2).map(|row| groups_of(&groups, row)).collect();
        assert_eq!(all, ["0", "0 1 3"]);
    }
}
