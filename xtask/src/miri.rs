//! `cargo xtask miri`: runs tests of the pure parts under Miri. This interpreter finds undefined
//! behaviour: references to memory that another thread writes, data races, and reads beyond an
//! object or through invalid pointers.
//!
//! It needs a nightly toolchain with the components miri and rust-src. rustup adds them once, where
//! they can be had.
//!
//! The table leaves out what Miri cannot run: system calls that it does not know (memory files,
//! ptrace, futexes on shared memory), C code (SQLite), and assembly.

use std::process::{Command, Stdio};

use midair_dev_kit::run::{Outcome, failed, root, run, target_directory};

/// The reason why the task was left out, if it was.
pub type LeftOut = Option<&'static str>;

/// The tests of a package.
struct Part {
    package: &'static str,
    /// Parts of the names of its tests. Without any, all tests are run.
    tests: &'static [&'static str],
    /// Whether the suite runs it, or only `--all`. All parts that the suite runs take a minute
    /// together.
    suite: bool,
}

const PARTS: &[Part] = &[
    // The spool between writer and reader, also when the attaching side overwrites it. Also records
    // and messages.
    Part {
        package: "midair-record",
        tests: &[],
        suite: true,
    },
    // The types themselves. loom tests their interleavings.
    Part {
        package: "midair-lockfree",
        tests: &[],
        suite: true,
    },
    Part {
        package: "midair-ids",
        tests: &[],
        suite: true,
    },
    // Parsers for what the kernel and the target say.
    Part {
        package: "midair-procinfo",
        tests: &[
            "bpf::",
            "maps::",
            "stat::",
            "status::",
            "syscall::",
            "limits::",
        ],
        suite: true,
    },
    // This part and the next ones walk long lists, which takes minutes.
    Part {
        package: "midair-procinfo",
        tests: &["link_map::"],
        suite: false,
    },
    Part {
        package: "midair-domain",
        tests: &[],
        suite: false,
    },
    Part {
        package: "midair-settings",
        tests: &["buffer::"],
        suite: false,
    },
];

/// Runs `cargo xtask miri [--all]`.
pub fn miri_task(words: &[String]) -> Outcome<()> {
    let all = match words {
        [] => false,
        [word] if word == "--all" => true,
        _ => return failed("takes --all or nothing"),
    };
    match check(all)? {
        None => Ok(()),
        Some(why) => failed(why),
    }
}

/// Runs what belongs to the suite.
pub fn suite() -> Outcome<LeftOut> {
    check(false)
}

fn check(all: bool) -> Outcome<LeftOut> {
    if !is_ready() {
        return Ok(Some(
            "no nightly toolchain with miri and rust-src, and rustup could not add them",
        ));
    }
    let packages = PARTS.iter().filter(|part| all || part.suite);
    for part in packages {
        println!("-- {}", part.package);
        let mut command = nightly(&["miri", "test", "--quiet", "--tests", "--package"]);
        command
            .arg(part.package)
            .arg("--target-dir")
            .arg(target_directory().join("miri"))
            .arg("--")
            .args(part.tests)
            // The tests see the machine's clocks, files and environment.
            .env("MIRIFLAGS", "-Zmiri-disable-isolation");
        run(&mut command)?;
    }
    let left = PARTS.iter().filter(|part| !all && !part.suite);
    let left: Vec<&str> = left.map(|part| part.package).collect();
    if !left.is_empty() {
        println!(
            "only by cargo xtask miri --all, which takes minutes: {}",
            left.join(", ")
        );
    }
    Ok(None)
}

/// Returns whether Miri can be run, and installs it if it is not there.
fn is_ready() -> bool {
    if works() {
        return true;
    }
    // Without a network these commands fail and change nothing.
    for words in [
        &[
            "component",
            "add",
            "miri",
            "rust-src",
            "--toolchain",
            "nightly",
        ][..],
        &[
            "toolchain",
            "install",
            "nightly",
            "--profile",
            "minimal",
            "--component",
            "miri",
            "--component",
            "rust-src",
        ],
    ] {
        let done = rustup(words).stdin(Stdio::null()).status();
        if done.is_ok_and(|status| status.success()) && works() {
            return true;
        }
    }
    false
}

/// Returns whether there is a nightly toolchain with Miri.
pub fn works() -> bool {
    let mut command = nightly(&["miri", "--version"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Prepares a command of the nightly toolchain's cargo, without the settings of the cargo that runs
/// us.
fn nightly(words: &[&str]) -> Command {
    let mut command = rustup(&["run", "nightly", "cargo"]);
    command.args(words);
    command
}

fn rustup(words: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command.args(words).current_dir(root());
    for name in ["CARGO", "RUSTC", "RUSTFLAGS", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(name);
    }
    command
}
