//! AMD's real runtimes on a modelled GPU.

use crate::modellog::ModelLog;
use crate::stage::plain_environment;
use crate::target::Target;
use crate::{
    Result, build_dir, compile, fatbin, is_root_for, leave_out, put_copy, put_file, workspace,
};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The root that is used when `MIDAIR_LAB` does not name one.
const DEFAULT_ROOT: &str = "/var/tmp/rocm-lab";
/// The place of our programs and libraries inside the root.
const OURS: &str = "lab/midair";
/// The root's libraries, against which the programs are linked.
const LIBS: &str = "/usr/lib/x86_64-linux-gnu";

/// The modelled GPU on which a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuModel {
    /// The lab's own small model. It honours doorbells and keeps no log.
    Lab,
    /// Our model. It honours doorbells.
    Doorbell,
    /// Our model with this seed. It takes valid packets at random moments without waiting for the
    /// doorbell.
    Eager(u64),
}

/// A ready root, and a scratch directory in it that is removed with this value.
pub struct Lab {
    root: PathBuf,
    scratch: tempfile::TempDir,
}

impl Lab {
    /// Finds a ready root. It returns `None` if we are not root (chroot needs it) or if
    /// `MIDAIR_SKIP_LAB=1` is set. The test is then listed as left out, see [`leave_out`].
    ///
    /// # Errors
    /// Returns why there is none, and how to make one.
    pub fn find() -> Result<Option<Lab>> {
        if std::env::var_os("MIDAIR_SKIP_LAB").is_some_and(|value| value == "1") {
            leave_out("MIDAIR_SKIP_LAB=1")?;
            return Ok(None);
        }
        if !is_root_for("for AMD's runtimes in the lab")? {
            return Ok(None);
        }
        let root = std::env::var_os("MIDAIR_LAB")
            .map_or_else(|| PathBuf::from(DEFAULT_ROOT), PathBuf::from);
        let how =
            "make one with `lab/setup.sh DIR` and name it in MIDAIR_LAB, or set MIDAIR_SKIP_LAB=1";
        for needed in [
            ".rocm",
            "lab/libregshim.so",
            "lab/libclock.so",
            "lab/topo",
            "lab/vadd",
        ] {
            if !root.join(needed).exists() {
                return Err(format!(
                    "no ready lab in {}: it has no {needed}; {how}",
                    root.display()
                )
                .into());
            }
        }
        let dir = root.join(OURS);
        std::fs::create_dir_all(&dir)
            .map_err(|error| format!("{}: {error}; {how}", dir.display()))?;
        let scratch = tempfile::Builder::new().prefix("run-").tempdir_in(&dir)?;
        // Programs under test may run as another user.
        std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o777))?;
        Ok(Some(Lab { root, scratch }))
    }

    /// Returns the root's path outside of the lab.
    pub fn root(&self) -> &Path {
        &self.root
    }
    /// Returns a directory that any user may write to and that is removed with this value, as a
    /// path outside of the lab.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }
    /// Returns a path below the root as programs in the lab see it.
    ///
    /// # Errors
    /// Fails when the path is not below the root.
    pub fn inside(&self, path: &Path) -> Result<String> {
        let below = path
            .strip_prefix(&self.root)
            .map_err(|_| format!("{} is not in the lab", path.display()))?;
        Ok(format!("/{}", below.to_str().ok_or("a path is text")?))
    }
    /// Returns a path of the lab as it is outside of the lab.
    pub fn outside(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
    /// Copies a file into the lab and returns its path there. An older file is replaced by a
    /// rename.
    ///
    /// # Errors
    /// Fails when the file cannot be read or written.
    pub fn install(&self, file: &Path) -> Result<String> {
        let there = self
            .root
            .join(OURS)
            .join(file.file_name().ok_or("a file has a name")?);
        put_copy(&there, file)?;
        self.inside(&there)
    }
    /// Installs our model and returns its path in the lab.
    ///
    /// # Errors
    /// Fails when the model has not been built. It is built whenever this crate is.
    pub fn model(&self) -> Result<String> {
        self.install(&build_dir()?.join("libmidair_gpu_model.so"))
    }
    /// Takes the gfx942 code object with the kernels `vadd` and `scale` from the lab's HIP program,
    /// and returns its path in the lab.
    ///
    /// # Errors
    /// Fails when the program is not what it should be.
    pub fn kernels(&self) -> Result<String> {
        let program = std::fs::read(self.root.join("lab/vadd"))?;
        let there = self.root.join(OURS).join("kernels.gfx942");
        put_file(&there, fatbin::code_object(&program, "gfx942")?, 0o644)?;
        self.inside(&there)
    }
    /// Does the same as [`Lab::kernels`], with `vadd` renamed to `vxyz`.
    ///
    /// # Errors
    /// Fails as [`Lab::kernels`] does.
    pub fn renamed_kernels(&self) -> Result<String> {
        self.kernels_with("_Z4vadd", "_Z4vxyz", "renamed.gfx942")
    }
    /// Does the same as [`Lab::kernels`], with the kernel `vadd` renamed to one of RCCL's:
    /// `ncclDevKernel_AB`.
    ///
    /// # Errors
    /// Fails as [`Lab::kernels`] does.
    pub fn collective_kernels(&self) -> Result<String> {
        self.kernels_with("_Z4vaddPKfS0_Pfi", "ncclDevKernel_AB", "collective.gfx942")
    }
    /// Does the same as [`Lab::kernels`], with lines in the sources for `vadd`: its first 8 bytes are of
    /// line 10, the next ones of 12, and all others of 14 of `/src/job/kernels.hip`.
    ///
    /// # Errors
    /// Fails as [`Lab::kernels`] does.
    pub fn kernels_with_lines(&self) -> Result<String> {
        let program = std::fs::read(self.root.join("lab/vadd"))?;
        let object = fatbin::code_object(&program, "gfx942")?;
        let object = fatbin::with_lines(object, 0x1e00, &[10, 12, 14], 0x84)?;
        let there = self.root.join(OURS).join("lines.gfx942");
        put_file(&there, &object, 0o644)?;
        self.inside(&there)
    }
    /// Writes the code object with one name replaced by another one of the same length.
    fn kernels_with(&self, old: &str, new: &str, file: &str) -> Result<String> {
        assert_eq!(old.len(), new.len());
        let program = std::fs::read(self.root.join("lab/vadd"))?;
        let mut object = fatbin::code_object(&program, "gfx942")?.to_vec();
        for at in 0..object.len().saturating_sub(old.len()) {
            if object[at..].starts_with(old.as_bytes()) {
                object[at..at + new.len()].copy_from_slice(new.as_bytes());
            }
        }
        let there = self.root.join(OURS).join(file);
        put_file(&there, &object, 0o644)?;
        self.inside(&there)
    }
    /// Compiles `tests/c/NAME.c` in the lab, against AMD's headers and libraries, and returns its
    /// path in the lab.
    ///
    /// # Errors
    /// Returns what the compiler said.
    pub fn program(&self, name: &str) -> Result<String> {
        let dir = self.root.join(OURS);
        let sources = self.sources()?;
        let root = self.root.to_str().ok_or("a path is text")?;
        let (source, target) = (sources.join(format!("{name}.c")), dir.join(name));
        let text = std::fs::read_to_string(&source)
            .map_err(|error| format!("{}: {error}", source.display()))?;
        let hip = "-l:libamdhip64.so.7";
        let hsa = "-l:libhsa-runtime64.so.1";
        let mut flags = vec!["-D__HIP_PLATFORM_AMD__", "-pthread", "-L", LIBS];
        flags.extend(text.contains("hip/hip_runtime_api.h").then_some(hip));
        flags.extend(text.contains("\"hip_kit.h\"").then_some(hip));
        flags.extend(text.contains("<hsa/hsa.h>").then_some(hsa));
        flags.extend(text.contains("\"hsa_kit.h\"").then_some(hsa));
        compile::build(&["chroot", root, "gcc"], &source, &target, &flags, |path| {
            self.inside(path)
        })?;
        std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o755))?;
        self.inside(&target)
    }
    /// Compiles `tests/c/SOURCE.c` in the lab as a library of this file name, in a directory of its
    /// own. Returns that directory's path in the lab, for [`LabCommand::libs`] or, with the file
    /// name, [`LabCommand::preload`].
    ///
    /// # Errors
    /// Returns what the compiler said.
    pub fn library(&self, source: &str, file: &str) -> Result<String> {
        let dir = self.root.join(OURS);
        let own = dir.join(format!("lib-{source}"));
        std::fs::create_dir_all(&own)?;
        self.sources()?;
        let root = self.root.to_str().ok_or("a path is text")?;
        let soname = format!("-Wl,-soname,{file}");
        compile::build(
            &["chroot", root, "gcc"],
            &dir.join("src").join(format!("{source}.c")),
            &own.join(file),
            &["-shared", "-fPIC", "-pthread", &soname],
            |path| self.inside(path),
        )?;
        std::fs::set_permissions(own.join(file), std::fs::Permissions::from_mode(0o755))?;
        self.inside(&own)
    }
    /// Copies the stage's programs and libraries into the lab and returns the directory's path
    /// there.
    ///
    /// # Errors
    /// Fails when the stage is not built or cannot be copied.
    pub fn stage(&self) -> Result<String> {
        let there = self.root.join(OURS).join("stage");
        for dir in ["bin", "lib", "lib/rocprofiler-sdk"] {
            let (from, to) = (crate::stage::stage()?.join(dir), there.join(dir));
            std::fs::create_dir_all(&to)?;
            for file in std::fs::read_dir(from)? {
                let file = file?.path();
                let to = to.join(file.file_name().ok_or("a file has a name")?);
                if let Ok(link) = std::fs::read_link(&file) {
                    if std::fs::read_link(&to).ok().as_ref() != Some(&link) {
                        let _ = std::fs::remove_file(&to);
                        std::os::unix::fs::symlink(link, &to)?;
                    }
                } else if file.is_file() {
                    put_copy(&to, &file)?;
                }
            }
        }
        self.inside(&there)
    }
    /// Writes the topology of another GPU (see [`LabCommand::gpu`]) and returns its path in the
    /// lab.
    fn topology(&self, units: &str) -> Result<String> {
        let there = self.scratch().join(format!("topology-{units}"));
        let mut command = Command::new("bash");
        command
            .arg(workspace().join("lab/topology.sh"))
            .arg(&there)
            .env_clear()
            .envs(plain_environment())
            .env("UNITS", units);
        crate::target::run(command, std::time::Duration::from_secs(30))?.success()?;
        self.inside(&there)
    }
    /// Copies `tests/c` into the lab.
    fn sources(&self) -> Result<PathBuf> {
        let sources = self.root.join(OURS).join("src");
        std::fs::create_dir_all(&sources)?;
        for file in std::fs::read_dir(compile::sources())? {
            let file = file?.path();
            put_file(
                &sources.join(file.file_name().ok_or("a file has a name")?),
                &std::fs::read(&file)?,
                0o644,
            )?;
        }
        Ok(sources)
    }
    /// Prepares a program of the lab, whose path is as seen there.
    pub fn run(&self, program: &str) -> LabCommand<'_> {
        LabCommand {
            lab: self,
            program: program.to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            model: GpuModel::Doorbell,
            register: true,
            libs: None,
            preload: Vec::new(),
            prefix: Vec::new(),
            launcher: Vec::new(),
            user: None,
            log: "model.log".to_owned(),
            gpu: None,
        }
    }
}

