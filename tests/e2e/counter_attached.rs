//! Counters of a running process: another profiler, pauses of the program, the budget, lists of
//! counters, input files, and what is refused before the process is touched.

use crate::counters::{attach, begin, end, files, had_windows, program};
use midair_tests::Result;
use midair_tests::lab::{Lab, LabCommand, LabTarget};
use midair_tests::modellog::{Event, ModelLog};
use midair_tests::stage::{command, stage};
use midair_tests::table::{Csv, json};
use midair_tests::target::{Exit, PATIENCE, ask, run};
use serde_json::Value;
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
                ask(&mut target, "outside 20")?;
                let after = windows(&target.model_log()?);
                assert_eq!(
                    after, before,
                    "{how}: no window is around what is not recorded"
                );
                ask(&mut target, "resume")?;
            }
            ask(&mut target, "inside 20")?;
            ask(&mut target, "pause")?;
        }
        ask(&mut target, "outside 20")?;
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
    // midair's windows whose counters another profiler reset before they were read.
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

/// By default, midair's packets take at most 2 % of the time. The log has how long each took.
#[test]
fn the_default_budget_holds_by_the_devices_own_times() -> Result<()> {
    let share = share_of_our_packets("budget.log", &["--pmc", "SQ_WAVES,GRBM_GUI_ACTIVE"], 20)?;
    // The budget is used, so that it is the limit that holds.
    assert!(share.is_none_or(|share| share > 0.02), "{share:?} %");
    Ok(())
}

/// Counters of blocks that each compute unit has take thousands of reads. Their cost is not known
/// before the first was read, and the budget holds from then on.
#[test]
fn the_default_budget_holds_with_costly_counters() -> Result<()> {
    let words = [
        "--pmc",
        "TCP_TOTAL_CACHE_ACCESSES_sum,TCP_GATE_EN1_sum,TCP_GATE_EN2_sum,TA_BUSY_avr,TCC_HIT_sum",
        "--pmc",
        "SQ_WAVES,GRBM_GUI_ACTIVE",
    ];
    share_of_our_packets("costly.log", &words, 4)?;
    Ok(())
}

/// Counts for six seconds, with at least so many windows, and returns how many percent of the time
/// midair's packets took, which are no more than 2. None without the lab.
fn share_of_our_packets(name: &str, words: &[&str], least: usize) -> Result<Option<f64>> {
    let Some(lab) = Lab::find()? else {
        return Ok(None);
    };
    let target = begin(program(&lab, 2)?.log_name(name))?;
    let (attacher, _out) = attached(&lab, &target, words)?;
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
    assert!(count > least, "{count} windows: {said}");
    let share = 100.0 * cost as f64 / session as f64;
    assert!(
        share <= 2.0,
        "{share} % of the time, {count} windows: {said}"
    );
    Ok(Some(share))
}

fn maps(pid: i32) -> Result<String> {
    Ok(std::fs::read_to_string(format!("/proc/{pid}/maps"))?)
}

/// A program that does nothing until it is asked to.
fn idle(lab: &Lab) -> Result<LabTarget> {
    let library = lab.install(&stage()?.join("lib/librocprofiler-sdk-roctx.so.1"))?;
    let command: LabCommand<'_> = lab.run(&lab.program("regions")?);
    let mut target = command.arg(&library).arg(lab.kernels()?).spawn()?;
    target.expect("ready")?;
    ask(&mut target, "inside 1")?;
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
            "3 counters of GRBM, which has 2",
        ),
    ];
    for (words, says) in cases {
        let attacher = attach(&lab, &target, out.path(), words)?.spawn()?;
        refused(attacher.target.wait(PATIENCE)?, 2, says)?;
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

/// Groups of an input file are multiplexed in a running process, as `rocprofv3` is notified of them: by lines
/// `pmc:` or by jobs in yaml.
#[test]
fn groups_of_an_input_file_take_turns_in_a_running_process() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let rocprofv3 = format!("{}/bin/rocprofv3", lab.stage()?);
    let mut target = idle(&lab)?;
    let place = tempfile::tempdir_in(lab.scratch())?;
    let files = [
        (
            "groups.txt",
            "pmc: SQ_WAVES GRBM_GUI_ACTIVE\npmc: TCC_HIT\n",
        ),
        (
            "groups.yml",
            "jobs:\n  - pmc: [SQ_WAVES, GRBM_GUI_ACTIVE]\n  - pmc: [TCC_HIT]\n",
        ),
    ];
    for (name, text) in files {
        let file = place.path().join(name);
        std::fs::write(&file, text)?;
        let out = tempfile::tempdir_in(lab.scratch())?;
        let mut command = lab.run(&rocprofv3).log_name("none").register(false);
        let words = [
            "--attach",
            &target.target.pid().to_string(),
            "-i",
            &lab.inside(&file)?,
            "--max-overhead",
            "100",
            "--output-format",
            "csv",
            "-d",
            &lab.inside(out.path())?,
        ];
        for word in words {
            command = command.arg(word);
        }
        let mut attacher = command.spawn()?;
        attacher.expect("Press Enter to detach...")?;
        ask(&mut target, "inside 60")?;
        let said = detach(attacher)?;
        let values = values(out.path())?;
        let count = |name: &str| values.get(&(name.to_owned(), 256)).map_or(0, Vec::len);
        let (waves, busy, hits) = (
            count("SQ_WAVES"),
            count("GRBM_GUI_ACTIVE"),
            count("TCC_HIT"),
        );
        let all = format!("{name}: {values:?} {said}");
        assert!(waves > 5 && waves == busy && hits > 5, "{all}");
        assert!(waves + hits <= 60, "no dispatch was counted twice: {all}");
        let exact = &values[&("SQ_WAVES".to_owned(), 256)];
        assert!(exact.iter().all(|waves| *waves == 4.0), "{all}");
    }
    ask(&mut target, "outside 1")?;
    Ok(())
}

