//! The collector, a process next to a started program, writes the program's files. They are complete
//! however the program ends, and the program sees nothing of the collector.

use midair_tests::Result;
use midair_tests::lab::LabTarget;
use midair_tests::stage::{command, run_staged, stage};
use midair_tests::stand_in::Kit;
use midair_tests::table::Csv;
use midair_tests::target::{Exit, PATIENCE, until};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

const FILE: &str = "out_hip_api_trace.csv";

/// A started program, and where its results belong.
struct Started {
    target: LabTarget,
    results: PathBuf,
}

impl Started {
    /// Starts it with this in front of our command.
    fn new(kit: &Kit, front: &[&str]) -> Result<Started> {
        let results = kit.scratch().join("results");
        if results.exists() {
            std::fs::remove_dir_all(&results)?;
        }
        let midair = command("midair")?;
        let mut words = front.iter().map(OsStr::new).chain([midair.get_program()]);
        let mut run = Command::new(words.next().ok_or("no program")?);
        run.args(words);
        run.args(["run", "--hip-runtime-trace", "-f", "csv", "parquet"]);
        run.args(["-o", "out", "-d"]);
        run.arg(&results).arg("--").arg(kit.program("collected")?);
        Started::by(kit, run, results)
    }

    fn by(kit: &Kit, command: Command, results: PathBuf) -> Result<Started> {
        let mut target = kit.start_command(command, "model.log", &[])?;
        target.expect("ready")?;
        Ok(Started { target, results })
    }

    fn ask(&mut self, words: &str) -> Result<String> {
        self.target.send(words)?;
        let name = words.split(' ').next().unwrap_or_default();
        self.target.expect(name)
    }

    /// Waits for the files of a program that could not wait for them.
    fn comes_to_have(&self, launches: usize) -> Result<()> {
        let file = self.results.join(FILE);
        until("the files", || Ok(file.exists()))?;
        assert_eq!(launches_in(&file)?, launches);
        Ok(())
    }
}

/// Returns how many launches a file has. A call is recorded before it returns.
fn launches_in(file: &Path) -> Result<usize> {
    let rows = Csv::read(file)?.rows;
    let is_launch = |row: &&BTreeMap<String, String>| row["Function"] == "hipLaunchKernel";
    Ok(rows.iter().filter(is_launch).count())
}

/// Returns the collector of a process.
fn collector_of(pid: i32) -> Result<Option<i32>> {
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Ok(other) = entry.file_name().to_string_lossy().parse() else {
            continue;
        };
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        let words: Vec<&str> = words.split('\0').collect();
        let is_collector = words[0].ends_with("/midair-collector");
        if is_collector && words.get(3) == Some(&pid.to_string().as_str()) {
            return Ok(Some(other));
        }
    }
    Ok(None)
}

fn has_ended(pid: i32) -> bool {
    !Path::new("/proc").join(pid.to_string()).exists()
}

/// Nothing can be done in a process that is killed. What it recorded was read outside of it.
#[test]
fn a_killed_program_leaves_complete_files() -> Result<()> {
    let kit = Kit::new()?;
    for has_child in [false, true] {
        let mut started = Started::new(&kit, &[])?;
        started.ask("work 40")?;
        // It has our end of the socket, too, and lives on.
        let child = match has_child {
            true => Some(started.ask("fork")?.replace("fork ", "").parse()?),
            false => None,
        };
        let pid = started.target.pid();
        let collector = collector_of(pid)?.ok_or("no collector")?;
        started.target.target.signal(libc::SIGKILL)?;
        started.comes_to_have(40)?;
        until("the collector's end", || Ok(has_ended(collector)))?;
        let names: Vec<_> = std::fs::read_dir(&started.results)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<Result<_>>()?;
        // Nothing is half there.
        let is_whole = |name: &String| name.starts_with("out_") || name.starts_with("run=");
        assert!(names.iter().all(is_whole), "{names:?}");
        if let Some(child) = child {
            // SAFETY: kill takes numbers only. The child waits for this signal.
            assert_eq!(unsafe { libc::kill(child, libc::SIGKILL) }, 0);
        }
    }
    Ok(())
}

#[test]
fn the_program_sees_no_child_and_keeps_its_exit_status() -> Result<()> {
    let kit = Kit::new()?;
    let mut started = Started::new(&kit, &[])?;
    let none = "children none signals 0";
    assert_eq!(started.ask("children")?, none);
    started.ask("work 3")?;
    let collector = collector_of(started.target.pid())?.ok_or("no collector")?;
    // A signal for the whole group of the program, as from a terminal, does not end it, and neither
    // does one that ends all processes of a service.
    // SAFETY: getpgid and kill take numbers only; the collector lives.
    unsafe {
        assert_eq!(libc::getpgid(collector), collector);
        assert_eq!(libc::kill(collector, libc::SIGTERM), 0);
    }
    assert_eq!(started.ask("children")?, none);
    started.target.send("quit")?;
    let results = started.results.clone();
    let exit = started.target.target.wait(PATIENCE)?;
    assert_eq!(exit.status.code(), Some(7), "{exit}");
    // Complete when it returns.
    assert_eq!(launches_in(&results.join(FILE))?, 3, "{exit}");
    let named = exit.stderr.iter();
    let mut named = named.filter_map(|line| line.strip_prefix("Opened result file: "));
    let calls = named.find(|file| file.contains("/kind=calls/"));
    let shown = run_staged("midair", &["show", calls.ok_or("no parquet")?], PATIENCE)?;
    let shown = shown.success()?.stdout;
    let launches = shown.iter().filter(|row| row.contains("hipLaunchKernel"));
    assert_eq!(launches.count(), 3, "{shown:?}");
    until("the collector's end", || Ok(has_ended(collector)))
}

