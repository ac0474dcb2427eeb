//! The example in C, `examples/record-kernels`, built against the staged library and header, on a
//! process on the stand-in runtimes.

use midair_tests::stage::{stage, workload};
use midair_tests::target::{Exit, PATIENCE, Target, run};
use midair_tests::{Result, workspace};
use std::process::Command;

#[test]
fn a_c_program_records_kernels_and_reports_failures() -> Result<()> {
    let stage = stage()?;
    let folder = tempfile::tempdir()?;
    let program = folder.path().join("record-kernels");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(workspace().join("examples/record-kernels/main.c"))
        .arg(format!("-I{}", stage.join("include").display()))
        .arg(format!("-L{}", stage.join("lib").display()))
        .arg("-lmidair")
        .arg(format!("-Wl,-rpath,{}", stage.join("lib").display()));
    run(cc, PATIENCE)?.success()?;
    let record = |pid: &str| -> Result<Exit> {
        let mut record = Command::new(&program);
        // The library finds the installation that it belongs to.
        record.args([pid, "0.3"]).env_remove("MIDAIR");
        run(record, PATIENCE)
    };

    let mut target = Target::spawn(workload(&[])?)?;
    target.expect("iter 3")?;
    let exit = record(&target.pid().to_string())?.success()?;
    let line = exit.stdout.join("\n");
    let (kernels, ns) = line.split_once(" kernels, ").ok_or("no line of results")?;
    assert!(kernels.parse::<u64>()? > 0, "{exit}");
    assert!(ns.trim_end_matches(" ns").parse::<u64>()? > 0, "{exit}");
    target.expect("iter")?;

    // Greater than any pid.
    let exit = record("4194304")?;
    assert_eq!(exit.status.code(), Some(10), "{exit}");
    let said = exit.stderr.join("\n");
    assert!(said.contains("there is no process 4194304"), "{exit}");
    assert!(said.contains("hint: midair ps lists"), "{exit}");
    Ok(())
}
