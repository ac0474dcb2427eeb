//! Row 21: language runtimes at work.

use crate::cell::Cell;
use crate::kit::{Kit, first_of, installed};
use crate::spec::{Spec, Want};
use std::process::Command;

/// Returns the cells.
pub fn cells() -> Vec<Cell> {
    vec![
        Cell::on(21, "CPython, 4 threads", |kit| python(kit, "work.py")),
        Cell::on(
            21,
            "CPython, the first of 5 processes that work together",
            |kit| python(kit, "tree.py"),
        ),
        Cell::on(21, "Node, 2 workers and the event loop", |kit| {
            let node = installed("node").ok_or("node is not installed")?;
            let script = kit.script("work.js");
            let spec = Spec::foreign(&[&node.to_string_lossy(), &script.to_string_lossy()]);
            Ok(spec.unsteady())
        }),
        Cell::on(21, "a JVM, 4 threads that make garbage", java),
        Cell::on(21, "Go without cgo, 4 goroutines", |kit| go(kit, false))
            .want(Want::Refused(&["LibcKind"]))
            .ours_only(),
        // Its stacks have no unwind tables that lead to their roots.
        Cell::on(21, "Go with cgo, 4 goroutines", |kit| go(kit, true))
            .want(Want::InOr(&["NoneParked"])),
    ]
}

fn go(kit: &Kit, cgo: bool) -> Result<Spec, String> {
    let go = installed("go").ok_or("go is not installed")?;
    let name = if cgo { "work-cgo" } else { "work-go" };
    let program = kit.program(name);
    if !program.exists() {
        let mut build = Command::new(go);
        build
            .args(["build", "-o"])
            .arg(&program)
            .arg(kit.script("work.go"))
            .env("CGO_ENABLED", if cgo { "1" } else { "0" })
            .env("GO111MODULE", "off")
            .env("GOCACHE", kit.scratch().join("go"));
        if cgo {
            build.arg(kit.script("cgo.go"));
        }
        let done = build.output().map_err(|error| error.to_string())?;
        if !done.status.success() {
            return Err(String::from_utf8_lossy(&done.stderr).into_owned());
        }
    }
    Ok(Spec::foreign(&[&program.to_string_lossy()]).unsteady())
}

fn python(kit: &Kit, script: &str) -> Result<Spec, String> {
    let python = first_of(&[
        "/usr/bin/python3.14",
        "/usr/bin/python3.13",
        "/usr/bin/python3.12",
        "/usr/bin/python3.11",
    ]);
    let python = python.ok_or("no CPython of the system from 3.11 on")?;
    let script = kit.script(script);
    Ok(Spec::foreign(&[
        &python.to_string_lossy(),
        &script.to_string_lossy(),
    ]))
}

fn java(kit: &Kit) -> Result<Spec, String> {
    let (java, compiler) = (installed("java"), installed("javac"));
    let (Some(java), Some(compiler)) = (java, compiler) else {
        return Err("no java and javac".to_owned());
    };
    let class = kit.program("Work.class");
    if !class.exists() {
        let done = Command::new(compiler)
            .arg("-d")
            .arg(kit.programs())
            .arg(kit.script("Work.java"))
            .output()
            .map_err(|error| error.to_string())?;
        if !done.status.success() {
            return Err(String::from_utf8_lossy(&done.stderr).into_owned());
        }
    }
    let programs = kit.programs().to_string_lossy().into_owned();
    let words = ["-Xmx64m", "-XX:-UsePerfData", "-cp", &programs, "Work"];
    let spec = Spec::foreign(&[&[&*java.to_string_lossy()], &words[..]].concat());
    Ok(spec.unsteady())
}
