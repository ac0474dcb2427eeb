//! `--collection-period`: a program is recorded in its periods and at no other time, whether it was
//! started so or already ran.

use crate::counters::attach;
use crate::counters_launched::has_packet_library;
use midair_tests::Result;
use midair_tests::lab::{Lab, LabTarget};
use midair_tests::table::Csv;
use midair_tests::target::{Exit, PATIENCE, ask, until};
use std::collections::BTreeSet;
use std::path::Path;

/// The midair thread that starts and ends periods. It ends with the last one.
const THREAD: &str = "midair-periods";

fn end(mut target: LabTarget) -> Result<Exit> {
    target.send("quit")?;
    target.expect("done")?;
    target.target.wait(PATIENCE)?.success()
}

/// Whether a period is on or will come.
fn goes_on(pid: i32) -> Result<bool> {
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let name = std::fs::read_to_string(task?.path().join("comm"));
        if name.is_ok_and(|name| name.trim() == THREAD) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The dispatches of a file: their kernels, by their numbers.
fn dispatches(file: &Path) -> Result<BTreeSet<(u64, String)>> {
    if !file.exists() {
        return Ok(BTreeSet::new());
    }
    let rows = Csv::read(file)?.rows;
    rows.iter()
        .map(|row| Ok((Csv::number(row, "Dispatch_Id")?, row["Kernel_Name"].clone())))
        .collect()
}

fn count(found: &BTreeSet<(u64, String)>, name: &str) -> usize {
    found
        .iter()
        .filter(|(_, kernel)| kernel.contains(name))
        .count()
}

#[test]
fn a_started_program_is_recorded_in_its_periods_alone() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let stage = lab.stage()?;
    let library = format!("{stage}/lib/librocprofiler-sdk-roctx.so.1");
    let (program, kernels) = (lab.program("regions")?, lab.kernels()?);
    let rocprofv3 = format!("{stage}/bin/rocprofv3");
    let counted = has_packet_library()?;
    let run = || lab.run(&program).arg(&library).arg(&kernels);

    // One period from the start, which is as long as the machine needs to bring the program up.
    for seconds in [3, 9, 27] {
        let dir = format!("{stage}/periods-{seconds}");
        let period = format!("0:{seconds}:1");
        let mut words = vec![rocprofv3.as_str(), "--collection-period", &period];
        words.extend(["--kernel-trace", "--hip-runtime-trace", "-f", "csv"]);
        words.extend(
            counted
                .then_some(["--pmc", "SQ_WAVES"])
                .into_iter()
                .flatten(),
        );
        words.extend(["-o", "t", "-d", &dir, "--"]);
        let command = run().under(&words).libs(&format!("{stage}/lib"));
        let mut target = command.log_name(&format!("log-{seconds}")).spawn()?;
        target.expect("ready")?;
        let pid = target.pid();
        // Rounds that ended while the period was on, and the one in which it ended.
        let mut within = 0;
        loop {
            ask(&mut target, "inside 1")?;
            if !goes_on(pid)? {
                break;
            }
            within += 1;
        }
        ask(&mut target, "outside 5")?;
        let exit = end(target)?;
        if within == 0 {
            continue;
        }
        let place = lab.outside(&dir);
        let found = dispatches(&place.join("t_kernel_trace.csv"))?;
        let inside = count(&found, "vadd");
        assert!(
            (within..=within + 1).contains(&inside),
            "{inside}, not {within}: {exit}"
        );
        assert_eq!(count(&found, "scale"), 0, "{exit}");
        let calls = Csv::read(&place.join("t_hip_api_trace.csv"))?.rows;
        let launches = calls
            .iter()
            .filter(|row| row["Function"] == "hipModuleLaunchKernel");
        assert!((within..=within + 1).contains(&launches.count()), "{exit}");
        let told = std::fs::read_to_string(place.join("t_notes.txt"))?;
        assert!(told.contains("recorded in 1 periods, "), "{told}");
        let left_out = within + 1 - inside + 5;
        let words = format!(": {left_out} dispatches that started outside");
        assert!(told.contains(&words), "{words}: {told}");
        if counted {
            let values = dispatches(&place.join("t_counter_collection.csv"))?;
            // A dispatch on the edge may be recorded without values.
            assert!(values.is_subset(&found), "{values:?}");
            assert!(count(&values, "vadd") >= within, "{exit}");
        }
        break;
    }

    // By the tool's library alone, with a period that never comes.
    let tool = format!("{stage}/lib/rocprofiler-sdk/librocprofiler-sdk-tool.so");
    let mut target = run()
        .preload(&tool)
        .register(false)
        .env("ROCPROF_COLLECTION_PERIOD", "0:1:1;3600000000000:1:1")
        .env("ROCPROF_KERNEL_TRACE", 1)
        .env("ROCPROF_OUTPUT_FORMAT", "csv")
        .env("ROCPROF_OUTPUT_PATH", format!("{stage}/periods-none"))
        .log_name("log-none")
        .spawn()?;
    target.expect("ready")?;
    let pid = target.pid();
    until("the thread of periods", || goes_on(pid))?;
    ask(&mut target, "outside 3")?;
    end(target)?;
    let place = lab.outside(&format!("{stage}/periods-none"));
    let files = std::fs::read_dir(&place).into_iter().flatten().count();
    assert_eq!(files, 0, "{place:?}");
    Ok(())
}

