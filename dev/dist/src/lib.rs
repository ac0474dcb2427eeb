//! `cargo xtask dist`: what others install, made from the same staged tree.
//!
//! Two runs on the same commit give equal bytes, also from another directory (`--twice`): paths of this
//! machine are mapped away, every time is the commit's, and every list is sorted.
#![forbid(unsafe_code)]

mod check;
mod deb;
mod emulated;
mod glibc;
mod image;
mod one_file;
mod package;
mod rpm;
mod sbom;
mod sums;
mod tree;
mod twice;
mod wheel;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use midair_dev_kit::aarch64::is_there;
use midair_dev_kit::machine::Machine;
use midair_dev_kit::run::{At, Outcome, cargo, failed, output, root, run, target_directory};
use midair_dev_stage::{self as stage, layout};

/// `midair` is each of these by the name that it is called by, so one copy of the code is enough.
const OTHER_NAMES: [&str; 2] = ["rocprofv3", "rocprof-compute"];

/// What every product is made from.
#[derive(Debug)]
pub struct Release {
    /// An installation, without debug information.
    pub prefix: PathBuf,
    /// Where products go.
    pub to: PathBuf,
    /// Where products may put together what they pack.
    pub work: PathBuf,
    /// As in `0.2.0`.
    pub version: String,
    /// The commit's time, in seconds since 1970.
    pub time: u64,
    /// The machine, by the kernel's name: `x86_64` or `aarch64`.
    pub machine: &'static str,
    /// The same, with its tool chain.
    pub of: &'static Machine,
}

/// One thing that can be installed.
struct Product {
    name: &'static str,
    make: fn(&Release) -> Outcome<Vec<PathBuf>>,
}

const PRODUCTS: &[Product] = &[
    Product {
        name: "one-file",
        make: one_file::make,
    },
    Product {
        name: "tarball",
        make: tree::tarball,
    },
    Product {
        name: "deb",
        make: deb::make,
    },
    Product {
        name: "rpm",
        make: rpm::make,
    },
    Product {
        name: "wheel",
        make: wheel::make,
    },
    Product {
        name: "image",
        make: image::make,
    },
    Product {
        name: "sbom",
        make: sbom::make,
    },
];

/// What the suite installs and uses, made of what is staged.
pub fn of_stage(to: &Path) -> Outcome<()> {
    let prefix = target_directory().join("stage");
    let work = target_directory().join("dist");
    // What an earlier run made of another version would be found, too.
    tree::anew(to)?;
    let release = release(&prefix, &work, to, Machine::here())?;
    let make = |name: &str| -> Outcome<()> {
        if name == "rpm" && !is_there("rpmbuild") {
            println!("rpm: left out: no rpmbuild (Debian's package rpm)");
            return Ok(());
        }
        let product = PRODUCTS.iter().find(|product| product.name == name);
        product.map_or(Ok(()), |product| (product.make)(&release).map(drop))
    };
    // The image has the one file in it. All others are made side by side.
    make("one-file")?;
    std::thread::scope(|scope| {
        let names = ["deb", "tarball", "rpm", "wheel", "image"];
        let made = names.map(|name| scope.spawn(move || make(name)));
        made.into_iter().try_for_each(|made| {
            let outcome = made.join();
            outcome.unwrap_or_else(|_| failed("a product could not be made"))
        })
    })?;
    // What they were packed from is three times as large as what the tests use.
    for name in ["deb", "image", "prefix", "rpm", "tarball"] {
        let packed = work.join(name);
        if packed.exists() {
            fs::remove_dir_all(&packed).at("removing", &packed)?;
        }
    }
    Ok(())
}

