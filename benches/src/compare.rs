//! Compares two builds in one run: the benchmarks of another checkout and of this one, in turn.
//!
//! Each side is a process of its own with its own staged product, because the attacher is measured,
//! too, and is linked into it. The sides alternate (before, after, after, before ...), so that both
//! see the same machine. The figures are compared pair by pair.

use midair_tests::{Result, workspace};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// The number of pairs when none is given.
pub const PAIRS: usize = 10;

/// The p50 of each row of a table.
type Medians = BTreeMap<String, f64>;

/// Builds both sides and what they attach with, measures, and prints the comparison.
pub fn run(before: &Path, pairs: usize, names: &[String]) -> Result<()> {
    let sides = [before.canonicalize()?, workspace().canonicalize()?];
    for side in &sides {
        cargo(side, &["xtask", "stage", "--release"])?;
        cargo(side, &["build", "--release", "--package", "midair-benches"])?;
    }
    let mut measured: [Vec<Medians>; 2] = Default::default();
    for pair in 0..pairs {
        let order = if pair % 2 == 0 { [0, 1] } else { [1, 0] };
        for side in order {
            let who = ["before", "after"][side];
            eprintln!("pair {} of {pairs}: {who}", pair + 1);
            measured[side].push(measure(&sides[side], names)?);
        }
    }
    print(&compare(&measured));
    Ok(())
}

fn cargo(side: &Path, words: &[&str]) -> Result<()> {
    let mut cargo = Command::new("cargo");
    let status = cargo.args(words).current_dir(side).status()?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("cargo {} in {}: {status}", words.join(" "), side.display()).into())
    }
}

/// Runs a side's benchmarks once.
fn measure(side: &Path, names: &[String]) -> Result<Medians> {
    let output = Command::new(side.join("target/release/midair-benches"))
        .args(names)
        .current_dir(side)
        .env("MIDAIR_STAGE", side.join("target/stage"))
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!("{}: {}: {text}", side.display(), output.status).into());
    }
    Ok(medians(&text))
}

/// Reads a table as [`crate::report::Table`] prints it, with two spaces or more between cells.
fn medians(text: &str) -> Medians {
    let mut subject = String::new();
    let mut found = Medians::new();
    for line in text.lines().skip(1) {
        let indented = line.starts_with("  ");
        let mut cells = line
            .trim_start()
            .split("  ")
            .filter(|cell| !cell.is_empty());
        let (Some(name), Some(p50)) = (cells.next(), cells.next()) else {
            continue;
        };
        let Some(nanoseconds) = nanoseconds(p50.trim()) else {
            continue;
        };
        // The name of an indented row gets the name of the row above it in front.
        let name = name.trim_end();
        if indented {
            found.insert(format!("{subject}, {name}"), nanoseconds);
        } else {
            name.clone_into(&mut subject);
            found.insert(name.to_owned(), nanoseconds);
        }
    }
    found
}

fn nanoseconds(cell: &str) -> Option<f64> {
    let (number, unit) = cell.split_once(' ')?;
    let scale = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * scale)
}

/// One row of the comparison.
#[derive(Debug, PartialEq)]
struct Compared {
    name: String,
    /// The median over the pairs for the build before, in ns.
    before: f64,
    /// The median over the pairs for the build after, in ns.
    after: f64,
    /// The ratio of after to before over the pairs: lower quartile, median and upper quartile.
    ratios: [f64; 3],
}

/// Compares the rows that both sides have in every run.
fn compare([before, after]: &[Vec<Medians>; 2]) -> Vec<Compared> {
    let names = before.first().into_iter().flat_map(BTreeMap::keys);
    let row = |name: &String| {
        let of = |side: &[Medians]| -> Option<Vec<f64>> {
            side.iter().map(|run| run.get(name).copied()).collect()
        };
        let (before, after) = (of(before)?, of(after)?);
        let ratios: Vec<f64> = before
            .iter()
            .zip(&after)
            .map(|(before, after)| after / before)
            .collect();
        Some(Compared {
            name: name.clone(),
            before: quantile(before, 0.5),
            after: quantile(after, 0.5),
            ratios: [0.25, 0.5, 0.75].map(|part| quantile(ratios.clone(), part)),
        })
    };
    names.filter_map(row).collect()
}

/// Returns a quantile. Between two values it interpolates.
fn quantile(mut values: Vec<f64>, part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = part * values.len().saturating_sub(1) as f64;
    let value = |index: f64| values.get(index as usize).copied().unwrap_or(f64::NAN);
    let (low, high) = (value(at.floor()), value(at.ceil()));
    low + (high - low) * at.fract()
}

fn print(rows: &[Compared]) {
    let width = rows.iter().map(|row| row.name.chars().count()).max();
    let width = width.unwrap_or(0);
    println!(
        "{:width$}  {:>12}  {:>12}  {:>7}  quarter below, above",
        "p50 of", "before", "after", "change"
    );
    for row in rows {
        let percent = |ratio: f64| format!("{:+.1} %", (ratio - 1.0) * 100.0);
        let [low, middle, high] = row.ratios.map(percent);
        println!(
            "{:width$}  {:>9.1} ns  {:>9.1} ns  {middle:>7}  {low:>7} .. {high}",
            row.name, row.before, row.after
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Table;
    use std::time::Duration;

    #[test]
    fn what_a_table_prints_is_read_back() {
        let mut table = Table::new();
        let times = [Duration::from_nanos(1500); 3];
        table.times("1 busy thread: thread stopped", &times, "< 0.2 ms p50");
        table.times("  seize", &[Duration::from_micros(2500)], "");
        table.per_call("HIP call: traced", &[61.0, 60.0, 62.0], "");
        let read = medians(&table.text());
        let expected = [
            ("1 busy thread: thread stopped", 1500.0),
            ("1 busy thread: thread stopped, seize", 2_500_000.0),
            ("HIP call: traced", 61.0),
        ];
        assert_eq!(
            read,
            expected.map(|(name, ns)| (name.to_owned(), ns)).into()
        );
    }

    #[test]
    fn pairs_are_compared_one_by_one() {
        let run = |a: f64, b: f64| Medians::from([("a".to_owned(), a), ("b".to_owned(), b)]);
        let mut after = vec![run(11.0, 1.0), run(44.0, 1.0), run(30.0, 1.0)];
        after[0].remove("b");
        let rows = compare(&[vec![run(10.0, 1.0), run(40.0, 1.0), run(30.0, 1.0)], after]);
        let [row] = &rows[..] else {
            panic!("{rows:?}: b is not in every run");
        };
        assert_eq!((row.before, row.after), (30.0, 30.0));
        assert!((row.ratios[1] - 1.1).abs() < 1e-9, "{rows:?}");
    }
}
