//! Counters of whole devices over time (`--pmc-device`), compared with the rules of the model that
//! counts (`sim/gpu-model/src/pmu/rules.rs`) and with its log.

use midair_tests::Result;
use midair_tests::lab::{Lab, LabTarget};
use midair_tests::modellog::{Event, ModelLog};
use midair_tests::table::{self, Csv};
use midair_tests::target::{PATIENCE, in_turn, until};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// MHz of the modelled device.
const CLOCK: f64 = 2100.0;

/// What a device counted between two readings.
#[derive(Debug, Clone, Default)]
struct Reading {
    start: u64,
    end: u64,
    values: BTreeMap<String, f64>,
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            all.push(path);
        }
    }
    all
}

fn file(dir: &Path, end: &str) -> Result<PathBuf> {
    let found = files(dir)
        .into_iter()
        .find(|f| f.to_string_lossy().ends_with(end));
    found.ok_or_else(|| format!("no {end} among {:?}", files(dir)).into())
}

fn readings(dir: &Path) -> Result<BTreeMap<u64, Reading>> {
    let mut all: BTreeMap<u64, Reading> = BTreeMap::new();
    for row in Csv::read(&file(dir, "device_counter_collection.csv")?)?.rows {
        let reading = all.entry(Csv::number(&row, "Reading_Id")?).or_default();
        reading.start = Csv::number(&row, "Start_Timestamp")?;
        reading.end = Csv::number(&row, "End_Timestamp")?;
        let value = row["Counter_Value"].parse()?;
        let name = row["Counter_Name"].clone();
        assert_eq!(reading.values.insert(name, value), None, "twice: {row:?}");
    }
    Ok(all)
}

fn total(readings: &BTreeMap<u64, Reading>, counter: &str) -> f64 {
    let values = readings.values().filter_map(|r| r.values.get(counter));
    values.sum()
}

/// Starts a program with streams and leaves it idle.
fn idle(lab: &Lab, threads: u32) -> Result<LabTarget> {
    let program = lab.run(&lab.program("streams")?);
    let mut target = program.arg(lab.kernels()?).arg(threads).spawn()?;
    target.expect("ready")?;
    target.send("start")?;
    target.expect("start")?;
    target.send("stop")?;
    target.expect("stop")?;
    Ok(target)
}

fn launched(target: &mut LabTarget) -> Result<u64> {
    target.send("counts")?;
    let line = target.expect("total")?;
    let count = line.split_whitespace().nth(1).unwrap_or_default();
    Ok(count.parse()?)
}

/// Lets the program run until it has launched this many more kernels.
fn run_for(target: &mut LabTarget, kernels: u64) -> Result<()> {
    let before = launched(target)?;
    until("the program launches", || {
        target.send("start")?;
        target.expect("start")?;
        target.send("stop")?;
        target.expect("stop")?;
        // The program tells what it has launched only while it stands still.
        Ok(launched(target)? >= before + kernels)
    })
}

fn attacher(lab: &Lab, target: &LabTarget, out: &Path, words: &[&str]) -> Result<LabTarget> {
    let program = format!("{}/bin/midair", lab.stage()?);
    let mut command = lab.run(&program).log_name("none").register(false);
    for word in ["attach", "-d", &lab.inside(out)?].iter().chain(words) {
        command = command.arg(word);
    }
    let mut attacher = command.arg(target.target.pid()).spawn()?;
    attacher.expect_error("attached to process")?;
    Ok(attacher)
}

fn detach(attacher: LabTarget) -> Result<String> {
    attacher.target.signal(libc::SIGINT)?;
    let exit = attacher.target.wait(PATIENCE)?;
    let said = exit.to_string();
    exit.success()?;
    Ok(said)
}

fn end(mut target: LabTarget) -> Result<ModelLog> {
    target.send("quit")?;
    target.expect("done")?;
    let log = target.log.clone();
    target.target.wait(PATIENCE)?.success()?;
    let log = ModelLog::read(&log)?;
    log.check()?;
    Ok(log)
}

/// Returns how many waves these dispatches of the log had: in all, and on queues that were enabled
/// for counters.
fn waves(log: &ModelLog, which: std::ops::Range<usize>) -> (u64, u64) {
    let (mut all, mut enabled, mut seen) = (0, 0, 0);
    let mut on: BTreeSet<u64> = BTreeSet::new();
    for record in &log.records {
        match &record.event {
            Event::Pm4(pm4) if pm4.enabled => {
                on.insert(pm4.ring);
            }
            Event::Pm4(pm4) => {
                on.remove(&pm4.ring);
            }
            Event::Dispatch(dispatch) => {
                seen += 1;
                if which.contains(&(seen - 1)) {
                    let sizes = (0..3)
                        .map(|n| u64::from(dispatch.grid[n]) / u64::from(dispatch.workgroup[n]));
                    let items: u64 = dispatch.workgroup.into_iter().map(u64::from).product();
                    let waves = sizes.product::<u64>() * items.div_ceil(64);
                    all += waves;
                    enabled += waves * u64::from(on.contains(&dispatch.packet.ring));
                }
            }
            _ => {}
        }
    }
    (all, enabled)
}

