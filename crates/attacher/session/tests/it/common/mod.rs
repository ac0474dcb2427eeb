//! What the tests of both sides' deaths share: programs on the stand-in runtimes, the attaching
//! side as a process of its own.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use midair_tests::lab::LabTarget;
use midair_tests::snapshot::{Snapshot, memory};
use midair_tests::stage::stage;
use midair_tests::stand_in::Kit;
use midair_tests::target::{Target, until};

pub use midair_tests::long;

/// Returns the command that runs the attaching side.
pub fn drive(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_midair-drive"));
    command.args(args).env("MIDAIR_STAGE", stage().unwrap());
    command
}

/// A program at work on both GPUs, and where its dispatch tables are.
pub struct Worker {
    pub target: LabTarget,
    tables: Vec<(String, u64, usize)>,
}

impl Worker {
    /// Starts it. The pipe `control` ends it.
    pub fn start(kit: &Kit, log: &str, control: Option<&Path>) -> Worker {
        Worker::start_with(kit, log, control, &[])
    }

    /// Starts it with further variables in its environment.
    pub fn start_with(
        kit: &Kit,
        log: &str,
        control: Option<&Path>,
        further: &[(&str, &str)],
    ) -> Worker {
        let control = control.map(|path| path.to_str().unwrap().to_owned());
        let mut variables = vec![("MODEL_KERNEL_NS", "20000")];
        variables.extend(further);
        variables.extend(control.iter().map(|path| ("CONTROL", path.as_str())));
        let mut target = kit.start("two_gpus", log, &variables).unwrap();
        target.expect("ready").unwrap();
        target.send("tables").unwrap();
        let mut tables = Vec::new();
        loop {
            let line = target.expect("table").unwrap();
            let words: Vec<&str> = line.split(' ').collect();
            let ["table", name, at, bytes] = words[..] else {
                break;
            };
            let at = u64::from_str_radix(at.trim_start_matches("0x"), 16).unwrap();
            tables.push((name.to_owned(), at, bytes.parse().unwrap()));
        }
        assert_eq!(tables.len(), 4);
        // The queues, and the threads of their model, are made for the first work.
        target.send("work 1").unwrap();
        target.expect("work").unwrap();
        target.send("start").unwrap();
        target.expect("start").unwrap();
        // A thread that is just being created has its signals blocked.
        until("threads at work", || {
            let now = Snapshot::take(target.pid())?;
            let own = now.threads.values().filter(|one| one.name == "two_gpus");
            Ok(own.clone().count() >= 3 && own.into_iter().all(|one| one.blocked == 0))
        })
        .unwrap();
        Worker { target, tables }
    }

    pub fn pid(&self) -> i32 {
        self.target.pid()
    }

    /// Returns the bytes of its live dispatch tables.
    pub fn tables(&self) -> midair_tests::Result<BTreeMap<String, Vec<u8>>> {
        let read = self
            .tables
            .iter()
            .map(|(name, at, bytes)| Ok((name.clone(), memory(self.pid(), *at, *bytes)?)));
        read.collect()
    }

    /// Stops its work, whose results it checks itself, and ends it.
    pub fn quit(mut self) {
        self.target.send("stop").unwrap();
        self.target.expect("stop").unwrap();
        self.target.send("quit").unwrap();
        let log = self.target.model_log().unwrap();
        let exit = self.target.target.wait(midair_tests::target::PATIENCE);
        exit.unwrap().success().unwrap();
        log.check().unwrap();
    }
}

/// Makes a named pipe.
pub fn pipe(directory: &Path) -> std::path::PathBuf {
    let path = directory.join("control");
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the name is a C string that outlives the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    path
}

/// Returns the names of steps, in the form in which `midair-drive` lists them.
pub fn steps(line: &str) -> Vec<String> {
    let inner = line.split_once('[').unwrap().1.trim_end_matches(']');
    inner
        .split(", ")
        .map(|name| name.trim_matches('"').to_owned())
        .collect()
}

/// Returns the numbers of the steps to take: all of them in the long form, otherwise only the
/// session's own. The engine's tests cover the engine's steps.
pub fn numbers(steps: &[String]) -> Vec<u64> {
    let engine = |name: &str| {
        name.starts_with("PTRACE_")
            || name.starts_with("process_vm")
            || name.starts_with("writing /proc")
            || name == "waitpid"
    };
    (1..)
        .zip(steps)
        .filter(|(_, name)| long() || !engine(name))
        .map(|(number, _)| number)
        .collect()
}

/// Starts an attaching side that stays.
pub fn serve() -> Target {
    Target::spawn(drive(&["serve"])).unwrap()
}
