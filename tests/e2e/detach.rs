//! A detach leaves nothing behind, whatever the process does at the same time.

use crate::profiler::{Counter, Profiler, Tables, Trace, USUAL, Work, changed};
use midair_tests::lab::{Lab, LabTarget};
use midair_tests::modellog::ModelLog;
use midair_tests::snapshot::Snapshot;
use midair_tests::target::{Exit, PATIENCE, ask, until};
use midair_tests::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Exit code of a profiler whose target was killed or became another program.
const TARGET_KILLED: i32 = 31;
/// Name of the worker thread in a target.
const WORKER: &str = "midair-worker";

/// Returns how many ended dispatches with this grid.x the log has.
fn ended(target: &LabTarget, grid: u32) -> Result<usize> {
    let log = target.model_log()?;
    Ok(log
        .dispatches()
        .filter(|dispatch| dispatch.grid[0] == grid)
        .count())
}

/// Checks that every dispatch of the trace that has times is in the log, and that none is there
/// twice.
fn true_to(trace: &Trace, log: &ModelLog) {
    let logged: BTreeSet<Work> = log.dispatches().map(Work::logged).collect();
    let timed = trace.kernels.iter().filter(|kernel| kernel.work.start != 0);
    let mut seen = BTreeSet::new();
    for kernel in timed {
        assert!(logged.contains(&kernel.work), "not in the log: {kernel:?}");
        assert!(seen.insert(kernel.work), "there twice: {kernel:?}");
    }
}

/// Twenty sessions with changing options on a process that never pauses.
#[test]
fn twenty_sessions_leave_nothing_behind() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("streams")?, lab.kernels()?);
    let target = lab
        .run(&program)
        .arg(&kernels)
        .arg(4)
        .env("MODEL_KERNEL_NS", 2_000);
    let mut target = target.spawn()?;
    target.expect("ready")?;
    ask(&mut target, "pause 1000")?;
    // HIP makes queues, signals and staging memory when it first needs them. The program uses them
    // all before the first snapshot is taken.
    ask(&mut target, "start")?;
    let mut work = Counter::of(&target);
    work.wait_until(1000)?;
    let pid = target.pid();
    let tables = Tables::of(&mut target)?;
    let native = tables.read(pid)?;
    let clean = Snapshot::take(pid)?;

    let options: [&[&str]; 5] = [
        &USUAL,
        &["--kernel-trace"],
        &["--hsa-trace", "--memory-copy-trace"],
        &["--sys-trace"],
        &["--hip-runtime-trace", "--hip-compiler-trace"],
    ];
    let mut settled = None;
    for cycle in 0..20 {
        let dir = lab.scratch().join(format!("cycle{cycle}"));
        let chosen = options[cycle % options.len()];
        let profiler = Profiler::attach(pid, &dir, chosen)?;
        let while_on = changed(&native, &tables.read(pid)?);
        assert!(!while_on.is_empty(), "cycle {cycle}: nothing was hooked");
        work.wait_for(20)?;
        let trace = profiler.detach()?;
        let left = changed(&native, &tables.read(pid)?);
        assert!(
            left.is_empty(),
            "cycle {cycle} {chosen:?}: slots differ: {left:?}"
        );
        trace
            .whole_of_running()
            .map_err(|error| format!("cycle {cycle} {chosen:?}: {error}"))?;
        let kernels = chosen
            .iter()
            .any(|option| ["--kernel-trace", "--sys-trace"].contains(option));
        assert_eq!(
            trace.kernels.len() >= 20,
            kernels,
            "cycle {cycle} {chosen:?}: {}",
            trace.kernels.len()
        );
        true_to(&trace, &target.model_log()?);
        std::fs::remove_dir_all(&dir)?;

        let now = Snapshot::take(pid)?;
        assert_eq!(now.tracer, 0, "cycle {cycle}: still traced");
        assert_eq!(
            now.named(WORKER).count(),
            1,
            "cycle {cycle}: one thread of ours waits"
        );
        let diff = clean
            .diff(&now)
            .without(|change| change.name == WORKER || change.name.is_empty());
        let strange = diff
            .without_heap()
            .without(|change| change.name.contains("memfd:midair"));
        let strange = strange.without(|change| change.name.contains("libmidair_gpu_model"));
        assert!(
            strange.is_empty(),
            "cycle {cycle}: more than our library is there:\n{strange}"
        );
        match &settled {
            // Each kind of session has run by now. From here on nothing may grow.
            None if cycle + 1 == 2 * options.len() => settled = Some(now),
            None => {}
            Some(settled) => {
                no_growth(settled, &now).map_err(|error| format!("cycle {cycle}: {error}"))?
            }
        }
    }

    ask(&mut target, "stop")?;
    target.send("quit")?;
    let log = target.log.clone();
    let exit = target.target.wait(PATIENCE)?.success()?;
    counts_are_right(&exit, &ModelLog::read(&log)?)?;
    Ok(())
}

