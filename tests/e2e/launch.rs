//! Programs that are launched under the profiler, by our command lines and in the ways that need
//! none. Every call from the first on is recorded, every dispatch that the modelled GPU consumed
//! has its times, and the caller sees how the program itself ended.

use midair_tests::Result;
use midair_tests::attacher::{Call, by_function, calls_of, check_calls};
use midair_tests::caller::Caller;
use midair_tests::lab::{Lab, LabCommand, LabTarget};
use midair_tests::modellog::ModelLog;
use midair_tests::stage::run_staged;
use midair_tests::table::Csv;
use midair_tests::target::{Exit, PATIENCE, until};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Returns the calls that `vadd ITERATIONS` makes (lab/src/vadd.hip).
fn calls_of_vadd(iterations: u64) -> BTreeMap<String, u64> {
    let once = [
        ("hipGetDevicePropertiesR0600", 1),
        ("hipMalloc", 3),
        ("hipStreamCreate", 1),
        ("hipEventCreate", 2),
        ("hipFree", 3),
        ("hipStreamDestroy", 1),
        ("__hipRegisterFatBinary", 1),
        ("__hipRegisterFunction", 2),
        ("__hipUnregisterFatBinary", 1),
    ];
    let each = [
        ("hipMemcpy", 2),
        ("hipMemcpyAsync", 1),
        ("hipEventRecord", 2),
        ("__hipPushCallConfiguration", 2),
        ("__hipPopCallConfiguration", 2),
        ("hipLaunchKernel", 2),
        ("hipGetLastError", 1),
        ("hipStreamSynchronize", 1),
        ("hipEventElapsedTime", 1),
        ("hipMemset", 1),
        ("hipDeviceSynchronize", 1),
    ];
    let each = each.map(|(name, count)| (name, count * iterations));
    once.into_iter()
        .chain(each)
        .map(|(name, count)| (name.to_owned(), count))
        .collect()
}

/// A directory for results in the lab's scratch directory.
struct Results {
    dir: PathBuf,
    inside: String,
}

impl Results {
    fn new(lab: &Lab, name: &str) -> Result<Results> {
        let dir = lab.scratch().join(name);
        std::fs::create_dir(&dir)?;
        Ok(Results {
            inside: lab.inside(&dir)?,
            dir,
        })
    }
    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(format!("out_{name}"))
    }
    fn calls(&self) -> Result<Vec<Call>> {
        calls_of(&[
            self.file("hip_api_trace.csv"),
            self.file("hsa_api_trace.csv"),
        ])
    }
    /// Returns the names of all files in the directory.
    fn names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }
    /// Checks that the dispatches match the log, and that each is timed.
    fn kernels_are(&self, log: &ModelLog) -> Result<()> {
        let rows = Csv::read(&self.file("kernel_trace.csv"))?.rows;
        let mut grids: BTreeMap<[u32; 3], usize> = BTreeMap::new();
        for row in &rows {
            let grid = ["Grid_Size_X", "Grid_Size_Y", "Grid_Size_Z"]
                .map(|column| Csv::number(row, column).map(|n| n as u32));
            let [x, y, z] = grid;
            *grids.entry([x?, y?, z?]).or_default() += 1;
            let (start, end) = (
                Csv::number(row, "Start_Timestamp")?,
                Csv::number(row, "End_Timestamp")?,
            );
            assert!(0 < start && start < end, "no times: {row:?}");
            assert!(!row["Kernel_Name"].starts_with("unknown"), "{row:?}");
        }
        assert_eq!(grids, log.grids());
        Ok(())
    }
}

/// Returns the command of the stage's `rocprofv3` with these options, up to the `--`.
fn rocprofv3(stage: &str, results: &Results, options: &[&str]) -> Vec<String> {
    let mut words = vec![format!("{stage}/bin/rocprofv3")];
    words.extend(options.iter().map(ToString::to_string));
    let place = ["-f", "csv", "-d", &results.inside, "-o", "out", "--"];
    words.extend(place.map(str::to_owned));
    words
}