/// A program of the lab, not started yet.
pub struct LabCommand<'a> {
    lab: &'a Lab,
    program: String,
    args: Vec<String>,
    env: Vec<String>,
    model: GpuModel,
    register: bool,
    libs: Option<String>,
    preload: Vec<String>,
    prefix: Vec<String>,
    launcher: Vec<String>,
    user: Option<u32>,
    log: String,
    gpu: Option<String>,
}

impl LabCommand<'_> {
    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl ToString) -> Self {
        self.args.push(arg.to_string());
        self
    }
    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl ToString) -> Self {
        self.env.push(format!("{name}={}", value.to_string()));
        self
    }
    /// Chooses the model (default: ours, with doorbells).
    #[must_use]
    pub fn on(mut self, model: GpuModel) -> Self {
        self.model = model;
        self
    }
    /// Sets whether the runtimes register their tables, as AMD's builds do (default), or do not, as
    /// Debian's.
    #[must_use]
    pub fn register(mut self, register: bool) -> Self {
        self.register = register;
        self
    }
    /// Puts a directory (as seen in the lab) first in the search for libraries.
    #[must_use]
    pub fn libs(mut self, dir: &str) -> Self {
        self.libs = Some(dir.to_owned());
        self
    }
    /// Preloads a library (as seen in the lab).
    #[must_use]
    pub fn preload(mut self, library: &str) -> Self {
        self.preload.push(library.to_owned());
        self
    }
    /// Puts a command from outside of the lab before the chroot, such as
    /// `unshare --pid --fork --kill-child`.
    #[must_use]
    pub fn prefix(mut self, words: &[&str]) -> Self {
        self.prefix = words.iter().map(ToString::to_string).collect();
        self
    }
    /// Puts a command of the lab before the program, such as `/…/rocprofv3 --hip-trace --`.
    #[must_use]
    pub fn under(mut self, words: &[&str]) -> Self {
        self.launcher = words.iter().map(ToString::to_string).collect();
        self
    }
    /// Runs the program as another user, with the group of the same number.
    #[must_use]
    pub fn user(mut self, uid: u32) -> Self {
        self.user = Some(uid);
        self
    }
    /// Sets the name of the model's log, for a test that starts several programs (default
    /// `model.log`).
    #[must_use]
    pub fn log_name(mut self, name: &str) -> Self {
        self.log = name.to_owned();
        self
    }
    /// Runs the program on another GPU: `XCCS,ENGINES,COMPUTE_UNITS,ARRAYS` in the form of
    /// `MODEL_GPU`. The runtimes see the same GPU (default: the lab's, with one XCC).
    #[must_use]
    pub fn gpu(mut self, units: &str) -> Self {
        self.gpu = Some(units.to_owned());
        self.env("MODEL_GPU", units)
    }
    /// Starts the program.
    ///
    /// # Errors
    /// Fails when the model cannot be installed or the program cannot be started.
    pub fn spawn(self) -> Result<LabTarget> {
        let lab = self.lab;
        let log = lab.scratch().join(&self.log);
        let mut words = self.prefix;
        // The script makes a mount namespace of its own, so that nothing stays mounted.
        words.push("bash".into());
        let enter = workspace().join("lab/enter.sh");
        words.push(enter.to_str().ok_or("a path is text")?.into());
        words.extend(self.user.map(|uid| format!("--userspec={uid}:{uid}")));
        words.push(lab.root.to_str().ok_or("a path is text")?.into());
        words.push("/usr/bin/env".into());
        let topology = match &self.gpu {
            None => "/lab/topo".to_owned(),
            Some(units) => lab.topology(units)?,
        };
        words.push(format!("HSA_MODEL_TOPOLOGY={topology}"));
        words.extend(self.libs.map(|libs| format!("LD_LIBRARY_PATH={libs}")));
        match self.model {
            GpuModel::Lab => words.push("HSA_MODEL_LIB=/lab/libmodel.so".into()),
            ours => {
                words.push(format!("HSA_MODEL_LIB={}", lab.model()?));
                words.push(format!("MODEL_LOG={}", lab.inside(&log)?));
                if let GpuModel::Eager(seed) = ours {
                    words.extend(["MODEL_EAGER=1".to_owned(), format!("MODEL_SEED={seed}")]);
                }
            }
        }
        let mut preload = self.preload;
        if self.register {
            words.push("HSA_TOOLS_LIB=/lab/libregshim.so".into());
            preload.push("/lab/libregshim.so".into());
        } else {
            // This library only corrects the modelled GPU's clocks.
            words.push("HSA_TOOLS_LIB=/lab/libclock.so".into());
        }
        if !preload.is_empty() {
            words.push(format!("LD_PRELOAD={}", preload.join(":")));
        }
        words.extend(self.env);
        words.extend(self.launcher);
        words.push(self.program);
        words.extend(self.args);
        let (first, rest) = words.split_first().ok_or("a command has a name")?;
        let mut command = Command::new(first);
        command.args(rest).env_clear().envs(plain_environment());
        Ok(LabTarget {
            target: Target::spawn(command)?,
            log,
        })
    }
}

/// A program that runs in the lab, with the log of its GPU.
pub struct LabTarget {
    /// The process.
    pub target: Target,
    /// The path of the model's log outside of the lab.
    pub log: PathBuf,
}

impl LabTarget {
    /// Returns the model's log so far. It is complete at any time: the model writes a record before
    /// the completion of the packet can be seen.
    ///
    /// # Errors
    /// Fails when the log cannot be read.
    pub fn model_log(&self) -> Result<ModelLog> {
        ModelLog::read(&self.log)
    }
}

impl std::ops::Deref for LabTarget {
    type Target = Target;
    fn deref(&self) -> &Target {
        &self.target
    }
}

impl std::ops::DerefMut for LabTarget {
    fn deref_mut(&mut self) -> &mut Target {
        &mut self.target
    }
}
