//! The C interface for attaching, on AMD's runtimes: called through ctypes, and used by the attach
//! tool of `examples/`.

use midair_tests::caller::Caller;
use midair_tests::lab::Lab;
use midair_tests::stage::{plain_environment, run_staged, stage};
use midair_tests::table::Csv;
use midair_tests::target::{PATIENCE, Target, run};
use midair_tests::{Result, workspace};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Calls that one round of the program makes.
const ROUND: usize = 13;

/// A script that does what its input lines say. `set NAME VALUE` sets a variable.
/// `FUNCTION [NUMBER]` calls a function, and the script prints what it returned.
const SCRIPT: &str = r#"
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1])
for text in ("name", "string"):
    getattr(library, "rocattach_get_status_" + text).restype = ctypes.c_char_p
library.attach.restype = library.detach.restype = None
print("ready", flush=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == "set":
        os.environ[words[1]] = words[2]
        continue
    if words[0] == "version":
        numbers = [ctypes.c_uint32() for _ in range(3)]
        status = library.rocattach_get_version(*map(ctypes.byref, numbers))
        print("version", status, *[number.value for number in numbers], flush=True)
        continue
    result = getattr(library, words[0])(*map(int, words[1:]))
    result = result.decode() if isinstance(result, bytes) else result
    print(words[0], "->", result, flush=True)
"#;

/// A process that uses the attach library.
pub(super) struct User {
    process: Target,
}

impl User {
    pub(super) fn start() -> Result<User> {
        let mut python = Command::new("python3");
        python
            .args(["-B", "-c", SCRIPT])
            .arg(stage()?.join("lib/librocprofiler-sdk-rocattach.so.1"));
        python.env_clear().envs(plain_environment());
        let mut process = Target::spawn(python)?;
        process.expect("ready")?;
        Ok(User { process })
    }
    pub(super) fn set(&mut self, name: &str, value: impl ToString) -> Result<()> {
        self.process
            .send(&format!("set {name} {}", value.to_string()))
    }
    pub(super) fn call(&mut self, words: &str) -> Result<String> {
        self.process.send(words)?;
        let name = words.split(' ').next().unwrap_or_default();
        let line = self.process.expect(&format!("{name} "))?;
        Ok(line.rsplit("-> ").next().unwrap_or_default().to_owned())
    }
    /// Chooses what to record, and the directory for the results.
    pub(super) fn record(&mut self, dir: &Path) -> Result<()> {
        self.set("ROCPROF_HIP_RUNTIME_API_TRACE", 1)?;
        self.set("ROCPROF_KERNEL_TRACE", 1)?;
        self.set("ROCPROF_OUTPUT_FORMAT", "csv")?;
        self.set("ROCPROF_OUTPUT_PATH", dir.display())?;
        self.set("ROCPROF_OUTPUT_FILE_NAME", "%pid%")
    }
}

pub(super) fn rows(dir: &Path, pid: i32, what: &str) -> Result<usize> {
    Ok(Csv::read(&dir.join(format!("{pid}_{what}_trace.csv")))?
        .rows
        .len())
}

#[test]
fn statuses_without_a_target() -> Result<()> {
    let mut user = User::start()?;
    assert_eq!(user.call("version")?, "version 0 1 2 1");
    let names = [
        "SUCCESS",
        "ERROR",
        "ERROR_INVALID_ARGUMENT",
        "ERROR_NOT_SUPPORTED",
        "ERROR_PTRACE_ERROR",
        "ERROR_PTRACE_OPERATION_NOT_PERMITTED",
        "ERROR_PTRACE_PROCESS_NOT_FOUND",
    ];
    let mut sentences = BTreeSet::new();
    for (number, name) in names.iter().enumerate() {
        let answer = user.call(&format!("rocattach_get_status_name {number}"))?;
        assert_eq!(answer, format!("ROCATTACH_STATUS_{name}"));
        sentences.insert(user.call(&format!("rocattach_get_status_string {number}"))?);
    }
    assert_eq!(
        sentences.len(),
        names.len(),
        "each has its own sentence: {sentences:?}"
    );
    for beyond in ["7", "-1"] {
        for text in ["name", "string"] {
            assert_eq!(
                user.call(&format!("rocattach_get_status_{text} {beyond}"))?,
                "None"
            );
        }
    }
    let me = user.process.pid();
    for (call, status) in [
        ("rocattach_attach 4194304".to_owned(), "6"),
        ("rocattach_attach 0".to_owned(), "2"),
        ("rocattach_attach -3".to_owned(), "2"),
        // Pid 2 is a kernel thread, and `me` is the program that calls.
        ("rocattach_attach 2".to_owned(), "1"),
        (format!("rocattach_attach {me}"), "2"),
        (format!("rocattach_attach_tree {me}"), "2"),
        (format!("rocattach_detach_tree {me}"), "2"),
        (format!("rocattach_detach {me}"), "2"),
        ("rocattach_detach 0".to_owned(), "0"),
    ] {
        assert_eq!(user.call(&call)?, status, "{call}");
    }
    let exit = user.process.wait(PATIENCE)?.success()?;
    let failures = exit
        .stderr
        .iter()
        .filter(|line| line.starts_with("rocattach: error: "))
        .count();
    assert_eq!(failures, 8, "each failure says what: {exit}");
    Ok(())
}

#[test]
fn sessions_over_ctypes() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut one = Caller::start(Caller::command(&lab)?)?;
    let mut two = Caller::start(Caller::command(&lab)?.log_name("two"))?;
    let (first, second) = (one.pid(), two.pid());
    let mut user = User::start()?;
    let dir = tempfile::tempdir()?;
    user.record(dir.path())?;

    // A second session on the same process is refused, both from this program and from another one.
    // It harms neither.
    assert_eq!(user.call(&format!("rocattach_attach {first}"))?, "0");
    assert_eq!(user.call(&format!("rocattach_attach {first}"))?, "2");
    let other = [
        "--pid",
        &first.to_string(),
        "--hip-trace",
        "--attach-duration-msec",
        "100",
    ];
    let exit = run_staged("rocprofv3", &other, PATIENCE)?;
    assert_eq!(exit.status.code(), Some(15), "{exit}");
    assert!(exit.stderr.join(" ").contains("already attached"), "{exit}");
    one.tell("calls 3")?;
    assert_eq!(user.call(&format!("rocattach_detach {first}"))?, "0");
    // The files are complete when the call returns: the process that wrote them is still there and
    // has nothing left to do.
    let read = |pid| -> Result<_> {
        let file = |what: &str| std::fs::read(dir.path().join(format!("{pid}_{what}_trace.csv")));
        Ok((file("hip_api")?, file("kernel")?))
    };
    let written = read(first)?;
    assert_eq!(rows(dir.path(), first, "hip_api")?, 3 * ROUND);
    assert_eq!(rows(dir.path(), first, "kernel")?, 6);
    assert_eq!(user.call(&format!("rocattach_detach {first}"))?, "2");

    // Sessions on two processes run side by side and end together.
    for pid in [first, second] {
        user.set("ROCPROF_OUTPUT_FILE_NAME", format!("both-{pid}"))?;
        assert_eq!(user.call(&format!("rocattach_attach {pid}"))?, "0");
    }
    one.tell("calls 1")?;
    two.tell("calls 2")?;
    assert_eq!(user.call("rocattach_detach 0")?, "0");
    for (pid, rounds) in [(first, 1), (second, 2)] {
        let name = format!("both-{pid}_hip_api_trace.csv");
        assert_eq!(
            Csv::read(&dir.path().join(name))?.rows.len(),
            rounds * ROUND
        );
    }

    // The first generation of the interface, whose functions return no status, with other settings
    // than before.
    user.set("ROCPROF_KERNEL_TRACE", 0)?;
    user.set("ROCPROF_OUTPUT_FILE_NAME", "old")?;
    assert_eq!(user.call(&format!("attach {second}"))?, "None");
    two.tell("calls 4")?;
    assert_eq!(user.call("detach")?, "None");
    assert_eq!(
        Csv::read(&dir.path().join("old_hip_api_trace.csv"))?
            .rows
            .len(),
        4 * ROUND
    );
    assert!(
        !dir.path().join("old_kernel_trace.csv").exists(),
        "kernels were switched off"
    );

    // When the target ends, an exit counts as a success and a signal as a failure. The files are
    // written both times.
    user.set("ROCPROF_OUTPUT_FILE_NAME", "end-%pid%")?;
    for pid in [first, second] {
        assert_eq!(user.call(&format!("rocattach_attach {pid}"))?, "0");
    }
    one.tell("calls 1")?;
    two.tell("calls 1")?;
    one.quit()?;
    two.signal(libc::SIGKILL)?;
    drop(two);
    assert_eq!(user.call(&format!("rocattach_detach {first}"))?, "0");
    assert_eq!(user.call(&format!("rocattach_detach {second}"))?, "1");
    for pid in [first, second] {
        let rows = Csv::read(&dir.path().join(format!("end-{pid}_hip_api_trace.csv")))?.rows;
        assert!(rows.len() >= ROUND, "{pid}: {} rows", rows.len());
    }
    assert!(
        read(first)? == written,
        "files were changed after the detach had returned"
    );
    user.process.wait(PATIENCE)?.success()?;
    Ok(())
}

