//! Whole sessions with processes in difficult states, on the stand-in runtimes.

use midair_inject::filters::needed;
use midair_tests::attacher::Attacher;
use midair_tests::lab::LabTarget;
use midair_tests::stage::command;
use midair_tests::stand_in::Kit;
use midair_tests::table::Csv;
use midair_tests::target::{PATIENCE, Target, until};
use midair_tests::{Result, compile, is_root_for};

/// System calls that the program itself makes while it works.
const ITS_OWN: [i64; 2] = [libc::SYS_exit_group, libc::SYS_unlink];

/// Starts the program on two GPUs. All its threads are under a filter that kills the process at
/// every system call but these.
fn filtered(kit: &Kit, calls: &[i64]) -> Result<LabTarget> {
    let mut filter = "80000000".to_owned();
    for call in calls {
        filter.push_str(&format!(",{call}"));
    }
    let library = compile::host_library("filter_later")?;
    let library = library.to_str().ok_or("a path is text")?;
    let variables = [("FILTER", filter.as_str()), ("LD_PRELOAD", library)];
    let mut target = kit.start("two_gpus", "states.log", &variables)?;
    target.expect("ready")?;
    work(&mut target)?;
    target.target.signal(libc::SIGUSR2)?;
    let pid = target.target.pid();
    until("the filter", || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        Ok(status.contains("Seccomp:\t2"))
    })?;
    Ok(target)
}

fn work(target: &mut LabTarget) -> Result<()> {
    target.send("work 5")?;
    target.expect("work")?;
    Ok(())
}

/// The attaching side, our library and the tool need only the listed system calls in the process.
/// At any other call it would be killed.
#[test]
fn a_session_under_a_filter_that_lets_pass_what_is_needed() -> Result<()> {
    if !is_root_for("to read filters")? {
        return Ok(());
    }
    let kit = Kit::new()?;
    let mut calls: Vec<i64> = needed().map(|need| need.number).collect();
    calls.extend(ITS_OWN);
    let mut target = filtered(&kit, &calls)?;
    // The second session wakes the worker thread of the first one.
    for _ in 0..2 {
        let words = [
            "--hip-trace",
            "--hsa-trace",
            "--kernel-trace",
            "--memory-copy-trace",
        ];
        let attacher = Attacher::start(target.target.pid(), &words)?;
        work(&mut target)?;
        let traced = attacher.detach()?.code(0)?;
        let kernels = Csv::read(&traced.file("kernel_trace.csv"))?.rows.len();
        assert_eq!(kernels, 20);
    }
    work(&mut target)?;
    assert!(target.target.is_running()?);
    Ok(())
}

#[test]
fn the_system_call_that_a_filter_kills_is_named() -> Result<()> {
    if !is_root_for("to read filters")? {
        return Ok(());
    }
    let kit = Kit::new()?;
    let calls = needed().map(|need| need.number);
    let mut calls: Vec<i64> = calls.filter(|call| *call != libc::SYS_socketpair).collect();
    calls.extend(ITS_OWN);
    let mut target = filtered(&kit, &calls)?;
    let mut attach = command("midair")?;
    attach.args([
        "attach",
        &target.target.pid().to_string(),
        "--duration",
        "1s",
    ]);
    let exit = Target::spawn(attach)?.wait(PATIENCE)?;
    assert_eq!(exit.status.code(), Some(26), "{exit}");
    let said = exit.stderr.join("\n");
    assert!(
        said.contains("would kill the process at socketpair"),
        "{exit}"
    );
    work(&mut target)?;
    assert!(target.target.is_running()?);
    Ok(())
}

/// Of six attachers at the same time one attaches. The others learn that the process is busy,
/// and the session is complete.
#[test]
fn six_attachers_at_once() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = kit.start("two_gpus", "racing.log", &[])?;
    target.expect("ready")?;
    work(&mut target)?;
    for _ in 0..3 {
        let scratch = tempfile::tempdir()?;
        let mut all = Vec::new();
        for index in 0..6 {
            let mut attach = command("midair")?;
            attach
                .args(["attach", &target.target.pid().to_string(), "--kernel-trace"])
                .args(["--output-format", "csv", "-o", "out", "-d"])
                .arg(scratch.path().join(index.to_string()));
            all.push(Target::spawn(attach)?);
        }
        // Five of them end by themselves. The sixth is attached.
        until("five refusals", || {
            let mut running = 0;
            for one in &mut all {
                running += u32::from(one.is_running()?);
            }
            Ok(running <= 1)
        })?;
        let mut won = Vec::new();
        for (index, mut one) in all.into_iter().enumerate() {
            if one.is_running()? {
                one.expect_error("attached to process")?;
                work(&mut target)?;
                won.push(index);
                // The session ends at the end of the attacher's input.
                one.wait(PATIENCE)?.success()?;
            } else {
                let exit = one.wait(PATIENCE)?;
                assert_eq!(exit.status.code(), Some(15), "{exit}");
            }
        }
        let [winner] = won[..] else {
            return Err(format!("{won:?} were attached").into());
        };
        let file = scratch
            .path()
            .join(format!("{winner}/out_kernel_trace.csv"));
        assert_eq!(Csv::read(&file)?.rows.len(), 20);
    }
    Ok(())
}
