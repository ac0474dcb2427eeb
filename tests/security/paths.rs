//! Where results and other files go, whatever a target calls itself and whatever links others plant.

use midair_tests::Result;
use midair_tests::stage::command;
use midair_tests::stand_in::Kit;
use midair_tests::target::PATIENCE;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// All regular files below a directory.
fn files(below: &Path) -> Result<Vec<PathBuf>> {
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
