//! `--kokkos-trace`, with a stand-in for Kokkos (`tests/c/kokkos.c`): a program that loads the tool
//! and calls it as Kokkos's core does, around kernels on the stand-in runtime. Kokkos itself was
//! not there to test with.

use midair_tests::Result;
use midair_tests::stage::{command, stage};
use midair_tests::stand_in::Kit;
use midair_tests::table::Csv;
use midair_tests::target::{Exit, PATIENCE, run};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

const ROUNDS: usize = 3;

/// Runs the program under `rocprofv3` with these words.
fn traced(kit: &Kit, words: &[&str], results: &Path, inherited: &[(&str, &str)]) -> Result<Exit> {
    let program = kit.program("kokkos")?;
    let mut front: Command = command("rocprofv3")?;
    front.env("HSA_MODEL_TOPOLOGY", kit.dir().join("topology"));
    front.envs(inherited.iter().copied());
    front
        .args(words)
        .args(["-f", "csv", "-o", "out", "-d"])
        .arg(results);
    front.arg("--").arg(program).arg(ROUNDS.to_string());
    run(front, PATIENCE)?.success()
}

/// Returns how often each text is in a column.
fn times(results: &Path, table: &str, column: &str) -> Result<BTreeMap<String, usize>> {
    let mut times = BTreeMap::new();
    for row in Csv::read(&results.join(format!("out_{table}.csv")))?.rows {
        *times.entry(row[column].clone()).or_default() += 1;
    }
    Ok(times)
}

fn owned(all: &[(&str, usize)]) -> BTreeMap<String, usize> {
    all.iter()
        .map(|(name, times)| ((*name).to_owned(), *times))
        .collect()
}

#[test]
fn regions_are_ranges_and_name_their_kernels() -> Result<()> {
    let kit = Kit::new()?;
    let results = tempfile::tempdir()?;
    let words = ["--kokkos-trace", "--kernel-trace"];
    let exit = traced(&kit, &words, results.path(), &[])?;
    // Kokkos need not wait for the device after each loop.
    assert_eq!(exit.stdout, ["fencing 0", "done"], "{exit}");
    let wanted = owned(&[
        ("a step is over", ROUNDS),
        ("axpy loop", ROUNDS),
        ("dot loop", ROUNDS),
        ("end of step", ROUNDS),
        ("on another thread", 1),
        ("step", ROUNDS),
        ("whole run", 1),
        ("x_device <- x_host", ROUNDS),
    ]);
    let found = times(results.path(), "marker_api_trace", "Function")?;
    assert_eq!(found, wanted, "{exit}");
    let kernels = times(results.path(), "kernel_trace", "Kernel_Name")?;
    assert_eq!(
        kernels,
        owned(&[("axpy loop", ROUNDS), ("dot loop", ROUNDS)])
    );
    Ok(())
}

/// Without the option nothing is loaded. A tool of the user's own stays, since Kokkos loads one.
#[test]
fn a_tool_of_the_user_stays() -> Result<()> {
    let kit = Kit::new()?;
    let results = tempfile::tempdir()?;
    let exit = traced(&kit, &["--kernel-trace"], results.path(), &[])?;
    assert_eq!(exit.stdout, ["tool none", "done"], "{exit}");
    // Any library that is no tool.
    let other = stage()?
        .join("lib/librocprofiler-sdk-roctx.so.1")
        .display()
        .to_string();
    let inherited = [("KOKKOS_TOOLS_LIBS", other.as_str())];
    let words = ["--kokkos-trace", "--kernel-trace"];
    let exit = traced(&kit, &words, &results.path().join("own"), &inherited)?;
    assert_eq!(exit.stdout, ["fencing 1", "done"], "{exit}");
    let said = exit.stderr.join("\n");
    assert!(
        said.contains("KOKKOS_TOOLS_LIBS already names a tool"),
        "{exit}"
    );
    Ok(())
}

/// Kokkos asks for its tool once.
#[test]
fn an_attach_refuses_it() -> Result<()> {
    let mut attach = command("midair")?;
    attach.args(["attach", &std::process::id().to_string(), "--kokkos-trace"]);
    let exit = run(attach, PATIENCE)?;
    assert_eq!(exit.status.code(), Some(2), "{exit}");
    assert!(exit.stderr.join("\n").contains("at its start"), "{exit}");
    Ok(())
}
