//! Queues as programs without HIP use them, in the ways that are hardest for a profiler.

use crate::profiler::compare::{mostly, only_in, same};
use crate::profiler::{Counter, Profiler, Work, since};
use midair_tests::Result;
use midair_tests::held::{Held, thread_named};
use midair_tests::lab::{GpuModel, Lab, LabTarget};
use midair_tests::modellog::ModelLog;
use midair_tests::target::{PATIENCE, ask};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const VADD: &str = "vadd(float const*, float const*, float*, int)";

/// Why a dispatch has no times that the device took before its doorbell.
const TAKEN_FIRST: &str = "the packet processor took it before midair set its signal";

/// Starts `raw_hsa` with fifty rounds in each `go`, and waits until it is ready. Its queues are
/// made without profiling. `unkind.rs` tests what becomes of that on a device that takes the
/// profiling bit up only once.
fn raw_hsa(lab: &Lab) -> Result<LabTarget> {
    let (program, kernels) = (lab.program("raw_hsa")?, lab.kernels()?);
    let target = lab.run(&program).arg(&kernels).arg(50).register(false);
    let mut target = target
        .env("MODEL_KERNEL_NS", 1_000)
        .env("MODEL_LATCH", 0)
        .env("HSA_ENABLE_INTERRUPT", 0)
        .spawn()?;
    target.expect("ready")?;
    Ok(target)
}

/// Checks that the counts which `raw_hsa` prints at its end equal the log's: the program is
/// right, whatever was attached.
fn raw_hsa_counts(target: LabTarget) -> Result<ModelLog> {
    let log = target.log.clone();
    let exit = target.target.wait(PATIENCE)?.success()?;
    let log = ModelLog::read(&log)?;
    log.check()?;
    let counts = exit
        .stdout
        .iter()
        .filter_map(|line| line.strip_prefix("grid ")?.split_once(" dispatches "));
    let mut said = BTreeMap::new();
    for (grid, count) in counts {
        said.insert([grid.parse()?, 1, 1], count.parse::<usize>()?);
    }
    assert_eq!(said, log.grids());
    Ok(log)
}

/// Waits until all dispatches of a finished `go` of `raw_hsa` are in the log. Those without a
/// signal may run a little longer than the program waits.
fn settle(target: &LabTarget, before: &ModelLog, gos: usize, rounds: usize) -> Result<ModelLog> {
    // Each round has 4 producers x 3 dispatches, 2 + 1 dependent ones, 1 + 1 in the handler and 2
    // on the intercept queue.
    Counter::of(target).wait_until(before.dispatches().count() + gos * rounds * 19)?;
    Ok(since(&target.model_log()?, before))
}

#[test]
fn raw_queues() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = raw_hsa(&lab)?;
    ask(&mut target, "go")?;
    settle(&target, &ModelLog::default(), 1, 50)?;

    let options: [&[&str]; 2] = [
        &["--kernel-trace"],
        &["--kernel-trace", "--hsa-trace", "--memory-copy-trace"],
    ];
    for (n, options) in options.into_iter().enumerate() {
        let before = target.model_log()?;
        let profiler = Profiler::attach(
            target.pid(),
            &lab.scratch().join(format!("raw{n}")),
            options,
        )?;
        ask(&mut target, "go")?;
        ask(&mut target, "go")?;
        let log = settle(&target, &before, 2, 50)?;
        let trace = profiler.detach()?;
        trace.whole()?;
        same(&trace, &log)?;
        assert!(
            trace.kernels.iter().all(|kernel| kernel.name == VADD),
            "one kernel only"
        );
        let queues: BTreeSet<u64> = trace.kernels.iter().map(|kernel| kernel.queue).collect();
        assert_eq!(
            queues.len(),
            5,
            "shared, after, handled, inner and the intercept queue"
        );
        // A dispatch that no traced call launched has a correlation id of its own.
        let ids: BTreeSet<u64> = trace
            .kernels
            .iter()
            .map(|kernel| kernel.correlation)
            .collect();
        assert_eq!(
            ids.len(),
            trace.kernels.len(),
            "a correlation id is there twice"
        );
        assert!(
            ids.iter().all(|id| *id != 0 && !trace.hsa.contains_key(id)),
            "ids of calls"
        );
        let producers: BTreeMap<u64, BTreeSet<u64>> =
            trace
                .kernels
                .iter()
                .fold(BTreeMap::new(), |mut map, kernel| {
                    map.entry(kernel.work.grid[0])
                        .or_insert_with(BTreeSet::new)
                        .insert(kernel.tid);
                    map
                });
        for grid in 1000..1004 {
            assert_eq!(producers[&grid].len(), 2, "a thread per producer and go");
        }
    }
    // The program shuts the runtime down during the session. The session in the target ends first,
    // with everything in the trace.
    let before = target.model_log()?;
    let profiler = Profiler::attach(
        target.pid(),
        &lab.scratch().join("shut-down"),
        &["--kernel-trace"],
    )?;
    ask(&mut target, "go")?;
    target.send("quit")?;
    target.expect("done")?;
    let trace = profiler.collect()?;
    assert_eq!(trace.exit.status.code(), Some(0), "{}", trace.exit);
    assert_eq!(
        trace.midair["untimed"],
        serde_json::json!({}),
        "{}",
        trace.midair
    );
    same(&trace, &since(&raw_hsa_counts(target)?, &before))
}

