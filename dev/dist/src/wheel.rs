//! The Python wheel: `pip install` gives the programs, and the packages `midair`, `rocprof_attach` and `rocpd`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::package::PACKAGES;
use super::{Release, glibc, tree};
use midair_dev_kit::run::{At, Failure, Outcome, failed, root};

/// Writes the archive, with Python's own library for it: whoever has no Python needs no wheel.
const WRITER: &str = include_str!("wheel.py");
/// Where an installation lies in it.
const PREFIX: &str = "midair/_prefix";

/// Makes it.
pub fn make(release: &Release) -> Outcome<Vec<PathBuf>> {
    let (major, minor) = glibc::needed(&release.prefix)?;
    let tag = format!("py3-none-manylinux_{major}_{minor}_{}", release.machine);
    let to = release
        .to
        .join(format!("midair-{}-{tag}.whl", release.version));
    let mut list = String::new();
    for (place, source) in files(release)? {
        list.push_str(&format!("{place}\t{}\n", source.display()));
    }
    let mut python = Command::new("python3");
    python
        .args(["-c", WRITER])
        .arg(&to)
        .args([&release.version, &tag, &release.time.to_string()])
        .arg(PACKAGES[0].summary)
        .arg(root().join("README.md"))
        .stdin(Stdio::piped());
    let gone = |why: std::io::Error| Failure(format!("python3: {why}"));
    let mut child = python.spawn().map_err(gone)?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(list.as_bytes()).map_err(gone)?;
    }
    match child.wait().map_err(gone)? {
        status if status.success() => Ok(vec![to]),
        status => failed(format!("the wheel's writer: {status}")),
    }
}

/// Each file's place in the wheel, and where it comes from.
fn files(release: &Release) -> Outcome<Vec<(String, PathBuf)>> {
    let mut files = Vec::new();
    tree::copy(&release.prefix, Path::new("/nowhere"), &mut |file| {
        // No headers, and none of the links that they are for: a wheel has no links.
        let runs = file.starts_with("bin/") || file.starts_with("lib/");
        // The library for C programs is linked against a header.
        let builds = ["lib/cmake/", "lib/pkgconfig/", "lib/libmidair.so"]
            .iter()
            .any(|start| file.starts_with(start));
        let source = release.prefix.join(file);
        // `bin/midair` is the same program: the tool starts it by that name.
        let is_there_already = file.ends_with("/midair-collector");
        // A server is installed for a machine, not into an environment of Python's.
        let serves = file.ends_with("/midair-serve");
        if runs && !builds && !is_there_already && !serves && !source.is_symlink() {
            files.push((format!("{PREFIX}/{file}"), source));
        }
        false
    })?;
    let python = root().join("python");
    files.push((
        "midair/_programs.py".to_owned(),
        python.join("midair_programs.py"),
    ));
    files.push((
        "rocprof_attach/__init__.py".to_owned(),
        python.join("rocprof_attach_wheel.py"),
    ));
    files.push((
        "rocprof_attach/__main__.py".to_owned(),
        python.join("rocprof_attach_main.py"),
    ));
    for file in [
        "rocpd/__init__.py",
        "rocpd/__main__.py",
        "rocpd/importer.py",
        "rocpd/output_config.py",
    ] {
        files.push((file.to_owned(), python.join(file)));
    }
    let package = python.join("midair");
    if package.is_dir() {
        tree::copy(&package, Path::new("/nowhere"), &mut |file| {
            if !file.contains("__pycache__") {
                files.push((format!("midair/{file}"), package.join(file)));
            }
            false
        })?;
    } else {
        let empty = release.work.join("__init__.py");
        let text = "\"\"\"A GPU profiler that attaches to running processes.\"\"\"\n";
        std::fs::write(&empty, text).at("writing", &empty)?;
        files.push(("midair/__init__.py".to_owned(), empty));
    }
    Ok(files)
}
