//! Standard output that cannot be written is an error of every command that prints its result there. A
//! reader that has gone is none.

use midair_tests::Result;
use midair_tests::stage::command;
use midair_tests::stand_in::Kit;
use std::fs::OpenOptions;
use std::process::{Command, Output, Stdio};

/// Runs a command with this standard output.
fn run(command: &mut Command, out: Stdio) -> Result<Output> {
    let command = command.stdin(Stdio::null()).stdout(out);
    Ok(command.stderr(Stdio::piped()).output()?)
}

/// A pipe whose reader has gone.
fn closed_pipe() -> Result<Stdio> {
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    Ok(writer.into())
}

#[test]
fn output_that_cannot_be_written_is_an_error() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = kit.start("two_gpus", "model.log", &[])?;
    target.expect("ready")?;
    let pid = target.pid().to_string();
    let attach = ["attach", &pid, "--duration", "100ms", "--json"];
    let cases: [(&str, &[&str]); 11] = [
        ("midair", &attach),
        ("midair", &["ps"]),
        ("midair", &["doctor", &pid, "--json"]),
        ("midair", &["doctor", &pid]),
        ("midair", &["why", &pid, "--time", "200ms"]),
        ("midair", &["counters", "--arch", "gfx942", "--json"]),
        ("midair", &["--help"]),
        ("midair", &["--version"]),
        ("rocprofv3", &["--version"]),
        ("rocprof-compute", &["--help"]),
        ("rocpd", &["--help"]),
    ];
    for (program, words) in cases {
        let prepared = || -> Result<Command> {
            let mut prepared = command(program)?;
            prepared.args(words).current_dir(kit.scratch());
            Ok(prepared)
        };
        let full = OpenOptions::new().write(true).open("/dev/full")?;
        let exit = run(&mut prepared()?, full.into())?;
        let said = String::from_utf8_lossy(&exit.stderr).into_owned();
        assert_eq!(exit.status.code(), Some(33), "{words:?}: {said}");
        let why = "error: cannot write to standard output: No space";
        assert!(said.contains(why), "{program} {words:?}: {said}");
        let exit = run(&mut prepared()?, closed_pipe()?)?;
        let said = String::from_utf8_lossy(&exit.stderr).into_owned();
        assert_eq!(exit.status.code(), Some(0), "{words:?}: {said}");
        assert!(!said.contains("standard output"), "{words:?}: {said}");
    }
    target.send("quit")?;
    target.expect("done")?;
    Ok(())
}
