//! Samples of program counters as a table.

use super::{Entry, Line as Row, Options, Sheet};
use crate::read::Workload;
use crate::samples::Line;
use crate::select::KernelTime;
use std::collections::HashSet;

/// Returns the samples of the chosen kernels, in the order in which they are shown.
pub(super) fn chosen<'w>(
    workload: &'w Workload,
    kernels: Option<&[KernelTime]>,
    options: &Options,
) -> Vec<&'w Line> {
    let names: Option<HashSet<&str>> = kernels.map(|kernels| {
        let name = |kernel: &KernelTime| workload.frame.names.text(kernel.kernel);
        kernels.iter().map(name).collect()
    });
    let is_chosen = |line: &&Line| match &names {
        Some(names) => line.kernel.as_deref().is_some_and(|it| names.contains(it)),
        None => true,
    };
    let mut lines: Vec<&Line> = workload.samples.lines.iter().filter(is_chosen).collect();
    let place = |line: &Line| (line.pid, line.code_object, line.offset);
    match options.by_offset {
        true => lines.sort_by_key(|line| place(line)),
        false => lines.sort_by_key(|line| (std::cmp::Reverse(line.count), place(line))),
    }
    lines
}

/// Fills the table of the most frequent instructions.
pub(super) fn fill(
    sheet: &mut Sheet,
    workload: &Workload,
    kernels: Option<&[KernelTime]>,
    options: &Options,
) {
    sheet.headings = [
        "pid",
        "source_line",
        "instruction",
        "code_object_id",
        "offset",
        "count",
        "count_issued",
        "count_stalled",
        "stall_reason",
        "Kernel_Name",
    ]
    .map(str::to_owned)
    .to_vec();
    let most = match options.sample_rows {
        0 => usize::MAX,
        rows => rows,
    };
    let text =
        |text: &Option<String>| Entry::Text(text.clone().unwrap_or_else(|| "N/A".to_owned()));
    let whole = |number: Option<u64>| number.map_or(Entry::Empty, Entry::Whole);
    for (place, line) in chosen(workload, kernels, options)
        .into_iter()
        .enumerate()
        .take(most)
    {
        let reasons = line
            .reasons
            .iter()
            .map(|(reason, count)| format!("('{reason}', {count})"));
        let reasons: Vec<String> = reasons.collect();
        sheet.lines.push(Row {
            id: place.to_string(),
            entries: vec![
                Entry::Whole(line.pid),
                text(&line.source),
                text(&line.instruction),
                Entry::Whole(line.code_object),
                Entry::Text(format!("{:#x}", line.offset)),
                Entry::Whole(line.count),
                whole(line.issued),
                whole(line.stalled()),
                match reasons.is_empty() {
                    true => Entry::Empty,
                    false => Entry::Text(format!("[{}]", reasons.join(", "))),
                },
                text(&line.kernel),
            ],
        });
    }
}
