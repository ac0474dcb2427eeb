//! Counters of a running process beside other things: another profiler, pauses of the program, the
//! budget, input files, and what is refused before the process is touched.

use crate::counters::{attach, begin, end, files, program};
use crate::counters_launched::has_packet_library;
use midair_tests::Result;
use midair_tests::lab::{Lab, LabCommand, LabTarget};
use midair_tests::modellog::{Event, ModelLog};
use midair_tests::stage::{command, stage};
use midair_tests::table::{Csv, json};
use midair_tests::target::{Exit, PATIENCE, run};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

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

/// `metadata.midair` of a session's json.
fn metadata(out: &Path) -> Result<Value> {
    let all = files(out).into_iter();
    let mut all = all.filter(|file| file.to_string_lossy().ends_with("results.json"));
    let file = all.next().ok_or("no json")?;
    let path = "/rocprofiler-sdk-tool/0/metadata/midair";
    Ok(json(&file)?.pointer(path).cloned().ok_or("no metadata")?)
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

/// Starts on another queue that were made by AMD's own library, as another profiler has them, destroy
/// windows: these have no values.
#[test]
fn a_window_that_another_profiler_starts_anew_is_disturbed() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let gpu = "1,8,104,1";
    let mut command = lab.run(&lab.program("counters")?);
    command = command.arg(lab.kernels()?).arg("gfx942").gpu(gpu);
    for word in gpu.split(',').chain(["SQ:4"]) {
        command = command.arg(word);
    }
    let command = command.env("MODEL_KERNEL_NS", 100_000_000);
    let mut target = command.log_name("disturbed.log").spawn()?;
    target.expect("ready")?;
    let words = ["--pmc", "SQ_WAVES", "--max-overhead", "100"];
    let (attacher, out) = attached(&lab, &target, &words)?;
    for round in 0..12 {
        let over = round > 6 && round % 2 == 0;
        let line = match over {
            true => "over 1280 64 75",
            false => "go 0 640 64",
        };
        target.send(line)?;
        target.expect(&format!("did {line}"))?;
    }
    let said = detach(attacher)?;
    target.send("quit")?;
    target.expect("done")?;
    let log = target.log.clone();
    target.target.wait(PATIENCE)?.success()?;
    let log = ModelLog::read(&log)?;
    // Windows of ours whose counters somebody reset before they were read.
    let events = log.records.iter().map(|record| &record.event);
    let of_ours: BTreeSet<u64> = events
        .clone()
        .filter_map(|event| match event {
            Event::Pm4(commands) if commands.reads > 0 => Some(commands.ring),
            _ => None,
        })
        .collect();
    let over = events.filter(|event| {
        matches!(event, Event::Pm4(commands) if commands.over.is_some() && !of_ours.contains(&commands.ring))
    });
    let over = over.count();
    assert!(over >= 2, "{over} windows were destroyed");
    let metadata = metadata(out.path())?;
    let counters = &metadata["counters"];
    assert_eq!(counters["disturbed"], over, "{counters} {said}");
    let values = values(out.path())?;
    assert_eq!(
        values.get(&("SQ_WAVES".to_owned(), 1280)),
        None,
        "{values:?}"
    );
    let whole = &values[&("SQ_WAVES".to_owned(), 640)];
    assert!(
        whole.len() >= 4 && whole.iter().all(|waves| *waves == 10.0),
        "{values:?}"
    );
    assert!(
        values.keys().all(|(name, _)| name == "SQ_WAVES"),
        "nobody asked for the clock"
    );
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
    let counters = "SQ_WAVES,TCC_HIT,TCC_MISS,TCP_TOTAL_ACCESSES,TA_TA_BUSY";
    let (attacher, _out) = attached(&lab, &target, &["--pmc", counters])?;
    std::thread::sleep(Duration::from_secs(6));
    let said = detach(attacher)?;
    let log = end(target)?;
    let packets: BTreeMap<(u64, u64), (u64, u64)> = log
        .packets()
        .map(|packet| ((packet.ring, packet.index), (packet.start, packet.end)))
        .collect();
    let (mut cost, mut first, mut last, mut count) = (0, u64::MAX, 0, 0);
    for record in &log.records {
        let Event::Pm4(commands) = &record.event else {
            continue;
        };
        let (start, end) = packets[&(commands.ring, commands.index)];
        cost += end - start;
        (first, last) = (first.min(start), last.max(end));
        count += usize::from(commands.reads > 0);
    }
    assert!(count > 20, "{count} windows: {said}");
    let share = 100.0 * cost as f64 / (last - first) as f64;
    assert!(
        share <= 2.0,
        "{share} % of the time, {count} windows: {said}"
    );
    // The budget is used, so that it is the limit that holds.
    assert!(share > 0.05, "{share} %, {count} windows: {said}");
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
    let refused = |exit: Exit, says: &str| -> Result<()> {
        let said = exit.to_string();
        assert_eq!(exit.status.code(), Some(38), "{said}");
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
        refused(attacher.target.wait(PATIENCE)?, says)?;
    }
    // This machine itself, and not the lab, is without AMD's packet library.
    if !has_packet_library()? {
        let mut alone = command("midair")?;
        alone.args(["attach", &pid.to_string(), "--pmc", "SQ_WAVES"]);
        alone.arg("-d").arg(out.path());
        refused(
            run(alone, PATIENCE)?,
            "install the package hsa-amd-aqlprofile",
        )?;
    }
    Ok(())
}