/// The same, but the worker thread is not scheduled for some seconds. The runtime is not shut down
/// while the worker thread still uses it. (Once it was, after 1.5 s.)
#[test]
fn a_runtime_is_not_shut_down_while_the_worker_thread_is_starved() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = raw_hsa(&lab)?;
    let before = target.model_log()?;
    let pid = target.pid();
    let profiler = Profiler::attach(pid, &lab.scratch().join("starved"), &["--kernel-trace"])?;
    ask(&mut target, "go")?;
    let held = Held::anywhere(thread_named(pid, "midair-worker")?)?;
    target.send("quit")?;
    // This sleep does not wait for an event: it is the time in which nothing may happen.
    let end = Instant::now() + Duration::from_secs(3);
    while Instant::now() < end {
        assert!(!target.lines().iter().any(|line| line == "done"));
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(held);
    target.expect("done")?;
    let trace = profiler.collect()?;
    assert_eq!(trace.exit.status.code(), Some(0), "{}", trace.exit);
    same(&trace, &since(&raw_hsa_counts(target)?, &before))
}

/// The packet processor takes packets as soon as they are valid. So dispatches may be untimed, with
/// the reason. None may be missing, doubled or harmed.
#[test]
fn raw_queues_on_an_eager_device() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("raw_hsa")?, lab.kernels()?);
    for seed in [1, 2] {
        let target = lab
            .run(&program)
            .arg(&kernels)
            .arg(50)
            .register(false)
            .on(GpuModel::Eager(seed));
        let target = target
            .log_name(&format!("eager{seed}"))
            .env("MODEL_KERNEL_NS", 1_000);
        let mut target = target.env("HSA_ENABLE_INTERRUPT", 0).spawn()?;
        target.expect("ready")?;
        let before = target.model_log()?;
        let dir = lab.scratch().join(format!("raw-eager{seed}"));
        let profiler = Profiler::attach(target.pid(), &dir, &["--kernel-trace"])?;
        ask(&mut target, "go")?;
        ask(&mut target, "go")?;
        let log = settle(&target, &before, 2, 50)?;
        let trace = profiler.detach()?;
        mostly(&trace, &log)?;
        // Once more without a session: what the session left behind does no harm.
        ask(&mut target, "go")?;
        target.send("quit")?;
        raw_hsa_counts(target)?;
    }
    Ok(())
}

