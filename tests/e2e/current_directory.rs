//! The current directory: it is asked for only where something relative needs it, its path has any
//! bytes, and its name is no text with keys.

use midair_tests::Result;
use midair_tests::stage::{command, workload};
use midair_tests::target::{Exit, PATIENCE, Target, run};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

/// Returns a command that the shell runs in a directory that is removed first.
fn in_none(directory: &Path, inner: &Command) -> Result<Command> {
    std::fs::create_dir(directory)?;
    let mut outer = Command::new("sh");
    outer.args(["-c", "rmdir \"$PWD\" && exec \"$@\"", "sh"]);
    outer.arg(inner.get_program()).args(inner.get_args());
    let variables = inner.get_envs();
    outer.envs(variables.filter_map(|(name, value)| Some((name, value?))));
    outer.current_dir(directory);
    Ok(outer)
}

fn midair(words: &[&str]) -> Result<Command> {
    let mut midair = command("midair")?;
    midair.args(words);
    Ok(midair)
}

#[test]
fn one_that_is_gone_matters_only_to_what_is_relative() -> Result<()> {
    let place = tempfile::tempdir()?;
    let mut target = Target::spawn(workload(&[])?)?;
    target.expect("iter 3")?;
    let pid = target.pid().to_string();
    let results = place.path().join("results");
    let results = results.to_str().ok_or("a temporary directory")?;
    let gone = |words: &[&str]| -> Result<Exit> {
        run(
            in_none(&place.path().join("gone"), &midair(words)?)?,
            PATIENCE,
        )
    };
    let attach = ["attach", &pid, "--duration", "100ms", "-q", "-f", "csv"];
    let refused = gone(&attach)?;
    assert_eq!(refused.status.code(), Some(33), "{refused}");
    let said = refused.stderr.join("\n");
    assert!(
        said.contains("the current directory no longer exists"),
        "{refused}"
    );
    assert!(
        said.contains("hint: change to an existing directory"),
        "{refused}"
    );
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    assert!(!maps.contains("memfd:midair"), "{maps}");

    for words in [
        &["doctor", pid.as_str()][..],
        &["doctor"],
        &["ps"],
        &["top", &pid, "--once"],
        &["run", "-d", results, "--", "true"],
    ] {
        let exit = gone(words)?;
        assert_eq!(exit.status.code(), Some(0), "{words:?}: {exit}");
    }
    let exit = gone(&[&attach[..], &["-d", results, "-o", "out"]].concat())?;
    assert_eq!(exit.status.code(), Some(0), "{exit}");
    assert!(Path::new(results).join("out_kernel_trace.csv").exists());
    // The directory of the file's name counts alone, which is said.
    let file = place.path().join("file");
    let file = file.to_str().ok_or("a temporary directory")?;
    let exit = gone(&[&attach[..], &["-d", results, "-o", file]].concat())?;
    assert_eq!(exit.status.code(), Some(0), "{exit}");
    assert!(place.path().join("file_kernel_trace.csv").exists());
    let said = exit.stderr.join("\n");
    assert!(said.contains("--output-directory has no effect"), "{exit}");
    Ok(())
}

#[test]
fn one_with_any_name_has_the_results() -> Result<()> {
    let place = tempfile::tempdir()?;
    let odd = place.path().join(OsStr::from_bytes(b"50%pid%-caf\xe9"));
    std::fs::create_dir(&odd)?;
    let program = workload(&[])?;
    let mut start = midair(&["run", "-r", "-f", "csv", "-o", "run", "-d", "below", "--"])?;
    start.arg(program.get_program()).args(["2", "0"]);
    let variables = program.get_envs();
    start.envs(variables.filter_map(|(name, value)| Some((name, value?))));
    start.current_dir(&odd);
    let exit = run(start, PATIENCE)?;
    assert_eq!(exit.status.code(), Some(0), "{exit}");
    assert!(odd.join("below/run_kernel_trace.csv").exists(), "{exit}");

    let mut target = Target::spawn(program)?;
    target.expect("iter 3")?;
    let pid = target.pid().to_string();
    let attach = ["attach", &pid, "--duration", "100ms", "-f", "csv"];
    let mut here = midair(&attach)?;
    here.args(["-o", "here"]).current_dir(&odd);
    let exit = run(here, PATIENCE)?;
    assert_eq!(exit.status.code(), Some(0), "{exit}");
    assert!(odd.join("here_kernel_trace.csv").exists(), "{exit}");
    // A directory that is named by its bytes, with a key.
    let mut named = midair(&attach)?;
    named.args(["-o", "named", "-d"]);
    named.arg(place.path().join(OsStr::from_bytes(b"\xe9-%pid%")));
    let exit = run(named, PATIENCE)?;
    assert_eq!(exit.status.code(), Some(0), "{exit}");
    let named = [b"\xe9-", pid.as_bytes(), b"/named_kernel_trace.csv"].concat();
    assert!(
        place.path().join(OsStr::from_bytes(&named)).exists(),
        "{exit}"
    );
    Ok(())
}