fn under<'a>(command: LabCommand<'a>, words: &[String]) -> LabCommand<'a> {
    command.under(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Waits for the end. AMD's model mode may abort at an exit, see [`Caller::quit`].
fn end(target: LabTarget) -> Result<(Exit, ModelLog)> {
    let log = target.log.clone();
    let exit = target.target.wait(PATIENCE)?;
    Ok((exit, ModelLog::read(&log)?))
}

fn announced(exit: &Exit) -> usize {
    let said = exit.stderr.iter();
    said.filter(|line| line.starts_with("Opened result file: "))
        .count()
}

#[test]
fn every_call_and_kernel_of_a_hip_program() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let stage = lab.stage()?;
    // Debian's HIP makes its tables in its first call and does not register them. AMD's builds do
    // register them.
    for register in [false, true] {
        let results = Results::new(&lab, &format!("hip-{register}"))?;
        let words = rocprofv3(
            &stage,
            &results,
            &["--hip-trace", "--kernel-trace", "--memory-copy-trace"],
        );
        let command = lab.run("/lab/vadd").arg(3).register(register);
        let target = under(command, &words)
            .log_name(&format!("model-{register}"))
            .spawn()?;
        let pid = target.pid();
        let (exit, log) = end(target)?;
        assert_eq!(
            exit.stdout.last().map(String::as_str),
            Some("done"),
            "{exit}"
        );
        let calls = results.calls()?;
        check_calls(&calls, pid, (0, u64::MAX))?;
        assert_eq!(
            by_function(&calls),
            calls_of_vadd(3),
            "register: {register}"
        );
        results.kernels_are(&log)?;
        assert_eq!(announced(&exit), results.names()?.len(), "{exit}");
    }
    Ok(())
}

/// The trace has what the program itself counts, with HSA calls among it, on many threads.
#[test]
fn the_programs_own_counts() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let stage = lab.stage()?;
    let results = Results::new(&lab, "counts")?;
    let words = rocprofv3(&stage, &results, &["--sys-trace"]);
    let command = Caller::command(&lab)?.register(false);
    let mut caller = Caller::start(under(command, &words))?;
    caller.tell("calls 30")?;
    caller.tell("hsa 5")?;
    let counts = caller.counts()?;
    let pid = caller.pid();
    // An attach during that time is refused, since the process is already being recorded, and
    // changes nothing.
    let exit = run_staged(
        "rocprofv3",
        &["--pid", &pid.to_string(), "--hip-trace"],
        PATIENCE,
    )?;
    assert_eq!(exit.status.code(), Some(15), "{exit}");
    caller.quit()?;
    let calls = results.calls()?;
    check_calls(&calls, pid, (0, u64::MAX))?;
    let hip = calls
        .iter()
        .filter(|call| call.domain.starts_with("HIP_RUNTIME"));
    all_counted(&by_function(hip), counts, &["hipMalloc", "hipFree"])
}

/// Checks that the calls of a `calls` program are those that it counted, and three of each call
/// that it makes besides (hip_kit.h).
fn all_counted(
    seen: &BTreeMap<String, u64>,
    mut counts: BTreeMap<String, u64>,
    beside: &[&str],
) -> Result<()> {
    for name in beside {
        *counts.entry((*name).to_owned()).or_default() += 3;
    }
    for (name, count) in counts.iter().filter(|(name, _)| name.starts_with("hip")) {
        assert_eq!(seen.get(name), Some(count), "{name}: {counts:?}");
    }
    Ok(())
}

