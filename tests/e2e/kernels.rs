//! Kernels and copies of running processes, compared with what the modelled GPU consumed.
//!
//! Windows are exact: the program is idle when the profiler attaches, works by command, and is idle
//! again at the detach. So the trace must equal the part of the log between two reads of it. Where
//! a program runs freely, the trace must be one contiguous range of each queue's log.

use crate::profiler::compare::{contiguous, logged_copies, mostly, same};
use crate::profiler::{Counter, Kernel, Profiler, Trace, USUAL, since};
use midair_tests::Result;
use midair_tests::lab::{GpuModel, Lab, LabTarget};
use midair_tests::modellog::ModelLog;
use midair_tests::target::{PATIENCE, ask};
use std::collections::{BTreeMap, BTreeSet};

const VADD: &str = "vadd(float const*, float const*, float*, int)";
const SCALE: &str = "scale(float*, float, int)";
/// Calls that launch in the test programs.
const LAUNCHES: [&str; 3] = ["hipModuleLaunchKernel", "hipLaunchKernel", "hipMemset"];

/// Checks that each kernel belongs to a launching call of its thread that started before it, on the
/// same stream, and that each launching call has one kernel.
fn called(trace: &Trace) -> Result<()> {
    let mut launched = BTreeSet::new();
    for kernel in &trace.kernels {
        let call = trace.hip.get(&kernel.correlation);
        let call = call.ok_or_else(|| format!("no call {}: {kernel:?}", kernel.correlation))?;
        assert!(
            LAUNCHES.contains(&call.name.as_str()),
            "{call:?} launched {kernel:?}"
        );
        assert_eq!(
            (call.tid, call.stream),
            (kernel.tid, kernel.stream),
            "{call:?}, {kernel:?}"
        );
        assert!(
            call.start < kernel.work.start,
            "{kernel:?} ran before {call:?}"
        );
        assert!(
            launched.insert(kernel.correlation),
            "{call:?} has two kernels"
        );
    }
    let launches = trace
        .hip
        .iter()
        .filter(|(_, call)| LAUNCHES.contains(&call.name.as_str()));
    for (correlation, call) in launches {
        assert!(launched.contains(correlation), "{call:?} has no kernel");
    }
    Ok(())
}

/// Checks that the copies of the trace match the log, with the engine's own times. Half of
/// the bytes went each way, because the program sends and fetches by turns.
fn same_copies(trace: &Trace, log: &ModelLog) {
    let mut traced: Vec<_> = trace
        .copies
        .iter()
        .map(|copy| (copy.bytes, copy.start, copy.end))
        .collect();
    traced.sort_unstable();
    let logged = logged_copies(log);
    assert!(!logged.is_empty(), "nothing was copied");
    assert_eq!(logged.len(), log.copies().count());
    assert_eq!(traced, logged);
    let bytes: u64 = log.copies().map(|copy| copy.bytes).sum();
    let mut ways: BTreeMap<&str, u64> = BTreeMap::new();
    for copy in &trace.copies {
        *ways.entry(&copy.direction).or_default() += copy.bytes;
    }
    let expected = [
        ("MEMORY_COPY_DEVICE_TO_HOST", bytes / 2),
        ("MEMORY_COPY_HOST_TO_DEVICE", bytes / 2),
    ];
    assert_eq!(ways, BTreeMap::from(expected));
    // The program sends to the places from which it fetches: the arrays on the devices, one for
    // each thread of the program.
    let by_time: BTreeMap<u64, &str> = trace
        .copies
        .iter()
        .map(|copy| (copy.end, copy.direction.as_str()))
        .collect();
    let (mut sent_to, mut fetched_from) = (BTreeSet::new(), BTreeSet::new());
    for copy in log.copies() {
        // The time after a copy is written later, within its ring. So the next end in the trace
        // that is not earlier may belong to another ring. Only copies that overlap no other one are
        // looked at.
        let around: Vec<_> = trace
            .copies
            .iter()
            .filter(|c| c.start <= copy.end && copy.start <= c.end)
            .collect();
        if let [only] = around[..] {
            match by_time[&only.end] {
                "MEMORY_COPY_HOST_TO_DEVICE" => sent_to.insert(copy.dst),
                _ => fetched_from.insert(copy.src),
            };
        }
    }
    let both: BTreeSet<_> = sent_to.intersection(&fetched_from).copied().collect();
    assert!(!both.is_empty(), "the directions are mixed up");
}

