//! The test programs run correctly without a profiler, on the lab's model and on ours in both
//! modes, and our model's log agrees with what the programs say. Without this check, a failure of a
//! profiled run would prove nothing.

use midair_tests::Result;
use midair_tests::lab::{GpuModel, Lab, LabTarget};
use midair_tests::modellog::ModelLog;
use midair_tests::target::{Exit, PATIENCE, until};
use std::collections::BTreeMap;

const MODELS: [GpuModel; 3] = [GpuModel::Lab, GpuModel::Doorbell, GpuModel::Eager(7)];

/// Waits for the end of a program, which must be successful, and reads the log that the model left.
/// On the lab's model the log is empty.
fn end(target: LabTarget, model: GpuModel) -> Result<(Exit, ModelLog)> {
    let log = target.log.clone();
    let exit = target.target.wait(PATIENCE)?;
    // On the lab's own model, ROCr aborts during some exits, after the program has done everything.
    // Our model has a remedy (see `last_ring` in its plugin).
    let late_event = exit.signal() == Some(libc::SIGABRT)
        && exit.stdout.last().is_some_and(|line| line == "done")
        && exit
            .stderr
            .last()
            .is_some_and(|line| line.starts_with("model_set_event:"));
    if !(late_event && model == GpuModel::Lab) {
        exit.clone()
            .success()
            .map_err(|error| format!("{}: {error}", log.display()))?;
    }
    let log = ModelLog::read(&log)?;
    log.check()?;
    assert_eq!(
        log.records.is_empty(),
        model == GpuModel::Lab,
        "only our model keeps a log"
    );
    Ok((exit, log))
}

/// Returns the numbers of a line by the word before each: `vadd 3 grid 64` is {vadd: 3, grid: 64}.
/// A word that occurs again gets the word before it as a prefix.
fn numbers(line: &str) -> BTreeMap<String, u64> {
    let words: Vec<&str> = line.split(' ').collect();
    let mut out = BTreeMap::new();
    let mut subject = "";
    for pair in words.windows(2) {
        if let Ok(number) = pair[1].parse() {
            let key = if pair[0] == "grid" {
                format!("{subject} grid")
            } else {
                pair[0].to_owned()
            };
            subject = pair[0];
            out.insert(key, number);
        }
    }
    out
}

/// Compares the lines of a program (`NAME N vadd V grid G scale S grid H copies C bytes B`) with
/// the log.
fn compare(lines: &[String], start: &str, log: &ModelLog) -> Result<u64> {
    let grids = log.grids();
    let (mut launches, mut copies, mut bytes) = (0, 0, 0);
    for line in lines.iter().filter(|line| line.starts_with(start)) {
        let said = numbers(line);
        for kernel in ["vadd", "scale"] {
            let grid = u32::try_from(said[&format!("{kernel} grid")])?;
            let seen = grids.get(&[grid, 1, 1]).copied().unwrap_or(0) as u64;
            assert_eq!(
                seen, said[kernel],
                "dispatches of grid {grid} in the log; the program: {line}"
            );
            launches += said[kernel];
        }
        copies += said["copies"];
        bytes += said["bytes"];
    }
    assert_eq!(
        log.dispatches().count() as u64,
        launches,
        "no dispatch but those of the program"
    );
    assert_eq!(log.copies().count() as u64, copies);
    assert_eq!(log.copies().map(|copy| copy.bytes).sum::<u64>(), bytes);
    Ok(launches)
}

#[test]
fn vadd() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    for model in MODELS {
        for register in [true, false] {
            let run = || {
                let target = lab.run("/lab/vadd").arg(20).on(model).register(register);
                let name = format!("{model:?}-{register}");
                end(target.log_name(&name).spawn()?, model)
            };
            let mut result = run();
            // The lab's own model, not ours, crashes in one run of twenty, in a copy thread at the
            // program's end, or has ROCr abort there.
            let crashes =
                |error: &str| error.contains("SIGSEGV") || error.contains("model_set_event:");
            for _ in 0..2 {
                if model == GpuModel::Lab
                    && result
                        .as_ref()
                        .is_err_and(|error| crashes(&error.to_string()))
                {
                    result = run();
                }
            }
            let (exit, log) = result?;
            assert_eq!(exit.stdout.last().map(String::as_str), Some("done"));
            if model == GpuModel::Lab {
                continue;
            }
            // Each iteration has vadd, scale and the kernel that fills for hipMemset, and three
            // copies of 65536 floats.
            let bytes = 65_536 * 4;
            assert_eq!(log.dispatches().count(), 60);
            let of = |workgroup: u16, group: u32| {
                log.dispatches()
                    .filter(|d| d.workgroup[0] == workgroup && d.group_size == group)
                    .count()
            };
            // Both vadd and the fill kernel have workgroups of 256.
            assert_eq!((of(256, 0), of(64, 128)), (40, 20));
            assert_eq!(
                log.grids(),
                BTreeMap::from([([65_536, 1, 1], 40), ([16_384, 1, 1], 20)])
            );
            assert_eq!(log.copies().count(), 60);
            assert!(
                log.copies()
                    .all(|copy| copy.bytes == bytes && copy.end >= copy.start)
            );
            assert!(
                log.dispatches()
                    .all(|d| d.packet.end - d.packet.start >= 50_000),
                "a kernel takes its 50 us"
            );
            let ahead = log
                .packets()
                .filter(|packet| packet.doorbell < packet.index as i64)
                .count();
            assert!(
                model != GpuModel::Doorbell || ahead == 0,
                "{ahead} packets were taken before their doorbell"
            );
        }
    }
    Ok(())
}

