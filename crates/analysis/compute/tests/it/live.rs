//! What is shown while a process is attached: tables (`live`), progress and the early end
//! (`profile`). A script stands in for `rocprofv3`. The test on a real process is in
//! `tests/e2e/compute.rs`.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);

/// Returns what `rocprofv3 --live-counters` writes: 60 windows of 10,060 dispatches.
fn counted() -> String {
    let mut text = String::from(
        "Dispatch_ID,GPU_ID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Kernel_Name,Dispatches,CPF_CPF_STAT_BUSY,\
         CPF_CPF_STAT_STALL,GRBM_GUI_ACTIVE,SQ_WAVES,Start_Timestamp,End_Timestamp\n",
    );
    for id in 0..60 {
        let start = 1000 + id * 1000;
        let _ = writeln!(
            text,
            "{id},0,64,64,0,\"vadd(\"\"x\"\")\",1,400,{},10,1,{start},{}",
            99 + id % 3,
            start + 500
        );
    }
    text.push_str("61,0,64,64,0,\"vadd(\"\"x\"\")\",10000,,,,,100000,100500\n");
    text
}

/// Writes a directory with a machine, and with a script that collects until it is asked to stop and
/// then runs these lines.
fn stage(here: &Path, behind: &str) -> PathBuf {
    super::common::topology(&here.join("topology"));
    fs::write(here.join("counted.csv"), counted()).unwrap();
    let program = here.join("collector");
    let log = here.join("log");
    let script = format!(
        "#!/bin/sh\necho \"$@\" > {log}\nwhile [ $# -gt 0 ]; do [ \"$1\" = --live-counters ] && live=$2; shift; done\n\
         trap 'echo detached >> {log}; kill $!; exit 0' INT TERM\n\
         cp {counted} \"$live/7.new\" && mv \"$live/7.new\" \"$live/7.csv\"\necho 'a line of the collector' >&2\n{behind}\n\
         sleep 600 & wait\n",
        log = log.display(),
        counted = here.join("counted.csv").display(),
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

fn compute(here: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rocprof-compute"));
    command
        .args(words)
        .current_dir(here)
        .env("AMD_KFD_TOPOLOGY", here.join("topology"))
        .env("ROCPROF", here.join("collector"))
        .env("TMPDIR", here);
    command
}

/// Ends the process if the test ends before it.
struct Running(Child);

impl Running {
    fn ended(&mut self) -> ExitStatus {
        let limit = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < limit, "it does not end");
            std::thread::yield_now();
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id() as i32)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Passes on the bytes of a stream as they arrive.
fn follow(mut stream: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(count) = stream.read(&mut piece) {
            if count == 0 || sender.send(piece[..count].to_vec()).is_err() {
                break;
            }
        }
    });
    receiver
}

fn until(pieces: &Receiver<Vec<u8>>, seen: &mut String, wanted: &str) {
    let limit = Instant::now() + PATIENCE;
    while !seen.contains(wanted) {
        let left = limit.saturating_duration_since(Instant::now());
        match pieces.recv_timeout(left) {
            Ok(piece) => seen.push_str(&String::from_utf8_lossy(&piece)),
            Err(_) => panic!("{wanted} is not in {seen}"),
        }
    }
}

