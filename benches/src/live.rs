//! The cost of `midair top` on a program that makes 100,000 records a second: the processor time of
//! its process, and the memory of both sides at the start and at the end.

use crate::report::Table;
use midair_tests::Result;
use midair_tests::caller::Caller;
use midair_tests::lab::Lab;
use midair_tests::stage::command;
use midair_tests::target::{PATIENCE, Target};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long the program makes records at this rate, unless `MIDAIR_BENCH_SECONDS` gives another
/// time.
const SECONDS: u64 = 30;
/// The time from one burst to the next.
const PACE: Duration = Duration::from_millis(100);

/// Returns the processor time of all threads so far, in ns.
fn processor_time(pid: i32) -> Result<f64> {
    let mut all = 0.0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end after it was listed.
        let text = fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        all += text
            .split(' ')
            .next()
            .unwrap_or_default()
            .parse()
            .unwrap_or(0.0);
    }
    Ok(all)
}

/// Returns the process's own memory that is in use, in kB. The spool is left out: it is shared and
/// has a fixed size, and every part of it is used before any part is used again.
fn resident(pid: i32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.ok_or("a process without memory")?.parse()?)
}

/// Returns the bytes on disk of the files without names that a process has open. The records that
/// it keeps are in such files. The spool is in memory (`memfd`), and is left out.
fn unnamed_files(pid: i32) -> Result<f64> {
    let mut all = 0;
    for descriptor in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let path = descriptor?.path();
        // A descriptor may be closed after it was listed.
        let Ok(name) = fs::read_link(&path) else {
            continue;
        };
        let name = name.to_string_lossy();
        if name.ends_with(" (deleted)")
            && !name.starts_with("/memfd:")
            && let Ok(file) = fs::metadata(&path)
            && file.is_file()
        {
            all += file.blocks() * 512;
        }
    }
    Ok(all as f64 / 1024.0)
}

/// Makes the program do one burst after another with the command `what`.
fn burst(caller: &mut Caller, time: Duration, what: &str) -> Result<u32> {
    let begun = Instant::now();
    let mut bursts = 0;
    while begun.elapsed() < time {
        caller.tell(what)?;
        bursts += 1;
        std::thread::sleep((PACE * bursts).saturating_sub(begun.elapsed()));
    }
    Ok(bursts)
}

/// Measures on AMD's HIP.
pub fn run(table: &mut Table) -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let seconds = std::env::var("MIDAIR_BENCH_SECONDS").ok();
    let seconds = seconds.and_then(|seconds| seconds.parse().ok());
    let time = Duration::from_secs(seconds.unwrap_or(SECONDS));
    // Each launch makes two records, one of its call and one of its kernel.
    for (name, what, records) in [
        ("calls", "tight 10000", 10_000),
        ("launches", "launches 5000", 10_000),
    ] {
        let command_of_calls = Caller::command(&lab)?.env("MODEL_KERNEL_NS", 500);
        let mut caller = Caller::start(command_of_calls.log_name(name))?;
        let pid = caller.pid();
        let mut top = command("midair")?;
        top.args([
            "top",
            &pid.to_string(),
            "--json",
            "--hip-trace",
            "--kernel-trace",
        ]);
        top.args(["--interval", "500ms"]);
        let mut top = Target::spawn(top)?;
        top.expect("{")?;
        burst(&mut caller, Duration::from_secs(5), what)?;
        let (busy, begun) = (processor_time(top.pid())?, Instant::now());
        let memory = (resident(top.pid())?, resident(pid)?);
        let bursts = burst(&mut caller, time, what)?;
        let took = begun.elapsed().as_secs_f64();
        let share = (processor_time(top.pid())? - busy) / 1e9 / took;
        let rate = f64::from(bursts * records) / took;
        let on_disk = unnamed_files(top.pid())?;
        let grown = (resident(top.pid())? - memory.0, resident(pid)? - memory.1);
        let pid_of_top = top.pid().to_string();
        let killed = Command::new("kill").args(["-INT", &pid_of_top]).status()?;
        if !killed.success() {
            return Err("top had ended by itself".into());
        }
        top.wait(PATIENCE)?.success()?;
        caller.quit()?;
        table.plain(&format!("top, {name}: records a second"), &[rate], "100000");
        table.plain("  percent of a core beside it", &[share * 100.0], "< 2");
        table.plain("  kB of top's unnamed files on disk", &[on_disk], "0");
        table.plain("  kB that top has grown by", &[grown.0], "0");
        table.plain("  kB that the program has grown by", &[grown.1], "0");
    }
    Ok(())
}
