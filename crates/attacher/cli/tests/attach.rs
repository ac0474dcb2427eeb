//! The command lines as processes: real pipes, real signals, exit codes. The engine is the example's, which
//! attaches to nothing, so everything but the attach is tested. Every wait has a deadline; nothing sleeps.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends by panicking"
)]

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, mkfifo};

const PATIENCE: Duration = Duration::from_secs(20);

fn example() -> PathBuf {
    // Examples are next to target/PROFILE/deps, where tests are.
    let tests = std::env::current_exe().unwrap();
    let path = tests
        .parent()
        .unwrap()
        .parent()
        .unwrap()
        .join("examples/on_fake_engine");
    assert!(
        path.exists(),
        "{} was not built; cargo test and cargo nextest build it",
        path.display()
    );
    path
}

struct Run {
    child: Child,
    stdin: Option<ChildStdin>,
    out: Receiver<String>,
    seen: Vec<String>,
    err: Option<std::thread::JoinHandle<String>>,
}

struct Outcome {
    code: Option<i32>,
    out: Vec<String>,
    err: String,
}

impl Outcome {
    /// Returns how often the wait was woken.
    fn polls(&self) -> u64 {
        self.err
            .lines()
            .find_map(|line| line.strip_prefix("polls "))
            .and_then(|count| count.parse().ok())
            .expect(&self.err)
    }
}

impl Run {
    fn start(words: &[&str], does: &str, stdin: Stdio, target: Option<&Path>) -> Run {
        let mut command = Command::new(example());
        command.args(words);
        Run::spawn(command, does, stdin, target)
    }

