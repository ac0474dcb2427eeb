//! The rows of the table: a kernel, its command line, and what is done on it.

use super::kernel::{ARM_6_1, ARM_LATEST, Kernel, LATEST, V5_10, V6_1, V6_12};

/// One boot.
pub struct Row {
    pub name: &'static str,
    pub about: &'static str,
    pub kernel: Kernel,
    /// Further words for the kernel's command line.
    pub kernel_words: &'static str,
    /// The functions `part_NAME` of `guest/tests.sh` that are run.
    pub parts: &'static [&'static str],
    /// The arguments of `midair-vm-checks`, which are used one after the other.
    pub checks: &'static [&'static str],
    /// How long it may take on a real processor, in minutes. On an emulated one it may take six
    /// times as long.
    pub minutes: u64,
}

/// Checks for every kernel.
const GENERAL: &[&str] = &["session", "clock", "freezer"];

const fn tests(name: &'static str, about: &'static str, kernel: Kernel) -> Row {
    Row {
        name,
        about,
        kernel,
        kernel_words: "",
        parts: &["tests"],
        checks: &[],
        minutes: 20,
    }
}

const fn torture(name: &'static str, kernel: Kernel) -> Row {
    Row {
        parts: &["torture"],
        minutes: 30,
        ..tests(name, "the torture matrix's quick form", kernel)
    }
}

const fn checks(
    name: &'static str,
    about: &'static str,
    kernel: Kernel,
    kernel_words: &'static str,
    checks: &'static [&'static str],
) -> Row {
    Row {
        kernel_words,
        parts: &["checks"],
        checks,
        minutes: 10,
        ..tests(name, about, kernel)
    }
}

const ABOUT_CHECKS: &str = "whole sessions, steps of the wall clock, a frozen cgroup";

/// All of them.
pub const ROWS: &[Row] = &[
    tests("6.1", "the engine's tests, Debian 12", V6_1),
    checks("6.1-checks", ABOUT_CHECKS, V6_1, "", GENERAL),
    torture("6.1-torture", V6_1),
    tests(
        "5.10",
        "the engine's tests, the oldest that Debian still has",
        V5_10,
    ),
    checks("5.10-checks", ABOUT_CHECKS, V5_10, "", GENERAL),
    torture("5.10-torture", V5_10),
    tests("6.12", "the engine's tests, Debian 13", V6_12),
    tests(
        "newest",
        "the engine's tests, Debian 13's backports",
        LATEST,
    ),
    checks("newest-checks", ABOUT_CHECKS, LATEST, "", GENERAL),
    torture("newest-torture", LATEST),
    checks(
        "yama",
        "kernel.yama.ptrace_scope 0, 1, 2 and 3",
        V6_1,
        "",
        &["yama"],
    ),
    checks(
        "apparmor",
        "a confined target, a confined attacher",
        V6_1,
        "apparmor=1 security=apparmor",
        &["apparmor"],
    ),
    checks(
        "selinux",
        "Debian's policy, enforcing: whether memory may be made executable",
        V6_1,
        "security=selinux selinux=1 enforcing=0",
        &["selinux"],
    ),
    checks(
        "lockdown-integrity",
        "the kernel locked against root's changes",
        V6_1,
        "lockdown=integrity",
        GENERAL,
    ),
    checks(
        "lockdown-confidentiality",
        "the kernel locked against root's reading, too",
        V6_1,
        "lockdown=confidentiality",
        GENERAL,
    ),
    checks(
        "cgroup-v1",
        "the freezer of the first version of cgroups",
        V6_1,
        "",
        &["freezer-v1"],
    ),
    tests(
        "arm64-6.1",
        "the engine's tests on aarch64, Debian 12",
        ARM_6_1,
    ),
    torture("arm64-6.1-torture", ARM_6_1),
    tests(
        "arm64-newest",
        "the engine's tests on aarch64, Debian 13's backports",
        ARM_LATEST,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_parts_are_there() {
        let names: BTreeSet<_> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), ROWS.len());
        let script = include_str!("guest/tests.sh");
        for part in ROWS.iter().flat_map(|row| row.parts) {
            assert!(script.contains(&format!("part_{part}() {{")), "{part}");
        }
    }
}
