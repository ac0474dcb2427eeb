//! The command lines as a user types them, on AMD's runtimes: every way to end, what is printed,
//! the files and their names.

use midair_tests::Result;
use midair_tests::caller::Caller;
use midair_tests::lab::Lab;
use midair_tests::stage::{command, run_staged, stage};
use midair_tests::table::{Csv, json, page};
use midair_tests::target::{Exit, PATIENCE, Target, run};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Calls that one round of the program makes.
const ROUND: usize = 13;
const DETACHING: &str = "Detaching. Please wait, this can take up to 1-2 minutes";

fn library() -> Result<String> {
    Ok(stage()?
        .join("lib/librocprofiler-sdk-rocattach.so.1")
        .display()
        .to_string())
}

/// The lines of one good attach (`docs/sources.md#rocprofv3`), before the files are announced.
fn lines(pid: i32, wait: &[&str], caught: Option<&str>) -> Result<Vec<String>> {
    let library = library()?;
    let mut lines = vec![
        format!("Attaching to PID {pid} using library {library}"),
        format!("Attaching to PID {pid} using library {library} :: success"),
    ];
    lines.extend(wait.iter().map(|line| line.to_string()));
    if let Some(name) = caught {
        lines.extend([String::new(), format!("Caught signal {name}")]);
    }
    lines.push(DETACHING.to_owned());
    lines.push(format!(
        "Detaching from PID {pid} using library {library} :: success"
    ));
    Ok(lines)
}

/// Splits what was printed into the lines before the files, and the files.
fn printed(exit: &Exit) -> (Vec<String>, Vec<PathBuf>) {
    let mark = "Opened result file: ";
    let (files, lines): (Vec<_>, Vec<_>) =
        exit.stdout.iter().partition(|line| line.starts_with(mark));
    let files = files
        .iter()
        .filter_map(|line| line.strip_prefix(mark))
        .map(PathBuf::from)
        .collect();
    (lines.into_iter().cloned().collect(), files)
}

fn rocprofv3(pid: i32, words: &[&str], cwd: &Path) -> Result<Command> {
    let mut command = command("rocprofv3")?;
    command.args([
        "--pid",
        &pid.to_string(),
        "--hip-trace",
        "--output-format",
        "csv",
    ]);
    command.args(words).current_dir(cwd);
    Ok(command)
}

fn rows(file: &Path) -> Result<usize> {
    Ok(Csv::read(file)?.rows.len())
}

