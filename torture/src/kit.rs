//! What all cells share: compiled programs, a scratch directory, and the number of cycles.

use midair_tests::Result;
use midair_tests::stage::plain_environment;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// How much work is asked for.
#[derive(Debug, Clone)]
pub struct Amount {
    /// Cycles per cell.
    pub cycles: u64,
    /// Cycles of row 13.
    pub many: u64,
    /// Cycles of row 24.
    pub churn: u64,
    /// Starts of programs in a cell of row 25.
    pub starts: u64,
    /// Cycles of each of the other attach methods in a cell.
    pub others: u64,
    /// Whether this is the quick form, in which the other attach methods and the long drivers are
    /// not run.
    pub quick: bool,
}

/// The compiled programs and the directories.
pub struct Kit {
    programs: PathBuf,
    scratch: tempfile::TempDir,
    count: AtomicU32,
    /// How much work is asked for.
    pub amount: Amount,
}

impl Kit {
    /// Compiles what is needed, into a directory next to this program.
    ///
    /// # Errors
    /// Returns what the compiler said.
    pub fn new(amount: Amount) -> Result<Kit> {
        let own = std::env::current_exe()?;
        let programs = own.parent().ok_or("a program has a directory")?;
        let programs = programs.join("torture-programs");
        std::fs::create_dir_all(&programs)?;
        let scratch = tempfile::Builder::new().prefix("torture-").tempdir()?;
        // Targets of other users write their state there and load libraries from there.
        open_to_all(scratch.path())?;
        let kit = Kit {
            programs,
            scratch,
            count: AtomicU32::new(0),
            amount,
        };
        kit.compile(TARGET_SOURCES, "target", TARGET_FLAGS)?;
        kit.compile(&["probe.c"], "probe.so", LIBRARY_FLAGS)?;
        kit.compile(&["small.c"], "small.so", LIBRARY_FLAGS)?;
        Ok(kit)
    }

    /// Compiles sources of `torture/c` to `name` in the directory of programs.
    ///
    /// # Errors
    /// Returns what the compiler said.
    pub fn compile(&self, sources: &[&str], name: &str, flags: &[&str]) -> Result<PathBuf> {
        self.compile_by("cc", sources, name, flags)
    }

    /// Does the same with another compiler.
    ///
    /// # Errors
    /// Fails as [`Kit::compile`] does.
    pub fn compile_by(
        &self,
        compiler: &str,
        sources: &[&str],
        name: &str,
        flags: &[&str],
    ) -> Result<PathBuf> {
        let out = self.programs.join(name);
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("c");
        let sources: Vec<PathBuf> = sources.iter().map(|source| dir.join(source)).collect();
        let changed = |path: &Path| path.metadata().and_then(|meta| meta.modified()).ok();
        let headers = ["state.h", "work.h"].map(|header| dir.join(header));
        let newest = sources
            .iter()
            .chain(&headers)
            .filter_map(|path| changed(path))
            .max();
        if out.exists() && changed(&out) > newest {
            return Ok(out);
        }
        // Several of our processes may do so at once, so each makes a file of its own and renames
        // it.
        let fresh = out.with_extension(format!("new{}", std::process::id()));
        let done = Command::new(compiler)
            .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&fresh)
            .args(&sources)
            .args(flags)
            .output()
            .map_err(|error| format!("{compiler}: {error}"))?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            return Err(format!("compiling {name}: {said}").into());
        }
        std::fs::rename(&fresh, &out)?;
        Ok(out)
    }

    /// Returns the path of a compiled program or library.
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// Returns the bytes of the probe library.
    ///
    /// # Errors
    /// Fails when the file cannot be read.
    pub fn probe(&self) -> Result<Vec<u8>> {
        Ok(std::fs::read(self.program("probe.so"))?)
    }

    /// Returns a path in the scratch directory that no caller has used yet.
    pub fn fresh(&self, name: &str) -> PathBuf {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        self.scratch.path().join(format!("{number}-{name}"))
    }

    /// Returns the path of a file in `torture/targets`.
    pub fn script(&self, name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("targets")
            .join(name)
    }

    /// Returns the directory of the compiled programs.
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// Returns the scratch directory.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Prepares a program that gets nothing of our environment except the place of the small
    /// library. If it crashes, what it leaves behind is removed with the scratch directory.
    pub fn clean(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.scratch.path())
            .env_clear()
            .envs(plain_environment())
            .env("SMALL", self.program("small.so"));
        command
    }
}

/// Lets everybody into a midair directory.
///
/// # Errors
/// Fails when the directory is not ours.
pub fn open_to_all(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777))?;
    Ok(())
}

/// The sources of the target.
pub const TARGET_SOURCES: &[&str] = &["target.c", "busy.c", "calls.c", "ring.c", "disk.c", "amd.c"];
const TARGET_FLAGS: &[&str] = &["-pthread", "-rdynamic", "-ldl"];
/// Flags for linking a library that targets load. It has no Build-ID, because otherwise a copy that
/// is already loaded could be taken for this one. Each cycle must bring in a fresh library.
pub const LIBRARY_FLAGS: &[&str] = &["-shared", "-fPIC", "-Wl,--build-id=none"];

/// Returns the path of an installed program, if there is one.
pub fn installed(name: &str) -> Option<PathBuf> {
    let dirs = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"];
    let found = dirs.iter().map(|dir| Path::new(dir).join(name));
    found.into_iter().find(|path| path.is_file())
}

/// Returns the first of these files that exists.
pub fn first_of(paths: &[&str]) -> Option<PathBuf> {
    paths.iter().map(PathBuf::from).find(|path| path.exists())
}

/// Where Debian has the libraries for this machine type.
const LIBRARIES: &str = if cfg!(target_arch = "aarch64") {
    "/usr/lib/aarch64-linux-gnu"
} else {
    "/usr/lib/x86_64-linux-gnu"
};

/// Returns the path of a library of Debian's, if it is installed.
pub fn debian_library(name: &str) -> Option<PathBuf> {
    let path = Path::new(LIBRARIES).join(name);
    path.exists().then_some(path)
}
