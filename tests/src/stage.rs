//! The built product.

use crate::target::{Exit, run};
use crate::{Result, workspace};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Returns the stage directory that `cargo xtask stage` fills: `bin/`, `lib/`, `include/`.
///
/// # Errors
/// Fails when it has not been built.
pub fn stage() -> Result<PathBuf> {
    let stage = std::env::var_os("MIDAIR_STAGE")
        .map_or_else(|| workspace().join("target/stage"), PathBuf::from);
    if stage.join("lib").is_dir() {
        Ok(stage.canonicalize()?)
    } else {
        Err(format!(
            "{} is not there: build it with `cargo xtask stage`",
            stage.display()
        )
        .into())
    }
}

/// Prepares a command of the stage (`midair`, `rocprofv3`, `rocprof-attach`) with an environment
/// that has nothing of cargo's.
///
/// # Errors
/// Fails when the stage or the command is missing.
pub fn command(name: &str) -> Result<Command> {
    let path = stage()?.join("bin").join(name);
    if !path.is_file() {
        return Err(format!(
            "{} is not there: build it with `cargo xtask stage`",
            path.display()
        )
        .into());
    }
    let mut command = Command::new(path);
    command.env_clear().envs(plain_environment());
    Ok(command)
}

/// Runs a command of the stage to its end.
///
/// # Errors
/// Fails as [`command`] does, or when it does not end within `limit`. An exit code other than 0 is
/// not an error here.
pub fn run_staged(name: &str, args: &[&str], limit: Duration) -> Result<Exit> {
    let mut command = command(name)?;
    command.args(args);
    run(command, limit)
}

/// Prepares the program of `midair demo`, started by the command `before`. It works on two modelled
/// GPUs until it is ended.
///
/// # Errors
/// Fails when the stage is missing.
pub fn workload(before: &[&str]) -> Result<Command> {
    let demo = stage()?.join("lib/midair-demo");
    let program = demo.join("workload");
    let mut words: Vec<&OsStr> = before.iter().map(OsStr::new).collect();
    words.push(program.as_os_str());
    let (first, rest) = words.split_first().ok_or("no program")?;
    let mut command = Command::new(first);
    command.env_clear().envs(plain_environment());
    command.env("LD_LIBRARY_PATH", &demo);
    command.env("HSA_MODEL_TOPOLOGY", demo.join("topology"));
    command.args(rest).args(["0", "1000"]);
    Ok(command)
}

/// Returns the variables that programs under test get from our own environment.
pub fn plain_environment() -> Vec<(&'static str, String)> {
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned();
    vec![
        ("PATH", path),
        ("HOME", "/root".to_owned()),
        ("LC_ALL", "C.UTF-8".to_owned()),
    ]
}
