//! The target ends, becomes another program or is stopped after every single step of the attacher.
//! The attacher returns soon, with the right error, and keeps nothing. How the target ends is not
//! changed by us.

use crate::common::{Pid, pid_of};
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::common::{PATIENCE, Snapshot, Target, check, compiled, start_with, until};
use midair_inject::FaultPoint;
use midair_procinfo::dumpable::is_dumpable;
use midair_procinfo::task;
use midair_tests::long;

/// The longest time that the attacher may need after the target's end: a second. It is ten seconds
/// where other tests run alongside this one, and after a stop. A stop may be over at any moment, and
/// the worker thread has five seconds for its first steps.
fn soon(what: &str) -> Duration {
    Duration::from_secs(if long() && what != "stop" { 1 } else { 10 })
}

/// The least number of steps in one attach and its withdrawal.
const STEPS: u64 = 40;

/// An attacher that stays, and a pipe through which targets get commands.
struct Attacher {
    process: Target,
    control: PathBuf,
    raised: Option<PathBuf>,
    dir: tempfile::TempDir,
}

/// A user without rights.
const USER: u32 = 12345;

/// What the attacher reports of one round.
#[derive(Debug)]
struct Round {
    took: Duration,
    /// The numbers of its descriptors, threads and mappings.
    had: [usize; 3],
    /// The step after which it happened. Empty when the attach ended before that step.
    at: String,
    outcome: String,
}

impl Attacher {
    fn start() -> Attacher {
        Attacher::start_with(None)
    }

    /// Starts the attacher. If it is given a library, it enters over the socket of the target's
    /// listener.
    fn start_with(library: Option<PathBuf>) -> Attacher {
        let dir = tempfile::tempdir().unwrap();
        let control = dir.path().join("control");
        let name = std::ffi::CString::new(control.as_os_str().as_bytes()).unwrap();
        // SAFETY: the path is a C string that outlives the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let mut command = Command::new(env!("CARGO_BIN_EXE_midair-enter"));
        command.arg("serve").args(library);
        Attacher {
            process: Target::spawn(command).unwrap(),
            control,
            raised: None,
            dir,
        }
    }

    /// Starts a target with threads of these kinds, which reads from the pipe.
    fn target(&self, kinds: &[&str]) -> Target {
        let mut command = Command::new(compiled("target", false));
        command.env("CONTROL", &self.control);
        if let Some(raised) = &self.raised {
            command.env("RAISED", raised).uid(USER).gid(USER);
        }
        start_with(command, kinds)
    }

    /// From now on targets belong to the user without rights, and there is a set-uid program for
    /// them to execute.
    fn with_targets_of_somebody(mut self) -> Attacher {
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        };
        let raised = self.dir.path().join("raised");
        std::fs::copy(compiled("raised", false), &raised).unwrap();
        mode(self.dir.path(), 0o755);
        mode(&self.control, 0o666);
        mode(&raised, 0o4755);
        self.raised = Some(raised);
        self
    }

    fn round(&mut self, when: impl Display, what: &str, pid: Pid) -> Round {
        let line = format!("{when} {what} {pid} {}", self.control.display());
        self.process.send(&line).unwrap();
        let said = self.process.expect("round").unwrap();
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
}

/// Returns true if the outcome fits what happened.
fn fits(what: &str, round: &Round) -> bool {
    let told = |words: &str| round.outcome.contains(words);
    // After the last step, nothing can go wrong any more.
    round.outcome == "ok"
        || match what {
            "stop" => told("is stopped"),
            "exec" => told("executed another program") || told("the process ended"),
            // Older kernels give no access to the process then.
            "leader" => !midair_ptrace::has_pidfds_of_threads() && told("the main thread"),
            "user" | "hide" => told("changed since its inspection"),
            "raise" => {
                told("changed since its inspection")
                    || told("executed another program")
                    || told("process ended")
            }
            _ => told("the process ended") || told("is a zombie") || told("no process"),
        }
}