/// In a program without HIP, the HSA runtime's tables exist before `hsa_init`, so `hsa_init` is the
/// first call that is recorded.
#[test]
fn a_program_on_hsa_alone() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("raw_hsa")?, lab.kernels()?);
    let stage = lab.stage()?;
    for register in [false, true] {
        let results = Results::new(&lab, &format!("hsa-{register}"))?;
        let words = rocprofv3(&stage, &results, &["--hsa-trace", "--kernel-trace"]);
        let command = lab.run(&program).arg(&kernels).arg(10).register(register);
        let command = command.env("MODEL_KERNEL_NS", 1_000);
        let mut target = under(command, &words)
            .log_name(&format!("model-{register}"))
            .spawn()?;
        target.expect("ready")?;
        target.send("go")?;
        target.expect("go")?;
        target.send("quit")?;
        let (exit, log) = end(target)?;
        assert_eq!(
            exit.stdout.last().map(String::as_str),
            Some("done"),
            "{exit}"
        );
        results.kernels_are(&log)?;
        let counts = by_function(&results.calls()?);
        for (name, count) in [
            ("hsa_init", 1),
            ("hsa_queue_create", 4),
            ("hsa_queue_destroy", 5),
            ("hsa_executable_freeze", 1),
        ] {
            assert_eq!(counts.get(name), Some(&count), "{name} of {counts:?}");
        }
    }
    Ok(())
}

/// The tool is preloaded with LD_PRELOAD, without an SDK, or it is named to a register library,
/// ours and AMD's.
#[test]
fn without_our_command_line() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let stage = lab.stage()?;
    let lib = format!("{stage}/lib");
    let tool = format!("{lib}/rocprofiler-sdk/librocprofiler-sdk-tool.so");
    // AMD's register library finds the SDK by the loader's search, and ours finds it next to itself.
    // In AMD's turn the loader must not find our register library first.
    let only_sdk = lab.scratch().join("only-sdk");
    std::fs::create_dir(&only_sdk)?;
    for name in ["librocprofiler-sdk.so", "librocprofiler-sdk.so.1"] {
        std::fs::copy(
            lab.outside(&format!("{lib}/librocprofiler-sdk.so.1")),
            only_sdk.join(name),
        )?;
    }
    let only_sdk = lab.inside(&only_sdk)?;
    for way in ["preload", "our register", "AMD's register"] {
        let results = Results::new(&lab, &way.replace(' ', "-"))?;
        let command = lab
            .run("/lab/vadd")
            .arg(2)
            .env("ROCPROF_HIP_RUNTIME_API_TRACE", 1)
            .env("ROCPROF_HIP_COMPILER_API_TRACE", "yes")
            .env("ROCPROF_KERNEL_TRACE", 1)
            .env("ROCPROF_OUTPUT_FORMAT", "csv")
            .env("ROCPROF_OUTPUT_PATH", &results.inside)
            .env("ROCPROF_OUTPUT_FILE_NAME", "out")
            .log_name(&format!("model-{way}"));
        let command = match way {
            "preload" => command.preload(&tool).register(false),
            "our register" => command.libs(&lib).env("ROCP_TOOL_LIBRARIES", &tool),
            _ => command.libs(&only_sdk).env("ROCP_TOOL_LIBRARIES", &tool),
        };
        let (exit, log) = end(command.spawn()?)?;
        assert_eq!(
            exit.stdout.last().map(String::as_str),
            Some("done"),
            "{exit}"
        );
        assert_eq!(by_function(&results.calls()?), calls_of_vadd(2), "{way}");
        results.kernels_are(&log)?;
        assert_eq!(announced(&exit), results.names()?.len(), "{way}: {exit}");
    }
    Ok(())
}