/// Waits until the log has `count` dispatches more than in `before`.
fn more(target: &LabTarget, before: &ModelLog, count: usize) -> Result<()> {
    Counter::of(target).wait_until(before.dispatches().count() + count)
}

/// Checks that the registers of the kernels are those that AMD's rocprofv3 reported for the same
/// code object (golden/hip724), and that the names are the same.
fn described(trace: &Trace) {
    for kernel in &trace.kernels {
        let registers = (kernel.vgpr, kernel.accum_vgpr, kernel.sgpr);
        match kernel.name.as_str() {
            VADD => assert_eq!(registers, (8, 0, 16), "{kernel:?}"),
            SCALE => assert_eq!(registers, (4, 4, 16), "{kernel:?}"),
            fill => assert!(fill.starts_with("__amd_rocclr_fillBuffer"), "{kernel:?}"),
        }
    }
}

/// Checks the streams of the program `streams`. Its thread N has its own stream, launches vadd with
/// grid.x 64 (N+1) and scale with 32 (N+1) + 65536. `attached_idle` says that the program launched
/// nothing while the profiler attached. Otherwise the stream of a launch that was under way is not
/// known.
fn streams_kept_apart(trace: &Trace, attached_idle: bool) {
    let mut stream_of = BTreeMap::new();
    let known = |kernel: &&Kernel| attached_idle || trace.hip.contains_key(&kernel.correlation);
    for kernel in trace.kernels.iter().filter(known) {
        let [x, y, z] = kernel.work.grid;
        assert_eq!((y, z), (1, 1), "{kernel:?}");
        let (name, thread) = if x < 65_536 {
            (VADD, x / 64)
        } else {
            (SCALE, (x - 65_536) / 32)
        };
        assert_eq!(kernel.name, name, "{kernel:?}");
        let known = stream_of
            .entry(thread)
            .or_insert((kernel.stream, kernel.tid));
        assert_eq!(
            *known,
            (kernel.stream, kernel.tid),
            "thread {thread}: {kernel:?}"
        );
    }
    let streams: BTreeSet<_> = stream_of.values().map(|(stream, _)| stream).collect();
    assert_eq!(
        streams.len(),
        stream_of.len(),
        "two threads have one stream: {stream_of:?}"
    );
    assert!(
        !streams.contains(&0),
        "a stream of the program is taken for the default stream"
    );
}

