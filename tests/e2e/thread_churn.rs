//! Programs whose threads come and go, each with a stream, on our models and without midair: the
//! models have to stand this before a profiler is tested on them. `torture/` attaches to the same
//! program (row 24).

use midair_tests::Result;
use midair_tests::modellog::{Event, ModelLog};
use midair_tests::stand_in::{Kit, QUEUES_PER_NODE};
use midair_tests::target::PATIENCE;
use std::collections::BTreeSet;

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

/// `hipFree` waits for the streams of all threads. It waited for ever for a stream that its own
/// thread destroyed meanwhile.
#[test]
fn hip_stand_in() -> Result<()> {
    let kit = Kit::new()?;
    let short = [("MODEL_KERNEL_NS", "2000")];
    let mut target = kit.start("thread_churn", "model.log", &short)?;
    target.expect("ready")?;
    target.send(&format!("go {THREADS} {MANY}"))?;
    let line = target.expect("go ")?;
    target.send("quit")?;
    let log = target.log.clone();
    target.target.wait(PATIENCE)?.success()?;
    let log = ModelLog::read(&log)?;
    log.check()?;
    assert_eq!(count(&line, "bad")?, 0, "{line}");
    assert_eq!(count(&line, "copies")?, log.copies().count(), "{line}");
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