#[test]
fn streams() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("streams")?, lab.kernels()?);
    for model in MODELS {
        // The lab's model hangs where threads share a queue (HIP has four queues): when a doorbell
        // write is overwritten by a lower one, it is lost.
        let (threads, more) = if model == GpuModel::Lab {
            (2, 1)
        } else {
            (8, 2)
        };
        let target = lab
            .run(&program)
            .arg(&kernels)
            .arg(threads)
            .on(model)
            .log_name(&format!("{model:?}"));
        let mut target = target.env("MODEL_KERNEL_NS", 2_000).spawn()?;
        target.expect("ready")?;
        for _ in 0..2 {
            target.send("start")?;
            target.expect("start")?;
            target.send(&format!("new {more}"))?;
            target.expect("new")?;
            target.send("stop")?;
            target.expect("stop")?;
        }
        target.send("quit")?;
        let total = numbers(&target.expect("total")?)["total"];
        let (exit, log) = end(target, model)?;
        assert_eq!(
            exit.stdout
                .iter()
                .filter(|line| line.starts_with("thread"))
                .count(),
            threads + 2 * more
        );
        if model != GpuModel::Lab {
            assert_eq!(compare(&exit.stdout, "thread", &log)?, total);
        }
        assert!(
            total > 2 * threads as u64,
            "each thread launched something: {total}"
        );
    }
    Ok(())
}

#[test]
fn late() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("late")?, lab.kernels()?);
    for model in MODELS {
        let mut target = lab
            .run(&program)
            .arg(&kernels)
            .on(model)
            .log_name(&format!("{model:?}"))
            .spawn()?;
        target.expect("ready")?;
        assert!(
            target.model_log()?.records.is_empty(),
            "the runtime was used before a command said so"
        );
        for command in ["init", "load", "go 5", "quit"] {
            target.send(command)?;
            target.expect(if command == "quit" {
                "late"
            } else {
                &command[..2]
            })?;
        }
        let (exit, log) = end(target, model)?;
        if model != GpuModel::Lab {
            assert_eq!(compare(&exit.stdout, "late", &log)?, 10);
        }
    }
    Ok(())
}

#[test]
fn blocked() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("blocked")?, lab.kernels()?);
    for model in [GpuModel::Doorbell, GpuModel::Eager(3)] {
        let target = lab
            .run(&program)
            .arg(&kernels)
            .arg(77)
            .on(model)
            .log_name(&format!("{model:?}"));
        let long = 2_000_000_000;
        let mut target = target
            .env("MODEL_LONG_KERNEL", format!("{}:{long}", 77 * 64))
            .spawn()?;
        target.expect("ready")?;
        target.send("block")?;
        target.expect("blocking")?;
        until("the long kernel's start", || {
            Ok(target.model_log()?.begun().count() == 1)
        })?;
        target.send("go 3")?;
        target.expect("go")?;
        let log = target.model_log()?;
        assert_eq!(log.dispatches().filter(|d| d.grid[0] == 5 * 64).count(), 3);
        assert_eq!(
            (
                log.begun().count(),
                log.dispatches().filter(|d| d.grid[0] == 77 * 64).count()
            ),
            (1, 0),
            "it still runs"
        );
        target.send("quit")?;
        target.expect("unblocked")?;
        let (_, log) = end(target, model)?;
        let d = log
            .dispatches()
            .find(|d| d.grid[0] == 77 * 64)
            .ok_or("the long kernel")?;
        assert!(d.packet.end - d.packet.start >= long);
    }
    Ok(())
}

#[test]
fn killed_during_a_long_kernel() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("blocked")?, lab.kernels()?);
    let target = lab.run(&program).arg(&kernels).arg(77);
    let mut target = target
        .env("MODEL_LONG_KERNEL", format!("{}:30000000000", 77 * 64))
        .spawn()?;
    target.expect("ready")?;
    for command in ["block", "go 9"] {
        target.send(command)?;
        target.expect(&command[..2])?;
    }
    until("the long kernel's start", || {
        Ok(target.model_log()?.begun().count() == 1)
    })?;
    target.signal(libc::SIGKILL)?;
    let log = target.log.clone();
    let exit = target.target.wait(PATIENCE)?;
    assert_eq!(exit.signal(), Some(libc::SIGKILL));
    let log = ModelLog::read(&log)?;
    log.check()?;
    assert_eq!(
        (log.begun().count(), log.dispatches().count()),
        (1, 9),
        "a killed process loses nothing of the log"
    );
    Ok(())
}

