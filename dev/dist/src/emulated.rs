//! Products for aarch64, checked on x86-64: the programs start under an emulator of user programs, the
//! packages name their machine, and the libraries export what the x86-64 libraries export.
//!
//! Attaching needs ptrace, which the emulator does not have: that part is not shown here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::check::made;
use super::tree;
use midair_dev_kit::aarch64::{EMULATOR, emulated, is_there};
use midair_dev_kit::run::{At, Outcome, output, run, target_directory};

/// The exit status of `midair doctor` where something is in the way of an attach.
const HINDERED: i32 = 20;

/// What is wrong with the files of this directory; nothing where there are none for aarch64. What could
/// not be looked at is added to `left_out`.
pub fn check(dist: &Path, left_out: &mut Vec<String>) -> Outcome<Vec<String>> {
    let mut faults = Vec::new();
    for deb in made(dist, ".deb")? {
        let field = output(
            Command::new("dpkg-deb")
                .arg("--field")
                .arg(&deb)
                .arg("Architecture"),
        )?;
        let field = String::from_utf8_lossy(&field).trim().to_owned();
        if !deb.to_string_lossy().ends_with(&format!("_{field}.deb")) {
            faults.push(format!("{} is for {field}", deb.display()));
        }
    }
    let programs = made(dist, "-aarch64-linux")?;
    let archives = [
        made(dist, "-x86_64-linux.tar.gz")?,
        made(dist, "-aarch64-linux.tar.gz")?,
    ];
    let nothing = programs.is_empty() && archives[1].is_empty();
    if nothing || std::env::consts::ARCH == "aarch64" {
        return Ok(faults);
    }
    if programs.is_empty() {
        println!("aarch64: there is no program to start");
    } else if is_there(EMULATOR) {
        for program in programs {
            faults.extend(starts(&program)?);
        }
    } else {
        left_out.push(format!(
            "aarch64: not run: no {EMULATOR} (Debian's qemu-user-static)"
        ));
    }
    match archives.each_ref().map(Vec::as_slice) {
        [[here], [there]] => {
            let (here, there) = (exports(here)?, exports(there)?);
            let count: usize = here.values().map(Vec::len).sum();
            println!("{} libraries export {count} symbols", here.len());
            faults.extend(differences(&here, &there));
        }
        _ => left_out.push(
            "aarch64: exports not compared: there is not one archive of each machine".to_owned(),
        ),
    }
    Ok(faults)
}

/// Starts the one file as each of its programs.
fn starts(program: &Path) -> Outcome<Vec<String>> {
    let mut faults = Vec::new();
    let place = target_directory().join("dist/emulated");
    tree::anew(&place)?;
    for (name, words, expected) in [
        (
            "midair",
            &["--version"][..],
            concat!("midair ", env!("CARGO_PKG_VERSION")),
        ),
        ("midair", &["ps"], ""),
        ("midair", &["doctor"], "libraries"),
        ("rocprofv3", &["--help"], "Usage: rocprofv3"),
        ("rocprof-compute", &["--help"], "Usage: rocprof-compute"),
        ("rocpd", &["--help"], "Usage: rocpd"),
        ("rocprofv3-avail", &["--help"], "Usage: rocprofv3-avail"),
    ] {
        let named = place.join(name);
        if !named.exists() {
            std::fs::copy(program, &named).at("copying", program)?;
        }
        let mut command = emulated(&named);
        let ran = command.args(words).stdin(Stdio::null()).output();
        let ran = ran.at("starting", &named)?;
        let said = String::from_utf8_lossy(&ran.stdout);
        let code = ran.status.code();
        let ended = code == Some(0) || words == ["doctor"] && code == Some(HINDERED);
        // The libraries that it carries are found.
        let whole = !said.contains("NO  libraries");
        if !ended || !whole || !said.contains(expected) {
            faults.push(format!(
                "{name} {} for aarch64: {}: {said}{}",
                words.join(" "),
                ran.status,
                String::from_utf8_lossy(&ran.stderr)
            ));
        }
    }
    println!("aarch64: the programs start under {EMULATOR}");
    Ok(faults)
}

