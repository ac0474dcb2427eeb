//! The set-up of the suite. Everything that a later step needs is checked here, in one place and
//! before anything is built. On Debian, root has the missing packages installed. Everyone else gets
//! one line to copy.
//!
//! The table is the list in CONTRIBUTING.md, too (a test compares them).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{debian, disk, lab, miri};
use midair_dev_kit::run::{Outcome, failed, is_root, run};

/// Memory of the machine in MiB below which compilers are killed: two of them, and the linkers of
/// large test programs, use up to 1 GiB each.
const MEMORY: u64 = 2560;

/// How much the suite depends on a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weight {
    /// Nothing can be built, or many tests fail.
    Needed,
    /// The tests that need it are listed as left out; `--all` does not allow that.
    Wanted,
    /// It makes root directories, for root only.
    Roots,
}

/// How a package is found.
#[derive(Debug, Clone, Copy)]
enum FoundBy {
    /// A program in the path, by one of these names.
    Program(&'static [&'static str]),
    /// One of these files.
    File(&'static [&'static str]),
    /// A library, in one of the directories for libraries.
    Library(&'static str),
    /// A Python that makes virtual environments, or has pip.
    Python,
}

struct Need {
    /// Debian's name of it.
    package: &'static str,
    there: FoundBy,
    weight: Weight,
    /// The use of it, for a reader of the table.
    _why: &'static str,
}

const fn program(package: &'static str, names: &'static [&'static str], why: &'static str) -> Need {
    Need {
        package,
        there: FoundBy::Program(names),
        weight: Weight::Needed,
        _why: why,
    }
}

const fn wanted(package: &'static str, there: FoundBy, why: &'static str) -> Need {
    Need {
        package,
        there,
        weight: Weight::Wanted,
        _why: why,
    }
}

const NEEDS: &[Need] = &[
    program("gcc", &["gcc"], "programs of tests, SQLite, linking"),
    program("g++", &["g++"], "programs of tests in C++"),
    program("make", &["make"], "examples for builders"),
    program("pkgconf", &["pkg-config"], "examples for builders"),
    program("binutils", &["readelf"], "looking into libraries"),
    program("git", &["git"], "versions and reproducible products"),
    program("procps", &["ps"], "tests that list and end processes"),
    program("python3-minimal", &["python3"], "rocprof-attach"),
    Need {
        package: "python3-venv",
        there: FoundBy::Python,
        weight: Weight::Needed,
        _why: "readers of our files, from PyPI",
    },
    Need {
        package: "ca-certificates",
        there: FoundBy::File(&[
            "/etc/ssl/certs/ca-certificates.crt",
            "/etc/pki/tls/certs/ca-bundle.crt",
            "/etc/ssl/ca-bundle.pem",
            "/etc/ssl/cert.pem",
        ]),
        weight: Weight::Needed,
        _why: "crates.io and PyPI",
    },
    wanted(
        "libcap2-bin",
        FoundBy::Program(&["setcap"]),
        "capabilities of a file",
    ),
    wanted(
        "musl-tools",
        FoundBy::Program(&["musl-gcc"]),
        "targets on another libc",
    ),
    wanted("rpm", FoundBy::Program(&["rpmbuild"]), "Fedora's packages"),
    wanted(
        "libomp5",
        FoundBy::Library("libomp.so.5"),
        "OpenMP's events",
    ),
    wanted(
        "libjemalloc2",
        FoundBy::Library("libjemalloc.so.2"),
        "targets with another allocator",
    ),
    wanted(
        "chromium-headless-shell",
        FoundBy::Program(&["chromium-headless-shell", "chromium"]),
        "pages that we write",
    ),
    wanted(
        "tmux",
        FoundBy::Program(&["tmux"]),
        "a terminal for midair top",
    ),
    wanted(
        "otf2-tools",
        FoundBy::Program(&["otf2-print"]),
        "OTF2 archives that we write",
    ),
    Need {
        package: "debootstrap",
        there: FoundBy::Program(&["debootstrap"]),
        weight: Weight::Roots,
        _why: "the lab, a bare Debian 12",
    },
];

impl FoundBy {
    fn is_met(self) -> bool {
        match self {
            FoundBy::Program(names) => names.iter().any(|name| in_path(name)),
            FoundBy::File(paths) => paths.iter().any(|path| Path::new(path).exists()),
            FoundBy::Library(name) => [
                "/usr/lib/x86_64-linux-gnu",
                "/usr/lib/aarch64-linux-gnu",
                "/usr/lib64",
                "/usr/lib",
            ]
            .iter()
            .any(|directory| Path::new(directory).join(name).exists()),
            FoundBy::Python => ["import venv, ensurepip", "import pip"]
                .iter()
                .any(|script| {
                    let mut python = Command::new("python3");
                    python.args(["-c", script]);
                    let status = python.stdout(Stdio::null()).stderr(Stdio::null()).status();
                    status.is_ok_and(|status| status.success())
                }),
        }
    }
}

/// Returns whether a program is in one of the directories of `PATH`.
fn in_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
}

