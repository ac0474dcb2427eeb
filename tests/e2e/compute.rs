//! `rocprof-compute` on a running process: the values that `analyze` shows are those that the model
//! counted (`sim/gpu-model/src/pmu/rules.rs`: 1 + event mod 7 for each wave, or for each kernel).

use midair_compute::architecture::{CHANNEL, Source};
use midair_compute::evaluate::Evaluator;
use midair_compute::frame::{Column, Frame, field};
use midair_compute::read::Workload;
use midair_compute::report::{Options, setting};
use midair_compute::sample::Rows;
use midair_compute::{Architecture, Form, Row};
use midair_counters::Definition;
use midair_tests::Result;
use midair_tests::lab::{Lab, LabTarget};
use midair_tests::target::PATIENCE;
use std::path::Path;

pub fn streams(lab: &Lab) -> Result<LabTarget> {
    let program = lab.run(&lab.program("streams")?);
    let mut target = program.arg(lab.kernels()?).arg(1).spawn()?;
    target.expect("ready")?;
    target.send("start")?;
    target.expect("start")?;
    Ok(target)
}

/// Runs `rocprof-compute` in the lab and returns what it printed.
pub fn compute(lab: &Lab, words: &[&str]) -> Result<String> {
    let program = format!("{}/bin/rocprof-compute", lab.stage()?);
    let mut command = lab.run(&program).log_name("none").register(false);
    for word in words {
        command = command.arg(word);
    }
    let exit = command.spawn()?.target.wait(PATIENCE)?;
    let said = exit.to_string();
    exit.success()?;
    Ok(said)
}

fn profile(lab: &Lab, target: &LabTarget, out: &str, words: &[&str]) -> Result<String> {
    let pid = target.target.pid().to_string();
    let mut all = vec![
        "profile",
        "-n",
        "vadd",
        "--attach-pid",
        &pid,
        "--no-roof",
        "-d",
        out,
    ];
    all.extend(["--attach-duration-msec", "1500", "--max-overhead", "100"]);
    all.extend(words);
    compute(lab, &all)
}

/// Returns the number in a column of the line with this word. Columns are separated by vertical
/// lines.
pub fn number(text: &str, line: &str, column: usize) -> Result<f64> {
    let found = text.lines().find(|text| text.contains(line));
    let found = found.ok_or_else(|| format!("{line} is not in\n{text}"))?;
    let fields: Vec<&str> = found.split('│').map(str::trim).collect();
    let field = fields
        .get(column + 1)
        .ok_or_else(|| format!("{found} has no such column"))?;
    // A percentage above 100 is marked.
    let number = field.trim_start_matches('!');
    Ok(number.parse().map_err(|_| format!("{field} in {found}"))?)
}

pub fn end(mut target: LabTarget) -> Result<()> {
    target.send("quit")?;
    target.expect("total")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

#[test]
fn the_users_blocks_have_the_models_values() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let target = streams(&lab)?;
    let out = tempfile::tempdir_in(lab.scratch())?;
    let inside = lab.inside(out.path())?;
    let said = profile(&lab, &target, &inside, &["-b", "3.1.1", "4.1.1", "5.1.1"])?;
    end(target)?;
    for file in [
        "sysinfo.csv",
        "profiling_config.yaml",
        "perfmon/pmc_perf_0.yaml",
        "pmc_perf_0.db",
    ] {
        assert!(out.path().join(file).is_file(), "{file} is missing: {said}");
    }
    let config = std::fs::read_to_string(out.path().join("profiling_config.yaml"))?;
    assert!(config.contains("\n- 5.1.1\n"), "{config}");
    let text = compute(&lab, &["analyze", "-p", &inside, "-b", "5.1.1", "7.2.0"])?;
    // Busy is event 23, stalled is event 25.
    let stall = number(&text, "CPF Stall", 2)?;
    assert!((stall - 166.67).abs() < 0.01, "{text}");
    assert!(number(&text, "Kernel Time ", 2)? > 0.0, "{text}");
    // The cycles of waves are event 79, which counts in units of four.
    let chart = compute(&lab, &["analyze", "-p", &inside, "-b", "3.1.1"])?;
    assert!(chart.contains("Wave Life  12 "), "{chart}");
    Ok(())
}

