//! Which dispatches of a running process have windows of counters, where kernels are chosen, and when
//! whole devices are counted, where the program pauses: compared with the model's log.

use crate::counters::{attach, begin, end, files, program};
use midair_tests::Result;
use midair_tests::lab::{Lab, LabTarget};
use midair_tests::modellog::{Dispatch, Event, ModelLog};
use midair_tests::stage::stage;
use midair_tests::table::Csv;
use midair_tests::target::{PATIENCE, until};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What windows were around, in the log's order; none: no dispatch. Packets that read counters are
/// midair's.
fn counted(log: &ModelLog) -> Vec<Option<Dispatch>> {
    let dispatches: BTreeMap<(u64, u64), Dispatch> = log
        .dispatches()
        .map(|d| ((d.packet.ring, d.packet.index), *d))
        .collect();
    let mut counted = Vec::new();
    for record in &log.records {
        if let Event::Pm4(commands) = &record.event
            && commands.reads > 0
        {
            let before = (commands.ring, commands.index - 1);
            counted.push(dispatches.get(&before).copied());
        }
    }
    counted
}

/// Kernels and dispatches that have values, with the beginnings of these.
fn values(out: &Path) -> Result<BTreeMap<String, BTreeSet<u64>>> {
    let mut kernels: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    let all = files(out).into_iter();
    for file in all.filter(|file| file.to_string_lossy().ends_with("counter_collection.csv")) {
        for row in Csv::read(&file)?.rows {
            let kernel = kernels.entry(row["Kernel_Name"].clone()).or_default();
            kernel.insert(Csv::number(&row, "Start_Timestamp")?);
        }
    }
    Ok(kernels)
}

/// The thread launches `vadd` with 64 work-items, and `scale` with more.
fn is_vadd(dispatch: &Dispatch) -> bool {
    dispatch.grid[0] == 64
}

/// A program of one stream, counted so until the log has what `enough` asks for.
fn session(
    lab: &Lab,
    words: &[&str],
    enough: impl Fn(&ModelLog) -> bool,
) -> Result<(ModelLog, BTreeMap<String, BTreeSet<u64>>, String)> {
    let log = format!(
        "{}.log",
        words
            .concat()
            .replace(|c: char| !c.is_ascii_alphanumeric(), "")
    );
    let mut target = begin(program(lab, 1)?.log_name(&log))?;
    // No faster than the worker thread makes windows ready: each chosen dispatch is to have one.
    target.send("pause 500")?;
    let out = tempfile::tempdir_in(lab.scratch())?;
    let mut all = words.to_vec();
    all.extend(["--pmc", "SQ_WAVES,SPI_CSN_WAVE"]);
    all.extend(["--output-format", "csv", "--max-overhead", "100"]);
    let mut attacher = attach(lab, &target, out.path(), &all)?.spawn()?;
    attacher.expect_error("attached to process")?;
    until("the session has enough", || {
        Ok(enough(&target.model_log()?))
    })?;
    attacher.send("")?;
    let exit = attacher.target.wait(PATIENCE)?;
    let said = exit.to_string();
    exit.success()?;
    Ok((end(target)?, values(out.path())?, said))
}

#[test]
fn windows_are_around_the_chosen_kernels() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    for (words, chosen) in [
        (["--kernel-include-regex", "^vadd"], true),
        (["--kernel-exclude-regex", "vadd|opy"], false),
    ] {
        let enough = |log: &ModelLog| {
            let all = counted(log).into_iter().flatten();
            all.filter(|dispatch| is_vadd(dispatch) == chosen).count() > 200
        };
        let (log, values, said) = session(&lab, &words, enough)?;
        let (of, others): (Vec<Dispatch>, Vec<Dispatch>) = counted(&log)
            .into_iter()
            .flatten()
            .partition(|dispatch| is_vadd(dispatch) == chosen);
        // What is not chosen has some before its name is known, and where another one was expected.
        assert!(
            of.len() > 10 * others.len(),
            "{} of {}\n{said}",
            of.len(),
            others.len()
        );
        let name = if chosen { "vadd" } else { "scale" };
        assert!(values.len() == 1, "{:?}\n{said}", values.keys());
        assert!(
            values.keys().all(|kernel| kernel.contains(name)),
            "{:?}",
            values.keys()
        );
        let with_values = values.values().map(BTreeSet::len).sum::<usize>();
        assert!(with_values > 100, "{with_values} of {}\n{said}", of.len());
    }
    Ok(())
}

