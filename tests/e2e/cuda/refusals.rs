//! A CUPTI that is missing, does not fit or is broken, or another profiler that is there already.
//! Each gives one sentence and its own exit code, and leaves the process as it was.

use crate::cuda::kit::{NEWEST, quit, start, stays};
use midair_sim_cuda::Toolkit;
use midair_tests::Result;
use midair_tests::cuda::{CudaTarget, Kit};
use midair_tests::snapshot::Snapshot;
use midair_tests::stage::run_staged;
use midair_tests::target::{Exit, PATIENCE, run};
use std::path::Path;
use std::process::Command;

/// Exit code where no CUPTI fits.
const NO_CUPTI: i32 = 27;
/// Exit code where another profiler is there.
const OTHER_PROFILER: i32 = 28;

fn try_attach(target: &CudaTarget, words: &[&str]) -> Result<Exit> {
    let pid = target.pid().to_string();
    let usual = [
        "attach",
        &pid,
        "--duration",
        "0.1",
        "--output-format",
        "csv",
    ];
    run_staged("midair", &[&usual[..], words].concat(), PATIENCE)
}

/// Checks that an attach is refused with this code and all of these words, in one sentence. The
/// program works on, and only our library and CUPTI stay.
fn refused(mut target: CudaTarget, words: &[&str], code: i32, says: &[&str]) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let dir = dir.path().to_string_lossy().into_owned();
    let words = [words, &["-d", &dir]].concat();
    let before = Snapshot::take(target.pid())?;
    let exit = try_attach(&target, &words)?;
    assert_eq!(exit.status.code(), Some(code), "{exit}");
    let errors: Vec<&String> = exit
        .stderr
        .iter()
        .filter(|line| line.starts_with("midair: error: "))
        .collect();
    assert_eq!(errors.len(), 1, "one sentence: {exit}");
    for word in says {
        assert!(errors[0].contains(word), "{word}: {exit}");
    }
    let now = Snapshot::take(target.pid())?;
    let diff = before.diff(&now).without_heap().without(stays);
    assert!(diff.is_empty(), "{diff}");
    let working = now.maps.iter().any(|map| map.path.contains("midair-spool"));
    assert!(!working, "the spool is gone");
    assert_eq!(std::fs::read_dir(&dir)?.count(), 0, "no files");
    target.ask("work 3")?;
    let log = target.model_log()?;
    let listened = log.of("kernel").any(|line| line.text("correlation") != "0");
    assert!(!listened, "nobody listens to the driver");
    quit(target)
}

/// Returns whether this machine has a CUPTI of its own, which would be found.
fn machine_has_cupti() -> bool {
    let places = [
        "/usr/local/cuda/lib64",
        "/usr/local/cuda/extras/CUPTI/lib64",
        "/opt/cuda/lib64",
    ];
    let has = |place: &&str| Path::new(place).join("libcupti.so.13").exists();
    places.iter().any(has)
}

#[test]
fn no_cupti_on_the_machine() -> Result<()> {
    if machine_has_cupti() {
        return midair_tests::leave_out("this machine has a CUPTI, which is found");
    }
    let kit = Kit::new()?;
    let target = start(&kit, Toolkit::Bare, &[])?;
    refused(target, &[], NO_CUPTI, &["CUPTI"])
}

/// A CUPTI that the user names is found where there is no other.
#[test]
fn a_named_cupti() -> Result<()> {
    let kit = Kit::new()?;
    let target = start(&kit, Toolkit::Bare, &[])?;
    let path = kit.stand_in.cupti(13).display().to_string();
    let dir = kit.scratch().join("named").display().to_string();
    let exit = try_attach(&target, &["--cupti", &path, "-d", &dir])?;
    assert_eq!(exit.status.code(), Some(0), "{exit}");
    quit(target)
}

