//! `cargo xtask bare-machine`: README's packages and commands, as written there, on a bare Debian
//! in a root directory.
//!
//! The first command (the demonstration) runs to its end, from an empty target directory. The
//! second one, which takes as long as the suite, runs only up to the end of its set-up, unless
//! `--full` is given.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::debian;
use midair_dev_kit::aarch64::LeftOut;
use midair_dev_kit::run::{At, Outcome, failed, is_root, output, root, target_directory};

/// The exit code of the script if the mirror did not give what it needs.
const NO_NETWORK: i32 = 75;
/// What `cargo xtask test` takes to end after its set-up.
const SET_UP_ONLY: &str = " --set-up-only";

/// What the walk is.
struct Walk {
    /// Debian's name of the release.
    suite: String,
    /// Whether the suite runs to its end.
    full: bool,
    /// Whether the root directory stays.
    keep: bool,
}

/// Runs `cargo xtask bare-machine`.
pub fn walk_task(words: &[String]) -> Outcome<()> {
    let mut walk = Walk {
        suite: "bookworm".to_owned(),
        full: false,
        keep: false,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match (word.as_str(), words.as_slice()) {
            ("--full", _) => walk.full = true,
            ("--keep", _) => walk.keep = true,
            ("--suite", [suite, ..]) => {
                walk.suite = suite.clone();
                words.next();
            }
            _ => return failed(format!("takes --full, --keep and --suite NAME, not {word}")),
        }
    }
    match walk.run()? {
        None => Ok(()),
        Some(why) => failed(why),
    }
}

/// Runs what belongs to the suite.
pub fn suite() -> Outcome<LeftOut> {
    if std::env::var_os("MIDAIR_SKIP_WALK").is_some_and(|value| value == "1") {
        return Ok(Some("MIDAIR_SKIP_WALK is set"));
    }
    let walk = Walk {
        suite: "bookworm".to_owned(),
        full: false,
        keep: false,
    };
    walk.run()
}

impl Walk {
    fn run(&self) -> Outcome<LeftOut> {
        if !is_root() {
            return Ok(Some("needs root, to make a root directory"));
        }
        let Some(mirror) = debian::mirror() else {
            return Ok(Some("no Debian mirror in /etc/apt"));
        };
        let readme = root().join("README.md");
        let text = fs::read_to_string(&readme).at("reading", &readme)?;
        let mut commands = commands(&text)?;
        if !self.full {
            commands[1].push_str(SET_UP_ONLY);
        }
        let rust = Rust::find()?;
        let bare = target_directory().join("bare-machine");
        remove(&bare)?;
        fs::create_dir_all(&bare).at("making", &bare)?;
        let status = Command::new("unshare")
            .args(["--mount", "--propagation", "private"])
            .args(["--pid", "--fork", "--kill-child", "bash"])
            .arg(root().join("xtask/src/walk.sh"))
            .args([&root(), &bare])
            .args([&self.suite, &mirror])
            .arg(rust.link()?)
            .args(&commands)
            .status();
        let status = status.or_else(|error| failed(format!("unshare: {error}")))?;
        if !self.keep {
            remove(&bare)?;
        }
        match status.code() {
            Some(0) => Ok(None),
            Some(NO_NETWORK) => Ok(Some("Debian's mirror did not give what it needs")),
            _ => failed(format!("README's commands on a bare machine: {status}")),
        }
    }
}

/// Removes the root directory. What was mounted in it has gone with its namespace.
fn remove(bare: &PathBuf) -> Outcome<()> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    if mounts.contains(&*bare.to_string_lossy()) {
        return failed(format!("something is mounted in {}", bare.display()));
    }
    match bare.exists() {
        true => fs::remove_dir_all(bare).at("removing", bare),
        false => Ok(()),
    }
}

/// The toolchains and programs of rustup on this machine.
struct Rust {
    rustup: PathBuf,
    cargo: PathBuf,
}

impl Rust {
    fn find() -> Outcome<Rust> {
        let said = output(Command::new("rustup").args(["show", "home"]))?;
        let rustup = PathBuf::from(String::from_utf8_lossy(&said).trim());
        let home = std::env::home_dir().unwrap_or_default();
        let cargo =
            std::env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
        match cargo.join("bin/cargo").exists() {
            true => Ok(Rust { rustup, cargo }),
            false => failed(format!("no cargo in {}", cargo.display())),
        }
    }

    /// Makes a directory with links to both, and returns it.
    fn link(&self) -> Outcome<PathBuf> {
        let directory = target_directory().join("bare-machine.rust");
        fs::create_dir_all(&directory).at("making", &directory)?;
        for (name, to) in [("rustup", &self.rustup), ("cargo", &self.cargo)] {
            let link = directory.join(name);
            let _ = fs::remove_file(&link);
            std::os::unix::fs::symlink(to, &link).at("making", &link)?;
        }
        Ok(directory)
    }
}

/// Returns README's two commands, without the comments that follow them.
fn commands(readme: &str) -> Outcome<[String; 2]> {
    let of = |task: &str| {
        let line = readme
            .lines()
            .filter(|line| line.starts_with("    cargo xtask "))
            .map(|line| line.split(" #").next().unwrap_or(line).trim())
            .find(|line| line.split(' ').nth(2) == Some(task));
        line.map(str::to_owned).ok_or_else(|| {
            midair_dev_kit::run::Failure(format!("README has no command cargo xtask {task}"))
        })
    };
    Ok([of("demo")?, of("test")?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readmes_commands_are_those_that_the_walk_and_ci_run() {
        let readme = fs::read_to_string(root().join("README.md")).unwrap();
        let [demo, test] = commands(&readme).unwrap();
        assert!(demo.starts_with("cargo xtask demo"), "{demo}");
        assert_eq!(test, "cargo xtask test --all");
        let ci = fs::read_to_string(root().join(".ci/run")).unwrap();
        assert!(ci.contains(&format!("exec {test}\n")), "{ci}");
        assert!(commands("    cargo xtask demo # shows it\n").is_err());
    }
}
