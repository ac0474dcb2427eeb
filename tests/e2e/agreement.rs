//! The files of one session hold the same records, as AMD's validators of its attach tests ask, and a
//! further attach to a process leaves the files of the attach before it.

use crate::profiler::Counter;
use midair_tests::attacher::Attacher;
use midair_tests::lab::{GpuModel, Lab, LabTarget};
use midair_tests::stage::{command, plain_environment};
use midair_tests::stand_in::Kit;
use midair_tests::target::{PATIENCE, run};
use midair_tests::{Result, python};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const FORMATS: [&str; 6] = ["--output-format", "csv", "json", "rocpd", "pftrace", "otf2"];

/// Holds the files whose names start so to each other. Returns how many records they have.
fn agree(prefix: &Path) -> Result<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/agreement.py");
    let mut command = Command::new(python()?);
    command.env_clear().envs(plain_environment());
    command.arg("-B").arg(script).arg(prefix).arg("vadd");
    let exit = run(command, PATIENCE)?.success()?;
    Ok(serde_json::from_str(&exit.stdout.join("\n"))?)
}

/// The fewest dispatches of a session. With counters in bursts, the first dispatches may have none.
const DISPATCHES: usize = 400;

fn work(target: &mut LabTarget) -> Result<()> {
    let before = target.model_log()?.dispatches().count();
    for words in ["start", "stop"] {
        target.send(words)?;
        target.expect(words)?;
        if words == "start" {
            Counter::of(target).wait_until(before + DISPATCHES)?;
        }
    }
    Ok(())
}

#[test]
fn the_files_of_a_session_have_the_same_records() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("streams")?, lab.kernels()?);
    let command = lab.run(&program).arg(&kernels).arg(2);
    let mut target = command.on(GpuModel::Doorbell).spawn()?;
    target.expect("ready")?;
    let calls = ["hip_api", "hsa_api", "kernel_dispatch", "memory_copy"];
    let counters = ["kernel_dispatch", "counter_values"];
    for (words, there) in [
        (&["--sys-trace", "--group-by-queue"][..], &calls[..]),
        (
            &[
                "--kernel-trace",
                "--pmc",
                "SQ_WAVES",
                "--max-overhead",
                "100",
            ],
            &counters,
        ),
    ] {
        let attacher = Attacher::start(target.pid(), &[words, &FORMATS].concat())?;
        work(&mut target)?;
        let traced = attacher.detach()?.code(0)?;
        let counts = agree(&traced.dir().join("out"))?;
        for name in there {
            assert!(counts[name].as_u64() > Some(0), "{name}: {counts}");
        }
    }
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

/// AMD's tool names the files of a further attach to a process by its number, since its change 6859.
#[test]
fn a_further_attach_leaves_earlier_files() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = kit.start("two_gpus", "model.log", &[])?;
    target.expect("ready")?;
    let (dir, pid) = (tempfile::tempdir()?, target.pid());
    let attach = || -> Result<BTreeSet<String>> {
        let mut command = command("rocprofv3")?;
        command.args(["--attach", &pid.to_string(), "--kernel-trace"]);
        command.args(["--attach-duration-msec", "1", "--attach-sync-output"]);
        command.args(["-f", "json", "-d"]).arg(dir.path());
        command.args(["-o", "%pid%"]);
        run(command, PATIENCE)?.success()?;
        let names = std::fs::read_dir(dir.path())?;
        names
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    };
    let names = |numbers: &[&str]| -> BTreeSet<String> {
        let name = |number: &&str| format!("{pid}{number}_results.json");
        numbers.iter().map(name).collect()
    };
    assert_eq!(attach()?, names(&[""]));
    assert_eq!(attach()?, names(&["", "_1"]));
    assert_eq!(attach()?, names(&["", "_1", "_2"]));
    // A script that takes the files away finds the next ones under the same name.
    for name in names(&["", "_1", "_2"]) {
        std::fs::remove_file(dir.path().join(name))?;
    }
    assert_eq!(attach()?, names(&[""]));
    target.send("quit")?;
    target.expect("done")?;
    Ok(())
}
