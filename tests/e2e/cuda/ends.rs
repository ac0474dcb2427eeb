//! Sessions that end by what the process, its attacher or another profiler does.

use crate::cuda::kit::{
    EVERYTHING, NEWEST, ROUND, Session, contiguous, kernels_are_true, quit, start,
};
use midair_tests::cuda::{CudaLog, CudaTarget, Kit};
use midair_tests::snapshot::Snapshot;
use midair_tests::target::{PATIENCE, until};
use midair_tests::{Error, Result};

/// Exit code of a profiler whose target was killed, or became another program.
const TARGET_KILLED: i32 = 31;

/// Makes each worker do a round every 5 ms.
const SLOWLY: &[(&str, &str)] = &[("PAUSE_US", "5000")];

/// Another profiler starts during our session. It gets what it asks for, what we recorded until
/// then is complete, and the next session works again.
#[test]
fn another_profiler_starts_during_the_session() -> Result<()> {
    let kit = Kit::new()?;
    for running in [false, true] {
        let mut target = start(&kit, NEWEST, SLOWLY)?;
        let pid = target.pid();
        if running {
            target.ask("start")?;
        }
        let before = target.log_length()?;
        let session = Session::attach(pid, &kit.scratch().join(format!("yield{running}")), &[])?;
        if running {
            target.await_kernels(50)?;
        } else {
            target.ask("work 10")?;
        }
        let told = target.ask(&format!("other {}", kit.stand_in.cupti(13).display()))?;
        let count = told.strip_prefix("other subscribe 0 kernels ");
        let count: usize = count.ok_or_else(|| format!("it said {told}"))?.parse()?;
        assert!(count == 10 || running && count > 10, "{told}");
        let trace = session.ended()?;
        assert_eq!(trace.exit.status.code(), Some(0), "{}", trace.exit);
        let said = trace.exit.stderr.join("\n");
        assert!(said.contains("another profiler"), "{said}");
        let log = target.log_from(before)?;
        if running {
            assert!(contiguous(&trace, &log)? >= 40, "{}", trace.exit);
            target.ask("stop")?;
        } else {
            assert_eq!(kernels_are_true(&trace, &log)?, 80, "{}", trace.exit);
        }
        target.ask("leave")?;
        let before = target.log_length()?;
        let session = Session::attach(pid, &kit.scratch().join(format!("next{running}")), &[])?;
        target.ask("work 2")?;
        let trace = session.detach()?;
        trace.whole()?;
        let log = target.log_from(before)?;
        assert_eq!(kernels_are_true(&trace, &log)?, 16);
        quit(target)?;
    }
    Ok(())
}

/// After its first use, PyTorch's profiler stays subscribed without doing anything. That is no
/// reason to refuse an attach. When it traces again, it has priority.
#[test]
fn another_profiler_that_is_idle() -> Result<()> {
    let kit = Kit::new()?;
    idle_profiler(&kit, "quiet", &[])
}

/// A kernel that is launched while we find out whether another profiler records lies in that
/// profiler's buffer. The records of our session must not follow it there. (Because they did, whole
/// sessions alongside PyTorch's profiler once had no records.)
#[test]
fn an_idle_profilers_buffer_is_returned_to_it() -> Result<()> {
    let kit = Kit::new()?;
    idle_profiler(&kit, "launching", &[("CUPTI_MODEL", "launches")])
}

fn idle_profiler(kit: &Kit, name: &str, environment: &[(&str, &str)]) -> Result<()> {
    let mut target = start(kit, NEWEST, environment)?;
    let scratch = |part: &str| kit.scratch().join(format!("{name}-{part}"));
    let pid = target.pid();
    let other = format!("other {}", kit.stand_in.cupti(13).display());
    assert_eq!(target.ask(&other)?, "other subscribe 0 kernels 10");
    target.ask("idle")?;
    let before = target.log_length()?;
    let session = Session::attach(pid, &scratch("idle"), &[])?;
    target.ask("work 5")?;
    let trace = session.detach()?;
    trace.whole()?;
    let log = target.log_from(before)?;
    assert_eq!(kernels_are_true(&trace, &log)?, 40);
    assert_eq!(target.ask("again")?, "again kernels 10");
    target.ask("idle")?;

    let before = target.log_length()?;
    let session = Session::attach(pid, &scratch("again"), &[])?;
    target.ask("work 5")?;
    assert_eq!(target.ask("again")?, "again kernels 10");
    let trace = session.ended()?;
    assert_eq!(trace.exit.status.code(), Some(0), "{}", trace.exit);
    let said = trace.exit.stderr.join("\n");
    assert!(said.contains("another profiler"), "{said}");
    let log = target.log_from(before)?;
    assert_eq!(kernels_are_true(&trace, &log)?, 40, "{}", trace.exit);
    quit(target)
}