/// Exported names of an archive's libraries, by file.
fn exports(archive: &Path) -> Outcome<BTreeMap<String, Vec<String>>> {
    let place = target_directory().join("dist/exports");
    tree::anew(&place)?;
    run(Command::new("tar")
        .arg("-xf")
        .arg(archive)
        .arg("-C")
        .arg(&place)
        // `./` and the archive's one directory.
        .arg("--strip-components=2"))?;
    let mut found = BTreeMap::new();
    let mut names: Vec<String> = Vec::new();
    tree::copy(&place, Path::new("/nowhere"), &mut |name| {
        let is_library = name.starts_with("lib/") && name.contains(".so");
        if is_library && !place.join(name).is_symlink() {
            names.push(name.to_owned());
        }
        false
    })?;
    for name in names {
        let symbols = defined(&place.join(&name))?;
        found.insert(name, symbols);
    }
    Ok(found)
}

fn defined(library: &PathBuf) -> Outcome<Vec<String>> {
    let said = output(
        Command::new("readelf")
            .args(["--wide", "--dyn-syms"])
            .arg(library),
    )?;
    Ok(names_of(&String::from_utf8_lossy(&said)))
}

/// The names in readelf's table that the file defines, sorted.
fn names_of(table: &str) -> Vec<String> {
    let rows = table.lines().map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [_, _, _, _, "GLOBAL" | "WEAK", _, place, name, ..] if *place != "UND" => Some(*name),
            _ => None,
        }
    });
    let mut names: Vec<String> = rows.flatten().map(str::to_owned).collect();
    names.sort();
    names
}

/// What one machine's libraries have and the other's have not.
fn differences(
    here: &BTreeMap<String, Vec<String>>,
    there: &BTreeMap<String, Vec<String>>,
) -> Vec<String> {
    let mut faults = Vec::new();
    if here.is_empty() {
        faults.push("the archives have no libraries".to_owned());
    }
    for (one, other, machine) in [(here, there, "aarch64"), (there, here, "x86_64")] {
        for (file, names) in one {
            let Some(others) = other.get(file) else {
                faults.push(format!("{machine} has no {file}"));
                continue;
            };
            let lacks: Vec<&str> = names
                .iter()
                .filter(|name| !others.contains(name))
                .map(String::as_str)
                .collect();
            if !lacks.is_empty() {
                faults.push(format!(
                    "{file} of {machine} does not export {}",
                    lacks.join(", ")
                ));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_are_defined() {
        let table = "Symbol table '.dynsym' contains 4 entries:\n\
             Num:    Value          Size Type    Bind   Vis      Ndx Name\n\
               0: 0000000000000000     0 NOTYPE  LOCAL  DEFAULT  UND \n\
               1: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND free@GLIBC_2.17 (2)\n\
               2: 0000000000007d8c    20 FUNC    GLOBAL DEFAULT   12 roctxMarkA\n\
               3: 0000000000007d00    20 FUNC    GLOBAL DEFAULT   12 attach\n";
        assert_eq!(names_of(table), ["attach", "roctxMarkA"]);
    }

    #[test]
    fn a_name_that_one_machine_lacks_is_told() {
        let of = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            BTreeMap::from([("lib/x.so".to_owned(), names)])
        };
        assert!(differences(&of(&["a"]), &of(&["a"])).is_empty());
        assert_eq!(
            differences(&of(&["a", "b"]), &of(&["a"])),
            ["lib/x.so of aarch64 does not export b"]
        );
        assert!(!differences(&BTreeMap::new(), &BTreeMap::new()).is_empty());
        assert_eq!(
            differences(&of(&[]), &BTreeMap::new()),
            ["aarch64 has no lib/x.so"]
        );
    }
}