#[test]
fn windows_are_around_the_chosen_dispatches() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    // Recording starts between two dispatches that the test cannot name: the numbers are not the
    // log's.
    let enough = |log: &ModelLog| {
        let with = counted(log).into_iter().flatten();
        let last = with
            .filter(is_vadd)
            .map(|dispatch| dispatch.packet.end)
            .max();
        let behind = log
            .dispatches()
            .filter(|d| last.is_some_and(|end| d.packet.start > end));
        behind.filter(|dispatch| is_vadd(dispatch)).count() > 500
    };
    let words = [
        "--kernel-include-regex",
        "vadd",
        "--kernel-iteration-range",
        "[101-160]",
    ];
    let (log, values, said) = session(&lab, &words, enough)?;
    let all = counted(&log);
    let of = all
        .iter()
        .flatten()
        .filter(|dispatch| is_vadd(dispatch))
        .count();
    assert!((50..=80).contains(&of), "{of} of {}\n{said}", all.len());
    assert!(all.len() < of + 20, "{of} of {}\n{said}", all.len());
    let values: usize = values.values().map(BTreeSet::len).sum();
    assert!((50..=60).contains(&values), "{values} of {of}\n{said}");
    Ok(())
}

/// Has the program do these, one after the other.
fn tell(target: &mut LabTarget, commands: &[&str]) -> Result<()> {
    for command in commands {
        target.send(command)?;
        target.expect(command.split(' ').next().unwrap_or_default())?;
    }
    Ok(())
}

/// Packets that start and packets that read the counters of the device, so far.
fn steps(log: &ModelLog) -> (usize, usize) {
    let of = |event: &Event| match event {
        Event::Pm4(commands) if commands.reads > 0 => (0, 1),
        Event::Pm4(commands) if !commands.control.is_empty() => (1, 0),
        _ => (0, 0),
    };
    let all = log.records.iter().map(|record| of(&record.event));
    all.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// Counters of whole devices stand still while the program has paused the recording: in regions that
/// are selected, and from a pause on.
#[test]
fn devices_are_not_counted_while_the_recording_is_paused() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let library = lab.install(&stage()?.join("lib/librocprofiler-sdk-roctx.so.1"))?;
    for begins_paused in [true, false] {
        let command = lab.run(&lab.program("regions")?);
        let log = format!("regions-{begins_paused}.log");
        let command = command.arg(&library).arg(lab.kernels()?);
        let mut target = command.log_name(&log).spawn()?;
        target.expect("ready")?;
        tell(&mut target, &["outside 1"])?;
        let out = tempfile::tempdir_in(lab.scratch())?;
        let mut words = vec![
            "--pmc-device",
            "TCC_HIT,GRBM_COUNT",
            "--output-format",
            "csv",
        ];
        words.push(match begins_paused {
            true => "--selected-regions",
            false => "--marker-trace",
        });
        let mut attacher = attach(&lab, &target, out.path(), &words)?.spawn()?;
        attacher.expect_error("attached to process")?;
        let mut inside = 0;
        for round in 0..3 {
            if begins_paused || round > 0 {
                // Nothing counts, however long that takes.
                let before = steps(&target.model_log()?);
                tell(&mut target, &["outside 20"])?;
                assert_eq!(
                    steps(&target.model_log()?),
                    before,
                    "{begins_paused} {round}"
                );
                tell(&mut target, &["resume"])?;
                until("it counts again", || {
                    Ok(steps(&target.model_log()?).0 > before.0)
                })?;
            }
            tell(&mut target, &["inside 20"])?;
            inside += 20;
            let before = steps(&target.model_log()?).0;
            tell(&mut target, &["pause"])?;
            until("it has stopped", || {
                Ok(steps(&target.model_log()?).0 > before)
            })?;
        }
        tell(&mut target, &["outside 20"])?;
        attacher.send("")?;
        let exit = attacher.target.wait(PATIENCE)?;
        let said = exit.to_string();
        exit.success()?;
        target.send("quit")?;
        target.expect("done")?;
        let log = target.log.clone();
        target.target.wait(PATIENCE)?.success()?;
        let log = ModelLog::read(&log)?;
        let mut hits = 0.0;
        let mut counting = Vec::new();
        for file in files(out.path()) {
            if file
                .to_string_lossy()
                .ends_with("device_counter_collection.csv")
            {
                for row in Csv::read(&file)?.rows {
                    let value: f64 = row["Counter_Value"].parse()?;
                    let times = (
                        Csv::number(&row, "Start_Timestamp")?,
                        Csv::number(&row, "End_Timestamp")?,
                    );
                    if row["Counter_Name"] == "TCC_HIT" {
                        hits += value;
                        counting.push(times);
                    }
                }
            }
        }
        // Only what ran inside of regions ran while the device was counted, and all of it.
        let waves = |which: &dyn Fn(&Dispatch) -> bool| -> u64 {
            let all = log.dispatches().filter(|dispatch| which(dispatch));
            all.map(|d| {
                u64::from(d.grid[0]) / u64::from(d.workgroup[0])
                    * u64::from(d.workgroup[0]).div_ceil(64)
            })
            .sum()
        };
        let counted = waves(&|dispatch: &Dispatch| {
            let packet = &dispatch.packet;
            counting
                .iter()
                .any(|(start, end)| packet.start < *end && *start < packet.end)
        });
        let factor = hits / counted as f64;
        assert!(
            hits > 0.0 && factor.fract() == 0.0 && (1.0..=7.0).contains(&factor),
            "{hits} of {counted} waves\n{said}"
        );
        assert!(inside == 60 && counting.len() >= 3, "{counting:?}\n{said}");
    }
    Ok(())
}