    fn spawn(mut command: Command, does: &str, stdin: Stdio, target: Option<&Path>) -> Run {
        command
            .env("FAKE", does)
            .env("TERM", "dumb")
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ROCP"))
        {
            command.env_remove(name);
        }
        if let Some(target) = target {
            command.env("FAKE_TARGET", target);
        }
        command.current_dir("/tmp");
        let mut child = command.spawn().unwrap();
        let (lines, out) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            stdout
                .lines()
                .map_while(Result::ok)
                .for_each(|line| drop(lines.send(line)))
        });
        let mut stderr = child.stderr.take().unwrap();
        let err = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        Run {
            stdin: child.stdin.take(),
            child,
            out,
            seen: Vec::new(),
            err: Some(err),
        }
    }

    /// Reads standard output up to and including this line.
    fn until(&mut self, line: &str) -> &mut Run {
        let deadline = Instant::now() + PATIENCE;
        while self.seen.last().map(String::as_str) != Some(line) {
            match self
                .out
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(next) => self.seen.push(next),
                Err(_) => panic!("no line {line:?} after {:?}", self.seen),
            }
        }
        self
    }

    /// Waits until its main thread sleeps in poll(2), where it waits for an end, or it has ended.
    fn until_it_waits(&mut self) -> &mut Run {
        let numbers = [nix::libc::SYS_ppoll, SYS_POLL].map(|number| number.to_string());
        let call = format!("/proc/{}/syscall", self.child.id());
        let deadline = Instant::now() + PATIENCE;
        while let Ok(call) = std::fs::read_to_string(&call) {
            let number = call.split_whitespace().next().unwrap_or_default();
            if numbers.iter().any(|poll| poll == number) || self.child.try_wait().unwrap().is_some()
            {
                break;
            }
            assert!(Instant::now() < deadline, "it does not wait: {call}");
            std::thread::yield_now();
        }
        self
    }

    fn signal(&mut self, signal: Signal) -> &mut Run {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
        self
    }

    fn end(mut self) -> Outcome {
        let deadline = Instant::now() + PATIENCE;
        // Standard output ends when the process does, so this waits for it, with a deadline.
        while let Ok(line) = self
            .out
            .recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            self.seen.push(line);
        }
        assert!(
            Instant::now() < deadline,
            "it did not end; it said {:?}",
            self.seen
        );
        let code = self.child.wait().unwrap().code();
        let err = self.err.take().unwrap().join().unwrap();
        Outcome {
            code,
            out: std::mem::take(&mut self.seen),
            err,
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The number of poll(2). Newer architectures have ppoll(2) alone.
#[cfg(target_arch = "x86_64")]
const SYS_POLL: nix::libc::c_long = nix::libc::SYS_poll;
#[cfg(not(target_arch = "x86_64"))]
const SYS_POLL: nix::libc::c_long = nix::libc::SYS_ppoll;

const ATTACH: [&str; 5] = [
    "rocprofv3",
    "--pid",
    "4242",
    "--hip-trace",
    "--kernel-trace",
];
const PROMPT: &str = "Press Enter to detach...";
const BEGIN: [&str; 2] = [
    "Attaching to PID 4242 using library libfake.so.1",
    "Attaching to PID 4242 using library libfake.so.1 :: success",
];
const END: [&str; 3] = [
    "Detaching. Please wait, this can take up to 1-2 minutes",
    "Detaching from PID 4242 using library libfake.so.1 :: success",
    "Opened result file: /tmp/out.rocpd",
];

fn start(does: &str) -> Run {
    Run::start(&ATTACH, does, Stdio::piped(), None)
}

#[test]
fn enter_detaches() {
    let mut run = start("");
    run.until(PROMPT);
    run.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    let end = run.end();
    assert_eq!(end.code, Some(0), "{}", end.err);
    assert_eq!(end.out, [&BEGIN[..], &[PROMPT], &END].concat());
    assert!(
        end.err.contains("rocprofv3: warning: a warning"),
        "{}",
        end.err
    );
}

#[test]
fn each_signal_detaches() {
    for (signal, line) in [
        (Signal::SIGINT, "Caught signal SIGINT"),
        (Signal::SIGTERM, "Caught signal SIGTERM"),
        (Signal::SIGHUP, "Caught signal SIGHUP"),
    ] {
        let mut run = start("");
        run.until(PROMPT).signal(signal);
        let end = run.end();
        assert_eq!(end.code, Some(0), "{signal}: {}", end.err);
        assert_eq!(
            end.out,
            [&BEGIN[..], &[PROMPT, "", line], &END].concat(),
            "{signal}"
        );
    }
}

/// As `nohup rocprofv3 ... &` in a script starts it: hangups are ignored, and standard input is
/// /dev/null.
#[test]
fn what_was_ignored_at_the_start_ends_nothing() {
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP && exec \"$@\"", "sh"]);
    command.arg(example()).args(ATTACH);
    let mut run = Run::spawn(command, "", Stdio::null(), None);
    // It has seen the end of its input by then, since the poll before returned for it.
    run.until(PROMPT).until_it_waits();
    // If both were taken, the first would be: its number is smaller.
    run.signal(Signal::SIGHUP);
    run.signal(Signal::SIGTERM);
    let end = run.end();
    assert_eq!(end.code, Some(0), "{}", end.err);
    assert!(!end.err.contains("standard input"), "{}", end.err);
    let wanted = [&BEGIN[..], &[PROMPT, "", "Caught signal SIGTERM"], &END].concat();
    assert_eq!(end.out, wanted);
}

#[test]
fn a_signal_ends_an_attach_with_a_duration() {
    let words = [&ATTACH[..], &["--attach-duration-msec", "600000"]].concat();
    let mut run = Run::start(&words, "", Stdio::piped(), None);
    run.until("Attaching for 600000 msec...")
        .signal(Signal::SIGINT);
    let end = run.end();
    assert_eq!(
        (end.code, end.out.last().map(String::as_str)),
        (Some(0), Some(END[2])),
        "{}",
        end.err
    );
}

