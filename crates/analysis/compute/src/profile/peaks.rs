//! Peaks of a GPU, measured by AMD's benchmark where it is installed.

use super::write::failed;
use crate::console::Console;
use crate::files;
use crate::read::csv;
use midair_failure::{Failure, Kind};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The variable that names the benchmark, as with AMD's tool.
const VARIABLE: &str = "ROOFLINE_BIN";
/// Where AMD's packages install it, below the directory of ROCm.
const PLACES: [&str; 2] = ["libexec/rocprofiler-compute/utils/rooflines", "bin"];

/// Returns the benchmark that the variable names, or the benchmark of the newest installed ROCm.
fn installed() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
        return Some(named.into());
    }
    let rocm = std::env::var_os("ROCM_PATH").unwrap_or_else(|| "/opt/rocm".into());
    let mut found = Vec::new();
    for place in PLACES {
        let directory = Path::new(&rocm).join(place);
        let entries = files::entries(&directory).unwrap_or_default();
        found.extend(entries.into_iter().filter(|entry| {
            let name = entry.file_name().unwrap_or_default();
            name.to_string_lossy().starts_with("roofline-")
        }));
    }
    found.sort();
    found.pop()
}

/// Returns the benchmark.
///
/// # Errors
/// When there is none.
pub(super) fn program() -> Result<PathBuf, Failure> {
    installed().ok_or_else(|| {
        Failure::new(
            Kind::Installation,
            "cannot measure the GPU's peaks: AMD's benchmark is not installed",
        )
        .hint(format!(
            "set {VARIABLE} to its path (utils/rooflines/roofline-* of rocprofiler-compute); without --roofline, the specification's peaks \
             are shown"
        ))
    })
}

/// Measures the peaks of a GPU into `roofline.csv`. Other work on the GPU makes them too low.
///
/// # Errors
/// When the benchmark fails.
pub(super) fn measure(
    program: &Path,
    directory: &Path,
    device: &str,
    console: &Console,
) -> Result<(), Failure> {
    let file = directory.join("roofline.csv");
    console.note(&format!("measuring peaks with {}", program.display()));
    let status = Command::new(program)
        .arg("-o")
        .arg(&file)
        .args(["-d", device])
        .status()
        .map_err(|error| {
            Failure::new(
                Kind::Installation,
                format!("{}: {error}", program.display()),
            )
        })?;
    if !status.success() {
        let what = format!("{}: {status}", program.display());
        return Err(Failure::new(Kind::Installation, what));
    }
    let peaks = csv::single(&file)?;
    if !peaks.iter().any(|(name, _)| name == "HBMBw") {
        let why = "it has no column HBMBw";
        return Err(failed(&file, &why));
    }
    Ok(())
}
