//! Repeated attaches with changing options leave nothing behind.

use crate::cuda::kit::{NEWEST, Session, contiguous, kernels_are_true, quit, start, stays};
use midair_sim_cuda::Toolkit;
use midair_tests::Result;
use midair_tests::cuda::Kit;
use midair_tests::snapshot::{Snapshot, memory};

#[test]
fn twenty_sessions_leave_nothing_behind() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, &[("PAUSE_US", "5000")])?;
    let pid = target.pid();
    target.ask("work 2")?;
    let untouched = Snapshot::take(pid)?;
    let mut parked: Option<Snapshot> = None;
    target.ask("start")?;
    for session in 0..20 {
        let before = target.log_length()?;
        let dir = kit.scratch().join(format!("session{session}"));
        let attached = Session::attach(pid, &dir, &[])?;
        target.await_kernels(60)?;
        let trace = attached.detach()?;
        trace.whole()?;
        let log = target.log_from(before)?;
        assert!(contiguous(&trace, &log)? >= 20, "{}", trace.exit);
        let now = Snapshot::take(pid)?;
        let diff = untouched.diff(&now).without_heap().without(stays);
        assert!(diff.is_empty(), "session {session}:\n{diff}");
        if let Some(parked) = &parked {
            let diff = parked.diff(&now).without_heap();
            assert!(diff.is_empty(), "session {session}:\n{diff}");
        }
        parked = Some(now);
    }
    target.ask("stop")?;
    let finalized = target.model_log()?.of("finalize").count();
    assert_eq!(
        finalized, 20,
        "it costs something even when it is switched off"
    );
    quit(target)
}

/// Where CUPTI recorded kernels of graphs, finalizing it is not safe while the application's
/// threads run. So it stays in the process, switched off, and what it brings along is there only
/// once. Where it recorded calls alone, it is finalized each time.
#[test]
fn cupti_that_may_not_be_finalized() -> Result<()> {
    let kit = Kit::new()?;
    for (way, words, finalized) in [("calls", &["--cuda-trace"][..], 4), ("graph", &[], 0)] {
        let mut target = start(&kit, NEWEST, &[])?;
        let pid = target.pid();
        let mut parked: Option<Snapshot> = None;
        for session in 0..4 {
            let dir = kit.scratch().join(format!("{way}{session}"));
            let attached = Session::attach(pid, &dir, words)?;
            target.ask("work 2")?;
            target.ask("graph 2")?;
            let trace = attached.detach()?;
            trace.whole()?;
            let now = Snapshot::take(pid)?;
            if let Some(parked) = &parked {
                let diff = parked.diff(&now).without_heap();
                assert!(diff.is_empty(), "{way} {session}:\n{diff}");
            }
            parked = Some(now);
        }
        let count = target.model_log()?.of("finalize").count();
        assert_eq!(count, finalized, "{way}");
        quit(target)?;
    }
    Ok(())
}

/// The code of the stand-in's libraries is the same afterwards, including the entry points that
/// another profiler would use.
#[test]
fn code_is_as_it_was() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, &[])?;
    let pid = target.pid();
    // The kernel may list the same code in more mappings than before.
    let code = |word: &str| -> Result<Vec<u8>> {
        let mut found = Vec::new();
        for map in Snapshot::take(pid)?.maps {
            if map.perms.contains('x') && map.path.contains(word) {
                found.extend(memory(pid, map.start, (map.end - map.start) as usize)?);
            }
        }
        assert!(!found.is_empty(), "no {word}");
        Ok(found)
    };
    // This session brings CUPTI, which stays in the process.
    Session::attach(pid, &kit.scratch().join("first"), &[])?
        .detach()?
        .whole()?;
    let (driver, cupti) = (code("libcuda.so")?, code("libcupti.so")?);
    let attached = Session::attach(pid, &kit.scratch().join("second"), &[])?;
    target.ask("work 2")?;
    assert!(code("libcuda.so")? == driver, "the driver is never touched");
    assert!(
        code("libcupti.so")? != cupti,
        "another profiler is watched for"
    );
    attached.detach()?.whole()?;
    assert!(code("libcuda.so")? == driver);
    assert!(code("libcupti.so")? == cupti);
    let writable = Snapshot::take(pid)?
        .maps
        .into_iter()
        .any(|map| map.perms.starts_with("rwx") && map.path.contains("libcupti"));
    assert!(!writable, "its pages are as they were");
    quit(target)
}

#[test]
fn a_second_session_with_other_options() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, &[])?;
    let pid = target.pid();
    for (name, words, tables) in [
        ("kernels", &["--kernel-trace"][..], &["kernel_trace"][..]),
        (
            "calls",
            &["--cuda-trace"],
            &["cuda_api_trace", "synchronization_trace"],
        ),
        (
            "copies",
            &["--memory-copy-trace"],
            &["memory_copy_trace", "memory_set_trace"],
        ),
    ] {
        let session = Session::attach(pid, &kit.scratch().join(name), words)?;
        target.ask("work 3")?;
        let trace = session.detach()?;
        trace.whole()?;
        let written: Vec<String> = trace
            .tables()?
            .into_iter()
            .filter(|table| table.ends_with("_trace"))
            .collect();
        assert_eq!(written, tables, "{}", trace.exit);
    }
    quit(target)
}

/// The program itself uses CUPTI, before our session and after it.
#[test]
fn between_sessions_of_another_profiler() -> Result<()> {
    let kit = Kit::new()?;
    for major in [12, 13] {
        let mut target = start(&kit, Toolkit::Major(major), &[])?;
        let other = format!("other {}", kit.stand_in.cupti(major).display());
        assert_eq!(target.ask(&other)?, "other subscribe 0 kernels 10");
        target.ask("leave")?;
        let dir = kit.scratch().join(major.to_string());
        let before = target.log_length()?;
        let session = Session::attach(target.pid(), &dir, &[])?;
        target.ask("work 3")?;
        let trace = session.detach()?;
        trace.whole()?;
        let log = target.log_from(before)?;
        assert_eq!(kernels_are_true(&trace, &log)?, 24);
        assert_eq!(target.ask(&other)?, "other subscribe 0 kernels 10");
        target.ask("leave")?;
        quit(target)?;
    }
    Ok(())
}
