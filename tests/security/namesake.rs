//! Numbers of processes, which another pid namespace gives to other processes.

use crate::installed::{Installed, USER, mode};
use midair_tests::Result;
use midair_tests::compile::{attack_program, host_library};
use midair_tests::stage::plain_environment;
use midair_tests::stand_in::Kit;
use midair_tests::target::{PATIENCE, Target, until};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Point 15 of the second review: the path of the helper for AMD's packets led through the attacher's
/// number. In a container that number can be any process's, and what lay in that one's root ran in
/// the container with the rights of the program.
#[test]
fn a_path_through_the_attacher_leads_into_no_other_processs_root() -> Result<()> {
    let Some(installed) = Installed::new()? else {
        return Ok(());
    };
    let kit = Kit::new()?;
    let helper = installed
        .dir
        .path()
        .join("lib/rocprofiler-sdk/midair-aqlprofile");
    // The root of a stranger in the container, with a program at the helper's path.
    let root = tempfile::tempdir()?;
    mode(root.path(), 0o755)?;
    let trap = root.path().join(helper.strip_prefix("/")?);
    fs::create_dir_all(trap.parent().ok_or("a file has a directory")?)?;
    fs::copy(attack_program("witness")?, &trap)?;
    let ran = kit.scratch().join("ran");
    fs::create_dir(&ran)?;
    // In each the installation is hidden, so the helper is not there by its plain path.
    for (is_container, options) in [(false, &["-m"][..]), (true, &["-m", "-pf", "--mount-proc"])] {
        let log = kit.scratch().join(format!("tool-{is_container}.log"));
        let mut command = Command::new("unshare");
        command
            .args(options)
            .args(["sh", "-c", "mount -t tmpfs none \"$0\" && exec \"$@\""])
            .arg(installed.dir.path())
            .arg(kit.program("two_gpus")?);
        let [log_name, witness] = [&log, &ran].map(|path| path.display().to_string());
        let set = [
            ("TOOL_LOG", log_name.as_str()),
            ("WITNESS", witness.as_str()),
        ];
        let mut target = kit.start_command(command, "model.log", &set)?;
        target.target.expect("ready")?;
        let mut pid = target.target.pid();
        if is_container {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
            pid = children.trim().parse()?;
        }
        // The attacher's number is known before it looks at the process.
        let mut attach = Command::new("sh");
        attach
            .args(["-c", "read -r go && exec \"$@\"", "sh"])
            .arg(installed.midair())
            .args(["attach", &pid.to_string()])
            .env_clear()
            .envs(plain_environment())
            .env("ROCPROF_ATTACH_TOOL_LIBRARY", host_library("packets_tool")?);
        let mut attach = Target::spawn(attach)?;
        let number = attach.pid();
        let there = format!("/proc/{pid}/root/proc/{number}/root{}", helper.display());
        let _namesake = match is_container {
            false => None,
            true => {
                let mut command = Command::new(attack_program("namesake")?);
                command
                    .args([pid, number].map(|id| id.to_string()))
                    .arg(root.path())
                    .arg(USER.to_string());
                let mut namesake = Target::spawn(command)?;
                namesake.expect("ready")?;
                Some(namesake)
            }
        };
        assert!(Path::new(&there).exists(), "{there}");
        attach.send("go")?;
        until("the tool to choose a counter", || Ok(log.exists()))?;
        attach.signal(libc::SIGTERM)?;
        let exit = attach.wait(PATIENCE)?.success()?;
        assert!(files_of(&ran)?.is_empty(), "{:?}: {exit}", files_of(&ran)?);
        // Outside of a container the helper is found by the number, and says itself what it lacks, if
        // anything.
        let said = exit.to_string();
        let is_missing = said.contains("packet library is not installed here");
        assert_eq!(is_missing, is_container, "{exit}");
    }
    Ok(())
}

/// The texts of the files in a directory.
fn files_of(directory: &Path) -> Result<Vec<String>> {
    let all = fs::read_dir(directory)?;
    all.map(|entry| Ok(fs::read_to_string(entry?.path())?))
        .collect()
}
