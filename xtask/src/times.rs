//! Keeps how long each step of the suite took, below the target directory, and shows the last runs
//! side by side.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use midair_dev_kit::run::target_directory;

/// How many runs are kept, and shown.
const RUNS: usize = 5;

/// Returns the directory of the lists: one file a run, one line a step.
fn directory() -> PathBuf {
    target_directory().join("step-times")
}

/// Keeps the times of this run and prints the times of the last runs, the newest first. That they
/// cannot be kept fails nothing.
pub fn keep(steps: &[(&str, Duration)]) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let number = now.map_or(0, |since| since.as_secs());
    match add(&directory(), number, steps) {
        Ok(runs) if runs.len() > 1 => print!("{}", table(steps, &runs)),
        Ok(_) => {}
        Err(error) => println!("the times of the steps are not kept: {error}"),
    }
}

/// Adds a run, removes old ones, and returns the lists of the others, the newest first.
fn add(
    directory: &Path,
    number: u64,
    steps: &[(&str, Duration)],
) -> std::io::Result<Vec<Vec<(String, f64)>>> {
    fs::create_dir_all(directory)?;
    let lines = steps
        .iter()
        .map(|(name, took)| format!("{:.1}\t{name}\n", took.as_secs_f64()));
    fs::write(
        directory.join(format!("{number:012}")),
        lines.collect::<String>(),
    )?;
    let entries = fs::read_dir(directory)?;
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.map(|it| it.path()))
        .collect::<Result<_, _>>()?;
    files.sort();
    files.reverse();
    for old in files.drain(RUNS.min(files.len())..) {
        fs::remove_file(old)?;
    }
    let read = |path: &PathBuf| -> std::io::Result<Vec<(String, f64)>> {
        let text = fs::read_to_string(path)?;
        let row = |line: &str| {
            let (took, name) = line.split_once('\t')?;
            Some((name.to_owned(), took.parse().ok()?))
        };
        Ok(text.lines().filter_map(row).collect())
    };
    files.iter().map(read).collect()
}

/// Shows the steps of the newest run with their times in all runs, and the sums.
fn table(steps: &[(&str, Duration)], runs: &[Vec<(String, f64)>]) -> String {
    let mut text = format!(
        "== seconds a step in the last {} runs, this one first\n",
        runs.len()
    );
    for (name, _) in steps {
        text.push_str(&format!("{name:22}"));
        for run in runs {
            match run.iter().find(|(other, _)| other == name) {
                Some((_, took)) => text.push_str(&format!(" {took:8.1}")),
                None => text.push_str("        -"),
            }
        }
        text.push('\n');
    }
    text.push_str(&format!("{:22}", "all"));
    for run in runs {
        let sum: f64 = run.iter().map(|(_, took)| took).sum();
        text.push_str(&format!(" {sum:8.1}"));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_runs_are_kept_and_shown() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("times");
        let run = |number: u64, seconds: u64| {
            let steps = [
                ("format", Duration::from_secs(seconds)),
                ("API documentation", Duration::from_millis(1500)),
            ];
            (steps, add(&at, number, &steps).unwrap())
        };
        for number in 1..7 {
            run(number, number);
        }
        let (steps, runs) = run(7, 70);
        assert_eq!(runs.len(), RUNS);
        let text = table(&steps, &runs);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows[0], ["format", "70.0", "6.0", "5.0", "4.0", "3.0"]);
        assert_eq!(rows[2], ["all", "71.5", "7.5", "6.5", "5.5", "4.5"]);
        assert_eq!(fs::read_dir(&at).unwrap().count(), RUNS);
    }
}
