//! The Python package `midair` as it is staged. What the wheel has of it is in `installed.rs`.

use crate::installed::python_attaches;
use midair_tests::python::python_tool;
use midair_tests::stage::{plain_environment, stage};
use midair_tests::stand_in::Kit;
use midair_tests::target::{PATIENCE, run};
use midair_tests::{Result, workspace};
use std::path::{Path, PathBuf};
use std::process::Command;

fn site() -> Result<PathBuf> {
    Ok(stage()?.join("lib/python3/site-packages"))
}

/// Rows, a frame of pandas and one of polars have the kernels that the program launched.
#[test]
fn rows_and_frames_have_every_kernel() -> Result<()> {
    python_attaches(&Kit::new()?, &site()?)
}

/// Returns what mypy says of these words, with the types of pandas and polars.
fn mypy(words: &[&str], scratch: &Path) -> Result<Command> {
    let mut mypy = Command::new(python_tool("python")?);
    mypy.env_clear().envs(plain_environment());
    mypy.env("MYPYPATH", site()?).current_dir(scratch);
    mypy.args(["-m", "mypy", "--strict", "--cache-dir", "cache"]);
    mypy.args(words);
    Ok(mypy)
}

/// The package, and the example of its page; a wrong use is found.
#[test]
fn mypy_strict_has_nothing_to_say() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    run(mypy(&["-p", "midair"], scratch.path())?, PATIENCE)?.success()?;
    let page = std::fs::read_to_string(workspace().join("docs/python.md"))?;
    let example = page.split("```python\n").nth(1);
    let example = example.and_then(|rest| rest.split("```").next());
    let example = format!("pid: int = 0\n{}", example.ok_or("no example")?);
    let check = |name: &str, text: &str| -> Result<_> {
        std::fs::write(scratch.path().join(name), text)?;
        run(mypy(&[name], scratch.path())?, PATIENCE)
    };
    check("example.py", &example)?.success()?;
    let frames = "length: int = recording.kernels().polars().height\n\
                  index: int = len(recording.kernels().pandas().index)\n";
    check("frames.py", &format!("{example}\n{frames}"))?.success()?;
    let wrong = check(
        "wrong.py",
        &format!("{example}\nwrong: int = recording.lost\n"),
    )?;
    assert!(!wrong.status.success(), "{wrong}");
    Ok(())
}