/// Checks that nothing counts any more and that nothing of midair's is left. Queues that were made
/// after the first `from` queues must be destroyed.
fn nothing_is_left(log: &ModelLog) {
    let mut on: BTreeMap<u64, bool> = BTreeMap::new();
    let mut alive: BTreeSet<u32> = BTreeSet::new();
    let mut ours: BTreeSet<u32> = BTreeSet::new();
    for record in &log.records {
        match &record.event {
            Event::Pm4(pm4) => {
                on.insert(pm4.ring, pm4.enabled);
                if !pm4.control.is_empty() {
                    ours.insert(record.queue);
                }
            }
            Event::Queue { .. } => {
                alive.insert(record.queue);
            }
            Event::QueueEnd { .. } => {
                alive.remove(&record.queue);
            }
            _ => {}
        }
    }
    let left: Vec<_> = ours.intersection(&alive).collect();
    assert!(
        !ours.is_empty() && left.is_empty(),
        "queues of ours: {left:?}"
    );
    let counting: Vec<_> = on.iter().filter(|(_, on)| **on).collect();
    assert!(counting.is_empty(), "{counting:?}");
}

#[test]
fn sums_of_readings_are_what_the_device_counted() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    for threads in [1, 4] {
        let mut target = idle(&lab, threads)?;
        let before = ModelLog::read(&target.log)?.dispatches().count();
        let out = tempfile::tempdir_in(lab.scratch())?;
        let words = [
            "--pmc-device",
            "SQ_WAVES,GRBM_COUNT,TCC_HIT",
            "--output-format",
            "csv,json,rocpd,pftrace,html",
        ];
        let attacher = attacher(&lab, &target, out.path(), &words)?;
        // A fast machine has launched 300 kernels before there are four readings.
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(400) {
            run_for(&mut target, 300)?;
        }
        let said = detach(attacher)?;
        // HIP launches more work when the program ends, so the range stops here.
        let after = ModelLog::read(&target.log)?.dispatches().count();
        let log = end(target)?;
        let readings = readings(out.path())?;
        assert!(readings.len() > 3, "{}: {said}", readings.len());
        let (all, enabled) = waves(&log, before..after);
        let hits = total(&readings, "TCC_HIT");
        let factor = hits / all as f64;
        assert!(
            factor.fract() == 0.0 && (1.0..=7.0).contains(&factor),
            "{hits} of {all} waves\n{said}"
        );
        assert_eq!(total(&readings, "SQ_WAVES"), enabled as f64, "{said}");
        assert!(enabled * 2 > all, "{enabled} of {all}");
        let (mut last, mut off) = (None, Vec::new());
        for (number, reading) in &readings {
            assert!(
                last.is_none_or(|end| end == reading.start),
                "{number}: {reading:?}"
            );
            last = Some(reading.end);
            let cycles = (reading.end - reading.start) as f64 * CLOCK / 1000.0;
            let counted = reading.values["GRBM_COUNT"];
            if (counted - cycles).abs() >= 0.02 * cycles + 1e4 {
                off.push(format!("{number}: {counted} of {cycles}"));
            }
        }
        // Where the model's thread lost its processor between the time and the count, one reading
        // has cycles of the next.
        assert!(off.len() * 4 <= readings.len(), "{off:?}");
        nothing_is_left(&log);
        other_formats(out.path(), &readings)?;
        assert!(said.contains("SQ_WAVES /s"), "{said}");
    }
    Ok(())
}

