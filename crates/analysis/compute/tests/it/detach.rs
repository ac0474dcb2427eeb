//! How `profile` of a running process ends, by Enter and by a signal, with its results kept; what it
//! says meanwhile, and how much (`ROCPROFCOMPUTE_LOGLEVEL`). A script stands in for `rocprofv3`.

use super::common::{collector, compute};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A collector that says what `rocprofv3` says, and writes its results at Enter or at a signal.
const UNTIL_TOLD: &str = "trap 'echo signal; cp $made $out/pmc_results.db; exit 0' INT\n\
    echo 'Attaching to PID 7 using library x :: success'\n\
    echo 'Press Enter to detach...'\n\
    # `read` in a shell of its own would not be interrupted.\n\
    while ! read -r line; do sleep 0.05; done\n\
    echo enter; cp $made $out/pmc_results.db";
const FOR_A_WHILE: &str = "echo 'Attaching to PID 7 using library x :: success'\n\
    echo 'Attaching for 20 msec...'\n\
    cp $made $out/pmc_results.db";
const SUCCESS: &str = "Attach to process with ID 7 is successful, ";

/// A started profile. Dropping it ends the profile and its collector, also when a test fails.
struct Started(Option<Child>);

impl Started {
    fn child(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }

    fn output(mut self) -> Output {
        self.0.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // The collector is in the same group.
            let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
            let _ = child.wait();
        }
    }
}

fn start(here: &Path, words: &[&str], level: Option<&str>) -> Started {
    let program = Command::new(env!("CARGO_BIN_EXE_rocprof-compute"));
    start_by(program, here, words, level)
}

/// Starts a profile by a command that ends in the program.
fn start_by(mut command: Command, here: &Path, words: &[&str], level: Option<&str>) -> Started {
    command
        .args(["profile", "-n", "x", "--attach-pid", "7", "-b", "5.1.1"])
        .args(words)
        .current_dir(here)
        .env("AMD_KFD_TOPOLOGY", here.join("topology"))
        .env("ROCPROF", here.join("collector"))
        .env_remove("ROCPROFCOMPUTE_LOGLEVEL");
    if let Some(level) = level {
        command.env("ROCPROFCOMPUTE_LOGLEVEL", level);
    }
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    Started(Some(command.spawn().unwrap()))
}

/// Ends a profile in this way once it says that it has attached. Returns what it said on standard
/// output.
fn ended(here: &Path, end: impl FnOnce(&mut Child)) -> String {
    let program = Command::new(env!("CARGO_BIN_EXE_rocprof-compute"));
    ended_by(program, here, end)
}

/// Does the same with a command that ends in the program.
fn ended_by(program: Command, here: &Path, end: impl FnOnce(&mut Child)) -> String {
    collector(here, UNTIL_TOLD);
    let mut started = start_by(program, here, &[], None);
    let child = started.child();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    while !said.contains("is successful") {
        assert!(out.read_line(&mut said).unwrap() > 0, "{said}");
    }
    end(child);
    out.read_to_string(&mut said).unwrap();
    let output = started.output();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}{errors}");
    // The results are there, at the default place, and can be read.
    let directory = "workloads/x/MI300X_A1";
    assert!(here.join(directory).join("pmc_perf_0.db").is_file());
    let table = compute(here, &["analyze", "-p", directory, "-b", "5.1.1"]);
    assert!(table.contains("CPF Stall"), "{table}");
    said
}

#[test]
fn enter_ends_it_and_its_results_are_kept() {
    let temporary = tempfile::tempdir().unwrap();
    let said = ended(temporary.path(), |child| {
        let mut keys = child.stdin.take().unwrap();
        keys.write_all(b"\n").unwrap();
    });
    let sentence = format!("{SUCCESS}Press Enter to detach...\n");
    assert!(said.contains(&sentence), "{said}");
    assert!(said.contains("enter\n"), "{said}");
}

#[test]
fn a_signal_ends_it_and_its_results_are_kept() {
    let temporary = tempfile::tempdir().unwrap();
    let said = ended(temporary.path(), |child| {
        kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
        // Without the keyboard's end the collector would go on waiting for it.
        drop(child.stdin.take());
    });
    assert!(said.contains("signal\n"), "{said}");
}

