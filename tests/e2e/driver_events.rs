//! Events of the kernel driver. A stand-in for `/dev/kfd` is preloaded into the program, which
//! itself says what happens (`tests/c/kfd_events.c`, `driver_events.c`). What a sample client sees
//! and what the command line's files have is compared with that.

use crate::headers::{include, stand_ins};
use midair_tests::caller::Counts;
use midair_tests::lab::LabTarget;
use midair_tests::python::python;
use midair_tests::stage::{command, plain_environment, stage};
use midair_tests::stand_in::Kit;
use midair_tests::table::json;
use midair_tests::target::{PATIENCE, Target, run};
use midair_tests::{Result, compile, workspace};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The id of the first GPU of the stand-in's topology.
const GPU: &str = "2";
/// The number of lines in each round that a reader reads.
const LINES: u64 = 9;

struct Driver {
    kit: Kit,
    device: String,
}

impl Driver {
    fn new() -> Result<Driver> {
        let kit = Kit::new()?;
        let device = kit.scratch().join("kfd_events.so");
        let flags = ["-shared", "-fPIC", "-ldl", "-pthread"];
        let source = compile::sources().join("kfd_events.c");
        compile::build(&["gcc"], &source, &device, &flags, |path| {
            Ok(path.to_str().ok_or("a path is text")?.to_owned())
        })?;
        let device = device.to_str().ok_or("a path is text")?.to_owned();
        Ok(Driver { kit, device })
    }

    fn start(&self, variables: &[(&str, &str)]) -> Result<LabTarget> {
        let mut command = Command::new(self.kit.program("driver_events")?);
        command.arg(GPU);
        let all = [&[("LD_PRELOAD", self.device.as_str())], variables].concat();
        let mut target = self.kit.start_command(command, "model.log", &all)?;
        target.expect("ready")?;
        Ok(target)
    }

    fn client(&self) -> Result<(PathBuf, PathBuf)> {
        sample_client(&self.kit, "driver_events")
    }
}