/// Checks that the target has ended, or goes on, as it must.
fn is_its_own(what: &str, mut target: Target, when: &str) {
    let pid = pid_of(&target);
    let nobody_traces = || {
        let now = Snapshot::take(pid);
        assert!(now.is_ok_and(|now| now.tracer == 0), "{when}: it is traced");
    };
    if what == "stop" {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert!(status.contains("State:\tT"), "{when}: {status}");
        nobody_traces();
        target.signal(libc::SIGCONT).unwrap();
        check(&mut target);
        target.wait(PATIENCE).unwrap().success().unwrap();
        return;
    }
    if what == "leader" {
        // The other threads go on and are not stopped.
        until("nothing traced or stopped", || {
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))?;
            let mut runs = 0;
            for task in tasks {
                let path = task?.path().join("status");
                let text = std::fs::read_to_string(path).unwrap_or_default();
                if text.contains("\nState:\tt") || text.contains("\nState:\tT") {
                    return Ok(false);
                }
                runs += usize::from(text.contains("TracerPid:\t0") && !text.contains("State:\tZ"));
            }
            Ok(runs > 0)
        })
        .unwrap_or_else(|error| panic!("{when}: {error}"));
        return;
    }
    if what == "user" || what == "hide" {
        nobody_traces();
        check(&mut target);
        target.wait(PATIENCE).unwrap().success().unwrap();
        return;
    }
    if what == "exec" || what == "raise" {
        let said = target
            .expect("other")
            .unwrap_or_else(|error| panic!("{when}: {error}"));
        assert!(
            what == "exec" || said == format!("other {USER} 0"),
            "{said}"
        );
        nobody_traces();
    }
    let exit = target
        .wait(PATIENCE)
        .unwrap_or_else(|error| panic!("{when}: {error}"));
    let ended = match what {
        "kill" => exit.signal() == Some(libc::SIGKILL),
        "abort" => exit.signal() == Some(libc::SIGABRT),
        "_exit" => exit.status.code() == Some(7),
        "exec" | "raise" => exit.status.code() == Some(5),
        _ => exit.status.code() == Some(0),
    };
    assert!(ended, "{when}: {exit}");
}

/// Starts one target per step, until an attach ends before it reaches the step.
fn after_every_step(what: &str, kinds: &[&str]) {
    after_every_step_of(Attacher::start(), what, kinds);
}

fn after_every_step_of(mut attacher: Attacher, what: &str, kinds: &[&str]) {
    // Whatever stays for good (the allocator's arenas, the main thread's stack) is there after one
    // attach.
    let first = attacher.target(kinds);
    let unharmed = attacher.round(u64::MAX, what, pid_of(&first));
    assert_eq!(unharmed.outcome, "ok", "{unharmed:?}");
    first.wait(PATIENCE).unwrap().success().unwrap();
    let (mut longest, mut errors) = (Duration::ZERO, 0);
    for number in 1.. {
        let target = attacher.target(kinds);
        let round = attacher.round(number, what, pid_of(&target));
        let when = format!("{what} on {kinds:?} after {}: {}", round.at, round.outcome);
        if round.at.is_empty() {
            assert_eq!(round.outcome, "ok", "{when}");
            eprintln!(
                "{what} on {kinds:?}: {} steps, {errors} attaches that failed, longest {longest:?}",
                number - 1
            );
            assert!(number > STEPS, "only {number} steps");
            assert!(errors > 10 || what == "leader", "it was hardly in time");
            break;
        }
        assert!(fits(what, &round), "{when}");
        assert!(round.took < soon(what), "{when}: {:?}", round.took);
        assert_eq!(round.had[..2], unharmed.had[..2], "{when}: something stays");
        assert!(
            round.had[2] < unharmed.had[2] + 40,
            "{when}: mappings {} and {}",
            round.had[2],
            unharmed.had[2]
        );
        longest = longest.max(round.took);
        errors += u32::from(round.outcome != "ok");
        is_its_own(what, target, &when);
    }
    let exit = attacher.process.wait(PATIENCE).unwrap();
    exit.success().unwrap();
}