/// Whether another profiler records is a question that hung processes (CUDA-047). It was asked in each session after one that
/// left CUPTI in the process, if the program had mapped CUPTI.
#[test]
fn a_mapped_cupti_that_stays_is_asked_only_after_another_profiler() -> Result<()> {
    let kit = Kit::new()?;
    let library = kit.stand_in.cupti(13).display().to_string();
    let mut target = start(&kit, NEWEST, &[("LD_PRELOAD", &library)])?;
    let session = |target: &mut CudaTarget, name: &str| -> Result<usize> {
        let before = target.log_length()?;
        let session = Session::attach(target.pid(), &kit.scratch().join(name), &[])?;
        target.ask("work 5")?;
        target.ask("graph 2")?;
        let trace = session.detach()?;
        trace.whole()?;
        let log = target.log_from(before)?;
        assert!(kernels_are_true(&trace, &log)? >= 40, "{name}");
        assert_eq!(log.of("finalize").count(), 0, "{name}");
        Ok(log.of("asked").count())
    };
    for name in ["first", "second", "third"] {
        assert_eq!(session(&mut target, name)?, 0, "{name}");
    }
    let other = format!("other {library}");
    assert_eq!(target.ask(&other)?, "other subscribe 0 kernels 10");
    target.ask("idle")?;
    assert_eq!(session(&mut target, "after another")?, 1);
    quit(target)
}

#[test]
fn the_process_ends() -> Result<()> {
    let kit = Kit::new()?;
    for way in ["quit", "exit", "_exit", "exec", "abort", "kill"] {
        one_end(&kit, way).map_err(|error| -> Error { format!("{way}: {error}").into() })?;
    }
    Ok(())
}

fn one_end(kit: &Kit, way: &str) -> Result<()> {
    let mut target = start(kit, NEWEST, SLOWLY)?;
    let session = Session::attach(target.pid(), &kit.scratch().join(way), &[])?;
    target.ask("start")?;
    target.await_kernels(100)?;
    target.ask("stop")?;
    let settled = target.model_log()?;
    match way {
        "kill" => target.signal(libc::SIGKILL)?,
        way => target.send(way)?,
    }
    let trace = session.ended()?;
    let log = target.log.clone();
    let exit = target.target.wait(PATIENCE)?;
    match way {
        "abort" => assert_eq!(exit.signal(), Some(libc::SIGABRT), "{exit}"),
        "kill" => assert_eq!(exit.signal(), Some(libc::SIGKILL), "{exit}"),
        _ => assert_eq!(exit.status.code(), Some(0), "{exit}"),
    }
    let code = match way {
        "exec" | "abort" | "kill" => TARGET_KILLED,
        _ => 0,
    };
    assert_eq!(trace.exit.status.code(), Some(code), "{}", trace.exit);
    let log = CudaLog::read(&log)?;
    let there = kernels_are_true(&trace, &log)?;
    if ["quit", "exit"].contains(&way) {
        // The process ended in good order, so everything is recorded.
        assert_eq!(
            there,
            settled.of("kernel").count() - log_before(&log)?,
            "{}",
            trace.exit
        );
    }
    Ok(())
}

/// Returns how many kernels of a log no client recorded.
fn log_before(log: &CudaLog) -> Result<usize> {
    Ok(log
        .of("kernel")
        .filter(|line| line.text("correlation") == "0")
        .count())
}

/// The attacher is killed. The process goes on, the session in it ends by the lease, CUPTI is
/// removed, and the next attach works.
#[test]
fn the_attacher_is_killed() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, SLOWLY)?;
    let pid = target.pid();
    target.ask("start")?;
    Session::attach(pid, &kit.scratch().join("first"), &[])?
        .detach()?
        .whole()?;
    let parked = Snapshot::take(pid)?;
    let session = Session::attach(pid, &kit.scratch().join("killed"), &[])?;
    target.await_kernels(20)?;
    session.process.signal(libc::SIGKILL)?;
    let exit = session.process.wait(PATIENCE)?;
    assert_eq!(exit.signal(), Some(libc::SIGKILL));
    until("the end of the lease", || {
        Ok(parked.diff(&Snapshot::take(pid)?).without_heap().is_empty())
    })?;
    let before = target.log_length()?;
    let session = Session::attach(pid, &kit.scratch().join("next"), &[])?;
    target.await_kernels(50)?;
    let trace = session.detach()?;
    trace.whole()?;
    let log = target.log_from(before)?;
    assert!(contiguous(&trace, &log)? >= 30);
    target.ask("stop")?;
    quit(target)
}

