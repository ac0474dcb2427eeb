//! The headers that are installed: they compile, they say what api/*.json says and what AMD's own
//! headers say, and they declare what the libraries export.

mod against_amd;
mod against_json;
mod exports;

use midair_tests::Result;
use midair_tests::stage::{plain_environment, stage};
use midair_tests::target::run;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Compiling takes no longer.
const LIMIT: Duration = Duration::from_secs(120);

/// C11 and C++17, as tools are built.
const LANGUAGES: [(&str, &str, &str); 2] = [("gcc", "-std=c11", "c"), ("g++", "-std=c++17", "cpp")];

/// The installed headers.
fn include() -> Result<PathBuf> {
    Ok(stage()?.join("include"))
}

/// All installed headers, as they are included.
fn all_headers() -> Result<Vec<String>> {
    let include = include()?;
    let (mut found, mut todo) = (Vec::new(), vec![include.clone()]);
    while let Some(next) = todo.pop() {
        for entry in std::fs::read_dir(next)? {
            let path = entry?.path();
            if path.is_dir() {
                todo.push(path);
            } else {
                found.push(path.strip_prefix(&include)?.display().to_string());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// A compiler with warnings as errors, and its language's standard.
fn compiler((compiler, standard, _): (&str, &str, &str)) -> Command {
    let mut command = Command::new(compiler);
    command.env_clear().envs(plain_environment());
    command.args([standard, "-Wall", "-Wextra", "-Werror"]);
    command
}

/// Compiles a text in a language, in this directory, with more flags.
fn compile(
    dir: &Path,
    language: (&str, &str, &str),
    text: &str,
    flags: &[String],
) -> Result<PathBuf> {
    let source = dir.join(format!("text.{}", language.2));
    std::fs::write(&source, text)?;
    let out = dir.join(format!("{}.out", language.0));
    let mut command = compiler(language);
    command.arg("-o").arg(&out).arg(&source).args(flags);
    let exit = run(command, LIMIT)?;
    exit.success()
        .map_err(|error| format!("{language:?}: {error}"))?;
    Ok(out)
}

#[test]
fn each_header_compiles_alone_and_twice() -> Result<()> {
    let dir = tempfile::tempdir()?;
    for language in LANGUAGES {
        for header in all_headers()? {
            let text =
                format!("#include <{header}>\n#include <{header}>\ntypedef int nothing_else;\n");
            let flags = [
                "-c".to_owned(),
                "-pedantic".to_owned(),
                format!("-I{}", include()?.display()),
            ];
            compile(dir.path(), language, &text, &flags)
                .map_err(|error| format!("{header}: {error}"))?;
        }
    }
    Ok(())
}
