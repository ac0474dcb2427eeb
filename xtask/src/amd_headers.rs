//! Fetches Triton, whose profiler Proton is a client of our SDK in the tests. It also fetches AMD's
//! own headers of rocprofiler-sdk and ROCTx, with the HIP and HSA headers that they need, for a
//! test that compares ours with them.
//!
//! Both come from one Python package, which has the headers in it. They are never committed or
//! shipped. The package is large, so only what is needed is kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::python;
use midair_dev_kit::run::{At, Failure, Outcome, failed, run, target_directory};

/// The package, its version and the checksum of the one file of it that is taken, whatever Python
/// runs here. Every Python since 3.12 can import it, such as the lab's.
const PACKAGE: &str = "triton==3.9.0 --hash=sha256:5e52ab4e2f1d64f0ac494c9aa723697b793f81a91c4cae4c36608ca0bc4267bf\n";
const FILE: &[&str] = &[
    "--no-deps",
    "--only-binary=:all:",
    "--platform=manylinux_2_28_x86_64",
    "--python-version=312",
    "--implementation=cp",
    "--abi=abi3",
];
/// Unpacks a wheel. The headers lose the directories above them, and the rest stays as it is. What
/// is only for NVIDIA's GPUs or for developers of Triton is left out.
const UNPACK: &str = r#"
import os, sys, zipfile
wheel, headers, package = sys.argv[1:]
at = 'triton/backends/amd/include/'
unused = ('triton/plugins/', 'triton/FileCheck')
def is_unused(name):
    return name.startswith(unused) or name.startswith('triton/backends/nvidia/') and not name.endswith(('.py', '.c'))
def put(path, bytes):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, 'wb').write(bytes)
with zipfile.ZipFile(wheel) as found:
    for name in found.namelist():
        if name.endswith('/') or '..' in name or is_unused(name):
            continue
        bytes = found.read(name)
        put(os.path.join(package, name), bytes)
        if name.startswith(at):
            put(os.path.join(headers, name[len(at):]), bytes)
"#;
/// The largest libraries of the package.
const LIBRARIES: [&str; 2] = [
    "triton/_C/libtriton.so",
    "triton/backends/amd/lib/libtriton_amd_codegen.so",
];
/// The file that says what the directory was made from. It is written last.
const STAMP: &str = "made-from";

/// Runs `cargo xtask amd-headers`.
pub fn amd_headers_task(words: &[String]) -> Outcome<()> {
    if !words.is_empty() {
        return failed("takes no arguments");
    }
    println!("ready: {}", ready()?.display());
    Ok(())
}

/// Returns the directory, whether it is ready or not.
pub fn directory() -> PathBuf {
    target_directory().join("amd-headers")
}

/// Returns the directory of the package, from which Python imports it.
pub fn package_directory() -> PathBuf {
    target_directory().join("triton")
}

/// Returns whether it is a failure if they are missing.
pub fn is_demanded() -> bool {
    std::env::var_os("MIDAIR_AMD_HEADERS").is_some_and(|value| value == "1")
}

/// Returns the directory, and makes it if necessary.
pub fn ready() -> Outcome<PathBuf> {
    let directory = directory();
    let stamp = directory.join(STAMP);
    let package = package_directory();
    if fs::read_to_string(&stamp).is_ok_and(|found| found == PACKAGE) && package.exists() {
        return Ok(directory);
    }
    let python = python::ready()?.join("bin/python");
    for old in [&directory, &package] {
        if old.exists() {
            fs::remove_dir_all(old).at("removing", old)?;
        }
    }
    fs::create_dir_all(&directory).at("making", &directory)?;
    println!(
        "making {} and {} (285 MB from PyPI)",
        directory.display(),
        package.display()
    );
    let result = take(&python, &directory);
    // Whatever the outcome, the wheel is of no use any more.
    for wheel in wheels(&directory) {
        let _ = fs::remove_file(wheel);
    }
    result.map_err(|failure| {
        Failure(format!(
            "AMD's headers and Triton could not be had: {failure}"
        ))
    })?;
    fs::write(&stamp, PACKAGE).at("writing", &stamp)?;
    Ok(directory)
}

fn take(python: &Path, directory: &Path) -> Outcome<()> {
    let list = directory.join("package.txt");
    fs::write(&list, PACKAGE).at("writing", &list)?;
    run(Command::new(python)
        .args([
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
        ])
        .args(["--require-hashes", "--requirement"])
        .arg(&list)
        .args(FILE)
        .arg("--dest")
        .arg(directory))?;
    let found = wheels(directory);
    let [wheel] = found.as_slice() else {
        return failed(format!("pip left {} wheels", found.len()));
    };
    run(Command::new(python)
        .args(["-c", UNPACK])
        .arg(wheel)
        .args([directory, &package_directory()]))?;
    // Debug information is more than half of them.
    let libraries = LIBRARIES.map(|path| package_directory().join(path));
    run(Command::new("strip")
        .arg("--strip-unneeded")
        .args(libraries))?;
    if directory.join("rocprofiler-sdk/fwd.h").is_file() {
        Ok(())
    } else {
        failed("the package has no rocprofiler-sdk/fwd.h")
    }
}

fn wheels(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .collect()
}
