//! The demonstration: a HIP program that runs already, attached for two seconds.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::run::{Failure, Outcome, failed, run, target_directory};
use crate::{lab, stage};

/// The program's own words once it works on the GPU.
const WORKS: &str = "iter 2 ";
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
    let midair = stage::staged_program(&prefix, "midair")?;
    let lab = lab::ready()?;
    println!(
        "starting a HIP program on AMD's own runtimes and a modelled GPU; nothing of midair is in it"
    );
    // Debian's runtimes exactly as they come: no registration library, no preparation.
    let mut command = lab::command(&lab);
    command
        .env("REGISTER", "0")
        .args(["/lab/vadd", "1000000", "500"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut workload =
        Workload(child.map_err(|error| Failure(format!("the program did not start: {error}")))?);
    wait_until_it_works(&mut workload)?;
    let pid = workload.0.id().to_string();
    println!("attaching to process {pid} for two seconds");
    let results = target_directory().join("demo");
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