/// `cargo xtask dist`.
pub fn dist_task(words: &[String]) -> Outcome<()> {
    let mut staged = None;
    let mut to = root().join("dist");
    let mut wanted: Vec<&Product> = Vec::new();
    let mut only_check = false;
    let mut strict = false;
    let mut and_again = false;
    let mut machine = Machine::here();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--check" => {
                only_check = true;
                continue;
            }
            "--strict" => {
                strict = true;
                continue;
            }
            "--twice" => {
                and_again = true;
                continue;
            }
            "--machine" => {
                machine = Machine::named(words.next().map_or("", String::as_str))?;
                continue;
            }
            "--staged" => {
                staged = words.next().map(PathBuf::from);
                continue;
            }
            "--to" => {
                to = words.next().map(PathBuf::from).unwrap_or(to);
                continue;
            }
            _ => {}
        }
        match PRODUCTS.iter().find(|product| product.name == word) {
            Some(product) => wanted.push(product),
            None => {
                let names: Vec<&str> = PRODUCTS.iter().map(|product| product.name).collect();
                return failed(format!(
                    "takes --machine NAME, --staged PREFIX, --to DIR, --twice, --check [--strict] and any of {}, not {word}",
                    names.join(", ")
                ));
            }
        }
    }
    if only_check {
        return check::check(&to, strict);
    }
    if strict {
        return failed("--strict belongs to --check");
    }
    if and_again {
        if staged.is_some() {
            return failed("--twice compiles, so it takes no --staged");
        }
        twice::is_committed()?;
    }
    if wanted.is_empty() {
        wanted = PRODUCTS.iter().collect();
    }
    let work = target_directory().join("dist");
    let built = match staged {
        Some(prefix) => prefix,
        None => build(&work, machine)?,
    };
    let release = release(&built, &work, &to, machine)?;
    let mut made = Vec::new();
    for product in &wanted {
        println!("{}", product.name);
        made.extend((product.make)(&release)?);
    }
    let sums = sums::write(&release.to)?;
    for file in made.iter().chain([&sums]) {
        let bytes = fs::metadata(file).at("looking at", file)?.len();
        println!("{:>9.2} MB  {}", bytes as f64 / 1e6, file.display());
    }
    if and_again {
        let mut words = vec!["--machine", machine.name];
        words.extend(wanted.iter().map(|product| product.name));
        return twice::compare(&work, &words, &made);
    }
    Ok(())
}

/// Builds what is shipped, with this machine's paths mapped away, and lays it out.
fn build(work: &Path, machine: &'static Machine) -> Outcome<PathBuf> {
    let target = work.join("build");
    let home = cargo_home();
    let places = [(root(), "/midair"), (home, "/cargo")];
    let mapped = |option: &str| {
        let all = places.iter();
        all.map(|(from, to)| format!("{option}={}={to}", from.display()))
            .collect::<Vec<_>>()
    };
    let revision = output(git(&["rev-parse", "HEAD"]))?;
    // The linker makes the build id of all that it writes. Names of local functions have a hash of the compiler's
    // intermediate code in them, which LLVM does not order the same each time, although the same machine code comes out.
    let mut flags = mapped("--remap-path-prefix");
    flags.push("-Cstrip=symbols".to_owned());
    let mut command = cargo(&["build", "--release", "--locked"]);
    let mut built = target.clone();
    if let Some(name) = machine.cross() {
        command.args(["--target", name]);
        machine.linker(&mut command);
        built.push(name);
    }
    for package in layout::PACKAGES {
        command.args(["--package", package]);
    }
    // Each of midair's other names would be compiled and linked for minutes, and then be left out.
    command.arg("--lib");
    for program in [
        "midair",
        "midair-aqlprofile",
        "midair-collector",
        "midair-disassemble",
        "midair-nvmetrics",
        "midair-serve",
    ] {
        command.args(["--bin", program]);
    }
    command
        .arg("--target-dir")
        .arg(&target)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        // SQLite, in C: its debug information goes into the build id, which stays when that is cut off.
        .env("CFLAGS", mapped("-ffile-prefix-map").join(" "))
        .env("CARGO_INCREMENTAL", "0")
        .env(
            "MIDAIR_GIT_REVISION",
            String::from_utf8_lossy(&revision).trim(),
        );
    run(&mut command)?;
    let prefix = work.join("stage");
    let built = built.join("release");
    for name in OTHER_NAMES {
        tree::link("midair", &built.join(name))?;
    }
    stage::stage_for(&built, &prefix, machine)?;
    check::sent(&prefix)?;
    Ok(prefix)
}

fn cargo_home() -> PathBuf {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo"));
    std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(home)
        .unwrap_or_default()
}

fn git(words: &[&str]) -> &'static mut Command {
    // A task runs a handful of these and ends.
    let command = Box::leak(Box::new(Command::new("git")));
    command.args(words).current_dir(root())
}

/// What products are made from: the staged files without debug information.
fn release(staged: &Path, work: &Path, to: &Path, machine: &'static Machine) -> Outcome<Release> {
    let time = output(git(&["log", "-1", "--format=%ct"]))?;
    let time = String::from_utf8_lossy(&time).trim().parse().unwrap_or(0);
    let prefix = work.join("prefix");
    tree::anew(&prefix)?;
    tree::copy_stripped(staged, &prefix, &machine.tool("strip"))?;
    for name in OTHER_NAMES {
        tree::link("midair", &prefix.join("bin").join(name))?;
    }
    fs::create_dir_all(to).at("making", to)?;
    Ok(Release {
        prefix,
        to: to.to_path_buf(),
        work: work.to_path_buf(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        time,
        machine: machine.name,
        of: machine,
    })
}
