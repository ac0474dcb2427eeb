//! `--stacks`: the lines of Python code that launch kernels. Each launch of the program has its line
//! in grid.x and its thread's number in grid.y, so each kernel's row in the csv says what its stack
//! has to be.

use crate::rocpd::reader;
use midair_tests::attacher::{Attacher, Traced};
use midair_tests::lab::{Lab, LabTarget};
use midair_tests::modellog::ModelLog;
use midair_tests::stage::command;
use midair_tests::stand_in::Kit;
use midair_tests::table::{Csv, json};
use midair_tests::target::{PATIENCE, Target, until};
use midair_tests::{Result, cuda, workspace};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const WORDS: [&str; 5] = [
    "--kernel-trace",
    "--stacks",
    "python",
    "-f",
    "csv,folded,speedscope,rocpd,pprof",
];
/// Launches of one round: see `work` of the program.
const LAUNCHES: u64 = 4 + 6 + 4 + 4 + 1 + 15;

/// The GPU's time by line and thread.
pub type Times = BTreeMap<(u64, u64), u64>;

/// Returns the times by the launches' own words.
pub fn from_csv(traced: &Traced) -> Result<(Times, u64)> {
    from_rows(&traced.file("kernel_trace.csv"))
}

/// Returns the same of a file of kernels.
pub(crate) fn from_rows(file: &Path) -> Result<(Times, u64)> {
    let (mut times, mut count) = (Times::new(), 0);
    for row in Csv::read(file)?.rows {
        let [line, thread, start, end] = [
            "Grid_Size_X",
            "Grid_Size_Y",
            "Start_Timestamp",
            "End_Timestamp",
        ]
        .map(|name| Csv::number(&row, name));
        *times.entry((line? / 64, thread?)).or_default() += end? - start?;
        count += 1;
    }
    Ok((times, count))
}

/// Returns the line in a frame such as `launch (tests/launch_lines.py:7)`.
fn line_of(frame: &str) -> u64 {
    let line = frame.rsplit(':').next().unwrap_or_default();
    line.trim_end_matches(')').parse().unwrap_or(0)
}

/// Returns the times by stacks, whose frames come outermost first, the kernel last.
pub fn from_stacks(stacks: impl Iterator<Item = (Vec<String>, u64)>) -> Result<Times> {
    let mut times = Times::new();
    for (path, time) in stacks {
        let [.., caller, launch, start, kernel] = path.as_slice() else {
            return Err(format!("{path:?}").into());
        };
        assert!(
            launch.starts_with("launch (") && start.starts_with("start ("),
            "{path:?}"
        );
        assert!(kernel.contains("scale"), "{path:?}");
        // The first frame of a thread is threading's.
        let is_thread = path.iter().any(|frame| frame.starts_with("in_thread ("));
        let main = path.iter().any(|frame| frame.starts_with("<module> ("));
        assert_eq!(main, !is_thread, "{path:?}");
        let key = (line_of(caller), u64::from(is_thread));
        *times.entry(key).or_default() += time;
    }
    Ok(times)
}

/// Returns the same with all threads but the first as one.
pub fn threads_as_one(times: &Times) -> Times {
    let mut all = Times::new();
    for ((line, thread), time) in times {
        *all.entry((*line, u64::from(*thread > 1))).or_default() += time;
    }
    all
}

/// Returns the times by folded stacks.
fn from_folded(file: &Path) -> Result<Times> {
    let folded = std::fs::read_to_string(file)?;
    let lines = folded.lines().filter_map(|line| {
        let (path, time) = line.rsplit_once(' ')?;
        let path = path.split(';').map(str::to_owned).collect();
        Some((path, time.parse().ok()?))
    });
    from_stacks(lines)
}

/// The times by the line of `launch`'s caller, and by whether it is a further thread's.
const BY_LINE: &str = "SELECT c.line, SUM(k.duration) AS time, EXISTS (
      SELECT 1 FROM call_stacks AS t
      WHERE t.guid = k.guid AND t.event_id = k.event_id AND t.function LIKE '%in_thread') AS thread
    FROM kernels AS k JOIN call_stacks AS c USING (guid, event_id)
    WHERE c.depth = 2 GROUP BY c.line, thread";

