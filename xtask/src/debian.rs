//! A bare root directory with the oldest supported Debian, in which the suite uses what users
//! install. The newest one is the lab's root.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use midair_dev_kit::run::{
    At, Outcome, failed, is_root, output, root as project, target_directory,
};

/// The name of that Debian.
const SUITE: &str = "bookworm";
/// What it has besides the smallest Debian: the server that makes it a real host for `midair fleet`,
/// and the Python into which the wheel is installed.
const INCLUDED: &str = "--include=openssh-server,python3-venv";
/// The file that is written when the root is complete. It says what is included.
const WHOLE: &str = ".whole";

/// Returns the path of the root.
pub fn root_of_12() -> PathBuf {
    target_directory().join("debian-12")
}

/// Runs `cargo xtask debian-12`.
pub fn debian_task(words: &[String]) -> Outcome<()> {
    if !words.is_empty() {
        return failed("takes no arguments");
    }
    match ready()? {
        None => {
            println!("{} is there", root_of_12().display());
            Ok(())
        }
        Some(why) => failed(why),
    }
}

/// Makes the root once. Returns the reason if it is left out.
pub fn ready() -> Outcome<Option<&'static str>> {
    let root = root_of_12();
    if fs::read_to_string(root.join(WHOLE)).is_ok_and(|included| included == INCLUDED) {
        return Ok(None);
    }
    if !is_root() {
        return Ok(Some("needs root, to make a root directory"));
    }
    let Some(mirror) = mirror() else {
        return Ok(Some("no Debian mirror in /etc/apt"));
    };
    if root.exists() {
        fs::remove_dir_all(&root).at("removing", &root)?;
    }
    let log = target_directory().join("debian-12.log");
    let out = File::create(&log).at("writing", &log)?;
    let err = out.try_clone().at("writing", &log)?;
    println!("making {} ({})", root.display(), log.display());
    let mut debootstrap = Command::new("debootstrap");
    debootstrap
        .args(["--variant=minbase", INCLUDED, SUITE])
        .arg(&root)
        .arg(mirror)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err);
    match debootstrap.status() {
        Ok(status) if status.success() => {
            // A third of the whole, of no use after the installation.
            for packages in ["var/cache/apt/archives", "var/lib/apt/lists"] {
                let packages = root.join(packages);
                fs::remove_dir_all(&packages).at("removing", &packages)?;
                let partial = packages.join("partial");
                fs::create_dir_all(&partial).at("making", &partial)?;
            }
            let whole = root.join(WHOLE);
            fs::write(&whole, INCLUDED).at("writing", &whole)?;
            Ok(None)
        }
        Ok(_) => Ok(Some(
            "debootstrap failed; target/debian-12.log has its words",
        )),
        Err(_) => Ok(Some("debootstrap is not there")),
    }
}

/// Returns the mirror that this machine uses.
pub fn mirror() -> Option<String> {
    let mut script = Command::new("bash");
    let out = output(script.arg(project().join("lab/mirror.sh"))).ok()?;
    Some(String::from_utf8(out).ok()?.trim().to_owned())
}
