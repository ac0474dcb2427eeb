//! Builds the stand-ins and lays out directories as an installation has them.

pub mod attacher;
pub mod elf;
pub mod root;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The library under test, as cargo built it for this test run.
pub fn built() -> PathBuf {
    library("librocprofiler_register.so")
}

/// The modelled GPU, as ROCr loads it.
pub fn gpu_model() -> PathBuf {
    library("libmidair_gpu_model.so")
}

fn library(name: &str) -> PathBuf {
    let mut folder = std::env::current_exe().unwrap();
    folder.pop();
    let path = folder.join(name);
    assert!(path.is_file(), "cargo did not build {}", path.display());
    path
}

/// The project's headers.
pub fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../include")
        .canonicalize()
        .unwrap()
}

/// Runs a compiler, and shows its messages when it fails.
pub fn compile(arguments: &[&str]) {
    let out = Command::new("cc")
        .args([
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wno-nonnull",
            "-O1",
            "-pthread",
        ])
        .arg(format!("-I{}", include().display()))
        .args(arguments)
        .output()
        .expect("a C compiler (cc) is needed");
    assert!(
        out.status.success(),
        "cc {arguments:?}:\n{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

/// Path of a C source of these tests.
pub fn source(name: &str) -> String {
    format!("{}/tests/c/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A directory with the library under its real name and a program that links it.
pub struct Home {
    folder: tempfile::TempDir,
}

/// The program, compiled once per process.
static HOST: OnceLock<Vec<u8>> = OnceLock::new();

impl Home {
    /// The library and the program only.
    pub fn new() -> Home {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("librocprofiler-register.so.0");
        std::fs::copy(built(), &library).unwrap();
        let host = folder.path().join("host");
        let bytes = HOST.get_or_init(|| {
            compile(&[
                "-o",
                host.to_str().unwrap(),
                &source("host.c"),
                library.to_str().unwrap(),
                "-Wl,-rpath,$ORIGIN",
                "-ldl",
            ]);
            std::fs::read(&host).unwrap()
        });
        if !host.exists() {
            std::fs::write(&host, bytes).unwrap();
            std::fs::set_permissions(&host, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        Home { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Adds a shared library made of one of the sources.
    pub fn with(self, name: &str, from: &str, defines: &[&str]) -> Home {
        let to = self.path(name);
        let register = self.path("librocprofiler-register.so.0");
        let from = source(from);
        let mut arguments = vec!["-shared", "-fPIC", "-o", to.to_str().unwrap(), &from];
        arguments.extend(defines);
        arguments.push(register.to_str().unwrap());
        compile(&arguments);
        self
    }

    /// Runs the program with these arguments, and returns what it printed. It must exit with 0.
    pub fn run(&self, variables: &[(&str, &str)], words: &[&str]) -> Vec<String> {
        let (lines, _) = self.run_with_errors(variables, words);
        lines
    }

    /// As [`Home::run`]; returns standard error as well.
    pub fn run_with_errors(
        &self,
        variables: &[(&str, &str)],
        words: &[&str],
    ) -> (Vec<String>, String) {
        self.run_in(self.folder.path(), variables, words)
    }

    /// As [`Home::run_with_errors`], with this working directory.
    pub fn run_in(
        &self,
        directory: &Path,
        variables: &[(&str, &str)],
        words: &[&str],
    ) -> (Vec<String>, String) {
        let out = Command::new("timeout")
            .args(["-s", "KILL", "60"])
            .arg(self.path("host"))
            .args(words)
            .env_clear()
            .env("LD_LIBRARY_PATH", self.folder.path())
            .envs(variables.iter().copied())
            .current_dir(directory)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&out.stderr).into_owned();
        let lines: Vec<String> = String::from_utf8_lossy(&out.stdout)
            .lines()
            .map(str::to_owned)
            .collect();
        assert!(
            out.status.success(),
            "{words:?} ended with {}:\n{lines:#?}\n{errors}",
            out.status
        );
        (lines, errors)
    }
}