/// Returns the times by rocpd's view of stacks, which Python's SQLite reads.
fn from_rocpd(file: &Path) -> Result<Times> {
    let read = reader(file, &[BY_LINE])?;
    let rows = read["answers"][0].as_array().into_iter().flatten();
    let number = |row: &Value, key: &str| row[key].as_u64().unwrap_or(u64::MAX);
    let times = rows.map(|row| {
        let key = (number(row, "line"), number(row, "thread"));
        (key, number(row, "time"))
    });
    Ok(times.collect())
}

/// Returns the times by the profile for pprof, which Google's protobuf reads.
fn from_pprof(file: &Path) -> Result<Times> {
    let output = Command::new(midair_tests::python()?)
        .arg(workspace().join("tests/python/pprof_read.py"))
        .arg(file)
        .output()?;
    let said: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&output.stderr)))?;
    let mut launches = 0;
    let samples = said["samples"].as_array().into_iter().flatten();
    let paths = samples.map(|sample| {
        launches += sample["values"][0].as_u64().unwrap_or(0);
        let frames = sample["frames"].as_array().into_iter().flatten().rev();
        let name = |frame: &Value| {
            let text = |at: usize| frame[at].as_str().unwrap_or_default().to_owned();
            format!("{} ({}:{})", text(0), text(1), frame[2])
        };
        let time = sample["values"][1].as_u64().unwrap_or(0);
        (frames.map(name).collect(), time)
    });
    let times = from_stacks(paths)?;
    assert_eq!(launches % LAUNCHES, 0);
    let time = |key: &str| Duration::from_nanos(said[key].as_u64().unwrap_or(0));
    // The session was in the last minutes.
    let ago = SystemTime::now().duration_since(UNIX_EPOCH + time("time"))?;
    assert!(time("duration") <= ago && ago < 4 * PATIENCE, "{said}");
    Ok(times)
}

/// Checks a session of some rounds of the program, which has said that it is ready.
fn check(target: &mut Target) -> Result<()> {
    for rounds in [1, 20] {
        let attacher = Attacher::midair(target.pid(), &WORDS)?;
        target.send(&format!("work {rounds}"))?;
        target.expect("work")?;
        let traced = attacher.detach()?;
        let (by_grid, count) = from_csv(&traced)?;
        assert_eq!(count, rounds * LAUNCHES);
        let wanted = threads_as_one(&by_grid);
        assert_eq!(from_folded(&traced.file("results.folded"))?, wanted);
        let whole = json(&traced.file("results.speedscope.json"))?;
        let names = &whole["shared"]["frames"];
        let profile = &whole["profiles"][0];
        let samples = profile["samples"].as_array().ok_or("no samples")?;
        let paths = samples.iter().enumerate().map(|(at, sample)| {
            let frames = sample.as_array().into_iter().flatten();
            let name = |at: &Value| {
                let at = at.as_u64().unwrap_or(u64::MAX) as usize;
                names[at]["name"].as_str().unwrap_or_default().to_owned()
            };
            let time = profile["weights"][at].as_u64().unwrap_or(0);
            (frames.map(name).collect(), time)
        });
        assert_eq!(from_stacks(paths)?, wanted);
        if rounds > 1 {
            assert_eq!(from_rocpd(&traced.file("results.db"))?, wanted);
            assert_eq!(from_pprof(&traced.file("results.pb.gz"))?, wanted);
        }
        let said = [traced.exit.stdout.join("\n"), traced.exit.stderr.join("\n")].concat();
        assert!(said.contains("CODE"), "{said}");
        assert!(said.contains("launch_lines.py:"), "{said}");
        // The line jumps back at each call of `work` but the first, and the last one is not over.
        let steps = said.lines().find(|line| line.starts_with("STEPS "));
        let wanted = "18 iterations of the loop in work (launch_lines.py:";
        match rounds {
            1 => assert!(steps.is_none(), "{said}"),
            _ => assert!(steps.is_some_and(|line| line.contains(wanted)), "{said}"),
        }
        // A call that waits by a packet of its own has a stack as well.
        let cost = said
            .lines()
            .find_map(|line| line.strip_prefix("STACKS    "));
        let calls = cost.and_then(|cost| cost.split_once(" calls at "));
        assert!(
            calls.is_some_and(|(calls, _)| calls.parse::<u64>().is_ok_and(|it| it >= count)),
            "{said}"
        );
    }
    Ok(())
}

