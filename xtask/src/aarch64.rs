//! The engine for aarch64, built on this machine; its arch modules' tests under an emulator of user programs.
//!
//! What is shown this way: everything compiles and the boot code assembles; register layouts,
//! signal frames and the boot code do what they shall. What is not: ptrace, for which an aarch64
//! kernel is needed.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::run::{At, Failure, Outcome, cargo, failed, output, root, run, target_directory};

/// Its name.
pub const TARGET: &str = "aarch64-unknown-linux-gnu";
/// Debian's gcc-aarch64-linux-gnu.
pub const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64-static";
/// Where Debian's libc6-dev-arm64-cross lays out its libraries.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";
/// The crates with architecture-specific parts, and those below them.
const CRATES: [&str; 4] = [
    "midair-record",
    "midair-ptrace",
    "midair-procinfo",
    "midair-inject",
];

/// Why a part was left out, if it was.
pub type LeftOut = Option<&'static str>;

/// `cargo xtask aarch64`.
pub fn aarch64_task(words: &[String]) -> Outcome<()> {
    if !words.is_empty() {
        return failed("takes no arguments");
    }
    for (name, part) in [("build", build as fn() -> _), ("tests", tests)] {
        match part()? {
            None => println!("{name}: passed"),
            Some(why) => println!("{name}: left out: {why}"),
        }
    }
    Ok(())
}

/// Whether the target's library is there, or could be fetched.
pub fn fetched() -> LeftOut {
    if !has_target() {
        // Fetched once; where there is no network it stays away.
        let _missing = Command::new("rustup")
            .args(["target", "add", TARGET])
            .stdin(Stdio::null())
            .status();
        if !has_target() {
            return Some("no target library; rustup target add could not fetch it");
        }
    }
    None
}

/// Builds the crates.
pub fn build() -> Outcome<LeftOut> {
    if let Some(why) = fetched() {
        return Ok(Some(why));
    }
    let mut command = cargo(&["build", "--lib", "--target", TARGET]);
    for name in CRATES {
        command.args(["-p", name]);
    }
    run(&mut command).map(|()| None)
}

/// Runs the unit tests of the arch modules.
pub fn tests() -> Outcome<LeftOut> {
    if !has_target() {
        return Ok(Some("no target library"));
    }
    let there = |program: &str| {
        Command::new(program)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    if !there(LINKER) || !there(EMULATOR) {
        return Ok(Some(
            "needs Debian's gcc-aarch64-linux-gnu and qemu-user-static",
        ));
    }
    for name in ["inject", "procinfo"] {
        let mut command = cargo(&["test", "--quiet", "--lib", "--target", TARGET]);
        command
            .arg("--manifest-path")
            .arg(manifest(name)?)
            .arg("arch::")
            .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER)
            .env(
                "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
                format!("{EMULATOR} -L {LIBRARIES}"),
            );
        run(&mut command)?;
    }
    Ok(None)
}

/// A package of the crate's sources without the test kit, which is for this machine's processor only.
fn manifest(name: &str) -> Outcome<PathBuf> {
    let directory = target_directory().join("aarch64").join(name);
    std::fs::create_dir_all(&directory).at("making", &directory)?;
    let crates = root().join("crates");
    let text = std::fs::read_to_string(crates.join(name).join("Cargo.toml"))
        .at("reading", &crates.join(name))?;
    let workspace = root().join("Cargo.toml");
    let known = std::fs::read_to_string(&workspace).at("reading", &workspace)?;
    let mut manifest = format!(
        "[package]\nname = \"midair-{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n[lib]\npath = '{}'\n[dependencies]\n",
        crates.join(name).join("src/lib.rs").display()
    );
    let needed = text
        .lines()
        .filter_map(|line| line.strip_suffix(".workspace = true"));
    for other in needed {
        match other.strip_prefix("midair-") {
            Some("tests") => {}
            Some(ours) => {
                let path = crates.join(ours);
                manifest.push_str(&format!("{other} = {{ path = '{}' }}\n", path.display()));
            }
            // Keys of the package itself (edition.workspace) are no dependencies.
            None => {
                let line = known
                    .lines()
                    .skip_while(|line| *line != "[workspace.dependencies]")
                    .find(|line| line.starts_with(&format!("{other} = ")));
                manifest.extend(line.map(|line| format!("{line}\n")));
            }
        }
    }
    let path = directory.join("Cargo.toml");
    std::fs::write(&path, manifest).at("writing", &path)?;
    let lock = directory.join("Cargo.lock");
    std::fs::copy(root().join("Cargo.lock"), &lock).at("writing", &lock)?;
    Ok(path)
}

fn has_target() -> bool {
    let found: Result<Vec<u8>, Failure> =
        output(Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]));
    found.is_ok_and(|path| PathBuf::from(String::from_utf8_lossy(&path).trim()).is_dir())
}
