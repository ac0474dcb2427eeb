//! A process that is still starting when the attach starts. The attacher waits for it, and does not
//! refuse it for what it has not done yet.

use midair_tests::Result;
use midair_tests::kernel::has_safe_points;
use midair_tests::lab::LabTarget;
use midair_tests::stage::command;
use midair_tests::stand_in::Kit;
use midair_tests::target::{PATIENCE, Target, run};
use std::process::Command;
use std::time::{Duration, Instant};

/// Starts a shell that becomes the program on command.
fn shell(kit: &Kit) -> Result<LabTarget> {
    let program = kit.program("two_gpus")?;
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "echo shell; read line; exec \"$0\""])
        .arg(program);
    let mut target = kit.start_command(shell, "model.log", &[])?;
    target.expect("shell")?;
    Ok(target)
}

fn quit(mut target: LabTarget) -> Result<()> {
    target.send("work 1")?;
    target.expect("work")?;
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

#[test]
fn a_young_process_is_waited_for() -> Result<()> {
    let kit = Kit::new()?;
    let front: [(&str, &[&str], &str); 3] = [
        (
            "rocprofv3",
            &[
                "--attach-children",
                "false",
                "--attach-duration-msec",
                "200",
                "--wait",
                "60s",
                "--pid",
            ],
            "Attaching to PID",
        ),
        (
            "rocprofv3",
            &["--attach-duration-msec", "200", "--wait", "60s", "--pid"],
            "Attaching to PID",
        ),
        (
            "midair",
            &["attach", "-v", "--wait", "60s", "--duration", "200ms"],
            "midair: info: attaching",
        ),
    ];
    for (name, words, begun) in front {
        let mut target = shell(&kit)?;
        let mut attach = command(name)?;
        attach
            .args(words)
            .arg(target.pid().to_string())
            .current_dir(kit.scratch());
        let mut attacher = Target::spawn(attach)?;
        match name {
            "midair" => attacher.expect_error(begun)?,
            _ => attacher.expect(begun)?,
        };
        target.send("become the program")?;
        target.expect("ready")?;
        attacher.wait(PATIENCE)?.success()?;
        quit(target)?;
    }
    Ok(())
}

#[test]
fn without_waiting_it_is_refused_at_once() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = shell(&kit)?;
    for name in ["midair", "rocprofv3"] {
        let pid = target.pid().to_string();
        let mut attach = command(name)?;
        match name {
            "midair" => attach.args(["attach", "--wait", "1ms", &pid]),
            _ => attach.args(["--wait", "1ms", "--pid", &pid]),
        };
        let begun = Instant::now();
        let exit = run(attach, PATIENCE)?;
        assert_eq!(exit.status.code(), Some(14), "{exit}");
        assert!(begun.elapsed() < Duration::from_secs(4), "{exit}");
    }
    target.send("become the program")?;
    target.expect("ready")?;
    quit(target)
}

/// AMD's runtime fills memory for seconds when it starts, and makes no system call meanwhile. Eight
/// programs that do so keep all processors busy.
#[test]
fn programs_that_start_on_a_busy_machine_are_entered() -> Result<()> {
    if !has_safe_points()? {
        return Ok(());
    }
    let kit = Kit::new()?;
    let program = kit.program("fills")?;
    let mut started = Vec::new();
    for number in 0..8 {
        let log = format!("model-{number}.log");
        let target = kit.start_command(Command::new(&program), &log, &[])?;
        let mut attach = command("midair")?;
        attach
            .args(["attach", "--duration", "50ms", "-d"])
            .arg(kit.scratch().join(number.to_string()))
            .arg(target.pid().to_string());
        started.push((target, Target::spawn(attach)?));
    }
    let mut targets = Vec::new();
    for (target, attacher) in started {
        attacher.wait(PATIENCE)?.success()?;
        targets.push(target);
    }
    for mut target in targets {
        target.expect("filling")?;
        target.target.signal(libc::SIGUSR1)?;
        target.expect("done")?;
        target.target.wait(PATIENCE)?.success()?;
    }
    Ok(())
}