/// A program may close what it does not know.
#[test]
fn a_program_that_closes_all_sockets_has_its_files() -> Result<()> {
    let kit = Kit::new()?;
    let mut started = Started::new(&kit, &[])?;
    started.ask("work 2")?;
    started.ask("sockets")?;
    // The collector has seen it, and goes on.
    std::thread::sleep(std::time::Duration::from_millis(300));
    started.ask("work 3")?;
    started.target.send("quit")?;
    let results = started.results.clone();
    let exit = started.target.target.wait(PATIENCE)?;
    assert_eq!(exit.status.code(), Some(7), "{exit}");
    assert_eq!(launches_in(&results.join(FILE))?, 5, "{exit}");
    Ok(())
}

/// A system call that no library sees.
#[test]
fn a_program_that_becomes_another_leaves_complete_files() -> Result<()> {
    let kit = Kit::new()?;
    let mut started = Started::new(&kit, &[])?;
    started.ask("work 4")?;
    started.ask("become")?;
    started.comes_to_have(4)?;
    let exit = started.target.target.wait(PATIENCE)?;
    assert_eq!(exit.status.code(), Some(5), "{exit}");
    Ok(())
}

/// Filters of system calls under which the program was started are none of its own.
#[test]
fn a_program_in_a_sandbox_is_recorded() -> Result<()> {
    let kit = Kit::new()?;
    let sandbox = kit.program("collected")?.display().to_string();
    let mut started = Started::new(&kit, &[&sandbox, "filter"])?;
    started.ask("work 2")?;
    started.target.send("quit")?;
    let results = started.results.clone();
    let exit = started.target.target.wait(PATIENCE)?;
    assert_eq!(exit.status.code(), Some(7), "{exit}");
    assert_eq!(launches_in(&results.join(FILE))?, 2, "{exit}");
    Ok(())
}

/// A tool with its SDK in a directory of the test's.
fn alone(kit: &Kit) -> Result<PathBuf> {
    let lib = kit.scratch().join("lib");
    std::fs::create_dir_all(lib.join("rocprofiler-sdk"))?;
    for name in [
        "librocprofiler-sdk.so.1",
        "rocprofiler-sdk/librocprofiler-sdk-tool.so.1",
    ] {
        std::fs::copy(stage()?.join("lib").join(name), lib.join(name))?;
    }
    Ok(lib.join("rocprofiler-sdk/librocprofiler-sdk-tool.so.1"))
}

/// Runs a program with this tool. It launches twice.
fn with_tool(kit: &Kit, tool: &Path, results: &Path) -> Result<Exit> {
    let mut command = Command::new("env");
    command.arg(format!("LD_PRELOAD={}", tool.display()));
    command.args([
        "ROCPROF_HIP_RUNTIME_API_TRACE=1",
        "ROCPROF_OUTPUT_FORMAT=csv",
    ]);
    command.arg("ROCPROF_OUTPUT_FILE_NAME=out");
    command.arg(format!("ROCPROF_OUTPUT_PATH={}", results.display()));
    command.arg(kit.program("collected")?);
    let mut started = Started::by(kit, command, results.to_owned())?;
    started.ask("work 2")?;
    started.target.send("quit")?;
    let exit = started.target.target.wait(PATIENCE)?;
    assert_eq!(exit.status.code(), Some(7), "{exit}");
    Ok(exit)
}

#[test]
fn without_a_collector_the_program_runs_and_it_is_said() -> Result<()> {
    let kit = Kit::new()?;
    let tool = alone(&kit)?;
    let results = kit.scratch().join("results");
    let exit = with_tool(&kit, &tool, &results)?;
    let why = "error: cannot find midair-collector next to midair's tool library";
    assert!(exit.stderr.join("\n").contains(why), "{exit}");
    // A program that ends at once is as good as none.
    symlink("/bin/true", tool.with_file_name("midair-collector"))?;
    let exit = with_tool(&kit, &tool, &results)?;
    let why = "error: midair-collector ended at once";
    assert!(exit.stderr.join("\n").contains(why), "{exit}");
    assert!(!results.exists(), "{exit}");
    Ok(())
}

/// As in a wheel, which has no second copy of the program.
#[test]
fn midair_itself_collects_where_no_other_file_does() -> Result<()> {
    let kit = Kit::new()?;
    let tool = alone(&kit)?;
    std::fs::create_dir(kit.scratch().join("bin"))?;
    let midair = kit.scratch().join("bin/midair");
    std::fs::copy(stage()?.join("bin/midair"), midair)?;
    let results = kit.scratch().join("results");
    let exit = with_tool(&kit, &tool, &results)?;
    assert_eq!(launches_in(&results.join(FILE))?, 2, "{exit}");
    Ok(())
}
