//! A program on the stand-in runtimes and an attacher, each started in a chosen environment.

use midair_tests::Result;
use midair_tests::modellog::ModelLog;
use midair_tests::snapshot::Snapshot;
use midair_tests::stage::{plain_environment, stage};
use midair_tests::stand_in::Kit;
use midair_tests::table::Csv;
use midair_tests::target::{Exit, PATIENCE, Target, run, until};
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Rounds of work in a session: two kernels on each of two devices.
const ROUNDS: usize = 3;
const DISPATCHES: usize = ROUNDS * 2 * 2;

/// Returns the words that make a command run as another user.
pub fn as_user(uid: u32) -> Vec<String> {
    [
        "setpriv",
        "--reuid",
        &uid.to_string(),
        "--regid",
        &uid.to_string(),
        "--clear-groups",
    ]
    .map(str::to_owned)
    .into()
}

/// Turns words into owned strings, unchanged.
pub fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

/// Returns the variable that preloads `tests/c/ballast.c`.
pub fn ballast(kit: &Kit) -> Result<(String, OsString)> {
    let library = kit.scratch().join("libballast.so");
    if !library.exists() {
        let mut cc = Command::new("cc");
        cc.args([
            "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o",
        ])
        .arg(&library)
        .arg(midair_tests::compile::sources().join("ballast.c"))
        .arg("-ldl")
        .env_clear()
        .envs(plain_environment());
        run(cc, PATIENCE)?.success()?;
    }
    Ok(("LD_PRELOAD".to_owned(), library.into_os_string()))
}

/// How the program is started.
#[derive(Default)]
pub struct Start {
    /// Words before the program.
    pub before: Vec<String>,
    /// Another path for the program's file.
    pub program: Option<OsString>,
    /// More environment variables.
    pub environment: Vec<(String, OsString)>,
    /// How many processes those words put above the program.
    pub children: usize,
    /// Soft and hard limits of the program (`RLIMIT_*`).
    pub limits: Vec<(libc::__rlimit_resource_t, u64)>,
}

/// A running program.
pub struct Program {
    pub target: Target,
    /// The process id in our own pid namespace.
    pub pid: i32,
    log: PathBuf,
    _scratch: tempfile::TempDir,
}

/// Sets limits of the process that a command starts.
pub fn limit(command: &mut Command, limits: &[(libc::__rlimit_resource_t, u64)]) {
    use std::os::unix::process::CommandExt;
    let limits = limits.to_vec();
    // SAFETY: the closure runs between fork and exec. It only calls setrlimit, which is
    // async-signal-safe and touches nothing of the parent.
    unsafe {
        command.pre_exec(move || {
            for &(resource, value) in &limits {
                let limit = libc::rlimit {
                    rlim_cur: value,
                    rlim_max: value,
                };
                if libc::setrlimit(resource, &limit) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
}

/// Lets every user read and enter a directory.
pub fn open_to_all(path: &Path) -> Result<()> {
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o777))?;
    Ok(())
}

impl Program {
    /// Starts the program. Its log is in a directory of its own whose name starts with `name`.
    pub fn start(kit: &Kit, name: &str, start: Start) -> Result<Program> {
        let program = kit.program("two_gpus")?;
        // A process whose user may not read the program is not dumpable, so everybody may read it.
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755))?;
        let program = program.into_os_string();
        open_to_all(kit.scratch())?;
        let scratch = tempfile::Builder::new()
            .prefix(name)
            .tempdir_in(kit.scratch())?;
        // The mode is set here, since the umask would restrict it above.
        open_to_all(scratch.path())?;
        let log = scratch.path().join("model.log");
        let mut all: Vec<OsString> = start.before.iter().map(OsString::from).collect();
        all.push(start.program.unwrap_or(program));
        let mut command = Command::new(&all[0]);
        command
            .args(&all[1..])
            .env_clear()
            .envs(plain_environment())
            .env("HSA_MODEL_TOPOLOGY", kit.dir().join("topology"))
            .env("MODEL_LOG", &log)
            .envs(start.environment);
        limit(&mut command, &start.limits);
        let mut target = Target::spawn(command)?;
        target.expect("ready")?;
        let mut pid = target.pid();
        for _ in 0..start.children {
            let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
            pid = children.trim().parse()?;
        }
        let mut program = Program {
            target,
            pid,
            log,
            _scratch: scratch,
        };
        // After a first round the threads have their names, and most of the buffers exist.
        program.ask("work 1")?;
        Ok(program)
    }

    pub fn ask(&mut self, what: &str) -> Result<()> {
        self.target.send(what)?;
        self.target
            .expect(what.split(' ').next().unwrap_or_default())?;
        Ok(())
    }

    /// Returns the process id in its own pid namespace.
    pub fn pid_inside(&self) -> Result<i32> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let last = line.and_then(|line| line.split_ascii_whitespace().last());
        Ok(last.ok_or("a status has NSpid")?.parse()?)
    }

    /// Ends the program, and checks that all that came back from its devices was right.
    pub fn quit(mut self) -> Result<()> {
        self.ask("work 1")?;
        self.target.send("quit")?;
        let exit = self.target.wait(PATIENCE)?.success()?;
        assert_eq!(exit.stdout.last().map(String::as_str), Some("done"));
        if self.log.exists() {
            ModelLog::read(&self.log)?.check()?;
        }
        Ok(())
    }
}