/// The missing packages.
#[derive(Debug, Default, PartialEq, Eq)]
struct Missing {
    /// Those without which the suite cannot go on.
    needed: Vec<&'static str>,
    /// Those without which tests are left out.
    wanted: Vec<&'static str>,
}

impl Missing {
    /// Sorts the packages that `is_there` does not find. With `all`, no test may be left out.
    fn find(all: bool, roots: bool, is_there: impl Fn(&Need) -> bool) -> Missing {
        let mut missing = Missing::default();
        for need in NEEDS.iter().filter(|need| !is_there(need)) {
            match need.weight {
                Weight::Roots if !roots => {}
                Weight::Wanted if !all => missing.wanted.push(need.package),
                _ => missing.needed.push(need.package),
            }
        }
        missing
    }

    fn all(&self) -> Vec<&'static str> {
        [self.needed.as_slice(), &self.wanted].concat()
    }

    /// Returns the line to copy.
    fn line(&self) -> String {
        let packages = self.all().join(" ");
        format!("sudo apt-get install --no-install-recommends {packages}")
    }
}

/// Checks and installs everything that the suite needs. `all`: nothing may be left out for want of
/// a package. `nightly`: Miri is wanted.
pub fn ready(all: bool, nightly: bool) -> Outcome<()> {
    packages(all)?;
    toolchain()?;
    if nightly && !miri::works() {
        println!(
            "Miri needs a nightly toolchain: rustup fetches one beside the first steps (700 MB); \
             --no-nightly leaves Miri out"
        );
    }
    memory()?;
    disk::before_the_suite()?;
    roots()
}

fn packages(all: bool) -> Outcome<()> {
    let roots = is_root() && (all || !lab::is_skipped());
    let missing = || Missing::find(all, roots, |need| need.there.is_met());
    let found = missing();
    if found == Missing::default() {
        return Ok(());
    }
    if is_root() && Path::new("/etc/debian_version").exists() && in_path("apt-get") {
        install(&found.all())?;
        let left = missing();
        return match left.needed.is_empty() {
            true => Ok(()),
            false => failed(format!(
                "installed, and still not found: {}",
                left.needed.join(" ")
            )),
        };
    }
    if found.needed.is_empty() {
        println!(
            "tests that need these packages are left out; to have them: {}",
            found.line()
        );
        return Ok(());
    }
    failed(format!(
        "packages are missing (by Debian's names): {}",
        found.line()
    ))
}

/// Has apt install packages. One that this release of Debian does not have is named, and the rest
/// is installed.
fn install(packages: &[&str]) -> Outcome<()> {
    println!("installing by apt: {}", packages.join(" "));
    run(apt("apt-get").args(["update", "-qq"]))?;
    let offered = |package: &&&str| {
        let mut show = apt("apt-cache");
        show.args(["show", "--quiet=2", package]);
        let status = show.stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    let (offered, others): (Vec<&&str>, Vec<&&str>) = packages.iter().partition(offered);
    for package in others {
        println!("this release has no package {package}");
    }
    if offered.is_empty() {
        return Ok(());
    }
    let mut install = apt("apt-get");
    install.args(["install", "-y", "-qq", "--no-install-recommends"]);
    run(install.args(offered))
}

fn apt(program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null());
    command
}

/// Checks the parts of the Rust toolchain.
fn toolchain() -> Outcome<()> {
    let mut missing = Vec::new();
    for (subcommand, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        if !has_subcommand(subcommand) {
            missing.push(component);
        }
    }
    if !missing.is_empty() {
        return failed(format!(
            "the toolchain lacks parts: rustup component add {}",
            missing.join(" ")
        ));
    }
    if !has_subcommand("nextest") {
        println!(
            "no cargo-nextest: cargo test does the same work, in more time; to have it: \
             cargo install --locked cargo-nextest"
        );
    }
    Ok(())
}