#[test]
fn forker() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("forker")?, lab.kernels()?);
    for model in MODELS {
        // ROCr's model mode maps a random amount of memory, up to more than the machine has, and
        // then the kernel refuses a fork. Without address randomisation it is 4 GiB.
        let mut target = lab
            .run(&program)
            .arg(&kernels)
            .prefix(&["setarch", "-R"])
            .on(model)
            .log_name(&format!("{model:?}"))
            .spawn()?;
        target.expect("ready")?;
        // A hundred children are made in portions that even a busy machine finishes within the time
        // limit of an answer.
        let portions = [["spare"].as_slice(), &["fork 20"; 5], &["release", "quit"]].concat();
        for command in portions {
            target.send(command)?;
            target.expect(match command {
                "spare" => "child",
                "quit" => "forker",
                same => same,
            })?;
        }
        let (exit, log) = end(target, model)?;
        if model != GpuModel::Lab {
            let line = exit
                .stdout
                .iter()
                .find(|line| line.starts_with("forker"))
                .ok_or("its counts")?;
            assert_eq!(log.dispatches().count() as u64, numbers(line)["vadd"]);
            assert!(log.dispatches().all(|d| d.grid == [3 * 64, 1, 1]));
        }
    }
    Ok(())
}

#[test]
fn exiter() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("exiter")?, lab.kernels()?);
    for model in MODELS {
        for way in ["quit", "exit", "_exit", "exec", "abort"] {
            let name = format!("{model:?}-{way}");
            let mut target = lab
                .run(&program)
                .arg(&kernels)
                .on(model)
                .log_name(&name)
                .spawn()?;
            target.expect("ready")?;
            target.send(way)?;
            let launched = numbers(&target.expect("ending")?)["ending"];
            let log = target.log.clone();
            let exit = target.target.wait(PATIENCE)?;
            match way {
                "abort" => assert_eq!(exit.signal(), Some(libc::SIGABRT), "{name}: {exit}"),
                // This may happen after the program's own last word and its exit handlers.
                "quit" | "exit" if exit.is_abort_of_amds_model() => {}
                _ => assert_eq!(exit.status.code(), Some(0), "{name}: {exit}"),
            }
            assert_eq!(
                exit.stdout.last().is_some_and(|line| line == "executed"),
                way == "exec",
                "{name}: {exit}"
            );
            if model != GpuModel::Lab {
                let log = ModelLog::read(&log)?;
                log.check()?;
                let seen = log.dispatches().count() as u64;
                let wrong = if way == "quit" {
                    seen != launched
                } else {
                    way == "exit" && seen > launched
                };
                assert!(!wrong, "{name}: {seen} of {launched} launched");
            }
        }
    }
    Ok(())
}

#[test]
fn raw_hsa() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("raw_hsa")?, lab.kernels()?);
    // The lab's model is left out because of the four producers on one queue, see streams().
    for model in [GpuModel::Doorbell, GpuModel::Eager(1), GpuModel::Eager(2)] {
        let target = lab
            .run(&program)
            .arg(&kernels)
            .arg(50)
            .on(model)
            .log_name(&format!("{model:?}"));
        let mut target = target
            .register(false)
            .env("MODEL_KERNEL_NS", 1_000)
            .spawn()?;
        target.expect("ready")?;
        for _ in 0..2 {
            target.send("go")?;
            target.expect("go")?;
        }
        target.send("quit")?;
        let (exit, log) = end(target, model)?;
        assert!(
            !exit
                .stdout
                .iter()
                .any(|line| line.starts_with("no intercept")),
            "{exit}"
        );
        let said: BTreeMap<u32, u64> = exit
            .stdout
            .iter()
            .filter_map(|line| line.strip_prefix("grid ")?.split_once(" dispatches "))
            .map(|(grid, count)| Ok((grid.parse()?, count.parse()?)))
            .collect::<Result<_>>()?;
        let expected = [
            (2000, 200),
            (2001, 100),
            (3000, 100),
            (3001, 100),
            (4000, 200),
            (5000, 1),
        ];
        let producers = (1000..1004).map(|grid| (grid, 300));
        assert_eq!(said, producers.chain(expected).collect());
        let seen: BTreeMap<u32, u64> = log
            .grids()
            .into_iter()
            .map(|(grid, n)| (grid[0], n as u64))
            .collect();
        assert_eq!(seen, said);
        let with_signal = log
            .dispatches()
            .filter(|d| d.packet.signal != 0 && (1000..1004).contains(&d.grid[0]));
        assert_eq!(
            with_signal.count(),
            400,
            "a third of the producers' dispatches have signals of their own"
        );
        let times = log
            .dispatches()
            .filter(|d| d.packet.times_written && d.grid[0] < 4000)
            .count();
        assert_eq!(times, 0, "nobody asked for profiling on plain queues");
    }
    Ok(())
}