/// All files below a directory, relative to it.
/// The tables of the second recording, as DuckDB reads them, row by row; the csv files of the first
/// one stand aside.
fn parquet_equals_csv(dir: &Path) -> Result<()> {
    let aside = dir.join("csv");
    std::fs::create_dir(&aside)?;
    for name in files(dir)? {
        if let Some(rest) = name.strip_prefix("m-2_") {
            std::fs::copy(dir.join(&name), aside.join(format!("r_{rest}")))?;
        }
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/duckdb_parquet.py");
    let mut command = Command::new(midair_tests::python()?);
    command.arg("-B").arg(script).args([dir, &aside]);
    let exit = run(command, PATIENCE)?.success()?;
    let said: serde_json::Value = serde_json::from_str(&exit.stdout.join("\n"))?;
    assert_eq!(said["rows"]["kernels"], 6, "{said}");
    assert_eq!(said["metadata"]["midair.lost"], "{}", "{said}");
    std::fs::remove_dir_all(aside)?;
    Ok(())
}

/// The page has what the screen has as a document, and a row for the GPU's work and one for the
/// calls.
fn page_equals(page: &serde_json::Value, document: &serde_json::Value) -> Result<()> {
    let (mut head, mut wanted) = (
        page["processes"][0].clone(),
        document["processes"][0].clone(),
    );
    for value in [&mut head, &mut wanted] {
        let members = value.as_object_mut().ok_or("no object")?;
        members.retain(|key, _| key != "notes" && key != "untimed");
    }
    assert_eq!(head, wanted);
    let (tables, wanted) = (&page["tables"], &document["tables"]);
    assert_eq!(
        tables.as_array().map(Vec::len),
        wanted.as_array().map(Vec::len)
    );
    for (table, wanted) in tables
        .as_array()
        .into_iter()
        .flatten()
        .zip(wanted.as_array().into_iter().flatten())
    {
        assert_eq!(table["title"], wanted["title"]);
        for (row, wanted) in table["rows"]
            .as_array()
            .into_iter()
            .flatten()
            .zip(wanted["rows"].as_array().into_iter().flatten())
        {
            let keys = ["name", "calls", "total_ns", "min_ns", "max_ns"];
            for (key, at) in keys.into_iter().zip([0, 2, 3, 4, 5]) {
                assert_eq!(row[at], wanted[key], "{row} {wanted}");
            }
        }
    }
    for wanted in ["GPU 0 ", "main thread "] {
        let rows = page["rows"].as_array().into_iter().flatten();
        let mut names = rows
            .filter(|row| row["spans"][3].is_number())
            .filter_map(|row| row["name"].as_str());
        assert!(
            names.any(|name| name.starts_with(wanted)),
            "{wanted}: {}",
            page["rows"]
        );
    }
    Ok(())
}

fn files(dir: &Path) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(next) = todo.pop() {
        for entry in std::fs::read_dir(next)? {
            let path = entry?.path();
            if path.is_dir() {
                todo.push(path);
            } else {
                found.insert(path.strip_prefix(dir)?.display().to_string());
            }
        }
    }
    Ok(found)
}

fn code(exit: &Exit, code: i32) {
    assert_eq!(exit.status.code(), Some(code), "{exit}");
}