#[test]
fn exit_codes_and_signals_are_the_programs_own() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let stage = lab.stage()?;
    let results = Results::new(&lab, "ends")?;
    let start = |options: &[&str], program: &str, args: &[&str]| -> Result<Exit> {
        let command = lab.run(program).register(false);
        let command = args.iter().fold(command, |command, arg| command.arg(arg));
        let target = under(command, &rocprofv3(&stage, &results, options)).spawn()?;
        target.target.wait(PATIENCE)
    };
    // A program that uses no GPU: its exit code is passed on, no file is written, and a message
    // says so.
    let python = ["-S", "-c", "import sys; sys.exit(7)"];
    let exit = start(&["--hip-trace"], "/usr/bin/python3", &python)?;
    assert_eq!(exit.status.code(), Some(7), "{exit}");
    let said = exit.stderr.join("\n");
    assert!(said.contains("nothing was recorded"), "{said}");
    assert_eq!(results.names()?, [""; 0]);
    let exit = start(&["--hip-trace"], "/bin/sh", &["-c", "kill -KILL $$"])?;
    assert_eq!(exit.signal(), Some(libc::SIGKILL), "{exit}");
    // A program that cannot be started.
    let exit = start(&["--hip-trace"], "/no/such/program", &[])?;
    assert_eq!(exit.status.code(), Some(127), "{exit}");
    assert!(
        exit.stderr
            .join("\n")
            .contains("No such file or directory: '/no/such/program'"),
        "{exit}"
    );
    let exit = start(&["--hip-trace"], "/etc/passwd", &[])?;
    assert_eq!(exit.status.code(), Some(126), "{exit}");
    // Where results cannot be written, the program runs all the same, and a message says so.
    let command = lab.run("/lab/vadd").arg(1).register(false);
    let words = [
        &format!("{stage}/bin/rocprofv3"),
        "--hip-trace",
        "-d",
        "/proc/none",
        "--",
    ];
    let exit = command.under(&words).spawn()?.target.wait(PATIENCE)?;
    assert_eq!(
        exit.stdout.last().map(String::as_str),
        Some("done"),
        "{exit}"
    );
    assert!(exit.stderr.join("\n").contains("/proc/none"), "{exit}");
    Ok(())
}

/// Without options, `midair run` records HIP calls, kernels and copies.
#[test]
fn midair_run() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let stage = lab.stage()?;
    let results = Results::new(&lab, "run")?;
    let words = [
        &format!("{stage}/bin/midair"),
        "run",
        "-f",
        "csv",
        "-d",
        &results.inside,
        "-o",
        "out",
    ];
    // The program is started by a shell that becomes the program. The program has the results, and
    // the shell prints nothing.
    let target = lab
        .run("/bin/sh")
        .arg("-c")
        .arg("exec /lab/vadd 1")
        .register(false)
        .under(&words)
        .spawn()?;
    let (exit, log) = end(target)?;
    assert_eq!(
        exit.stdout.last().map(String::as_str),
        Some("done"),
        "{exit}"
    );
    let said = exit.stderr.join("\n");
    assert!(!said.contains("nothing was recorded"), "{said}");
    assert_eq!(by_function(&results.calls()?), calls_of_vadd(1));
    results.kernels_are(&log)
}

/// A program is ended by a signal that can be caught: what was recorded is written first, and then
/// the program ends by that signal.
#[test]
fn ended_by_a_signal() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let stage = lab.stage()?;
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGABRT] {
        let results = Results::new(&lab, &format!("signal-{signal}"))?;
        let words = rocprofv3(&stage, &results, &["--hip-trace", "--kernel-trace"]);
        let command = Caller::command(&lab)?
            .register(false)
            .log_name(&format!("model-{signal}"));
        let mut caller = Caller::start(under(command, &words))?;
        caller.tell("calls 5")?;
        let counts = caller.counts()?;
        let pid = caller.pid();
        // SAFETY: kill takes numbers only. The pid belongs to a child that has not been waited for,
        // so it is no other process's.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
        until("its end", || Ok(!caller.is_running()?))?;
        all_counted(&by_function(&results.calls()?), counts, &["hipMalloc"])?;
    }
    Ok(())
}

/// Some ends run no exit handler. What was recorded is written all the same, also after SIGKILL,
/// when it is a moment until the files are there.
#[test]
fn ended_without_exit_handlers() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("exiter")?, lab.kernels()?);
    let stage = lab.stage()?;
    for way in ["_exit", "kill"] {
        let results = Results::new(&lab, way)?;
        let words = rocprofv3(&stage, &results, &["--hip-trace"]);
        let command = lab.run(&program).arg(&kernels).register(false);
        let command = command.log_name(&format!("model-{way}"));
        let mut target = under(command, &words).spawn()?;
        target.expect("ready")?;
        if way == "kill" {
            target.signal(libc::SIGKILL)?;
            let (exit, _) = end(target)?;
            assert_eq!(exit.signal(), Some(libc::SIGKILL), "{exit}");
            let calls = results.file("hip_api_trace.csv");
            until("the files", || Ok(calls.exists()))?;
            let names = results.names()?;
            assert!(
                names.iter().all(|name| name.starts_with("out_")),
                "{names:?}"
            );
            let seen = by_function(&results.calls()?);
            assert!(seen["hipModuleLaunchKernel"] > 0, "{seen:?}");
            continue;
        }
        target.send(way)?;
        let (exit, _) = end(target)?;
        assert_eq!(exit.status.code(), Some(0), "{exit}");
        let ending = exit
            .stdout
            .iter()
            .find_map(|line| line.strip_prefix("ending "));
        let launched: u64 = ending.unwrap_or_default().parse()?;
        let seen = by_function(&results.calls()?);
        let launches = seen
            .get("hipModuleLaunchKernel")
            .copied()
            .unwrap_or_default();
        assert!(
            launched > 0 && launches >= launched,
            "{launches} of {launched}"
        );
        assert!(announced(&exit) > 0, "{exit}");
    }
    Ok(())
}

