//! Lays the stand-in runtimes (`sim/hsa`, `sim/hip`) out as a program finds AMD's: the libraries
//! under their names in one directory, the driver's topology as files, and a workload that is
//! compiled against them. It is for `midair demo`, which installs them in a directory of its own,
//! and for tests.

pub mod made_from;
mod topology;

pub use topology::{GPUS, write_topology};

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The libraries: their names for cargo, and their SONAMEs.
pub const LIBRARIES: [(&str, &str); 2] = [
    ("libmidair_sim_hsa.so", "libhsa-runtime64.so.1"),
    ("libmidair_sim_hip.so", "libamdhip64.so.7"),
];

/// A directory with everything that a program needs to run.
#[derive(Debug, Clone)]
pub struct StandIn {
    dir: PathBuf,
}

impl StandIn {
    /// Fills `dir` from cargo's output directory `built`. A library that is already right is left
    /// alone. Another one is replaced by a rename, so that a process which has the old one mapped
    /// keeps it.
    ///
    /// # Errors
    /// Fails when something is not there or cannot be written.
    pub fn lay_out(built: &Path, dir: &Path) -> io::Result<StandIn> {
        std::fs::create_dir_all(dir)?;
        for (from, to) in LIBRARIES {
            let from = built.join(from);
            let bytes = std::fs::read(&from).map_err(|error| named(error, &from))?;
            let to = dir.join(to);
            if std::fs::read(&to).is_ok_and(|there| there == bytes) {
                continue;
            }
            let fresh = to.with_extension(format!("new{}", std::process::id()));
            std::fs::write(&fresh, bytes)?;
            std::fs::rename(&fresh, &to)?;
        }
        write_topology(&dir.join("topology"))?;
        let dir = dir.canonicalize()?;
        Ok(StandIn { dir })
    }

    /// Returns the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns arguments for gcc, to follow the sources. They link with the libraries, and make the
    /// program find these at run time without any variable.
    pub fn link_arguments(&self) -> Vec<String> {
        let dir = self.dir.display();
        [
            format!("-L{dir}"),
            format!("-Wl,-rpath,{dir}"),
            "-Wl,--no-as-needed".to_owned(),
            "-l:libamdhip64.so.7".to_owned(),
            "-l:libhsa-runtime64.so.1".to_owned(),
            "-pthread".to_owned(),
        ]
        .into()
    }

    /// Returns the variable that a program needs in its environment.
    pub fn environment(&self) -> (&'static str, PathBuf) {
        ("HSA_MODEL_TOPOLOGY", self.dir.join("topology"))
    }

    /// Compiles the demo's workload with this compiler. The program names no directory of this
    /// machine. So `LD_LIBRARY_PATH` must say where the runtimes are when it is started.
    ///
    /// # Errors
    /// Fails when the compiler is not there or reports an error, with its words.
    pub fn workload(&self, compiler: &str) -> io::Result<PathBuf> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/workload.c");
        let program = self.dir.join("workload");
        let fresh = self.dir.join(format!("workload.new{}", std::process::id()));
        let here = self
            .link_arguments()
            .into_iter()
            .filter(|word| !word.contains("rpath"));
        let output = Command::new(compiler)
            .args(["-O1", "-Wall", "-Wextra", "-pie", "-fPIE"])
            .args(["-Wl,-z,now,-z,relro,-z,noexecstack", "-o"])
            .args([&fresh, &source])
            .args(here)
            .output()
            .map_err(|error| named(error, Path::new(compiler)))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let status = output.status;
            return Err(io::Error::other(format!("{compiler}: {status}: {said}")));
        }
        std::fs::rename(&fresh, &program)?;
        Ok(program)
    }
}

fn named(error: io::Error, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