/// Queues are made and destroyed during the session, some of them with work on them.
#[test]
fn short_lived_queues() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("churn")?, lab.kernels()?);
    let target = lab.run(&program).arg(&kernels).register(false);
    let target = target.env("MODEL_KERNEL_NS", 20_000);
    let mut target = target.env("HSA_ENABLE_INTERRUPT", 0).spawn()?;
    target.expect("ready")?;
    ask(&mut target, "go 3")?;
    let before = target.model_log()?;
    let dir = lab.scratch().join("churn");
    let profiler = Profiler::attach(target.pid(), &dir, &["--kernel-trace"])?;
    // Each queue has its own state until the end of the session, and there must be room for some
    // hundreds of them.
    ask(&mut target, "go 150")?;
    let log = since(&target.model_log()?, &before);
    let trace = profiler.detach()?;
    assert_eq!(trace.exit.status.code(), Some(0), "{}", trace.exit);
    assert_eq!(trace.notes(), "", "{}", trace.exit);
    let waited_for = |grid: u64| (6000..9000).contains(&grid);
    let (waited, left): (Vec<_>, Vec<_>) = trace
        .kernels
        .iter()
        .partition(|kernel| waited_for(kernel.work.grid[0]));
    assert_eq!((waited.len(), left.len()), (150 * 4, 75));
    let traced: BTreeSet<Work> = waited.iter().map(|kernel| kernel.work).collect();
    let logged: BTreeSet<Work> = log
        .dispatches()
        .map(Work::logged)
        .filter(|work| waited_for(work.grid[0]))
        .collect();
    // The model reads doorbells from memory, where one ring can hide another. So it takes a packet
    // that was valid at the last ring 20 ms later, without a doorbell: also when a busy machine
    // keeps the producer for so long from ringing. Such a packet has no midair signal.
    let untimed = waited.iter().filter(|kernel| kernel.work.end == 0).count();
    let missing = logged.difference(&traced).count();
    let added = traced.difference(&logged).filter(|work| work.end != 0);
    assert!(
        untimed == missing && untimed <= 6 && added.count() == 0,
        "only in the log: {}; only in the trace: {}",
        only_in(&logged, &traced),
        only_in(&traced, &logged)
    );
    // The work left on a queue either ran to its end, and then the log has it, or it went with the
    // queue.
    let ended: BTreeSet<Work> = log.dispatches().map(Work::logged).collect();
    let gone = left.iter().filter(|kernel| !ended.contains(&kernel.work));
    assert!(gone.clone().all(|kernel| kernel.work.start == 0));
    // Each kernel without times has its reason. Where one that was taken first is the last that ends
    // on its queue, no later one tells so, and the reason is the queue's end.
    let reasons = trace.midair["untimed"].as_object().ok_or("no counts")?;
    let count = |reason: &str| reasons.get(reason).and_then(serde_json::Value::as_u64);
    let destroyed = count("its queue was destroyed").unwrap_or(0);
    let first = count(TAKEN_FIRST).unwrap_or(0);
    let unfinished = left.iter().filter(|kernel| kernel.work.end == 0).count();
    let told = format!("{untimed} and {unfinished}: {reasons:?}");
    assert_eq!(destroyed + first, (untimed + unfinished) as u64, "{told}");
    assert!(destroyed >= gone.count() as u64, "{told}");
    let known = ["its queue was destroyed", TAKEN_FIRST];
    assert!(
        reasons.keys().all(|it| known.contains(&it.as_str())),
        "{told}"
    );
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

/// Kernels are unloaded before the worker thread comes to them, and their addresses then belong to
/// other kernels. Each kernel still has its own name.
#[test]
fn short_lived_code_objects() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("churn")?, lab.kernels()?);
    let target = lab.run(&program).arg(&kernels).register(false);
    let mut target = target.env("MODEL_KERNEL_NS", 20_000).spawn()?;
    target.expect("ready")?;
    let dir = lab.scratch().join("reload");
    let profiler = Profiler::attach(target.pid(), &dir, &["--kernel-trace"])?;
    target.send(&format!("reload 60 {}", lab.renamed_kernels()?))?;
    let said = target.expect("reload ")?;
    let again: u32 = said.trim_start_matches("reload ").parse()?;
    // With fewer reused addresses the test would show nothing.
    assert!(again > 20, "only {again} lay where another one had been");
    let trace = profiler.detach()?;
    let mut names: BTreeMap<(String, u64), usize> = BTreeMap::new();
    for kernel in &trace.kernels {
        *names
            .entry((kernel.name.clone(), kernel.work.grid[0]))
            .or_default() += 1;
    }
    let expected = [
        ((VADD.to_owned(), 7000), 30),
        ((VADD.replace("vadd", "vxyz"), 8000), 30),
    ];
    assert_eq!(names, BTreeMap::from(expected), "{}", trace.exit);
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}
