//! `midair attach --keep`: windows of a session that goes on, compared with the model's log.

use midair_tests::Result;
use midair_tests::lab::{Lab, LabTarget};
use midair_tests::modellog::ModelLog;
use midair_tests::stage::{command, stage};
use midair_tests::table::Csv;
use midair_tests::target::{PATIENCE, Target, ask, until};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// Has the program run at least `count` kernels, and waits for their end.
fn burst(target: &mut LabTarget, count: usize) -> Result<ModelLog> {
    let before = target.model_log()?.dispatches().count();
    ask(target, "start")?;
    until("kernels", || {
        Ok(target.model_log()?.dispatches().count() >= before + count)
    })?;
    ask(target, "stop")?;
    target.model_log()
}

/// Returns the directories of the windows.
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

/// Returns the start and the end of each kernel in a directory of results.
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
    // A further window would be beyond the limit, so it is not written, and the session goes on.
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
    // More time passes than is kept, so only the last kernels are in the file.
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

/// The command line of an attach with one trigger. A second event within a window would get none.
fn with_trigger(pid: i32, directory: &Path, trigger: &str, words: &[&str]) -> Result<Command> {
    let mut command = command("midair")?;
    command.args(["attach", &pid.to_string(), "-f", "csv", "-o", "out", "-d"]);
    command
        .arg(directory)
        .args(["--keep", "4s", "--trigger", trigger]);
    command.args(["--keep-windows", "100"]).args(words);
    Ok(command)
}

/// Starts it, and waits until it is attached.
fn started(command: Command) -> Result<Target> {
    let mut process = Target::spawn(command)?;
    process.expect_error("attached to process")?;
    Ok(process)
}

/// Whether the attach notified of an event, and a window has a kernel that is as wanted.
fn is_written(
    attached: &mut Target,
    directory: &Path,
    told: &str,
    wanted: impl Fn(&(u64, u64)) -> bool,
) -> Result<bool> {
    if !attached.is_running()? {
        return Err(format!("the attach has ended: {:?}", attached.errors()).into());
    }
    let errors = attached.errors();
    if !errors.iter().any(|line| line.contains(told)) {
        return Ok(false);
    }
    for window in windows(directory)? {
        // Files get their names when all of them are complete.
        let file = window.join("out_kernel_trace.csv");
        if file.exists() && kernels(&window)?.iter().any(&wanted) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Ends an attach whose only results are windows.
fn end(mut attached: Target) -> Result<()> {
    attached.send("")?;
    attached.wait(PATIENCE)?.success()?;
    Ok(())
}

/// The event is provoked until it is seen: a slow machine may have events of its own before, whose
/// windows are as right.
#[test]
fn a_slow_kernel_is_written_by_its_median_and_at_the_head_of_its_queue() -> Result<()> {
    const LONG: u64 = 400_000_000;
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("streams")?, lab.kernels()?);
    let target = lab.run(&program).arg(&kernels).arg(2);
    // The grid of the third thread's vadd.
    let target = target.env("MODEL_LONG_KERNEL", format!("192:{LONG}"));
    let mut target = target.env("MODEL_KERNEL_NS", 50_000).spawn()?;
    target.expect("ready")?;
    let mut is_first = true;
    for (trigger, told) in [
        (
            "kernel(vadd) > 3*median",
            "kernel(vadd) > 3*median: a kernel took ",
        ),
        ("queue stuck > 150ms", "queue stuck > 150ms: queue "),
    ] {
        let results = tempfile::tempdir()?;
        let mut attached = started(with_trigger(target.pid(), results.path(), trigger, &[])?)?;
        if is_first {
            // A median needs some kernels, which the first two threads launch.
            ask_with(&mut target, "rounds 30")?;
            ask_with(&mut target, "new 1")?;
            is_first = false;
        }
        until(trigger, || {
            ask_with(&mut target, "rounds 1")?;
            let all = logged(&target.model_log()?);
            is_written(&mut attached, results.path(), told, |kernel| {
                kernel.1 - kernel.0 >= LONG && all.contains(kernel)
            })
        })
        .map_err(|error| format!("{error}: {:?}", attached.errors()))?;
        end(attached)?;
    }
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

/// Sends a command with an argument, which its first word answers.
fn ask_with(target: &mut LabTarget, command: &str) -> Result<()> {
    target.send(command)?;
    target.expect(command.split(' ').next().unwrap_or_default())?;
    Ok(())
}

#[test]
fn a_message_and_full_memory_are_events() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let library = lab.install(&stage()?.join("lib/librocprofiler-sdk-roctx.so.1"))?;
    let (program, image) = (lab.program("regions")?, lab.kernels()?);
    let mut target = lab.run(&program).arg(library).arg(image).spawn()?;
    target.expect("ready")?;
    let any = |_: &(u64, u64)| true;

    // A message that no trigger is for, and one that is.
    let results = tempfile::tempdir()?;
    let words = ["--marker-trace", "--kernel-trace"];
    let command = with_trigger(target.pid(), results.path(), "message(^insi)", &words)?;
    let mut attached = started(command)?;
    ask_with(&mut target, "outside 1")?;
    until("the message's window", || {
        ask_with(&mut target, "inside 1")?;
        let told = "message(^insi): 'inside'";
        is_written(&mut attached, results.path(), told, any)
    })
    .map_err(|error| format!("{error}: {:?}", attached.errors()))?;
    let others = attached.errors();
    assert!(
        !others.iter().any(|line| line.contains("'outside'")),
        "{others:?}"
    );
    end(attached)?;

    // What AMD's driver says about the GPU's memory, in a mount namespace of the attach's own. The
    // lab's GPU has the render node 128.
    let results = tempfile::tempdir()?;
    let plain = with_trigger(
        target.pid(),
        results.path(),
        "memory > 90%",
        &["--kernel-trace"],
    )?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c"]);
    command.arg(
        "mount -t tmpfs none /sys/class && mkdir -p /sys/class/drm/renderD128/device && \
         cd /sys/class/drm/renderD128/device && echo 1000 >mem_info_vram_total && \
         echo 100 >mem_info_vram_used && cd / && exec \"$@\"",
    );
    command
        .arg("sh")
        .arg(plain.get_program())
        .args(plain.get_args());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut attached = started(command)?;
    ask_with(&mut target, "inside 3")?;
    let used = format!(
        "/proc/{}/root/sys/class/drm/renderD128/device/mem_info_vram_used",
        attached.pid()
    );
    std::fs::write(&used, "950\n")?;
    until("the memory's window", || {
        ask_with(&mut target, "inside 1")?;
        let told = "memory > 90%: 95.0 % are in use";
        is_written(&mut attached, results.path(), told, any)
    })
    .map_err(|error| format!("{error}: {:?}", attached.errors()))?;
    end(attached)?;
    target.send("quit")?;
    target.expect("done")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}
