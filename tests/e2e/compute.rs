//! `rocprof-compute` on a process that runs: what `analyze` shows is what the model counted
//! (`sim/gpu-model/src/pmu/rules.rs`: 1 + event mod 7 for each wave, or for each kernel).

use midair_tests::Result;
use midair_tests::lab::{Lab, LabTarget};
use midair_tests::target::PATIENCE;
use std::path::Path;

fn streams(lab: &Lab) -> Result<LabTarget> {
    let program = lab.run(&lab.program("streams")?);
    let mut target = program.arg(lab.kernels()?).arg(1).spawn()?;
    target.expect("ready")?;
    target.send("start")?;
    target.expect("start")?;
    Ok(target)
}

/// Runs `rocprof-compute` in the lab; what it printed.
fn compute(lab: &Lab, words: &[&str]) -> Result<String> {
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

/// The number in a column of the line with this word, where columns have lines between them.
fn number(text: &str, line: &str, column: usize) -> Result<f64> {
    let found = text.lines().find(|text| text.contains(line));
    let found = found.ok_or_else(|| format!("{line} is not in\n{text}"))?;
    let fields: Vec<&str> = found.split('│').map(str::trim).collect();
    let field = fields
        .get(column + 1)
        .ok_or_else(|| format!("{found} has no such column"))?;
    Ok(field.parse().map_err(|_| format!("{field} in {found}"))?)
}

fn end(mut target: LabTarget) -> Result<()> {
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
    // Busy is event 23, stalled 25.
    let stall = number(&text, "CPF Stall", 2)?;
    assert!((stall - 166.67).abs() < 0.01, "{text}");
    assert!(number(&text, "Kernel Time ", 2)? > 0.0, "{text}");
    // Cycles of waves are event 79, counted in fours.
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
    // Hits are event 17, misses 19: 4 of 4 + 6.
    assert!((number(&text, "17.1.2", 2)? - 40.0).abs() < 0.01, "{text}");
    Ok(())
}

fn files(directory: &Path, begin: &str) -> Result<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir(directory)? {
        count += usize::from(entry?.file_name().to_string_lossy().starts_with(begin));
    }
    Ok(count)
}