/// Nothing came, so these do not end with 0.
#[test]
fn what_ends_before_anything_came_says_so() {
    let words = |at| ["midair", "attach", "4242", "--at", at];
    let before = Instant::now();
    let mut run = Run::start(&words("12:00"), "", Stdio::null(), None);
    let status = format!("/proc/{}/status", run.child.id());
    // The signal must find it where it waits.
    let blocks = || {
        let status = std::fs::read_to_string(&status).unwrap();
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        let blocked = u64::from_str_radix(blocked.unwrap().trim(), 16).unwrap();
        blocked & 1 << (Signal::SIGTERM as i32 - 1) != 0
    };
    while !blocks() {
        assert!(before.elapsed() < PATIENCE, "it does not wait");
        std::thread::yield_now();
    }
    run.signal(Signal::SIGTERM);
    let end = run.end();
    assert_eq!(end.code, Some(41), "{}", end.err);
    let why = "error: received SIGTERM before the time of --at; nothing was attached";
    assert!(end.err.contains(why), "{}", end.err);
    assert!(
        end.err.contains("hint: let it run until then"),
        "{}",
        end.err
    );

    let words = [
        "midair",
        "attach",
        "4242",
        "--duration",
        "1ms",
        "--keep",
        "1s",
    ];
    let triggers = [&words[..], &["--trigger", "gap > 50ms"]].concat();
    let end = Run::start(&triggers, "", Stdio::null(), None).end();
    assert_eq!(end.code, Some(41), "{}", end.err);
    let why = "error: process 4242: no --trigger was met, so no window was written";
    assert!(end.err.contains(why), "{}", end.err);
    assert!(
        end.err.contains("hint: let it run for longer"),
        "{}",
        end.err
    );
    // What was kept is written at the end.
    let end = Run::start(&words, "", Stdio::null(), None).end();
    assert_eq!(end.code, Some(0), "{}", end.err);
}

#[test]
fn the_end_of_input_detaches() {
    let mut run = start("");
    run.until(PROMPT);
    drop(run.stdin.take());
    let end = run.end();
    assert_eq!(end.code, Some(0), "{}", end.err);
    assert_eq!(end.out, [&BEGIN[..], &[PROMPT], &END].concat());
}

#[test]
fn no_input_and_no_duration_detaches_at_once_and_says_so() {
    let end = Run::start(&ATTACH, "", Stdio::null(), None).end();
    assert_eq!(end.code, Some(0));
    assert!(
        end.err.contains("standard input was at its end"),
        "{}",
        end.err
    );
}

#[test]
fn a_recording_of_a_service_ends_by_a_signal_alone() {
    let words = [&ATTACH[..], &["--until-signal"]].concat();
    // Standard input is at its end from the start.
    let mut run = Run::start(&words, "", Stdio::null(), None);
    run.until("Send SIGINT or SIGTERM to detach...")
        .signal(Signal::SIGTERM);
    let end = run.end();
    assert_eq!(end.code, Some(0), "{}", end.err);
    assert!(!end.err.contains("standard input"), "{}", end.err);
}

#[test]
fn a_process_alone_is_attached_to_and_messages_name_it() {
    for words in [
        &["midair", "4242"][..],
        &["midair", "-p", "4242"],
        &["midair", "attach", "--pid", "4242"],
    ] {
        let words = [words, &["--duration", "1ms", "-f", "csv", "pftrace"]].concat();
        let end = Run::start(&words, "", Stdio::null(), None).end();
        assert_eq!(end.code, Some(0), "{}", end.err);
        for wanted in [
            "attached to process 4242 in ",
            "detached from process 4242 in ",
            "warning: process 4242: a warning",
        ] {
            assert!(end.err.contains(wanted), "{wanted}: {}", end.err);
        }
        let files: Vec<&str> = end.out.iter().rev().take(2).map(String::as_str).collect();
        assert_eq!(files, ["/tmp/out.pftrace", "/tmp/out.csv"], "{:?}", end.out);
    }
}