/// Returns the bytes of memory that a process can write to.
fn writable(maps: &str) -> u64 {
    let size = |line: &str| {
        let (from, to) = line.split(' ').next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some(number(to)? - number(from)?)
    };
    let lines = maps.lines().filter(|line| line.contains(" rw"));
    lines.filter_map(size).sum()
}

/// Without counters asked for, nothing is there for them: the device gets the packets of an untraced
/// run, and the process no memory of windows.
#[test]
fn a_session_without_counters_changes_nothing_for_them() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    // What the device receives besides kernels and barriers: packets of commands, and accesses to
    // registers of counters.
    let commands = |log: &ModelLog| -> (usize, BTreeMap<String, usize>) {
        let mut kinds = BTreeMap::new();
        let mut vendor = 0;
        for record in &log.records {
            match &record.event {
                Event::Vendor { .. } => vendor += 1,
                Event::Pm4(commands) => {
                    let (words, reads) = (commands.words, commands.reads);
                    let control = &commands.control;
                    let kind = format!("{words} words, {reads} reads, control {control:?}");
                    *kinds.entry(kind).or_default() += 1;
                }
                Event::Register(register) => {
                    let kind = format!("register {:#x}", register.register);
                    *kinds.entry(kind).or_default() += 1;
                }
                _ => {}
            }
        }
        (vendor, kinds)
    };
    // Works in three rounds, each with a session or none. Returns the bytes that the process can write
    // to in each.
    type Round<'a> = Option<&'a [&'a str]>;
    let run = |rounds: [Round<'_>; 3], name: &str| -> Result<_> {
        let library = lab.install(&stage()?.join("lib/librocprofiler-sdk-roctx.so.1"))?;
        let command: LabCommand<'_> = lab.run(&lab.program("regions")?).log_name(name);
        let mut target = command.arg(&library).arg(lab.kernels()?).spawn()?;
        target.expect("ready")?;
        ask(&mut target, "inside 5")?;
        let mut bytes = Vec::new();
        for words in rounds {
            let session = words
                .map(|words| attached(&lab, &target, words))
                .transpose()?;
            ask(&mut target, "inside 20")?;
            bytes.push(writable(&maps(target.target.pid())?));
            if let Some((attacher, _out)) = session {
                detach(attacher)?;
            }
        }
        target.send("quit")?;
        target.expect("done")?;
        let log = target.log.clone();
        target.target.wait(PATIENCE)?.success()?;
        Ok((bytes, ModelLog::read(&log)?))
    };
    let plain = ["--kernel-trace", "--hip-trace"];
    let counted = [&plain[..], &["--pmc", "SQ_WAVES", "--max-overhead", "100"]].concat();
    let (_, untraced) = run([None; 3], "untraced.log")?;
    let (_, traced) = run([Some(&plain), Some(&plain), None], "traced.log")?;
    assert_eq!(commands(&traced), commands(&untraced));
    assert!(!had_windows(&traced));
    // What these look at is there as soon as counters are asked for: packets, and memory for them
    // and for the choice of groups. The first session brings the libraries.
    let (bytes, counting) = run([Some(&plain), Some(&plain), Some(&counted)], "counting.log")?;
    assert!(had_windows(&counting));
    assert_ne!(commands(&counting), commands(&untraced));
    let memory = 128 << 10;
    assert!(bytes[1] < bytes[0] + memory, "{bytes:?}");
    assert!(bytes[2] >= bytes[1] + memory, "{bytes:?}");
    Ok(())
}
