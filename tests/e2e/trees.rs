//! Many processes at once, on the stand-in runtimes: ranks below a launcher, workers that are
//! forked without an exec, children that start while their parent is attached. What each process
//! says that it launched is the truth. Every dispatch must be in the results under the pid of its
//! own process, and under no other. Only the test with a pid namespace needs root.

use midair_tests::compile::host_program;
use midair_tests::lab::LabTarget;
use midair_tests::snapshot::Snapshot;
use midair_tests::stage::{command, plain_environment};
use midair_tests::stand_in::Kit;
use midair_tests::table::{Csv, json};
use midair_tests::target::{Exit, PATIENCE, Target, run, until};
use midair_tests::{Result, is_root_for};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The number of kernels by process.
type Counts = BTreeMap<u64, u64>;

/// Starts `sh`, below it a launcher, and below that this many ranks.
fn ranks(kit: &Kit, count: usize) -> Result<(LabTarget, Vec<i32>)> {
    let program = kit.program("ranks")?;
    let launcher = host_program("launcher")?;
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$0\" \"$1\" \"$2\"; echo over"]);
    shell.arg(launcher).arg(count.to_string()).arg(program);
    let mut target = kit.start_command(shell, "model.log", &[])?;
    let pids = ready(&mut target, count)?;
    Ok((target, pids))
}

/// Starts a pool that forks this many workers.
pub(super) fn pool(kit: &Kit, count: usize) -> Result<(LabTarget, Vec<i32>)> {
    let program = kit.program("ranks")?;
    let mut command = Command::new(program);
    command.args(["pool", &count.to_string()]);
    let mut target = kit.start_command(command, "model.log", &[])?;
    target.expect("pool")?;
    // Workers may report that they are ready in any order, also before the pool does.
    let mut pids = Vec::new();
    until("all workers", || {
        pids = children(target.target.pid())?;
        Ok(pids.len() == count)
    })?;
    Ok((target, pids))
}

fn children(pid: i32) -> Result<Vec<i32>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    Ok(text
        .split_ascii_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect())
}

/// Waits until this many ranks are ready, and returns their pids.
fn ready(target: &mut LabTarget, count: usize) -> Result<Vec<i32>> {
    let mut pids = Vec::new();
    for _ in 0..count {
        let line = target.expect("ready")?;
        pids.push(line.rsplit(' ').next().ok_or("a pid")?.parse()?);
    }
    Ok(pids)
}

/// Sends a command, waits until this many processes have answered, and returns what each has
/// launched so far.
pub(super) fn work(target: &mut LabTarget, command: &str, count: usize) -> Result<Counts> {
    target.send(command)?;
    let mut counts = Counts::new();
    for _ in 0..count {
        let line = target.expect("rank")?;
        let words: Vec<&str> = line.split(' ').collect();
        // rank I pid P kernels N
        let number = |at: usize| words.get(at).and_then(|word| word.parse().ok());
        let (Some(pid), Some(kernels)) = (number(3), number(5)) else {
            return Err(format!("not an answer: {line}").into());
        };
        counts.insert(pid, kernels);
    }
    Ok(counts)
}

/// Returns what was launched between two answers.
fn since(before: &Counts, after: &Counts) -> Counts {
    let of = |(pid, count): (&u64, &u64)| (*pid, count - before.get(pid).unwrap_or(&0));
    after.iter().map(of).collect()
}

/// A command line of the stage that has attached.
struct Attach {
    process: Target,
    dir: tempfile::TempDir,
}

impl Attach {
    fn start(program: &str, words: &[&str], attached: &str) -> Result<Attach> {
        let mut command = command(program)?;
        command.args(words);
        let mut attach = Attach::spawn(command)?;
        match program {
            "rocprofv3" => attach.process.expect(attached)?,
            _ => attach.process.expect_error(attached)?,
        };
        Ok(attach)
    }

    /// Starts a command line that gets a directory for its files. It has not attached yet.
    fn spawn(mut command: Command) -> Result<Attach> {
        let dir = tempfile::tempdir()?;
        command.arg("-d").arg(dir.path());
        let process = Target::spawn(command)?;
        Ok(Attach { process, dir })
    }