#[test]
fn groups_take_turns_in_one_attach() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let target = streams(&lab)?;
    let out = tempfile::tempdir_in(lab.scratch())?;
    let inside = lab.inside(out.path())?;
    let said = profile(&lab, &target, &inside, &["-b", "10", "17.1"])?;
    end(target)?;
    let groups = files(&out.path().join("perfmon"), "pmc_perf_")?;
    assert!(groups >= 4, "{groups} groups: {said}");
    let text = compute(&lab, &["analyze", "-p", &inside, "-b", "17.1.2"])?;
    // Hits are event 17, misses are event 19: hits are 4 of 4 + 6.
    assert!((number(&text, "17.1.2", 2)? - 40.0).abs() < 0.01, "{text}");
    Ok(())
}

/// The levels of memory that `-m` chooses are counted, and kernels have their points at these.
#[test]
fn the_roofline_has_the_levels_that_were_counted() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let gpu = midair_counters::Architecture::find("gfx942").ok_or("not known")?;
    // What the model counts for each wave.
    let of_wave = |name: &str| -> Result<f64> {
        match gpu.counter(name).map(|counter| counter.definition) {
            Some(Definition::Basic { event, .. }) => Ok(f64::from(1 + event % 7)),
            _ => Err(format!("{name} is no counter of a block").into()),
        }
    };
    let mut operations = 0.0;
    for kind in ["F16", "F32", "F64"] {
        for (what, times) in [("ADD", 1.0), ("MUL", 1.0), ("TRANS", 1.0), ("FMA", 2.0)] {
            operations += 64.0 * times * of_wave(&format!("SQ_INSTS_VALU_{what}_{kind}"))?;
        }
    }
    for kind in ["F16", "BF16", "F32", "F64", "F8"] {
        operations += 512.0 * of_wave(&format!("SQ_INSTS_VALU_MFMA_MOPS_{kind}"))?;
    }
    let mut of_l2 = 0.0;
    for what in ["READ", "WRITE", "ATOMIC_WITH_RET", "ATOMIC_WITHOUT_RET"] {
        of_l2 += 64.0 * of_wave(&format!("TCP_TCC_{what}_REQ"))?;
    }
    let of_lds = 128.0 * (of_wave("SQ_LDS_IDX_ACTIVE")? - of_wave("SQ_LDS_BANK_CONFLICT")?);

    let target = streams(&lab)?;
    let out = tempfile::tempdir_in(lab.scratch())?;
    let inside = lab.inside(out.path())?;
    let said = profile(&lab, &target, &inside, &["-b", "4", "-m", "L2,LDS"])?;
    end(target)?;
    let text = compute(&lab, &["analyze", "-p", &inside, "-b", "4"])?;
    // Each of the two kernels, at each of the two levels.
    let points: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split('│').map(str::trim).collect::<Vec<_>>())
        .filter(|cells| cells.len() == 8 && ["HBM", "L2", "vL1D", "LDS"].contains(&cells[2]))
        .collect();
    let levels: Vec<&str> = points.iter().map(|cells| cells[2]).collect();
    assert_eq!(levels, ["L2", "LDS", "L2", "LDS"], "{text}{said}");
    for cells in &points {
        let bytes = if cells[2] == "L2" { of_l2 } else { of_lds };
        let intensity: f64 = cells[3].parse()?;
        let expected = operations / bytes;
        assert!(
            (intensity / expected - 1.0).abs() < 0.01,
            "{expected}: {text}"
        );
    }
    assert!(
        text.contains("No kernel can be placed at HBM, vL1D"),
        "{text}"
    );
    Ok(())
}

