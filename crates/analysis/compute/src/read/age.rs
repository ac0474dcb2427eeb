//! Which of AMD's versions a directory is of.

use super::{Profiling, has_end, text};
use crate::files::{self, file_name};
use crate::vintage::Vintage;
use std::path::PathBuf;

/// The key of `profiling_config.yaml` that says which version's directory midair wrote.
pub(crate) const KEY: &str = "vintage";
/// How many bytes of a log are read.
const HEAD: usize = 4096;

/// Returns the version whose files these are. What says it outright counts more than what a version brought.
pub(super) fn of(found: &[PathBuf], system: &[(String, String)], profiling: &Profiling) -> Vintage {
    let said = profiling.all.get(KEY).and_then(|word| Vintage::read(word));
    said.or_else(|| logged(found))
        .unwrap_or_else(|| by_what_it_has(found, system, profiling))
}

/// Returns the version that the head of AMD's log names.
fn logged(found: &[PathBuf]) -> Option<Vintage> {
    let log = found.iter().find(|file| file_name(file) == "log.txt")?;
    let head = files::head(log, HEAD).ok()?;
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let line = head
        .lines()
        .find_map(|line| line.trim().strip_prefix("rocprofiler-compute version:"))?;
    Vintage::read(line.split_whitespace().next()?)
}

fn by_what_it_has(
    found: &[PathBuf],
    system: &[(String, String)],
    profiling: &Profiling,
) -> Vintage {
    let has_key = |key: &str| profiling.all.contains_key(key);
    let has_file = |end: &str| found.iter().any(|file| has_end(file, end));
    // Ours of the first version have both names of the channels.
    let channels = ["num_memory_channels", "num_hbm_channels"].map(|it| text(system, it).is_some());
    if has_file(".csv.gz") {
        Vintage::NEWEST
    } else if channels == [true, false] {
        Vintage::PERCENT
    } else if has_key("output_directory") && !has_key("path") || has_key("bench_only") {
        Vintage::SUMS
    } else if has_key("iteration_multiplexing") && !has_key(super::OWN) {
        Vintage::MULTIPLEXING
    } else if has_file(".db") && profiling.all.is_empty() {
        // What rocprofv3 writes by itself has no version of this tool.
        Vintage::NEWEST
    } else {
        Vintage::FIRST
    }
}

/// Whether counters were multiplexed: midair counted several groups in one run.
pub(super) fn took_turns(found: &[PathBuf], profiling: &Profiling) -> bool {
    let is_set = |key: &str| {
        let value = profiling.all.get(key);
        value.is_some_and(|value| !["", "null", "None"].contains(&value.as_str()))
    };
    let perfmon = found.iter().find(|file| file_name(file) == "perfmon");
    let groups = perfmon.map_or(0, |perfmon| {
        let files = files::entries(perfmon).unwrap_or_default();
        let is_group = |file: &&PathBuf| file_name(file).starts_with("pmc_perf_");
        files.iter().filter(is_group).count()
    });
    groups != 1 && (is_set("attach_pid") || is_set("iteration_multiplexing"))
}
