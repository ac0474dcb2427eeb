//! The installed headers: they compile, they agree with api/*.json and with AMD's own headers, and
//! they declare what the libraries export.

mod against_amd;
mod against_json;
mod clients;
mod cxx;
mod exports;

use midair_tests::lab::Lab;
use midair_tests::stage::{plain_environment, stage};
use midair_tests::target::run;
use midair_tests::{Result, workspace};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A time limit that no compilation reaches.
const LIMIT: Duration = Duration::from_secs(120);

/// Include lines of the headers that `rocprofiler-sdk/rocprofiler.h` does not include, and that
/// declare what api/*.json has.
const BESIDES: &str = "#include <rocprofiler-sdk/experimental/counters.h>\n\
    #include <rocprofiler-sdk/experimental/kernel_replay.h>\n\
    #include <rocprofiler-sdk/experimental/range_replay.h>\n\
    #include <rocprofiler-sdk/experimental/registration.h>\n\
    #include <rocprofiler-sdk/experimental/spm.h>\n\
    #include <rocprofiler-sdk/experimental/thread_trace.h>\n\
    #include <rocprofiler-sdk/registration.h>\n";

/// C11 and C++17, in which tools are built.
const LANGUAGES: [(&str, &str, &str); 2] = [("gcc", "-std=c11", "c"), ("g++", "-std=c++17", "cpp")];

/// Returns the directory of the installed headers.
pub(crate) fn include() -> Result<PathBuf> {
    Ok(stage()?.join("include"))
}

/// Returns the directory of stand-ins for the headers of others that ours include.
pub(crate) fn stand_ins() -> PathBuf {
    workspace().join("tests/clients/stand-ins")
}

/// Returns the flags with which a compiler finds the headers of AMD's runtimes in the lab, and no
/// other headers of the lab.
pub(crate) fn runtimes(lab: &Lab) -> Result<Vec<String>> {
    let to = lab.scratch().join("runtimes");
    std::fs::create_dir_all(&to)?;
    for part in ["hip", "hsa", "amd_comgr"] {
        let from = lab.root().join("usr/include").join(part);
        assert!(from.is_dir(), "the lab has no {}", from.display());
        let link = to.join(part);
        if !link.exists() {
            std::os::unix::fs::symlink(from, link)?;
        }
    }
    let flags = [
        "-D__HIP_PLATFORM_AMD__".to_owned(),
        format!("-isystem{}", to.display()),
    ];
    Ok(flags.to_vec())
}

/// Returns the flags for linking with AMD's library for code objects, which is in the lab with all
/// that it needs.
pub(crate) fn linked_with_comgr(lab: &Lab) -> Vec<String> {
    vec![
        format!(
            "-L{}",
            lab.root().join("usr/lib/x86_64-linux-gnu").display()
        ),
        "-l:libamd_comgr.so.3".to_owned(),
        "-Wl,--allow-shlib-undefined".to_owned(),
    ]
}

/// Returns all installed headers of a language, as they are included. Those that end in hpp are
/// C++.
fn headers_of(language: (&str, &str, &str)) -> Result<Vec<String>> {
    let mut all = all_headers()?;
    all.retain(|header| language.2 == "cpp" || !header.ends_with(".hpp"));
    Ok(all)
}

/// Returns all installed headers, as they are included.
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

/// Prepares a compiler with its language's standard and with warnings as errors.
fn compiler((compiler, standard, _): (&str, &str, &str)) -> Command {
    let mut command = Command::new(compiler);
    command.env_clear().envs(plain_environment());
    command.args([standard, "-Wall", "-Wextra", "-Werror"]);
    command
}

/// Compiles a text in a language in this directory, with further flags.
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
        for header in headers_of(language)? {
            let text =
                format!("#include <{header}>\n#include <{header}>\ntypedef int nothing_else;\n");
            let flags = [
                "-fsyntax-only".to_owned(),
                "-pedantic".to_owned(),
                format!("-I{}", include()?.display()),
                // A stand-in for cereal, which the tests do not require to be installed.
                format!("-I{}", stand_ins().display()),
            ];
            compile(dir.path(), language, &text, &flags)
                .map_err(|error| format!("{header}: {error}"))?;
        }
    }
    Ok(())
}
