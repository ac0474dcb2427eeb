//! The test programs and what they need, as an image. Guests mount it at the path that the project
//! has here, so that the paths compiled into the programs are right.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use midair_dev_kit::run::{At, Outcome, cargo, failed, output, root, run, target_directory};
use midair_dev_stage::{self as stage, Build};

use super::kernel::AMD64;
use super::rootfs::make_image;
use super::rows::Row;
use super::{arm64, emptied};

/// The packages of the engine whose tests are run.
const PACKAGES: &[&str] = &[
    "midair-ptrace",
    "midair-procinfo",
    "midair-inject",
    "midair-session",
    "midair-register",
    "midair-register-so",
];

/// A program with tests.
pub struct Program {
    /// Its name as nextest writes it: `PACKAGE` or `PACKAGE::TARGET`.
    pub name: String,
    /// The executable.
    pub path: PathBuf,
    /// The package's directory, in which cargo runs the program.
    pub directory: PathBuf,
}

/// The programs and their image.
pub struct Programs {
    pub programs: Vec<Program>,
    pub image: PathBuf,
    /// The directory into which cargo built them.
    pub built: PathBuf,
    /// The product for this machine type.
    pub stage: PathBuf,
}

/// Builds the programs for a row. With `built` it takes what the stage and cargo's directory have
/// already, which is enough where no tests are run.
pub fn ready(row: &Row, built: bool) -> Outcome<Programs> {
    if row.kernel.arch != AMD64 {
        return arm64::ready(built);
    }
    let programs = match built {
        true => Vec::new(),
        false => build()?,
    };
    let target = target_directory();
    let ours = &[
        "midair-enter",
        "midair-drive",
        "midair-torture",
        "midair-vm-checks",
    ];
    let (built, stage) = (target.join("debug"), target.join("stage"));
    packed(programs, ours, built, stage, "amd64", "strip")
}

/// Puts into an image what a guest needs: test programs, these programs of midair's, the libraries that
/// were built with them, and the product.
pub fn packed(
    programs: Vec<Program>,
    ours: &[&str],
    built: PathBuf,
    stage: PathBuf,
    architecture: &str,
    strip: &str,
) -> Outcome<Programs> {
    let mut carried: BTreeSet<PathBuf> = programs.iter().map(|it| it.path.clone()).collect();
    carried.extend(ours.iter().map(|name| built.join(name)));
    // These are the libraries that tests load into processes, and the stand-ins.
    for directory in [built.join("deps"), built.clone()] {
        for entry in fs::read_dir(&directory).at("reading", &directory)? {
            let path = entry.at("reading", &directory)?.path();
            carried.extend(is_library(&path).then_some(path));
        }
    }
    carried.insert(stage.clone());
    let image = image_of(&carried, architecture, strip)?;
    Ok(Programs {
        programs,
        image,
        built,
        stage,
    })
}

/// Builds all programs and stages the product.
fn build() -> Outcome<Vec<Program>> {
    // The whole workspace is built, so that nothing is built twice with other features.
    run(&mut cargo(&[
        "build",
        "--quiet",
        "--workspace",
        "--lib",
        "--bins",
    ]))?;
    stage::stage_built(Build::Debug)?;
    let mut tests = cargo(&["test", "--no-run", "--message-format=json", "--quiet"]);
    tests.args(["--lib", "--test", "it"]);
    for package in PACKAGES {
        tests.args(["--package", package]);
    }
    programs(&output(&mut tests)?)
}

/// Returns whether a file is a midair library. Libraries of procedural macros have a hash behind a
/// dash.
fn is_library(path: &Path) -> bool {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.extension().is_some_and(|it| it == "so") && !stem.contains('-')
}

/// Returns the test programs in cargo's messages.
pub fn programs(messages: &[u8]) -> Outcome<Vec<Program>> {
    let mut found = Vec::new();
    for line in String::from_utf8_lossy(messages).lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let is_test = message["profile"]["test"] == true;
        let (Some(path), true) = (message["executable"].as_str(), is_test) else {
            continue;
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let manifest = PathBuf::from(text(&message["manifest_path"]));
        let directory = manifest.parent().unwrap_or(Path::new("/")).to_path_buf();
        let package = directory.file_name().unwrap_or_default();
        let package = format!("midair-{}", package.to_string_lossy());
        let kinds = &message["target"]["kind"];
        let is_unit = kinds
            .as_array()
            .is_some_and(|it| !it.contains(&"test".into()));
        let name = match is_unit {
            true => package,
            false => format!("{package}::{}", text(&message["target"]["name"])),
        };
        found.push(Program {
            name,
            path: path.into(),
            directory,
        });
    }
    // Unit tests come first, then the rest in the order of the packages. Whole sessions take
    // longest and come last.
    found.sort_by_key(|it: &Program| {
        let (package, target) = it.name.split_once("::").unwrap_or((&it.name, ""));
        let sessions = package == "midair-session";
        (!target.is_empty(), sessions, it.name.clone())
    });
    match found.is_empty() {
        true => failed("cargo names no test programs"),
        false => Ok(found),
    }
}

/// Makes an image with the project's sources and with these files and directories, all at their own
/// paths. They leave what is for debuggers only behind, which is most of their bytes.
fn image_of(carried: &BTreeSet<PathBuf>, name: &str, strip: &str) -> Outcome<PathBuf> {
    let (top, work) = (root(), target_directory().join("vm"));
    let tree = emptied(work.join(format!("tree-{name}")))?;
    let list = output(
        Command::new("git")
            .args(["ls-files", "-z"])
            .current_dir(&top),
    )?;
    let sources = String::from_utf8_lossy(&list).into_owned();
    let mut names: Vec<PathBuf> = sources
        .split('\0')
        .filter(|name| !name.is_empty() && top.join(name).exists())
        .map(PathBuf::from)
        .collect();
    for path in carried {
        match path.strip_prefix(&top) {
            Ok(inside) => names.push(inside.to_path_buf()),
            Err(_) => return failed(format!("{} is not below the project", path.display())),
        }
    }
    let list = work.join(format!("files-{name}"));
    let text: String = names
        .iter()
        .map(|it| format!("{}\0", it.display()))
        .collect();
    fs::write(&list, text).at("writing", &list)?;
    super::shell(
        r#"cd "$1"; tar --create --null --files-from="$2" | tar --extract --directory "$3"
find "$3/target" -type f -size +64k | while read -r file; do
    case $(head -c 4 "$file" | tr -d '\177') in ELF) "$4" --strip-debug "$file" ;; esac
done
mkdir -p "$3/target/tmp" "$3/target/test-programs""#,
        &[
            top.as_os_str(),
            list.as_os_str(),
            tree.as_os_str(),
            OsStr::new(strip),
        ],
    )?;
    let image = work.join(format!("programs-{name}.img"));
    make_image(&tree, &image, "6G")?;
    fs::remove_dir_all(&tree).at("removing", &tree)?;
    Ok(image)
}
