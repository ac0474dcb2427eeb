//! `rocpd` on what an attach wrote: its csv equals the attach's, and the Python package runs it.

use midair_tests::Result;
use midair_tests::attacher::Attacher;
use midair_tests::stage::{command, plain_environment, stage};
use midair_tests::stand_in::Kit;
use midair_tests::target::{PATIENCE, run};
use std::process::Command;

#[test]
fn a_conversion_is_what_the_attach_wrote() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = kit.start("two_gpus", "model.log", &[])?;
    target.expect("ready")?;
    let words = ["--sys-trace", "--output-format", "rocpd", "csv"];
    let attacher = Attacher::start(target.pid(), &words)?;
    target.send("work 4")?;
    target.expect("work")?;
    let traced = attacher.detach()?.code(0)?;
    target.send("quit")?;
    target.expect("done")?;
    let database = traced.file("results.db");
    let dir = tempfile::tempdir()?;
    let mut convert = command("rocpd")?;
    convert.args(["convert", "-f", "csv", "-i"]).arg(&database);
    convert.arg("-d").arg(dir.path());
    let exit = run(convert, PATIENCE)?.success()?;
    let mut files = 0;
    for file in exit.stdout.iter().filter(|line| line.ends_with(".csv")) {
        let name = file.rsplit("/out_").next().unwrap_or_default();
        let ours = std::fs::read_to_string(file)?;
        assert_eq!(ours, std::fs::read_to_string(traced.file(name))?, "{name}");
        files += 1;
    }
    assert!(files > 4, "{exit}");
    // The package of the installation runs the installation's program.
    let mut python = Command::new("python3");
    python.env_clear().envs(plain_environment());
    python.env("PYTHONPATH", stage()?.join("lib/python3/site-packages"));
    python
        .args(["-B", "-m", "rocpd", "query", "-i"])
        .arg(&database);
    python.args(["--query", "SELECT COUNT(*) AS n FROM kernels"]);
    let exit = run(python, PATIENCE)?.success()?;
    assert_eq!(exit.stdout.len(), 2, "{exit}");
    assert!(exit.stdout[1].parse::<u64>()? > 0, "{exit}");
    Ok(())
}
