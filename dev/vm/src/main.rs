//! Boots Debian's kernels under qemu for the engine's tests, for the quick form of the torture
//! matrix, and for what needs another kernel (Yama, security modules, frozen cgroups, steps of the
//! clock).
//!
//! Where `/dev/kvm` works, it runs the kernels for this machine's processor. Others are emulated,
//! which is about twenty times slower. Each row boots a kernel of its own with two disks that it
//! cannot change. Its results come back as a tar file on a third disk.
//!
//! `--package DIRECTORY` boots nothing. It puts there what a machine with more processors needs, which
//! has qemu and a shell: `ROW.sh` boots the row. What comes to `ROW.results` there is put into the
//! table by `take DIRECTORY`.
#![forbid(unsafe_code)]

mod arm64;
mod boot;
mod initramfs;
mod kernel;
mod package;
mod packages;
mod programs;
mod report;
mod results;
mod rootfs;
mod rows;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use boot::Accelerator;
use midair_dev_kit::run::{At, Failure, Outcome, failed, is_root};
use programs::Programs;
use rows::{ROWS, Row};

/// The words of the command line, and what it does.
const USAGE: &str = "[setup | list | [--tcg] [--built] [--minutes N] [--test REGEX] [ROW ...]]

Run the engine's tests, and what only other kernels can show, on Debian's kernels under qemu (root, Debian). REGEX matches
\"PROGRAM TEST\". The table is bench-results/vm.md.";

/// The directory for packages, kernels and root file systems when MIDAIR_VM does not name one.
const DEFAULT_CACHE: &str = "/var/tmp/midair-vm";

/// Debian's packages that are needed: one program of each, and the package's name.
const NEEDED: [(&str, &str); 6] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("qemu-system-aarch64", "qemu-system-arm"),
    ("cpio", "cpio"),
    ("mke2fs", "e2fsprogs"),
    ("xz", "xz-utils"),
    ("zstd", "zstd"),
];

/// Runs `cargo vm`.
pub fn vm_task(words: &[String]) -> Outcome<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["setup"] => setup(),
        ["take", directory] => package::take(Path::new(directory)),
        ["list"] => {
            for row in ROWS {
                println!("{:24} {}", row.name, row.about);
            }
            Ok(())
        }
        _ => rows_of(&words),
    }
}

/// Runs the rows for which the command line asks.
fn rows_of(words: &[&str]) -> Outcome<()> {
    const USAGE: &str = "takes setup, list, take DIRECTORY, or [--tcg] [--built] [--minutes N] [--processors N] [--test REGEX] \
         [--package DIRECTORY] [ROW ...]";
    let mut asked: Vec<&Row> = Vec::new();
    let mut package = None;
    let mut options = boot::Options::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--tcg" => options.emulate = true,
            "--built" => options.built = true,
            "--minutes" => match words.next().and_then(|word| word.parse().ok()) {
                Some(minutes) => options.minutes = Some(minutes),
                None => return failed(USAGE),
            },
            "--processors" => match words.next().and_then(|word| word.parse().ok()) {
                Some(processors) => options.processors = Some(processors),
                None => return failed(USAGE),
            },
            "--package" => match words.next() {
                Some(directory) => package = Some(Path::new(*directory)),
                None => return failed(USAGE),
            },
            "--test" => match words.next() {
                Some(text) => options.only = Some((*text).to_owned()),
                None => return failed(USAGE),
            },
            name => match ROWS.iter().find(|row| row.name == name) {
                Some(row) => asked.push(row),
                None => return failed(format!("{name} is no row; {USAGE}")),
            },
        }
    }
    if asked.is_empty() {
        asked.extend(ROWS);
    }
    ready()?;
    let mut bad = Vec::new();
    // Rows with the same machine type share the programs.
    let mut built: BTreeMap<&str, Programs> = BTreeMap::new();
    for row in asked {
        println!("== {}: {}", row.name, row.about);
        let began = Instant::now();
        let programs = match built.entry(row.kernel.arch.debian) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(programs::ready(row, options.built)?),
        };
        let done = match package {
            Some(directory) => package::put(directory, row, &options, programs).map(|()| true),
            None => one(row, &options, programs),
        };
        match done {
            Ok(true) => {}
            Ok(false) => bad.push(row.name.to_owned()),
            Err(failure) => {
                eprintln!("{}: {failure}", row.name);
                bad.push(format!("{} (not run)", row.name));
            }
        }
        println!("== {}: {:.0} s", row.name, began.elapsed().as_secs_f64());
    }
    match bad.is_empty() {
        true => Ok(()),
        false => failed(format!("not right: {}", bad.join(", "))),
    }
}