/// Checks that descriptors, threads and mappings are the same, apart from what the application's
/// allocator does.
fn no_growth(before: &Snapshot, now: &Snapshot) -> Result<()> {
    let diff = before.diff(now).without_heap();
    if !diff.is_empty() {
        return Err(format!("it grew:\n{diff}").into());
    }
    let size =
        |snapshot: &Snapshot| -> u64 { snapshot.maps.iter().map(|map| map.end - map.start).sum() };
    // Arenas of the application's threads may come and go. A midair leak would be larger: a spool
    // (64 MiB) or a pool.
    let grown = size(now).saturating_sub(size(before));
    if grown > 8 << 20 {
        return Err(format!("{grown} bytes more are mapped:\n{}", before.diff(now)).into());
    }
    Ok(())
}

/// Checks that what `streams` says it launched and copied is in the log.
fn counts_are_right(exit: &Exit, log: &ModelLog) -> Result<()> {
    log.check()?;
    assert_eq!(
        exit.stdout.last().map(String::as_str),
        Some("done"),
        "{exit}"
    );
    let total = exit
        .stdout
        .iter()
        .rev()
        .find_map(|line| line.strip_prefix("total "));
    let total: usize = total.ok_or("no total")?.parse()?;
    assert_eq!(log.dispatches().count(), total);
    Ok(())
}