/// Checks a session that keeps only its latest records: a window, and what was kept at the end. Each
/// stack was described before, in a time that is not kept.
fn check_kept(target: &mut Target, trigger: Option<&str>) -> Result<()> {
    let mut words = [&WORDS[..], &["--keep", "2s"]].concat();
    words.extend(
        trigger
            .iter()
            .flat_map(|trigger| ["--keep-windows", "1", "--trigger", trigger]),
    );
    let mut attacher = Attacher::midair(target.pid(), &words)?;
    let process = attacher.process();
    if trigger.is_none() {
        process.signal(libc::SIGUSR1)?;
    }
    until("a window", || {
        target.send("work 1")?;
        target.expect("work")?;
        let told = process.lines();
        Ok(told.iter().any(|line| line.ends_with("out_results.db")))
    })?;
    let traced = attacher.detach()?.code(0)?;
    let window = |entry: std::fs::DirEntry| {
        let name = entry.file_name();
        let is_window = name.to_string_lossy().starts_with("window-");
        is_window.then(|| entry.path())
    };
    let entries = std::fs::read_dir(traced.dir())?.flatten();
    let mut all: Vec<_> = entries.filter_map(window).collect();
    assert_eq!(all.len(), 1, "{all:?}");
    all.extend(trigger.is_none().then(|| traced.dir().to_owned()));
    for directory in all {
        let file = |name: &str| directory.join(format!("out_{name}"));
        let (by_grid, count) = from_rows(&file("kernel_trace.csv"))?;
        assert!(count > LAUNCHES, "{directory:?}: {count}");
        let wanted = threads_as_one(&by_grid);
        assert_eq!(from_folded(&file("results.folded"))?, wanted);
        assert_eq!(from_rocpd(&file("results.db"))?, wanted);
    }
    Ok(())
}

/// Checks the same with an AMD program, and its log.
fn check_hip(mut target: LabTarget) -> Result<()> {
    check(&mut target.target)?;
    check_kept(&mut target.target, None)?;
    target.send("quit")?;
    let log = target.log.clone();
    target.target.wait(PATIENCE)?.success()?;
    ModelLog::read(&log)?.check()
}

/// The interpreters of pyenv with these versions, if it is there.
fn of_pyenv(known: &[&str]) -> Vec<String> {
    let pyenv = std::fs::read_dir("/root/.pyenv/versions");
    let all = pyenv.into_iter().flatten().flatten().filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        known.iter().any(|version| name.starts_with(version))
    });
    all.map(|entry| entry.path().join("bin/python3").display().to_string())
        .collect()
}

/// The interpreters that are tried: the system's, and pyenv's.
pub fn pythons() -> Vec<String> {
    let known = ["3.9.", "3.10.", "3.11.", "3.12.", "3.13.", "3.14."];
    let mut all = of_pyenv(&known);
    all.push("/usr/bin/python3".to_owned());
    all
}