/// Uses all kinds of targets if `MIDAIR_LONG=1` is set, and otherwise only the quick one.
fn on_all_kinds(what: &str, quick: &[&str]) {
    if !long() {
        return after_every_step(what, quick);
    }
    for kinds in [
        &["0", "regs"][..],
        &["1", "sem"],
        &["3", "cond"],
        &["0", "poll", "nanosleep", "read"],
        &["0", "epoll"],
        &["2", "lib-cond"],
        &["1", "mutex", "lib-poll"],
        // This one is entered by the thread of a listener (T1).
        &["0", "rocp-bg-attach", "poll"],
    ] {
        after_every_step(what, kinds);
    }
}

#[test]
fn killed() {
    on_all_kinds("kill", &["0", "regs"]);
}

#[test]
fn exits() {
    on_all_kinds("exit", &["1", "sem"]);
}

#[test]
fn exits_at_once() {
    on_all_kinds("_exit", &["0", "poll"]);
}

#[test]
fn aborts() {
    on_all_kinds("abort", &["0", "cond"]);
}

#[test]
fn becomes_another_program() {
    on_all_kinds("exec", &["1", "cond", "poll"]);
}

#[test]
fn is_stopped() {
    on_all_kinds("stop", &["1", "read"]);
}

/// A process changes its user during the attach, and goes on as it was.
#[test]
fn becomes_another_user() {
    if !midair_tests::is_root_for("to become another user").unwrap() {
        return;
    }
    // This is tested when the thread is chosen but not yet held, and when everything is done except
    // the offer. It cannot happen in between: the C library changes the user of all threads or of
    // none, and waits for the one that is held.
    let mut attacher = Attacher::start();
    for point in [FaultPoint::ThreadFound, FaultPoint::Offering] {
        // The signal handler of the C library ends a poll, but not a read.
        let target = attacher.target(&["0", "read"]);
        let round = attacher.round(point.name(), "user", pid_of(&target));
        let when = format!("{round:?}");
        assert!(
            round.outcome.contains("changed since its inspection"),
            "{when}"
        );
        is_its_own("user", target, &when);
    }
    attacher.process.wait(PATIENCE).unwrap().success().unwrap();
}

/// A process protects itself during the attach (PR_SET_DUMPABLE), and goes on as it was. Its files
/// in `/proc` belong to root before and after, if it is root's.
#[test]
fn is_no_longer_dumpable() {
    if !midair_tests::is_root_for("to have a process of root").unwrap() {
        return;
    }
    let own = task::status(Pid::own()).unwrap();
    if is_dumpable(Pid::own().leader(), &own).is_none() {
        return midair_tests::leave_out("before Linux 6.16 this is not known of root's").unwrap();
    }
    let mut attacher = Attacher::start();
    for point in [FaultPoint::ThreadFound, FaultPoint::Offering] {
        let target = attacher.target(&["0", "read"]);
        let round = attacher.round(point.name(), "hide", pid_of(&target));
        let when = format!("{round:?}");
        assert!(
            round.outcome.contains("changed since its inspection"),
            "{when}"
        );
        is_its_own("hide", target, &when);
    }
    attacher.process.wait(PATIENCE).unwrap().success().unwrap();
}

/// A process of the user without rights executes a program with the set-uid bit while root attaches
/// to it.
#[test]
fn raises_its_rights() {
    if !midair_tests::is_root_for("to make a set-uid program").unwrap() {
        return;
    }
    let attacher = Attacher::start().with_targets_of_somebody();
    after_every_step_of(attacher, "raise", &["1", "cond", "poll"]);
}

#[test]
fn its_first_thread_ends() {
    on_all_kinds("leader", &["0", "poll"]);
}

/// Starts a program with a listener of its own, and waits until the listener can be reached.
fn listening() -> Target {
    let mut target = Target::spawn(Command::new(crate::common::listening("listening"))).unwrap();
    target.expect("ready").unwrap();
    target.send("register").unwrap();
    assert_eq!(target.expect("registered").unwrap(), "registered 1");
    let pid = pid_of(&target);
    until("listening", || {
        Ok(midair_inject::approach(pid)?.endpoint.is_some())
    })
    .unwrap();
    target
}