/// Threads that end while CUPTI is finalized. CUPTI's destructor for threads reads what is freed
/// first, so their ends are held; the process died at the first detach before they were. (CUPTI 13.0
/// alone: `gpu/churn.cu`.)
#[test]
fn threads_end_while_cupti_is_finalized() -> Result<()> {
    alongside_threads_that_come_and_go("teardown_ms=20")
}

/// The driver calls a function of CUPTI's at each call, and threads are in it when CUPTI is finalized.
#[test]
fn threads_are_in_a_callback_of_cupti_while_it_is_finalized() -> Result<()> {
    alongside_threads_that_come_and_go("teardown_ms=20,callback_ms=4")
}

/// At CUPTI's first use the driver calls its function before what the function reads is there (13.5). The process died
/// at the first attach before threads were kept out of it (`gpu/start.cu` shows it without midair).
#[test]
fn threads_call_cuda_while_cupti_is_first_used() -> Result<()> {
    alongside_threads_that_come_and_go("start_ms=20")
}

/// When a kind is enabled, CUPTI 13.5 makes a list that its callback reads meanwhile. The process died (SIGABRT) at the
/// first attach before threads were kept out of it until all kinds are enabled.
#[test]
fn threads_call_cuda_while_cupti_makes_its_lists() -> Result<()> {
    alongside_threads_that_come_and_go("list_us=2000")
}

/// CUPTI keeps data with a context from a callback in the call that makes it, and leaves them there when it is finalized before the
/// call has ended. The process died in a later session before that was waited for (CUPTI 13.0; `gpu/contexts.cu`).
#[test]
fn threads_make_contexts_while_cupti_is_finalized() -> Result<()> {
    let kit = Kit::new()?;
    let variables = [("CUDA_MODEL_CONTEXT_MS", "30"), ("PAUSE_US", "50000")];
    let mut target = start(&kit, NEWEST, &variables)?;
    target.ask("churn contexts")?;
    for turn in 0..40 {
        let session = Session::attach(
            target.pid(),
            &kit.scratch().join(format!("contexts{turn}")),
            &[],
        )?;
        target.ask("work 2")?;
        let trace = session.detach()?;
        trace.whole()?;
        let said = trace.exit.stderr.join("\n");
        assert!(!said.contains("CUPTI stays"), "{said}");
    }
    let ended = target.ask("calm")?;
    assert!(ended.ends_with("bad 0"), "{ended}");
    quit(target)
}

fn alongside_threads_that_come_and_go(model: &str) -> Result<()> {
    let kit = Kit::new()?;
    let variables = [("CUPTI_MODEL", model), ("PAUSE_US", "5000")];
    let mut target = start(&kit, NEWEST, &variables)?;
    let pid = target.pid();
    target.ask("churn")?;
    let mut parked: Option<Snapshot> = None;
    for (turn, words) in [&[][..], &["--sys-trace"], &["--cuda-trace"]]
        .iter()
        .enumerate()
    {
        let before = target.log_length()?;
        let session = Session::attach(pid, &kit.scratch().join(format!("churn{turn}")), words)?;
        target.await_kernels(100)?;
        let trace = session.detach()?;
        trace.whole()?;
        if turn < 2 {
            let log = target.log_from(before)?;
            assert!(contiguous(&trace, &log)? >= 90, "{}", trace.exit);
        }
        let said = trace.exit.stderr.join("\n");
        assert!(!said.contains("CUPTI stays"), "{said}");
        parked = parked.or(Some(Snapshot::take(pid)?));
    }
    let ended = target.ask("calm")?;
    let counts: Vec<i64> = ended
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    assert!(
        counts.first() > Some(&50) && counts.get(1) == Some(&0),
        "{ended}"
    );
    let now = Snapshot::take(pid)?;
    let diff = now.diff(&parked.ok_or("no session")?).without_heap();
    // Only threads of the program's have ended since, and their stacks have gone.
    assert!(!format!("{diff}").contains("midair"), "{diff}");
    assert_eq!(target.model_log()?.of("finalize").count(), 3);
    quit(target)
}

