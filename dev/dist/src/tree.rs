//! Directories of files, and archives of them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Release;
use midair_dev_kit::run::{At, Outcome, run};
use midair_dev_stage::layout::DEMO;

/// The tarball: an installation that is unpacked anywhere, laid out as ROCm's prefix is.
pub fn tarball(release: &Release) -> Outcome<Vec<PathBuf>> {
    let name = format!("midair-{}-{}-linux", release.version, release.machine);
    let parent = release.work.join("tarball");
    anew(&parent)?;
    copy(&release.prefix, &parent.join(&name), &mut |_| true)?;
    let to = release.to.join(format!("{name}.tar.gz"));
    pack(&parent, &to, release.time)?;
    Ok(vec![to])
}

/// Makes a compressed archive of what is below the directory, with nothing of this machine in it.
pub fn pack(directory: &Path, to: &Path, time: u64) -> Outcome<()> {
    archive(directory, to, time, &["--use-compress-program=gzip -n -9"])
}

/// As [`pack`], not compressed.
pub fn pack_plain(directory: &Path, to: &Path, time: u64) -> Outcome<()> {
    archive(directory, to, time, &[])
}

fn archive(directory: &Path, to: &Path, time: u64, words: &[&str]) -> Outcome<()> {
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
        .args(["--mode=go=rX,u+rw,a-s", "--format=gnu"])
        .arg(format!("--mtime=@{time}"))
        .args(words)
        .arg("--directory")
        .arg(directory)
        .arg("--create")
        .arg("--file")
        .arg(to)
        .arg(".");
    run(&mut tar)
}

/// An empty directory.
pub fn anew(directory: &Path) -> Outcome<()> {
    if directory.exists() {
        fs::remove_dir_all(directory).at("removing", directory)?;
    }
    fs::create_dir_all(directory).at("making", directory)
}

/// Copies what `wanted` says yes to, given its path below `from`. Directories are made where there is
/// something in them.
pub fn copy(from: &Path, to: &Path, wanted: &mut dyn FnMut(&str) -> bool) -> Outcome<()> {
    copy_below(from, Path::new(""), to, wanted)
}

fn copy_below(
    top: &Path,
    below: &Path,
    to: &Path,
    wanted: &mut dyn FnMut(&str) -> bool,
) -> Outcome<()> {
    let directory = top.join(below);
    let entries = fs::read_dir(&directory).at("listing", &directory)?;
    for entry in entries.filter_map(Result::ok) {
        let name = below.join(entry.file_name());
        let (source, target) = (top.join(&name), to.join(&name));
        let kind = entry.file_type().at("looking at", &source)?;
        if kind.is_dir() {
            copy_below(top, &name, to, wanted)?;
            continue;
        }
        if !wanted(&name.to_string_lossy()) {
            continue;
        }
        make_parent(&target)?;
        if kind.is_symlink() {
            let link = fs::read_link(&source).at("reading", &source)?;
            symlink(link, &target).at("writing", &target)?;
        } else {
            fs::copy(&source, &target).at("copying", &source)?;
            let mode = if is_executable(&source)? {
                0o755
            } else {
                0o644
            };
            fs::set_permissions(&target, fs::Permissions::from_mode(mode))
                .at("writing", &target)?;
        }
    }
    Ok(())
}

/// Replaces a file by a link to another.
pub fn link(to: &str, file: &Path) -> Outcome<()> {
    if file.symlink_metadata().is_ok() {
        fs::remove_file(file).at("removing", file)?;
    }
    symlink(to, file).at("writing", file)
}

/// Makes the directory of this file.
pub fn make_parent(file: &Path) -> Outcome<()> {
    let parent = file.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(parent).at("making", parent)
}

/// Whether a file is to be run or loaded.
pub fn is_executable(file: &Path) -> Outcome<bool> {
    let found = fs::metadata(file).at("looking at", file)?;
    Ok(found.permissions().mode() & 0o111 != 0)
}

/// Copies all, without what programs and libraries have for debuggers. `strip` is the one of their machine.
pub fn copy_stripped(from: &Path, to: &Path, strip: &str) -> Outcome<()> {
    let mut objects = Vec::new();
    copy(from, to, &mut |name| {
        if name.starts_with("bin/")
            || name.contains(".so")
            || name.starts_with("lib/rocprofiler-sdk/")
            || name.starts_with(DEMO)
        {
            objects.push(to.join(name));
        }
        true
    })?;
    for object in objects {
        let kind = fs::symlink_metadata(&object).at("looking at", &object)?;
        let bytes = fs::read(&object).at("reading", &object)?;
        if kind.is_file() && bytes.starts_with(b"\x7fELF") {
            run(Command::new(strip).arg("--strip-unneeded").arg(&object))?;
        }
    }
    Ok(())
}
