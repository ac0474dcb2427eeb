//! Tasks of the project: `cargo xtask TASK`. The table below has all of them.
#![forbid(unsafe_code)]

mod amd_headers;
mod asan;
mod check;
mod debian;
mod demo;
mod dependencies;
mod disk;
mod e2e;
mod flaky;
mod gpu_check;
mod lab;
mod miri;
mod python;
mod release;
mod setup;
mod suite;
mod times;
mod torture;
mod walk;
#[cfg(test)]
mod workflows;

use std::process::ExitCode;

use midair_dev_docs::circles;
use midair_dev_kit::aarch64;
use midair_dev_kit::run::Outcome;
use midair_dev_stage as stage;
use {midair_dev_dist as dist, midair_dev_docs as docs, midair_dev_fuzz as fuzz};

/// One task.
struct Task {
    name: &'static str,
    words: &'static str,
    help: &'static str,
    run: fn(&[String]) -> Outcome<()>,
}

const TASKS: &[Task] = &[
    Task {
        name: "stage",
        words: "[--release]",
        help: "Build everything that is shipped and lay it out below target/stage",
        run: stage::stage_task,
    },
    Task {
        name: "install",
        words: "--prefix DIR [--dev]",
        help: "Build with optimisation and copy what is staged below DIR",
        run: stage::install_task,
    },
    Task {
        name: "dist",
        words: "[--check [--strict]] [--machine aarch64] [--twice] [--staged PREFIX] [--to DIR] [one-file | tarball | deb | rpm | wheel | image | sbom ...]",
        help: "Make what others install, into dist/ or DIR: midair as one file, an archive, packages, sums; of what is staged below PREFIX, or built anew; --machine: for another one, by Debian's cross compiler; --twice: compile it once more in a clone elsewhere, and compare the bytes; --check: what lintian, rpmlint and twine say of what is there, and whether it is small enough; --strict: a checker that is not there is a fault",
        run: dist::dist_task,
    },
    Task {
        name: "release",
        words: "--notes TAG",
        help: "Print what is published with a release, from CHANGELOG.md; fails where tag, workspace and changelog name different versions",
        run: release::release_task,
    },
    Task {
        name: "check",
        words: "[--since COMMIT]",
        help: "Format, lints and unit tests of the packages that changed and of those that depend on them: against the merge base with the main branch, or COMMIT",
        run: check::check_task,
    },
    Task {
        name: "e2e",
        words: "NAME",
        help: "Stage what is stale and run the end-to-end tests with NAME in their names",
        run: e2e::e2e_task,
    },
    Task {
        name: "test",
        words: "[--all] [--no-nightly] [--set-up-only]",
        help: "Set up the machine and run the suite; --all: also Miri, loom, AddressSanitizer, aarch64 and the bare machine, as CI does; --no-nightly: without Miri, which needs a nightly toolchain (700 MB)",
        run: suite::test_task,
    },
    Task {
        name: "bare-machine",
        words: "[--full] [--suite NAME] [--keep]",
        help: "README's packages and commands on a bare Debian 12, in a root directory below target; the suite there only up to the end of its set-up, or all of it with --full (root; from Debian's mirror)",
        run: walk::walk_task,
    },
    Task {
        name: "demo",
        words: "[--keep]",
        help: "Attach to a running HIP program for two seconds and show what it did; needs cargo and gcc",
        run: demo::demo_task,
    },
    Task {
        name: "lab",
        words: "[setup | run [VAR=VALUE ...] PROGRAM [ARG ...] | teardown]",
        help: "AMD's own runtimes on a modelled GPU (root, Debian): the demo there, or tests and programs by hand",
        run: lab::lab_task,
    },
    Task {
        name: "debian-12",
        words: "",
        help: "A bare root directory with the oldest supported Debian, below target/debian-12, for tests of what users install (root; from Debian's mirror, once)",
        run: debian::debian_task,
    },
    Task {
        name: "python",
        words: "",
        help: "A Python with the packages that tests use, below target/python (from PyPI, once)",
        run: python::python_task,
    },
    Task {
        name: "amd-headers",
        words: "",
        help: "AMD's own headers, for a test that compares ours with them, below target/amd-headers, and Triton, for tests of its profiler, below target/triton (285 MB from PyPI, once)",
        run: amd_headers::amd_headers_task,
    },
    Task {
        name: "torture",
        words: "[--quick] [--row N] [--cell TEXT] [--cycles N] [--others N | --no-others | --only-others] [--by NAME] [--out DIR]",
        help: "Measure the attach engine, gdb and frida on hard targets; write the tables in bench-results",
        run: torture::torture_task,
    },
    Task {
        name: "gpu-check",
        words: "[--pack DIR] [--staged PREFIX] [--quick] [--parts abcdemt]",
        help: "Everything that is shown on a GPU of NVIDIA's, in one table (bench-results/gpu-check.md); --pack lays out what is carried to its machine",
        run: gpu_check::gpu_check_task,
    },
    Task {
        name: "aarch64",
        words: "",
        help: "Build the engine for aarch64; its arch modules' tests under qemu-user, where that and a linker are installed",
        run: aarch64::aarch64_task,
    },
    Task {
        name: "miri",
        words: "[--all]",
        help: "Tests of the pure parts under Miri; needs a nightly toolchain, which rustup adds where it can",
        run: miri::miri_task,
    },
    Task {
        name: "asan",
        words: "[--all | PACKAGE ...]",
        help: "Tests of the C interfaces with AddressSanitizer in our libraries and in the C programs",
        run: asan::asan_task,
    },
    Task {
        name: "fuzz",
        words: "[--until N] [--for N] [--slice N] [--jobs N] [--anew] [--built COMMIT] [NAME ...]",
        help: "The fuzzers, at idle priority, until each has had N minutes of a processor (60) by the ledger bench-results/fuzz.md; --for: no longer than N minutes now; --built: the programs are compiled already, of that commit",
        run: fuzz::fuzz_task,
    },
    Task {
        name: "dependencies",
        words: "[advisories]",
        help: "Known weaknesses, by advisories/; banned crates, licences and sources, by cargo-deny and deny.toml",
        run: dependencies::dependencies_task,
    },
    Task {
        name: "circles",
        words: "[CRATE ...]",
        help: "Import circles between the modules of crates; one of more than 4 modules fails",
        run: circles::circles_task,
    },
    Task {
        name: "docs",
        words: "[--check | --book]",
        help: "Write docs/options.md from the table of options; --check: look for mistakes in all documents; --book: build the book in docs/ with mdbook",
        run: docs::docs_task,
    },
];

fn usage() -> String {
    let mut text = String::from("usage: cargo xtask TASK\n\n");
    for task in TASKS {
        text.push_str(&format!(
            "  {} {}\n      {}\n",
            task.name, task.words, task.help
        ));
    }
    text
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let task = words
        .first()
        .and_then(|name| TASKS.iter().find(|task| task.name == name));
    let Some(task) = task else {
        let asked = matches!(
            words.first().map(String::as_str),
            None | Some("help" | "-h" | "--help")
        );
        if asked {
            println!("{}", usage());
            return ExitCode::SUCCESS;
        }
        eprintln!("{}", usage());
        return ExitCode::from(2);
    };
    match (task.run)(&words[1..]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask {}: {failure}", task.name);
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_names_are_unique_and_listed() {
        let text = usage();
        for task in TASKS {
            assert_eq!(
                TASKS.iter().filter(|other| other.name == task.name).count(),
                1,
                "{}",
                task.name
            );
            assert!(text.contains(&format!("  {} ", task.name)) && text.contains(task.help));
        }
    }
}