#[test]
fn eight_threads_on_eight_streams() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("streams")?, lab.kernels()?);
    let target = lab
        .run(&program)
        .arg(&kernels)
        .arg(8)
        .env("MODEL_KERNEL_NS", 2_000);
    let mut target = target.spawn()?;
    target.expect("ready")?;
    ask(&mut target, "pause 500")?;
    // This work comes before the attach and must not be in the trace.
    ask(&mut target, "start")?;
    ask(&mut target, "stop")?;

    // An exact window, with streams from before the attach and streams that are made during it.
    let before = target.model_log()?;
    let profiler = Profiler::attach(target.pid(), &lab.scratch().join("exact"), &USUAL)?;
    ask(&mut target, "start")?;
    ask(&mut target, "new 3")?;
    more(&target, &before, 400)?;
    ask(&mut target, "stop")?;
    let log = since(&target.model_log()?, &before);
    let trace = profiler.detach()?;
    trace.whole()?;
    same(&trace, &log)?;
    same_copies(&trace, &log);
    called(&trace)?;
    described(&trace);
    streams_kept_apart(&trace, true);
    let threads: BTreeSet<u64> = trace.kernels.iter().map(|kernel| kernel.tid).collect();
    assert_eq!(threads.len(), 11, "all threads launched");

    // A trace of kernels alone has no calls that launch them, but the same kernels as before.
    let before = target.model_log()?;
    let profiler = Profiler::attach(
        target.pid(),
        &lab.scratch().join("kernels"),
        &["--kernel-trace"],
    )?;
    ask(&mut target, "start")?;
    more(&target, &before, 100)?;
    ask(&mut target, "stop")?;
    let log = since(&target.model_log()?, &before);
    let trace = profiler.detach()?;
    trace.whole()?;
    same(&trace, &log)?;
    streams_kept_apart(&trace, true);
    assert!(
        trace.hip.is_empty() && trace.copies.is_empty(),
        "more than was asked for"
    );

    // A trace of copies alone.
    let before = target.model_log()?;
    let profiler = Profiler::attach(
        target.pid(),
        &lab.scratch().join("copies"),
        &["--memory-copy-trace"],
    )?;
    ask(&mut target, "start")?;
    more(&target, &before, 400)?;
    ask(&mut target, "stop")?;
    let log = since(&target.model_log()?, &before);
    let trace = profiler.detach()?;
    trace.whole()?;
    same_copies(&trace, &log);
    assert!(trace.kernels.is_empty(), "kernels were not asked for");

    // The program runs freely, at the attach and at the detach.
    ask(&mut target, "start")?;
    let profiler = Profiler::attach(target.pid(), &lab.scratch().join("free"), &USUAL)?;
    more(&target, &target.model_log()?, 400)?;
    let trace = profiler.detach()?;
    ask(&mut target, "stop")?;
    trace.whole_of_running()?;
    assert!(
        trace.kernels.len() >= 400,
        "{} kernels",
        trace.kernels.len()
    );
    assert!(
        contiguous(&trace, &target.model_log()?)? > 1,
        "one queue only"
    );
    described(&trace);
    streams_kept_apart(&trace, false);

    target.send("quit")?;
    let log = target.log.clone();
    let exit = target.target.wait(PATIENCE)?.success()?;
    ModelLog::read(&log)?.check()?;
    assert_eq!(exit.stdout.last().map(String::as_str), Some("done"));
    Ok(())
}

#[test]
fn streams_on_an_eager_device() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("streams")?, lab.kernels()?);
    let target = lab
        .run(&program)
        .arg(&kernels)
        .arg(4)
        .on(GpuModel::Eager(5));
    let mut target = target.env("MODEL_KERNEL_NS", 2_000).spawn()?;
    target.expect("ready")?;
    ask(&mut target, "pause 500")?;
    let before = target.model_log()?;
    let profiler = Profiler::attach(target.pid(), &lab.scratch().join("eager"), &USUAL)?;
    ask(&mut target, "start")?;
    more(&target, &before, 400)?;
    ask(&mut target, "stop")?;
    let log = since(&target.model_log()?, &before);
    let trace = profiler.detach()?;
    mostly(&trace, &log)?;
    same_copies(&trace, &log);
    ask(&mut target, "start")?;
    ask(&mut target, "stop")?;
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

