//! A HIP program (`tests/c/client_host.c`) with a client of the SDK that makes the calls of a known
//! tool (`tests/c/client_*.c`).

use crate::Result;
use crate::caller::assignments;
use crate::compile;
use crate::lab::{Lab, LabCommand, LabTarget};
use crate::stage::stage;
use crate::target::{PATIENCE, run};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The running program.
pub struct ClientHost {
    target: LabTarget,
    stage: String,
}

impl ClientHost {
    /// Returns the program, not started yet. It finds our libraries.
    ///
    /// # Errors
    /// Fails when the program does not compile, or when there is no stage.
    pub fn command(lab: &Lab) -> Result<LabCommand<'_>> {
        let (program, kernels) = (lab.program("client_host")?, lab.kernels()?);
        let libs = format!("{}/lib", lab.stage()?);
        Ok(lab.run(&program).arg(kernels).libs(&libs))
    }

    /// Starts the program and waits until it is ready.
    ///
    /// # Errors
    /// Fails when the program does not become ready.
    pub fn start(lab: &Lab, command: LabCommand<'_>) -> Result<ClientHost> {
        let mut target = command.spawn()?;
        target.expect("ready")?;
        let stage = lab.stage()?;
        Ok(ClientHost { target, stage })
    }

    /// Makes the program load the client `tests/c/client_NAME.c`, which configures itself.
    ///
    /// # Errors
    /// Fails when the client does not compile or load.
    pub fn load(&mut self, lab: &Lab, name: &str) -> Result<()> {
        let directory = format!("{}/lib", self.stage);
        self.load_with(lab, name, &directory)
    }

    /// Does the same with the SDK of another directory (as seen in the lab).
    ///
    /// # Errors
    /// Fails as [`ClientHost::load`] does.
    pub fn load_with(&mut self, lab: &Lab, name: &str, directory: &str) -> Result<()> {
        let client = lab.install(&library(name)?)?;
        self.send(&format!("load {client} {directory}"))?;
        self.expect("load")?;
        Ok(())
    }

    /// Returns the status of the client's `start`, `stop` or `flush`.
    ///
    /// # Errors
    /// Fails when the program ends instead.
    pub fn client(&mut self, word: &str) -> Result<i32> {
        self.send(&format!("client {word}"))?;
        let line = self.expect(&format!("{word} "))?;
        Ok(line.split(' ').nth(1).unwrap_or_default().parse()?)
    }

    /// Returns what the client has been given so far.
    ///
    /// # Errors
    /// Fails when the program ends instead.
    pub fn count(&mut self) -> Result<BTreeMap<String, u64>> {
        self.send("client count")?;
        Ok(assignments(&self.expect("count ")?))
    }

    /// Launches `number` kernels and waits for their end.
    ///
    /// # Errors
    /// Fails when the program ends instead.
    pub fn round(&mut self, number: u32) -> Result<()> {
        self.send(&format!("round {number}"))?;
        self.expect("round")?;
        Ok(())
    }

    /// Ends the program, which must end well (see [`crate::caller::Caller::quit`]).
    ///
    /// # Errors
    /// Returns how the program ended otherwise.
    pub fn quit(mut self) -> Result<()> {
        self.send("quit")?;
        self.expect("done")?;
        let exit = self.target.target.wait(PATIENCE)?;
        if exit.is_abort_of_amds_model() {
            return Ok(());
        }
        exit.success().map(drop)
    }
}

impl Deref for ClientHost {
    type Target = LabTarget;
    fn deref(&self) -> &LabTarget {
        &self.target
    }
}

impl DerefMut for ClientHost {
    fn deref_mut(&mut self) -> &mut LabTarget {
        &mut self.target
    }
}

/// Compiles a tool, `tests/c/SOURCE.c`, into a library in this directory of the lab. It is linked with the
/// staged SDK and writes to `log`; `definitions` are further options of the compiler.
///
/// # Errors
/// Fails when the tool does not compile.
pub fn tool(
    lab: &Lab,
    source: &str,
    name: &str,
    log: &Path,
    definitions: &[&str],
) -> Result<PathBuf> {
    let out = lab.scratch().join(format!("{name}.so"));
    let mut compiler = Command::new("cc");
    compiler
        .args([
            "-shared", "-fPIC", "-O1", "-pthread", "-Wall", "-Wextra", "-Werror",
        ])
        .arg(format!("-DLOG=\"{}\"", lab.inside(log)?))
        .args(definitions)
        .arg(compile::sources().join(format!("{source}.c")))
        .arg("-o")
        .arg(&out)
        .arg("-L")
        .arg(stage()?.join("lib"))
        .args(["-Wl,--no-undefined", "-l:librocprofiler-sdk.so.1", "-lc"]);
    run(compiler, PATIENCE)?.success()?;
    Ok(out)
}

/// Compiles a client against the staged headers.
///
/// # Errors
/// Returns what the compiler said.
pub fn library(name: &str) -> Result<PathBuf> {
    let source = compile::sources().join(format!("client_{name}.c"));
    let directory = crate::workspace().join("target/test-programs");
    std::fs::create_dir_all(&directory)?;
    let target = directory.join(format!("client_{name}.so"));
    let stage = stage()?;
    let include = stage.join("include").display().to_string();
    let lib = stage.join("lib").display().to_string();
    // The clients for Proton and PAPI are not linked with the SDK. They look up its functions.
    let sdk: &[&str] = match name {
        "proton" | "papi" => &[],
        _ => &["-l:librocprofiler-sdk.so.1"],
    };
    let mut flags = vec!["-shared", "-fPIC", "-pthread", "-I", &include, "-L", &lib];
    flags.extend(sdk);
    compile::build(&["cc"], &source, &target, &flags, |path| {
        Ok(path.display().to_string())
    })?;
    Ok(target)
}
