//! What one session records, for each version of CUDA and each option.

use crate::cuda::kit::{
    EVERYTHING, NEWEST, ROUND, Row, Session, copies_are_true, kernels_are_true, number, quit, start,
};
use midair_sim_cuda::{MAJORS, Toolkit};
use midair_tests::Result;
use midair_tests::cuda::{CudaLog, Kit};
use midair_tests::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};

/// Records one window with work of both workers, graphs that were instantiated before the attach,
/// and copies from device to device. The trace has all of this and nothing else.
fn window(toolkit: Toolkit, variables: &[(&str, &str)]) -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, toolkit, variables)?;
    // This work comes before the attach and must not be in the trace.
    target.ask("work 3")?;
    target.ask("graph 2")?;
    let before = target.log_length()?;
    let session = Session::attach(target.pid(), &kit.scratch().join("window"), &[])?;
    target.ask("work 30")?;
    target.ask("graph 5")?;
    target.ask("peers 4")?;
    let trace = session.detach()?;
    let log = target.log_from(before)?;
    target.ask("work 2")?;
    trace.whole()?;
    let rounds = 2 * 30;
    assert_eq!(kernels_are_true(&trace, &log)?, rounds * ROUND.0 + 5 * 2);
    assert_eq!(copies_are_true(&trace, &log)?, rounds * ROUND.1 + 4);
    sets_are_true(&trace.rows("memory_set_trace")?, &log, rounds * ROUND.2 + 5)?;
    // Without options, only the cheap domains.
    let tables = trace.tables()?;
    for dear in [
        "cuda_api_trace",
        "synchronization_trace",
        "marker_api_trace",
    ] {
        assert!(!tables.iter().any(|name| name == dear), "{tables:?}");
    }
    quit(target)
}

fn sets_are_true(rows: &[Row], log: &CudaLog, count: usize) -> Result<()> {
    let mut logged: BTreeMap<(u64, u64), usize> = BTreeMap::new();
    for line in log.of("set") {
        if line.number("correlation")? != 0 {
            *logged
                .entry((line.number("correlation")?, line.number("bytes")?))
                .or_default() += 1;
        }
    }
    let mut traced = BTreeMap::new();
    for row in rows {
        *traced
            .entry((number(row, "Correlation_Id")?, number(row, "Bytes")?))
            .or_default() += 1;
    }
    assert_eq!(traced, logged);
    assert_eq!(rows.len(), count);
    Ok(())
}

#[test]
fn kernels_and_copies_with_each_major_version() -> Result<()> {
    for (major, _) in MAJORS {
        window(Toolkit::Major(major), &[])?;
    }
    Ok(())
}

/// The layouts of records changed with 12.6, 12.8, 13.1, 13.3 and 13.4. The numbers are those that
/// `cuptiGetVersion` returns.
#[test]
fn kernels_and_copies_with_other_versions() -> Result<()> {
    for (major, version) in [
        (12, 18),
        (12, 24),
        (12, 26),
        (13, 130_101),
        (13, 130_301),
        (13, 130_401),
    ] {
        let faults = format!("version={version}");
        window(Toolkit::Major(major), &[("CUPTI_MODEL", &faults)])
            .map_err(|error| format!("{version}: {error}"))?;
    }
    Ok(())
}

/// All options: calls as the log has them, with their results and threads, waits and allocations.
#[test]
fn all_domains_together() -> Result<()> {
    let kit = Kit::new()?;
    for (major, _) in MAJORS {
        let mut target = start(&kit, Toolkit::Major(major), &[("CUDA_MODEL_CALLS", "1")])?;
        let before = target.log_length()?;
        let own: BTreeSet<u64> = Snapshot::take(target.pid())?
            .threads
            .keys()
            .map(|tid| *tid as u64)
            .collect();
        let dir = kit.scratch().join(major.to_string());
        let session = Session::attach(target.pid(), &dir, &EVERYTHING)?;
        target.ask("work 10")?;
        target.ask("memory 6")?;
        let trace = session.detach()?;
        let mut log = target.log_from(before)?;
        // Our worker thread also makes calls of the driver, which are left out.
        log.lines.retain(|line| {
            line.number("tid").is_ok_and(|tid| own.contains(&tid)) || line.what == "memory"
        });
        trace.whole()?;
        assert_eq!(kernels_are_true(&trace, &log)?, 20 * ROUND.0);
        assert_eq!(copies_are_true(&trace, &log)?, 20 * ROUND.1);

        let mut logged = BTreeMap::new();
        for line in log.of("call") {
            let runtime = line.number("runtime")? == 1;
            let key = (line.number("correlation")?, runtime);
            // CUPTI's name of a function ends with the version of CUDA that introduced it.
            let name = line.text("name");
            let name = name.rsplit_once("_v").map_or(name, |(name, version)| {
                match runtime && version.parse::<u32>().is_ok() {
                    true => name,
                    false => line.text("name"),
                }
            });
            let value = (name.to_owned(), line.number("tid")?, line.number("result")?);
            // A call within a call of the same interface has the same correlation id. In the log
            // the outermost call comes last.
            if key.0 != 0 {
                logged.entry(key).or_insert_with(Vec::new).push(value);
            }
        }
        let mut traced: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for row in trace.rows("cuda_api_trace")? {
            let runtime = row["Domain"] == "CUDA_RUNTIME_API";
            assert!(runtime || row["Domain"] == "CUDA_DRIVER_API", "{row:?}");
            let value = (
                row["Function"].clone(),
                number(&row, "Thread_Id")?,
                number(&row, "Result")?,
            );
            let key = (number(&row, "Correlation_Id")?, runtime);
            traced.entry(key).or_default().push(value);
        }
        for list in logged.values_mut().chain(traced.values_mut()) {
            list.sort();
        }
        assert_eq!(traced, logged);

        let waits = log.of("wait").count();
        assert_eq!(trace.rows("synchronization_trace")?.len(), waits);
        let memory = trace.rows("memory_allocation_trace")?;
        assert_eq!(memory.len(), log.of("memory").count());
        assert_eq!(memory.len(), 12);
        quit(target)?;
    }
    Ok(())
}

