//! Programs on the stand-in runtimes with two modelled GPUs, without root and without the lab.

use crate::compile;
use crate::lab::LabTarget;
use crate::stage::plain_environment;
use crate::target::Target;
use crate::{Result, build_dir, workspace};
use midair_stand_in::StandIn;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use midair_gpu_model::QUEUES_PER_NODE;

/// The runtimes as a program finds them, and a scratch directory that is removed with this value.
pub struct Kit {
    stand_in: StandIn,
    scratch: tempfile::TempDir,
}

impl Kit {
    /// Puts the runtimes into a directory. They are built whenever this crate is.
    ///
    /// # Errors
    /// Fails when the runtimes are not there or cannot be copied.
    pub fn new() -> Result<Kit> {
        let dir = workspace().join("target/test-programs/stand-in");
        Ok(Kit {
            stand_in: StandIn::lay_out(&build_dir()?, &dir)?,
            scratch: tempfile::tempdir()?,
        })
    }

    /// Returns a directory that is removed with this value.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Returns the directory of the runtimes, the topology and the programs.
    pub fn dir(&self) -> &Path {
        self.stand_in.dir()
    }

    /// Compiles `tests/c/NAME.c` against the stand-in.
    ///
    /// # Errors
    /// Returns what the compiler said.
    pub fn program(&self, name: &str) -> Result<PathBuf> {
        self.program_by(&["gcc"], name, name, &[])
    }

    /// Compiles `tests/c/SOURCE.c` against the stand-in by this compiler with more flags, into a
    /// program of another name.
    ///
    /// # Errors
    /// Returns what the compiler said.
    pub fn program_by(
        &self,
        compiler: &[&str],
        source: &str,
        name: &str,
        more: &[&str],
    ) -> Result<PathBuf> {
        let program = self.stand_in.dir().join(name);
        let include = workspace().join("sim/stand-in/c");
        let mut flags = self.stand_in.link_arguments();
        flags.push(format!("-I{}", include.display()));
        flags.push("-ldl".to_owned());
        flags.extend(more.iter().map(|&flag| flag.to_owned()));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let source = compile::sources().join(format!("{source}.c"));
        compile::build(compiler, &source, &program, &flags, |path| {
            Ok(path.to_str().ok_or("a path is text")?.to_owned())
        })?;
        Ok(program)
    }

    /// Compiles `tests/rust/NAME.rs` against the stand-in, as a crate `app`.
    ///
    /// # Errors
    /// Returns what the compiler said.
    pub fn rust_program(&self, name: &str) -> Result<PathBuf> {
        let program = self.scratch().join(name);
        let mut rustc = Command::new("rustc");
        rustc.args(["-O", "--edition", "2024", "--crate-name", "app"]);
        rustc.args(["-C", "symbol-mangling-version=v0", "-o"]);
        rustc.arg(&program);
        rustc.arg(workspace().join("tests/rust").join(format!("{name}.rs")));
        for flag in self.stand_in.link_arguments() {
            rustc.arg("-C").arg(format!("link-arg={flag}"));
        }
        let made = rustc.output()?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into());
        }
        Ok(program)
    }

    /// Compiles `tests/c/NAME.c` against the stand-in and starts it. The model writes its log to
    /// `LOG` in the scratch directory.
    ///
    /// # Errors
    /// Returns what the compiler said, or why the program cannot be started.
    pub fn start(&self, name: &str, log: &str, variables: &[(&str, &str)]) -> Result<LabTarget> {
        self.start_command(Command::new(self.program(name)?), log, variables)
    }

    /// Starts a command that starts such programs; see [`Kit::start`].
    ///
    /// # Errors
    /// Returns why the command cannot be started.
    pub fn start_command(
        &self,
        mut command: Command,
        log: &str,
        variables: &[(&str, &str)],
    ) -> Result<LabTarget> {
        let log = self.scratch().join(log);
        let (variable, topology) = self.stand_in.environment();
        command
            .env_clear()
            .envs(plain_environment())
            .env(variable, topology)
            .env("MODEL_LOG", &log)
            .envs(variables.iter().copied());
        Ok(LabTarget {
            target: Target::spawn(command)?,
            log,
        })
    }
}