#[test]
fn each_set_is_one_pass_with_the_models_values() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let target = streams(&lab)?;
    let out = tempfile::tempdir_in(lab.scratch())?;
    for set in Architecture::named("gfx942").ok_or("no gfx942")?.sets {
        let attach = |name: &str| -> Result<Vec<String>> {
            let dir = out.path().join(format!("{}-{name}", set.name));
            let inside = lab.inside(&dir)?;
            let said = profile(&lab, &target, &inside, &["--set", set.name])?;
            let groups = files(&dir.join("perfmon"), "pmc_perf_")?;
            assert_eq!(groups, 1, "{}: {said}", set.name);
            let (compared, wrong) = compare(&dir)?;
            assert!(compared > 0, "{}: {said}", set.name);
            Ok(wrong)
        };
        let wrong = attach("first")?;
        if wrong.is_empty() {
            continue;
        }
        // An interval of 95 % misses the truth in one attach of twenty. A second attach of the same
        // set shows whether it was that.
        let again = attach("second")?;
        assert!(again.is_empty(), "{}: {wrong:?}, {again:?}", set.name);
    }
    end(target)
}

#[test]
fn the_whole_panel_in_one_attach_has_the_models_values() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let target = streams(&lab)?;
    let out = tempfile::tempdir_in(lab.scratch())?;
    let inside = lab.inside(out.path())?;
    let pid = target.target.pid().to_string();
    let words = [
        "profile",
        "-n",
        "all",
        "--attach-pid",
        &pid,
        "-d",
        &inside,
        "--max-overhead",
        "100",
    ];
    let said = compute(
        &lab,
        &[&words[..], &["--attach-duration-msec", "20000"]].concat(),
    )?;
    end(target)?;
    assert_eq!(
        files(&out.path().join("perfmon"), "pmc_perf_")?,
        12,
        "{said}"
    );
    let (compared, wrong) = compare(out.path())?;
    println!(
        "{compared} values compared, {} not in their intervals: {wrong:?}",
        wrong.len()
    );
    // The metrics of one attach depend on each other: if the truth lies in one interval, it lies in
    // the intervals of related metrics, too. `crates/analysis/compute/tests/intervals.rs` checks over many
    // attaches how often intervals hold the truth.
    assert!(compared > 250, "{compared} values: {said}");
    assert!(
        wrong.len() * 100 <= compared * 7,
        "{} of {compared}: {wrong:?}",
        wrong.len()
    );
    Ok(())
}

#[test]
fn a_profile_ends_when_each_metric_is_sure_enough() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let target = streams(&lab)?;
    let out = tempfile::tempdir_in(lab.scratch())?;
    let inside = lab.inside(out.path())?;
    let began = std::time::Instant::now();
    let words = ["-b", "5.1.1", "10.1", "--target-error", "5", "-V"];
    let longer = ["--attach-duration-msec", "120000"];
    let said = profile(&lab, &target, &inside, &[&words[..], &longer].concat())?;
    assert!(began.elapsed().as_secs() < 100, "{said}");
    assert!(said.contains("every metric is within 5 %"), "{said}");
    // The output also tells what was observed during the run.
    assert!(said.contains("windows of each group: "), "{said}");
    assert!(said.contains("coverage"), "{said}");
    end(target)?;
    let (compared, wrong) = compare(out.path())?;
    assert!(
        compared > 10 && wrong.len() * 100 <= compared * 7,
        "{compared}: {wrong:?}"
    );
    Ok(())
}

