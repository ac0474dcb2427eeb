//! The built product.

use crate::target::{Exit, run};
use crate::{Result, workspace};
use midair_stand_in::made_from::{self, State};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// Returns the stage directory that `cargo xtask stage` fills: `bin/`, `lib/`, `include/`.
///
/// # Errors
/// Fails when it has not been built, or when it is older than its sources.
pub fn stage() -> Result<PathBuf> {
    static CHECKED: OnceLock<std::result::Result<PathBuf, String>> = OnceLock::new();
    let checked = CHECKED.get_or_init(|| {
        let stage = std::env::var_os("MIDAIR_STAGE")
            .map_or_else(|| workspace().join("target/stage"), PathBuf::from);
        check(&workspace(), &stage).map_err(|error| error.to_string())
    });
    checked.clone().map_err(Into::into)
}

/// Returns the path of a stage that is there and was made from the sources of now. A stage outside
/// of the workspace, and one that was carried to a machine without sources, has no record.
fn check(workspace: &Path, stage: &Path) -> Result<PathBuf> {
    let (name, how) = (stage.display(), "`cargo xtask stage`");
    if !stage.join("lib").is_dir() {
        return Err(format!("{name} is not there: build it with {how}").into());
    }
    let is_ours = workspace.join("Cargo.toml").exists()
        && stage.canonicalize()?.starts_with(workspace.canonicalize()?);
    match made_from::compare(workspace, stage)? {
        State::Changed(source) => Err(format!(
            "{name} is older than {}: build it again with {how}",
            source.display()
        )
        .into()),
        State::Unknown if is_ours => {
            Err(format!("{name} has no record of its sources: build it again with {how}").into())
        }
        State::Unknown | State::Current => Ok(stage.canonicalize()?),
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_stage_that_is_older_than_a_source_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let stage = root.join("target/stage");
        let refusal = || check(root, &stage).unwrap_err().to_string();
        assert!(refusal().contains("is not there"));
        std::fs::create_dir_all(stage.join("lib")).unwrap();
        std::fs::write(root.join("Cargo.toml"), "").unwrap();
        std::fs::write(root.join("lib.rs"), "one").unwrap();
        assert!(refusal().contains("no record"), "{}", refusal());
        let sources = BTreeSet::from([PathBuf::from("lib.rs")]);
        made_from::write(root, &stage, &sources).unwrap();
        assert_eq!(check(root, &stage).unwrap(), stage.canonicalize().unwrap());
        std::fs::write(root.join("lib.rs"), "two").unwrap();
        assert!(refusal().contains("is older than lib.rs"), "{}", refusal());
        // A stage elsewhere, as on a machine to which it was carried, needs no record.
        let other = tempfile::tempdir().unwrap();
        std::fs::create_dir(other.path().join("lib")).unwrap();
        assert!(check(root, other.path()).is_ok());
    }
}
