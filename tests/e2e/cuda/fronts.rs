//! The other commands on a CUDA process: `midair ps` and `doctor`, trees, `rocprofv3`, and what the
//! terminal shows.

use crate::cuda::kit::{NEWEST, ROUND, Session, copies_are_true, kernels_are_true, quit, start};
use midair_sim_cuda::DRIVER_FILE;
use midair_tests::Result;
use midair_tests::compile::host_program;
use midair_tests::cuda::{CudaTarget, Kit};
use midair_tests::snapshot::Snapshot;
use midair_tests::stage::{command, run_staged};
use midair_tests::table::{Csv, page};
use midair_tests::target::{Exit, PATIENCE, Target, until};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

fn json(exit: &Exit) -> Result<Value> {
    Ok(serde_json::from_str(&exit.stdout.concat())?)
}

/// Neither command touches the process, and both know that it uses CUDA.
#[test]
fn ps_and_doctor_list_it() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, &[])?;
    target.ask("work 2")?;
    let pid = target.pid();
    let before = Snapshot::take(pid)?;
    let version = DRIVER_FILE.trim_start_matches("libcuda.so.");

    let listed = json(&run_staged("midair", &["ps", "--json"], PATIENCE)?)?;
    let processes = listed["processes"].as_array().into_iter().flatten();
    let mine: Vec<&Value> = processes.filter(|one| one["pid"] == pid).collect();
    assert_eq!(mine.len(), 1, "{listed:#}");
    let told = mine[0].to_string();
    assert!(told.contains("CUDA") && told.contains(version), "{told}");
    let shown = run_staged("midair", &["ps"], PATIENCE)?;
    let line = shown
        .stdout
        .iter()
        .find(|line| line.split_whitespace().any(|word| word == pid.to_string()));
    assert!(line.is_some_and(|line| line.contains("CUDA")), "{shown}");

    let word = pid.to_string();
    let exit = run_staged("midair", &["doctor", &word, "--json"], PATIENCE)?;
    let told = json(&exit)?;
    let schema = midair_tests::workspace().join("docs/doctor.schema.json");
    let schema: Value = serde_json::from_slice(&std::fs::read(schema)?)?;
    let faults = midair_tests::schema::faults(&schema, &told);
    assert!(faults.is_empty(), "{faults:#?}");
    assert_eq!(told["attachable"], true, "{told:#}");
    let checks = told["checks"].as_array().ok_or("no checks")?;
    assert!(
        checks.iter().all(|check| check["status"] != "fail"),
        "{told:#}"
    );
    let of = |name: &str| -> Result<String> {
        let check = checks.iter().find(|check| check["name"] == name);
        Ok(check.ok_or_else(|| format!("no {name}: {told:#}"))?["found"].to_string())
    };
    assert!(of("CUDA driver")?.contains(version), "{told:#}");
    // What it says of them depends on the machine; that it says it does not.
    of("GPU counters")?;
    let diff = before.diff(&Snapshot::take(pid)?);
    assert!(diff.is_empty(), "{diff}");
    quit(target)
}

/// AMD's command line, with its own file names, and one line that says what kind of process this
/// is.
#[test]
fn rocprofv3_works_too() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, &[])?;
    let words = ["--kernel-trace", "--memory-copy-trace", "--hip-trace"];
    let session = Session::rocprofv3(target.pid(), &kit.scratch().join("amd"), &words)?;
    target.ask("work 5")?;
    let trace = session.detach()?;
    trace.whole()?;
    let log = target.model_log()?;
    assert_eq!(kernels_are_true(&trace, &log)?, 10 * ROUND.0);
    assert_eq!(copies_are_true(&trace, &log)?, 10 * ROUND.1);
    let said = trace.exit.stderr.join("\n");
    assert_eq!(
        said.matches("is a CUDA process: midair").count(),
        1,
        "{said}"
    );
    quit(target)
}

/// Calls that only ask for state are left out, and are there with `--cuda-trace=all`. The others are
/// there in both.
#[test]
fn all_calls_or_those_that_do_something() -> Result<()> {
    const CALLS: usize = 7;
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, &[])?;
    for (word, expected) in [("--cuda-trace", 0), ("--cuda-trace=all", CALLS)] {
        let dir = kit.scratch().join(word);
        let session = Session::attach(target.pid(), &dir, &[word])?;
        target.ask(&format!("state {CALLS}"))?;
        target.ask(&format!("memory {CALLS}"))?;
        let trace = session.detach()?;
        trace.whole()?;
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for row in trace.rows("cuda_api_trace")? {
            *counts.entry(row["Function"].clone()).or_default() += 1;
        }
        // The version is a part of some names.
        let of = |name: &str| -> usize {
            let named = counts.iter().filter(|(call, _)| call.starts_with(name));
            named.map(|(_, count)| count).sum()
        };
        assert_eq!(of("cuCtxGetCurrent"), expected, "{word}: {counts:?}");
        assert_eq!(of("cuMemAlloc"), CALLS, "{word}: {counts:?}");
        assert_eq!(of("cuMemFree"), CALLS, "{word}: {counts:?}");
    }
    quit(target)
}