    /// Starts `rocprof-attach`, which gets its settings from the environment.
    fn by_library(pid: i32, words: &[&str]) -> Result<Attach> {
        let dir = tempfile::tempdir()?;
        let mut command = command("rocprof-attach")?;
        command.args(["-p", &pid.to_string()]).args(words);
        command
            .env("ROCPROF_KERNEL_TRACE", "1")
            .env("ROCPROF_OUTPUT_FORMAT", "csv")
            .env("ROCPROF_OUTPUT_FILE_NAME", "%pid%")
            .env("ROCPROF_OUTPUT_PATH", dir.path());
        let mut process = Target::spawn(command)?;
        process.expect("Press Enter to detach...")?;
        Ok(Attach { process, dir })
    }

    fn tree(pid: i32, words: &[&str]) -> Result<Attach> {
        let pid = pid.to_string();
        let words = [&["attach", "--tree", &pid, "-o", "%pid%"], words].concat();
        Attach::start("midair", &words, "attached to process")
    }

    /// Waits until this process is attached.
    fn has(&mut self, pid: i32) -> Result<()> {
        self.process
            .expect_error(&format!("attached to process {pid} "))
            .map(drop)
    }

    fn detach(mut self) -> Result<(Exit, tempfile::TempDir)> {
        self.process.send("")?;
        Ok((self.process.wait(PATIENCE)?, self.dir))
    }
}

fn with_code(exit: &Exit, code: i32) -> Result<()> {
    match exit.status.code() == Some(code) {
        true => Ok(()),
        false => Err(format!("expected code {code}: {exit}").into()),
    }
}

/// Returns what Python's SQLite answers to a query.
fn ask(file: &Path, query: &str) -> Result<Vec<Value>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../crates/formats/output/tests/files/rocpd_reader.py");
    let mut python = Command::new("python3");
    python.arg("-B").arg(script).arg(file).arg(query);
    let exit = run(python, PATIENCE)?.success()?;
    let answer: Value = serde_json::from_str(&exit.stdout.join("\n"))?;
    let rows = answer["answers"][0].as_array();
    rows.cloned()
        .ok_or_else(|| format!("no answer: {answer}").into())
}

/// Counts the dispatches by process in a rocpd file.
fn in_rocpd(file: &Path) -> Result<Counts> {
    let rows = ask(
        file,
        "SELECT pid, COUNT(*) AS n FROM kernels GROUP BY pid ORDER BY pid",
    )?;
    let pair = |row: &Value| Some((row["pid"].as_u64()?, row["n"].as_u64()?));
    Ok(rows.iter().filter_map(pair).collect())
}

/// Counts the dispatches by process in a csv file with the rows of many processes.
fn in_csv(file: &Path) -> Result<Counts> {
    let mut counts = Counts::new();
    for row in Csv::read(file)?.rows {
        *counts.entry(Csv::number(&row, "Process_Id")?).or_default() += 1;
    }
    Ok(counts)
}

/// Counts the dispatches in the csv files of each process.
fn in_files(dir: &Path) -> Result<Counts> {
    let mut counts = Counts::new();
    for entry in std::fs::read_dir(dir)? {
        let path: PathBuf = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if let Some(stem) = name.strip_suffix("_kernel_trace.csv") {
            let pid = stem.split('_').next().unwrap_or_default().parse()?;
            *counts.entry(pid).or_default() += Csv::read(&path)?.rows.len() as u64;
        }
    }
    Ok(counts)
}

/// Counts the calls of `hipLaunchKernel` in the csv files of each process.
fn launches(dir: &Path) -> Result<Counts> {
    let mut counts = Counts::new();
    for entry in std::fs::read_dir(dir)? {
        let path: PathBuf = entry?.path();
        if path.to_string_lossy().ends_with("_hip_api_trace.csv") {
            for row in Csv::read(&path)?.rows {
                if row["Function"] == "hipLaunchKernel" {
                    *counts.entry(Csv::number(&row, "Process_Id")?).or_default() += 1;
                }
            }
        }
    }
    Ok(counts)
}