/// A thread stays in one hipStreamSynchronize during two sessions. The second session starts and
/// ends while the kernel runs.
#[test]
fn a_thread_blocked_across_two_sessions() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("blocked")?, lab.kernels()?);
    let (blocks, seconds) = (77, 15);
    let grid: u32 = 64 * blocks;
    let target = lab.run(&program).arg(&kernels).arg(blocks);
    let mut target = target
        .env("MODEL_LONG_KERNEL", format!("{grid}:{seconds}000000000"))
        .spawn()?;
    target.expect("ready")?;
    let sync = |trace: &Trace| {
        trace
            .hip
            .values()
            .filter(|call| call.name == "hipStreamSynchronize")
            .count()
    };

    // The first session sees the launch and the start of the wait.
    let first = Profiler::attach(target.pid(), &lab.scratch().join("first"), &USUAL)?;
    target.send("block")?;
    let blocked: u64 = target
        .expect("blocking")?
        .split(' ')
        .nth(1)
        .ok_or("a tid")?
        .parse()?;
    ask(&mut target, "go 3")?;
    let began = Instant::now();
    let trace = first.detach()?;
    let took = began.elapsed();
    assert_eq!(
        ended(&target, grid)?,
        0,
        "the kernel is to outlive both sessions: {seconds} s are too few here"
    );
    assert!(
        took < Duration::from_secs(5),
        "a kernel that runs on held the detach up for {took:?}"
    );
    assert_eq!(trace.exit.status.code(), Some(0), "{}", trace.exit);
    assert_eq!(
        trace.midair["untimed"],
        serde_json::json!({"still running at detach": 1}),
        "{}",
        trace.midair
    );
    assert!(!trace.notes().contains("balance"), "{}", trace.notes());
    let long: Vec<_> = trace
        .kernels
        .iter()
        .filter(|kernel| kernel.work.grid[0] == u64::from(grid))
        .collect();
    assert_eq!(long.len(), 1, "the running kernel is in the trace once");
    assert_eq!(
        (long[0].work.start, long[0].work.end, long[0].tid),
        (0, 0, blocked)
    );
    assert_eq!(trace.kernels.len(), 4);
    // At the detach the wait may or may not have started. If it has, the trace has it, and it ends
    // with the session.
    assert!(
        sync(&trace) == 1 || sync(&trace) == 2,
        "{} synchronisations",
        sync(&trace)
    );

    // The second session sees only what is new. The thread inside the old call writes nothing into
    // it.
    let second = Profiler::attach(target.pid(), &lab.scratch().join("second"), &USUAL)?;
    ask(&mut target, "go 3")?;
    let trace = second.detach()?;
    assert_eq!(
        ended(&target, grid)?,
        0,
        "the kernel is to outlive both sessions: {seconds} s are too few here"
    );
    let short: Vec<u64> = trace
        .kernels
        .iter()
        .map(|kernel| kernel.work.grid[0])
        .collect();
    assert_eq!(short, [320, 320, 320], "{:?}", trace.midair);
    trace.whole()?;
    assert_eq!(sync(&trace), 1, "{:?}", trace.hip);
    assert!(
        trace.hip.values().all(|call| call.tid != blocked),
        "a call of the blocked thread"
    );

    // A third session is on when the old kernel and the old call end.
    let third = Profiler::attach(target.pid(), &lab.scratch().join("third"), &USUAL)?;
    target.expect("unblocked")?;
    ask(&mut target, "go 2")?;
    let trace = third.detach()?;
    trace.whole()?;
    true_to(&trace, &target.model_log()?);
    let short = trace
        .kernels
        .iter()
        .filter(|kernel| kernel.work.grid[0] == 320)
        .count();
    assert_eq!((short, sync(&trace)), (2, 1), "{:?}", trace.hip);
    assert!(
        trace.hip.values().all(|call| call.tid != blocked),
        "a call that began two sessions ago"
    );
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

/// A kernel of 30 s does not delay the detach, and the next attach does not wait for it, either.
#[test]
fn a_long_kernel_at_detach() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("blocked")?, lab.kernels()?);
    let target = lab.run(&program).arg(&kernels).arg(77).register(false);
    let mut target = target
        .env("MODEL_LONG_KERNEL", "4928:30000000000")
        .spawn()?;
    target.expect("ready")?;
    let profiler = Profiler::attach(
        target.pid(),
        &lab.scratch().join("long"),
        &["--kernel-trace"],
    )?;
    target.send("block")?;
    until(
        "the kernel",
        || Ok(target.model_log()?.begun().count() == 1),
    )?;
    let began = Instant::now();
    let trace = profiler.detach()?;
    let took = began.elapsed();
    assert_eq!(ended(&target, 4928)?, 0);
    assert!(took < Duration::from_secs(5), "{took:?}");
    let [kernel] = &trace.kernels[..] else {
        panic!("{} kernels", trace.kernels.len())
    };
    assert_eq!((kernel.work.grid[0], kernel.work.start), (4928, 0));
    assert_eq!(
        trace.midair["untimed"],
        serde_json::json!({"still running at detach": 1}),
        "{}",
        trace.midair
    );
    assert_eq!(trace.midair["open_at_detach"], 1, "{}", trace.midair);
    assert_eq!(trace.exit.status.code(), Some(0), "{}", trace.exit);
    target.signal(libc::SIGKILL)?;
    target.target.wait(PATIENCE)?;
    Ok(())
}

