//! The user's own command line of `rocprof-compute`, and its results as AMD's scripts read them: as
//! csv, and as a database through the view `counters_collection`.

use crate::compute::{compute, end, number, streams};
use midair_compute::frame::{Frame, field};
use midair_compute::read::Workload;
use midair_tests::lab::Lab;
use midair_tests::target::{PATIENCE, until};
use midair_tests::{Result, python, workspace};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The user's line, to the letter (`shared/seeds/003`), but for the name and the pid. It ends by
/// Enter, and the results lie where they lie without any option.
#[test]
fn the_users_own_line_ends_by_enter_and_all_its_blocks_are_analyzed() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let here = tempfile::tempdir_in(lab.scratch())?;
    let inside = lab.inside(here.path())?;
    let target = streams(&lab)?;
    let pid = target.target.pid().to_string();
    let program = format!("{}/bin/rocprof-compute", lab.stage()?);
    let mut command = lab.run(&program).log_name("none").register(false);
    command = command.under(&["/usr/bin/env", "-C", &inside]);
    let line = "profile -n vadd -b 3.1.1 4.1.1 5.1.1 --no-roof -VVV --attach-pid";
    for word in line.split(' ') {
        command = command.arg(word);
    }
    let mut profile = command.arg(&pid).spawn()?;
    profile.expect(&format!(
        "Attach to process with ID {pid} is successful, Press Enter to detach..."
    ))?;
    until("some dispatches are counted", || {
        let counted = |line: &String| {
            let windows = line
                .split(", ")
                .find_map(|part| part.strip_suffix(" windows"));
            windows.is_some_and(|count| count != "0")
        };
        Ok(profile.errors().iter().any(counted))
    })?;
    profile.send("")?;
    let exit = profile.target.wait(PATIENCE)?;
    let said = exit.to_string();
    exit.success()?;
    end(target)?;

    let models: Vec<_> = fs::read_dir(here.path().join("workloads/vadd"))?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let [model] = models.as_slice() else {
        return Err(format!("{models:?}: {said}").into());
    };
    let directory = format!("{inside}/workloads/vadd/{model}");
    // AMD's program says so, too: table 4.1 of 2025 has no metric.
    assert!(said.contains("Skipping 4.1.1"), "{said}");
    let stall = compute(&lab, &["analyze", "-p", &directory, "-b", "5.1.1"])?;
    assert!(
        (number(&stall, "CPF Stall", 2)? - 166.67).abs() < 0.01,
        "{stall}"
    );
    let chart = compute(&lab, &["analyze", "-p", &directory, "-b", "3.1.1"])?;
    assert!(chart.contains("Wave Life  12 "), "{chart}");
    let all = compute(
        &lab,
        &["analyze", "-p", &directory, "-b", "3.1.1", "4.1.1", "5.1.1"],
    )?;
    assert!(all.contains("Wave Life  12 "), "{all}");
    assert!(
        (number(&all, "CPF Stall", 2)? - 166.67).abs() < 0.01,
        "{all}"
    );
    Ok(())
}

#[test]
fn amds_way_of_reading_gets_the_same_numbers_from_csv_and_database() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let out = tempfile::tempdir_in(lab.scratch())?;
    let (both, alone) = (out.path().join("both"), out.path().join("alone"));
    let inside = lab.inside(&both)?;
    let target = streams(&lab)?;
    let pid = target.target.pid().to_string();
    let words = ["profile", "-n", "vadd", "--attach-pid", &pid, "-d", &inside];
    let more = ["--attach-duration-msec", "1500", "--max-overhead", "100"];
    let what = ["-b", "5.1.1", "10.1", "17.1.2"];
    let form = ["--format-rocprof-output", "csv", "--retain-rocpd-output"];
    let said = compute(&lab, &[&words[..], &more, &what, &form].concat())?;
    end(target)?;

    // The same collection, once as csv and once as a database.
    fs::create_dir(&alone)?;
    for entry in fs::read_dir(&both)?.flatten() {
        if entry.path().is_file() && entry.file_name() != "pmc_perf.csv" {
            fs::copy(entry.path(), alone.join(entry.file_name()))?;
        }
    }
    let shown = |directory: &Path| -> Result<String> {
        let path = lab.inside(directory)?;
        let text = compute(&lab, &["analyze", "-p", &path, "-b", "5", "10.1", "17.1"])?;
        Ok(text.replace(&path, ""))
    };
    let by_database = shown(&alone)?;
    assert!(by_database.contains("17.1.2"), "{by_database}");
    assert_eq!(shown(&both)?, by_database);

    let (csv, database) = (Workload::read(&both, &[])?, Workload::read(&alone, &[])?);
    let script = workspace().join("tests/e2e/compute_reading.py");
    let output = Command::new(python::python()?)
        .arg(script)
        .args([both.join("pmc_perf.csv"), alone.join("pmc_perf_0.db")])
        .output()?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    let read: Value = serde_json::from_slice(&output.stdout)?;
    for (name, frame) in [("csv", &csv.frame), ("database", &database.frame)] {
        let ours = sums(frame);
        let theirs = &read[name];
        assert!(ours.len() >= 10, "{name}: {ours:?}: {said}");
        for (counter, counted, sum) in ours {
            let there = &theirs["counters"][&counter];
            assert_eq!(there["counted"].as_u64(), Some(counted), "{name} {counter}");
            assert_eq!(there["sum"].as_f64(), Some(sum), "{name} {counter}");
        }
        // The metrics that AMD's expressions make of them. Stalled is event 25, busy event 23, hits
        // are event 17, misses event 19: (1 + event mod 7).
        for (metric, value) in [("5.1.1", 100.0 * 5.0 / 3.0), ("17.1.2", 40.0)] {
            let there = theirs["metrics"][metric].as_f64().ok_or(metric)?;
            assert!((there - value).abs() < 1e-9, "{name} {metric}: {there}");
        }
        // Nothing stands for a dispatch that was not counted.
        assert_eq!(theirs["negative"], 0, "{name}");
    }
    // The csv has the dispatches without a window, too; the view has only those with values.
    let rows = |frame: &Frame| frame.rows as u64;
    assert_eq!(read["csv"]["rows"].as_u64(), Some(rows(&csv.frame)));
    let with = with_values(&database.frame);
    assert_eq!(read["database"]["rows"].as_u64(), Some(with));
    assert_eq!(read["csv"]["counted_rows"].as_u64(), Some(with));
    assert_eq!(read["kernels"]["csv"], read["kernels"]["database"]);
    Ok(())
}