/// Over the socket there are few steps, and we never stop anything.
#[test]
fn over_the_socket_of_a_listener() {
    let mut attacher = Attacher::start_with(Some(compiled("library", true)));
    let first = listening();
    let unharmed = attacher.round(u64::MAX, "kill", pid_of(&first));
    assert_eq!(unharmed.outcome, "ok", "{unharmed:?}");
    for what in ["kill", "stop"] {
        let mut failed = 0;
        for number in 1.. {
            let target = listening();
            let round = attacher.round(number, what, pid_of(&target));
            let when = format!("{what} over a socket after {}: {}", round.at, round.outcome);
            if round.at.is_empty() {
                assert_eq!(round.outcome, "ok", "{when}");
                assert!(number > 4 && failed > 0, "{number} steps, {failed} failed");
                break;
            }
            eprintln!("{:?} {when}", round.took);
            let standing = round.outcome.contains("stopped");
            assert!(fits(what, &round) || (what == "stop" && standing), "{when}");
            assert!(round.took < soon(what), "{when}: {:?}", round.took);
            assert_eq!(round.had[..2], unharmed.had[..2], "{when}: something stays");
            failed += u32::from(round.outcome != "ok");
        }
    }
    attacher.process.wait(PATIENCE).unwrap().success().unwrap();
}

/// Starts a program in which no thread parks. It is entered by a running thread, which is borrowed
/// at a safe point. This program reads no commands.
fn running() -> Target {
    let mut command = Command::new(crate::common::compiled_with("busy", &[]));
    command.args(["compute", "1"]);
    let mut target = Target::spawn(command).unwrap();
    target.expect("ready").unwrap();
    target
}

/// The number of steps depends on how often the thread must be examined until it is at a safe
/// point.
#[test]
fn by_a_safe_point() {
    if !midair_tests::kernel::has_safe_points().unwrap() {
        return;
    }
    let mut attacher = Attacher::start();
    let first = running();
    let unharmed = attacher.round(u64::MAX, "kill", pid_of(&first));
    assert_eq!(unharmed.outcome, "ok", "{unharmed:?}");
    for what in ["kill", "stop"] {
        let (mut errors, mut longest) = (0, Duration::ZERO);
        for number in 1.. {
            let mut target = running();
            let round = attacher.round(number, what, pid_of(&target));
            let when = format!(
                "{what} by a safe point after {}: {}",
                round.at, round.outcome
            );
            if round.at.is_empty() {
                assert_eq!(round.outcome, "ok", "{when}");
                eprintln!("{what} by a safe point: {number} steps, {errors} failed, {longest:?}");
                assert!(
                    number > 20 && errors > 10,
                    "{number} steps, {errors} failed"
                );
                break;
            }
            assert!(fits(what, &round), "{when}");
            assert!(round.took < soon(what), "{when}: {:?}", round.took);
            assert_eq!(round.had[..2], unharmed.had[..2], "{when}: something stays");
            errors += u32::from(round.outcome != "ok");
            longest = longest.max(round.took);
            if what == "kill" {
                is_its_own(what, target, &when);
                continue;
            }
            let status =
                std::fs::read_to_string(format!("/proc/{}/status", pid_of(&target))).unwrap();
            assert!(
                status.contains("State:\tT") && status.contains("TracerPid:\t0"),
                "{when}: {status}"
            );
            target.signal(libc::SIGCONT).unwrap();
            target.signal(libc::SIGTERM).unwrap();
            assert_eq!(
                target.expect("ended").unwrap().split(" rounds").next(),
                Some("ended wrong 0"),
                "{when}"
            );
            target.wait(PATIENCE).unwrap().success().unwrap();
        }
    }
    attacher.process.wait(PATIENCE).unwrap().success().unwrap();
}