/// How the attacher is started.
#[derive(Default)]
pub struct Attach {
    /// Words before the attacher.
    pub before: Vec<String>,
    /// Another copy of the attacher.
    pub program: Option<PathBuf>,
    /// The pid by which the attacher calls the process, if it is not the one in our namespace.
    pub pid: Option<i32>,
    /// Limits of the attacher.
    pub limits: Vec<(libc::__rlimit_resource_t, u64)>,
    /// Words between `attach` and the pid.
    pub aim: Vec<String>,
    /// More options.
    pub options: Vec<String>,
}

/// Prepares an attach whose results go to `dir`.
pub fn attacher(program: &Program, attach: &Attach, dir: &Path) -> Result<Command> {
    let ours = stage()?.join("bin/midair");
    let path = attach.program.clone().unwrap_or(ours);
    let mut all: Vec<OsString> = attach.before.iter().map(OsString::from).collect();
    all.push(path.into());
    let mut command = Command::new(&all[0]);
    command
        .args(&all[1..])
        .arg("attach")
        .args(&attach.aim)
        .arg(attach.pid.unwrap_or(program.pid).to_string())
        .args(["--kernel-trace", "--output-format", "csv", "-o", "o", "-d"])
        .arg(dir)
        .args(&attach.options)
        .env_clear()
        .envs(plain_environment());
    limit(&mut command, &attach.limits);
    Ok(command)
}

fn output() -> Result<tempfile::TempDir> {
    let dir = tempfile::tempdir()?;
    open_to_all(dir.path())?;
    Ok(dir)
}

/// Runs two sessions with a known number of kernels, all of which must be in the file. The first
/// one enters the process, and the second one wakes the worker thread that stayed.
pub fn works(program: &mut Program, attach: &Attach, what: &str) -> Result<()> {
    for time in ["first", "second"] {
        works_once(program, attach).map_err(|error| format!("{what}, {time} time: {error}"))?;
        settled(program)?;
    }
    Ok(())
}

/// Waits until no worker thread works in the process. On a busy machine, cleaning up may take
/// longer than the next attach waits.
pub fn settled(program: &Program) -> Result<()> {
    until("a thread that waits, or none", || {
        let now = Snapshot::take(program.pid)?;
        Ok(now.named("midair-worker").all(|tid| {
            let call = std::fs::read_to_string(format!("/proc/{tid}/syscall"));
            call.is_ok_and(|call| call.starts_with(&format!("{} ", libc::SYS_futex)))
        }))
    })
}

/// Runs one session as [`works`] does.
pub fn works_once(program: &mut Program, attach: &Attach) -> Result<()> {
    let dir = output()?;
    let mut session = Target::spawn(attacher(program, attach, dir.path())?)?;
    session.expect_error("attached to process")?;
    program.ask(&format!("work {ROUNDS}"))?;
    session.send("")?;
    let exit = session.wait(PATIENCE)?.success()?;
    let rows = Csv::read(&dir.path().join("o_kernel_trace.csv"))?.rows;
    if rows.len() != DISPATCHES {
        return Err(format!("{} of {DISPATCHES} kernels: {exit}", rows.len()).into());
    }
    Ok(())
}

/// Returns how an attach is refused.
pub fn refusal(program: &Program, attach: &Attach) -> Result<Exit> {
    let dir = output()?;
    run(attacher(program, attach, dir.path())?, PATIENCE)
}

/// Checks that an attach is refused with this exit code and these words, and that nothing of the
/// process is touched.
pub fn refused(program: &Program, attach: &Attach, code: i32, said: &str) -> Result<()> {
    let before = Snapshot::take(program.pid)?;
    let exit = refusal(program, attach)?;
    let text = exit.stderr.join("\n");
    if exit.status.code() != Some(code) || !text.contains(said) {
        return Err(format!("not {code} and \"{said}\": {exit}").into());
    }
    let diff = before.diff(&Snapshot::take(program.pid)?).without_heap();
    if !diff.is_empty() {
        return Err(format!("{said}:\n{diff}").into());
    }
    Ok(())
}