#[test]
fn groups_of_an_input_file_take_turns_in_a_running_process() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = idle(&lab)?;
    let place = tempfile::tempdir_in(lab.scratch())?;
    let file = place.path().join("groups.txt");
    std::fs::write(&file, "pmc: SQ_WAVES GRBM_GUI_ACTIVE\npmc: TCC_HIT\n")?;
    let file = lab.inside(&file)?;
    let (attacher, out) = attached(&lab, &target, &["-i", &file, "--max-overhead", "100"])?;
    tell(&mut target, "inside 60")?;
    let said = detach(attacher)?;
    let values = values(out.path())?;
    let count = |name: &str| values.get(&(name.to_owned(), 256)).map_or(0, Vec::len);
    let (waves, busy, hits) = (
        count("SQ_WAVES"),
        count("GRBM_GUI_ACTIVE"),
        count("TCC_HIT"),
    );
    assert!(waves > 5 && waves == busy && hits > 5, "{values:?} {said}");
    assert!(
        waves + hits <= 60,
        "no dispatch was counted in both groups: {values:?}"
    );
    tell(&mut target, "outside 1")?;
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

/// Without counters asked for, nothing is there for them: no packet that counts, no plan and no
/// memory of windows.
#[test]
fn a_session_without_counters_has_no_memory_for_windows() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = idle(&lab)?;
    let pid = target.target.pid();
    let lines = |text: &str| -> BTreeSet<String> { text.lines().map(str::to_owned).collect() };
    // The first attach brings the libraries, which stay.
    let mut new = Vec::new();
    for words in [
        &["--kernel-trace"][..],
        &["--kernel-trace"],
        &["--kernel-trace", "--pmc", "SQ_WAVES"],
    ] {
        let before = lines(&maps(pid)?);
        let (attacher, _out) = attached(&lab, &target, words)?;
        tell(&mut target, "inside 5")?;
        let during = lines(&maps(pid)?);
        let size = |line: &String| -> Option<u64> {
            let (from, to) = line.split(' ').next()?.split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).ok();
            Some(number(to)? - number(from)?)
        };
        // What the device can write is shared with the model.
        let of_session: Vec<String> = during.difference(&before).cloned().collect();
        new.push((of_session.iter().filter_map(size).sum::<u64>(), of_session));
        detach(attacher)?;
        if !words.contains(&"--pmc") {
            let log = target.model_log()?;
            assert!(
                log.records
                    .iter()
                    .all(|r| !matches!(r.event, Event::Pm4(_))),
                "{words:?}"
            );
        }
    }
    let ((without, _), (with, lines)) = (&new[1], &new[2]);
    assert!(with > without, "{with} and {without} bytes: {lines:#?}");
    assert!(windows(&target.model_log()?) > 0);
    Ok(())
}
