//! The target of these checks and the attach to it: a program at work on the stand-in runtimes, and
//! `midair attach` as some user.

use midair_tests::Result;
use midair_tests::compile::{self, sources};
use midair_tests::lab::LabTarget;
use midair_tests::modellog::ModelLog;
use midair_tests::stage::{plain_environment, stage};
use midair_tests::stand_in::Kit;
use midair_tests::target::{Exit, PATIENCE, Target, run};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The user that is not root.
pub const SOMEBODY: u32 = 1000;

/// Prints a line of the table.
pub fn say(text: &str) {
    println!("said: {text}");
}

/// Returns the start of what a process wrote, in one line.
pub fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(600).collect()
}

/// Returns the words before a command that run it as another user.
pub fn as_user(uid: u32) -> Vec<String> {
    let words = [
        "setpriv",
        &format!("--reuid={uid}"),
        &format!("--regid={uid}"),
        "--clear-groups",
    ];
    words.map(str::to_owned).into()
}

/// Prepares a command that is run through these words.
pub fn behind(words: &[String], program: &Path) -> Command {
    let mut command = match words.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
        None => Command::new(program),
    };
    command.env_clear().envs(plain_environment());
    command
}

/// Makes the runtimes, and a directory that any user may write to.
pub fn kit() -> Result<Kit> {
    let kit = Kit::new()?;
    std::fs::set_permissions(kit.scratch(), std::fs::Permissions::from_mode(0o777))?;
    Ok(kit)
}

/// Returns the program, which any user may read, because an attacher reads it.
pub fn program(kit: &Kit) -> Result<PathBuf> {
    let path = kit.program("two_gpus")?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// The program at work.
pub struct Subject {
    target: LabTarget,
}

impl Subject {
    /// Starts the program through these words, with these variables.
    pub fn start(kit: &Kit, words: &[String], variables: &[(&str, &str)]) -> Result<Subject> {
        let program = program(kit)?;
        let command = behind(words, &program);
        let log = format!("model.{}", std::process::id());
        let _earlier = std::fs::remove_file(kit.scratch().join(&log));
        let mut target = kit.start_command(command, &log, variables)?;
        target.expect("ready")?;
        let mut subject = Subject { target };
        subject.work()?;
        Ok(subject)
    }

    /// Starts the same program with a listener in it, as this user if one is given. The library
    /// that registers changes the user. It may not start a listener within `setpriv`, which gives
    /// up its rights thread by thread.
    pub fn listening(kit: &Kit, user: Option<u32>) -> Result<Subject> {
        let library = preloaded(kit)?;
        let library = library.to_str().ok_or("a path is text")?;
        let user = user.map(|uid| uid.to_string());
        let mut variables = vec![("LD_PRELOAD", library)];
        variables.extend(user.iter().map(|uid| ("REGISTERS_UID", uid.as_str())));
        Subject::start(kit, &[], &variables)
    }

    /// Returns the program's pid.
    pub fn pid(&self) -> i32 {
        self.target.pid()
    }

    /// Makes the program work, which checks its own results.
    pub fn work(&mut self) -> Result<()> {
        self.target.send("work 3")?;
        self.target.expect("work")?;
        Ok(())
    }

    /// Returns what its GPUs did so far.
    pub fn log(&self) -> Result<ModelLog> {
        self.target.model_log()
    }

    /// Ends the program, and checks that it found nothing wrong.
    pub fn quit(mut self) -> Result<()> {
        self.work()?;
        self.target.send("quit")?;
        let log = self.target.log.clone();
        self.target.target.wait(PATIENCE)?.success()?;
        ModelLog::read(&log)?.check()
    }
}

/// Builds a library that makes a program register, in a place from which any user can load it.
fn preloaded(kit: &Kit) -> Result<PathBuf> {
    let library = kit.dir().join("libregisters.so");
    let lib = stage()?.join("lib");
    let register = lib.join("librocprofiler-register.so.0");
    let path = format!("-Wl,-rpath,{}", lib.display());
    let text = |path: &Path| Ok(path.to_str().ok_or("a path is text")?.to_owned());
    compile::build(
        &["cc"],
        &sources().join("registers.c"),
        &library,
        &["-shared", "-fPIC", &text(&register)?, &path],
        text,
    )?;
    std::fs::set_permissions(&library, std::fs::Permissions::from_mode(0o755))?;
    Ok(library)
}

/// Runs a short `midair attach PID` through these words.
pub fn attach(kit: &Kit, words: &[String], pid: i32) -> Result<Exit> {
    attach_with(kit, words, pid, &["--duration", "300ms"])
}

/// Runs the same with further arguments, among them the duration.
pub fn attach_with(kit: &Kit, words: &[String], pid: i32, own: &[&str]) -> Result<Exit> {
    let mut command = behind(words, &stage()?.join("bin/midair"));
    let to = kit.scratch().join("out");
    let _earlier = std::fs::remove_dir_all(&to);
    command
        .args(["attach", &pid.to_string(), "--kernel-trace", "--hip-trace"])
        .args(["--output-format", "csv"])
        .arg("-d")
        .arg(to)
        .args(own);
    run(command, PATIENCE)
}

/// Starts a `midair attach` that goes on until it is asked to end.
pub fn attacher(kit: &Kit, words: &[String], pid: i32) -> Result<Target> {
    let mut command = behind(words, &stage()?.join("bin/midair"));
    let to = kit.scratch().join("out");
    let _earlier = std::fs::remove_dir_all(&to);
    command
        .args(["attach", &pid.to_string(), "--kernel-trace", "--hip-trace"])
        .args(["--output-format", "csv", "-o", "out", "-d"])
        .arg(to);
    let mut process = Target::spawn(command)?;
    process.expect_error("attached to process")?;
    Ok(process)
}

/// Checks that the attach succeeded, and prints so.
pub fn is_in(who: &str, exit: &Exit) -> Result<()> {
    match exit.status.code() {
        Some(0) => {
            say(&format!("{who}: in"));
            Ok(())
        }
        _ => Err(format!("{who}: not in: {exit}").into()),
    }
}

/// Checks that the attach was refused with this code and in these words.
pub fn is_refused(who: &str, exit: &Exit, code: i32, words: &str) -> Result<()> {
    let said = exit.stderr.join(" ");
    match exit.status.code() == Some(code) && said.contains(words) {
        true => {
            say(&format!("{who}: refused ({code}): {}", short(&said)));
            Ok(())
        }
        false => Err(format!("{who}: not refused with {code} and \"{words}\": {exit}").into()),
    }
}
