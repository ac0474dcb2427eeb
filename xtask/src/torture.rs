//! Builds and runs `torture/`, the torture matrix, and puts its table where it is read.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::lab;
use midair_dev_kit::run::{At, Outcome, cargo, root, run, target_directory};
use midair_dev_stage as stage;

/// The package from PyPI that the other attach methods need.
const FRIDA: &str = "frida==17.*";

/// Runs `cargo xtask torture`.
pub fn torture_task(words: &[String]) -> Outcome<()> {
    let said = |word: &str| words.iter().any(|given| given == word);
    let quick = said("--quick");
    let staged = stage::stage(if quick {
        stage::Build::Debug
    } else {
        stage::Build::Release
    })?;
    if !quick && !lab::is_skipped() {
        // The lab is for what runs on AMD's own library. Without it the table says what was left
        // out.
        if let Err(failure) = lab::ready() {
            eprintln!("the lab cannot be had: {failure}");
        }
    }
    let mut command = cargo(&["run", "--package", "midair-torture"]);
    if !quick {
        command.arg("--release");
    }
    command.arg("--").args(words).env("MIDAIR_STAGE", staged);
    if !quick && !said("--no-others") {
        match frida() {
            Ok(python) => {
                command.env("MIDAIR_FRIDA", python);
            }
            // frida is one of the other attach methods, and the table says that it was left out.
            Err(failure) => eprintln!("frida cannot be had: {failure}"),
        }
    }
    // A part of the matrix does not replace the table of the whole. The other attach methods by
    // themselves have a table of their own.
    let part = ["--row", "--cell", "--by", "--out", "--quick", "--help"];
    if !part.iter().any(|word| said(word)) {
        command.arg("--out").arg(root().join("bench-results"));
        command
            .arg("--docs")
            .arg(root().join("bench-results/attach-engine.md"));
    }
    run(&mut command)
}

/// Returns a Python with frida, which is made once.
fn frida() -> Outcome<PathBuf> {
    let directory = target_directory().join("frida");
    let python = directory.join("bin/python");
    let mark = directory.join(".midair");
    if fs::read_to_string(&mark).is_ok_and(|made| made == FRIDA) {
        return Ok(python);
    }
    run(Command::new("python3").args(["-m", "venv"]).arg(&directory))?;
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet", FRIDA]))?;
    fs::write(&mark, FRIDA).at("writing", &mark)?;
    Ok(python)
}
