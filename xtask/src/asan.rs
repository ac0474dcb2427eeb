//! `cargo xtask asan`: runs the tests of our C interfaces with AddressSanitizer on both sides of
//! the interface.
//!
//! Our libraries are built with the sanitizer. Stable compilers have it behind a switch that
//! `RUSTC_BOOTSTRAP` opens. The C programs that the tests compile have it as well: a `cc` in front
//! of the real one adds the flag. Both use the C compiler's own runtime library. The test programs
//! themselves are the ordinary ones. They are copied next to such libraries, because that is where
//! they look for them.
//!
//! It does not cover leaks (settings that are put into a process's environment stay there on
//! purpose), Rust's standard library, and tests that read the libraries' files or measure time.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::lab;
use midair_dev_kit::run::{
    At, Failure, Outcome, cargo, crate_directory, failed, is_root, output, run, target_directory,
};

/// The reason why the task was left out, if it was.
pub type LeftOut = Option<&'static str>;

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The library that [`prove`] uses.
const PROOF: &str = "midair-register-so";

/// The tests of a library with a C interface.
struct Edge {
    /// The package of the library and its tests.
    package: &'static str,
    /// The test program.
    test: &'static str,
    /// Parts of the names of tests that are left out, because they read the library's file, need
    /// AMD's runtimes, measure time, use per-thread variables (which a library with the sanitizer
    /// lacks), or bring an allocator, which is the sanitizer's there.
    without: &'static [&'static str],
    /// Whether the suite runs it, or only `--all`. Some libraries are large.
    suite: bool,
}

const EDGES: &[Edge] = &[
    Edge {
        package: PROOF,
        test: "it",
        without: &[
            "elf::",
            "lab::",
            "a_registration_returns_when_the_listener_listens",
            "a_forked_child_with_another_allocator",
            "runtimes_of_newer_releases",
        ],
        suite: true,
    },
    Edge {
        package: "midair-roctx-so",
        test: "alone",
        without: &[],
        suite: true,
    },
    Edge {
        package: "midair-roctx-so",
        test: "arguments",
        without: &[],
        suite: true,
    },
    Edge {
        package: "midair-rocpd-so",
        test: "arguments",
        without: &[],
        suite: false,
    },
    Edge {
        package: "midair-rocattach-so",
        test: "it",
        without: &["the_library_is_what_it_must_be", "front_ends::"],
        suite: false,
    },
    Edge {
        package: "midair-so",
        test: "arguments",
        without: &[],
        suite: true,
    },
    Edge {
        package: "midair-sdk-so",
        test: "secure",
        without: &[],
        suite: false,
    },
    Edge {
        package: "midair-sdk-so",
        test: "arguments",
        without: &[],
        suite: false,
    },
    Edge {
        package: "midair-sdk-attach-so",
        test: "arguments",
        without: &[],
        suite: true,
    },
    Edge {
        package: "midair-tool-so",
        test: "arguments",
        without: &[],
        suite: false,
    },
];

/// Runs `cargo xtask asan [--all | PACKAGE ...]`.
pub fn asan_task(words: &[String]) -> Outcome<()> {
    if let Some(word) = words
        .iter()
        .find(|word| *word != "--all" && !EDGES.iter().any(|edge| edge.package == *word))
    {
        return failed(format!("no library with such tests: {word}"));
    }
    match check(|edge| {
        edge.suite && words.is_empty()
            || words
                .iter()
                .any(|word| word == "--all" || word == edge.package)
    })? {
        None => Ok(()),
        Some(why) => failed(why),
    }
}

/// Runs what belongs to the suite.
pub fn suite() -> Outcome<LeftOut> {
    check(|edge| edge.suite)
}

