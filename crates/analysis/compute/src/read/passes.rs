//! Directories that have a file for each pass: several runs of the same program, joined.

use super::csv::{once, wide};
use crate::files::{unpacked_name, unusable};
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
        once(path, &frame)?;
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
        let level = unpacked_name(path);
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
        None => Err(unusable("no pass files found")),
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