/// A program as users write them, with kernels launched by <<<>>> and a hipMemset that HIP carries
/// out as a kernel of its own. It goes on running while the profiler attaches and detaches.
#[test]
fn vadd() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    for register in [true, false] {
        let target = lab.run("/lab/vadd").arg(400).arg(3000).register(register);
        let mut target = target.log_name(&format!("vadd{register}")).spawn()?;
        target.expect("iter 2")?;
        let dir = lab.scratch().join(format!("vadd{register}-trace"));
        let profiler = Profiler::attach(target.pid(), &dir, &USUAL)?;
        more(&target, &target.model_log()?, 60)?;
        let trace = profiler.detach()?;
        trace.whole_of_running()?;
        assert!(trace.kernels.len() >= 60, "{} kernels", trace.kernels.len());
        contiguous(&trace, &target.model_log()?)?;
        described(&trace);
        let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
        for kernel in &trace.kernels {
            *by_name.entry(&kernel.name).or_default() += 1;
        }
        assert_eq!(
            by_name.len(),
            3,
            "vadd, scale and HIP's own fill: {by_name:?}"
        );
        // The calls that started before the attach can have launched only the first kernel of the
        // trace. The arguments of such a call are not known, so the stream is not, either.
        let (launching, before): (Vec<_>, Vec<_>) = trace
            .kernels
            .iter()
            .map(|kernel| (kernel, trace.hip.get(&kernel.correlation)))
            .partition(|(_, call)| call.is_some());
        // A kernel that the device had taken already has no times.
        let starts = trace.kernels.iter().map(|kernel| kernel.work.start);
        let first = starts.filter(|start| *start != 0).min();
        for (kernel, _) in &before {
            let start = kernel.work.start;
            assert!(start == 0 || Some(start) == first, "{kernel:?}");
            assert_eq!(kernel.stream, 0, "{kernel:?}");
        }
        assert!(before.len() <= 1, "{before:?}");
        let launching = launching
            .into_iter()
            .filter_map(|(kernel, call)| Some((kernel, call?)));
        // The program's own stream, and the default stream, on which hipMemset runs.
        let mut streams: BTreeSet<(u64, bool)> = BTreeSet::new();
        for (kernel, call) in launching {
            let is_own = kernel.name == VADD || kernel.name == SCALE;
            let expected = if is_own {
                "hipLaunchKernel"
            } else {
                "hipMemset"
            };
            assert_eq!(
                (call.name.as_str(), call.tid),
                (expected, kernel.tid),
                "{kernel:?}"
            );
            assert!(
                call.start < kernel.work.start,
                "{kernel:?} ran before {call:?}"
            );
            streams.insert((kernel.stream, is_own));
        }
        assert_eq!(streams.len(), 2, "{streams:?}");
        assert!(streams.contains(&(0, false)), "{streams:?}");
        target.signal(libc::SIGKILL)?;
    }
    Ok(())
}

/// Copies are made by engines and by kernels, straight and rectangular, with pinned and with
/// pageable memory.
#[test]
fn every_kind_of_copy() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let target = lab
        .run(&lab.program("copies")?)
        .env("MODEL_KERNEL_NS", 2_000);
    let mut target = target.spawn()?;
    target.expect("ready")?;
    ask(&mut target, "go 2")?;
    let before = target.model_log()?;
    let profiler = Profiler::attach(target.pid(), &lab.scratch().join("copies"), &USUAL)?;
    ask(&mut target, "go 5")?;
    let log = since(&target.model_log()?, &before);
    let trace = profiler.detach()?;
    trace.whole()?;
    same(&trace, &log)?;
    same_copies(&trace, &log);
    // Each round has 2 x 2 straight copies and 2 rectangles by the engines, and 3 copies and a fill
    // by kernels.
    assert_eq!((trace.copies.len(), trace.kernels.len()), (5 * 6, 5 * 4));
    let rectangles = log.copies().filter(|copy| copy.rect).count();
    assert_eq!(rectangles, 5 * 2, "the program asks for rectangles");
    for kernel in &trace.kernels {
        let call = &trace.hip.get(&kernel.correlation).ok_or("no call")?.name;
        let expected = match kernel.name.as_str() {
            "__amd_rocclr_copyBuffer" => "hipMemcpyAsync",
            _ => "hipMemsetAsync",
        };
        assert_eq!(call, expected, "{kernel:?}");
    }
    for copy in &trace.copies {
        let call = trace.hip.get(&copy.correlation).ok_or("no call")?;
        let known = ["hipMemcpyAsync", "hipMemcpy", "hipMemcpy2DAsync"];
        assert!(known.contains(&call.name.as_str()), "{call:?} for {copy:?}");
        assert!(call.start < copy.start, "{copy:?} ran before {call:?}");
        assert_eq!(
            call.name == "hipMemcpy2DAsync",
            copy.bytes == 128_000,
            "{copy:?}"
        );
    }
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}
