//! Kernels and copies of running processes, compared with what the modelled GPU consumed (issue: order of proof 4).
//!
//! Windows are exact: the program is idle when the profiler attaches, works by command, and is idle again at the detach, so the
//! trace must be the log between two looks at it. Where a program runs freely, the trace must be one contiguous range of each
//! queue's log.

#[path = "profiler/mod.rs"]
mod profiler;

use midair_tests::Result;
use midair_tests::lab::{GpuModel, Lab, LabTarget};
use midair_tests::modellog::{Event, ModelLog};
use midair_tests::target::PATIENCE;
use profiler::{Counter, Kernel, Profiler, Trace, USUAL, Work, since};
use std::collections::{BTreeMap, BTreeSet};

/// Which ring and which packet of it a dispatch of the log is.
type Place = (u64, u64);

const VADD: &str = "vadd(float const*, float const*, float*, int)";
const SCALE: &str = "scale(float*, float, int)";
/// Calls that launch in the test programs.
const LAUNCHES: [&str; 3] = ["hipModuleLaunchKernel", "hipLaunchKernel", "hipMemset"];

/// Where each dispatch of the log is. Times, to the nanosecond, tell dispatches apart.
fn places(log: &ModelLog) -> Result<BTreeMap<Work, Place>> {
    let mut places = BTreeMap::new();
    for dispatch in log.dispatches() {
        let place = (dispatch.packet.ring, dispatch.packet.index);
        if let Some(other) = places.insert(Work::logged(dispatch), place) {
            return Err(format!("{other:x?} and {place:x?} cannot be told apart").into());
        }
    }
    Ok(places)
}

/// The first few of what is in `these` and not in `those`.
fn only_in(these: &BTreeSet<Work>, those: &BTreeSet<Work>) -> String {
    let only: Vec<_> = these.difference(those).collect();
    format!(
        "{}, first {:?}",
        only.len(),
        only.iter().take(3).collect::<Vec<_>>()
    )
}

/// The trace holds each dispatch of `log` once, with its grid, workgroup, segments, kernel and times, and nothing else; each of its
/// queues is one ring of the log, in order.
fn same(trace: &Trace, log: &ModelLog) -> Result<()> {
    let places = places(log)?;
    let logged: BTreeSet<Work> = places.keys().copied().collect();
    let traced: BTreeSet<Work> = trace.kernels.iter().map(|kernel| kernel.work).collect();
    assert_eq!(
        traced.len(),
        trace.kernels.len(),
        "a dispatch is there twice"
    );
    assert!(
        traced == logged,
        "{} in the log, {} in the trace; only in the log: {}; only in the trace: {}\n{}",
        logged.len(),
        traced.len(),
        only_in(&logged, &traced),
        only_in(&traced, &logged),
        trace.exit
    );
    in_order(&trace.kernels, &places);
    Ok(())
}

/// Queues of the trace are rings of the log, one to one, and dispatch ids follow the packet indices. Returns the indices by ring.
fn in_order(kernels: &[Kernel], places: &BTreeMap<Work, Place>) -> BTreeMap<u64, Vec<u64>> {
    let mut queue_of: BTreeMap<u64, u64> = BTreeMap::new();
    let mut by_ring: BTreeMap<u64, BTreeMap<u64, u64>> = BTreeMap::new();
    for kernel in kernels {
        let (ring, index) = places[&kernel.work];
        let queue = *queue_of.entry(ring).or_insert(kernel.queue);
        assert_eq!(
            queue, kernel.queue,
            "ring {ring:#x} is two queues: {kernel:?}"
        );
        by_ring.entry(ring).or_default().insert(kernel.id, index);
    }
    let queues: BTreeSet<u64> = queue_of.values().copied().collect();
    assert_eq!(
        queues.len(),
        queue_of.len(),
        "two rings are one queue: {queue_of:x?}"
    );
    let in_id_order = |ids: BTreeMap<u64, u64>| ids.into_values().collect::<Vec<_>>();
    let by_ring: BTreeMap<_, _> = by_ring
        .into_iter()
        .map(|(ring, ids)| (ring, in_id_order(ids)))
        .collect();
    for (ring, indices) in &by_ring {
        assert!(
            indices.is_sorted(),
            "dispatch ids of ring {ring:#x} do not follow the packets"
        );
    }
    by_ring
}