#[test]
fn every_way_a_session_ends() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    let pid = caller.pid();
    let until = ["Press Enter to detach..."];
    /// Its name, the signal that is announced, and how it is done.
    type Way = (
        &'static str,
        Option<&'static str>,
        fn(&mut Target) -> Result<()>,
    );
    let ways: [Way; 5] = [
        ("enter", None, |process| process.send("")),
        ("end of input", None, |process| {
            process.close_stdin();
            Ok(())
        }),
        ("SIGINT", Some("SIGINT"), |process| {
            process.signal(libc::SIGINT)
        }),
        ("SIGTERM", Some("SIGTERM"), |process| {
            process.signal(libc::SIGTERM)
        }),
        ("SIGHUP", Some("SIGHUP"), |process| {
            process.signal(libc::SIGHUP)
        }),
    ];
    for (name, caught, end) in ways {
        let dir = tempfile::tempdir()?;
        let mut process = Target::spawn(rocprofv3(pid, &["-d", "sub", "-o", "o"], dir.path())?)?;
        process.expect(until[0])?;
        caller.tell("calls 2")?;
        end(&mut process)?;
        let exit = process.wait(PATIENCE)?;
        code(&exit, 0);
        let (said, announced) = printed(&exit);
        assert_eq!(said, lines(pid, &until, caught)?, "{name}");
        let calls = dir.path().join("sub/o_hip_api_trace.csv");
        assert_eq!(rows(&calls)?, 2 * ROUND, "{name}");
        let expected = ["sub/o_agent_info.csv", "sub/o_hip_api_trace.csv"].map(str::to_owned);
        assert_eq!(files(dir.path())?, expected.clone().into(), "{name}");
        let announced: BTreeSet<PathBuf> = announced.into_iter().collect();
        let there = expected.iter().map(|file| dir.path().join(file)).collect();
        assert_eq!(announced, there, "{name}");
        for file in &announced {
            let mode = std::fs::metadata(file)?.permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", file.display());
        }
    }

    // By time. Its input is not its own then: what is there stays there.
    let dir = tempfile::tempdir()?;
    let duration = [
        "--attach-duration-msec",
        "300",
        "-d",
        "%hostname%-{pid}",
        "-o",
        "x-%pid%",
    ];
    let mut process = Target::spawn(rocprofv3(pid, &duration, dir.path())?)?;
    process.send("not for you")?;
    let exit = process.wait(PATIENCE)?;
    code(&exit, 0);
    assert_eq!(
        printed(&exit).0,
        lines(pid, &["Attaching for 300 msec...", ""], None)?
    );
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    let host = host.trim();
    // There were no calls, so there is no file of calls: the output says that nothing was recorded.
    assert!(
        exit.stderr
            .iter()
            .any(|line| line.contains("nothing was recorded")),
        "{exit}"
    );
    assert_eq!(
        files(dir.path())?,
        [format!("{host}-{pid}/x-{pid}_agent_info.csv")].into()
    );

    // Names when nothing is asked for.
    let dir = tempfile::tempdir()?;
    let mut process = Target::spawn(rocprofv3(pid, &[], dir.path())?)?;
    process.expect(until[0])?;
    caller.tell("calls 1")?;
    process.send("")?;
    code(&process.wait(PATIENCE)?, 0);
    let names = ["agent_info", "hip_api_trace"].map(|name| format!("{host}/{pid}_{name}.csv"));
    assert_eq!(files(dir.path())?, names.into());

    // The end of the target, by itself.
    let dir = tempfile::tempdir()?;
    let mut process = Target::spawn(rocprofv3(pid, &["-d", ".", "-o", "o"], dir.path())?)?;
    process.expect(until[0])?;
    caller.tell("calls 3")?;
    caller.quit()?;
    let exit = process.wait_by_itself(PATIENCE)?;
    code(&exit, 0);
    let calls = Csv::read(&dir.path().join("o_hip_api_trace.csv"))?.rows;
    let of = |name: &str| calls.iter().filter(|row| row["Function"] == name).count();
    assert_eq!((of("hipMalloc"), of("hipModuleLaunchKernel")), (3, 6));
    assert_eq!(
        (of("hipStreamDestroy"), of("hipModuleUnload")),
        (1, 1),
        "its last calls"
    );
    assert!(
        !exit.stdout.contains(&DETACHING.to_owned()),
        "there was nothing to detach from: {exit}"
    );

    // The end of the target by a signal: what was recorded is there, and the code tells.
    let mut caller = Caller::start(Caller::command(&lab)?.log_name("second"))?;
    let dir = tempfile::tempdir()?;
    let words = ["-d", ".", "-o", "o"];
    let mut process = Target::spawn(rocprofv3(caller.pid(), &words, dir.path())?)?;
    process.expect(until[0])?;
    caller.tell("calls 4")?;
    caller.signal(libc::SIGKILL)?;
    let exit = process.wait_by_itself(PATIENCE)?;
    code(&exit, 31);
    assert_eq!(rows(&dir.path().join("o_hip_api_trace.csv"))?, 4 * ROUND);
    Ok(())
}

