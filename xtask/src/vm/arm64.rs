//! Builds the engine's test programs for aarch64 on this machine.

use std::collections::BTreeSet;

use crate::aarch64::{self, LINKER, TARGET};
use crate::run::{Outcome, cargo, failed, output, target_directory};

use super::programs::{Programs, image_of, is_library, programs};

/// Packages that build for aarch64, together with all that their tests need.
const PACKAGES: &[&str] = &["midair-ptrace", "midair-procinfo", "midair-inject"];

/// The program of Debian's binutils-aarch64-linux-gnu that strips them.
const STRIP: &str = "aarch64-linux-gnu-strip";

/// Builds the programs.
pub fn ready() -> Outcome<Programs> {
    if let Some(why) = aarch64::fetched() {
        return failed(why);
    }
    let mut tests = cargo(&["test", "--no-run", "--message-format=json", "--quiet"]);
    tests.args(["--target", TARGET]);
    for package in PACKAGES {
        tests.args(["--package", package]);
    }
    tests.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER);
    let programs = programs(&output(&mut tests)?)?;
    let built = target_directory().join(TARGET).join("debug");
    let mut carried: BTreeSet<_> = programs.iter().map(|it| it.path.clone()).collect();
    carried.insert(built.join("midair-enter"));
    for entry in std::fs::read_dir(built.join("deps"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let path = entry.path();
        carried.extend(is_library(&path).then_some(path));
    }
    let image = image_of(&carried, "arm64", STRIP)?;
    Ok(Programs { programs, image })
}