/// A CUPTI that needs long for every step is waited for.
#[test]
fn a_slow_cupti() -> Result<()> {
    let kit = Kit::new()?;
    let faults = [("CUPTI_MODEL", "enable_ms=300,flush_ms=50,finalize_ms=800")];
    let mut target = start(&kit, NEWEST, &faults)?;
    let before = target.log_length()?;
    let session = Session::attach(target.pid(), &kit.scratch().join("slow"), &[])?;
    target.ask("work 5")?;
    let trace = session.detach()?;
    trace.whole()?;
    let log = target.log_from(before)?;
    assert_eq!(kernels_are_true(&trace, &log)?, 40);
    quit(target)
}

/// Long kernels are queued one behind another at the detach. Those that are not finished then have
/// no times, and are counted.
#[test]
fn long_kernels_under_way() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, &[("CUDA_MODEL_KERNEL_NS", "50000000")])?;
    let before = target.log_length()?;
    let session = Session::attach(target.pid(), &kit.scratch().join("long"), &[])?;
    target.ask("start")?;
    target.await_kernels(9)?;
    let trace = session.detach()?;
    assert_eq!(trace.exit.status.code(), Some(0), "{}", trace.exit);
    let log = target.log_from(before)?;
    assert!(contiguous(&trace, &log)? >= 9, "{}", trace.exit);
    let midair = &trace.json["metadata"]["midair"];
    assert_eq!(midair["lost"].as_object().map(|lost| lost.len()), Some(0));
    let untimed = midair["untimed"].as_object().ok_or("no counts")?;
    let count = untimed
        .get("still running at detach")
        .and_then(serde_json::Value::as_u64);
    // These are at most the operations that both workers queue in one round.
    let most = 2 * (ROUND.0 + ROUND.1 + ROUND.2) as u64;
    assert!(count.unwrap_or(0) <= most, "{}", trace.exit);
    assert!(untimed.len() <= 1, "{untimed:?}");
    target.ask("stop")?;
    quit(target)
}

/// At a detach while the program captures a graph, we do not wait for its context, since that would
/// break the capture.
#[test]
fn a_graph_is_captured_during_the_session() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, &[])?;
    let before = target.log_length()?;
    let session = Session::attach(target.pid(), &kit.scratch().join("capture"), &[])?;
    target.ask("work 3")?;
    target.ask("capture")?;
    let trace = session.detach()?;
    target.ask("captured")?;
    trace.whole()?;
    let log = target.log_from(before)?;
    assert_eq!(kernels_are_true(&trace, &log)?, 24);
    quit(target)
}

/// CUPTI stays in a process with graphs. If single calls were still left out when their kinds were
/// disabled, all later calls of a thread would have one correlation id: also in PyTorch's profiler,
/// which then fails (CUPTI 13.0 on an H100).
#[test]
fn calls_have_ids_of_their_own_after_a_session_with_graphs() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, &[])?;
    for name in ["first", "second"] {
        let before = target.log_length()?;
        let session = Session::attach(target.pid(), &kit.scratch().join(name), &EVERYTHING)?;
        target.ask("work 3")?;
        target.ask("graph 2")?;
        let trace = session.detach()?;
        trace.whole()?;
        let log = target.log_from(before)?;
        assert!(kernels_are_true(&trace, &log)? >= 24);
    }
    assert_eq!(target.model_log()?.of("finalize").count(), 0);
    quit(target)
}

/// A child that is forked during the session is not recorded.
#[test]
fn a_child_is_forked_during_the_session() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, &[])?;
    let before = target.log_length()?;
    let session = Session::attach(target.pid(), &kit.scratch().join("fork"), &[])?;
    target.ask("work 2")?;
    assert_eq!(target.ask("fork")?, "fork 7");
    target.ask("work 2")?;
    let trace = session.detach()?;
    trace.whole()?;
    let log = target.log_from(before)?;
    assert_eq!(kernels_are_true(&trace, &log)?, 32);
    quit(target)
}

/// The process has CUDA's libraries but has not initialised CUDA yet. Recording starts when it
/// does.
#[test]
fn before_cuda_is_initialised() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = kit.start("cuda_work", NEWEST, &[("LATE", "1"), SLOWLY[0]])?;
    target.expect("early")?;
    let session = Session::attach(target.pid(), &kit.scratch().join("early"), &[])?;
    target.send("go")?;
    target.expect("ready")?;
    target.ask("start")?;
    target.await_kernels(400)?;
    target.ask("stop")?;
    let trace = session.detach()?;
    trace.whole()?;
    let log = target.model_log()?;
    assert!(contiguous(&trace, &log)? >= 20, "{}", trace.exit);
    quit(target)
}