#[test]
fn midair_attach_and_doctor() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    let pid = caller.pid().to_string();
    for words in [["doctor", &pid].as_slice(), &["attach", &pid, "--dry-run"]] {
        let exit = run_staged("midair", words, PATIENCE)?;
        code(&exit, 0);
        assert_eq!(
            exit.stdout.last().map(String::as_str),
            Some("process can be attached to"),
            "{exit}"
        );
        assert!(
            exit.stdout.iter().all(|line| !line.starts_with("NO")),
            "{exit}"
        );
    }
    let dir = tempfile::tempdir()?;
    let mut attach = command("midair")?;
    attach
        .args(["attach", &pid, "--output-format", "csv,json", "-o", "m"])
        .current_dir(dir.path());
    attach.args(["-d", "."]);
    let mut process = Target::spawn(attach)?;
    process.expect_error("attached to process")?;
    caller.tell("calls 7")?;
    process.send("")?;
    let exit = process.wait(PATIENCE)?;
    code(&exit, 0);
    // The table: kernels and calls with how often they came.
    let row = |name: &str| {
        let line = exit.stdout.iter().find(|line| line.contains(name));
        line.map(|line| {
            line.split(|c: char| !c.is_ascii_digit())
                .filter_map(|word| word.parse().ok())
                .collect::<Vec<u64>>()
        })
    };
    for (name, count) in [("vadd ", 7), ("scale ", 7), ("hipModuleLaunchKernel", 14)] {
        let numbers = row(name).ok_or_else(|| format!("no {name} in the table: {exit}"))?;
        assert!(numbers.contains(&count), "{name}: {exit}");
    }
    let expected = [
        "agent_info.csv",
        "hip_api_trace.csv",
        "kernel_trace.csv",
        "memory_allocation_trace.csv",
        "memory_copy_trace.csv",
        "results.json",
    ];
    let expected: BTreeSet<String> = expected.iter().map(|name| format!("m_{name}")).collect();
    assert_eq!(files(dir.path())?, expected);
    for name in &expected {
        let path = dir.path().join(name).display().to_string();
        assert!(
            exit.stdout.contains(&path),
            "{path} is not announced: {exit}"
        );
    }
    assert_eq!(rows(&dir.path().join("m_kernel_trace.csv"))?, 14);
    json(&dir.path().join("m_results.json"))?;
    for begin in [
        &format!("PROCESS   {pid}  "),
        "RECORDS ",
        "PAUSE ",
        "OVERHEAD ",
        "GPU 0 ",
    ] {
        let stands = exit.stdout.iter().any(|line| line.starts_with(begin));
        assert!(stands, "{begin}: {exit}");
    }

    // A second recording leaves the first one's files as they are; everything as one document.
    let first = std::fs::read(dir.path().join("m_results.json"))?;
    let mut again = command("midair")?;
    again
        .args([&pid, "-f", "csv", "json", "parquet", "html", "--json"])
        .args(["-o", "m", "-d", "."])
        .current_dir(dir.path());
    let mut process = Target::spawn(again)?;
    process.expect_error("attached to process")?;
    caller.tell("calls 3")?;
    process.send("")?;
    let exit = process.wait(PATIENCE)?;
    code(&exit, 0);
    assert_eq!(std::fs::read(dir.path().join("m_results.json"))?, first);
    let all = files(dir.path())?;
    assert!(all.contains("m-2_results.json"), "{all:?}");
    assert_eq!(rows(&dir.path().join("m-2_kernel_trace.csv"))?, 6);
    parquet_equals_csv(dir.path())?;
    assert_eq!(exit.stdout.len(), 1, "{exit}");
    let document: serde_json::Value = serde_json::from_str(&exit.stdout[0])?;
    let process = &document["processes"][0];
    assert_eq!(process["pid"].to_string(), pid);
    let number = |value: &serde_json::Value| value.as_u64().unwrap_or(u64::MAX);
    // It was entered by midair's own worker thread, and no thread of the application stood still.
    assert_eq!(number(&process["longest_stop_ns"]), 0, "{process}");
    let gpu = &process["gpus"][0];
    let parts = [
        "busy_ns",
        "copies_ns",
        "starting_ns",
        "host_waits_ns",
        "nothing_queued_ns",
    ];
    let sum: u64 = parts.iter().map(|part| number(&gpu[part])).sum();
    assert_eq!(sum, number(&process["duration_ns"]), "{document}");
    assert!(number(&gpu["busy_ns"]) > 0, "{document}");
    let kernels = &document["tables"][0];
    assert_eq!(
        (&kernels["title"], &kernels["rows"][0]["calls"]),
        (&"KERNEL".into(), &3.into())
    );
    page_equals(&page(&dir.path().join("m-2_results.html"))?, &document)?;

    // Where nothing can be written the exit code says so, and the target is detached from all the same.
    let words = [
        "attach",
        &pid,
        "--duration",
        "200ms",
        "--hip-trace",
        "-d",
        "/proc/none",
    ];
    let exit = run_staged("midair", &words, PATIENCE)?;
    code(&exit, 33);
    assert!(
        exit.stderr.iter().any(|line| line.contains("/proc/none")),
        "{exit}"
    );
    caller.quit()
}

