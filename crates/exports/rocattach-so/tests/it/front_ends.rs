//! The attach tool of `examples/` and `rocprof-attach`, over a stand-in for the attach library.

use crate::common;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

struct Stage {
    folder: tempfile::TempDir,
    library: String,
}

impl Stage {
    fn new(defines: &[&str]) -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let library = folder
            .path()
            .join("librocprofiler-sdk-rocattach.so.1")
            .to_str()
            .unwrap()
            .to_owned();
        let fake = common::source("fake.c");
        let mut arguments = vec!["-shared", "-fPIC", "-o", &library, &fake];
        arguments.extend(defines);
        crate::common::compile("cc", &arguments);
        Stage { folder, library }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn log(&self) -> Vec<String> {
        std::fs::read_to_string(self.path("log"))
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// A command with only the environment that it needs.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("FAKE_LOG", self.path("log"));
        command
            .env("LD_LIBRARY_PATH", self.folder.path())
            .stdin(Stdio::null());
        // The Python interpreter, where it is not the system's.
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command
    }

    fn rocprof_attach(&self, words: &[&str]) -> Command {
        let mut command = self.command("python3");
        command
            .arg(common::project("python/rocprof-attach.py"))
            .args(words);
        command
    }

    /// The example, built as its Makefile builds it.
    fn attach_tool(&self, words: &[&str]) -> Command {
        let program = self.path("attach-tool");
        if !program.exists() {
            let source = common::project("examples/attach-tool/main.cpp");
            crate::common::compile(
                "c++",
                &[
                    "-std=c++17",
                    "-o",
                    program.to_str().unwrap(),
                    source.to_str().unwrap(),
                    "-ldl",
                ],
            );
        }
        let mut command = self.command(program.to_str().unwrap());
        command.args(words).current_dir(self.folder.path());
        command
    }
}

/// A process that waits for the end of its input. It has mapped a library that has the name of a
/// GPU runtime.
struct Target {
    child: Child,
    input: Option<ChildStdin>,
}