/// Another tool puts its wrappers over ours or under ours, and takes them out before the detach or
/// after it.
#[test]
fn wrappers_of_another_tool() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("overwrap")?, lab.kernels()?);
    let mut target = lab.run(&program).arg(&kernels).spawn()?;
    target.expect("ready")?;
    let pid = target.pid();
    ask(&mut target, "go 2")?;
    let tables = Tables::of(&mut target)?;
    let native = tables.read(pid)?;
    let three = BTreeMap::from([("core".to_owned(), 2), ("hip".to_owned(), 1)]);
    let options = ["--kernel-trace", "--hip-trace", "--hsa-trace"];
    let mut number = 0;
    let mut dir = || {
        number += 1;
        lab.scratch().join(format!("over{number}"))
    };
    let exactly = |trace: &Trace, rounds: usize| {
        let calls = |name: &str, calls: &BTreeMap<u64, crate::profiler::Call>| {
            calls.values().filter(|call| call.name == name).count()
        };
        let seen = [
            trace.kernels.len(),
            calls("hipModuleLaunchKernel", &trace.hip),
            calls("hipGetLastError", &trace.hip),
            calls("hsa_system_get_info", &trace.hsa),
        ];
        assert_eq!(seen, [rounds; 4], "{}", trace.midair);
        assert_eq!(
            trace.midair["untimed"],
            serde_json::json!({}),
            "{}",
            trace.midair
        );
        assert_eq!(trace.exit.status.code(), Some(0), "{}", trace.exit);
    };

    // Its wrappers are over ours and still there at the detach. Ours stay below them, and a note
    // says so.
    let profiler = Profiler::attach(pid, &dir(), &options)?;
    ask(&mut target, "go 3")?;
    ask(&mut target, "over")?;
    ask(&mut target, "go 4")?;
    let trace = profiler.detach()?;
    exactly(&trace, 7);
    assert!(
        trace.notes().contains("wrapped midair's hooks"),
        "{}",
        trace.notes()
    );
    assert_eq!(
        changed(&native, &tables.read(pid)?),
        three,
        "only the wrappers of the program are there"
    );
    ask(&mut target, "go 5")?;
    // We attach again while its wrappers are over ours. Each call is recorded once. It takes its
    // wrappers out during the session.
    let profiler = Profiler::attach(pid, &dir(), &options)?;
    ask(&mut target, "go 3")?;
    ask(&mut target, "off")?;
    ask(&mut target, "go 3")?;
    let trace = profiler.detach()?;
    exactly(&trace, 6);
    assert_eq!(
        changed(&native, &tables.read(pid)?),
        BTreeMap::new(),
        "ours goes with the last one over it"
    );

    // Its wrappers are over ours, and it takes them out after the detach. This puts our wrappers
    // back, which pass calls on and record nothing. The next session removes them.
    let profiler = Profiler::attach(pid, &dir(), &options)?;
    ask(&mut target, "over")?;
    exactly(&profiler.detach()?, 0);
    ask(&mut target, "off")?;
    assert_eq!(
        changed(&native, &tables.read(pid)?),
        three,
        "ours, as a pass-through"
    );
    ask(&mut target, "go 4")?;
    // This session asks for copies only. The wrappers from the earlier session must not record
    // kernels.
    let profiler = Profiler::attach(pid, &dir(), &["--memory-copy-trace"])?;
    ask(&mut target, "go 4")?;
    let trace = profiler.detach()?;
    exactly(&trace, 0);
    assert_eq!(changed(&native, &tables.read(pid)?), BTreeMap::new());

    // Its wrappers are under ours, and still there at the detach.
    ask(&mut target, "over")?;
    let profiler = Profiler::attach(pid, &dir(), &options)?;
    ask(&mut target, "go 3")?;
    exactly(&profiler.detach()?, 3);
    assert_eq!(
        changed(&native, &tables.read(pid)?),
        three,
        "the program's wrappers are as they were"
    );
    // Its wrappers are under ours. During the session it puts back what was there before both,
    // which throws our wrappers out of these slots. The next session puts them in again.
    let profiler = Profiler::attach(pid, &dir(), &["--hip-trace"])?;
    ask(&mut target, "drop")?;
    ask(&mut target, "go 2")?;
    profiler.detach()?;
    assert_eq!(changed(&native, &tables.read(pid)?), BTreeMap::new());
    let profiler = Profiler::attach(pid, &dir(), &options)?;
    ask(&mut target, "go 3")?;
    let trace = profiler.detach()?;
    exactly(&trace, 3);
    trace.whole()?;
    assert_eq!(changed(&native, &tables.read(pid)?), BTreeMap::new());

    let log = target.log.clone();
    target.send("quit")?;
    let exit = target.target.wait(PATIENCE)?.success()?;
    let said = exit
        .stdout
        .iter()
        .find_map(|line| line.strip_prefix("vadd ")?.split(' ').next()?.parse().ok());
    assert_eq!(
        Some(ModelLog::read(&log)?.dispatches().count()),
        said,
        "{exit}"
    );
    Ok(())
}

