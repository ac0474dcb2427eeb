//! The memory chart: what the parts on the path from instructions to memory did.

use super::{Entry, Sheet};
use std::collections::HashMap;

/// A part of the GPU and its metrics.
type Part = (&'static str, &'static [&'static str]);

/// The parts by column, in the order in which a request passes them.
const COLUMNS: [&[Part]; 5] = [
    &[
        (
            "Waves",
            &[
                "Wavefronts",
                "Workgroups",
                "Wavefront Occupancy",
                "Wave Life",
            ],
        ),
        (
            "Resources",
            &["VGPR", "SGPR", "LDS Allocation", "Scratch Allocation"],
        ),
    ],
    &[
        (
            "Instructions",
            &["SALU", "SMEM", "VALU", "MFMA", "VMEM", "LDS", "GWS", "BR"],
        ),
        (
            "Compute units",
            &[
                "Active CUs",
                "Active CUs (deprecated)",
                "CU Utilization",
                "Num CUs",
            ],
        ),
    ],
    &[
        ("LDS", &["LDS Req", "LDS Util", "LDS Latency"]),
        (
            "vL1D",
            &[
                "VL1 Rd",
                "VL1 Wr",
                "VL1 Atomic",
                "VL1 Hit",
                "VL1 Lat",
                "VL1 Coalesce",
                "VL1 Stall",
            ],
        ),
        ("sL1D", &["sL1D Rd", "sL1D Hit", "sL1D Lat"]),
        ("L1I", &["IL1 Fetch", "IL1 Hit", "IL1 Lat"]),
    ],
    &[
        ("from vL1D", &["VL1_L2 Rd", "VL1_L2 Wr", "VL1_L2 Atomic"]),
        ("from sL1D", &["sL1D_L2 Rd", "sL1D_L2 Wr", "sL1D_L2 Atomic"]),
        ("from L1I", &["IL1_L2 Rd"]),
        (
            "L2",
            &[
                "L2 Rd",
                "L2 Wr",
                "L2 Atomic",
                "L2 Hit",
                "L2 Rd Lat",
                "L2 Wr Lat",
            ],
        ),
    ],
    &[
        (
            "Fabric",
            &[
                "Fabric_L2 Rd",
                "Fabric_L2 Wr",
                "Fabric_L2 Atomic",
                "Fabric Rd Lat",
                "Fabric Wr Lat",
                "Fabric Atomic Lat",
            ],
        ),
        ("HBM", &["HBM Rd", "HBM Wr"]),
    ],
];

/// Draws the chart of a filled table 3.1.
pub fn draw(sheet: &Sheet, decimals: usize) -> String {
    let mut values: HashMap<&str, String> = HashMap::new();
    for line in &sheet.lines {
        if let Some(Entry::Value(value)) = line.entries.get(1) {
            let text = match value.number() {
                Some(number) if number.fract() == 0.0 => format!("{number}"),
                Some(number) => format!("{number:.decimals$}"),
                None => "N/A".to_owned(),
            };
            values.insert(line.name(), text);
        }
    }
    let mut columns: Vec<Vec<String>> = Vec::new();
    for parts in COLUMNS {
        let mut lines: Vec<(bool, String, String)> = Vec::new();
        for (title, names) in parts {
            let known: Vec<(&str, &String)> = names
                .iter()
                .filter_map(|name| Some((*name, values.get(name)?)))
                .collect();
            if known.is_empty() {
                continue;
            }
            lines.push((true, (*title).to_owned(), String::new()));
            for (name, value) in known {
                lines.push((false, name.to_owned(), value.clone()));
            }
        }
        columns.push(boxed(&lines));
    }
    columns.retain(|column| !column.is_empty());
    let height = columns.iter().map(Vec::len).max().unwrap_or(0);
    let mut out = String::new();
    for row in 0..height {
        for (place, column) in columns.iter().enumerate() {
            let width = column.first().map_or(0, |line| line.chars().count());
            // The path from column to column is drawn in the second row.
            let between = match (place, row) {
                (0, _) => "",
                (_, 1) => " ──> ",
                _ => "     ",
            };
            out.push_str(between);
            match column.get(row) {
                Some(line) => out.push_str(line),
                None => out.push_str(&" ".repeat(width)),
            }
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}

/// Draws a frame around parts of the GPU that stand below each other.
fn boxed(lines: &[(bool, String, String)]) -> Vec<String> {
    let width = lines
        .iter()
        .map(|(_, name, value)| name.chars().count() + value.chars().count() + 2)
        .max();
    let Some(width) = width else {
        return Vec::new();
    };
    let mut out = Vec::new();
    for (place, (title, name, value)) in lines.iter().enumerate() {
        let space = width - name.chars().count() - value.chars().count();
        if *title {
            let (left, right) = if place == 0 {
                ('┌', '┐')
            } else {
                ('├', '┤')
            };
            let rule = "─".repeat(width - name.chars().count());
            out.push(format!("{left} {name} {rule}{right}"));
        } else {
            out.push(format!("│ {name}{}{value} │", " ".repeat(space)));
        }
    }
    out.push(format!("└{}┘", "─".repeat(width + 2)));
    out
}
