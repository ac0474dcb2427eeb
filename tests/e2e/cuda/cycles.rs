//! Attached again and again, with other options, and nothing of it stays.

use crate::kit::{NEWEST, Session, contiguous, kernels_are_true, quit, start};
use midair_sim_cuda::Toolkit;
use midair_tests::Result;
use midair_tests::cuda::Kit;
use midair_tests::snapshot::{Change, Snapshot, memory};
use midair_tests::target::until;

/// Our thread and our library stay, and CUPTI, which we loaded.
fn ours(change: &Change) -> bool {
    let words = ["midair", "libcupti"];
    change.new
        && words
            .iter()
            .any(|word| change.text.contains(word) || change.name.contains(word))
}

#[test]
fn twenty_sessions_leave_nothing_behind() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, &[("PAUSE_US", "500")])?;
    let pid = target.pid();
    target.ask("work 2")?;
    let untouched = Snapshot::take(pid)?;
    let mut parked: Option<Snapshot> = None;
    target.ask("start")?;
    for session in 0..20 {
        let log = target.model_log()?;
        let dir = kit.scratch().join(format!("session{session}"));
        let attached = Session::attach(pid, &dir, &[])?;
        let before = log.of("kernel").count();
        until("work", || {
            Ok(target.model_log()?.of("kernel").count() >= before + 60)
        })?;
        let trace = attached.detach()?;
        trace.whole()?;
        let log = target.model_log()?.since(&log);
        assert!(contiguous(&trace, &log)? >= 20, "{}", trace.exit);
        let now = Snapshot::take(pid)?;
        let diff = untouched.diff(&now).without_heap().without(ours);
        assert!(diff.is_empty(), "session {session}:\n{diff}");
        if let Some(parked) = &parked {
            let diff = parked.diff(&now).without_heap();
            assert!(diff.is_empty(), "session {session}:\n{diff}");
        }
        parked = Some(now);
    }
    target.ask("stop")?;
    quit(target)
}

/// The bytes of the stand-in's code are as they were: also the entries by which another profiler would come.
#[test]
fn code_is_as_it_was() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, &[])?;
    let pid = target.pid();
    let code = |word: &str| -> Result<Vec<(u64, Vec<u8>)>> {
        let mut found = Vec::new();
        for map in Snapshot::take(pid)?.maps {
            if map.perms.contains('x') && map.path.contains(word) {
                let bytes = memory(pid, map.start, (map.end - map.start) as usize)?;
                found.push((map.start, bytes));
            }
        }
        Ok(found)
    };
    // CUPTI is there from the first session on.
    Session::attach(pid, &kit.scratch().join("first"), &[])?
        .detach()?
        .whole()?;
    let (driver, cupti) = (code("libcuda.so")?, code("libcupti.so")?);
    assert_eq!((driver.len(), cupti.len()), (1, 1));
    let attached = Session::attach(pid, &kit.scratch().join("second"), &[])?;
    target.ask("work 2")?;
    assert_eq!(code("libcuda.so")?, driver, "the driver is never touched");
    attached.detach()?.whole()?;
    assert_eq!(code("libcuda.so")?, driver);
    assert_eq!(code("libcupti.so")?, cupti);
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

/// The program uses CUPTI itself, before and after.
#[test]
fn between_sessions_of_another_profiler() -> Result<()> {
    let kit = Kit::new()?;
    for major in [12, 13] {
        let mut target = start(&kit, Toolkit::Major(major), &[])?;
        let other = format!("other {}", kit.stand_in.cupti(major).display());
        assert_eq!(target.ask(&other)?, "other subscribe 0 kernels 10");
        target.ask("leave")?;
        let dir = kit.scratch().join(major.to_string());
        let before = target.model_log()?;
        let session = Session::attach(target.pid(), &dir, &[])?;
        target.ask("work 3")?;
        let trace = session.detach()?;
        trace.whole()?;
        let log = target.model_log()?.since(&before);
        assert_eq!(kernels_are_true(&trace, &log)?, 24);
        assert_eq!(target.ask(&other)?, "other subscribe 0 kernels 10");
        target.ask("leave")?;
        quit(target)?;
    }
    Ok(())
}