/// A Python that is too old is named, and the kernels are recorded.
#[test]
fn a_python_before_3_9_has_no_stacks() -> Result<()> {
    for python in of_pyenv(&["3.8."]) {
        let kit = Kit::new()?;
        let mut command = Command::new(&python);
        command
            .arg(workspace().join("tests/python/launch_lines.py"))
            .arg(kit.dir().join("libamdhip64.so.7"));
        let library = kit.dir().display().to_string();
        let mut target =
            kit.start_command(command, "model.log", &[("LD_LIBRARY_PATH", &library)])?;
        target.expect("ready")?;
        let attacher = Attacher::midair(target.target.pid(), &WORDS)?;
        target.target.send("work 1")?;
        target.target.expect("work")?;
        let traced = attacher.detach()?.code(0)?;
        assert_eq!(from_csv(&traced)?.1, LAUNCHES);
        let said = traced.exit.stderr.join("\n");
        let why = "no stacks are taken (--stacks): the process has a Python before 3.9";
        assert!(said.contains(why), "{said}");
        target.target.send("quit")?;
        target.target.wait(PATIENCE)?.success()?;
    }
    Ok(())
}

#[test]
fn each_line_has_the_times_of_its_own_launches() -> Result<()> {
    for python in pythons() {
        let kit = Kit::new()?;
        let mut command = Command::new(&python);
        command
            .arg(workspace().join("tests/python/launch_lines.py"))
            .arg(kit.dir().join("libamdhip64.so.7"));
        let library = kit.dir().display().to_string();
        let mut target =
            kit.start_command(command, "model.log", &[("LD_LIBRARY_PATH", &library)])?;
        target.expect("ready")?;
        check_hip(target).map_err(|error| format!("{python}: {error}"))?;
    }
    Ok(())
}

/// A started program writes its files itself.
#[test]
fn each_line_has_the_times_of_its_own_launches_in_a_started_program() -> Result<()> {
    for python in pythons() {
        let kit = Kit::new()?;
        let out = kit.scratch().join("out");
        let mut run = command("midair")?;
        run.arg("run").args(WORDS).args(["-o", "out", "-d"]);
        run.arg(&out).arg("--").arg(&python);
        run.arg(workspace().join("tests/python/launch_lines.py"));
        let runtime = kit.dir().join("libamdhip64.so.7").display().to_string();
        let directory = kit.dir().display().to_string();
        run.arg(&runtime);
        // The stand-in does not register itself when it is loaded, as AMD's runtime does.
        let variables = [("LD_LIBRARY_PATH", &*directory), ("LD_PRELOAD", &*runtime)];
        let target = kit.start_command(run, "model.log", &variables)?;
        check_started(target, &out).map_err(|error| format!("{python}: {error}"))?;
    }
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let kernels = lab.kernels()?;
    let (script, out) = (
        lab.scratch().join("launch_lines.py"),
        lab.scratch().join("out"),
    );
    std::fs::copy(workspace().join("tests/python/launch_lines.py"), &script)?;
    let (stage, at) = (lab.stage()?, lab.inside(&out)?);
    let program = format!("{stage}/bin/midair");
    let own = [&program, "run", "-o", "out", "-d", &at];
    let words: Vec<&str> = own.into_iter().chain(WORDS).chain(["--"]).collect();
    let target = lab
        .run("/usr/bin/python3")
        .arg(lab.inside(&script)?)
        .arg("/usr/lib/x86_64-linux-gnu/libamdhip64.so.7")
        .arg(&kernels)
        .env("PYTHONDONTWRITEBYTECODE", 1)
        .under(&words)
        .spawn()?;
    check_started(target, &out)
}

/// Checks a program that `midair run` has started.
fn check_started(mut target: LabTarget, out: &Path) -> Result<()> {
    target.expect("ready")?;
    target.send("work 2")?;
    target.expect("work")?;
    target.send("quit")?;
    let exit = target.target.wait(PATIENCE)?.success()?;
    let file = |name: &str| out.join(format!("out_{name}"));
    let (by_grid, count) = from_rows(&file("kernel_trace.csv"))?;
    // One round comes before "ready".
    assert_eq!(count, 3 * LAUNCHES, "{exit}");
    let wanted = threads_as_one(&by_grid);
    assert_eq!(from_folded(&file("results.folded"))?, wanted);
    assert_eq!(from_rocpd(&file("results.db"))?, wanted);
    let said = exit.stderr.join("\n");
    assert!(said.contains("launch_lines.py:"), "{said}");
    Ok(())
}