/// As `nohup` starts it. A blocked signal would be queued even if it is ignored.
#[test]
fn a_hangup_that_is_ignored_at_the_start_stays_ignored() {
    let temporary = tempfile::tempdir().unwrap();
    let mut program = Command::new("sh");
    program.args(["-c", "trap '' HUP && exec \"$@\"", "sh"]);
    program.arg(env!("CARGO_BIN_EXE_rocprof-compute"));
    let said = ended_by(program, temporary.path(), |child| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        let blocked = u64::from_str_radix(blocked.unwrap().trim(), 16).unwrap();
        let is_blocked = |signal: Signal| blocked & 1 << (signal as i32 - 1) != 0;
        assert!(is_blocked(Signal::SIGTERM), "{blocked:x}");
        assert!(!is_blocked(Signal::SIGHUP), "{blocked:x}");
        for signal in [Signal::SIGHUP, Signal::SIGINT] {
            kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        }
        drop(child.stdin.take());
    });
    assert!(said.contains("signal\n"), "{said}");
}

#[test]
fn it_says_when_it_will_detach_and_as_much_as_it_is_told_to() {
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    collector(here, FOR_A_WHILE);
    let run = |words: &[&str], level: Option<&str>| {
        let words = [&["--attach-duration-msec", "20", "--overwrite"], words].concat();
        let output = start(here, &words, level).output();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{level:?}: {errors}");
        (String::from_utf8(output.stdout).unwrap(), errors)
    };
    let sentence = format!("{SUCCESS}detach will happen in 20 milliseconds...\n");
    let (said, normal) = run(&[], None);
    assert!(said.contains(&sentence), "{said}");
    assert!(!said.contains("Press Enter"), "{said}");
    assert!(
        normal.contains("Results in") && !normal.contains("info: "),
        "{normal}"
    );

    // The variable says more than the options.
    for (word, has_results, has_info) in [
        ("ERROR", false, false),
        ("INFO", true, false),
        ("DEBUG", true, true),
        ("trace", true, true),
    ] {
        for words in [&[][..], &["-VVV"], &["-q"]] {
            let (said, errors) = run(words, Some(word));
            assert_eq!(
                errors.contains("Results in"),
                has_results,
                "{word} {errors}"
            );
            assert_eq!(errors.contains("info: "), has_info, "{word} {errors}");
            assert_eq!(said.contains(&sentence), has_results, "{word} {said}");
        }
    }
    let (_, errors) = run(&[], Some("LOUD"));
    assert!(
        errors.contains("ROCPROFCOMPUTE_LOGLEVEL=LOUD has no effect"),
        "{errors}"
    );
}

#[test]
fn a_failed_test_leaves_no_process() {
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    collector(
        here,
        &format!("echo $$ > {}/pid\n{UNTIL_TOLD}", here.display()),
    );
    let mut started = start(here, &[], None);
    let mut out = BufReader::new(started.child().stdout.take().unwrap());
    let mut said = String::new();
    while !said.contains("is successful") {
        assert!(out.read_line(&mut said).unwrap() > 0, "{said}");
    }
    let group = Pid::from_raw(started.child().id() as i32);
    let collector = std::fs::read_to_string(here.join("pid")).unwrap();
    let collector = Pid::from_raw(collector.trim().parse().unwrap());
    assert!(kill(collector, None).is_ok());
    drop(started);
    assert!(kill(group, None).is_err());
    let until = Instant::now() + Duration::from_secs(20);
    let is_there = || {
        let status = std::fs::read_to_string(format!("/proc/{collector}/stat"));
        status.is_ok_and(|status| !status.contains(") Z "))
    };
    while is_there() {
        assert!(Instant::now() < until, "the collector is still there");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_list_of_everything_takes_no_choice() {
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    for words in [
        &["profile", "--list-metrics", "gfx942", "-b", "2"][..],
        &["analyze", "--list-metrics", "gfx942", "--memory-chart"],
        &["analyze", "--list-blocks", "gfx90a", "--block", "2"],
        &["profile", "--list-available-metrics", "-b", "2"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_rocprof-compute"))
            .args(words)
            .current_dir(here)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {errors}");
        let sentence = format!("Cannot use {} with --blocks", words[1]);
        assert!(errors.contains(&sentence), "{errors}");
        assert!(output.stdout.is_empty(), "{words:?}");
    }
}