/// Without an output directory, the tool writes into the program's working directory.
#[test]
fn relative_directories_are_the_programs_own() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let stage = lab.stage()?;
    let results = Results::new(&lab, "cwd")?;
    let tool = format!("{stage}/lib/rocprofiler-sdk/librocprofiler-sdk-tool.so.1");
    let script = format!(
        "cd {} && LD_PRELOAD={tool} exec /lab/vadd 1",
        results.inside
    );
    let target = lab
        .run("/bin/sh")
        .arg("-c")
        .arg(script)
        .register(false)
        .env("ROCPROF_HIP_RUNTIME_API_TRACE", 1)
        .env("ROCPROF_OUTPUT_FORMAT", "csv")
        .env("ROCPROF_OUTPUT_PATH", "sub/dir")
        .env("ROCPROF_OUTPUT_FILE_NAME", "%pid%")
        .spawn()?;
    let pid = target.pid();
    let (exit, _) = end(target)?;
    let file = results.dir.join(format!("sub/dir/{pid}_hip_api_trace.csv"));
    assert!(is_private(&file)?, "{exit}");
    Ok(())
}

/// Returns whether only its owner may read a file.
fn is_private(file: &Path) -> Result<bool> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(file)
        .map_err(|error| format!("{}: {error}", file.display()))?
        .permissions()
        .mode();
    Ok(mode & 0o777 == 0o600)
}

