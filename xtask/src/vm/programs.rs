//! The test programs and what they need, as an image that guests mount where the project is here:
//! paths that were compiled into them are then right.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::run::{At, Outcome, cargo, failed, output, root, run, target_directory};
use crate::stage::{self, Build};

use super::kernel::AMD64;
use super::rootfs::make_image;
use super::rows::Row;
use super::{arm64, emptied};

/// The engine: packages whose tests are run.
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
    /// `PACKAGE` or `PACKAGE::TARGET`, as nextest has it.
    pub name: String,
    /// The executable.
    pub path: PathBuf,
    /// The package's directory, in which cargo runs it.
    pub directory: PathBuf,
}

/// Programs and their image.
pub struct Programs {
    pub programs: Vec<Program>,
    pub image: PathBuf,
}

/// Builds them for a row; `built`: takes what the stage and cargo's directory hold already, which is
/// enough where no tests are run.
pub fn ready(row: &Row, built: bool) -> Outcome<Programs> {
    if row.kernel.arch != AMD64 {
        return arm64::ready();
    }
    let programs = match built {
        true => Vec::new(),
        false => build()?,
    };
    let target = target_directory();
    let mut carried: BTreeSet<PathBuf> = programs.iter().map(|it| it.path.clone()).collect();
    carried.extend(
        [
            "midair-enter",
            "midair-drive",
            "midair-torture",
            "midair-vm-checks",
        ]
        .map(|name| target.join("debug").join(name)),
    );
    // The libraries that tests put into processes, and the stand-ins.
    for directory in [target.join("debug/deps"), target.join("debug")] {
        for entry in fs::read_dir(&directory).at("reading", &directory)? {
            let path = entry.at("reading", &directory)?.path();
            carried.extend(is_library(&path).then_some(path));
        }
    }
    carried.insert(target.join("stage"));
    let image = image_of(&carried, "amd64")?;
    Ok(Programs { programs, image })
}

/// Builds all and stages it.
fn build() -> Outcome<Vec<Program>> {
    // Of the whole workspace, so that nothing is built twice with other features.
    run(&mut cargo(&[
        "build",
        "--quiet",
        "--workspace",
        "--lib",
        "--bins",
    ]))?;
    stage::stage_built(Build::Debug)?;
    let mut tests = cargo(&["test", "--no-run", "--message-format=json", "--quiet"]);
    tests.args(["--workspace", "--lib", "--test", "it"]);
    let mut programs = programs(&output(&mut tests)?)?;
    programs.retain(|it| PACKAGES.contains(&it.name.split("::").next().unwrap_or_default()));
    // Unit tests first, then in the order of the packages: whole sessions, which take longest, last.
    programs.sort_by_key(|it| {
        let (package, target) = it.name.split_once("::").unwrap_or((&it.name, ""));
        let sessions = package == "midair-session";
        (!target.is_empty(), sessions, it.name.clone())
    });
    Ok(programs)
}

/// A library of ours. Those of procedural macros have a hash behind a dash.
pub fn is_library(path: &Path) -> bool {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.extension().is_some_and(|it| it == "so") && !stem.contains('-')
}

/// The test programs in cargo's messages.
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
    match found.is_empty() {
        true => failed("cargo names no test programs"),
        false => Ok(found),
    }
}

/// An image with the project's sources and these files and directories below it, at their places.
pub fn image_of(carried: &BTreeSet<PathBuf>, name: &str) -> Outcome<PathBuf> {
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
mkdir -p "$3/target/tmp" "$3/target/test-programs""#,
        &[top.as_os_str(), list.as_os_str(), tree.as_os_str()],
    )?;
    let image = work.join(format!("programs-{name}.img"));
    make_image(&tree, &image, "6G")?;
    fs::remove_dir_all(&tree).at("removing", &tree)?;
    Ok(image)
}
