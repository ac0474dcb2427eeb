//! Events of OpenMP in programs that are started with a tool: LLVM's runtime (Debian's libomp) tells
//! them, and they are compared with what the program itself says that it did (`tests/c/openmp.c`).

use crate::headers::{include, stand_ins};
use midair_tests::caller::Counts;
use midair_tests::python::python;
use midair_tests::stage::{command, plain_environment, stage};
use midair_tests::table::json;
use midair_tests::target::{Exit, PATIENCE, run};
use midair_tests::{Result, compile, leave_out, workspace};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// LLVM's runtime, which has the functions that GCC's code calls, too.
const RUNTIMES: [&str; 2] = [
    "/usr/lib/x86_64-linux-gnu/libomp.so.5",
    "/usr/lib/llvm-14/lib/libomp.so.5",
];
const COMPILING: Duration = Duration::from_secs(120);

/// What a program says, by name.
type Said = BTreeMap<String, u64>;

struct Program {
    dir: tempfile::TempDir,
    path: PathBuf,
}

impl Program {
    /// Compiles the program for LLVM's runtime, or for GCC's. `None`: LLVM's is not there.
    fn new(llvm: bool) -> Result<Option<Program>> {
        let Some(runtime) = RUNTIMES.iter().find(|path| Path::new(path).exists()) else {
            leave_out("LLVM's runtime of OpenMP (Debian's libomp5) is not installed")?;
            return Ok(None);
        };
        let dir = tempfile::tempdir()?;
        let (object, path) = (dir.path().join("openmp.o"), dir.path().join("openmp"));
        let gcc = |words: &[&str]| -> Result<()> {
            let mut compiler = Command::new("gcc");
            compiler.env_clear().envs(plain_environment()).args(words);
            run(compiler, COMPILING)?.success()?;
            Ok(())
        };
        let text = |path: &Path| -> Result<String> {
            Ok(path.to_str().ok_or("a path is text")?.to_owned())
        };
        let source = text(&compile::sources().join("openmp.c"))?;
        let (object, program) = (text(&object)?, text(&path)?);
        let flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-fopenmp"];
        gcc(&[&flags[..], &["-c", &source, "-o", &object]].concat())?;
        let linked = if llvm { *runtime } else { "-fopenmp" };
        gcc(&[&object, "-o", &program, linked])?;
        Ok(Some(Program { dir, path }))
    }

    /// Runs the program under `rocprofv3`. Returns what it said, and the json that was written.
    fn recorded(&self, options: &[&str]) -> Result<(Said, serde_json::Value, Exit)> {
        let out = self.dir.path().join(format!("out{}", options.concat()));
        let mut profiler = command("rocprofv3")?;
        profiler
            .args(options)
            .args(["--output-format", "json", "rocpd", "pftrace", "csv", "-d"])
            .arg(&out)
            .args(["-o", "t", "--"])
            .arg(&self.path);
        let exit = run(profiler, PATIENCE)?;
        let exit = exit.success()?;
        let said = said(&exit.stdout);
        let whole = json(&out.join("t_results.json"))?;
        Ok((said, whole, exit))
    }
}

fn said(lines: &[String]) -> Said {
    let pair = |line: &String| {
        let (name, number) = line.split_once(' ')?;
        Some((name.to_owned(), number.parse().ok()?))
    };
    lines.iter().filter_map(pair).collect()
}

/// Returns how many records of each operation the json has.
fn operations(whole: &serde_json::Value) -> Result<Counts> {
    let tool = &whole["rocprofiler-sdk-tool"][0];
    let kinds = tool["strings"]["buffer_records"]
        .as_array()
        .ok_or("kinds")?;
    let openmp = kinds
        .iter()
        .find(|kind| kind["kind"] == "OMPT")
        .ok_or("OpenMP")?;
    let mut counts = Counts::new();
    for record in tool["buffer_records"]["ompt"].as_array().ok_or("a list")? {
        assert_eq!(record["kind"], 15, "{record}");
        assert!(record["start_timestamp"].as_u64() <= record["end_timestamp"].as_u64());
        let operation = record["operation"].as_u64().ok_or("an operation")?;
        let name = openmp["operations"][usize::try_from(operation)?].as_str();
        *counts.entry(name.ok_or("a name")?.to_owned()).or_default() += 1;
    }
    Ok(counts)
}

fn of(counts: &Counts, name: &str) -> u64 {
    counts.get(name).copied().unwrap_or(0)
}