/// Checks that the other formats have the same values.
fn other_formats(out: &Path, readings: &BTreeMap<u64, Reading>) -> Result<()> {
    let json = table::json(&file(out, "results.json")?)?;
    let tool = &json["rocprofiler-sdk-tool"][0];
    let list = tool["buffer_records"]["device_counter_collection"].as_array();
    let list = list.ok_or("no list")?;
    assert_eq!(list.len(), readings.len());
    let id = |name: &str| {
        let counters = tool["counters"].as_array()?;
        let found = counters.iter().find(|counter| counter["name"] == name)?;
        found["id"]["handle"].as_u64()
    };
    let waves = id("SQ_WAVES").ok_or("no such counter")?;
    let records = list
        .iter()
        .flat_map(|one| one["records"].as_array().into_iter().flatten());
    let sum: f64 = records
        .filter(|record| record["counter_id"]["handle"] == waves)
        .filter_map(|record| record["value"].as_f64())
        .sum();
    assert_eq!(sum, total(readings, "SQ_WAVES"));
    let sum = |counter: &str| {
        format!(
            "SELECT SUM(value) AS a, COUNT(DISTINCT sample_id) AS b FROM rocpd_pmc_event AS e JOIN rocpd_info_pmc AS p ON p.id = e.pmc_id WHERE p.name = '{counter}'"
        )
    };
    let names = ["SQ_WAVES", "TCC_HIT", "GRBM_COUNT"];
    let mut queries: Vec<String> = names.iter().map(|name| sum(name)).collect();
    queries.push("SELECT COUNT(*) AS a FROM rocpd_sample AS s JOIN rocpd_pmc_event AS e ON e.sample_id = s.id AND e.event_id = s.event_id".to_owned());
    let queries: Vec<&str> = queries.iter().map(String::as_str).collect();
    let read = crate::rocpd::reader(&file(out, "results.db")?, &queries)?;
    let answers = read["answers"].as_array().ok_or("no answers")?;
    for (name, answer) in names.iter().zip(answers) {
        assert_eq!(
            answer[0]["a"].as_f64(),
            Some(total(readings, name)),
            "{name}"
        );
        assert_eq!(answer[0]["b"], readings.len(), "{name}");
    }
    assert_eq!(answers[3][0]["a"], 3 * readings.len());
    assert!(std::fs::metadata(file(out, "pftrace")?)?.len() > 0);
    let page = table::page(&file(out, "results.html")?)?;
    let curves = page["curves"].as_array().into_iter().flatten();
    let waves = curves
        .filter(|curve| curve["name"] == "GPU 0 SQ_WAVES /s")
        .filter_map(|curve| curve["values"].as_array());
    // Start, length and value of each reading.
    let values: Vec<usize> = waves.map(|values| values.len() / 3).collect();
    assert_eq!(values, [readings.len()], "{}", page["curves"]);
    Ok(())
}

/// Groups are multiplexed while kernels are traced, too.
#[test]
fn groups_take_turns() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = idle(&lab, 2)?;
    let out = tempfile::tempdir_in(lab.scratch())?;
    let words = [
        "--pmc-device",
        "SQ_WAVES",
        "--pmc-device",
        "TCC_HIT",
        "--pmc-device-interval",
        "2",
        "--kernel-trace",
        "--output-format",
        "csv",
    ];
    let attacher = attacher(&lab, &target, out.path(), &words)?;
    run_for(&mut target, 900)?;
    let said = detach(attacher)?;
    let log = end(target)?;
    let readings = readings(out.path())?;
    let of = |counter: &str| {
        readings
            .values()
            .filter(|r| r.values.contains_key(counter))
            .count()
    };
    let (first, second) = (of("SQ_WAVES"), of("TCC_HIT"));
    assert!(
        first > 0 && second > 0 && first.abs_diff(second) <= 1,
        "{first} and {second}\n{said}"
    );
    assert_eq!(first + second, readings.len(), "one group each");
    let mut ends: Vec<(u64, u64)> = readings.values().map(|r| (r.start, r.end)).collect();
    ends.sort_unstable();
    assert!(
        ends.windows(2).all(|pair| pair[0].1 <= pair[1].0),
        "they overlap"
    );
    let kernels = Csv::read(&file(out.path(), "kernel_trace.csv")?)?
        .rows
        .len();
    assert!(kernels >= 300, "{kernels}");
    nothing_is_left(&log);
    Ok(())
}

/// The process goes on, and another session reads as if there had been none before. The same holds
/// after thirty sessions.
#[test]
fn an_attacher_that_is_killed_leaves_no_queue() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = idle(&lab, 2)?;
    let words = ["--pmc-device", "SQ_WAVES", "--output-format", "csv"];
    for round in 0..6 {
        let out = tempfile::tempdir_in(lab.scratch())?;
        // An attach is refused until the lease of the killed attacher has run out.
        let attacher = in_turn(|| attacher(&lab, &target, out.path(), &words))?;
        run_for(&mut target, 20)?;
        if round % 2 == 0 {
            attacher.target.signal(libc::SIGKILL)?;
            attacher.target.wait(PATIENCE)?;
        } else {
            detach(attacher)?;
            assert!(!readings(out.path())?.is_empty());
        }
    }
    nothing_is_left(&end(target)?);
    Ok(())
}

/// What was read until the end of the process is in the files.
#[test]
fn a_program_that_ends_is_read_until_then() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = idle(&lab, 1)?;
    let before = ModelLog::read(&target.log)?.dispatches().count();
    let out = tempfile::tempdir_in(lab.scratch())?;
    let words = ["--pmc-device", "TCC_HIT", "--output-format", "csv"];
    let attacher = attacher(&lab, &target, out.path(), &words)?;
    run_for(&mut target, 100)?;
    let log = end(target)?;
    let exit = attacher.target.wait(PATIENCE)?;
    let said = exit.to_string();
    let readings = readings(out.path())?;
    let (all, _) = waves(&log, before..usize::MAX);
    let factor = total(&readings, "TCC_HIT") / all as f64;
    assert!(factor.fract() == 0.0 && factor >= 1.0, "{factor}\n{said}");
    Ok(())
}
