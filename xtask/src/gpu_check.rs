//! The check on an NVIDIA GPU: runs `gpu/check.py` with the staged product here, or packs both for
//! another machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use midair_dev_kit::run::{At, Outcome, failed, root, run};
use midair_dev_stage as stage;
use midair_dev_stage::layout::DEMO;

/// The files of the staged product that the check uses, below the prefix.
const STAGED: &[&str] = &[
    "bin/midair",
    "bin/rocprofv3",
    "lib/rocprofiler-sdk/midair-nvmetrics",
    "lib/rocprofiler-sdk/midair-serve",
];
/// The directory for results, below the project.
const RESULTS: &str = "bench-results";

/// The contents of the command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Arguments {
    /// The directory into which everything is only packed.
    pack: Option<PathBuf>,
    /// The prefix where the product is staged already.
    stage: Option<PathBuf>,
    /// Arguments for the script.
    rest: Vec<String>,
}

/// Runs `cargo xtask gpu-check`.
pub fn gpu_check_task(arguments: &[String]) -> Outcome<()> {
    let arguments = parse(arguments)?;
    let prefix = match arguments.stage {
        Some(prefix) => prefix,
        None => stage::stage(stage::Build::Release)?,
    };
    if let Some(directory) = arguments.pack {
        pack(&prefix, &directory)?;
        println!(
            "packed: {0}\nthere: python3 {0}/gpu/check.py --stage {0}/stage --out RESULTS",
            directory.display()
        );
        return Ok(());
    }
    run(Command::new("python3")
        .arg(root().join("gpu/check.py"))
        .arg("--stage")
        .arg(&prefix)
        .arg("--out")
        .arg(root().join(RESULTS))
        .args(arguments.rest))
}

fn parse(given: &[String]) -> Outcome<Arguments> {
    let mut arguments = Arguments::default();
    let mut given = given.iter();
    while let Some(word) = given.next() {
        let directory = match word.as_str() {
            "--pack" => &mut arguments.pack,
            "--staged" => &mut arguments.stage,
            _ => {
                arguments.rest.push(word.clone());
                continue;
            }
        };
        let Some(path) = given.next() else {
            return failed(format!("{word} needs a directory"));
        };
        *directory = Some(std::path::absolute(path).at("finding", Path::new(path))?);
    }
    Ok(arguments)
}

/// Lays out what goes to the machine with the GPU: the product without debugging information, and
/// the scripts.
fn pack(prefix: &Path, directory: &Path) -> Outcome<()> {
    let (stage, scripts) = (directory.join("stage"), directory.join("gpu"));
    for wanted in STAGED {
        strip(&prefix.join(wanted), &stage.join(wanted))?;
    }
    for below in ["lib", "lib/rocprofiler-sdk"] {
        for library in files(&prefix.join(below), |name| name.contains(".so"))? {
            if let Some(name) = library.file_name() {
                strip(&library, &stage.join(below).join(name))?;
            }
        }
    }
    // Part y attaches to the demo program.
    run(Command::new("cp")
        .arg("-a")
        .args([prefix.join(DEMO), stage.join("lib")]))?;
    // Part v reads which calls only ask for state, and the numbers of all calls.
    let api = directory.join("api");
    make(&api)?;
    for name in ["cuda_silent.json", "cupti_13.json"] {
        let table = root().join("api").join(name);
        fs::copy(&table, api.join(name)).at("copying", &table)?;
    }
    make(&scripts)?;
    // Part f runs the programs whose lines the tests know, too.
    for lines in ["launch_lines.py", "cuda_graph_lines.py"] {
        let from = root().join("tests/python").join(lines);
        fs::copy(&from, scripts.join(lines)).at("copying", &from)?;
    }
    for source in files(&root().join("gpu"), |name| {
        [".py", ".cu", ".c"].iter().any(|end| name.ends_with(end))
    })? {
        if let Some(name) = source.file_name() {
            fs::copy(&source, scripts.join(name)).at("copying", &source)?;
        }
    }
    Ok(())
}

/// Returns the regular files of a directory whose names are wanted. Links are left out.
fn files(directory: &Path, wanted: impl Fn(&str) -> bool) -> Outcome<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).at("listing", directory)? {
        let entry = entry.at("listing", directory)?;
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && entry.file_name().to_str().is_some_and(&wanted) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

fn make(directory: &Path) -> Outcome<()> {
    fs::create_dir_all(directory).at("making", directory)
}

/// Copies a program or library without its debugging information.
fn strip(from: &Path, to: &Path) -> Outcome<()> {
    if let Some(above) = to.parent() {
        make(above)?;
    }
    run(Command::new("strip")
        .arg("--strip-debug")
        .arg("-o")
        .arg(to)
        .arg(from))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(text: &[&str]) -> Outcome<Arguments> {
        parse(&text.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn directories_are_absolute_and_the_rest_is_the_scripts() {
        let parsed = arguments(&["--quick", "--pack", "/a/b", "--parts", "ac"]).unwrap();
        assert_eq!(parsed.pack, Some(PathBuf::from("/a/b")));
        assert_eq!(parsed.stage, None);
        assert_eq!(parsed.rest, ["--quick", "--parts", "ac"]);
        assert!(arguments(&["--pack"]).is_err());
        let relative = arguments(&["--staged", "x"]).unwrap();
        assert!(relative.stage.unwrap().is_absolute());
    }

    #[test]
    fn scripts_are_all_there() {
        let all = files(&root().join("gpu"), |_| true).unwrap();
        let names: Vec<&str> = all
            .iter()
            .filter_map(|path| path.file_name()?.to_str())
            .collect();
        for wanted in [
            "check.py",
            "count.cu",
            "raw.c",
            "plainloop.c",
            "train.py",
            "infer.py",
            "rates.py",
            "tracks.py",
        ] {
            assert!(names.contains(&wanted), "{wanted} of {names:?}");
        }
    }
}