#[test]
fn the_screen_is_shown_as_asked_for() {
    let attach = |more: &[&str]| {
        let words = [
            &["midair", "attach", "4242", "--duration", "1ms", "-f", "csv"],
            more,
        ]
        .concat();
        Run::start(&words, "", Stdio::null(), None).end()
    };
    let quiet = attach(&["--quiet"]);
    assert_eq!(quiet.out, ["/tmp/out.csv"]);
    assert!(!quiet.err.contains("attached to"), "{}", quiet.err);
    assert!(quiet.err.contains("warning: "), "{}", quiet.err);
    let json = attach(&["--json"]);
    assert_eq!(json.out.len(), 1, "{:?}", json.out);
    let document: serde_json::Value = serde_json::from_str(&json.out[0]).unwrap();
    assert_eq!(document["schema"], 1);
    let shown = attach(&[]);
    assert!(shown.out.len() > 2, "{:?}", shown.out);
}

#[test]
fn a_format_that_there_is_not_is_answered_with_those_that_there_are() {
    let end = Run::start(&["midair", "4242", "-f", "excel"], "", Stdio::null(), None).end();
    assert_eq!(end.code, Some(2));
    let hint = end
        .err
        .lines()
        .find(|line| line.starts_with("hint: one of: "));
    let hint = hint.expect(&end.err);
    for format in ["csv", "json", "pftrace", "rocpd"] {
        assert!(hint.contains(format), "{hint}");
    }
}

#[test]
fn the_duration_rules_whatever_standard_input_is() {
    for stdin in [Stdio::null(), Stdio::piped()] {
        let words = [&ATTACH[..], &["--attach-duration-msec", "350"]].concat();
        let began = Instant::now();
        let mut run = Run::start(&words, "", stdin, None);
        // A line, then the end of the input: neither ends the attach.
        if let Some(mut stdin) = run.stdin.take() {
            stdin.write_all(b"\n").unwrap();
        }
        let end = run.end();
        assert!(began.elapsed() >= Duration::from_millis(350));
        assert_eq!(end.code, Some(0), "{}", end.err);
        assert_eq!(
            end.out,
            [&BEGIN[..], &["Attaching for 350 msec...", ""], &END].concat()
        );
        // Three heartbeats and the ends are expected. A busy loop would make thousands of polls.
        assert!((2..=12).contains(&end.polls()), "{} polls", end.polls());
    }
}

#[test]
fn the_end_of_the_target() {
    let directory = tempfile::tempdir().unwrap();
    for (word, code, said) in [
        ("exit", 0, ""),
        ("9", 31, "killed by signal SIGKILL"),
        ("exec", 31, "executed another program"),
        ("yield", 0, "a warning"),
    ] {
        let fifo = directory.path().join(word);
        mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        // Open at both ends, so that neither side waits for the other.
        let mut target = File::options().read(true).write(true).open(&fifo).unwrap();
        let mut run = Run::start(&ATTACH, "", Stdio::piped(), Some(&fifo));
        run.until(PROMPT);
        target.write_all(word.as_bytes()).unwrap();
        let end = run.end();
        assert_eq!(end.code, Some(code), "{word}: {}", end.err);
        assert_eq!(end.out, [&BEGIN[..], &[PROMPT, END[2]]].concat(), "{word}");
        // The process has not ended when this side yields to another profiler. The results report
        // that.
        assert_eq!(
            end.err.contains("process 4242 exited or"),
            word != "yield",
            "{word}: {}",
            end.err
        );
        assert!(end.err.contains(said), "{word}: {}", end.err);
    }
}

