//! The target of a session ends, executes another program or is stopped, after each of its steps.
//! The attacher must end soon, report what happened by its exit code, keep what was recorded, and
//! leak no descriptor.

use std::time::Duration;

use crate::common::{Worker, drive, numbers, pipe, serve, steps};
use midair_tests::stand_in::Kit;
use midair_tests::target::{PATIENCE, Target, run};

/// Returns the longest time that it may take: a second, or ten where other tests run alongside this
/// one and after a stop, which may end at any moment.
fn soon(what: &str) -> Duration {
    Duration::from_secs(if crate::common::long() && what != "stop" {
        1
    } else {
        10
    })
}

struct Round {
    steps: Vec<String>,
    took: Duration,
    had: [usize; 3],
    at: String,
    outcome: String,
}

fn round(attacher: &mut Target, line: &str) -> Round {
    attacher.send(line).unwrap();
    let names = steps(&attacher.expect("steps").unwrap());
    let said = attacher.expect("round").unwrap();
    let between = |from: &str, to: &str| {
        let rest = said.split_once(from).unwrap().1;
        rest.split_once(to).unwrap().0.to_owned()
    };
    let had: Vec<usize> = between("had=[", "]")
        .split(", ")
        .map(|number| number.parse().unwrap())
        .collect();
    let at = between("at=\"", "\"");
    Round {
        steps: names,
        took: Duration::from_micros(between("took=", " ").parse().unwrap()),
        had: had.try_into().unwrap(),
        outcome: said
            .split_once(&format!("at=\"{at}\" "))
            .unwrap()
            .1
            .to_owned(),
        at,
    }
}

fn fits(what: &str, outcome: &str) -> bool {
    let told = |code: &str, words: &str| outcome.contains(code) && outcome.contains(words);
    let before = told("failed 10", "the process") || told("failed 31", "the process ended");
    outcome == "ok"
        || match what {
            "stop" => told("failed 19", "stopped") || told(", 30: ", "stopped"),
            // Before Linux 6.15 only the zombie tells how it ended, until its parent reaps it.
            "kill" => {
                told("failed 31", "killed by signal 9") || told(", 31: ", "killed by signal 9")
            }
            "abort" => {
                told("failed 31", "killed by signal 6") || told(", 31: ", "killed by signal 6")
            }
            "exec" => before || told(", 31: ", "exec"),
            _ => before,
        }
}

fn is_its_own(what: &str, worker: Worker, when: &str) {
    if what == "stop" {
        let status = std::fs::read_to_string(format!("/proc/{}/status", worker.pid())).unwrap();
        assert!(
            status.contains("State:\tT") && status.contains("TracerPid:\t0"),
            "{when}: {status}"
        );
        worker.target.signal(libc::SIGCONT).unwrap();
        worker.quit();
        return;
    }
    let mut target = worker.target.target;
    if what == "exec" {
        target
            .expect("other")
            .unwrap_or_else(|error| panic!("{when}: {error}"));
    }
    let exit = target
        .wait(PATIENCE)
        .unwrap_or_else(|error| panic!("{when}: {error}"));
    let ended = match what {
        "kill" => exit.signal() == Some(libc::SIGKILL),
        "abort" => exit.signal() == Some(libc::SIGABRT),
        "_exit" => exit.status.code() == Some(7),
        "exec" => exit.status.code() == Some(5),
        _ => exit.status.code() == Some(0),
    };
    assert!(ended, "{when}: {exit}");
}

fn after_every_step(what: &str) {
    let kit = Kit::new().unwrap();
    let control = pipe(kit.scratch());
    let mut attacher = serve();
    let line = |number: u64, pid: i32| {
        let out = kit.scratch().join(format!("out-{number}"));
        format!(
            "{number} {what} {pid} {} {}",
            control.display(),
            out.display()
        )
    };
    let first = Worker::start(&kit, "first.log", Some(&control));
    let unharmed = round(&mut attacher, &line(u64::MAX, first.pid()));
    assert_eq!(unharmed.outcome, "ok", "{:?}", unharmed.steps);
    first.quit();
    let (mut longest, mut outcomes) = (Duration::ZERO, Vec::new());
    let numbers = numbers(&unharmed.steps);
    assert!(numbers.len() >= 14, "{:?}", unharmed.steps);
    for number in numbers {
        let worker = Worker::start(&kit, "model.log", Some(&control));
        let round = round(&mut attacher, &line(number, worker.pid()));
        let when = format!("{what} after {}: {}", round.at, round.outcome);
        // The last steps may be reached in fewer rounds, or not at all.
        if round.at.is_empty() {
            assert_eq!(round.outcome, "ok", "{when}");
            worker.quit();
            continue;
        }
        assert!(fits(what, &round.outcome), "{when}");
        assert!(round.took < soon(what), "{when}: {:?}", round.took);
        assert_eq!(round.had[..2], unharmed.had[..2], "{when}: something stays");
        assert!(
            round.had[2] < unharmed.had[2] + 40,
            "{when}: {:?} mappings, {:?} before",
            round.had[2],
            unharmed.had[2]
        );
        longest = longest.max(round.took);
        eprintln!("{:?} {when}", round.took);
        outcomes.push(round.outcome);
        is_its_own(what, worker, &when);
    }
    let failed = outcomes.iter().filter(|outcome| *outcome != "ok").count();
    eprintln!(
        "{what}: {} steps, {failed} sessions that did not end as usual, longest {longest:?}",
        outcomes.len()
    );
    // What was recorded before the end was kept.
    let kept = |outcome: &String| outcome.starts_with("written ");
    assert!(
        what.contains("exit") || outcomes.iter().any(kept),
        "{outcomes:?}"
    );
    assert!(failed >= 5, "{outcomes:?}");
    attacher.wait(PATIENCE).unwrap().success().unwrap();
}

#[test]
fn killed() {
    after_every_step("kill");
}

#[test]
fn exits() {
    after_every_step("exit");
}

#[test]
fn becomes_another_program() {
    after_every_step("exec");
}

/// A shell that runs `env`, which runs the program: whoever attaches right after the start means the
/// last of these.
#[test]
fn another_program_before_the_entry_is_entered_in_its_place() {
    let kit = Kit::new().unwrap();
    let control = pipe(kit.scratch());
    let mut worker = Worker::start(&kit, "model.log", Some(&control));
    let out = kit.scratch().join("out");
    let (pid, out) = (worker.pid().to_string(), out.to_str().unwrap());
    let command = drive(&[&pid, out, "--again", control.to_str().unwrap()]);
    let exit = run(command, PATIENCE).unwrap().success().unwrap();
    assert!(exit.stdout.join("\n").contains("wrote "), "{exit}");
    let target = &mut worker.target;
    target.expect("ready").unwrap();
    target.send("quit").unwrap();
    worker
        .target
        .target
        .wait(PATIENCE)
        .unwrap()
        .success()
        .unwrap();
}

#[test]
fn is_stopped() {
    after_every_step("stop");
}

/// Runs [`after_every_step`] where `MIDAIR_LONG=1` asks for all steps.
fn only_in_the_long_form(way: &'static str) {
    if crate::common::long() {
        after_every_step(way);
    } else {
        midair_tests::leave_out("only with MIDAIR_LONG=1, as `cargo xtask torture` has it")
            .unwrap();
    }
}

#[test]
fn exits_at_once() {
    only_in_the_long_form("_exit");
}

#[test]
fn aborts() {
    only_in_the_long_form("abort");
}
