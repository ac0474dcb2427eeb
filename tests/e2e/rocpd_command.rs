//! `rocpd` and `midair convert` on what an attach wrote: their files have its records, and the Python package runs `rocpd`.

use midair_tests::Result;
use midair_tests::attacher::Attacher;
use midair_tests::stage::{command, plain_environment, stage};
use midair_tests::stand_in::Kit;
use midair_tests::table::{Csv, json};
use midair_tests::target::{PATIENCE, run};
use std::process::Command;

#[test]
fn a_conversion_is_what_the_attach_wrote() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = kit.start("two_gpus", "model.log", &[])?;
    target.expect("ready")?;
    let words = [
        "--sys-trace",
        "-f",
        "rocpd",
        "csv",
        "pftrace",
        "json",
        "kineto",
    ];
    let attacher = Attacher::start(target.pid(), &words)?;
    target.send("work 4")?;
    target.expect("work")?;
    let traced = attacher.detach()?.code(0)?;
    target.send("quit")?;
    target.expect("done")?;
    let database = traced.file("results.db");
    let dir = tempfile::tempdir()?;
    let mut convert = command("midair")?;
    convert.args(["convert", "-f", "csv", "pftrace", "kineto", "-i"]);
    convert.arg(&database).arg("-d").arg(dir.path());
    let exit = run(convert, PATIENCE)?.success()?;
    let mut files = 0;
    for file in exit.stdout.iter().filter(|line| line.contains("/out_")) {
        let name = file.rsplit("/out_").next().unwrap_or_default();
        let ours = std::fs::read(file)?;
        assert!(ours == std::fs::read(traced.file(name))?, "{name}");
        files += 1;
    }
    assert!(files > 6, "{exit}");
    // AMD's command has one table for all calls, with the records that json has.
    let mut convert = command("rocpd")?;
    convert.args(["convert", "-f", "csv", "-i"]).arg(&database);
    convert.arg("-d").arg(dir.path());
    run(convert, PATIENCE)?.success()?;
    let whole = json(&traced.file("results.json"))?;
    let records = &whole["rocprofiler-sdk-tool"][0]["buffer_records"];
    let counted = |name: &str| records[name].as_array().map_or(0, Vec::len);
    for (name, lists) in [
        ("regions", &["hip_api", "hsa_api"][..]),
        ("kernel", &["kernel_dispatch"]),
        ("memory_copy", &["memory_copy"]),
    ] {
        let table = Csv::read(&dir.path().join(format!("out_{name}_trace.csv")))?;
        let wanted: usize = lists.iter().map(|list| counted(list)).sum();
        assert_eq!(table.rows.len(), wanted, "{name}");
    }
    // A directory with an index stands for the databases in it.
    let package = dir.path().join("run");
    let mut gather = command("rocpd")?;
    gather.args(["package", "--consolidate", "--copy", "-i"]);
    gather.arg(&database).arg("-d").arg(&package);
    run(gather, PATIENCE)?.success()?;
    let unpacked = database;
    let database = dir.path().join("run.rpdb");
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
    // AMD's names: a database that is open, and files of it.
    let kernels = exit.stdout[1].clone();
    let mut python = Command::new("python3");
    python.env_clear().envs(plain_environment());
    python.env("PYTHONPATH", stage()?.join("lib/python3/site-packages"));
    python
        .current_dir(dir.path())
        .args(["-B", "-c", AMDS_NAMES]);
    python.arg(&unpacked);
    let exit = run(python, PATIENCE)?.success()?;
    assert_eq!(exit.stdout.first(), Some(&kernels), "{exit}");
    assert_eq!(exit.stdout.last().map(String::as_str), Some("refused"));
    assert!(
        dir.path().join("py/out_results.pftrace").is_file(),
        "{exit}"
    );
    Ok(())
}

/// Uses the package as scripts use AMD's.
const AMDS_NAMES: &str = "
import sys, rocpd
from rocpd.importer import RocpdImportData
with RocpdImportData([sys.argv[1]]) as data:
    print(rocpd.execute(data, 'SELECT COUNT(*) FROM kernels').fetchone()[0], flush=True)
    assert rocpd.write_perfetto(data, output_path='py') and rocpd.write_csv(rocpd.connect(sys.argv[1]), output_path='py')
try:
    rocpd.write_otf2(rocpd.connect(sys.argv[1]), nothing=1)
except KeyError:
    print('refused')
";
