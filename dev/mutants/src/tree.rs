//! A copy of the project's files in which mutants are made. It is kept between runs. An unchanged
//! file keeps its time, so that cargo does not build anything again for it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use midair_dev_kit::run::{At, Outcome, output};

/// Makes `to` have the files that git knows or would add, and no others.
pub fn mirror(from: &Path, to: &Path) -> Outcome<()> {
    let listed = output(Command::new("git").current_dir(from).args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]))?;
    let names: BTreeSet<PathBuf> = listed
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| PathBuf::from(std::ffi::OsStr::from_bytes(name)))
        // A file that was deleted without a commit is left out.
        .filter(|name| from.join(name).symlink_metadata().is_ok())
        .collect();
    fs::create_dir_all(to).at("making", to)?;
    remove_others(to, Path::new(""), &names)?;
    for name in &names {
        copy(&from.join(name), &to.join(name))?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Outcome<()> {
    if let Some(above) = to.parent() {
        fs::create_dir_all(above).at("making", above)?;
    }
    if let Ok(link) = fs::read_link(from) {
        let _ = fs::remove_file(to);
        return std::os::unix::fs::symlink(link, to).at("linking", to);
    }
    let bytes = fs::read(from).at("reading", from)?;
    if fs::read(to).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    fs::copy(from, to).map(drop).at("copying", from)
}

fn remove_others(to: &Path, below: &Path, names: &BTreeSet<PathBuf>) -> Outcome<()> {
    let directory = to.join(below);
    for entry in fs::read_dir(&directory)
        .at("listing", &directory)?
        .flatten()
    {
        let name = below.join(entry.file_name());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_others(to, &name, names)?;
        } else if !names.contains(&name) {
            let path = to.join(&name);
            fs::remove_file(&path).at("removing", &path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_follows_and_leaves_what_is_equal_alone() {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        fs::create_dir_all(from.join("src")).unwrap();
        let git = Command::new("git")
            .arg("init")
            .arg("-q")
            .arg(&from)
            .status();
        assert!(git.unwrap().success());
        let write = |name: &str, text: &str| fs::write(from.join(name), text).unwrap();
        write("src/a.rs", "a");
        write("src/b.rs", "b");
        write(".gitignore", "out\n");
        write("out", "not copied");
        mirror(&from, &to).unwrap();
        assert!(!to.join("out").exists());
        let time = |name: &str| fs::metadata(to.join(name)).unwrap().modified().unwrap();
        let before = time("src/b.rs");
        write("src/a.rs", "changed");
        fs::remove_file(from.join(".gitignore")).unwrap();
        fs::remove_file(from.join("out")).unwrap();
        // This stands for a mutant that was not undone.
        fs::write(to.join("src/c.rs"), "c").unwrap();
        mirror(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("src/a.rs")).unwrap(), "changed");
        assert_eq!(time("src/b.rs"), before);
        assert!(!to.join("src/c.rs").exists() && !to.join(".gitignore").exists());
    }
}