/// Returns whether cargo has a subcommand.
pub fn has_subcommand(name: &str) -> bool {
    let found = midair_dev_kit::run::cargo(&[name, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    found.is_ok_and(|status| status.success())
}

/// Checks the machine's memory, with its swap space.
fn memory() -> Outcome<()> {
    let Ok(text) = std::fs::read_to_string("/proc/meminfo") else {
        return failed("/proc is not mounted: the suite needs /proc, /dev/shm and /tmp");
    };
    if !PathBuf::from("/dev/shm").is_dir() {
        return failed("/dev/shm is not there: mount a tmpfs on it");
    }
    let total = mebibytes(&text, "MemTotal:") + mebibytes(&text, "SwapTotal:");
    if total < MEMORY {
        return failed(format!(
            "the machine has {total} MiB of memory and swap space, and the suite needs {MEMORY}"
        ));
    }
    Ok(())
}

/// Returns a value of /proc/meminfo in MiB, or 0.
fn mebibytes(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    let number = value.and_then(|value| value.split_whitespace().next());
    let kib: u64 = number.and_then(|number| number.parse().ok()).unwrap_or(0);
    kib / 1024
}

/// Says which root directories are made later, and checks that they can be.
fn roots() -> Outcome<()> {
    if !is_root() {
        println!("not root: tests in the lab and on a bare Debian 12 are left out");
        return Ok(());
    }
    if lab::is_skipped() || lab::is_made() {
        return Ok(());
    }
    match debian::mirror() {
        Some(mirror) => {
            println!(
                "beside the first steps, {mirror} fills {} (1 GB) and {} (190 MB)",
                lab::lab_root().display(),
                debian::root_of_12().display()
            );
            Ok(())
        }
        None => failed(
            "no Debian mirror in /etc/apt, from which the lab is made; MIDAIR_SKIP_LAB=1 leaves \
             its tests out",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_dev_kit::run::root;

    #[test]
    fn what_may_be_left_out_is_needed_with_all() {
        let none = |_: &Need| false;
        let plain = Missing::find(false, false, none);
        assert!(plain.needed.contains(&"python3-venv") && plain.needed.contains(&"gcc"));
        assert!(plain.wanted.contains(&"tmux") && !plain.needed.contains(&"tmux"));
        assert!(!plain.all().contains(&"debootstrap"));
        let all = Missing::find(true, true, none);
        assert!(all.wanted.is_empty() && all.needed.len() == NEEDS.len());
        assert_eq!(Missing::find(true, true, |_| true), Missing::default());
    }

    #[test]
    fn the_line_to_copy_has_every_missing_package() {
        let missing = Missing::find(false, true, |need| need.package != "tmux");
        assert_eq!(
            missing.line(),
            "sudo apt-get install --no-install-recommends tmux"
        );
    }

    /// The workflow on GitHub installs nothing that the set-up would install, and the documents name
    /// every package.
    #[test]
    fn the_documents_name_every_package() {
        let text = std::fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
        for need in NEEDS {
            assert!(
                text.contains(need.package),
                "CONTRIBUTING.md lacks {}",
                need.package
            );
        }
        let ci = std::fs::read_to_string(root().join(".ci/run")).unwrap();
        assert!(ci.contains("cargo xtask test --all") && !ci.contains("apt-get"));
    }

    #[test]
    fn memory_is_read_in_mebibytes() {
        let text = "MemTotal:       24684544 kB\nMemFree: 1 kB\nSwapTotal: 0 kB\n";
        assert_eq!(mebibytes(text, "MemTotal:"), 24_106);
        assert_eq!(mebibytes(text, "SwapTotal:"), 0);
        assert_eq!(mebibytes(text, "Nothing:"), 0);
    }

    #[test]
    fn a_mirror_is_found_in_both_files_and_in_neither() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let ask = || {
            let mut bash = Command::new("bash");
            let out = bash.arg(root().join("lab/mirror.sh")).arg(at).output();
            let out = out.unwrap();
            assert!(out.stderr.is_empty(), "{out:?}");
            let said = String::from_utf8(out.stdout).unwrap();
            (out.status.success(), said.trim().to_owned())
        };
        assert_eq!(ask(), (false, String::new()));
        let old = "# deb http://c/ x\ndeb [trusted=yes arch=amd64] http://a/debian bookworm main\n";
        std::fs::write(at.join("sources.list"), old).unwrap();
        assert_eq!(ask(), (true, "http://a/debian".to_owned()));
        std::fs::create_dir(at.join("sources.list.d")).unwrap();
        let new = "Types: deb\n# URIs: http://c\nURIs: http://b/debian http://d\nSuites: trixie\n";
        std::fs::write(at.join("sources.list.d/debian.sources"), new).unwrap();
        assert_eq!(ask(), (true, "http://b/debian".to_owned()));
        std::fs::remove_file(at.join("sources.list")).unwrap();
        assert_eq!(ask(), (true, "http://b/debian".to_owned()));
    }
}