/// Runs a row and puts it into the table. Returns whether all of it is right.
fn one(row: &Row, options: &boot::Options, programs: &Programs) -> Outcome<bool> {
    let kernel = kernel::ready(row.kernel)?;
    let root = rootfs::ready(row.kernel.arch)?;
    let accelerator = Accelerator::of(row.kernel.arch, options.emulate);
    let initramfs = initramfs::make(row, &kernel, programs, accelerator, options)?;
    let ran = boot::run(
        row,
        &kernel,
        &initramfs,
        [&root, &programs.image],
        accelerator,
        options,
    )?;
    let results = results::read(&ran)?;
    println!("{}", results.summary());
    report::put(row, &kernel, &ran, &results, options.only.as_deref())?;
    Ok(results.is_right())
}

/// Returns the directory in which downloads and images are kept.
fn cache() -> PathBuf {
    std::env::var_os("MIDAIR_VM")
        .filter(|path| !path.is_empty())
        .map_or_else(|| DEFAULT_CACHE.into(), PathBuf::from)
}

/// Installs what is missing, and fetches all kernels and root file systems.
fn setup() -> Outcome<()> {
    let missing = missing();
    if !missing.is_empty() {
        if !is_root() {
            return failed(format!("apt-get install {}", missing.join(" ")));
        }
        let mut command = Command::new("apt-get");
        command.args(["install", "--yes", "--no-install-recommends"]);
        midair_dev_kit::run::run(command.args(&missing))?;
    }
    for row in ROWS {
        let kernel = kernel::ready(row.kernel)?;
        rootfs::ready(row.kernel.arch)?;
        println!("{}: {}", row.name, kernel.release);
    }
    Ok(())
}

fn ready() -> Outcome<()> {
    if !is_root() {
        return failed("needs root: the guest's files belong to root");
    }
    let missing = missing();
    match missing.is_empty() {
        true => Ok(()),
        false => failed(format!(
            "needs Debian's {}: cargo vm setup installs them",
            missing.join(", ")
        )),
    }
}

fn missing() -> Vec<&'static str> {
    let there = |program: &str| {
        ["/usr/bin", "/bin", "/usr/sbin", "/sbin"]
            .iter()
            .any(|directory| PathBuf::from(directory).join(program).exists())
    };
    let absent = NEEDED.iter().filter(|(program, _)| !there(program));
    absent.map(|(_, package)| *package).collect()
}

/// Replaces a directory by an empty one and returns it.
fn emptied(directory: PathBuf) -> Outcome<PathBuf> {
    if directory.exists() {
        std::fs::remove_dir_all(&directory).at("removing", &directory)?;
    }
    std::fs::create_dir_all(&directory).at("making", &directory)?;
    Ok(directory)
}

/// Runs a line of sh with the arguments as `$1` and so on. Anything but success is a failure.
fn shell(line: &str, arguments: &[&std::ffi::OsStr]) -> Outcome<()> {
    let mut command = Command::new("bash");
    command.args(["-ec", line, "bash"]).args(arguments);
    midair_dev_kit::run::run(&mut command).map_err(|failure| Failure(format!("{failure} ({line})")))
}

fn main() -> std::process::ExitCode {
    midair_dev_kit::run_task("vm", USAGE, vm_task)
}