fn check(is_chosen: impl Fn(&Edge) -> bool) -> Outcome<LeftOut> {
    if cfg!(not(target_arch = "x86_64")) {
        return Ok(Some("written for x86-64"));
    }
    let Some(runtime) = runtime() else {
        return Ok(Some("the C compiler has no libasan"));
    };
    let lab = lab_or_reason();
    if let Err(why) = &lab {
        println!("left out: tests on AMD's runtimes: {why}");
    }
    let edges: Vec<&Edge> = EDGES.iter().filter(|edge| is_chosen(edge)).collect();
    let built = libraries(&edges, &runtime)?;
    let place = target_directory().join("asan/edges");
    let wrapped = compiler(&place)?;
    for library in shared_objects(&built)? {
        let name = library.file_name().unwrap_or_default();
        fs::copy(&library, place.join(name)).at("copying", &library)?;
    }
    prove(&place, &wrapped)?;
    let programs = test_programs(&edges)?;
    for edge in &edges {
        let program = test_program(edge, &programs)?;
        let copy = place.join(edge.package);
        fs::copy(&program, &copy).at("copying", &program)?;
        println!("-- {} {}", edge.package, edge.test);
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=10", "300"])
            .arg(&copy)
            .arg("--quiet")
            .args(edge.without.iter().flat_map(|name| ["--skip", name]))
            .current_dir(directory_of(edge.package)?)
            .env("PATH", &wrapped);
        if lab.is_err() {
            command.env("MIDAIR_SKIP_LAB", "1");
        }
        run(&mut command)?;
        for name in edge.without {
            println!("left out: {name}");
        }
    }
    let left = EDGES.iter().filter(|edge| !is_chosen(edge));
    let left: Vec<&str> = left.map(|edge| edge.package).collect();
    if !left.is_empty() {
        println!(
            "not now, but by cargo xtask asan --all: {}",
            left.join(", ")
        );
    }
    Ok(None)
}

/// Waits for the lab, which may be in the making, or makes it. Returns why there is none.
fn lab_or_reason() -> Result<(), String> {
    if lab::is_skipped() {
        return Err("MIDAIR_SKIP_LAB=1".to_owned());
    }
    if !is_root() {
        return Err("they need root".to_owned());
    }
    lab::ready().map(|_| ()).map_err(|failure| failure.0)
}

/// Returns the C compiler's runtime library for the sanitizer, if it has one.
fn runtime() -> Option<PathBuf> {
    let mut command = Command::new("cc");
    command.arg("-print-file-name=libasan.so");
    let said = output(command.stderr(Stdio::null())).ok()?;
    // A compiler without one prints the name as it was given.
    let path = PathBuf::from(String::from_utf8(said).ok()?.trim());
    path.is_absolute().then(|| path.canonicalize().ok())?
}

/// Builds the libraries and returns the directory that they are in.
fn libraries(edges: &[&Edge], runtime: &Path) -> Outcome<PathBuf> {
    let mut command = cargo(&["build", "--quiet", "--lib", "--target", TARGET]);
    // The register library is always built, because it shows that mistakes are found.
    let proof = EDGES.iter().filter(|edge| edge.package == PROOF).take(1);
    for edge in edges.iter().copied().chain(proof) {
        command.args(["--package", edge.package]);
    }
    let target = target_directory().join("asan");
    let flags = format!(
        "-Zsanitizer=address -Zexternal-clangrt -Clink-arg={}",
        runtime.display()
    );
    command
        .arg("--target-dir")
        .arg(&target)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", flags);
    run(&mut command)?;
    Ok(target.join(TARGET).join("debug"))
}

fn shared_objects(directory: &Path) -> Outcome<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).at("listing", directory)?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(paths
        .filter(|path| path.extension().is_some_and(|it| it == "so"))
        .collect())
}