/// The same words choose what a trace has, where nothing is counted: kernels by name, and dispatches
/// of each kernel by their numbers since recording started.
#[test]
fn traces_of_a_running_process_have_the_chosen_dispatches() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let library = lab.install(&stage()?.join("lib/librocprofiler-sdk-roctx.so.1"))?;
    let command = lab.run(&lab.program("regions")?);
    let mut target = command.arg(&library).arg(lab.kernels()?).spawn()?;
    target.expect("ready")?;
    tell(&mut target, &["inside 1", "outside 1"])?;
    let include = ["--kernel-include-regex", "^vadd"];
    let exclude = ["--kernel-exclude-regex", "^scale"];
    let range = ["--kernel-iteration-range", "[2-4],[7]"];
    let everything: BTreeMap<&str, usize> = [("vadd", 10), ("scale", 10)].into();
    let cases: [(Vec<&str>, BTreeMap<&str, usize>); 4] = [
        (Vec::new(), everything),
        (include.to_vec(), [("vadd", 10)].into()),
        ([exclude, range].concat(), [("vadd", 4)].into()),
        (range.to_vec(), [("vadd", 4), ("scale", 4)].into()),
    ];
    for (words, expected) in cases {
        let out = tempfile::tempdir_in(lab.scratch())?;
        // A list of ranges ends where another option starts.
        let all = [&words[..], &["--kernel-trace", "--output-format", "csv"]].concat();
        let mut attacher = attach(&lab, &target, out.path(), &all)?.spawn()?;
        attacher.expect_error("attached to process")?;
        tell(&mut target, &["inside 10", "outside 10"])?;
        attacher.send("")?;
        attacher.target.wait(PATIENCE)?.success()?;
        let all = files(out.path());
        let mut all = all.iter();
        let csv = all.find(|file| file.to_string_lossy().ends_with("kernel_trace.csv"));
        let mut counts: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for row in Csv::read(csv.ok_or("no trace")?)?.rows {
            let vadd = row["Kernel_Name"].starts_with("vadd");
            let kernel = counts.entry(if vadd { "vadd" } else { "scale" });
            kernel
                .or_default()
                .push(Csv::number(&row, "Start_Timestamp")?);
        }
        let found: BTreeMap<&str, usize> = counts.iter().map(|(k, all)| (*k, all.len())).collect();
        assert_eq!(found, expected, "{words:?}");
    }
    // Nothing was counted for that.
    assert_eq!(steps(&target.model_log()?), (0, 0));
    Ok(())
}