/// A hundred children use the API while their parent is attached, and one child lives longer than
/// the session.
#[test]
fn forked_children() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("forker")?, lab.kernels()?);
    // ROCr's model mode maps a random amount of memory, up to more than the machine has, and then
    // the kernel refuses a fork. Without address randomisation it is 4 GiB.
    let target = lab.run(&program).arg(&kernels).prefix(&["setarch", "-R"]);
    let mut target = target.spawn()?;
    target.expect("ready")?;
    // This session is to show that the children are not attached.
    let options = [
        "--kernel-trace",
        "--hip-trace",
        "--hsa-trace",
        "--attach-children=false",
    ];
    let profiler = Profiler::attach(target.pid(), &lab.scratch().join("forks"), &options)?;
    target.send("spare")?;
    let child: i32 = target
        .expect("child")?
        .split(' ')
        .nth(1)
        .ok_or("a pid")?
        .parse()?;
    ask(&mut target, "fork 100")?;
    let maps = std::fs::read_to_string(format!("/proc/{child}/maps"))?;
    assert!(
        !maps.contains("memfd:midair-spool"),
        "a child has the spool of its parent"
    );
    let threads: BTreeSet<u64> = Snapshot::take(target.pid())?
        .threads
        .keys()
        .map(|tid| *tid as u64)
        .collect();
    let trace = profiler.detach()?;
    trace.whole_of_running()?;
    // The child that outlives the session calls the API only now.
    ask(&mut target, "release")?;
    assert!(!trace.kernels.is_empty(), "the parent launched");
    for name in [
        "hipRuntimeGetVersion",
        "hipDriverGetVersion",
        "hipGetDeviceCount",
    ] {
        let calls = trace.hip.values().filter(|call| call.name == name).count();
        assert_eq!(calls, 0, "{name} is called by children only");
    }
    let calls = trace.hip.values().chain(trace.hsa.values());
    let strangers: BTreeSet<u64> = calls
        .map(|call| call.tid)
        .filter(|tid| !threads.contains(tid))
        .collect();
    assert!(
        strangers.is_empty(),
        "threads {strangers:?} are not the parent's: {threads:?}"
    );
    let log = target.model_log()?;
    true_to(&trace, &log);

    // Once more, with another session on.
    let profiler = Profiler::attach(target.pid(), &lab.scratch().join("again"), &options)?;
    ask(&mut target, "fork 5")?;
    profiler.detach()?.whole_of_running()?;
    target.send("quit")?;
    let counts = target.expect("forker")?;
    let launched: usize = counts.split(' ').nth(3).ok_or("a count")?.parse()?;
    let log = target.log.clone();
    target.target.wait(PATIENCE)?.success()?;
    assert_eq!(ModelLog::read(&log)?.dispatches().count(), launched);
    Ok(())
}

/// The target ends during the session, in each way that there is. The profiler then ends by itself,
/// with the right exit code, and writes what was recorded.
#[test]
fn the_target_ends() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("exiter")?, lab.kernels()?);
    for way in ["quit", "exit", "_exit", "exec", "abort", "kill"] {
        one_end(&lab, &program, &kernels, way)
            .map_err(|error| -> Error { format!("{way}: {error}").into() })?;
    }
    Ok(())
}