#[test]
fn the_example_attaches_records_and_detaches() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    // Follows the tool's own page: runs make in a copy of the folder, against the stage.
    let dir = tempfile::tempdir()?;
    for file in ["main.cpp", "Makefile"] {
        std::fs::copy(
            workspace().join("examples/attach-tool").join(file),
            dir.path().join(file),
        )?;
    }
    let mut make = Command::new("make");
    make.arg(format!("PREFIX={}", stage()?.display()))
        .arg("CXX=g++")
        .arg("CXXFLAGS=-O1")
        .current_dir(dir.path());
    run(make, PATIENCE)?.success()?;

    let mut target = lab
        .run("/lab/vadd")
        .arg(1_000_000)
        .arg(5_000)
        .register(false)
        .spawn()?;
    target.expect("iter 2")?;
    for words in [
        ["500", "--library"].as_slice(),
        &["300", "--first-generation"],
    ] {
        let mut tool = Command::new(dir.path().join("attach-tool"));
        tool.arg(target.pid().to_string()).arg(words[0]);
        match words[1] {
            "--library" => tool
                .arg("--library")
                .arg(stage()?.join("lib/librocprofiler-attach.so")),
            word => tool.arg(word),
        };
        tool.env_clear()
            .envs(plain_environment())
            .current_dir(dir.path());
        let before = target.model_log()?.dispatches().count();
        let exit = run(tool, PATIENCE)?.success()?;
        let log = target.model_log()?;
        let last = exit.stdout.last().cloned().unwrap_or_default();
        assert!(last.starts_with("Profiling completed"), "{exit}");
        let trace = Csv::read(
            &dir.path()
                .join("attachment-output/attached_profile_kernel_trace.csv"),
        )?;
        // Each row is a dispatch of the log, and none occurs twice. No dispatch of the log is
        // missing between the first row and the last.
        let times = trace
            .rows
            .iter()
            .map(|row| {
                Ok((
                    Csv::number(row, "Start_Timestamp")?,
                    Csv::number(row, "End_Timestamp")?,
                ))
            })
            .collect::<Result<Vec<_>>>()?;
        let seen: BTreeSet<(u64, u64)> = times.iter().copied().collect();
        assert_eq!(seen.len(), times.len(), "a dispatch is there twice");
        let (first, last) = (
            seen.first().ok_or("no kernels")?,
            seen.last().ok_or("no kernels")?,
        );
        let logged: BTreeSet<(u64, u64)> = log
            .dispatches()
            .skip(before)
            .map(|d| (d.packet.start, d.packet.end))
            .filter(|time| time >= first && time <= last)
            .collect();
        assert!(
            seen == logged,
            "{} in the trace, {} in the log",
            seen.len(),
            logged.len()
        );
        for what in ["hip_api", "memory_copy"] {
            let file = dir.path().join(format!(
                "attachment-output/attached_profile_{what}_trace.csv"
            ));
            assert!(!Csv::read(&file)?.rows.is_empty(), "{what}");
        }
        std::fs::remove_dir_all(dir.path().join("attachment-output"))?;
    }
    assert!(target.is_running()?);
    Ok(())
}