#[test]
fn tables_are_shown_while_the_program_runs() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let target = streams(&lab)?;
    let pid = target.target.pid().to_string();
    let text = compute(
        &lab,
        &[
            "live",
            "--attach-pid",
            &pid,
            "-b",
            "5.1",
            "17.1",
            "--interval-msec",
            "200",
            "--max-overhead",
            "100",
            "--attach-duration-msec",
            "10000",
        ],
    )?;
    end(target)?;
    let pictures: Vec<&str> = text.split("=== process ").skip(1).collect();
    assert!(pictures.len() >= 2, "{text}");
    let last = pictures.last().copied().unwrap_or_default();
    // Stalled is event 25 and busy is event 23, as in the results of a profile.
    let stall = number(last, "CPF Stall", 2)?;
    assert!((stall - 166.67).abs() < 0.01, "{last}");
    assert!(last.contains("vadd") && last.contains("coverage"), "{last}");
    assert!((number(last, "17.1.2", 2)? - 40.0).abs() < 0.01, "{last}");
    Ok(())
}

#[test]
fn a_program_that_is_started_runs_once_for_each_group() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let out = tempfile::tempdir_in(lab.scratch())?;
    let inside = lab.inside(out.path())?;
    let words = [
        "profile", "-n", "vadd", "-d", &inside, "-b", "5.1", "10.1", "17.1",
    ];
    let said = compute(
        &lab,
        &[&words[..], &["--", "/lab/vadd", "20", "500"]].concat(),
    )?;
    let groups = files(&out.path().join("perfmon"), "pmc_perf_")?;
    assert!(groups > 1, "{said}");
    // One file for each pass.
    assert_eq!(files(out.path(), "pmc_perf_")?, groups, "{said}");
    let (compared, wrong) = compare(out.path())?;
    assert!(
        compared > 20 && wrong.is_empty(),
        "{compared}: {wrong:?} {said}"
    );
    // Each dispatch was counted, and is there once.
    let workload = Workload::read(out.path(), &[])?;
    let waves = workload.frame.named("SQ_WAVES").ok_or("no SQ_WAVES")?;
    assert!(!waves.has_gaps());
    let text = compute(&lab, &["analyze", "-p", &inside, "-b", "5.1.1"])?;
    assert!(
        (number(&text, "CPF Stall", 2)? - 166.67).abs() < 0.01,
        "{text}"
    );
    assert!(!text.contains("± 95 %"), "{text}");
    Ok(())
}

/// AMD's name for it: the program runs once, and groups are multiplexed.
#[test]
fn a_program_that_is_started_runs_once_where_groups_are_multiplexed() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let out = tempfile::tempdir_in(lab.scratch())?;
    let inside = lab.inside(out.path())?;
    let words = "profile -n vadd -b 5.1 10.1 17.1 --iteration-multiplexing -d";
    let words: Vec<&str> = words.split(' ').chain([inside.as_str()]).collect();
    let said = compute(
        &lab,
        &[&words[..], &["--", "/lab/vadd", "200", "500"]].concat(),
    )?;
    assert!(
        files(&out.path().join("perfmon"), "pmc_perf_")? > 1,
        "{said}"
    );
    assert_eq!(files(out.path(), "pmc_perf_")?, 1, "{said}");
    // Each dispatch is there once, and has the counters of one group.
    let workload = Workload::read(out.path(), &[])?;
    let frame = &workload.frame;
    let column = |name: &str| frame.named(name).ok_or(format!("no {name}: {said}"));
    let (fetcher, cache) = (column("CPF_CPF_STAT_BUSY")?, column("TCC_HIT_sum")?);
    let counted = |column: &midair_compute::frame::Column| {
        (0..frame.rows)
            .filter(|row| !column.get(*row).is_nan())
            .count()
    };
    let counts = [counted(fetcher), counted(cache)];
    for count in counts {
        assert!((1..frame.rows).contains(&count), "{counts:?} {said}");
    }
    let text = compute(&lab, &["analyze", "-p", &inside, "-b", "5.1.1"])?;
    assert!(
        (number(&text, "CPF Stall", 2)? - 166.67).abs() < 0.01,
        "{text}"
    );
    Ok(())
}