/// Compiles the sample client of this name against the headers of the stand-ins. Returns its path, and the
/// path of the file to which it writes.
pub(crate) fn sample_client(kit: &Kit, name: &str) -> Result<(PathBuf, PathBuf)> {
    let tool = kit.scratch().join("libclient.so");
    let log = kit.scratch().join("client.log");
    let mut compiler = Command::new("g++");
    compiler.env_clear().envs(plain_environment());
    compiler
        .args(["-std=c++17", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra"])
        .args(["-Werror", "-Wl,--no-undefined"])
        .arg(format!("-DLOG=\"{}\"", log.display()))
        .arg(workspace().join(format!("tests/clients/{name}.cpp")))
        .arg("-o")
        .arg(&tool)
        .arg(format!("-I{}", include()?.display()))
        .arg(format!("-I{}", stand_ins().display()))
        .arg(format!("-L{}", stage()?.join("lib").display()))
        .arg("-lrocprofiler-sdk");
    run(compiler, Duration::from_secs(120))?.success()?;
    Ok((tool, log))
}

/// Sends a command and returns the number in the answer.
fn ask(target: &mut LabTarget, command: &str) -> Result<u64> {
    target.send(command)?;
    let answer = target.expect(command.split(' ').next().unwrap_or_default())?;
    let (_, number) = answer.split_once(' ').ok_or("an answer with a number")?;
    Ok(number.parse()?)
}

pub(crate) fn quit(mut target: LabTarget) -> Result<()> {
    target.send("quit")?;
    target.expect("done")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

/// Returns what the client should count in this many rounds.
fn told_of(rounds: u64) -> Counts {
    let each = [
        "EVENT_PAGE_MIGRATE_PAGEFAULT_GPU",
        "EVENT_PAGE_MIGRATE_END",
        "PAGE_MIGRATE_PAGEFAULT_GPU",
        "EVENT_PAGE_FAULT_START_WRITE_FAULT",
        "EVENT_PAGE_FAULT_END_PAGE_UPDATED",
        "PAGE_FAULT_WRITE_FAULT_UPDATED",
        "EVENT_QUEUE_EVICT_TTM",
        "EVENT_QUEUE_RESTORE_RESCHEDULED",
        "EVENT_QUEUE_RESTORE",
        "QUEUE_EVICT_TTM",
        "EVENT_UNMAP_FROM_GPU_UNMAP_FROM_CPU",
        "EVENT_DROPPED_EVENTS",
    ];
    let mut told: Counts = each
        .iter()
        .map(|name| (format!("ROCPROFILER_KFD_{name}"), rounds))
        .collect();
    told.insert("dropped".to_owned(), (1..=rounds).sum());
    told
}

/// Reads how often a sample client was notified of each thing, and removes the file.
pub(crate) fn report(log: &Path) -> Result<Counts> {
    let text = std::fs::read_to_string(log)?;
    std::fs::remove_file(log)?;
    assert!(text.ends_with("end\n"), "{text}");
    text.lines()
        .take_while(|line| *line != "end")
        .map(|line| {
            let (count, name) = line.split_once(' ').ok_or("a count and a name")?;
            Ok((name.to_owned(), count.parse()?))
        })
        .collect()
}

#[test]
fn a_client_is_told_of_the_kernel_drivers_events() -> Result<()> {
    let driver = Driver::new()?;
    let (tool, log) = driver.client()?;
    let mut target = driver.start(&[])?;
    for rounds in [3, 5] {
        assert_eq!(ask(&mut target, "happens 1")?, 0, "nobody reads");
        let mut attach = command("rocprof-attach")?;
        attach
            .args(["-p", &target.pid().to_string(), "-t"])
            .arg(&tool)
            .current_dir(driver.kit.scratch());
        let mut attacher = Target::spawn(attach)?;
        attacher.expect("Press Enter to detach...")?;
        assert_eq!(ask(&mut target, "readers")?, 2, "one for each GPU");
        let told = ask(&mut target, &format!("happens {rounds}"))?;
        assert_eq!(told, LINES * rounds);
        attacher.send("")?;
        attacher.wait(PATIENCE)?.success()?;
        assert_eq!(report(&log)?, told_of(rounds));
        assert_eq!(ask(&mut target, "readers")?, 0, "no descriptor stays");
    }
    quit(target)?;

    let lib = stage()?.join("lib");
    let preload = format!(
        "{}:{}",
        driver.device,
        lib.join("librocprofiler-sdk.so.1").display()
    );
    let mut target = driver.start(&[
        ("LD_PRELOAD", &preload),
        ("ROCPROFILER_LIBRARY_CTOR", "1"),
        (
            "ROCP_TOOL_LIBRARIES",
            tool.to_str().ok_or("a path is text")?,
        ),
        ("LD_LIBRARY_PATH", lib.to_str().ok_or("a path is text")?),
    ])?;
    assert_eq!(ask(&mut target, "happens 4")?, LINES * 4);
    quit(target)?;
    assert_eq!(report(&log)?, told_of(4));
    Ok(())
}

/// Returns how many records of each kind the json has.
fn kinds(dir: &Path) -> Result<BTreeMap<u64, u64>> {
    let whole = json(&dir.join("t_results.json"))?;
    let list = &whole["rocprofiler-sdk-tool"][0]["buffer_records"]["kfd"];
    let mut kinds = BTreeMap::new();
    for element in list.as_array().ok_or("a list")? {
        let kind = element["record"]["kind"].as_u64().ok_or("a kind")?;
        *kinds.entry(kind).or_default() += 1;
    }
    Ok(kinds)
}

#[test]
fn options_of_the_kernel_drivers_events_write_their_records() -> Result<()> {
    let driver = Driver::new()?;
    let mut target = driver.start(&[])?;
    let cases: [(&str, &[u64]); 3] = [
        ("--kfd-trace", &[27, 28, 29, 30, 31]),
        ("--kfd-queue-trace", &[31]),
        ("--kfd-page-mapping-trace", &[27, 30]),
    ];
    for (n, (option, expected)) in cases.into_iter().enumerate() {
        let dir = driver.kit.scratch().join(format!("out{n}"));
        let mut profiler = command("rocprofv3")?;
        profiler
            .args(["--pid", &target.pid().to_string(), option])
            .args(["--output-format", "json", "rocpd", "pftrace", "csv", "-d"])
            .arg(&dir)
            .args(["-o", "t"]);
        let mut profiler = Target::spawn(profiler)?;
        profiler.expect("Press Enter to detach")?;
        assert_eq!(ask(&mut target, "happens 3")?, LINES * 3);
        profiler.send("")?;
        profiler.wait(PATIENCE)?.success()?;
        let wanted: BTreeMap<u64, u64> = expected.iter().map(|kind| (*kind, 3)).collect();
        assert_eq!(kinds(&dir)?, wanted, "{option}");
        let mut reader = Command::new(python()?);
        reader.arg("-c").arg(
            "import sqlite3, sys\n\
             base = sqlite3.connect(sys.argv[1])\n\
             one = lambda view: base.execute('select count(*) from ' + view + \" where category like 'KFD%'\").fetchone()[0]\n\
             print(one('regions_and_samples'))",
        );
        reader.arg(dir.join("t_results.db"));
        let out = run(reader, PATIENCE)?.success()?.stdout;
        assert_eq!(out, [(3 * expected.len()).to_string()], "{option}");
        let trace = std::fs::read(dir.join("t_results.pftrace"))?;
        assert!(trace.windows(10).any(|part| part == b"kfd_events"));
    }
    quit(target)?;
    // Where the driver cannot be opened, the rest is recorded, and a note says why.
    let mut target = driver.start(&[("SIM_KFD_OPEN", "13")])?;
    let dir = driver.kit.scratch().join("refused");
    let mut profiler = command("rocprofv3")?;
    profiler
        .args(["--pid", &target.pid().to_string(), "--kfd-trace"])
        .args(["--output-format", "json", "-d"])
        .arg(&dir)
        .args(["-o", "t"]);
    let mut profiler = Target::spawn(profiler)?;
    profiler.expect("Press Enter to detach")?;
    assert_eq!(ask(&mut target, "happens 1")?, 0);
    profiler.send("")?;
    profiler.wait(PATIENCE)?.success()?;
    let written = std::fs::read_to_string(dir.join("t_results.json"))?;
    assert!(written.contains("/dev/kfd: Permission denied"), "{written}");
    quit(target)
}
