//! AMD's own headers of rocprofiler-sdk and ROCTx, with the HIP and HSA headers that they need, for
//! a test that compares ours with them.
//!
//! They are taken from a Python package that carries them and are never committed or shipped. The
//! package is large, so what is needed is kept and the rest removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::python;
use crate::run::{At, Failure, Outcome, failed, run, target_directory};

/// The package, its version and the checksum of the one file of it that is taken, whatever Python runs here.
const PACKAGE: &str = "triton==3.9.0 --hash=sha256:1622118a038b0c6e16fa4a0305da62c8b3c15904ee1cc4d4e65846a25969e41e\n";
const FILE: &[&str] = &[
    "--no-deps",
    "--only-binary=:all:",
    "--platform=manylinux_2_28_x86_64",
    "--python-version=311",
    "--implementation=cp",
    "--abi=cp311",
];
/// Unpacks the headers of a wheel, without the directories above them.
const UNPACK: &str = "import sys, zipfile, os\n\
    wheel, to = sys.argv[1:]\n\
    at = 'triton/backends/amd/include/'\n\
    with zipfile.ZipFile(wheel) as found:\n\
    \x20   for name in found.namelist():\n\
    \x20       if name.startswith(at) and not name.endswith('/') and '..' not in name:\n\
    \x20           path = os.path.join(to, name[len(at):])\n\
    \x20           os.makedirs(os.path.dirname(path), exist_ok=True)\n\
    \x20           open(path, 'wb').write(found.read(name))\n";
/// Holds what the directory was made from. Written last.
const STAMP: &str = "made-from";

/// `cargo xtask amd-headers`.
pub fn amd_headers_task(words: &[String]) -> Outcome<()> {
    if !words.is_empty() {
        return failed("takes no arguments");
    }
    println!("ready: {}", ready()?.display());
    Ok(())
}

/// The directory, whether it is ready or not.
pub fn directory() -> PathBuf {
    target_directory().join("amd-headers")
}

/// Whether doing without them is a failure.
pub fn is_demanded() -> bool {
    std::env::var_os("MIDAIR_AMD_HEADERS").is_some_and(|value| value == "1")
}

/// The directory, made if it has to be.
pub fn ready() -> Outcome<PathBuf> {
    let directory = directory();
    let stamp = directory.join(STAMP);
    if fs::read_to_string(&stamp).is_ok_and(|found| found == PACKAGE) {
        return Ok(directory);
    }
    let python = python::ready()?.join("bin/python");
    if directory.exists() {
        fs::remove_dir_all(&directory).at("removing", &directory)?;
    }
    fs::create_dir_all(&directory).at("making", &directory)?;
    println!(
        "making {} (285 MB from PyPI, most of it not kept)",
        directory.display()
    );
    let result = take(&python, &directory);
    // The wheel is of no use any more, whatever came of it.
    for wheel in wheels(&directory) {
        let _ = fs::remove_file(wheel);
    }
    result.map_err(|failure| Failure(format!("AMD's headers could not be had: {failure}")))?;
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
        .arg(directory))?;
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
