//! The first thread has ended while others go on. `/proc/PID` tells little about such a process,
//! and `/proc/self` inside it does not, either.

use crate::environments::kit::{Attach, Program, Start, attacher, open_to_all, words, works};
use midair_tests::Result;
use midair_tests::stand_in::Kit;
use midair_tests::target::{PATIENCE, Target, until};

/// Regression test: the runtimes' tables could not be read in such a process.
#[test]
fn sessions_without_a_first_thread() -> Result<()> {
    let kit = Kit::new()?;
    let mut program = Program::start(&kit, "left", Start::default())?;
    program.target.send("leave")?;
    until("the end of the first thread", || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", program.pid))?;
        Ok(stat.contains(") Z "))
    })?;
    works(&mut program, &Attach::default(), "no first thread")?;

    // The messages still name the process, and the entry path with --verbose.
    let dir = tempfile::tempdir()?;
    open_to_all(dir.path())?;
    let attach = Attach {
        options: words(&["-v", "--output-format", "json"]),
        ..Attach::default()
    };
    let mut session = Target::spawn(attacher(&program, &attach, dir.path())?)?;
    session.expect_error("attached to process")?;
    let entered = format!(
        "midair: info: process {} (two_gpus): entered by ",
        program.pid
    );
    session.expect_error(&entered)?;
    program.ask("work 1")?;
    session.send("")?;
    session.wait(PATIENCE)?.success()?;
    let json = midair_tests::table::json(&dir.path().join("o_results.json"))?;
    let command = &json["rocprofiler-sdk-tool"][0]["metadata"]["command"];
    let first = command[0].as_str().unwrap_or_default();
    assert!(first.ends_with("two_gpus"), "{command}");
    program.quit()
}