impl Target {
    fn start(stage: &Stage) -> Target {
        let library = stage.path("libamdhip64.so.7");
        crate::common::compile(
            "cc",
            &[
                "-shared",
                "-fPIC",
                "-xc",
                "/dev/null",
                "-o",
                library.to_str().unwrap(),
            ],
        );
        let mut child = Command::new("cat")
            .env("LD_PRELOAD", &library)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        // The process answers, so its libraries are mapped.
        input.write_all(b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Target {
            child,
            input: Some(input),
        }
    }
    fn pid(&self) -> String {
        self.child.id().to_string()
    }
    fn end(&mut self) {
        drop(self.input.take());
        self.child.wait().unwrap();
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.end();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Starts a command, waits for a line of its standard output, does `then`, and returns the whole
/// output. Fails when that takes too long.
fn run_and(mut command: Command, line: &str, then: impl FnOnce(&mut Child)) -> Output {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (tell, told) = channel();
    let output = child.stdout.take().unwrap();
    let wanted = line.to_owned();
    let reader = std::thread::spawn(move || {
        let mut all = String::new();
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if line == wanted {
                let _ = tell.send(());
            }
            all.push_str(&line);
            all.push('\n');
        }
        all
    });
    let came = told.recv_timeout(PATIENCE).is_ok();
    if came {
        then(&mut child);
    }
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if Instant::now() > deadline || !came => {
                child.kill().unwrap();
                child.wait().unwrap();
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let stdout = reader.join().unwrap();
    let mut stderr = Vec::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_end(&mut stderr)
        .unwrap();
    assert!(
        came,
        "the line {line:?} did not come:\n{stdout}\n{}",
        text(&stderr)
    );
    let status = status.unwrap_or_else(|| panic!("did not end:\n{stdout}"));
    Output {
        status,
        stdout: stdout.into_bytes(),
        stderr,
    }
}

fn signal(child: &Child, name: &str) {
    assert!(
        Command::new("kill")
            .args(["-s", name, &child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn rocprof_attach_prints_the_lines_that_scripts_look_for() {
    let stage = Stage::new(&[]);
    let target = Target::start(&stage);
    let (pid, library) = (target.pid(), stage.library.clone());
    let out = stage
        .rocprof_attach(&[
            "--attach",
            &pid,
            "-d",
            "50",
            "-t",
            "a.so:b.so",
            "--attach-library",
            &library,
        ])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let attaching = format!("Attaching to PID {pid} using library {library}");
    assert_eq!(
        text(&out.stdout).lines().collect::<Vec<_>>(),
        [
            attaching.clone(),
            format!("{attaching} :: success"),
            "Attaching for 50 msec...".into(),
            String::new(),
            "Detaching. Please wait, this can take up to 1-2 minutes".into(),
            format!("Detaching from PID {pid} using library {library} :: success"),
        ]
    );
    assert_eq!(
        stage.log(),
        [
            format!("rocattach_attach {pid} tools=a.so:b.so kernels=- output=-"),
            format!("rocattach_detach {pid} tools=a.so:b.so kernels=- output=-")
        ]
    );
}

#[test]
fn rocprof_attach_detaches_however_it_is_ended() {
    let stage = Stage::new(&[]);
    let mut target = Target::start(&stage);
    let (pid, library) = (target.pid(), stage.library.clone());
    let words = ["-p", &pid, "--attach-library", &library];
    let waiting = "Press Enter to detach...";
    let piped = || {
        let mut command = stage.rocprof_attach(&words);
        command.stdin(Stdio::piped());
        command
    };
    for (how, said) in [
        ("enter", None),
        ("end of input", None),
        ("INT", Some("Caught signal SIGINT")),
        ("TERM", Some("Caught signal SIGTERM")),
        ("HUP", Some("Caught signal SIGHUP")),
    ] {
        let out = run_and(piped(), waiting, |child| match how {
            "enter" => child.stdin.as_mut().unwrap().write_all(b"\n").unwrap(),
            "end of input" => drop(child.stdin.take()),
            name => signal(child, name),
        });
        let printed = text(&out.stdout);
        assert_eq!(
            out.status.code(),
            Some(0),
            "{how}: {printed}{}",
            text(&out.stderr)
        );
        assert!(
            printed.ends_with(&format!(
                "Detaching from PID {pid} using library {library} :: success\n"
            )),
            "{how}: {printed}"
        );
        assert_eq!(said.is_some(), printed.contains("Caught signal"), "{how}");
        assert!(
            said.is_none_or(|s| printed.contains(&format!("\n\n{s}\n"))),
            "{how}: {printed}"
        );
    }
    // nohup in a script: hangups are ignored, and the input is at its end.
    let plain = stage.rocprof_attach(&words);
    let mut nohup = stage.command("sh");
    nohup.args(["-c", "trap '' HUP && exec \"$@\"", "sh"]);
    nohup.arg(plain.get_program()).args(plain.get_args());
    nohup.stdin(Stdio::null());
    let out = run_and(nohup, waiting, |child| {
        signal(child, "HUP");
        signal(child, "TERM");
    });
    let printed = text(&out.stdout);
    assert!(printed.contains("Caught signal SIGTERM"), "{printed}");
    // The input is at its end from the start, and the target ends.
    let out = stage.rocprof_attach(&words).output().unwrap();
    assert_eq!(out.status.code(), Some(0));
    let out = run_and(piped(), waiting, |_| target.end());
    assert_eq!(out.status.code(), Some(0));
    let log = stage.log();
    assert_eq!(
        (
            log.len(),
            log.iter()
                .filter(|l| l.starts_with("rocattach_detach"))
                .count()
        ),
        (16, 8)
    );
}

#[test]
fn rocprof_attach_fails_when_something_failed() {
    let stage = Stage::new(&[]);
    let library = stage.library.clone();
    let run = |words: &[&str], variable: (&str, &str)| {
        let out = stage
            .rocprof_attach(words)
            .args(["--attach-library", &library])
            .env(variable.0, variable.1)
            .output()
            .unwrap();
        (
            out.status.code().unwrap(),
            text(&out.stdout),
            text(&out.stderr),
        )
    };
    let (code, out, errors) = run(&["-p", "1", "-d", "10"], ("FAKE_ATTACH", "6"));
    assert_eq!(code, 1);
    assert!(
        !out.contains("success") && errors.contains("rocprof-attach: ERROR: Calling attach in"),
        "{out}{errors}"
    );
    assert_eq!(stage.log().len(), 1, "nothing to detach from");
    let (code, out, _) = run(&["-p", "1", "-d", "10"], ("FAKE_DETACH", "1"));
    assert_eq!(code, 30);
    assert!(
        out.ends_with(&format!(
            "Calling detach in {library} returned non-zero status 1\n"
        )),
        "{out}"
    );

    for (words, wanted) in [
        (&["-d", "10"][..], 2),
        (&["-p", "x"][..], 2),
        (&["-p", "-4", "-d", "5"][..], 2),
        (&["-p", "1", "-d", "0"][..], 2),
        (&["-p", "1", "--attach-children", "maybe"][..], 2),
    ] {
        let (code, _, errors) = run(words, ("X", ""));
        assert_eq!(code, wanted, "{words:?}: {errors}");
        assert!(!errors.contains("Traceback"), "{errors}");
    }
    assert_eq!(stage.log().len(), 3, "refusals never reach the library");
    let (code, _, _) = run(
        &["-p", "1", "-d", "5", "--attach-children", "false"],
        ("X", ""),
    );
    assert_eq!(code, 0);
    let out = stage
        .rocprof_attach(&["-p", "1", "--attach-library", "/nowhere/libx.so"])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("rocprof-attach: ERROR: cannot load the attach library"));
}

#[test]
fn rocprof_attach_is_a_module_with_main() {
    let stage = Stage::new(&[]);
    let library = stage.library.clone();
    let script = format!(
        "import importlib.machinery, importlib.util, os\n\
         loader = importlib.machinery.SourceFileLoader('rocprof_attach', {:?})\n\
         m = importlib.util.module_from_spec(importlib.util.spec_from_loader('rocprof_attach', loader))\n\
         loader.exec_module(m)\n\
         m.main(pid=7, attach_library='tool-a.so:tool-b.so', duration=5)\n\
         m.main(7, {library:?}, '5')\n\
         m.main(7, {library:?} + ':tool-a.so', '5')\n\
         os.environ['ROCPROF_ATTACH_TOOL_LIBRARY'] = 'tool-c.so'\n\
         m.main(7, {library:?}, '5')\n\
         assert os.environ.pop('ROCPROF_ATTACH_TOOL_LIBRARY') == 'tool-c.so'\n\
         assert 'ROCPROF_ATTACH_TOOL_LIBRARY' not in os.environ\n\
         m.main(duration=5)\n\
         m.attach(9, 'tool-a.so', 5, fallback_tool_library='tool-b.so')\n\
         assert m.main(['-p', '9', '-d', '5', '-t', 'tool-a.so']) == 0\n\
         os.environ['FAKE_ATTACH'] = '4'\n\
         try:\n\
         \x20   m.main(7, duration=5)\n\
         except m.AttachError as error:\n\
         \x20   assert error.exit_code == 1\n\
         else:\n\
         \x20   raise SystemExit('no error')\n",
        crate::common::project("python/rocprof-attach.py")
            .to_str()
            .unwrap()
    );
    let out = stage
        .command("python3")
        .args(["-c", &script])
        .env("ROCPROF_ATTACH_LIBRARY", &library)
        .env("ROCPROF_ATTACH_PID", "8")
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    let log = stage.log();
    let attaches: Vec<&str> = log
        .iter()
        .filter(|l| l.starts_with("rocattach_attach"))
        .map(|l| l.split(" kernels").next().unwrap())
        .collect();
    assert_eq!(
        attaches,
        [
            "rocattach_attach 7 tools=tool-a.so:tool-b.so",
            "rocattach_attach 7 tools=-",
            &format!("rocattach_attach 7 tools={library}:tool-a.so"),
            "rocattach_attach 7 tools=-",
            "rocattach_attach 8 tools=-",
            "rocattach_attach 9 tools=tool-a.so",
            "rocattach_attach 9 tools=tool-a.so",
            "rocattach_attach 7 tools=-"
        ]
    );
}

/// Old distributions have Python 3.6. Newer versions can still check its grammar.
#[test]
fn rocprof_attach_is_of_python_3_6() {
    let stage = Stage::new(&[]);
    let check = "import ast, sys; [ast.parse(open(f).read(), f, feature_version=(3, 6)) for f in sys.argv[1:]]";
    let mut command = stage.command("python3");
    command.args(["-c", check]);
    for file in ["python/rocprof-attach.py", "python/rocprof_attach_main.py"] {
        command.arg(common::project(file));
    }
    let out = command.output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
}

#[test]
fn older_attach_libraries_serve_both_front_ends() {
    let stage = Stage::new(&["-DFIRST_GENERATION"]);
    let target = Target::start(&stage);
    let pid = target.pid();
    let out = stage
        .rocprof_attach(&["-p", &pid, "-d", "5", "--attach-library", &stage.library])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    // The process is found by its name.
    let out = stage.attach_tool(&[&pid, "5"]).output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let calls: Vec<String> = stage
        .log()
        .iter()
        .map(|l| l.split(" tools").next().unwrap().to_owned())
        .collect();
    let pair = [format!("attach {pid}"), "detach 0".to_owned()];
    assert_eq!(calls, [pair.clone(), pair].concat());
}

#[test]
fn the_attach_tool_does_the_whole_job() {
    let stage = Stage::new(&[]);
    let mut target = Target::start(&stage);
    let pid = target.pid();
    let out = stage
        .attach_tool(&[&pid, "20"])
        .env("ROCPROF_KERNEL_TRACE", "0")
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(text(&out.stdout).ends_with("Profiling completed; output below ./attachment-output\n"));
    // Variables that the user set are kept; the others have defaults.
    assert_eq!(
        stage.log()[0],
        format!("rocattach_attach {pid} tools=- kernels=0 output=csv")
    );
    let out = stage
        .attach_tool(&[&pid, "20", "--first-generation"])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(0));
    assert_eq!(
        stage.log()[2],
        format!("attach {pid} tools=- kernels=1 output=csv")
    );

    let waiting = "Profiling until the process ends...";
    let out = run_and(stage.attach_tool(&[&pid]), waiting, |child| {
        signal(child, "INT")
    });
    assert_eq!(out.status.code(), Some(0));
    let out = run_and(stage.attach_tool(&[&pid]), waiting, |_| target.end());
    assert_eq!(out.status.code(), Some(0));
    assert_eq!(stage.log().len(), 8);

    let mut again = Target::start(&stage);
    let (own, other) = (std::process::id().to_string(), again.pid());
    for (words, variable, wanted) in [
        (&[][..], "X", 2),
        (&["0", "5"][..], "X", 2),
        (&["12x"][..], "X", 2),
        (&[own.as_str(), "5"][..], "X", 1),
        (&[other.as_str(), "5"][..], "FAKE_ATTACH", 1),
        (&[other.as_str(), "5"][..], "FAKE_DETACH", 1),
        (
            &[other.as_str(), "5", "--library", "/nowhere/libx.so"][..],
            "X",
            1,
        ),
    ] {
        let out = stage
            .attach_tool(words)
            .env(variable, "1")
            .output()
            .unwrap();
        assert_eq!(
            out.status.code(),
            Some(wanted),
            "{words:?} {variable}: {}",
            text(&out.stderr)
        );
    }
    again.end();
    let out = stage.attach_tool(&[&other, "5"]).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("No such process"));
}