/// `midair compute` is the same program: it says the same of the same directory.
#[test]
fn midair_compute_says_what_rocprof_compute_says() -> Result<()> {
    let here = tempfile::tempdir()?;
    fs::write(
        here.path().join("sysinfo.csv"),
        "workload_name,gpu_model,gpu_arch,cu_per_gpu,max_sclk,num_xcd\nx,MI300X_A1,gfx942,304,2100,8\n",
    )?;
    fs::write(
        here.path().join("pmc_perf.csv"),
        "Dispatch_ID,GPU_ID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Kernel_Name,CPF_CPF_STAT_BUSY,\
         CPF_CPF_STAT_STALL,Start_Timestamp,End_Timestamp\n0,0,64,64,0,vadd,400,100,1000,2000\n",
    )?;
    let path = here.path().to_str().ok_or("a path is text")?;
    let analyze = |program: &str, before: &[&str], words: &[&str]| {
        let mut command = midair_tests::stage::command(program)?;
        command.args(before).args(words);
        midair_tests::target::run(command, PATIENCE)
    };
    let words = ["analyze", "-p", path, "-b", "5.1.1"];
    let ours = analyze("midair", &["compute"], &words)?.success()?;
    assert!(
        (number(&ours.stdout.join("\n"), "CPF Stall", 2)? - 25.0).abs() < 0.01,
        "{ours}"
    );
    let amds = analyze("rocprof-compute", &[], &words)?.success()?;
    assert_eq!(ours.stdout, amds.stdout);
    // So it does of what it refuses.
    let words = ["analyze", "-p", "/nowhere"];
    let ours = analyze("midair", &["compute"], &words)?;
    assert_eq!(ours.status.code(), Some(40), "{ours}");
    assert_eq!(ours.stderr, analyze("rocprof-compute", &[], &words)?.stderr);
    Ok(())
}

/// The columns that are no counters.
const OTHERS: [&str; 15] = [
    field::DISPATCH,
    field::GPU,
    field::GRID,
    field::WORKGROUP,
    field::LDS,
    "Scratch_Per_Workitem",
    "Arch_VGPR",
    "Accum_VGPR",
    "SGPR",
    "Kernel_ID",
    field::WAVE,
    field::CORRELATION,
    field::GROUP,
    field::SHARED,
    field::START,
];

fn counters(frame: &Frame) -> Vec<String> {
    // Channels are instances of a counter; AMD's view has sums.
    let all = frame
        .column_names()
        .filter(|name| !OTHERS.contains(name) && *name != field::END && !name.contains('['));
    all.map(str::to_owned).collect()
}

/// Returns each counter with the number of dispatches that were counted for it, and their sum.
fn sums(frame: &Frame) -> Vec<(String, u64, f64)> {
    let of = |name: String| {
        let column = frame.named(&name)?;
        let values = (0..frame.rows).map(|row| column.get(row));
        let values: Vec<f64> = values.filter(|value| !value.is_nan()).collect();
        Some((name, values.len() as u64, values.iter().sum()))
    };
    counters(frame).into_iter().filter_map(of).collect()
}

/// Returns the number of dispatches that have the value of some counter.
fn with_values(frame: &Frame) -> u64 {
    let names = counters(frame);
    let columns: Vec<_> = names.iter().filter_map(|name| frame.named(name)).collect();
    let has = |row: &usize| columns.iter().any(|column| !column.get(*row).is_nan());
    (0..frame.rows).filter(has).count() as u64
}
