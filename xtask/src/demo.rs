//! The demonstration: a HIP program that runs already, attached for two seconds. On the stand-in runtimes, which need only cargo and
//! gcc; or on AMD's own, in the lab.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use midair_stand_in::StandIn;

use crate::run::{Failure, Outcome, cargo, failed, run, target_directory};
use crate::{lab, stage};

/// The program's own words once it works on the GPU.
const WORKS: &str = "iter 2";
/// How long it may take to come so far: real runtimes load for some seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// The running program; it ends with this.
struct Workload(Child);

impl Drop for Workload {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `cargo xtask demo`.
pub fn demo_task(words: &[String]) -> Outcome<()> {
    if !words.is_empty() {
        return failed("takes no words");
    }
    let prefix = stage::stage(false)?;
    let stand_in = stand_in()?;
    let program = stand_in
        .workload()
        .map_err(|error| Failure(format!("the workload could not be made: {error}")))?;
    println!("starting a HIP program on two modelled GPUs; nothing of midair is in it");
    let mut command = Command::new(program);
    let (variable, topology) = stand_in.environment();
    command
        .args(["0", "500"])
        .env(variable, topology)
        // Kernels by the width of their grids, in ns: a matrix product takes longer than an activation.
        .env(
            "MODEL_LONG_KERNEL",
            "16384:410000,2048:38000,1024:14000,3072:61000,1536:22000",
        )
        .env("MODEL_JITTER", "12");
    show(command, &prefix, "demo")
}

/// Builds the stand-in runtimes and lays them out below the target directory.
pub fn stand_in() -> Outcome<StandIn> {
    let mut build = cargo(&["build", "--quiet"]);
    run(build.args(["--package", "midair-sim-hsa", "--package", "midair-sim-hip"]))?;
    let target = target_directory();
    StandIn::lay_out(&target.join("debug"), &target.join("stand-in"))
        .map_err(|error| Failure(format!("the stand-in runtimes: {error}")))
}

/// `cargo xtask lab` without a word: the same on AMD's own runtimes.
pub fn on_amds_runtimes() -> Outcome<()> {
    let prefix = stage::stage(false)?;
    let lab = lab::ready()?;
    println!(
        "starting a HIP program on AMD's own runtimes and a modelled GPU; nothing of midair is in it"
    );
    // Debian's runtimes exactly as they come: no registration library, no preparation.
    let mut command = lab::command(&lab);
    command
        .env("REGISTER", "0")
        .args(["/lab/vadd", "1000000", "500"]);
    show(command, &prefix, "demo-lab")
}

/// Starts the program, attaches to it for two seconds, and ends it.
fn show(mut command: Command, prefix: &std::path::Path, results: &str) -> Outcome<()> {
    let midair = stage::staged_program(prefix, "midair")?;
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut workload =
        Workload(child.map_err(|error| Failure(format!("the program did not start: {error}")))?);
    wait_until_it_works(&mut workload)?;
    let pid = workload.0.id().to_string();
    println!("attaching to process {pid} for two seconds");
    let results = target_directory().join(results);
    run(Command::new(midair)
        .args(["attach", &pid, "--duration", "2s", "--output-directory"])
        .arg(&results))
}

fn wait_until_it_works(workload: &mut Workload) -> Outcome<()> {
    let Some(stdout) = workload.0.stdout.take() else {
        return failed("the program has no output");
    };
    let (works, said) = channel();
    // Reads on to the end: a full pipe would stop the program.
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if line.starts_with(WORKS) {
                let _ = works.send(());
            }
        }
    });
    said.recv_timeout(PATIENCE)
        .or_else(|_| failed("the program did not come to work on the GPU"))
}
