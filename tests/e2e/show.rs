//! `midair show` of what an attach has written in each format, and of files that others made.

use midair_tests::Result;
use midair_tests::stage::{command, workload};
use midair_tests::target::{Exit, PATIENCE, Target, run};
use std::path::{Path, PathBuf};

fn show(words: &[&str], file: &Path) -> Result<Exit> {
    let mut show = command("midair")?;
    show.arg("show").arg(file).args(words);
    run(show, PATIENCE)
}

/// The files below a directory that end so, sorted.
fn below(directory: &Path, end: &str) -> Result<Vec<PathBuf>> {
    let (mut found, mut open) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(path) = open.pop() {
        for entry in std::fs::read_dir(path)? {
            let path = entry?.path();
            match path.is_dir() {
                true => open.push(path),
                false if path.to_string_lossy().ends_with(end) => found.push(path),
                false => {}
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The words of a row, without those that depend on the name's width.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn results_of_each_format_are_shown() -> Result<()> {
    let mut target = Target::spawn(workload(&[])?)?;
    target.expect("iter 3")?;
    let place = tempfile::tempdir()?;
    let results = place.path().join("results");
    let mut attach = command("midair")?;
    attach
        .args(["attach", &target.pid().to_string(), "--duration", "300ms"])
        .args(["-f", "csv,rocpd,json,parquet", "-o", "r", "-d"])
        .arg(&results);
    let attached = run(attach, PATIENCE)?.success()?;
    drop(target);
    let first = |end: &str| -> Result<PathBuf> {
        let found = below(&results, end)?.into_iter().next();
        found.ok_or_else(|| format!("no {end} of {attached}").into())
    };
    // The command that the screen names is one that works.
    let open = attached
        .stdout
        .iter()
        .find(|line| line.contains("midair show"));
    assert!(open.is_some(), "{attached}");

    // The kernels are the same in a database, a json file and the directory.
    let database = show(&[], &first("_results.db")?)?.success()?;
    let [head, rows @ ..] = database.stdout.as_slice() else {
        return Err(format!("nothing is shown: {database}\n{attached}").into());
    };
    assert_eq!(words(head)[..4], ["KERNEL", "CALLS", "TOTAL", "MEAN"]);
    assert!(!rows.is_empty(), "{database}");
    let json = show(&[], &first("_results.json")?)?.success()?;
    assert_eq!(json.stdout, database.stdout);
    let directory = show(&[], &results)?.success()?;
    assert_eq!(directory.stdout, database.stdout);

    // Rows of csv and Parquet, which have a column of names.
    let csv = show(&["--limit", "1"], &first("_kernel_trace.csv")?)?.success()?;
    assert_eq!(csv.stdout.len(), 2, "{csv}");
    assert_eq!(words(&csv.stdout[0])[..2], ["Kind", "Agent_Id"]);
    let parquet = below(&results, ".parquet")?;
    let kernels = parquet
        .iter()
        .find(|file| file.to_string_lossy().contains("kind=kernels"));
    let kernels = kernels.ok_or("no kernels in Parquet")?;
    let table = show(&["--limit", "1000000"], kernels)?.success()?;
    assert_eq!(words(&table.stdout[0])[..2], ["name", "agent"]);
    let view = ["--table", "kernels", "--limit", "1000000"];
    let view = show(&view, &first("_results.db")?)?.success()?;
    assert_eq!(view.stdout.len(), table.stdout.len(), "{view}");
    let only = kernels.parent().ok_or("no directory")?;
    assert_eq!(show(&[], only)?.success()?.stdout, database.stdout);
    let calls = show(&["--table", "hip_api_trace", "--limit", "3"], &results)?.success()?;
    assert_eq!(calls.stdout.len(), 4, "{calls}");
    assert!(
        calls.stderr[0].contains("left out; --limit N shows more"),
        "{calls}"
    );
    Ok(())
}

#[test]
fn other_files_are_shown_or_refused() -> Result<()> {
    let golden =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/formats/output/tests/golden");
    let csv = show(&[], &golden.join("r_kernel_trace.csv"))?.success()?;
    // A name with commas is one value.
    let vadd = "  vadd(float const*, float const*, float*, int)  ";
    assert!(csv.stdout[1].contains(vadd), "{csv}");
    let at = csv.stdout[0].find("Correlation_Id").ok_or("no column")? + "Correlation_Id".len();
    for line in &csv.stdout {
        assert!(
            line.as_bytes()
                .get(at - 1)
                .is_some_and(u8::is_ascii_alphanumeric),
            "{csv}"
        );
        assert_eq!(line.as_bytes().get(at), Some(&b' '), "{csv}");
    }
    let place = tempfile::tempdir()?;
    let odd = place.path().join("a.csv");
    std::fs::write(&odd, "a,b\n\x1b[2Jx,1\n")?;
    let exit = show(&[], &odd)?.success()?;
    assert_eq!(exit.stdout, ["a      b", "\u{fffd}[2Jx  1"]);
    std::fs::write(&odd, [0, 1, 2])?;
    let empty = place.path().join("empty");
    std::fs::create_dir(&empty)?;
    for file in [&odd, &place.path().join("missing"), &empty] {
        let exit = show(&[], file)?;
        assert_eq!(exit.status.code(), Some(40), "{exit}");
        let [error, hint] = exit.stderr.as_slice() else {
            return Err(format!("not an error and a hint: {exit}").into());
        };
        assert!(error.starts_with("midair: error: cannot "), "{exit}");
        assert!(hint.starts_with("hint: ") && hint.len() > 10, "{exit}");
    }
    Ok(())
}