/// Of a program that runs on: all dispatches of the trace are in the log, and on each ring they are all that lie between the
/// first and the last. Returns how many rings there were.
fn contiguous(trace: &Trace, log: &ModelLog) -> Result<usize> {
    let places = places(log)?;
    let strange: Vec<_> = trace
        .kernels
        .iter()
        .filter(|kernel| !places.contains_key(&kernel.work))
        .collect();
    assert!(
        strange.is_empty(),
        "{} not in the log: {:?}",
        strange.len(),
        strange.first()
    );
    let by_ring = in_order(&trace.kernels, &places);
    for (ring, indices) in &by_ring {
        let range = indices[0]..=indices[indices.len() - 1];
        let logged: Vec<u64> = places
            .values()
            .filter(|(of, index)| of == ring && range.contains(index))
            .map(|(_, index)| *index)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        assert_eq!(
            *indices, logged,
            "ring {ring:#x} has holes, or a dispatch twice"
        );
    }
    Ok(by_ring.len())
}

/// Each kernel belongs to a launching call of its thread, begun before it, on the same stream; each launching call has one kernel.
fn called(trace: &Trace) {
    let mut launched = BTreeSet::new();
    for kernel in &trace.kernels {
        let call = trace.hip.get(&kernel.correlation);
        let call = call.unwrap_or_else(|| panic!("no call {}: {kernel:?}", kernel.correlation));
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
}

/// Bytes of copies with the times that the engine wrote before and after each.
fn logged_copies(log: &ModelLog) -> Vec<(u64, u64, u64)> {
    let mut stamps: BTreeMap<u64, u64> = BTreeMap::new();
    let mut open: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let mut copies = Vec::new();
    for record in &log.records {
        match &record.event {
            Event::Sdma {
                ring,
                op: "timestamp",
                value,
                ..
            } => match open.remove(ring) {
                Some((bytes, start)) => copies.push((bytes, start, *value)),
                None => {
                    stamps.insert(*ring, *value);
                }
            },
            Event::Copy(copy) => {
                open.insert(copy.ring, (copy.bytes, stamps[&copy.ring]));
            }
            _ => {}
        }
    }
    assert!(open.is_empty(), "a copy without a time after it");
    copies.sort_unstable();
    copies
}

/// Copies of the trace are those of the log with the engine's own times. Half of the bytes went each way, which a program that
/// sends and fetches back by turns makes so.
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
    // What was sent lies where what was fetched came from: the devices' arrays, one per thread of the program.
    let by_time: BTreeMap<u64, &str> = trace
        .copies
        .iter()
        .map(|copy| (copy.end, copy.direction.as_str()))
        .collect();
    let (mut sent_to, mut fetched_from) = (BTreeSet::new(), BTreeSet::new());
    for copy in log.copies() {
        // The time after a copy is written within its ring, so the next end in the trace that is not earlier may be another
        // ring's; only copies that no other overlaps are looked at.
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

fn ask(target: &mut LabTarget, command: &str) -> Result<()> {
    target.send(command)?;
    target.expect(command.split(' ').next().unwrap_or_default())?;
    Ok(())
}

/// Waits until the log has `count` dispatches more than `before`.
fn more(target: &LabTarget, before: &ModelLog, count: usize) -> Result<()> {
    Counter::of(target).wait_until(before.dispatches().count() + count)
}

/// Registers of the kernels are those that AMD's rocprofv3 reported for the same code object (golden/hip724), and names are theirs.
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

/// Of the program `streams`: thread N has its own stream, launches vadd with grid.x 64 (N+1) and scale with 32 (N+1) + 65536.
/// `attached_idle`: the program launched nothing while the profiler attached, else the stream of a launch that was under way is
/// not known.
fn streams_kept_apart(trace: &Trace, attached_idle: bool) {
    let mut stream_of = BTreeMap::new();
    let known = |kernel: &&Kernel| attached_idle || trace.hip.contains_key(&kernel.correlation);
    for kernel in trace.kernels.iter().filter(known) {
        let [x, 1, 1] = kernel.work.grid else {
            panic!("{kernel:?}")
        };
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
    // Work before the attach, which must not be in the trace.
    ask(&mut target, "start")?;
    ask(&mut target, "stop")?;

    // An exact window: streams from before the attach, and streams made during it.
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
    called(&trace);
    described(&trace);
    streams_kept_apart(&trace, true);
    let threads: BTreeSet<u64> = trace.kernels.iter().map(|kernel| kernel.tid).collect();
    assert_eq!(threads.len(), 11, "all threads launched");

    // Kernels alone: the calls that launch them are not there, and kernels are as before.
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

    // Copies alone.
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

    // Running freely, at attach and at detach.
    ask(&mut target, "start")?;
    let profiler = Profiler::attach(target.pid(), &lab.scratch().join("free"), &USUAL)?;
    more(&target, &target.model_log()?, 400)?;
    let trace = profiler.detach()?;
    ask(&mut target, "stop")?;
    trace.whole()?;
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

/// The counts that `raw_hsa` says at its end are those of the log: the program is right, whatever was attached.
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

/// All dispatches of a finished `go` of `raw_hsa` are in the log: those without a signal may run a little longer than the program
/// waits.
fn settle(target: &LabTarget, before: &ModelLog, gos: usize, rounds: usize) -> Result<ModelLog> {
    // Per round: 4 producers x 3, 2 + 1 dependent, 1 + 1 in the handler, 2 on the intercept queue.
    more(target, before, gos * rounds * 19)?;
    Ok(since(&target.model_log()?, before))
}

#[test]
fn raw_queues() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("raw_hsa")?, lab.kernels()?);
    let target = lab.run(&program).arg(&kernels).arg(50).register(false);
    let mut target = target
        .env("MODEL_KERNEL_NS", 1_000)
        .env("HSA_ENABLE_INTERRUPT", 0)
        .spawn()?;
    target.expect("ready")?;
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
    target.send("quit")?;
    raw_hsa_counts(target)?;
    Ok(())
}

/// The packet processor takes packets as soon as they are valid: dispatches may be without times, with the reason, and nothing
/// may be missing, double, or harmed.
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
        // And once more without: what was left behind harms nobody.
        ask(&mut target, "go")?;
        target.send("quit")?;
        raw_hsa_counts(target)?;
    }
    Ok(())
}