#[test]
fn a_named_cupti_that_is_broken() -> Result<()> {
    let kit = Kit::new()?;
    let text = kit.scratch().join("libcupti.so.13");
    std::fs::write(&text, "no library\n")?;
    let text = text.display().to_string();
    let missing = kit
        .scratch()
        .join("nowhere/libcupti.so.13")
        .display()
        .to_string();
    let without = kit
        .stand_in
        .cupti_without_finalize(13)?
        .display()
        .to_string();
    for (path, word) in [(&text, ""), (&missing, ""), (&without, "cuptiFinalize")] {
        let target = start(&kit, NEWEST, &[])?;
        refused(target, &["--cupti", path], NO_CUPTI, &[path, word])?;
    }
    Ok(())
}

#[test]
fn versions_that_do_not_fit() -> Result<()> {
    let kit = Kit::new()?;
    for (version, said) in [(17, "17"), (140_000, "14.0")] {
        let faults = format!("version={version}");
        let target = start(&kit, NEWEST, &[("CUPTI_MODEL", &faults)])?;
        refused(target, &[], NO_CUPTI, &["CUPTI", said])?;
    }
    Ok(())
}

/// The driver is older than the toolkit's major version.
#[test]
fn a_driver_that_is_too_old() -> Result<()> {
    let kit = Kit::new()?;
    let target = start(&kit, NEWEST, &[("CUDA_MODEL_DRIVER", "12040")])?;
    let path = kit.stand_in.cupti(13).display().to_string();
    refused(target, &["--cupti", &path], NO_CUPTI, &["12"])
}

/// Enabling the recording of kernels fails. What was enabled before is disabled again.
#[test]
fn kernels_cannot_be_switched_on() -> Result<()> {
    let kit = Kit::new()?;
    let target = start(&kit, NEWEST, &[("CUPTI_MODEL", "enable=35")])?;
    refused(
        target,
        &[],
        NO_CUPTI,
        &["does not work", "cuptiActivityEnable"],
    )
}

/// The other profiler is recording, and would lose its records.
#[test]
fn another_profiler_records() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, &[])?;
    let other = format!("other {}", kit.stand_in.cupti(13).display());
    assert_eq!(target.ask(&other)?, "other subscribe 0 kernels 10");
    let exit = try_attach(&target, &[])?;
    assert_eq!(exit.status.code(), Some(OTHER_PROFILER), "{exit}");
    let said = exit.stderr.join("\n");
    assert_eq!(said.matches("midair: error: ").count(), 1, "{exit}");
    assert!(said.contains("another profiler"), "{exit}");
    // The other profiler goes on unaffected.
    assert_eq!(target.ask("again")?, "again kernels 10");
    target.ask("leave")?;
    quit(target)
}

/// The library of NVIDIA's own profilers is mapped.
#[test]
fn an_injected_profiler() -> Result<()> {
    let kit = Kit::new()?;
    let library = kit.scratch().join("libToolsInjection64_1.so");
    let library = library.display().to_string();
    let mut gcc = Command::new("gcc");
    gcc.args(["-shared", "-x", "c", "/dev/null", "-o", &library]);
    run(gcc, PATIENCE)?.success()?;
    let target = start(&kit, NEWEST, &[("LD_PRELOAD", &library)])?;
    refused(target, &[], OTHER_PROFILER, &["libToolsInjection64_1.so"])
}

/// Options for what only HIP has.
#[test]
fn domains_that_only_hip_has() -> Result<()> {
    let kit = Kit::new()?;
    let target = start(&kit, NEWEST, &[])?;
    let before = Snapshot::take(target.pid())?;
    let exit = try_attach(&target, &["--hip-trace"])?;
    assert_eq!(exit.status.code(), Some(2), "{exit}");
    assert!(exit.stderr.join("\n").contains("--cuda-trace"), "{exit}");
    let diff = before.diff(&Snapshot::take(target.pid())?);
    assert!(diff.is_empty(), "{diff}");
    quit(target)
}
