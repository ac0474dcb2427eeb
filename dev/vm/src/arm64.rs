//! Builds the engine's test programs, the torture matrix and the product for aarch64 on this machine.

use std::path::Path;

use midair_dev_kit::aarch64::{self, TARGET};
use midair_dev_kit::machine::Machine;
use midair_dev_kit::run::{Outcome, cargo, failed, output, run, target_directory};
use midair_dev_stage as stage;
use midair_dev_stage::layout;

use super::programs::{Program, Programs, packed, programs};

/// Packages that build for aarch64, together with all that their tests need.
const PACKAGES: &[&str] = &[
    "midair-ptrace",
    "midair-procinfo",
    "midair-inject",
    "midair-session",
];

/// Builds the programs. With `built` it takes what is there already, without tests.
pub fn ready(built: bool) -> Outcome<Programs> {
    if let Some(why) = aarch64::fetched() {
        return failed(why);
    }
    let machine = Machine::named("aarch64")?;
    let target = target_directory().join(TARGET);
    let (directory, stage) = (target.join("debug"), target.join("stage"));
    let programs = match built {
        true => Vec::new(),
        false => build(machine, &directory, &stage)?,
    };
    let ours = &["midair-enter", "midair-drive", "midair-torture"];
    let strip = machine.tool("strip");
    packed(programs, ours, directory, stage, "arm64", &strip)
}

/// Builds all programs and stages the product.
fn build(machine: &'static Machine, built: &Path, prefix: &Path) -> Outcome<Vec<Program>> {
    let crossed = |words: &[&str]| {
        let mut command = cargo(words);
        command.args(["--quiet", "--target", TARGET]);
        machine.linker(&mut command);
        command
    };
    let mut product = crossed(&["build", "--package", "midair-torture"]);
    for package in layout::PACKAGES {
        product.args(["--package", package]);
    }
    run(&mut product)?;
    stage::stage_for(built, prefix, machine)?;
    let mut tests = crossed(&["test", "--no-run", "--message-format=json"]);
    tests.args(["--lib", "--test", "it"]);
    for package in PACKAGES {
        tests.args(["--package", package]);
    }
    programs(&output(&mut tests)?)
}