#[test]
fn refusals_and_failures_have_their_codes_and_lines() {
    let end = start("refuse").end();
    assert_eq!(end.code, Some(11));
    assert_eq!(end.out, BEGIN[..1]);
    assert_eq!(
        end.err,
        "rocprofv3: error: process may not be touched\nhint: be root\n"
    );

    let run = |does: &str| {
        let words = [&ATTACH[..], &["--attach-duration-msec", "1"]].concat();
        Run::start(&words, does, Stdio::null(), None).end()
    };
    let end = run("stay");
    assert_eq!(end.code, Some(30));
    assert!(
        end.out
            .contains(&"Calling detach in libfake.so.1 returned non-zero status 1".to_owned()),
        "{:?}",
        end.out
    );
    assert!(
        end.err
            .contains("rocprofv3: error: the detach did not end in time"),
        "{}",
        end.err
    );

    let end = run("lose");
    assert_eq!(
        (end.code, end.out.last().map(String::as_str)),
        (Some(32), Some(END[2]))
    );
    assert!(
        end.err.contains("rocprofv3: error: 7 records were lost"),
        "{}",
        end.err
    );

    assert_eq!(run("full").code, Some(33));

    // A session that fails is detached all the same, and its results are written.
    let end = run("break");
    assert_eq!(
        (end.code, end.out.last().map(String::as_str)),
        (Some(22), Some(END[2]))
    );
    assert!(
        end.err.contains("the agent does not answer") && end.err.contains("polls 1"),
        "{}",
        end.err
    );
}

#[test]
fn words_that_end_before_an_attach() {
    let run = |words: &[&str]| {
        Run::start(&[&["rocprofv3"], words].concat(), "", Stdio::null(), None).end()
    };
    for (words, code, said) in [
        (
            &["--nonsense"][..],
            2,
            "rocprofv3: error: unexpected argument '--nonsense'",
        ),
        (&["--hip-trace"], 2, "no process to attach to"),
        (
            &["--pid", "1", "--spm", "SQ_WAVES"],
            34,
            "--spm is known but not built yet",
        ),
        (
            &["--pid", "1", "--perfetto-backend", "system"],
            34,
            "--perfetto-backend system is known but not built yet",
        ),
        (
            &["--pid", "1", "--", "app"],
            2,
            "cannot both start a program and attach to a process",
        ),
        (&["--hip-trace", "--"], 2, "no program to start"),
        // This starts a program, and does not attach.
        (
            &["-P", "1:2", "--", "true"],
            2,
            "--collection-period takes DELAY:LENGTH:REPEAT, not '1:2'",
        ),
        (
            &["-P", "1:2:3", "--selected-regions", "--", "true"],
            2,
            "--collection-period and --selected-regions cannot be combined",
        ),
        (
            &["--profile-mpi-ranks", "3-1", "--", "true"],
            2,
            "the range 3-1 ends before its start",
        ),
        (
            &["--mpi-world-rank-variable", "RANK", "--", "true"],
            2,
            "must be used together",
        ),
        (
            &[
                "--kernel-trace",
                "--rocm-root",
                "/nonexistent",
                "--",
                "true",
            ],
            2,
            "/nonexistent/lib/librocprofiler-sdk.so.1 does not exist",
        ),
        (
            &["--pid", "1", "--rocm-root", "/opt/rocm"],
            2,
            "an attach uses midair's own libraries",
        ),
        (
            &["--pid", "1", "--profile-mpi-ranks", "0"],
            2,
            "MPI ranks can only be selected when a program is started",
        ),
        (
            &["--pid", "1", "--process-sync"],
            2,
            "--process-sync requires a started program",
        ),
        (
            &["--pid", "1", "-P", "1:0:3"],
            2,
            "--collection-period takes DELAY:LENGTH:REPEAT",
        ),
    ] {
        let end = run(words);
        assert_eq!(end.code, Some(code), "{words:?}: {}", end.err);
        assert!(
            end.err.contains(said) && end.out.is_empty(),
            "{words:?}: {} {:?}",
            end.err,
            end.out
        );
        // There is one line for the failure, and one for the remedy.
        let lines = end.err.lines().filter(|line| !line.contains("warning: "));
        assert_eq!(lines.count(), 2, "{words:?}: {}", end.err);
    }
    let help = run(&[]);
    assert_eq!(help.code, Some(0));
    assert!(help.out.iter().any(|line| line.contains("--pid")));
    let version = run(&["--version"]);
    assert_eq!((version.code, version.out.len()), (Some(0), 9));
}