#[test]
fn each_line_has_the_times_of_its_own_launches_in_a_cuda_process() -> Result<()> {
    let kit = cuda::Kit::new()?;
    for python in pythons() {
        let runtime = kit.stand_in.runtime(13);
        let mut command = Command::new(&python);
        command
            .arg(workspace().join("tests/python/launch_lines.py"))
            .arg(runtime);
        let mut target = kit.start_command(command, &[("CUPTI_MODEL", "version=130500")])?;
        target.expect("ready")?;
        check(&mut target).map_err(|error| format!("{python}: {error}"))?;
        check_kept(&mut target, Some("kernel(scale) > 1us"))?;
        target.send("quit")?;
        let log = target.log.clone();
        target.target.wait(PATIENCE)?.success()?;
        // Each session has ended its subscription.
        let log = std::fs::read_to_string(log)?;
        let [on, off] =
            ["subscribed on=1", "subscribed on=0"].map(|word| log.matches(word).count());
        assert_eq!((on, off), (3, 3));
    }
    Ok(())
}

/// Where another profiler is subscribed to CUPTI, or CUPTI is one that crashes processes, the kernels
/// are recorded without stacks, and the user hears why.
#[test]
fn a_cupti_that_cannot_be_subscribed_to_is_named() -> Result<()> {
    let cases = [
        (
            "subscribed,version=130500",
            "CUPTI serves one subscriber and has one already",
        ),
        (
            "version=130001",
            "the process has CUPTI 13.0, whose callbacks can crash it",
        ),
    ];
    for (model, why) in cases {
        without_stacks(model, &format!("no stacks are taken (--stacks): {why}"))?;
    }
    Ok(())
}

fn without_stacks(model: &str, why: &str) -> Result<()> {
    let kit = cuda::Kit::new()?;
    let mut command = Command::new("/usr/bin/python3");
    command
        .arg(workspace().join("tests/python/launch_lines.py"))
        .arg(kit.stand_in.runtime(13));
    let mut target = kit.start_command(command, &[("CUPTI_MODEL", model)])?;
    target.expect("ready")?;
    let attacher = Attacher::midair(target.pid(), &WORDS)?;
    target.ask("work 1")?;
    let traced = attacher.detach()?;
    let said = traced.exit.stderr.join("\n");
    assert!(said.contains(why), "{}", traced.exit);
    assert_eq!(
        Csv::read(&traced.file("kernel_trace.csv"))?.rows.len() as u64,
        LAUNCHES
    );
    let log = std::fs::read_to_string(&target.log)?;
    assert!(!log.contains("subscribed on="), "{log}");
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

#[test]
fn each_line_has_the_times_of_its_own_launches_on_amds_runtimes() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let kernels = lab.kernels()?;
    let script = lab.scratch().join("launch_lines.py");
    std::fs::copy(workspace().join("tests/python/launch_lines.py"), &script)?;
    let mut target = lab
        .run("/usr/bin/python3")
        .arg(lab.inside(&script)?)
        .arg("/usr/lib/x86_64-linux-gnu/libamdhip64.so.7")
        .arg(&kernels)
        .env("PYTHONDONTWRITEBYTECODE", 1)
        .spawn()?;
    target.expect("ready")?;
    check_hip(target)
}

/// Who asks for stacks of a program without Python hears at the end why there are none.
#[test]
fn a_process_without_python_is_named() -> Result<()> {
    let kit = Kit::new()?;
    let mut program = Command::new(kit.program("long_names")?);
    program.arg("7");
    let mut target = kit.start_command(program, "model.log", &[])?;
    target.expect("ready")?;
    let attacher = Attacher::midair(target.target.pid(), &WORDS)?;
    target.send("work 3")?;
    target.expect("work")?;
    let traced = attacher.detach()?;
    let said = traced.exit.stderr.join("\n");
    let why = "no stacks are taken (--stacks): the process has no Python";
    assert!(said.contains(why), "{}", traced.exit);
    assert_eq!(std::fs::read_to_string(traced.file("results.folded"))?, "");
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}
