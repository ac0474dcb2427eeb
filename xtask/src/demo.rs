//! The demonstration: attaches for two seconds to a HIP program that already runs. It uses the
//! stand-in runtimes (`midair demo`), which need only cargo and gcc, or AMD's own runtimes in the
//! lab.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{lab, stage};
use midair_dev_kit::run::{At, Failure, Outcome, failed, run, target_directory};

/// The line that the program prints once it works on the GPU.
const WORKS: &str = "iter 2";
/// How long that may take. Real runtimes load for some seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts the program (the arguments from the third on) with its output in the file `$0`, writes
/// its pid into `$1`, and becomes the attacher when it is asked to. So the program is a child of the
/// attacher. A kernel with `kernel.yama.ptrace_scope` 1 (Ubuntu's default) then allows the attach
/// without root and without any preparation in the program.
const SCRIPT: &str = r#"out=$0 id=$1; shift
"$@" >"$out" </dev/null & echo $! >"$id"
read go || exit 1
exec "$MIDAIR" attach $! --duration 2s --output-format rocpd,pftrace,csv --output-directory "$RESULTS""#;

/// The program and the process that will attach. Both end when this is dropped.
struct Show {
    child: Child,
    id: PathBuf,
}

impl Drop for Show {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The program is not our child but the attacher's, and does not end with the attacher.
        if let Ok(id) = std::fs::read_to_string(&self.id) {
            let mut kill = Command::new("sh");
            kill.args(["-c", "kill \"$0\"", id.trim()]);
            let _ = kill.stderr(Stdio::null()).status();
        }
    }
}

/// Runs `cargo xtask demo`: builds midair and runs its own demonstration.
pub fn demo_task(words: &[String]) -> Outcome<()> {
    if !matches!(words, [] | [_]) || words.iter().any(|word| word != "--keep") {
        return failed("takes --keep (leave the program running), or nothing");
    }
    println!(
        "building midair's HIP side and the stand-in runtimes; the first time this takes about four \
         minutes on two processors (cargo xtask stage builds the rest, too)"
    );
    let prefix = stage::stage_demo(stage::Build::Debug)?;
    let mut demo = Command::new(stage::staged_program(&prefix, "midair")?);
    let results = target_directory().join("demo");
    run(demo.arg("demo").args(words).arg("-d").arg(results))
}

/// Runs `cargo xtask lab` without an argument: the same on AMD's own runtimes.
pub fn on_amds_runtimes() -> Outcome<()> {
    println!("building midair; the first time this takes a few minutes");
    let prefix = stage::stage(stage::Build::Debug)?;
    let lab = lab::ready()?;
    println!(
        "starting a HIP program on AMD's own runtimes and a modelled GPU; nothing of midair is in it"
    );
    // Debian's runtimes are used exactly as they come, without a registration library or any
    // preparation.
    let mut command = lab::command(&lab)?;
    command
        .env("REGISTER", "0")
        .args(["/lab/vadd", "20000", "500"]);
    show(&command, &prefix, "demo-lab")
}

/// Starts the program, attaches to it for two seconds, and ends it.
fn show(command: &Command, prefix: &Path, results: &str) -> Outcome<()> {
    let results = target_directory().join(results);
    std::fs::create_dir_all(&results).at("making", &results)?;
    let (out, id) = (results.join("program.out"), results.join("program.pid"));
    for old in [&out, &id] {
        // Removes the file of an earlier run, which need not exist.
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
    let mut show = Show { child, id };
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
        status if status.success() => Ok(()),
        status => failed(format!("midair attach: {status}")),
    }
}

/// Waits until the program works. It writes its output into a file, because it is not our child and
/// a pipe would have to be read all the time.
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