/// Compares a directory's metrics with what the model's rules say of every dispatch, counted or
/// not. Returns how many metrics were compared, and those whose interval does not hold the truth.
fn compare(directory: &Path) -> Result<(usize, Vec<String>)> {
    let workload = Workload::read(directory, &[])?;
    let truth = by_the_rules(&workload.frame)?;
    let options = Options::default();
    let rows = Rows::All(workload.frame.rows);
    let setting = setting(&workload, Form::Sums, &options);
    let mut measured = Evaluator::new(setting, &workload.frame, rows.clone());
    let mut exact = Evaluator::new(setting, &truth, rows);
    let (mut compared, mut wrong) = (0, Vec::new());
    for (_, table) in workload.architecture.tables() {
        if table.source(Form::Means) != Source::Metrics {
            continue;
        }
        for (id, metric) in table.rows(Form::Means) {
            // Events are dealt to the channels in turns, so the rules tell only the sums over
            // channels.
            if metric.name == CHANNEL || id.starts_with("18.") {
                continue;
            }
            for cell in metric.cells {
                // The least and the greatest values are left out, since they cover only the
                // windows.
                let (Some(text), true) = (
                    cell.content.formula(Form::Sums),
                    ["avg", "value"].contains(&cell.column),
                ) else {
                    continue;
                };
                let row = Row {
                    level: metric.level,
                    channel: None,
                };
                let value = measured.value(text, row);
                let (Some(number), Some(truth)) = (value.number(), exact.value(text, row).number())
                else {
                    continue;
                };
                compared += 1;
                let room = value.half_width.unwrap_or(0.0) + 1e-9 * truth.abs();
                if (number - truth).abs() > room {
                    wrong.push(format!("{id} is {number} ± {room}, not {truth}"));
                }
            }
        }
    }
    Ok((compared, wrong))
}

/// Returns the dispatches with the values of the model's rules. Counters that depend on times get
/// no values.
fn by_the_rules(frame: &Frame) -> Result<Frame> {
    let counters = midair_counters::Architecture::find("gfx942").ok_or("no gfx942")?;
    let names: Vec<String> = frame.column_names().map(str::to_owned).collect();
    let (grid, workgroup) = (frame.named(field::GRID), frame.named(field::WORKGROUP));
    let (grid, workgroup) = (grid.ok_or("no grid")?, workgroup.ok_or("no workgroup")?);
    let mut truth = frame.clone();
    for name in names {
        let (plain, level) = match name.strip_suffix("_ACCUM") {
            Some(level) => (level, 16.0),
            None => (name.strip_suffix("_sum").unwrap_or(&name), 1.0),
        };
        let Some(counter) = counters.counter(plain).or_else(|| counters.counter(&name)) else {
            continue;
        };
        let Definition::Basic { block, event } = counter.definition else {
            truth.put(&name, Column::Same(f64::NAN));
            continue;
        };
        let rate = f64::from(1 + event % 7);
        let value = |row: usize| {
            let (grid, size) = (grid.get(row), workgroup.get(row));
            let groups = (grid / size).ceil();
            let waves = groups * (size / 64.0).ceil();
            level
                * match (block, event) {
                    ("GRBM", _) | ("SQ", 3) | ("SPI", 47 | 48) => f64::NAN,
                    ("SQ", 4) | ("SPI", 52) => waves,
                    ("SPI", 49) => groups,
                    ("SPI", _) => rate * groups,
                    ("CPC" | "CPF", _) => rate,
                    ("SQ" | "TA" | "TD" | "TCP" | "TCC" | "TCA", _) => rate * waves,
                    _ => f64::NAN,
                }
        };
        truth.put(&name, Column::Wide((0..frame.rows).map(value).collect()));
    }
    Ok(truth)
}

fn files(directory: &Path, begin: &str) -> Result<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir(directory)? {
        count += usize::from(entry?.file_name().to_string_lossy().starts_with(begin));
    }
    Ok(count)
}
