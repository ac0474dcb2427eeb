//! Directories that have a file for each pass: several runs of the same program, joined.

use super::csv::{Dispatches, Lines, canonical, number, time, wide, words};
use super::{file_name, unusable};
use crate::frame::{Column, Filling, Frame, field};
use crate::program::LEVEL_SUM;
use midair_failure::Failure;
use std::collections::HashMap;
use std::path::PathBuf;

/// Rows by kernel, grid, and how many rows of that kernel and grid came before.
type Rows = HashMap<(String, u64, usize), usize>;

/// Reads files with one line for each dispatch. Rows of two files are the same dispatch when they
/// have the same kernel and grid, and equally many such rows came before each.
pub(super) fn joined(paths: &[&PathBuf]) -> Result<Frame, Failure> {
    let mut whole: Option<(Frame, Rows)> = None;
    for path in paths {
        let frame = wide(&[path])?;
        let mut keys = Rows::new();
        let mut seen: HashMap<(u32, u64), usize> = HashMap::new();
        let grid = frame
            .named(field::GRID)
            .cloned()
            .unwrap_or(Column::Same(0.0));
        for row in 0..frame.rows {
            let (kernel, grid) = (frame.kernel[row], grid.get(row).to_bits());
            let times = seen.entry((kernel, grid)).or_default();
            keys.insert((frame.names.text(kernel).to_owned(), grid, *times), row);
            *times += 1;
        }
        let level = file_name(path);
        let level = level
            .strip_suffix(".csv")
            .filter(|name| name.starts_with("SQ"));
        let Some((into, at)) = &mut whole else {
            whole = Some((renamed(frame, level), keys));
            continue;
        };
        let names: Vec<String> = frame.column_names().map(str::to_owned).collect();
        for name in names {
            let new = match level {
                Some(level) if name == LEVEL_SUM => format!("{level}_ACCUM"),
                _ => name.clone(),
            };
            if into.named(&new).is_some() {
                continue;
            }
            let Some(column) = frame.named(&name) else {
                continue;
            };
            let mut filling = Filling::default();
            for (key, row) in &keys {
                if let Some(at) = at.get(key) {
                    filling.set(*at, column.get(*row));
                }
            }
            let rows = into.rows;
            into.put(&new, filling.finish(rows));
        }
    }
    match whole {
        Some((frame, _)) => Ok(frame),
        None => Err(unusable("there are no files of passes")),
    }
}

fn renamed(mut frame: Frame, level: Option<&str>) -> Frame {
    if let Some(level) = level
        && let Some(column) = frame.named(LEVEL_SUM).cloned()
    {
        frame.put(&format!("{level}_ACCUM"), column);
    }
    frame
}

/// Reads any number of files with one line for each counter of a dispatch.
pub(super) fn pivoted(paths: &[&PathBuf]) -> Result<Frame, Failure> {
    let mut dispatches = Dispatches::default();
    let mut fields: HashMap<String, Filling> = HashMap::new();
    let mut counters: HashMap<String, Filling> = HashMap::new();
    for (pass, path) in paths.iter().enumerate() {
        let mut at: HashMap<(u64, u32), usize> = HashMap::new();
        let mut seen: HashMap<(u32, u64), usize> = HashMap::new();
        let mut of_pass: HashMap<(u32, u64, usize), usize> = HashMap::new();
        if pass > 0 {
            let grid = fields.get(field::GRID);
            for (row, kernel) in dispatches.kernel.iter().enumerate() {
                let grid = grid.map_or(0, |grid| grid.get(row).to_bits());
                let times = seen.entry((*kernel, grid)).or_default();
                of_pass.insert((*kernel, grid, *times), row);
                *times += 1;
            }
            seen.clear();
        }
        let mut lines = Lines::open(path)?;
        let headings = lines.next()?.map(words).unwrap_or_default();
        let headings: Vec<&str> = headings.iter().map(|heading| canonical(heading)).collect();
        let place = |name: &str| {
            let found = headings.iter().position(|heading| *heading == name);
            found.ok_or_else(|| unusable(format!("{} has no column {name}", path.display())))
        };
        let kernel_at = place(field::KERNEL)?;
        let dispatch_at = place(field::DISPATCH)?;
        let (start_at, end_at) = (place(field::START)?, place(field::END)?);
        let (name_at, value_at) = (place("Counter_Name")?, place("Counter_Value")?);
        let grid_at = place(field::GRID)?;
        while let Some(line) = lines.next()? {
            let words = words(line);
            if words.len() != headings.len() {
                let what = format!("{}: line {} is not complete", path.display(), lines.line);
                return Err(unusable(what).hint("profile again"));
            }
            let value_of = |at: usize| number(words[at].as_bytes()).unwrap_or(f64::NAN);
            let kernel = dispatches.names.number(&words[kernel_at]);
            let id = (value_of(dispatch_at).to_bits(), kernel);
            let row = match at.get(&id) {
                Some(row) => *row,
                None => {
                    let grid = value_of(grid_at).to_bits();
                    let times = seen.entry((kernel, grid)).or_default();
                    let known = of_pass.get(&(kernel, grid, *times)).copied();
                    *times += 1;
                    let row = known.unwrap_or(dispatches.kernel.len());
                    if known.is_none() {
                        dispatches.kernel.push(kernel);
                        let time_of = |at: usize| time(words[at].as_bytes()).unwrap_or(i64::MIN);
                        dispatches.start.push(time_of(start_at));
                        dispatches.end.push(time_of(end_at));
                        for (column, heading) in headings.iter().enumerate() {
                            let known = [kernel_at, start_at, end_at, name_at, value_at];
                            if known.contains(&column) {
                                continue;
                            }
                            // The field is like "Agent 4".
                            let word = words[column].rsplit(' ').next().unwrap_or_default();
                            let value = number(word.as_bytes()).unwrap_or(f64::NAN);
                            fields
                                .entry((*heading).to_owned())
                                .or_default()
                                .set(row, value);
                        }
                    }
                    at.insert(id, row);
                    row
                }
            };
            let filling = counters.entry(words[name_at].clone()).or_default();
            let before = filling.get(row);
            let value = value_of(value_at);
            filling.set(
                row,
                if before.is_nan() {
                    value
                } else {
                    before + value
                },
            );
        }
    }
    let rows = dispatches.kernel.len();
    if rows == 0 {
        return Err(unusable("the files of counters have no dispatch"));
    }
    let mut frame = dispatches.frame();
    for (name, filling) in fields.into_iter().chain(counters) {
        frame.put(&name, filling.finish(rows));
    }
    if let Some(agent) = frame.named("Agent_Id").cloned()
        && frame.named(field::GPU).is_none()
    {
        frame.put(field::GPU, agent);
    }
    if frame.named(field::GPU).is_none() {
        frame.put(field::GPU, Column::Same(0.0));
    }
    Ok(frame)
}
