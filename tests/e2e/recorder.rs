//! `midair attach --keep`: windows of a session that goes on, compared with the model's log.

use midair_tests::Result;
use midair_tests::lab::{Lab, LabTarget};
use midair_tests::modellog::ModelLog;
use midair_tests::stage::command;
use midair_tests::table::Csv;
use midair_tests::target::{PATIENCE, Target, until};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn ask(target: &mut LabTarget, word: &str) -> Result<()> {
    target.send(word)?;
    target.expect(word)?;
    Ok(())
}

fn streams(lab: &Lab) -> Result<LabTarget> {
    let (program, kernels) = (lab.program("streams")?, lab.kernels()?);
    let target = lab.run(&program).arg(&kernels).arg(2);
    let mut target = target.env("MODEL_KERNEL_NS", 50_000).spawn()?;
    target.expect("ready")?;
    Ok(target)
}

fn attach(pid: i32, directory: &Path, words: &[&str]) -> Result<Target> {
    let mut command = command("midair")?;
    command.args(["attach", &pid.to_string(), "-f", "csv", "-o", "out", "-d"]);
    command.arg(directory).args(words);
    let mut process = Target::spawn(command)?;
    process.expect_error("attached to process")?;
    Ok(process)
}

/// Some kernels, which have ended.
fn burst(target: &mut LabTarget, count: usize) -> Result<ModelLog> {
    let before = target.model_log()?.dispatches().count();
    ask(target, "start")?;
    until("kernels", || {
        Ok(target.model_log()?.dispatches().count() >= before + count)
    })?;
    ask(target, "stop")?;
    target.model_log()
}

/// The windows, by their directories.
fn windows(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.starts_with("window-") {
            all.push(path);
        }
    }
    all.sort();
    Ok(all)
}

/// Start and end of each kernel in a directory of results.
fn kernels(directory: &Path) -> Result<BTreeSet<(u64, u64)>> {
    let csv = Csv::read(&directory.join("out_kernel_trace.csv"))?;
    let mut all = BTreeSet::new();
    for row in &csv.rows {
        let number = |column| Csv::number(row, column);
        all.insert((number("Start_Timestamp")?, number("End_Timestamp")?));
    }
    Ok(all)
}

fn logged(log: &ModelLog) -> BTreeSet<(u64, u64)> {
    log.dispatches()
        .map(|dispatch| (dispatch.packet.start, dispatch.packet.end))
        .collect()
}

#[test]
fn a_gap_is_written_with_what_was_before_and_after_it() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = streams(&lab)?;
    let results = tempfile::tempdir()?;
    let words = [
        "--keep",
        "8s",
        "--trigger",
        "gap > 400ms",
        "--keep-windows",
        "1",
    ];
    let mut attached = attach(target.pid(), results.path(), &words)?;
    let log = burst(&mut target, 50)?;
    attached.expect_error(&format!("process {}: gap > 400ms", target.pid()))?;
    until("its files", || {
        Ok(attached
            .lines()
            .iter()
            .any(|line| line.ends_with("out_kernel_trace.csv")))
    })?;
    // Another one is beyond the limit, and the session goes on.
    burst(&mut target, 50)?;
    attached.send("")?;
    let exit = attached.wait(PATIENCE)?.success()?;
    let windows = windows(results.path())?;
    assert_eq!(windows.len(), 1, "{windows:?}: {exit}");
    let (seen, all) = (kernels(&windows[0])?, logged(&log));
    assert!(seen.len() >= 50, "{}: {exit}", seen.len());
    let first = seen.first().copied().unwrap_or_default();
    let wanted: BTreeSet<(u64, u64)> = all.range(first..).copied().collect();
    assert_eq!(seen, wanted, "{exit}");
    assert!(
        !results.path().join("out_kernel_trace.csv").exists(),
        "with a trigger only windows are written"
    );
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

#[test]
fn sigusr1_writes_what_is_kept_and_the_detach_the_rest() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = streams(&lab)?;
    let results = tempfile::tempdir()?;
    let mut attached = attach(target.pid(), results.path(), &["--keep", "2s"])?;
    let first = burst(&mut target, 50)?;
    attached.signal(libc::SIGUSR1)?;
    attached.expect_error(&format!("process {}: SIGUSR1", target.pid()))?;
    until("its files", || {
        Ok(attached
            .lines()
            .iter()
            .any(|line| line.ends_with("out_kernel_trace.csv")))
    })?;
    let windows = windows(results.path())?;
    assert_eq!(windows.len(), 1, "{windows:?}");
    let seen = kernels(&windows[0])?;
    assert!(
        !seen.is_empty() && seen.is_subset(&logged(&first)),
        "{seen:?}"
    );
    // More than what is kept later, only the last kernels are there.
    let ended = std::time::Instant::now();
    until("time that passes", || Ok(ended.elapsed().as_secs() >= 5))?;
    let second = burst(&mut target, 50)?;
    attached.send("")?;
    attached.wait(PATIENCE)?.success()?;
    let seen = kernels(results.path())?;
    let wanted: BTreeSet<_> = logged(&second)
        .difference(&logged(&first))
        .copied()
        .collect();
    assert_eq!(seen, wanted);
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}
