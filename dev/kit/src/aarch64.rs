//! Builds the engine for aarch64 on this machine, and runs the tests of its arch modules under an
//! emulator of user programs.
//!
//! This shows that everything compiles and that the boot code assembles. It also shows that
//! register layouts, signal frames and the boot code are right, and that the exported functions that
//! are written in assembly pass on the arguments of C programs. It does not show anything about
//! ptrace, which needs an aarch64 kernel.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::run::{
    At, Failure, Outcome, cargo, crate_directory, failed, output, root, run, target_directory,
};

/// The target's name.
pub const TARGET: &str = "aarch64-unknown-linux-gnu";
/// The linker in Debian's package gcc-aarch64-linux-gnu.
pub const LINKER: &str = "aarch64-linux-gnu-gcc";
/// The emulator in Debian's package qemu-user-static.
pub const EMULATOR: &str = "qemu-aarch64-static";
/// The directory in which Debian's libc6-dev-arm64-cross puts its libraries.
pub const LIBRARIES: &str = "/usr/aarch64-linux-gnu";
/// The crates with parts for one architecture, and those that these depend on.
const CRATES: [&str; 4] = [
    "midair-record",
    "midair-ptrace",
    "midair-procinfo",
    "midair-inject",
];

/// The reason why a part was left out, if it was.
pub type LeftOut = Option<&'static str>;

/// Runs `cargo xtask aarch64`.
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

/// Makes sure that the target's library is there, or returns why it is not.
pub fn fetched() -> LeftOut {
    if !has_target() {
        // It is fetched once. Where there is no network, it stays missing.
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
    if !is_there(LINKER) || !is_there(EMULATOR) {
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
    c_programs().map(|()| None)
}

/// Whether a program can be run.
pub fn is_there(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// A program for aarch64, under the emulator.
pub fn emulated(program: &Path) -> Command {
    let mut command = Command::new(EMULATOR);
    command.args(["-L", LIBRARIES]).arg(program);
    command
}

/// Runs the C programs of the tests of ROCTx and of the register library: their functions jump
/// through tables and to functions of others.
fn c_programs() -> Outcome<()> {
    let mut command = cargo(&["build", "--target", TARGET]);
    command
        .args(["-p", "midair-roctx-so", "-p", "midair-register-so"])
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER);
    run(&mut command)?;
    let built = target_directory().join(TARGET).join("debug");
    let place = target_directory().join("aarch64/programs");
    std::fs::create_dir_all(&place).at("making", &place)?;
    for (file, name) in [
        (
            "librocprofiler_sdk_roctx.so",
            "librocprofiler-sdk-roctx.so.1",
        ),
        ("librocprofiler_register.so", "librocprofiler-register.so.0"),
    ] {
        std::fs::copy(built.join(file), place.join(name)).at("copying", &built.join(file))?;
    }
    let roctx = "roctx-so/tests/c/alone.c";
    let plugin = ["-shared", "-fPIC", "-DWHO=\"one\""];
    let with_roctx = "-l:librocprofiler-sdk-roctx.so.1";
    let with_register = "-l:librocprofiler-register.so.0";
    compile(&place, "alone", roctx, &["-rdynamic", with_roctx])?;
    compile(
        &place,
        "registered",
        roctx,
        &["-rdynamic", "-DREGISTER", with_roctx],
    )?;
    compile(&place, "one.so", "register-so/tests/c/plugin.c", &plugin)?;
    compile(
        &place,
        "passer",
        "register-so/tests/c/passer.c",
        &[with_register],
    )?;
    let in_place = |name: &str| {
        let mut command = emulated(&place.join(name));
        command.current_dir(&place).env("LD_LIBRARY_PATH", &place);
        command
    };
    run(&mut in_place("alone"))?;
    run(&mut in_place("registered"))?;
    let said = output(in_place("passer").args(["plug:one.so", "pointer:one.so"]))?;
    let said = String::from_utf8_lossy(&said);
    if said != PASSED_ON {
        return failed(format!(
            "attach and detach do not pass on their arguments:\n{said}"
        ));
    }
    Ok(())
}

/// What the program says that calls functions of a plug-in through ours (`register-so/tests/it/pass.rs`).
const PASSED_ON: &str = "linked 9
  one: attach 1 2 3 4 5 6 7 0.5 1.5 2.5 3.5 4.5 5.5 6.5 7.5 8.5
  one: 24.5 42 words 0.25 -1e+300
  one: attach 1 2 3 4 5 6 7 0.5 1.5 2.5 3.5 4.5 5.5 6.5 7.5 8.5
pointer 24.5
";

/// Compiles a source of a crate's tests, `CRATE/tests/...`.
fn compile(place: &Path, name: &str, source: &str, words: &[&str]) -> Outcome<()> {
    let (owner, below) = source.split_once('/').unwrap_or((source, ""));
    let mut gcc = Command::new(LINKER);
    gcc.args(["-O1", "-pthread", "-o"])
        .arg(place.join(name))
        .arg(crate_directory(owner)?.join(below))
        .arg("-L")
        .arg(place)
        .args(["-Wl,--no-as-needed"])
        .args(words)
        .arg("-ldl");
    run(&mut gcc)
}

/// Writes a package with the crate's sources but without the test kit, which is for this machine's
/// processor only.
fn manifest(name: &str) -> Outcome<PathBuf> {
    let directory = target_directory().join("aarch64").join(name);
    std::fs::create_dir_all(&directory).at("making", &directory)?;
    let source = crate_directory(name)?;
    let text = std::fs::read_to_string(source.join("Cargo.toml")).at("reading", &source)?;
    let workspace = root().join("Cargo.toml");
    let known = std::fs::read_to_string(&workspace).at("reading", &workspace)?;
    let mut manifest = format!(
        "[package]\nname = \"midair-{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n[lib]\npath = '{}'\n[dependencies]\n",
        source.join("src/lib.rs").display()
    );
    let needed = text
        .lines()
        .filter_map(|line| line.strip_suffix(".workspace = true"));
    for other in needed {
        match other.strip_prefix("midair-") {
            Some("tests") => {}
            Some(ours) => {
                let path = crate_directory(ours)?;
                manifest.push_str(&format!("{other} = {{ path = '{}' }}\n", path.display()));
            }
            // Keys of the package itself (edition.workspace) are not dependencies.
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