/// As [`same`], for a device that may have a packet before our signal is in it: the timed ones are the log's, the others are as
/// many as are missing, per grid, and each reason is counted.
fn mostly(trace: &Trace, log: &ModelLog) -> Result<()> {
    assert_eq!(trace.exit.status.code(), Some(0), "{}", trace.exit);
    assert!(!trace.notes().contains("balance"), "{}", trace.notes());
    assert_eq!(
        trace.midair["lost"],
        serde_json::json!({}),
        "{}",
        trace.midair
    );
    let places = places(log)?;
    let mut missing: BTreeMap<[u64; 3], i64> = BTreeMap::new();
    for work in places.keys() {
        *missing.entry(work.grid).or_default() += 1;
    }
    let (timed, untimed): (Vec<_>, Vec<_>) = trace
        .kernels
        .iter()
        .partition(|kernel| kernel.work.start != 0);
    for kernel in &timed {
        assert!(
            places.contains_key(&kernel.work),
            "not in the log: {kernel:?}"
        );
        *missing.entry(kernel.work.grid).or_default() -= 1;
    }
    for kernel in &untimed {
        assert_eq!(kernel.work.end, 0, "{kernel:?}");
        *missing.entry(kernel.work.grid).or_default() -= 1;
    }
    missing.retain(|_, count| *count != 0);
    assert!(
        missing.is_empty(),
        "in the log less in the trace, by grid: {missing:?}\n{}",
        trace.exit
    );
    let works: BTreeSet<Work> = timed.iter().map(|kernel| kernel.work).collect();
    assert_eq!(works.len(), timed.len(), "a dispatch is there twice");
    let reasons: u64 = trace.midair["untimed"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(_, n)| n.as_u64())
        .sum();
    assert_eq!(reasons, untimed.len() as u64, "{}", trace.midair);
    assert!(
        timed.len() > untimed.len(),
        "{} timed, {} not",
        timed.len(),
        untimed.len()
    );
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

/// A program as users write it, with kernels launched by <<<>>> and a hipMemset that is a kernel of HIP's own; it runs on while
/// the profiler comes and goes.
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
        trace.whole()?;
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
        // Calls that began before the attach launched at most the first kernel of the trace.
        let launching: Vec<_> = trace
            .kernels
            .iter()
            .filter_map(|kernel| Some((kernel, trace.hip.get(&kernel.correlation)?)))
            .collect();
        assert!(
            launching.len() + 1 >= trace.kernels.len(),
            "{} of {}",
            launching.len(),
            trace.kernels.len()
        );
        for (kernel, call) in launching {
            let expected = if kernel.name == VADD || kernel.name == SCALE {
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
        }
        // The program's own stream and the default stream, on which hipMemset runs.
        let streams: BTreeSet<(u64, bool)> = trace
            .kernels
            .iter()
            .map(|kernel| (kernel.stream, kernel.name == VADD || kernel.name == SCALE))
            .collect();
        assert_eq!(streams.len(), 2, "{streams:?}");
        assert!(streams.contains(&(0, false)), "{streams:?}");
        target.signal(libc::SIGKILL)?;
    }
    Ok(())
}