#[test]
fn without_a_terminal_tables_are_printed_until_a_signal_comes() {
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    stage(here, "");
    let words = ["live", "--attach-pid", "7", "-b", "5.1.1", "--decimal", "1"];
    let mut command = compute(here, &words);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut running = Running(child.stderr(Stdio::piped()).spawn().unwrap());
    let out = follow(running.0.stdout.take().unwrap());
    let errors = follow(running.0.stderr.take().unwrap());
    let (mut seen, mut said) = (String::new(), String::new());
    until(&out, &mut seen, "CPF Stall");
    until(&out, &mut seen, "╘");
    until(&errors, &mut said, "a line of the collector");
    assert!(said.contains("no terminal"), "{said}");
    kill(running.pid(), Signal::SIGINT).unwrap();
    assert_eq!(running.ended().code(), Some(0));
    assert!(seen.contains("=== process 7"), "{seen}");
    // The 60 windows stand for all dispatches.
    assert!(seen.contains("10060 dispatches  coverage 0.6 %"), "{seen}");
    assert!(seen.contains("25.0"), "{seen}");
    assert!(!seen.contains('\x1b'), "{seen:?}");
    let log = fs::read_to_string(here.join("log")).unwrap();
    assert!(log.contains("detached") && log.contains("--pid 7"), "{log}");
    // Nothing is kept.
    let left = fs::read_dir(here).unwrap().flatten();
    let left: Vec<_> = left
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| name.starts_with("rocprof-compute-live"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn on_a_terminal_a_key_detaches() {
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    stage(here, "");
    let size = nix::pty::Winsize {
        ws_row: 14,
        ws_col: 70,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let pty = nix::pty::openpty(Some(&size), None).unwrap();
    let terminal = || Stdio::from(pty.slave.try_clone().unwrap());
    let words = ["live", "--attach-pid", "7", "-b", "5.1"];
    let mut command = compute(here, &words);
    let child = command.stdin(terminal()).stdout(terminal());
    let mut running = Running(child.stderr(terminal()).spawn().unwrap());
    let master = File::from(pty.master);
    let out = follow(master.try_clone().unwrap());
    let mut seen = String::new();
    until(&out, &mut seen, "vadd");
    until(&out, &mut seen, "q: detach");
    // The alternate screen is used, and no line exceeds its width.
    assert!(seen.contains("\x1b[?1049h"), "{seen:?}");
    let wide = seen.split("\r\n").map(|line| line.chars().count()).max();
    assert!(wide < Some(120), "{seen:?}");
    // An arrow key scrolls and does not detach.
    nix::unistd::write(&master, b"\x1b[B").unwrap();
    until(&out, &mut seen, "lines 2 to");
    nix::unistd::write(&master, b" ").unwrap();
    until(&out, &mut seen, "CPF Stall");
    nix::unistd::write(&master, b"q").unwrap();
    until(&out, &mut seen, "\x1b[?1049l");
    assert_eq!(running.ended().code(), Some(0), "{seen:?}");
    let log = fs::read_to_string(here.join("log")).unwrap();
    assert!(log.contains("detached"), "{log}");
}

#[test]
fn a_profile_ends_when_every_metric_is_within_its_target() {
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    stage(here, "");
    let words = [
        "profile",
        "-n",
        "x",
        "--attach-pid",
        "7",
        "-b",
        "5.1.1",
        "--target-error",
        "5%",
        "-V",
    ];
    let child = compute(here, &words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut running = Running(child);
    let errors = follow(running.0.stderr.take().unwrap());
    let mut said = String::new();
    until(&errors, &mut said, "every metric is within 5 % after");
    assert_eq!(running.ended().code(), Some(0), "{said}");
    assert!(
        said.contains("10060 dispatches, 60 windows, 1 groups with 60 or more"),
        "{said}"
    );
    assert!(said.contains("a line of the collector"), "{said}");
    let log = fs::read_to_string(here.join("log")).unwrap();
    assert!(log.contains("detached"), "{log}");
}

#[test]
fn a_target_that_is_not_reached_does_not_end_it() {
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    // The script ends by itself, after the first counts were seen.
    stage(here, "exit 0");
    let words = ["profile", "-n", "x", "--attach-pid", "7", "-b", "5.1.1"];
    let output = compute(here, &[&words[..], &["--target-error", "0.001"]].concat())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(!said.contains("every metric"), "{said}");
    let log = fs::read_to_string(here.join("log")).unwrap();
    assert!(!log.contains("detached"), "{log}");
}

#[test]
fn wrong_words_of_live_are_refused() {
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    stage(here, "");
    for (words, what) in [
        (&["live"][..], "no process given"),
        (
            &["live", "--attach-pid", "x"],
            "--attach-pid x is not a positive number",
        ),
        (
            &["live", "--attach-pid", "7", "--interval-msec", "0"],
            "--interval-msec 0 is not a positive number",
        ),
        (
            &[
                "live",
                "--attach-pid",
                "7",
                "-b",
                "2",
                "--set",
                "launch_stats",
            ],
            "mutually exclusive",
        ),
        (
            &["live", "--attach-pid", "7", "-b", "nonsense"],
            "nonsense is neither",
        ),
        (&["live", "--attach-pid", "7", "-n", "per_day"], "per_day"),
    ] {
        let output = compute(here, words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(what), "{words:?}: {said}");
        assert!(!here.join("log").exists(), "{words:?}");
    }
}