#[test]
fn nothing_asked_for_is_warned_of() {
    let end = Run::start(
        &["rocprofv3", "-p", "4242", "--attach-duration-msec", "1"],
        "",
        Stdio::null(),
        None,
    )
    .end();
    assert_eq!(end.code, Some(0));
    assert!(
        end.err
            .contains("rocprofv3: warning: No tracing options were enabled."),
        "{}",
        end.err
    );
}

#[test]
fn a_reader_that_is_gone_does_not_leave_the_target_attached() {
    let mut child = Command::new(example());
    let words = [&ATTACH[..], &["--attach-duration-msec", "50"]].concat();
    let mut child = child
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut err = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut err)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{err}");
    assert!(err.contains("polls "), "not detached: {err}");
}

#[test]
fn midair_attach_ends_with_the_table_and_the_files() {
    let words = [
        "midair",
        "attach",
        "4242",
        "--duration",
        "20ms",
        "-f",
        "csv,json",
        "-d",
        "out",
    ];
    let end = Run::start(&words, "", Stdio::null(), None).end();
    assert_eq!(end.code, Some(0), "{}", end.err);
    // The fake's table lists the traces asked for: the default is what a user of HIP sees, as far as it is
    // built.
    for trace in [
        "ROCPROF_HIP_COMPILER_API_TRACE",
        "ROCPROF_HIP_RUNTIME_API_TRACE",
        "ROCPROF_KERNEL_TRACE",
        "ROCPROF_MEMORY_COPY_TRACE",
    ] {
        assert!(end.out.iter().any(|line| line == trace), "{:?}", end.out);
    }
    let files = ["", "/tmp/out/out.csv", "/tmp/out/out.json"];
    assert!(
        end.out.ends_with(&files.map(str::to_owned)),
        "{:?}",
        end.out
    );
    assert!(
        end.err.contains("attached to process 4242 in ")
            && end.err.contains("recording for 0.02 s"),
        "{}",
        end.err
    );
    assert!(
        !end.err.contains('\x1b'),
        "colour without a terminal: {}",
        end.err
    );
}

#[test]
fn midair_attach_records_only_what_is_asked_for() {
    let words = [
        "midair",
        "attach",
        "--kernel-trace",
        "4242",
        "--duration",
        "1ms",
    ];
    let end = Run::start(&words, "", Stdio::null(), None).end();
    assert_eq!(
        (end.code, end.out[0].as_str(), end.out[1].as_str()),
        (Some(0), "ROCPROF_KERNEL_TRACE", ""),
        "{}",
        end.err
    );
}

#[test]
fn how_it_came_in_is_told_at_level_info() {
    let words = [
        "rocprofv3",
        "-p",
        "4242",
        "--hip-trace",
        "--attach-duration-msec",
        "1",
    ];
    let quiet = Run::start(&words, "entry", Stdio::null(), None).end();
    assert!(!quiet.err.contains("entered by"), "{}", quiet.err);
    let words = [&words[..], &["--log-level", "info"]].concat();
    let end = Run::start(&words, "entry", Stdio::null(), None).end();
    for line in [
        "entered by a running thread at a safe point: 7 (work), in step; that thread was stopped for 123 us (stop 20, stub 100, release 3)",
        "running threads were stopped 5 times to inspect them, for 60 us in total",
        "not used: 0 (busy) is running",
        "not used: 19 (busy) is running",
        "not used: 3 more",
    ] {
        assert!(end.err.contains(line), "{line}: {}", end.err);
    }
    assert!(!end.err.contains("not used: 20 (busy)"), "{}", end.err);
}

