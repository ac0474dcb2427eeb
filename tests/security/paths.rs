//! Where results and other files go, whatever a target calls itself and whatever links others plant.

use crate::installed::USER;
use midair_tests::stage::command;
use midair_tests::stand_in::Kit;
use midair_tests::target::{PATIENCE, run};
use midair_tests::{Result, is_root_for};
use std::fs;
use std::os::unix::fs::{chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// All regular files below a directory.
pub fn files(below: &Path) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    let mut open = vec![below.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => open.push(entry.path()),
                false => all.push(entry.path()),
            }
        }
    }
    Ok(all)
}

/// Point 8 of the second review: keys in a target's words were expanded again, so a program's name led
/// anywhere.
#[test]
fn a_targets_name_leads_nowhere_else() -> Result<()> {
    let (kit, dir) = (Kit::new()?, tempfile::tempdir()?);
    let into = dir.path().join("a/b");
    fs::create_dir_all(&into)?;
    let name = "..%cwd%..%cwd%$ENV{UP}%env{UP}%%cwd%x";
    for key in ["%tag%", "%argv%", "%env{UP}%/%pid%", "%arg0%%arg0%"] {
        let mut named = Command::new("bash");
        named.args(["-c", "exec -a \"$0\" \"$@\"", name]);
        named.arg(kit.program("two_gpus")?).arg("..%cwd%..%cwd%");
        let mut target = kit.start_command(named, "log", &[("UP", "..%cwd%..%cwd%..")])?;
        target.target.expect("ready")?;
        let mut attach = command("midair")?;
        attach.current_dir(dir.path());
        attach.args(["attach", &target.target.pid().to_string(), "--kernel-trace"]);
        attach.args(["--duration", "10s", "-f", "csv", "-o", key, "-d"]);
        attach.arg(&into);
        let mut attach = midair_tests::target::Target::spawn(attach)?;
        attach.expect_error("attached to process")?;
        target.target.send("work 1")?;
        target.target.expect("work")?;
        attach.signal(libc::SIGTERM)?;
        attach.wait(PATIENCE)?.success()?;
        let written = files(dir.path())?;
        assert!(!written.is_empty(), "{key}");
        for file in &written {
            assert!(file.starts_with(&into), "{key}: {}", file.display());
        }
        fs::remove_dir_all(&into)?;
        fs::create_dir(&into)?;
    }
    Ok(())
}

/// Point 9: only links in sticky directories were looked at. A stranger's own directory may have one,
/// too, with the name of the host, which results are below by default.
#[test]
fn results_do_not_go_through_a_strangers_link() -> Result<()> {
    if !is_root_for("to make a link of another user's")? {
        return Ok(());
    }
    let (kit, dir) = (Kit::new()?, tempfile::tempdir()?);
    let (theirs, roots) = (dir.path().join("theirs"), dir.path().join("roots"));
    fs::create_dir(&theirs)?;
    fs::create_dir(&roots)?;
    let host = fs::read_to_string("/proc/sys/kernel/hostname")?;
    let link = theirs.join(host.trim());
    symlink(&roots, &link)?;
    lchown(&link, Some(USER), Some(USER))?;
    chown(&theirs, Some(USER), Some(USER))?;
    let mut target = kit.start("two_gpus", "log", &[])?;
    target.target.expect("ready")?;
    for format in ["csv", "rocpd", "otf2", "parquet"] {
        let mut attach = command("midair")?;
        attach.args(["attach", &target.target.pid().to_string(), "--kernel-trace"]);
        attach.args(["--duration", "100ms", "-f", format, "-d"]);
        attach.arg(&theirs);
        let exit = run(attach, PATIENCE)?;
        assert_eq!(exit.status.code(), Some(33), "{format}: {exit}");
        let said = exit.stderr.join("\n");
        assert!(said.contains(&format!("user {USER}")), "{format}: {exit}");
        assert!(files(&roots)?.is_empty(), "{format}: {exit}");
    }
    Ok(())
}