/// Options that say what is kept, where the libraries are, and which ranks are recorded.
#[test]
fn what_is_kept_and_who_is_recorded() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let stage = lab.stage()?;
    let vadd = |name: &str, options: &[&str], variables: &[(&str, &str)]| -> Result<_> {
        let results = Results::new(&lab, name)?;
        let words = rocprofv3(&stage, &results, &[&["--kernel-trace"], options].concat());
        let command = lab
            .run("/lab/vadd")
            .arg(2)
            .log_name(&format!("model-{name}"));
        let command = variables
            .iter()
            .fold(command, |command, (name, value)| command.env(name, value));
        let (exit, log) = end(under(command, &words).spawn()?)?;
        let done = exit.stdout.last().map(String::as_str);
        assert_eq!(done, Some("done"), "{name}: {exit}");
        Ok((results, exit, log))
    };
    let rank = [("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "4")];

    // The settings next to the results, from libraries that are named, for a rank that is recorded.
    let options = [
        "--output-config",
        "--minimum-output-data",
        "1",
        "--process-sync",
        "--profile-mpi-ranks",
        "0,2-3",
        "--rocm-root",
        &stage,
        "--sdk-soversion",
        "1",
    ];
    let (results, exit, log) = vadd("kept", &options, &rank)?;
    results.kernels_are(&log)?;
    let config = midair_tests::table::json(&results.file("config.json"))?;
    let config = &config["rocprofiler-sdk-tool"][0]["metadata"]["config"];
    assert_eq!(config["output_file"], "out", "{config}");
    assert_eq!(
        (&config["csv_output"], &config["rocpd_output"]),
        (&true.into(), &false.into())
    );
    assert_eq!(announced(&exit), results.names()?.len(), "{exit}");

    // Too little to be kept, and it is said.
    let (results, exit, _) = vadd("little", &["--minimum-output-data", "100000"], &rank)?;
    assert_eq!(results.names()?, [""; 0], "{exit}");
    let said = exit.stderr.join("\n");
    assert!(
        said.contains("less than the 100000 of --minimum-output-data"),
        "{said}"
    );

    // A rank that is not recorded runs without the profiler.
    let (results, exit, _) = vadd("other", &["--profile-mpi-ranks", "0-1"], &rank)?;
    assert_eq!(results.names()?, [""; 0], "{exit}");
    assert!(
        !exit.stderr.join("\n").contains("rocprofv3: error"),
        "{exit}"
    );
    Ok(())
}

/// A word before the program that starts with a hyphen is an option, even if there is none of that
/// name. Behind the program, words are the program's own.
#[test]
fn a_misspelt_option_is_not_run_as_a_program() -> Result<()> {
    for option in ["--quiet", "--kernel-trac", "-x"] {
        for words in [&["run", option, "true"][..], &["run", option, "--", "true"]] {
            let exit = run_staged("midair", words, PATIENCE)?;
            assert_eq!(exit.status.code(), Some(2), "{words:?}: {exit}");
            let said = exit.stderr.join("\n");
            let why = format!("unexpected argument '{option}'");
            assert!(said.contains(&why), "{words:?}: {exit}");
        }
    }
    let exit = run_staged("midair", &["run", "echo", "--quiet", "-x"], PATIENCE)?;
    assert_eq!(exit.status.code(), Some(0), "{exit}");
    assert_eq!(exit.stdout, ["--quiet -x"], "{exit}");
    Ok(())
}

/// A program is measured with a part of the profiler: it has the settings of a trace, and no files come.
#[test]
fn a_measured_program_has_no_files_and_no_notes() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let stage = lab.stage()?;
    let modes = [
        "disabled-sdk-contexts",
        "sdk-buffer-overhead",
        "sdk-callback-overhead",
        "tool-runtime-overhead",
        "execution-profile",
    ];
    let mut recorded = 0;
    for mode in modes.map(Some).into_iter().chain([None]) {
        let results = Results::new(&lab, mode.unwrap_or("whole"))?;
        let mut options = vec!["--hip-trace", "--kernel-trace"];
        options.extend(mode.into_iter().flat_map(|mode| ["--benchmark-mode", mode]));
        let words = rocprofv3(&stage, &results, &options);
        let (exit, _) = end(under(lab.run("/lab/vadd").arg(3), &words).spawn()?)?;
        assert_eq!(
            exit.stdout.last().map(String::as_str),
            Some("done"),
            "{exit}"
        );
        assert_eq!(results.names()?.is_empty(), mode.is_some(), "{exit}");
        let said = exit.stderr.iter().filter(|line| line.contains("rocprof"));
        assert_eq!(announced(&exit) == 0, mode.is_some(), "{exit}");
        assert!(mode.is_none() || said.count() == 0, "{exit}");
        if mode.is_none() {
            recorded = Csv::read(&results.file("kernel_trace.csv"))?.rows.len();
        }
    }
    // What ran is counted in the file with the settings, and only there.
    let results = Results::new(&lab, "profile")?;
    let mut options = vec!["--hip-trace", "--kernel-trace", "--output-config"];
    options.extend(["--benchmark-mode", "execution-profile"]);
    let words = rocprofv3(&stage, &results, &options);
    end(under(lab.run("/lab/vadd").arg(3), &words).spawn()?)?;
    assert_eq!(results.names()?.len(), 1);
    let file = midair_tests::table::json(&results.file("config.json"))?;
    let profile = &file["rocprofiler-sdk-tool"][0]["metadata"]["profile"];
    assert_eq!(profile["threads"], 1, "{profile}");
    let kernels = &profile["kernel_dispatch"];
    assert_eq!(
        (&kernels["count"], &kernels["unique"]),
        (&recorded.into(), &1.into())
    );
    let calls = &profile["hip_runtime_api"];
    assert!(
        calls["count"].as_u64() > calls["unique"].as_u64(),
        "{profile}"
    );
    Ok(())
}
