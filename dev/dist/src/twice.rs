//! `--twice`: the same commit compiled once more, in a clone in another directory. Every product must have
//! the same bytes.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::git;
use midair_dev_kit::run::{At, Outcome, cargo, failed, output, root, run};

/// Fails where the clone would lack something: it has what is committed.
pub fn is_committed() -> Outcome<()> {
    let changed = output(git(&["status", "--porcelain"]))?;
    match changed.is_empty() {
        true => Ok(()),
        false => failed(format!(
            "--twice compares compilations of a commit, and this is not committed:\n{}",
            String::from_utf8_lossy(&changed).trim_end()
        )),
    }
}

/// Clones, compiles and packs again by the clone's own task with these words, and compares what came out
/// with these files. The clone stays where they differ.
pub fn compare(work: &Path, words: &[&str], made: &[PathBuf]) -> Outcome<()> {
    // Of another length, since offsets would follow a path that is written somewhere.
    let clone = work.join("twice/in-another-directory");
    if clone.exists() {
        std::fs::remove_dir_all(&clone).at("removing", &clone)?;
    }
    let mut git_clone = Command::new("git");
    run(git_clone.args(["clone", "--quiet"]).arg(root()).arg(&clone))?;
    let revision = output(git(&["rev-parse", "HEAD"]))?;
    let revision = String::from_utf8_lossy(&revision);
    let mut checkout = Command::new("git");
    run(checkout
        .arg("-C")
        .arg(&clone)
        .args(["checkout", "--quiet", "--detach", revision.trim()]))?;
    println!("once more, in {}", clone.display());
    let mut again = cargo(&["xtask", "dist"]);
    again
        .arg("--to")
        .arg(clone.join("dist"))
        .args(words)
        .current_dir(&clone)
        .env_remove("CARGO_TARGET_DIR");
    run(&mut again)?;
    let others = differing(made, &clone.join("dist"))?;
    if !others.is_empty() {
        return failed(format!(
            "two compilations of one commit differ in {}; the second is in {}",
            others.join(", "),
            clone.display()
        ));
    }
    println!("{} files have equal bytes", made.len());
    std::fs::remove_dir_all(&clone).at("removing", &clone)
}

/// The names of the files that are missing in the other directory, or not the same there.
fn differing(made: &[PathBuf], other: &Path) -> Outcome<Vec<String>> {
    let mut names = Vec::new();
    for file in made {
        let name = file.file_name().unwrap_or_default();
        let bytes = std::fs::read(file).at("reading", file)?;
        if std::fs::read(other.join(name)).ok().as_ref() != Some(&bytes) {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_missing_or_other_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let other = directory.path().join("other");
        std::fs::create_dir(&other).unwrap();
        let file = |name: &str, text: &str, text_there: Option<&str>| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            if let Some(text) = text_there {
                std::fs::write(other.join(name), text).unwrap();
            }
            path
        };
        let made = [
            file("same", "a", Some("a")),
            file("changed", "a", Some("b")),
            file("gone", "a", None),
        ];
        assert_eq!(differing(&made, &other).unwrap(), ["changed", "gone"]);
        assert!(differing(&made[..1], &other).unwrap().is_empty());
    }
}