fn one_end(lab: &Lab, program: &str, kernels: &str, way: &str) -> Result<()> {
    let mut target = lab.run(program).arg(kernels).log_name(way).spawn()?;
    target.expect("ready")?;
    let profiler = Profiler::attach(
        target.pid(),
        &lab.scratch().join(format!("end-{way}")),
        &USUAL,
    )?;
    Counter::of(&target).wait_for(200)?;
    match way {
        "kill" => target.signal(libc::SIGKILL)?,
        way => target.send(way)?,
    }
    if way == "exec" {
        target.expect("executed")?;
    }
    let trace = profiler.collect()?;
    let log = target.log.clone();
    let exit = target.target.wait(PATIENCE)?;
    match way {
        "abort" => assert_eq!(exit.signal(), Some(libc::SIGABRT), "{exit}"),
        "kill" => assert_eq!(exit.signal(), Some(libc::SIGKILL), "{exit}"),
        _ => assert_eq!(exit.status.code(), Some(0), "{exit}"),
    }
    let code = if ["exec", "abort", "kill"].contains(&way) {
        TARGET_KILLED
    } else {
        0
    };
    assert_eq!(trace.exit.status.code(), Some(code), "{}", trace.exit);
    let log = ModelLog::read(&log)?;
    true_to(&trace, &log);
    let timed = trace
        .kernels
        .iter()
        .filter(|kernel| kernel.work.start != 0)
        .count();
    // When a process is killed, a few milliseconds of work are lost, which the session in it had
    // not yet taken over from the device.
    assert!(
        timed >= 100,
        "{timed} kernels of {} in the log",
        log.dispatches().count()
    );
    let calls = trace
        .hip
        .values()
        .filter(|call| call.name == "hipModuleLaunchKernel")
        .count();
    // The trace has no calls from before the attach. It has their kernels that had not run
    // yet, marked as such. The call that was under way at the attach is not in the trace, either.
    let orphans = trace.midair["without_traced_caller"].as_u64().unwrap_or(0) as usize;
    assert!(
        calls + orphans + 1 >= timed,
        "{calls} calls, {timed} kernels, {orphans} of them without a call"
    );
    if way == "quit" {
        // The program ended in good order with nothing under way, so everything after the attach is
        // there.
        let first = trace
            .kernels
            .iter()
            .map(|kernel| kernel.work.start)
            .filter(|start| *start != 0)
            .min();
        let first = first.ok_or("no kernel")?;
        let later = log
            .dispatches()
            .filter(|dispatch| dispatch.packet.start >= first)
            .count();
        assert_eq!(timed, later, "{}", trace.midair);
    }
    Ok(())
}

/// The attacher is killed. The target goes on, the session in it ends by the lease, and the next
/// attach works.
#[test]
fn the_attacher_is_killed() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("streams")?, lab.kernels()?);
    let target = lab
        .run(&program)
        .arg(&kernels)
        .arg(2)
        .env("MODEL_KERNEL_NS", 2_000);
    let mut target = target.spawn()?;
    target.expect("ready")?;
    let pid = target.pid();
    let tables = Tables::of(&mut target)?;
    let native = tables.read(pid)?;
    ask(&mut target, "pause 1000")?;
    ask(&mut target, "start")?;
    let profiler = Profiler::attach(pid, &lab.scratch().join("killed"), &USUAL)?;
    assert!(!changed(&native, &tables.read(pid)?).is_empty());
    profiler.process.signal(libc::SIGKILL)?;
    let exit = profiler.process.wait(PATIENCE)?;
    assert_eq!(exit.signal(), Some(libc::SIGKILL));
    until("the end of the lease", || {
        Ok(changed(&native, &tables.read(pid)?).is_empty())
    })?;
    until("the thread to park", || {
        Ok(!std::fs::read_to_string(format!("/proc/{pid}/maps"))?.contains("memfd:midair-spool"))
    })?;
    let profiler = Profiler::attach(pid, &lab.scratch().join("next"), &USUAL)?;
    Counter::of(&target).wait_for(50)?;
    let trace = profiler.detach()?;
    trace.whole_of_running()?;
    assert!(trace.kernels.len() >= 50);
    true_to(&trace, &target.model_log()?);
    assert!(changed(&native, &tables.read(pid)?).is_empty());
    ask(&mut target, "stop")?;
    target.send("quit")?;
    let log = target.log.clone();
    let exit = target.target.wait(PATIENCE)?.success()?;
    counts_are_right(&exit, &ModelLog::read(&log)?)?;
    Ok(())
}