#[test]
fn rocprof_attach_as_a_program_and_as_a_module() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    let pid = caller.pid();
    let library = library()?;
    let settings = [
        ("ROCPROF_HIP_RUNTIME_API_TRACE", "1"),
        ("ROCPROF_OUTPUT_FORMAT", "csv"),
        ("ROCPROF_OUTPUT_FILE_NAME", "r"),
    ];
    let dir = tempfile::tempdir()?;
    let mut program = command("rocprof-attach")?;
    program
        .args(["-p", &pid.to_string()])
        .envs(settings)
        .env("ROCPROF_OUTPUT_PATH", dir.path());
    let mut process = Target::spawn(program)?;
    process.expect("Press Enter to detach...")?;
    caller.tell("calls 2")?;
    process.send("")?;
    let exit = process.wait(PATIENCE)?;
    code(&exit, 0);
    assert_eq!(
        exit.stdout,
        lines(pid, &["Press Enter to detach..."], None)?
    );
    assert_eq!(rows(&dir.path().join("r_hip_api_trace.csv"))?, 2 * ROUND);

    // As AMD's documents show it: the file's main function, for a time.
    let dir = tempfile::tempdir()?;
    let script = "import importlib.machinery, importlib.util, sys\n\
                  loader = importlib.machinery.SourceFileLoader('rocprof_attach', sys.argv[1])\n\
                  module = importlib.util.module_from_spec(importlib.util.spec_from_loader('rocprof_attach', loader))\n\
                  loader.exec_module(module)\n\
                  module.main(pid=int(sys.argv[2]), attach_library=sys.argv[3], duration=300)\n";
    let mut python = command("rocprof-attach")?;
    let file = python.get_program().to_owned();
    python = Command::new("python3");
    python
        .args(["-B", "-c", script])
        .arg(file)
        .args([&pid.to_string(), &library]);
    python.envs(settings).env("ROCPROF_OUTPUT_PATH", dir.path());
    let exit = run(python, PATIENCE)?;
    code(&exit, 0);
    assert_eq!(
        exit.stdout,
        lines(pid, &["Attaching for 300 msec...", ""], None)?
    );
    assert_eq!(files(dir.path())?, ["r_agent_info.csv".to_owned()].into());

    let mut refused = command("rocprof-attach")?;
    refused.args(["-p", "4194303", "-d", "100"]);
    let exit = run(refused, PATIENCE)?;
    code(&exit, 1);
    assert!(
        exit.stderr
            .iter()
            .any(|line| line.starts_with("rocprof-attach: ERROR:")),
        "{exit}"
    );
    caller.quit()
}