#[test]
fn the_phases_of_an_attach_are_printed_where_that_is_asked_for() {
    let words = ["midair", "attach", "4242", "--duration", "1ms"];
    let phases = "inspect 12.0 ms, prepare 9.0 ms while entering, enter 15.3 ms, set up 13.0 ms; \
                  attached after 41.2 ms, 30.0 ms of midair's processor time";
    for timings in [&[][..], &["--timings"]] {
        let words = [&words[..], timings].concat();
        let end = Run::start(&words, "entry", Stdio::null(), None).end();
        assert_eq!(end.err.contains(phases), !timings.is_empty(), "{}", end.err);
    }
}

#[test]
fn a_cuda_process_is_told_in_one_line() {
    let words = |front: &'static str| match front {
        "midair" => vec![front, "attach", "4242", "--duration", "1ms"],
        _ => vec![
            front,
            "-p",
            "4242",
            "--kernel-trace",
            "--attach-duration-msec",
            "1",
        ],
    };
    const LINE: &str = "process 4242 is a CUDA process: midair records it through CUPTI";
    for (front, does, lines) in [
        ("rocprofv3", "cuda", 1),
        ("rocprofv3", "entry", 0),
        ("midair", "cuda", 0),
    ] {
        let end = Run::start(&words(front), does, Stdio::null(), None).end();
        assert_eq!(end.code, Some(0), "{}", end.err);
        let told = end.err.lines().filter(|line| *line == LINE).count();
        assert_eq!(told, lines, "{front} {does}: {}", end.err);
        // What was asked for and is not available is reported at every level. Other information is
        // reported only on request. rocprofv3 attaches to what descends from the process as well,
        // so a warning names the process that it is about.
        let whose = match front {
            "midair" => "process 4242: ",
            _ => "",
        };
        let warning = format!("{front}: warning: {whose}there is no such trace");
        assert!(end.err.contains(&warning), "{}", end.err);
        assert!(!end.err.contains("there is another"), "{}", end.err);
    }
    let all = [&words("rocprofv3")[..], &["--log-level", "info"]].concat();
    let end = Run::start(&all, "cuda", Stdio::null(), None).end();
    assert!(end.err.contains("there is another"), "{}", end.err);
}

#[test]
fn midair_doctor_prints_each_check() {
    let end = Run::start(&["midair", "doctor", "77"], "", Stdio::null(), None).end();
    assert_eq!(end.code, Some(0));
    assert_eq!(
        end.out,
        [
            "ok  alive    process 77",
            "ok  runtime  process 77",
            "process can be attached to"
        ]
    );
    let dry = Run::start(
        &["midair", "attach", "77", "--dry-run"],
        "",
        Stdio::null(),
        None,
    )
    .end();
    assert_eq!((dry.code, &dry.out), (Some(0), &end.out), "{}", dry.err);
    let end = Run::start(&["midair", "doctor", "77"], "refuse", Stdio::null(), None).end();
    assert_eq!(end.code, Some(14));
    assert_eq!(
        end.out[1..],
        [
            "NO  runtime  no GPU runtime",
            "             hint: start one",
            "process cannot be attached to"
        ]
    );
}

#[test]
fn midair_doctor_speaks_json() {
    let end = Run::start(
        &["midair", "doctor", "77", "--json"],
        "refuse",
        Stdio::null(),
        None,
    )
    .end();
    assert_eq!(end.code, Some(14));
    assert_eq!(end.out.len(), 1);
    let told: serde_json::Value = serde_json::from_str(&end.out[0]).unwrap();
    assert_eq!(
        (&told["pid"], &told["attachable"], &told["exit_code"]),
        (&77.into(), &false.into(), &14.into())
    );
    assert_eq!(told["checks"][0]["status"], "pass");
    assert_eq!(told["checks"][1]["hint"], "start one");
}

