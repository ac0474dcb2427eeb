//! Programs whose threads come and go, each with a stream: on our models without midair, which have
//! to stand this before a profiler is tested on them, and in one session. `torture/` attaches to the
//! same program again and again (row 24).

use crate::profiler::compare::{logged_copies, mostly};
use crate::profiler::{Profiler, USUAL, since};
use midair_tests::Result;
use midair_tests::lab::{Lab, LabTarget};
use midair_tests::modellog::{Event, ModelLog};
use midair_tests::stand_in::{Kit, QUEUES_PER_NODE};
use midair_tests::target::PATIENCE;
use std::collections::BTreeSet;
use std::path::Path;

/// The threads that exist at one time.
const THREADS: u32 = 16;
/// How many threads end on the HIP stand-in: more than 1000, since queues were numbered modulo 1000.
const MANY: u32 = 1200;

/// Returns the number after a word of `thread_churn`'s answer.
fn count(line: &str, word: &str) -> Result<usize> {
    let mut words = line.split(' ').skip_while(|it| *it != word);
    let number = words.nth(1).ok_or_else(|| format!("no {word}: {line}"))?;
    Ok(number.parse()?)
}

/// Has `threads` threads come and go, and ends the program. Returns its counts, which are right, and
/// the model's log.
fn run(mut target: LabTarget, threads: u32) -> Result<(String, ModelLog)> {
    target.expect("ready")?;
    target.send(&format!("go {THREADS} {threads}"))?;
    let line = target.expect("go ")?;
    target.send("quit")?;
    let log = target.log.clone();
    target.target.wait(PATIENCE)?.success()?;
    let log = ModelLog::read(&log)?;
    log.check()?;
    assert_eq!(count(&line, "bad")?, 0, "{line}");
    assert_eq!(count(&line, "copies")?, log.copies().count(), "{line}");
    Ok((line, log))
}

/// `hipFree` waits for the streams of all threads. It waited for ever for a stream that its own
/// thread destroyed meanwhile.
#[test]
fn hip_stand_in() -> Result<()> {
    let kit = Kit::new()?;
    let short = [("MODEL_KERNEL_NS", "2000")];
    let target = kit.start("thread_churn", "model.log", &short)?;
    let (line, log) = run(target, MANY)?;
    assert_eq!(count(&line, "kernels")?, log.dispatches().count(), "{line}");
    // The program uses the first GPU alone.
    let queues = log.records.iter().filter_map(|record| match record.event {
        Event::Queue { .. } => Some(record.queue / QUEUES_PER_NODE),
        _ => None,
    });
    assert_eq!(queues.collect::<BTreeSet<_>>(), BTreeSet::from([1]));
    Ok(())
}

/// Streams wait for each other as HIP says. Without this, a fill on the null stream came before what
/// a blocking stream read there, and a stream waited for ever for an event that was destroyed or
/// recorded again.
#[test]
fn order_of_streams() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = kit.start(
        "stream_order",
        "model.log",
        &[("MODEL_KERNEL_NS", "20000000")],
    )?;
    target.expect("done")?;
    let wrong: Vec<String> = target
        .lines()
        .into_iter()
        .filter(|line| line != "done" && !line.ends_with(": 0"))
        .collect();
    assert_eq!(wrong, Vec::<String>::new());
    assert_eq!(target.lines().len(), 6);
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

/// AMD's HIP shares four queues among the streams of all threads, and has a kernel for each fill.
#[test]
fn amds_hip() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let program = lab.program("thread_churn")?;
    let (line, log) = run(lab.run(&program).arg(lab.kernels()?).spawn()?, 300)?;
    let kernels = count(&line, "kernels")? + count(&line, "sets")?;
    assert_eq!(kernels, log.dispatches().count(), "{line}");
    Ok(())
}

/// Records all that `threads` threads do, and compares it with the model's log.
fn recorded(mut target: LabTarget, dir: &Path, threads: u32) -> Result<()> {
    target.expect("ready")?;
    // The runtime is started and the kernel loaded before the session.
    target.send("go 1 1")?;
    target.expect("go ")?;
    let before = target.model_log()?;
    let profiler = Profiler::attach(target.pid(), dir, &USUAL)?;
    target.send(&format!("go {THREADS} {threads}"))?;
    target.expect("go ")?;
    let log = since(&target.model_log()?, &before);
    let trace = profiler.detach()?;
    assert_eq!(trace.exit.status.code(), Some(0), "{}", trace.exit);
    mostly(&trace, &log)?;
    let mut copies: Vec<u64> = trace.copies.iter().map(|copy| copy.bytes).collect();
    let mut logged: Vec<u64> = logged_copies(&log).iter().map(|copy| copy.0).collect();
    copies.sort_unstable();
    logged.sort_unstable();
    assert_eq!(copies, logged);
    let notes = trace.notes();
    assert!(!notes.contains("number exceeds a limit"), "{notes}");
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

/// On the stand-in each stream is a queue, so that more queues come and go than there is room for at
/// one time.
#[test]
fn recorded_on_the_stand_in() -> Result<()> {
    let kit = Kit::new()?;
    let target = kit.start("thread_churn", "model.log", &[("MODEL_KERNEL_NS", "20000")])?;
    recorded(target, &kit.scratch().join("churn"), MANY)
}

#[test]
fn recorded_on_amds_hip() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let program = lab.program("thread_churn")?;
    let target = lab.run(&program).arg(lab.kernels()?).spawn()?;
    recorded(target, &lab.scratch().join("churn"), 300)
}
