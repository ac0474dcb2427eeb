//! Sets up AMD's own runtimes on a modelled GPU: a Debian root directory with AMD's unmodified
//! packages (see lab/).

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::demo;
use midair_dev_kit::run::{At, Outcome, cargo, failed, is_root, root, run, target_directory};

/// The path of the root directory when MIDAIR_LAB does not give one.
const DEFAULT_ROOT: &str = "/var/tmp/rocm-lab";

/// Runs `cargo xtask lab`.
pub fn lab_task(words: &[String]) -> Outcome<()> {
    match words
        .split_first()
        .map(|(first, rest)| (first.as_str(), rest))
    {
        None => demo::on_amds_runtimes(),
        Some(("setup", [])) => {
            let lab = ready()?;
            println!("ready: {}", lab.display());
            Ok(())
        }
        Some(("run", program @ [_, ..])) => run(command(&ready()?)?.args(program)),
        Some(("teardown", [])) => run(Command::new("bash")
            .arg(root().join("lab/teardown.sh"))
            .arg(lab_root())),
        _ => failed("takes nothing, setup, run PROGRAM [ARG ...] or teardown"),
    }
}

/// Returns whether the tests that need the lab are to be left out.
pub fn is_skipped() -> bool {
    std::env::var_os("MIDAIR_SKIP_LAB").is_some_and(|value| value == "1")
}

/// Returns the root directory that is used, whether it is ready or not.
pub fn lab_root() -> PathBuf {
    std::env::var_os("MIDAIR_LAB")
        .filter(|path| !path.is_empty())
        .map_or_else(|| DEFAULT_ROOT.into(), PathBuf::from)
}

/// Returns a ready lab, and makes it if necessary.
pub fn ready() -> Outcome<PathBuf> {
    let lab = lab_root();
    let hint = "MIDAIR_SKIP_LAB=1 leaves out the tests that need it";
    if !is_root() {
        return failed(format!("the lab needs root; {hint}"));
    }
    if is_ready(&lab, &root().join("lab")) {
        return Ok(lab);
    }
    if !Path::new("/etc/debian_version").exists() {
        return failed(format!(
            "the lab is made from Debian's packages and this is no Debian; {hint}"
        ));
    }
    // The suite's steps run at the same time, and more than one needs it.
    let _turn = turn(&lab)?;
    if is_ready(&lab, &root().join("lab")) {
        return Ok(lab);
    }
    println!(
        "making the lab in {} (a minute, 1 GB from Debian's mirror)",
        lab.display()
    );
    run(Command::new("bash")
        .arg(root().join("lab/setup.sh"))
        .arg(&lab))
    .or_else(|failure| {
        failed(format!(
            "the lab's packages could not be had: {failure}; {hint}"
        ))
    })?;
    if is_ready(&lab, &root().join("lab")) {
        Ok(lab)
    } else {
        failed(format!("{} was made and is not ready", lab.display()))
    }
}

/// Returns whether the lab is made and current.
pub fn is_made() -> bool {
    is_ready(&lab_root(), &root().join("lab"))
}

/// Waits until no other process makes the lab. The turn ends with the returned file.
fn turn(lab: &Path) -> Outcome<File> {
    let path = lab.with_extension("making");
    if let Some(above) = path.parent() {
        std::fs::create_dir_all(above).at("making", above)?;
    }
    let file = File::create(&path).at("making", &path)?;
    file.lock().at("locking", &path)?;
    Ok(file)
}

/// Returns whether the lab has the packages that are listed now, and stand-ins that are built from
/// the project's current sources.
fn is_ready(lab: &Path, project: &Path) -> bool {
    let same = |ours: &Path, theirs: &str| {
        let ours = std::fs::read(project.join(ours));
        let theirs = std::fs::read(lab.join(theirs));
        matches!((ours, theirs), (Ok(ours), Ok(theirs)) if ours == theirs)
    };
    let built = [
        "lab/vadd",
        "lab/libmodel.so",
        "lab/libregshim.so",
        "lab/topo/generation_id",
    ];
    built.iter().all(|name| lab.join(name).exists())
        && same(Path::new("packages"), ".rocm")
        && std::fs::read_dir(project.join("src")).is_ok_and(|entries| {
            entries.filter_map(Result::ok).all(|entry| {
                let name = entry.file_name();
                let there = format!("lab/{}", name.to_string_lossy());
                same(&Path::new("src").join(&name), &there)
            })
        })
}

/// The path, in the lab, of the modelled GPU that the tests use, too. The lab's own small model
/// completes a copy too early now and then.
const MODEL: &str = "/lab/gpu-model.so";

/// Returns the command that runs a program in the lab. The program and its arguments are still to
/// be added.
pub fn command(lab: &Path) -> Outcome<Command> {
    run(&mut cargo(&[
        "build",
        "--quiet",
        "--package",
        "midair-gpu-model",
    ]))?;
    let built = target_directory().join("debug/libmidair_gpu_model.so");
    let there = lab.join(MODEL.trim_start_matches('/'));
    // Programs that use an earlier one keep it.
    let fresh = there.with_extension(std::process::id().to_string());
    std::fs::copy(&built, &fresh).at("copying", &built)?;
    std::fs::rename(&fresh, &there).at("renaming", &fresh)?;
    let mut command = Command::new("bash");
    command.arg(root().join("lab/run.sh")).arg(lab);
    command.arg(format!("HSA_MODEL_LIB={MODEL}"));
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_lab_is_ready_when_all_of_it_is_there_and_current() {
        let directory = tempfile::tempdir().unwrap();
        let (lab, project) = (directory.path().join("root"), directory.path().join("lab"));
        fs::create_dir_all(project.join("src")).unwrap();
        fs::create_dir_all(lab.join("lab/topo")).unwrap();
        fs::write(project.join("src/model.c"), "new").unwrap();
        fs::write(project.join("packages"), "new").unwrap();
        for name in [
            "lab/vadd",
            "lab/libmodel.so",
            "lab/libregshim.so",
            "lab/topo/generation_id",
            ".rocm",
            "lab/model.c",
        ] {
            assert!(!is_ready(&lab, &project), "ready without {name}");
            fs::write(lab.join(name), "new").unwrap();
        }
        assert!(is_ready(&lab, &project));
        fs::write(lab.join("lab/model.c"), "old").unwrap();
        assert!(!is_ready(&lab, &project), "ready with an old stand-in");
        fs::write(lab.join("lab/model.c"), "new").unwrap();
        fs::write(project.join("packages"), "newer").unwrap();
        assert!(!is_ready(&lab, &project), "ready with other packages");
    }
}
