//! A program records a process that runs on the stand-in runtimes.

use midair::{Attach, Format, Kind};
use midair_tests::stage::{plain_environment, stage, workload};
use midair_tests::table::Csv;
use midair_tests::target::{PATIENCE, Target, run};
use midair_tests::{Result, build_dir};
use std::process::Command;
use std::time::Duration;

#[test]
fn kernels_and_calls_of_a_running_process() -> Result<()> {
    let mut target = Target::spawn(workload(&[])?)?;
    target.expect("iter 3")?;
    let pid = u32::try_from(target.pid())?;
    let attach = Attach::new(pid).program(stage()?.join("bin/midair"));
    let recording = attach
        .clone()
        .kernels()
        .hip()
        .duration(Duration::from_millis(300))
        .run()?;
    assert!(recording.incomplete().is_none(), "{recording:?}");
    let kernels: Vec<_> = recording.kernels().collect::<std::result::Result<_, _>>()?;
    assert!(!kernels.is_empty(), "{:?}", recording.warnings());
    assert!(kernels.iter().all(|kernel| !kernel.name.is_empty()));
    assert!(kernels.iter().any(|kernel| kernel.duration() > 0));
    let calls: Vec<_> = recording.calls().collect::<std::result::Result<_, _>>()?;
    let launches = calls.iter().filter(|call| &*call.name == "hipLaunchKernel");
    assert!(launches.count() > 0, "{calls:?}");
    assert!(calls.iter().all(|call| call.domain.starts_with("HIP_")));
    assert_eq!(
        (recording.copies().count(), recording.markers().count()),
        (0, 0)
    );

    // The same records in files, as often as wanted.
    let folder = tempfile::tempdir()?;
    let files = recording.to_file(Format::Csv, folder.path().join("r"))?;
    let file = folder.path().join("r_kernel_trace.csv");
    assert!(files.contains(&file), "{files:?}");
    assert_eq!(Csv::read(&file)?.rows.len(), kernels.len());
    assert!(
        !recording
            .to_file(Format::Rocpd, folder.path().join("r"))?
            .is_empty()
    );
    let nowhere = recording.to_file(Format::Csv, "/proc/self/r").unwrap_err();
    assert_eq!(nowhere.kind(), Kind::Output);

    // A session that is ended by its owner; the process can be attached to again, and goes on.
    let session = attach.kernels().start()?;
    assert!(session.is_running());
    target.expect("iter")?;
    assert!(session.detach()?.incomplete().is_none());
    target.expect("iter")?;
    Ok(())
}

/// The program that the documentation shows, on the program of `midair demo`.
#[test]
fn the_documented_example_records_and_writes() -> Result<()> {
    let mut target = Target::spawn(workload(&[])?)?;
    target.expect("iter 3")?;
    let folder = tempfile::tempdir()?;
    let example = |pid: i32| {
        let mut command = Command::new(build_dir()?.with_file_name("examples").join("kernels"));
        command.env_clear().envs(plain_environment());
        command.env("MIDAIR", stage()?.join("bin/midair"));
        command.arg(pid.to_string()).current_dir(folder.path());
        run(command, PATIENCE)
    };
    let exit = example(target.pid())?.success()?;
    assert!(!exit.stdout.is_empty() && exit.stderr.is_empty(), "{exit}");
    for line in &exit.stdout {
        let time = line
            .strip_suffix(" ns")
            .and_then(|line| line.rsplit_once(' '));
        let time = time.ok_or_else(|| exit.to_string())?.1;
        assert!(time.parse::<u64>()? > 0, "{exit}");
    }
    let written = std::fs::read_dir(folder.path())?.count();
    assert!(written > 0, "{exit}");
    target.expect("iter")?;
    assert!(example(i32::MAX)?.success().is_err());
    Ok(())
}

#[test]
fn errors_have_a_kind_and_a_remedy() -> Result<()> {
    let attach =
        |pid| Ok::<_, midair_tests::Error>(Attach::new(pid).program(stage()?.join("bin/midair")));
    let gone = attach(u32::MAX)?.run().unwrap_err();
    assert_eq!(
        (gone.kind(), gone.kind().exit_code()),
        (Kind::NoProcess, 10)
    );
    assert!(!gone.remedy().is_empty() && !gone.to_string().is_empty());
    let itself = attach(std::process::id())?.run().unwrap_err();
    assert_eq!(itself.kind(), Kind::Usage);
    let elsewhere = Attach::new(1).program("/bin/sh").run().unwrap_err();
    assert_eq!(elsewhere.kind(), Kind::Installation);
    Ok(())
}
