//! Counters of a running process: pauses of the program, the budget, lists of counters, and what is
//! refused before the process is touched.

use crate::counters::{attach, begin, end, files, program};
use crate::counters_launched::has_packet_library;
use midair_tests::Result;
use midair_tests::lab::{Lab, LabCommand, LabTarget};
use midair_tests::modellog::{Event, ModelLog};
use midair_tests::stage::{command, stage};
use midair_tests::table::Csv;
use midair_tests::target::{Exit, PATIENCE, run};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

/// The values of each counter in a session's csv, by grid.
fn values(out: &Path) -> Result<BTreeMap<(String, u64), Vec<f64>>> {
    let mut found: BTreeMap<(String, u64), Vec<f64>> = BTreeMap::new();
    let all = files(out).into_iter();
    for file in all.filter(|file| file.to_string_lossy().ends_with("counter_collection.csv")) {
        for row in Csv::read(&file)?.rows {
            let key = (row["Counter_Name"].clone(), Csv::number(&row, "Grid_Size")?);
            found
                .entry(key)
                .or_default()
                .push(row["Counter_Value"].parse()?);
        }
    }
    Ok(found)
}

/// An attached `midair` in the lab, and where it writes.
fn attached(
    lab: &Lab,
    target: &LabTarget,
    words: &[&str],
) -> Result<(LabTarget, tempfile::TempDir)> {
    let out = tempfile::tempdir_in(lab.scratch())?;
    let mut all = vec!["--output-format", "csv,json"];
    all.extend(words);
    let mut attacher = attach(lab, target, out.path(), &all)?.spawn()?;
    attacher.expect_error("attached to process")?;
    Ok((attacher, out))
}

fn detach(mut attacher: LabTarget) -> Result<String> {
    attacher.send("")?;
    let exit = attacher.target.wait(PATIENCE)?;
    let said = exit.to_string();
    exit.success()?;
    Ok(said)
}

fn tell(target: &mut LabTarget, command: &str) -> Result<()> {
    target.send(command)?;
    target.expect(command.split(' ').next().unwrap_or_default())?;
    Ok(())
}

/// How many windows the log has so far, whatever is in them.
fn windows(log: &ModelLog) -> usize {
    let all = log.records.iter();
    all.filter(|record| matches!(&record.event, Event::Pm4(commands) if commands.reads > 0))
        .count()
}

#[test]
fn windows_are_only_around_what_is_recorded() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let library = lab.install(&stage()?.join("lib/librocprofiler-sdk-roctx.so.1"))?;
    for begins_paused in [true, false] {
        let command = lab.run(&lab.program("regions")?);
        let command = command.arg(&library).arg(lab.kernels()?);
        let log = format!("paused-{begins_paused}.log");
        let mut target = command.log_name(&log).spawn()?;
        target.expect("ready")?;
        let how = match begins_paused {
            true => "--selected-regions",
            false => "--marker-trace",
        };
        let words = [how, "--pmc", "SQ_WAVES", "--max-overhead", "100"];
        let (attacher, out) = attached(&lab, &target, &words)?;
        for round in 0..3 {
            if begins_paused || round > 0 {
                let before = windows(&target.model_log()?);
                tell(&mut target, "outside 20")?;
                let after = windows(&target.model_log()?);
                assert_eq!(
                    after, before,
                    "{how}: no window is around what is not recorded"
                );
                tell(&mut target, "resume")?;
            }
            tell(&mut target, "inside 20")?;
            tell(&mut target, "pause")?;
        }
        tell(&mut target, "outside 20")?;
        let said = detach(attacher)?;
        target.send("quit")?;
        target.expect("done")?;
        target.target.wait(PATIENCE)?.success()?;
        let values = values(out.path())?;
        // vadd has 4 workgroups of 64, and scale, which runs outside, 4 of 32.
        let grids: BTreeSet<u64> = values.keys().map(|(_, grid)| *grid).collect();
        assert_eq!(grids, [256].into(), "{how}: {values:?} {said}");
        let waves = &values[&("SQ_WAVES".to_owned(), 256)];
        assert!(
            waves.len() > 10 && waves.iter().all(|waves| *waves == 4.0),
            "{waves:?}"
        );
    }
    Ok(())
}