#[test]
fn midair_ps_tells_what_it_could_not_look_at() {
    let ps = |words: &[&str]| Run::start(words, "", Stdio::null(), None).end();
    let end = ps(&["midair", "ps"]);
    assert_eq!((end.code, end.out.len()), (Some(0), 0));
    // Root must not be asked to become root.
    let remedy = match nix::unistd::Uid::effective().is_root() {
        true => "",
        false => ": run this as root",
    };
    let told = format!("2 processes cannot be inspected{remedy}\n");
    assert!(end.err.contains(&told), "{}", end.err);
    let end = ps(&["midair", "ps", "-a"]);
    assert!(!end.err.contains("cannot be inspected"), "{}", end.err);
    let end = ps(&["midair", "ps", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&end.out[0]).unwrap();
    assert_eq!(
        told,
        serde_json::json!({"version": 1, "unreadable": 2, "processes": []})
    );
}

#[test]
fn midair_knows_its_commands() {
    let end = Run::start(&["midair", "fly"], "", Stdio::null(), None).end();
    assert_eq!(end.code, Some(2));
}

#[test]
fn midair_prints_completions_and_manual_pages() {
    for (words, has) in [
        (&["midair", "completions", "bash"][..], "_midair"),
        (
            &["midair", "completions", "zsh", "--command", "rocprofv3"],
            "#compdef rocprofv3",
        ),
        (
            &[
                "midair",
                "completions",
                "bash",
                "--command",
                "rocprof-compute",
            ],
            "--target-error",
        ),
        // The options of a subcommand or argument are completed, too.
        (&["midair", "completions", "bash"], "--target-error"),
        (&["midair", "man"], ".TH MIDAIR"),
        (&["midair", "man", "attach"], ".TH MIDAIR-ATTACH"),
        (&["midair", "help", "attach"], "Usage: midair attach"),
        (&["midair", "man", "rocprof-compute-live"], "interval"),
        (&["midair", "man", "rocprofv3"], ".TH ROCPROFV3"),
        (&["midair", "man", "rocpd-convert"], ".TH ROCPD-CONVERT"),
        (
            &["midair", "completions", "bash", "--command", "rocpd"],
            "--domain-summary",
        ),
    ] {
        let end = Run::start(words, "", Stdio::null(), None).end();
        assert_eq!(end.code, Some(0), "{words:?}: {}", end.err);
        assert!(
            end.out.iter().any(|line| line.contains(has)),
            "{words:?}: {:?}",
            end.out.first()
        );
    }
}

/// Standard error is a terminal: progress once a second, and colours unless they are not wanted.
#[test]
fn a_terminal_sees_progress_and_colour() {
    for (no_colour, coloured) in [("", true), ("1", false)] {
        let terminal = nix::pty::openpty(None, None).unwrap();
        let mut command = Command::new(example());
        command
            .args([
                "midair",
                "attach",
                "1",
                "--duration",
                "1200ms",
                "-d",
                "/tmp",
            ])
            .env("TERM", "xterm")
            .env("NO_COLOR", no_colour)
            .env_remove("FAKE")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::from(terminal.slave));
        let mut child = command.spawn().unwrap();
        // The command holds the other end of the terminal, too. After it is dropped, reading ends
        // with the child.
        drop(command);
        let mut seen = Vec::new();
        // A terminal whose last user has gone reads as an error, not as an end.
        let _ = File::from(terminal.master).read_to_end(&mut seen);
        assert_eq!(child.wait().unwrap().code(), Some(0));
        let seen = String::from_utf8(seen).unwrap();
        assert!(seen.contains("\r\x1b[K1 s  "), "no progress: {seen:?}");
        assert_eq!(
            seen.contains("\x1b[33mwarning:\x1b[0m"),
            coloured,
            "NO_COLOR={no_colour:?}: {seen:?}"
        );
        assert!(seen.contains("a warning"), "{seen:?}");
    }
}