pub(super) fn quit(mut target: LabTarget) -> Result<()> {
    target.send("quit")?;
    assert_eq!(target.expect("done")?, "done 0");
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

/// Eight ranks run below a launcher below a shell, and one of them is stopped. The others are
/// attached in parallel, and a message names the stopped one. One result in each format has what
/// each of the seven launched.
#[test]
fn one_result_of_all_ranks() -> Result<()> {
    let kit = Kit::new()?;
    let (mut target, pids) = ranks(&kit, 8)?;
    let stopped = pids[3];
    // SAFETY: kill takes numbers only. The pid is still the rank's, since the rank is a child of
    // the launcher, which has not reaped it.
    let signal = |signal| unsafe { libc::kill(stopped, signal) };
    assert_eq!(signal(libc::SIGSTOP), 0);
    until("the stop", || {
        let stat = std::fs::read_to_string(format!("/proc/{stopped}/stat"))?;
        Ok(stat.contains(") T "))
    })?;
    let formats = ["-f", "rocpd,csv,json,pftrace", "--merge"];
    let mut attach = Attach::tree(target.target.pid(), &formats)?;
    attach.process.expect_error(&format!(
        "midair: error: cannot attach to process {stopped} (ranks)"
    ))?;
    let launched = work(&mut target, "work 5", 7)?;
    assert_eq!(launched.len(), 7);
    let root = target.target.pid();
    let (exit, dir) = attach.detach()?;
    with_code(&exit, 35)?;
    let path = |name: &str| dir.path().join(format!("{root}_{name}"));
    assert_eq!(in_rocpd(&path("results.db"))?, launched, "rocpd {exit}");
    assert_eq!(in_csv(&path("kernel_trace.csv"))?, launched, "csv");
    let whole = json(&path("results.json"))?;
    let mut in_json = Counts::new();
    for tool in whole["rocprofiler-sdk-tool"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let kernels = tool["buffer_records"]["kernel_dispatch"].as_array();
        in_json.insert(
            tool["metadata"]["pid"].as_u64().unwrap_or(0),
            kernels.map_or(0, Vec::len) as u64,
        );
    }
    assert_eq!(in_json, launched, "json");
    assert!(path("results.pftrace").metadata()?.len() > 0);
    // There is one table for all processes, with a line for each.
    let of = |pid: &u64| format!("process {pid} (ranks)");
    for pid in launched.keys() {
        let line = exit.stdout.iter().find(|line| line.starts_with(&of(pid)));
        assert!(line.is_some(), "{exit}");
    }
    // The guids keep the sessions apart, and each process is there once.
    let rows = ask(
        &path("results.db"),
        "SELECT COUNT(DISTINCT guid) AS n FROM processes",
    )?;
    assert_eq!(rows[0]["n"], 7);
    assert_eq!(signal(libc::SIGCONT), 0);
    // The rank may have any number, since ranks are ready in any order.
    target.expect("rank")?;
    quit(target)
}

/// During the session, a rank starts and another one becomes a different program by exec. Both are
/// followed, and each has files of its own.
#[test]
fn ranks_that_start_and_exec_are_followed() -> Result<()> {
    let kit = Kit::new()?;
    let (mut target, pids) = ranks(&kit, 1)?;
    let mut attach = Attach::tree(target.target.pid(), &["-f", "csv"])?;
    attach.has(pids[0])?;
    let first = work(&mut target, "work 4", 1)?;
    target.send("spawn")?;
    let born = ready(&mut target, 1)?[0];
    attach.has(born)?;
    let both = work(&mut target, "work 3", 2)?;
    assert_eq!(since(&first, &both).values().copied().min(), Some(6));
    target.send("exec")?;
    ready(&mut target, 2)?;
    // Both processes are attached a second time: each has as many lines as it had sessions.
    until("the second sessions", || {
        let again = |pid| {
            attach
                .process
                .errors()
                .iter()
                .filter(|line| line.starts_with(&format!("attached to process {pid} ")))
                .count()
        };
        Ok(again(pids[0]) == 2 && again(born) == 2)
    })?;
    let anew = work(&mut target, "work 2", 2)?;
    let mut wanted = both;
    for (pid, count) in anew {
        *wanted.entry(pid).or_default() += count;
    }
    let (exit, dir) = attach.detach()?;
    with_code(&exit, 0)?;
    // An exec loses the times of kernels that were not read yet. So calls are counted, since they
    // are written at once.
    assert_eq!(launches(dir.path())?, wanted, "{exit}");
    quit(target)
}

/// Workers were forked before the first HIP call and exec nothing. One more is forked while all are
/// attached. The second attach finds a parked worker thread in each.
#[test]
fn forked_workers_are_attached_with_their_pool() -> Result<()> {
    let kit = Kit::new()?;
    let (mut target, workers) = pool(&kit, 4)?;
    let mut attach = Attach::tree(target.target.pid(), &["-f", "csv"])?;
    for pid in &workers {
        attach.has(*pid)?;
    }
    // The workers open their own runtimes during the session.
    let counts = work(&mut target, "work 6", 4)?;
    target.send("grow")?;
    let grown = until_child(&target, &workers)?;
    attach.has(grown)?;
    let all = work(&mut target, "both 2", 6)?;
    let (exit, dir) = attach.detach()?;
    with_code(&exit, 0)?;
    assert_eq!(all.len(), 6);
    assert!(counts.keys().all(|pid| all.contains_key(pid)));
    assert_eq!(in_files(dir.path())?, all);

    let again = Attach::tree(target.target.pid(), &["-f", "csv"])?;
    let later = work(&mut target, "work 3", 5)?;
    let (exit, dir) = again.detach()?;
    with_code(&exit, 0)?;
    assert_eq!(in_files(dir.path())?, since(&all, &later));
    quit(target)
}

/// Waits for a child that is not among these, and returns its pid.
fn until_child(target: &LabTarget, known: &[i32]) -> Result<i32> {
    let mut new = None;
    until("a further child", || {
        let all = children(target.target.pid())?;
        new = all.into_iter().find(|pid| !known.contains(pid));
        Ok(new.is_some())
    })?;
    new.ok_or_else(|| "a child".into())
}

/// `rocprofv3 --attach` attaches the tree, unless `--attach-children false` says otherwise. The
/// lines of the root appear on standard output, once.
#[test]
fn amds_command_line_attaches_to_the_tree() -> Result<()> {
    let kit = Kit::new()?;
    let (mut target, workers) = pool(&kit, 2)?;
    let pid = target.target.pid().to_string();
    let words = [
        "--attach",
        &pid,
        "--kernel-trace",
        "-f",
        "csv",
        "-o",
        "%pid%",
    ];
    let mut attach = Attach::start("rocprofv3", &words, "Press Enter to detach...")?;
    for pid in &workers {
        attach.has(*pid)?;
    }
    let all = work(&mut target, "both 4", 3)?;
    let (exit, dir) = attach.detach()?;
    with_code(&exit, 0)?;
    assert_eq!(
        in_files(dir.path())?,
        all,
        "{exit} {:?}",
        std::fs::read_dir(dir.path())?.collect::<Vec<_>>()
    );
    let lines = |start: &str| {
        exit.stdout
            .iter()
            .filter(|line| line.starts_with(start))
            .count()
    };
    assert_eq!(lines("Attaching to PID"), 2, "{exit}");
    assert_eq!(lines("Detaching from PID"), 1, "{exit}");

    let words = [&words[..], &["--attach-children", "false"]].concat();
    let alone = Attach::start("rocprofv3", &words, "Press Enter to detach...")?;
    let later = work(&mut target, "both 1", 3)?;
    let (exit, dir) = alone.detach()?;
    with_code(&exit, 0)?;
    let root: u64 = pid.parse()?;
    let wanted: Counts = since(&all, &later)
        .into_iter()
        .filter(|(pid, _)| *pid == root)
        .collect();
    assert_eq!(in_files(dir.path())?, wanted);
    quit(target)
}

/// `rocprof-attach` uses `rocattach_attach_tree` and `rocattach_detach_tree` of the C library,
/// unless `--attach-children false` says otherwise. The tree is what exists at the attach. All of
/// it records by the time that the command says so.
#[test]
fn the_c_library_attaches_to_the_tree() -> Result<()> {
    let kit = Kit::new()?;
    let (mut target, _) = pool(&kit, 3)?;
    let root = target.target.pid();
    let attach = Attach::by_library(root, &[])?;
    let all = work(&mut target, "both 4", 4)?;
    let (exit, dir) = attach.detach()?;
    with_code(&exit, 0)?;
    assert_eq!(all.len(), 4);
    assert_eq!(in_files(dir.path())?, all, "{exit}");

    let alone = Attach::by_library(root, &["--attach-children", "false"])?;
    let later = work(&mut target, "both 1", 4)?;
    let (exit, dir) = alone.detach()?;
    with_code(&exit, 0)?;
    let mut wanted = since(&all, &later);
    wanted.retain(|pid, _| i32::try_from(*pid) == Ok(root));
    assert_eq!(in_files(dir.path())?, wanted, "{exit}");
    quit(target)?;

    // The shell and the launcher have no runtime, and are passed over.
    let (mut target, _) = ranks(&kit, 2)?;
    let attach = Attach::by_library(target.target.pid(), &[])?;
    let all = work(&mut target, "work 2", 2)?;
    let (exit, dir) = attach.detach()?;
    with_code(&exit, 0)?;
    assert_eq!(in_files(dir.path())?, all, "{exit}");
    quit(target)
}

/// Runs a command line in the namespaces of this process.
fn beside(pid: i32, command: &Command) -> Command {
    let mut inside = Command::new("nsenter");
    inside.args(["-t", &pid.to_string(), "-p", "-m"]);
    inside.arg(command.get_program()).args(command.get_args());
    inside.env_clear().envs(plain_environment());
    inside
}

/// `--all` means every process on the machine, including other tests' processes. So it is tried in
/// a namespace where only our processes are seen, as in a container. Both ranks are attached. Their
/// launcher and another process have no runtime, and are left as they are.
#[test]
fn all_gpu_processes_and_no_others() -> Result<()> {
    if !is_root_for("to make a pid namespace")? {
        return Ok(());
    }
    let kit = Kit::new()?;
    let mut unshare = Command::new("unshare");
    unshare.args(["-pf", "--mount-proc", "--kill-child"]);
    unshare.arg(host_program("launcher")?).arg("2");
    unshare.arg(kit.program("ranks")?);
    let mut target = kit.start_command(unshare, "model.log", &[])?;
    let pids = ready(&mut target, 2)?;
    let launcher = target.only_child()?;
    let mut plain = Command::new(host_program("plain_threads")?);
    plain.args(["0", "0"]);
    let mut plain = Target::spawn(beside(launcher, &plain))?;
    plain.expect("ready")?;
    let bystanders = [launcher, plain.only_child()?];
    let look = || -> Result<Vec<Snapshot>> { bystanders.into_iter().map(Snapshot::take).collect() };
    let before = look()?;
    let untouched = || -> Result<()> {
        for (before, now) in before.iter().zip(&look()?) {
            let diff = before.diff(now).without_heap();
            assert!(diff.is_empty(), "{diff}");
        }
        Ok(())
    };

    let mut all = command("midair")?;
    all.args(["attach", "--all", "-o", "%pid%", "-f", "csv"]);
    let mut attach = Attach::spawn(beside(launcher, &all))?;
    for pid in &pids {
        attach.has(*pid)?;
    }
    let counts = work(&mut target, "work 3", 2)?;
    untouched()?;
    let (exit, dir) = attach.detach()?;
    with_code(&exit, 0)?;
    untouched()?;
    assert_eq!(in_files(dir.path())?, counts, "{exit}");
    let attached = |line: &&String| line.starts_with("attached to process ");
    assert_eq!(exit.stderr.iter().filter(attached).count(), 2, "{exit}");
    plain.send("stop")?;
    plain.wait(PATIENCE)?.success()?;
    quit(target)
}

/// Processes are chosen by name. With no such process, or with two ways of naming, the command is
/// refused.
#[test]
fn processes_are_found_by_name() -> Result<()> {
    let kit = Kit::new()?;
    // The program gets a name of its own, so that the ranks of other tests do not match.
    let name = format!("rk{}", std::process::id());
    let program = kit.scratch().join(&name);
    std::fs::copy(kit.program("ranks")?, &program)?;
    let mut launcher = Command::new(host_program("launcher")?);
    launcher.arg("2").arg(&program);
    let mut target = kit.start_command(launcher, "model.log", &[])?;
    ready(&mut target, 2)?;
    let by_name = format!("^{name}$");
    let words = ["attach", "--name", &by_name, "-o", "%pid%", "-f", "csv"];
    let attach = Attach::start("midair", &words, "attached to every process named")?;
    let counts = work(&mut target, "work 2", 2)?;
    let (exit, dir) = attach.detach()?;
    with_code(&exit, 0)?;
    assert_eq!(in_files(dir.path())?, counts);
    for (words, code) in [
        (["--name", "no process is called so, 7c1f"], 10),
        (["--name", "("], 2),
        (["--all", "--tree=1"], 2),
    ] {
        let mut command = command("midair")?;
        command.arg("attach").args(words).args(["--duration", "1s"]);
        with_code(&run(command, PATIENCE)?, code)?;
    }
    quit(target)
}

/// `midair top --tree` without a terminal: a line for each rank, and the one that launches the
/// fewest kernels is marked. A rank launches more the higher its number is.
#[test]
fn top_marks_the_rank_that_falls_behind() -> Result<()> {
    let kit = Kit::new()?;
    let (mut target, pids) = ranks(&kit, 3)?;
    let mut command = command("midair")?;
    command.args(["top", "--tree", &target.target.pid().to_string()]);
    let mut top = Target::spawn(command)?;
    let mut said = String::new();
    until("a straggler", || {
        let counts = work(&mut target, "work 1", 3)?;
        let slowest = counts.iter().min_by_key(|(_, kernels)| **kernels);
        let slowest = slowest.ok_or("no rank")?.0.to_string();
        if !top.is_running()? {
            return Err(format!("top has ended: {:?}", top.errors()).into());
        }
        said = top.lines().join("\n");
        // The last text that is whole starts at the last but one heading.
        let texts: Vec<&str> = said.split("midair top  ").collect();
        let Some(text) = texts.len().checked_sub(2).and_then(|at| texts.get(at)) else {
            return Ok(false);
        };
        let is_of = |line: &&str| pids.iter().any(|pid| line.starts_with(&format!("{pid} ")));
        let lines: Vec<&str> = text.lines().filter(is_of).collect();
        let (late, others): (Vec<&str>, Vec<&str>) =
            lines.iter().partition(|line| line.contains("STRAGGLER"));
        Ok(text.starts_with("3 processes")
            && others.len() == 2
            && late.len() == 1
            && late[0].starts_with(&format!("{slowest} ")))
    })
    .map_err(|error| format!("{error}: {said}"))?;
    assert!(!said.contains('\u{1b}'), "no codes for a terminal: {said}");
    top.signal(libc::SIGINT)?;
    top.wait(PATIENCE)?.success()?;

    // One of them alone, once.
    let mut command = midair_tests::stage::command("midair")?;
    command.args(["top", &pids[0].to_string(), "--once"]);
    let exit = run(command, PATIENCE)?.success()?;
    let first = exit.stdout.first().map(String::as_str).unwrap_or_default();
    assert!(
        first.starts_with(&format!("midair top  ranks ({})", pids[0])),
        "{exit}"
    );
    let texts = exit
        .stdout
        .iter()
        .filter(|line| line.starts_with("midair top"));
    assert_eq!(texts.count(), 1, "{exit}");
    for line in &exit.stdout {
        assert!(
            line.chars().count() <= 100 && !line.contains('\u{1b}'),
            "{exit}"
        );
    }
    drop(target);
    Ok(())
}

/// A tree that is only the default has no processes of another user than the named one.
#[test]
fn a_descendant_of_another_user_is_entered_only_if_that_is_asked_for() -> Result<()> {
    if !is_root_for("to start a program as another user")? {
        return Ok(());
    }
    let kit = Kit::new()?;
    let mut shell = Command::new("sh");
    let line = "setpriv --reuid 1000 --regid 1000 --clear-groups \"$0\"; echo over";
    shell.args(["-c", line]).arg(kit.program("two_gpus")?);
    let mut target = kit.start_command(shell, "none", &[("MODEL_LOG", "/dev/null")])?;
    target.expect("ready")?;
    let (pid, child) = (target.pid().to_string(), target.target.only_child()?);
    let out = tempfile::tempdir()?;
    let attach = |words: &[&str]| -> Result<Exit> {
        let mut attach = command("rocprofv3")?;
        attach.args(["--pid", &pid, "--kernel-trace", "-f", "csv"]);
        attach.args(["--attach-duration-msec", "100", "-d"]);
        attach.arg(out.path()).args(words).current_dir(&out);
        run(attach, PATIENCE)
    };
    let exit = attach(&[])?;
    assert_eq!(exit.status.code(), Some(2), "{exit}");
    let said = format!(
        "rocprofv3: error: process {pid} has descendants that may belong to other users: {child} (two_gpus, user 1000)"
    );
    assert!(exit.stderr.contains(&said), "{exit}");
    assert_eq!(std::fs::read_dir(&out)?.count(), 0);
    let exit = attach(&["--attach-children", "true"])?;
    assert_eq!(exit.status.code(), Some(0), "{exit}");
    target.send("quit")?;
    target.expect("over")?;
    Ok(())
}