/// By default, packets of ours take at most 2 % of the time. The log has how long each took.
#[test]
fn the_default_budget_holds_by_the_devices_own_times() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let target = begin(program(&lab, 2)?.log_name("budget.log"))?;
    let counters = "SQ_WAVES,GRBM_GUI_ACTIVE";
    let (attacher, _out) = attached(&lab, &target, &["--pmc", counters])?;
    let began = Instant::now();
    std::thread::sleep(Duration::from_secs(6));
    let session = began.elapsed().as_nanos() as u64;
    let said = detach(attacher)?;
    let log = end(target)?;
    let packets: BTreeMap<(u64, u64), (u64, u64)> = log
        .packets()
        .map(|packet| ((packet.ring, packet.index), (packet.start, packet.end)))
        .collect();
    let (mut cost, mut count) = (0, 0);
    for record in &log.records {
        let Event::Pm4(commands) = &record.event else {
            continue;
        };
        let (start, end) = packets[&(commands.ring, commands.index)];
        cost += end - start;
        count += usize::from(commands.reads > 0);
    }
    assert!(count > 20, "{count} windows: {said}");
    let share = 100.0 * cost as f64 / session as f64;
    assert!(
        share <= 2.0,
        "{share} % of the time, {count} windows: {said}"
    );
    // The budget is used, so that it is the limit that holds.
    assert!(share > 0.02, "{share} %, {count} windows: {said}");
    Ok(())
}

fn maps(pid: i32) -> Result<String> {
    Ok(std::fs::read_to_string(format!("/proc/{pid}/maps"))?)
}

/// A program that does nothing until it is told to.
fn idle(lab: &Lab) -> Result<LabTarget> {
    let library = lab.install(&stage()?.join("lib/librocprofiler-sdk-roctx.so.1"))?;
    let command: LabCommand<'_> = lab.run(&lab.program("regions")?);
    let mut target = command.arg(&library).arg(lab.kernels()?).spawn()?;
    target.expect("ready")?;
    tell(&mut target, "inside 1")?;
    Ok(target)
}

#[test]
fn what_cannot_be_counted_is_refused_before_the_process_is_touched() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let target = idle(&lab)?;
    let pid = target.target.pid();
    let before = maps(pid)?;
    let refused = |exit: Exit, code: i32, says: &str| -> Result<()> {
        let said = exit.to_string();
        assert_eq!(exit.status.code(), Some(code), "{said}");
        assert!(said.contains(says), "{says}: {said}");
        assert_eq!(maps(pid)?, before, "{says}: the process was touched");
        Ok(())
    };
    let out = tempfile::tempdir_in(lab.scratch())?;
    // Three counters of GRBM, which has two, in one expression.
    let extra = out.path().join("extra.yaml");
    std::fs::write(
        &extra,
        "rocprofiler-sdk:\n  counters-schema-version: 1\n  counters:\n    - name: THREE\n      description: three of GRBM\n      definitions:\n        - architectures: [gfx942]\n          expression: reduce(GRBM_COUNT,sum)+reduce(GRBM_GUI_ACTIVE,sum)+reduce(GRBM_SPI_BUSY,sum)\n",
    )?;
    let extra = lab.inside(&extra)?;
    let cases: [(&[&str], &str); 2] = [
        (&["--pmc", "SQ_WAVE"], "near it are SQ_WAVES"),
        (
            &["-E", &extra, "--pmc", "THREE"],
            "3 counters of GRBM, which counts 2 at once",
        ),
    ];
    for (words, says) in cases {
        let attacher = attach(&lab, &target, out.path(), words)?.spawn()?;
        refused(attacher.target.wait(PATIENCE)?, 2, says)?;
    }
    // This machine itself, and not the lab, is without AMD's packet library.
    if !has_packet_library()? {
        let mut alone = command("midair")?;
        alone.args(["attach", &pid.to_string(), "--pmc", "SQ_WAVES"]);
        alone.arg("-d").arg(out.path());
        refused(
            run(alone, PATIENCE)?,
            38,
            "install the package hsa-amd-aqlprofile",
        )?;
    }
    Ok(())
}

#[test]
fn counters_are_listed_by_the_program() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let rocprofv3 = format!("{}/bin/rocprofv3", lab.stage()?);
    let listed = |words: &[&str]| -> Result<String> {
        let mut command = lab.run(&rocprofv3).log_name("none").register(false);
        for word in words {
            command = command.arg(word);
        }
        let exit = command.spawn()?.target.wait(PATIENCE)?;
        let text = exit.stdout.join("\n");
        exit.success()?;
        Ok(text)
    };
    let machine = listed(&["--list-avail"])?;
    assert!(
        machine.contains("gfx942") && machine.contains("SQ_WAVES"),
        "{machine}"
    );
    assert!(
        machine.contains("TCC_HIT_sum"),
        "derived ones, too: {machine}"
    );
    let other = listed(&["-L", "--arch", "gfx90a"])?;
    assert!(
        other.contains("L2CacheHit") && !machine.contains("L2CacheHit"),
        "{other}"
    );
    // Without a GPU, of the architecture that is named.
    let mut alone = command("rocprofv3")?;
    alone.args(["-L", "--arch", "gfx942"]);
    let exit = run(alone, PATIENCE)?;
    let text = exit.stdout.join("\n");
    exit.success()?;
    assert!(
        text.contains("SQ_WAVES") && text.contains("TCC_HIT_sum"),
        "{text}"
    );
    Ok(())
}