/// The kernels of the session's files of this kind, by their names.
fn kernels(out: &Path, end: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for file in crate::counters::files(out) {
        if file.to_string_lossy().ends_with(end) {
            let rows = Csv::read(&file)?.rows;
            found.extend(rows.iter().map(|row| row["Kernel_Name"].clone()));
        }
    }
    Ok(found)
}

#[test]
fn a_running_program_is_recorded_in_its_periods_alone() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let library = format!("{}/lib/librocprofiler-sdk-roctx.so.1", lab.stage()?);
    let command = lab.run(&lab.program("regions")?);
    let command = command.arg(&library).arg(lab.kernels()?);
    let mut target = command.log_name("periods-attached.log").spawn()?;
    target.expect("ready")?;
    let pid = target.target.pid();
    ask(&mut target, "outside 1")?;
    // A period that starts with the recording, and one that never comes.
    for periods in [&["0:3:1"][..], &["3600:1:1"]] {
        let out = tempfile::tempdir_in(lab.scratch())?;
        let mut words = vec![
            "--kernel-trace",
            "--hip-runtime-trace",
            "--output-format",
            "csv",
        ];
        for period in periods {
            words.extend(["--collection-period", period]);
        }
        // Last is an option with one value, which does not take the process for another one.
        words.extend(["--pmc", "SQ_WAVES", "--max-overhead", "100"]);
        let mut attacher = attach(&lab, &target, out.path(), &words)?.spawn()?;
        attacher.expect_error("attached to process")?;
        // Rounds that ended while the period was on, and the one in which it ended.
        let mut within = 0;
        if periods == ["0:3:1"] {
            loop {
                ask(&mut target, "inside 1")?;
                if !goes_on(pid)? {
                    break;
                }
                within += 1;
            }
        } else {
            assert!(goes_on(pid)?, "the period is waited for");
        }
        ask(&mut target, "outside 5")?;
        attacher.send("")?;
        let exit = attacher.target.wait(PATIENCE)?.success()?;
        assert!(!goes_on(pid)?, "the thread ends with the session");
        let traced = kernels(out.path(), "kernel_trace.csv")?;
        let inside = traced.iter().filter(|name| name.contains("vadd")).count();
        assert_eq!(inside, traced.len(), "nothing outside: {exit}");
        let counted = kernels(out.path(), "counter_collection.csv")?;
        assert!(
            counted.iter().all(|name| name.contains("vadd")),
            "{counted:?}"
        );
        let notes = crate::counters::files(out.path()).into_iter();
        let mut notes = notes.filter(|file| file.to_string_lossy().ends_with("notes.txt"));
        let told = std::fs::read_to_string(notes.next().ok_or("no notes")?)?;
        if periods == ["0:3:1"] {
            assert!(
                within > 0 && (within..=within + 1).contains(&inside),
                "{inside}, not {within}"
            );
            assert!(!counted.is_empty(), "{told}");
            let left_out = within + 1 - inside + 5;
            assert!(told.contains("recorded in 1 periods, "), "{told}");
            let words = format!(": {left_out} dispatches that started outside");
            assert!(told.contains(&words), "{words}: {told}");
        } else {
            assert!(traced.is_empty() && counted.is_empty(), "{exit}");
            assert!(told.contains("recorded in 0 periods, "), "{told}");
        }
    }
    end(target)?;
    Ok(())
}