/// A kernel, the call of the runtime and the call of the driver that launched it have the same
/// correlation id.
#[test]
fn a_kernel_has_the_number_of_its_call() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, &[])?;
    let words = ["--kernel-trace", "--cuda-trace"];
    let session = Session::attach(target.pid(), &kit.scratch().join("calls"), &words)?;
    target.ask("work 5")?;
    let trace = session.detach()?;
    trace.whole()?;
    let mut launches: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for row in trace.rows("cuda_api_trace")? {
        if row["Function"].contains("LaunchKernel") {
            let list = launches.entry(number(&row, "Correlation_Id")?).or_default();
            list.push(row["Function"].clone());
        }
    }
    let kernels = trace.rows("kernel_trace")?;
    assert_eq!((kernels.len(), launches.len()), (40, 40));
    for row in kernels {
        let calls = launches.get_mut(&number(&row, "Correlation_Id")?);
        let calls = calls.ok_or("a kernel without a call")?;
        calls.sort();
        assert_eq!(*calls, ["cuLaunchKernel", "cudaLaunchKernel"]);
    }
    assert!(trace.rows("memory_copy_trace")?.is_empty());
    quit(target)
}

/// A malformed record is recognised and only reported.
#[test]
fn malformed_records_between_valid_ones() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, &[("CUPTI_MODEL", "odd")])?;
    let session = Session::attach(target.pid(), &kit.scratch().join("odd"), &EVERYTHING)?;
    target.ask("work 10")?;
    target.ask("graph 2")?;
    let log = target.model_log()?;
    let trace = session.detach()?;
    let code = trace.exit.status.code();
    assert!([Some(0), Some(32)].contains(&code), "{}", trace.exit);
    let sensible = log
        .of("kernel")
        .filter(|line| line.text("correlation") != "0");
    let there = trace.rows("kernel_trace")?;
    for line in sensible {
        let number = line.text("correlation");
        let found = there.iter().filter(|row| row["Correlation_Id"] == number);
        assert!(found.count() >= 1, "{line:?} is missing");
    }
    quit(target)
}

/// CUPTI stops reading a buffer in its middle. The records after that place are lost and counted,
/// and the exit code shows the loss.
#[test]
fn a_buffer_that_cannot_be_read() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, &[("CUPTI_MODEL", "next=21")])?;
    let session = Session::attach(target.pid(), &kit.scratch().join("broken"), &[])?;
    target.ask("work 10")?;
    let trace = session.detach()?;
    assert_eq!(trace.exit.status.code(), Some(32), "{}", trace.exit);
    assert!(!trace.notes().is_empty(), "{}", trace.exit);
    quit(target)
}

/// Records for which CUPTI had no buffer are counted.
#[test]
fn records_without_a_buffer() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, &[("CUPTI_MODEL", "small")])?;
    let session = Session::attach(target.pid(), &kit.scratch().join("small"), &[])?;
    // There is only one buffer, which one of the two workers gets.
    target.ask("work 10")?;
    let log = target.model_log()?;
    let trace = session.detach()?;
    assert_eq!(trace.exit.status.code(), Some(32), "{}", trace.exit);
    let logged = |what: &str| {
        let told = log.of(what).filter(|line| line.text("correlation") != "0");
        told.count() as u64
    };
    let all = logged("kernel") + logged("copy") + logged("set");
    let mut there = 0;
    for name in ["kernel_trace", "memory_copy_trace", "memory_set_trace"] {
        there += trace.rows(name)?.len() as u64;
    }
    let lost = &trace.json["metadata"]["midair"]["lost"];
    let counts = lost.as_object().into_iter().flatten();
    let lost: u64 = counts.filter_map(|(_, count)| count.as_u64()).sum();
    assert_eq!(there + lost, all, "{}", trace.exit);
    assert!(lost > 0);
    quit(target)
}
