//! What the C++ headers compute, which `tests/clients/cxx_headers.cpp` checks itself, with the
//! staged library, and both without the runtimes' headers and with them.

use super::{LANGUAGES, LIMIT, compiler, include, stand_ins};
use midair_tests::lab::Lab;
use midair_tests::stage::stage;
use midair_tests::target::{PATIENCE, run};
use midair_tests::{Result, workspace};
use std::path::Path;
use std::process::Command;

fn compile(out: &Path, more: &[String]) -> Result<()> {
    let mut command = compiler(LANGUAGES[1]);
    command
        .arg("-o")
        .arg(out)
        .arg(workspace().join("tests/clients/cxx_headers.cpp"))
        .arg(format!("-I{}", include()?.display()))
        .arg(format!("-I{}", stand_ins().display()))
        .arg(format!("-L{}", stage()?.join("lib").display()))
        .args(more)
        .arg("-lrocprofiler-sdk");
    run(command, LIMIT)?.success()?;
    Ok(())
}

#[test]
fn cxx_headers_work_without_the_runtimes_headers() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let program = dir.path().join("plain");
    let lib = stage()?.join("lib");
    compile(&program, &[format!("-Wl,-rpath,{}", lib.display())])?;
    let exit = run(Command::new(&program), PATIENCE)?.success()?;
    assert_eq!(exit.stdout, ["well"], "{exit}");
    Ok(())
}

/// With AMD's own headers next to ours, and with AMD's library to decode instructions.
#[test]
fn code_objects_are_read_and_disassembled() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let program = lab.scratch().join("cxx_headers");
    let mut flags = super::runtimes(&lab)?;
    flags.extend(super::linked_with_comgr(&lab));
    compile(&program, &flags)?;
    let libs = format!("{}/lib", lab.stage()?);
    // The program makes a file next to the code object, so it gets a copy.
    let kernels = lab.scratch().join("kernels.gfx942");
    std::fs::copy(lab.outside(&lab.kernels()?), &kernels)?;
    let command = lab.run(&lab.inside(&program)?).arg(lab.inside(&kernels)?);
    let exit = command.libs(&libs).register(false).spawn()?;
    let exit = exit.target.wait(PATIENCE)?.success()?;
    assert_eq!(exit.stdout, ["well"], "{exit}");
    Ok(())
}
