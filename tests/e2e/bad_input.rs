//! Directories that cannot be written, and unexpected arguments and names. Each gives one clear
//! line and no partial file, and leaves the target unchanged.

use midair_tests::Result;
use midair_tests::caller::Caller;
use midair_tests::lab::Lab;
use midair_tests::snapshot::Snapshot;
use midair_tests::stage::command;
use midair_tests::target::{Exit, PATIENCE, Target, run};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every format that is written.
const FORMATS: [&str; 4] = ["csv", "json", "pftrace", "rocpd"];

/// Prepares a short session that records kernels and calls into `dir`.
fn profiler(pid: i32, dir: &Path, formats: &[&str]) -> Result<Command> {
    let mut command = command("rocprofv3")?;
    command
        .args(["--pid", &pid.to_string(), "--hip-trace", "--kernel-trace"])
        .args(["--attach-duration-msec", "300", "-o", "t", "-d"])
        .arg(dir)
        .arg("--output-format")
        .args(formats);
    Ok(command)
}

/// Returns the one line on standard error that says what went wrong. A hint may follow it.
fn complaint(exit: &Exit) -> &str {
    let lines: Vec<&String> = exit
        .stderr
        .iter()
        .filter(|line| line.contains("error: "))
        .collect();
    assert_eq!(lines.len(), 1, "{exit}");
    lines[0]
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        found.push(entry?.path());
    }
    found.retain(|path| !path.ends_with("lost+found"));
    Ok(found)
}

#[test]
fn unwritable_directories_are_refused_before_the_target_is_touched() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let caller = Caller::start(Caller::command(&lab)?)?;
    let pid = caller.pid();
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("file");
    std::fs::write(&file, "somebody's")?;
    let before = Snapshot::take(pid)?;
    for place in [
        Path::new("/proc/no/such/place"),
        &file,
        &file.join("below"),
        &dir.path().join("d".repeat(300)),
    ] {
        let exit = run(profiler(pid, place, &["csv"])?, PATIENCE)?;
        assert_eq!(exit.status.code(), Some(33), "{}: {exit}", place.display());
        assert!(complaint(&exit).contains("cannot write"), "{exit}");
        assert!(
            !exit.stdout.iter().any(|line| line.ends_with("success")),
            "{exit}"
        );
    }
    let diff = before.diff(&Snapshot::take(pid)?).without_heap();
    assert!(diff.is_empty(), "{diff}");
    assert_eq!(entries(dir.path())?, [file.as_path()]);
    assert_eq!(std::fs::read(&file)?, b"somebody's");
    caller.quit()
}

/// A mounted file system in a file, unmounted when dropped.
struct Loopback {
    at: PathBuf,
}

impl Loopback {
    fn new(dir: &Path, bytes: u64) -> Result<Loopback> {
        let (image, at) = (dir.join("image"), dir.join("full"));
        std::fs::create_dir(&at)?;
        std::fs::File::create(&image)?.set_len(bytes)?;
        let mut make = Command::new("mkfs.ext4");
        make.args(["-q", "-F", "-O", "^has_journal", "-m", "0"])
            .arg(&image);
        run(make, PATIENCE)?.success()?;
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop"]).arg(&image).arg(&at);
        run(mount, PATIENCE)?.success()?;
        Ok(Loopback { at })
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.at).status();
    }
}

/// Each format by itself, on a disk with a few pages left, leaves no file and no part of one. The
/// records are saved elsewhere.
#[test]
fn a_full_disk() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    let pid = caller.pid();
    // The first session leaves mappings behind, which must not count as changes below.
    let dir = tempfile::tempdir()?;
    run(profiler(pid, dir.path(), &["csv"])?, PATIENCE)?.success()?;
    let tables = caller.tables()?;
    let disk = Loopback::new(dir.path(), 1 << 20)?;
    let filler = disk.at.join("filler");
    let mut zeroes = Command::new("dd");
    zeroes.args(["if=/dev/zero", "bs=1k", "status=none"]);
    zeroes.arg(format!("of={}", filler.display()));
    // `dd` ends with an error when the disk is full, so its exit code is not checked.
    let _ = run(zeroes, PATIENCE)?;
    let size = std::fs::metadata(&filler)?.len();
    std::fs::File::options()
        .write(true)
        .open(&filler)?
        .set_len(size - 12 * 1024)?;
    for format in FORMATS {
        let mut command = profiler(pid, &disk.at, &[format])?;
        let saved = tempfile::tempdir()?;
        command.env("TMPDIR", saved.path());
        let mut process = Target::spawn(command)?;
        process.expect("Attaching for 300 msec")?;
        caller.tell("calls 400")?;
        let exit = process.wait(PATIENCE)?;
        assert_eq!(exit.status.code(), Some(33), "{format}: {exit}");
        assert!(
            complaint(&exit).contains(&*disk.at.to_string_lossy()),
            "{format}: {exit}"
        );
        assert_eq!(entries(&disk.at)?, [filler.as_path()], "{format}: {exit}");
        // Nothing is lost: the files are in a directory with free space, and the output names that
        // directory.
        let places = entries(saved.path())?;
        let [place] = &places[..] else {
            return Err(format!("{format}: {places:?}: {exit}").into());
        };
        assert!(!entries(place)?.is_empty(), "{format}: {exit}");
        assert!(
            exit.stderr
                .iter()
                .any(|line| line.contains(&*place.to_string_lossy())),
            "{format}: {exit}"
        );
    }
    assert_eq!(caller.tables()?, tables);
    caller.quit()
}

