//! The demonstration: a HIP program that runs already, attached for two seconds. On the stand-in
//! runtimes, which need only cargo and gcc; or on AMD's own, in the lab.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use midair_stand_in::StandIn;

use crate::run::{At, Failure, Outcome, cargo, failed, run, target_directory};
use crate::{lab, stage};

/// What the program prints once it works on the GPU.
const WORKS: &str = "iter 2";
/// How long it may take to come so far: real runtimes load for some seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts the program (the arguments from the third on) with its output in the file `$0`, writes its
/// process id into `$1`, and becomes the attaching process when it is told to. The program is then
/// a child of the attaching process: that is whom a kernel with `kernel.yama.ptrace_scope` 1
/// (Ubuntu's default) allows to attach without root, with no preparation in the program.
const SCRIPT: &str = r#"out=$0 id=$1; shift
"$@" >"$out" </dev/null & echo $! >"$id"
read go || exit 1
exec "$MIDAIR" attach $! --duration 2s --output-format rocpd,pftrace,csv --output-directory "$RESULTS""#;

/// The program, and the process that will attach; both end with this.
struct Show {
    child: Child,
    id: PathBuf,
    /// Leave the program running.
    keep: bool,
}

impl Drop for Show {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if self.keep {
            return;
        }
        // Not our child: it is the attaching process's, and does not end with that.
        if let Ok(id) = std::fs::read_to_string(&self.id) {
            let mut kill = Command::new("sh");
            kill.args(["-c", "kill \"$0\"", id.trim()]);
            let _ = kill.stderr(Stdio::null()).status();
        }
    }
}

/// `cargo xtask demo`.
pub fn demo_task(words: &[String]) -> Outcome<()> {
    let keep = match words {
        [] => false,
        [word] if word == "--keep" => true,
        _ => return failed("takes --keep (leave the program running), or nothing"),
    };
    println!("building midair and the stand-in runtimes; the first time this takes a few minutes");
    let prefix = stage::stage(stage::Build::Debug)?;
    let stand_in = stand_in()?;
    let program = stand_in
        .workload()
        .map_err(|error| Failure(format!("the workload could not be made: {error}")))?;
    println!("starting a HIP program on two modelled GPUs; nothing of midair is in it");
    let mut command = Command::new(program);
    let (variable, topology) = stand_in.environment();
    command
        // A minute's work, should nobody end it.
        .args(["20000", "500"])
        .env(variable, topology)
        // Kernels by the width of their grids, in ns: a matrix product takes longer than an activation.
        .env(
            "MODEL_LONG_KERNEL",
            "16384:410000,2048:38000,1024:14000,3072:61000,1536:22000",
        )
        .env("MODEL_JITTER", "12");
    show(&command, &prefix, "demo", keep)
}

/// Builds the stand-in runtimes and lays them out below the target directory.
pub fn stand_in() -> Outcome<StandIn> {
    let mut build = cargo(&["build"]);
    run(build.args(["--package", "midair-sim-hsa", "--package", "midair-sim-hip"]))?;
    let target = target_directory();
    StandIn::lay_out(&target.join("debug"), &target.join("stand-in"))
        .map_err(|error| Failure(format!("the stand-in runtimes: {error}")))
}

/// `cargo xtask lab` without a word: the same on AMD's own runtimes.
pub fn on_amds_runtimes() -> Outcome<()> {
    println!("building midair; the first time this takes a few minutes");
    let prefix = stage::stage(stage::Build::Debug)?;
    let lab = lab::ready()?;
    println!(
        "starting a HIP program on AMD's own runtimes and a modelled GPU; nothing of midair is in it"
    );
    // Debian's runtimes exactly as they come: no registration library, no preparation.
    let mut command = lab::command(&lab);
    command
        .env("REGISTER", "0")
        .args(["/lab/vadd", "20000", "500"]);
    show(&command, &prefix, "demo-lab", false)
}

/// Starts the program, attaches to it for two seconds, and ends it, or leaves it running.
fn show(command: &Command, prefix: &Path, results: &str, keep: bool) -> Outcome<()> {
    let results = target_directory().join(results);
    std::fs::create_dir_all(&results).at("making", &results)?;
    let (out, id) = (results.join("program.out"), results.join("program.pid"));
    for old in [&out, &id] {
        // From an earlier run, if it is there at all.
        let _ = std::fs::remove_file(old);
    }
    let mut shell = Command::new("sh");
    shell
        .args(["-c", SCRIPT])
        .args([&out, &id])
        .arg(command.get_program())
        .args(command.get_args())
        .envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .env("MIDAIR", stage::staged_program(prefix, "midair")?)
        .env("RESULTS", &results)
        .stdin(Stdio::piped());
    let child = shell.spawn();
    let child = child.map_err(|error| Failure(format!("the program did not start: {error}")))?;
    let mut show = Show {
        child,
        id,
        keep: false,
    };
    wait_until_it_works(&mut show, &out)?;
    let pid = std::fs::read_to_string(&show.id).at("reading", &show.id)?;
    println!("attaching to process {} for two seconds", pid.trim());
    let Some(mut stdin) = show.child.stdin.take() else {
        return failed("no pipe to the attaching process");
    };
    let told = stdin.write_all(b"go\n");
    told.map_err(|error| Failure(format!("the attaching process is gone: {error}")))?;
    let ended = show.child.wait();
    match ended.map_err(|error| Failure(error.to_string()))? {
        status if status.success() => {
            show.keep = keep;
            try_next(prefix, &results, keep.then(|| pid.trim()))
        }
        status => failed(format!("midair attach: {status}")),
    }
}

/// Three commands for those who have seen the first.
fn try_next(prefix: &Path, results: &Path, kept: Option<&str>) -> Outcome<()> {
    let midair = stage::staged_program(prefix, "midair")?;
    let (midair, results) = (midair.display(), results.display());
    println!("\nthree commands to try next:");
    match kept {
        Some(pid) => {
            // It was a child of the attach that has ended, so the kernel may want root now.
            println!("  {midair} doctor {pid}");
            println!("  {midair} attach {pid} --duration 2s -d {results}");
            println!("  kill {pid}");
        }
        None => {
            println!(
                "  cargo xtask demo --keep    # leaves the program running, to attach to it again"
            );
            println!("  {midair} ps");
            println!("  {midair} attach --help");
        }
    }
    Ok(())
}

/// The program says what it does in a file, since it is not our child and a pipe would have to be read all the time.
fn wait_until_it_works(show: &mut Show, out: &Path) -> Outcome<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let said = std::fs::read_to_string(out).unwrap_or_default();
        if said.lines().any(|line| line.starts_with(WORKS)) {
            return Ok(());
        }
        let gone = show.child.try_wait();
        if Instant::now() > deadline || gone.is_ok_and(|status| status.is_some()) {
            return failed(format!(
                "the program did not come to work on the GPU; it said: {said}"
            ));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