#[test]
fn arguments_that_are_refused() -> Result<()> {
    // No process has this number (the greatest is one less); a refusal of words comes first.
    let nobody = "4194304";
    for (program, words, expected, named) in [
        (
            "rocprofv3",
            vec!["--pid", nobody, "--nonsense"],
            2,
            "--nonsense",
        ),
        ("rocprofv3", vec!["--pid", "x", "--hip-trace"], 2, "x"),
        ("rocprofv3", vec!["--pid", "0", "--hip-trace"], 2, "0"),
        ("rocprofv3", vec!["--hip-trace"], 2, "--pid"),
        (
            "rocprofv3",
            vec!["--pid", nobody, "--output-format", "xml"],
            2,
            "xml",
        ),
        (
            "rocprofv3",
            vec!["--pid", nobody, "--perfetto-backend", "system"],
            34,
            "system",
        ),
        (
            "rocprofv3",
            vec!["--pid", nobody, "--ompt-trace"],
            2,
            "the OpenMP runtime loads its tool once",
        ),
        (
            "rocprofv3",
            vec!["--pid", nobody, "--spm", "SQ_WAVES"],
            34,
            "--spm",
        ),
        (
            "rocprofv3",
            vec!["--pid", nobody, "--att", "--att-serialize-all"],
            34,
            "--att-serialize-all",
        ),
        (
            "rocprofv3",
            vec!["--benchmark-mode", "execution", "--", "true"],
            2,
            "sdk-buffer-overhead",
        ),
        (
            "rocprofv3",
            vec!["--pid", nobody, "--benchmark-mode", "tool-runtime-overhead"],
            2,
            "requires a started program",
        ),
        (
            "rocprofv3",
            vec!["--pid", nobody, "--attach-children", "maybe"],
            2,
            "maybe",
        ),
        (
            "midair",
            vec!["attach", nobody, "--nonsense"],
            2,
            "--nonsense",
        ),
        ("midair", vec!["attach"], 2, "--tree PID"),
        ("midair", vec!["nonsense"], 2, "nonsense"),
        (
            "midair",
            vec!["attach", nobody, "--ompt-trace"],
            2,
            "the OpenMP runtime loads its tool once",
        ),
    ] {
        let exit = run_staged(program, &words, PATIENCE)?;
        assert_eq!(
            exit.status.code(),
            Some(expected),
            "{program} {words:?}: {exit}"
        );
        assert!(
            exit.stderr.join(" ").contains(named),
            "{program} {words:?}: {exit}"
        );
        assert!(exit.stdout.is_empty(), "{program} {words:?}: {exit}");
    }
    for (words, is_preloaded) in [
        (vec!["--marker-trace"], true),
        (vec!["--marker-trace", "--suppress-marker-preload"], false),
        (vec!["--kernel-trace"], false),
    ] {
        let command = [&words[..], &["--echo", "--", "/bin/true"]].concat();
        let exit = run_staged("rocprofv3", &command, PATIENCE)?;
        code(&exit, 0);
        assert_eq!(exit.stdout[0], "command: ['/bin/true']", "{exit}");
        let line = exit.stdout.join(" ");
        let mut variables = line.split(' ');
        let preload = variables.find(|it| it.starts_with("LD_PRELOAD="));
        let preload = preload.ok_or("nothing is preloaded")?;
        let has_it = preload.contains("librocprofiler-sdk-roctx.so.1");
        assert_eq!(has_it, is_preloaded, "{words:?}: {preload}");
    }
    // A program that is no link starts under the options that resolve libraries.
    for option in ["--readlink", "--realpath"] {
        let words = [option, "--kernel-trace", "--", "/bin/sh", "-c", "exit 3"];
        code(&run_staged("rocprofv3", &words, PATIENCE)?, 3);
    }
    // Nothing is attached to a process, either.
    let mut sleep = Command::new("sleep");
    sleep.arg("60");
    let idle = Target::spawn(sleep)?;
    let pid = idle.pid().to_string();
    let exit = run_staged(
        "rocprofv3",
        &["--pid", &pid, "--kernel-trace", "--echo"],
        PATIENCE,
    )?;
    code(&exit, 0);
    let wanted = format!("command: ['rocprof-attach', '--pid', '{pid}']");
    assert_eq!(exit.stdout, [wanted]);
    drop(idle);
    for (program, words) in [
        ("rocprofv3", ["--version"]),
        ("rocprofv3", ["--help"]),
        ("midair", ["--version"]),
        ("midair", ["--help"]),
        ("rocprof-attach", ["--help"]),
    ] {
        let exit = run_staged(program, &words, PATIENCE)?;
        code(&exit, 0);
        assert!(
            !exit.stdout.is_empty() && exit.stderr.is_empty(),
            "{program} {words:?}: {exit}"
        );
    }
    Ok(())
}