/// The terminal shows the kernels that took the most time, with their counts.
#[test]
fn the_terminal_shows_the_top_kernels() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, &[("CUDA_MODEL_KERNEL_NS", "20000")])?;
    let mut attach = command("midair")?;
    attach.args(["attach", &target.pid().to_string(), "-d"]);
    attach.arg(kit.scratch().join("table"));
    let mut process = Target::spawn(attach)?;
    process.expect_error("attached to process")?;
    target.ask("work 6")?;
    process.send("")?;
    let exit = process.wait(PATIENCE)?.success()?;
    for (name, count) in [("step ", "36"), ("reduce<float> ", "12")] {
        let line = exit.stdout.iter().find(|line| line.starts_with(name));
        let words = line.map(|line| line.split_whitespace().any(|word| word == count));
        assert_eq!(words, Some(true), "{name} {count}: {exit}");
    }
    quit(target)
}

/// NVTX with the variable that makes it load CUPTI. The first call is made before any attach.
#[test]
fn ranges_of_nvtx() -> Result<()> {
    let kit = Kit::new()?;
    let cupti = kit.stand_in.cupti(13).display().to_string();
    let mut target = start(&kit, NEWEST, &[("NVTX_INJECTION64_PATH", &cupti)])?;
    assert_eq!(target.ask("marks 2")?, "marks done 2 depth 1");
    two_sessions_of_ranges(&kit, &mut target)?;
    quit(target)
}

/// NVTX without that variable, attached to before the first call and after it. NVTX's state is
/// restored afterwards.
#[test]
fn ranges_of_nvtx_unprepared() -> Result<()> {
    let kit = Kit::new()?;
    for called_before in [true, false] {
        let mut target = start(&kit, NEWEST, &[])?;
        if called_before {
            target.ask("marks 2")?;
        }
        two_sessions_of_ranges(&kit, &mut target)?;
        assert_eq!(target.ask("marks 2")?, "marks done 2 depth -2");
        quit(target)?;
    }
    Ok(())
}

fn two_sessions_of_ranges(kit: &Kit, target: &mut CudaTarget) -> Result<()> {
    for session in 0..2 {
        let dir = kit.scratch().join(format!("marks{session}"));
        let attached = Session::attach(target.pid(), &dir, &["--marker-trace"])?;
        target.ask("marks 7")?;
        let trace = attached.detach()?;
        trace.whole()?;
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for row in trace.rows("marker_api_trace")? {
            *counts.entry(row["Function"].clone()).or_default() += 1;
            let (start, end) = (
                Csv::number(&row, "Start_Timestamp")?,
                Csv::number(&row, "End_Timestamp")?,
            );
            assert!(start <= end, "{row:?}");
        }
        let expected = ["inner", "moment", "outer", "over"].map(|name| (name.to_owned(), 7));
        assert_eq!(counts, BTreeMap::from(expected), "{}", trace.exit);
    }
    Ok(())
}

/// A shell, a launcher and two ranks, as with torchrun. The work of each rank is recorded under the
/// rank's own pid.
#[test]
fn a_tree_of_two_ranks() -> Result<()> {
    let kit = Kit::new()?;
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$0\" 2 \"$1\"; echo over"]);
    shell.arg(host_program("launcher")?);
    shell.arg(kit.program("cuda_work", NEWEST)?);
    let mut target: CudaTarget = kit.start_command(shell, &[])?;
    target.expect("ready")?;
    target.expect("ready")?;
    let dir = kit.scratch().join("tree");
    let mut attach = command("midair")?;
    attach.args(["attach", "--tree", &target.pid().to_string(), "--merge"]);
    attach
        .args(["--output-format", "csv,html", "-o", "all", "-d"])
        .arg(&dir);
    let mut process = Target::spawn(attach)?;
    until("both", || {
        let said = process.errors();
        let attached =
            |line: &&String| line.starts_with("attached to process") && line.contains("(cuda_work");
        Ok(said.iter().filter(attached).count() == 2)
    })?;
    target.send("work 10")?;
    target.expect("work")?;
    target.expect("work")?;
    process.send("")?;
    let exit = process.wait(PATIENCE)?.success()?;
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    let table = dir.join("all_kernel_trace.csv");
    for row in Csv::read(&table)
        .map_err(|error| format!("{error}: {exit}"))?
        .rows
    {
        *counts.entry(Csv::number(&row, "Process_Id")?).or_default() += 1;
    }
    let counts: Vec<usize> = counts.into_values().collect();
    assert_eq!(counts, [20 * ROUND.0; 2], "{exit}");
    // One page has both, each on its rows.
    let page = page(&dir.join("all_results.html"))?;
    for rank in 0..2 {
        let rows = page["rows"].as_array().into_iter().flatten();
        let spans = rows
            .filter(|row| row["process"] == rank)
            .filter(|row| {
                row["name"]
                    .as_str()
                    .is_some_and(|name| name.starts_with("GPU "))
            })
            .filter_map(|row| row["spans"].as_array());
        // Four numbers for each kernel, copy and fill.
        let spans: usize = spans.map(|spans| spans.len() / 4).sum();
        assert!(spans >= 20 * ROUND.0, "{spans}: {exit}");
    }
    target.send("quit")?;
    assert_eq!(target.expect("done 0")?, "done 0");
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}