/// The target's root is read-only, which does no harm, since nothing of midair's is written there.
#[test]
fn a_target_with_a_read_only_root() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    // The scratch directory stays writable for the model's log. AMD's model mode also needs a
    // writable directory for its memory, and crashes without one.
    let (root, scratch) = (lab.root().display(), lab.scratch().display());
    let script = format!(
        "mount --rbind {root} {root} && mount --bind {scratch} {scratch} && mount -t tmpfs -o noexec tmp {root}/tmp && mount -o remount,bind,ro {root} && exec \"$@\""
    );
    let command = Caller::command(&lab)?.prefix(&["unshare", "-m", "sh", "-c", &script, "sh"]);
    let mut caller = Caller::start(command)?;
    let pid = caller.pid();
    let write = std::fs::write(format!("/proc/{pid}/root/etc/x"), "");
    assert_eq!(
        write.map_err(|error| error.kind()),
        Err(std::io::ErrorKind::ReadOnlyFilesystem)
    );
    let dir = tempfile::tempdir()?;
    let mut process = Target::spawn(profiler(pid, dir.path(), &["csv"])?)?;
    process.expect("Attaching for 300 msec")?;
    caller.tell("calls 2")?;
    process.wait(PATIENCE)?.success()?;
    assert!(dir.path().join("t_hip_api_trace.csv").is_file());
    caller.quit()
}

/// Values that are too large and bytes that are not UTF-8 are refused.
#[test]
fn huge_values_and_bytes_that_are_not_utf8() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let caller = Caller::start(Caller::command(&lab)?)?;
    let pid = caller.pid();
    let dir = tempfile::tempdir()?;
    let before = Snapshot::take(pid)?;
    type Change = fn(&mut Command);
    let cases: [(&str, i32, Change); 8] = [
        ("--attach-duration-msec", 2, |command| {
            command.args(["--attach-duration-msec", "99999999999999999999999"]);
        }),
        ("--pid", 2, |command| {
            command.args(["--pid", "18446744073709551617"]);
        }),
        ("cannot write", 33, |command| {
            command.args(["-o", &"o".repeat(5000)]);
        }),
        ("262144", 2, |command| {
            command.env("ROCPROF_OF_ANOTHER_VERSION", "x".repeat(100_000));
            command.env("ROCPROF_KERNEL_FILTER_EXCLUDE_REGEX", "x".repeat(100_000));
            command.env("ROCPROF_KERNEL_FILTER_INCLUDE_REGEX", "x".repeat(100_000));
        }),
        ("ROCPROF_KERNEL_FILTER_RANGE", 2, |command| {
            command.env("ROCPROF_KERNEL_FILTER_RANGE", "x".repeat(100_000));
        }),
        ("UTF-8", 2, |command| {
            command.arg("-o").arg(OsStr::from_bytes(b"a\xff"));
        }),
        ("UTF-8", 2, |command| {
            command.env("ROCPROF_OUTPUT_FILE_NAME", OsStr::from_bytes(b"a\xff"));
        }),
        ("xml", 2, |command| {
            command.args(["--output-format", "xml"]);
        }),
    ];
    for (named, code, change) in cases {
        let mut command = command("rocprofv3")?;
        command.args(["--pid", &pid.to_string(), "--hip-trace", "-d"]);
        command.arg(dir.path());
        command.args(["--attach-duration-msec", "100"]);
        change(&mut command);
        let exit = run(command, PATIENCE)?;
        assert_eq!(exit.status.code(), Some(code), "{named}: {exit}");
        assert!(complaint(&exit).contains(named), "{named}: {exit}");
        assert!(complaint(&exit).len() < 300, "{named}: {exit}");
        assert!(
            !exit.stdout.iter().any(|line| line.ends_with("success")),
            "{named}: {exit}"
        );
    }
    assert!(entries(dir.path())?.is_empty());
    let diff = before.diff(&Snapshot::take(pid)?).without_heap();
    assert!(diff.is_empty(), "{diff}");
    caller.quit()
}

/// A program whose name, arguments and thread names are not UTF-8 is attached to like any other,
/// and its result files are valid.
#[test]
fn a_target_whose_names_are_not_utf8() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("calls")?, lab.kernels()?);
    let odd = lab
        .scratch()
        .join(OsStr::from_bytes(b"\xff\xfe calls\n%pid%"));
    std::fs::copy(lab.outside(&program), &odd)?;
    let dir_inside = lab.inside(lab.scratch())?;
    let script = format!("cd {dir_inside} && exec ./$'\\xff\\xfe calls\\n%pid%' \"$0\"");
    let command = lab.run("/bin/bash").arg("-c").arg(script).arg(kernels);
    let mut caller = Caller::start(command)?;
    let pid = caller.pid();
    let dir = tempfile::tempdir()?;
    let mut process = Target::spawn(profiler(pid, dir.path(), &["csv", "json"])?)?;
    process.expect("Attaching for 300 msec")?;
    caller.tell("calls 2")?;
    process.wait(PATIENCE)?.success()?;
    let text = std::fs::read_to_string(dir.path().join("t_results.json"))?;
    let json: serde_json::Value = serde_json::from_str(&text)?;
    assert_eq!(
        json.pointer("/rocprofiler-sdk-tool/0/metadata/pid")
            .and_then(serde_json::Value::as_i64),
        Some(pid.into())
    );
    caller.quit()
}