#[test]
fn a_started_programs_events_of_openmp_are_those_that_it_counts() -> Result<()> {
    let Some(program) = Program::new(true)? else {
        return Ok(());
    };
    let (said, whole, exit) = program.recorded(&["--ompt-trace"])?;
    let counts = operations(&whole)?;
    let check = |operation: &str, expected: u64| {
        assert_eq!(
            of(&counts, operation),
            expected,
            "{operation}: {counts:?}\n{exit}"
        );
    };
    check("omp_parallel_begin", said["parallel"]);
    check("omp_parallel_end", said["parallel"]);
    check("omp_lock_init", said["locks"]);
    check("omp_lock_destroy", said["locks"]);
    check("omp_thread_begin", said["threads"]);
    let mutexes = said["critical"] + said["locked"];
    for operation in ["acquire", "acquired", "released"] {
        check(&format!("omp_mutex_{operation}"), mutexes);
    }
    // One implicit task more is the program's initial one.
    check("omp_implicit_task", said["implicit"] + 1);
    check("omp_task_create", said["tasks"]);
    assert!(
        of(&counts, "omp_task_schedule") >= said["tasks"],
        "{counts:?}"
    );
    // At each barrier of the program, at the end of each region, and where tasks are waited for.
    let waits = said["barriers"] + said["implicit"] + said["parallel"];
    check("omp_sync_region", waits);
    check("omp_sync_region_wait", waits);
    assert_eq!(of(&counts, "omp_callback_functions"), 0, "it is for tools");
    assert!(
        !counts
            .keys()
            .any(|name| name.contains("target") || name.contains("device"))
    );

    // The other formats have the same; AMD's tool has no table of them.
    let out = program.dir.path().join("out--ompt-trace");
    let mut reader = Command::new(python()?);
    reader.arg("-c").arg(
        "import sqlite3, sys\n\
         base = sqlite3.connect(sys.argv[1])\n\
         print(base.execute(\"select count(*) from regions_and_samples where category = 'OMPT'\").fetchone()[0])",
    );
    reader.arg(out.join("t_results.db"));
    let rows = run(reader, PATIENCE)?.success()?.stdout;
    assert_eq!(rows, [counts.values().sum::<u64>().to_string()]);
    let trace = std::fs::read(out.join("t_results.pftrace"))?;
    let has = |name: &[u8]| trace.windows(name.len()).any(|part| part == name);
    assert!(has(b"omp_implicit_task") && has(b"omp_parallel_begin"));
    let tables =
        std::fs::read_dir(&out)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let tables: Vec<String> = tables.filter(|name| name.contains("omp")).collect();
    assert!(tables.is_empty(), "{tables:?}");

    // Words choose, and nothing is asked of the runtime where nothing is asked for.
    let (said, whole, _) = program.recorded(&["--ompt-trace", "mutex", "thread"])?;
    let counts = operations(&whole)?;
    assert_eq!(
        of(&counts, "omp_mutex_acquired"),
        said["critical"] + said["locked"]
    );
    assert!(
        counts
            .keys()
            .all(|name| name.contains("mutex") || name.contains("lock") || name.contains("thread"))
    );
    Ok(())
}

#[test]
fn a_runtime_that_tells_nothing_leaves_the_program_alone() -> Result<()> {
    let Some(program) = Program::new(false)? else {
        return Ok(());
    };
    let mut profiler = command("rocprofv3")?;
    profiler
        .args(["--ompt-trace", "-d"])
        .arg(program.dir.path());
    profiler.arg("--").arg(&program.path);
    let exit = run(profiler, PATIENCE)?.success()?;
    assert_eq!(said(&exit.stdout)["parallel"], 5, "{exit}");
    Ok(())
}

#[test]
fn a_client_is_told_of_openmps_events() -> Result<()> {
    let Some(program) = Program::new(true)? else {
        return Ok(());
    };
    let (tool, log) = (
        program.dir.path().join("libclient.so"),
        program.dir.path().join("client.log"),
    );
    let lib = stage()?.join("lib");
    let mut compiler = Command::new("g++");
    compiler.env_clear().envs(plain_environment());
    compiler
        .args(["-std=c++17", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra"])
        .args(["-Werror", "-Wl,--no-undefined"])
        .arg(format!("-DLOG=\"{}\"", log.display()))
        .arg(workspace().join("tests/clients/openmp.cpp"))
        .arg("-o")
        .arg(&tool)
        .arg(format!("-I{}", include()?.display()))
        .arg(format!("-I{}", stand_ins().display()))
        .arg(format!("-L{}", lib.display()))
        .arg("-lrocprofiler-sdk");
    run(compiler, COMPILING)?.success()?;
    let mut target = Command::new(&program.path);
    target.env_clear().envs(plain_environment());
    target
        .env("LD_PRELOAD", lib.join("librocprofiler-sdk.so.1"))
        .env("ROCPROFILER_LIBRARY_CTOR", "1")
        .env("ROCP_TOOL_LIBRARIES", &tool)
        .env("LD_LIBRARY_PATH", &lib);
    let exit = run(target, PATIENCE)?.success()?;
    let said = said(&exit.stdout);
    let text = std::fs::read_to_string(&log)?;
    assert!(text.ends_with("end\n") && !text.contains("WRONG"), "{text}");
    let counts: Counts = text
        .lines()
        .filter_map(|line| {
            let (count, name) = line.split_once(' ')?;
            Some((name.to_owned(), count.parse().ok()?))
        })
        .collect();
    let check = |name: &str, expected: u64| {
        assert_eq!(of(&counts, name), expected, "{name}: {text}");
    };
    check("implicit tasks", said["implicit"]);
    check("explicit tasks", said["tasks"]);
    check("locks", said["locked"]);
    check("criticals", said["critical"]);
    check("told omp_parallel_begin", said["parallel"]);
    check("told omp_callback_functions", 1);
    // What has started has ended, and each has its record.
    let mut kinds = 0;
    for (name, count) in &counts {
        let Some(record) = name.strip_prefix("record ") else {
            continue;
        };
        kinds += 1;
        let (once, begun) = (format!("told {record}"), format!("told {record} enter"));
        assert_eq!(
            of(&counts, &once) + of(&counts, &begun),
            *count,
            "{name}: {text}"
        );
        let ended = of(&counts, &format!("told {record} exit"));
        assert_eq!(of(&counts, &begun), ended, "{name}: {text}");
    }
    assert!(kinds >= 12, "{text}");
    Ok(())
}