/// Makes a `cc` that adds the sanitizer, in front of those in the path, and returns the new path.
fn compiler(place: &Path) -> Outcome<String> {
    let programs = place.join("bin");
    fs::create_dir_all(&programs).at("making", &programs)?;
    let found = output(Command::new("sh").args(["-c", "command -v cc"]))?;
    let real = String::from_utf8_lossy(&found).trim().to_owned();
    // The tests clear the environment of their programs, so the options are compiled in. That is
    // done only for programs. A library of a test is recognised by -shared.
    let (source, object) = (place.join("options.c"), place.join("options.o"));
    let options = "const char *__asan_default_options(void);\n\
        const char *__asan_default_options(void) { return \"detect_leaks=0:strict_string_checks=1\"; }\n";
    fs::write(&source, options).at("writing", &source)?;
    let mut compile = Command::new(&real);
    run(compile.arg("-c").arg("-o").arg(&object).arg(&source))?;
    let flags = "-fsanitize=address -fno-omit-frame-pointer";
    let script = format!(
        "#!/bin/sh\nfor word; do [ \"$word\" = -shared ] && exec '{real}' {flags} \"$@\"; done\n\
         exec '{real}' {flags} '{}' \"$@\"\n",
        object.display()
    );
    let wrapper = programs.join("cc");
    fs::write(&wrapper, script).at("writing", &wrapper)?;
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).at("writing", &wrapper)?;
    let before = std::env::var("PATH").unwrap_or_default();
    Ok(format!("{}:{before}", programs.display()))
}

/// Runs a program with a mistake that only our library can run into: a name without an end. If that
/// is not reported, no other mistake would be, either.
fn prove(place: &Path, path: &str) -> Outcome<()> {
    let (source, program) = (place.join("mistake.c"), place.join("mistake"));
    let text = "#include <stdint.h>\n#include <stdlib.h>\n#include <string.h>\n\
        int rocprofiler_register_library_api_table(const char *, void (*)(void), uint32_t, void **, uint64_t, uint64_t *);\n\
        static void import(void) {}\n\
        int main(void) {\n\
          char *name = malloc(3);\n\
          void *table = &name, *tables[1] = {&table};\n\
          uint64_t id;\n\
          memcpy(name, \"hip\", 3);\n\
          return rocprofiler_register_library_api_table(name, import, 70000, tables, 1, &id);\n\
        }\n";
    fs::write(&source, text).at("writing", &source)?;
    // The program looks for the library by the SONAME inside it.
    let library = place.join("librocprofiler-register.so.0");
    fs::copy(place.join("librocprofiler_register.so"), &library).at("copying", &library)?;
    let mut compile = Command::new("cc");
    compile.arg("-o").arg(&program).arg(&source).arg(&library);
    run(compile
        .arg(format!("-Wl,-rpath,{}", place.display()))
        .env("PATH", path))?;
    let out = Command::new(&program).env_clear().output();
    let out = out.at("running", &program)?;
    let said = String::from_utf8_lossy(&out.stderr);
    if !out.status.success() && said.contains("heap-buffer-overflow") {
        return Ok(());
    }
    failed(format!(
        "a mistake was not reported: {}: {said}",
        out.status
    ))
}

/// Builds the ordinary test programs as the suite does, and returns cargo's messages about them. With
/// the whole workspace, libraries have the features with which the suite builds them, and nothing is
/// compiled a second time for these tests alone.
fn test_programs(edges: &[&Edge]) -> Outcome<Vec<serde_json::Value>> {
    let mut command = cargo(&[
        "build",
        "--quiet",
        "--workspace",
        "--message-format",
        "json",
    ]);
    let names: BTreeSet<&str> = edges.iter().map(|edge| edge.test).collect();
    command.args(names.iter().flat_map(|name| ["--test", name]));
    let messages = output(command.stderr(Stdio::inherit()))?;
    let messages = String::from_utf8_lossy(&messages);
    Ok(messages
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect())
}

/// Returns the test program of a package.
fn test_program(edge: &Edge, built: &[serde_json::Value]) -> Outcome<PathBuf> {
    let manifest = directory_of(edge.package)?.join("Cargo.toml");
    let program = built
        .iter()
        .filter(|message| message["target"]["name"] == edge.test)
        .filter(|message| message["manifest_path"].as_str().map(Path::new) == Some(&manifest))
        .find_map(|message| message["executable"].as_str().map(PathBuf::from));
    program.ok_or_else(|| {
        Failure(format!(
            "cargo built no test {} {}",
            edge.package, edge.test
        ))
    })
}

fn directory_of(package: &str) -> Outcome<PathBuf> {
    // The package of libmidair is called as its directory is.
    let name = match package {
        "midair-so" => package,
        other => other.strip_prefix("midair-").unwrap_or(other),
    };
    crate_directory(name)
}
