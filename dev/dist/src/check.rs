//! What others say of the products: lintian of Debian's packages, rpmlint of RPM's, twine of the wheel. And
//! whether they are as small as they are to be, and whether the products for another machine run under
//! emulation.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::emulated;
use midair_dev_kit::run::{At, Outcome, failed, run, target_directory};

/// What rpmlint says of every package and does not apply to these, each with the reason.
const LEFT_TO_US: [(&str, &str); 6] = [
    ("spelling-error", "its dictionary lacks the field's words"),
    (
        "no-signature",
        "whoever publishes the packages signs them, with a key that is not here",
    ),
    (
        "no-binary",
        "midair-devel has headers; it belongs to libraries of one machine type",
    ),
    (
        "library-without-ldconfig",
        "the libraries are in no directory that the loader looks into, on purpose: nobody's ROCm is replaced",
    ),
    (
        "invalid-soname",
        "libmidair-cuda.so is sent into processes and never linked with",
    ),
    (
        "non-versioned-file-in-library-package",
        "programs find these beside the libraries, in a prefix of its own",
    ),
];

/// The most bytes of a product, by the end of its name.
const LARGEST: [(&str, u64); 2] = [("-linux", 25_000_000), (".whl", 15_000_000)];

/// The most bytes of a library that each attach sends into a process.
const SENT: [(&str, u64); 1] = [(
    "lib/rocprofiler-sdk/librocprofiler-sdk-tool.so.1",
    1_500_000,
)];

/// Fails where a library of a release build below this prefix is too large to be sent at each attach.
pub fn sent(prefix: &Path) -> Outcome<()> {
    for (name, most) in SENT {
        let file = prefix.join(name);
        let bytes = std::fs::metadata(&file).at("looking at", &file)?.len();
        if bytes > most {
            return failed(format!("{name} has {bytes} bytes, more than {most}"));
        }
    }
    Ok(())
}

/// Checks what is in this directory. A checker that is not installed is named; if `strict`, that is a
/// fault.
pub fn check(dist: &Path, strict: bool) -> Outcome<()> {
    let mut faults = Vec::new();
    let mut left_out = Vec::new();
    for (end, most) in LARGEST {
        for file in made(dist, end)? {
            let bytes = std::fs::metadata(&file).at("looking at", &file)?.len();
            println!("{:>9.2} MB  {}", bytes as f64 / 1e6, file.display());
            if bytes > most {
                let most = most / 1_000_000;
                faults.push(format!("{} has more than {most} MB", file.display()));
            }
        }
    }
    let debs = made(dist, ".deb")?;
    let lintian = [
        "--fail-on",
        "error",
        "--display-level",
        "error",
        "--tag-display-limit",
        "0",
    ];
    faults.extend(said(
        "lintian",
        Command::new("lintian").args(lintian),
        &debs,
        &mut left_out,
    )?);
    let rpms = made(dist, ".rpm")?;
    faults.extend(rpmlint(&rpms, &mut left_out)?);
    let wheels = made(dist, ".whl")?;
    if !wheels.is_empty() {
        let mut twine = Command::new(twine()?);
        let twine = twine.args(["check", "--strict"]);
        faults.extend(said("twine", twine, &wheels, &mut left_out)?);
    }
    faults.extend(emulated::check(dist, &mut left_out)?);
    for what in left_out {
        println!("left out: {what}");
        if strict {
            faults.push(format!("left out: {what}"));
        }
    }
    match faults.is_empty() {
        true => Ok(()),
        false => failed(faults.join("; ")),
    }
}

/// The files in the directory whose names end so, sorted.
pub fn made(dist: &Path, end: &str) -> Outcome<Vec<PathBuf>> {
    let entries = std::fs::read_dir(dist).at("listing", dist)?;
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    let mut found: Vec<PathBuf> = paths
        .filter(|path| path.to_string_lossy().ends_with(end))
        .collect();
    found.sort();
    Ok(found)
}

/// Runs a checker, which fails where it finds an error.
fn said(
    name: &str,
    command: &mut Command,
    files: &[PathBuf],
    left_out: &mut Vec<String>,
) -> Outcome<Option<String>> {
    if files.is_empty() {
        return Ok(None);
    }
    match command.args(files).stdin(Stdio::null()).output() {
        Err(error) => {
            left_out.push(format!("{name}: {error}"));
            Ok(None)
        }
        Ok(output) => {
            print!("{}", String::from_utf8_lossy(&output.stdout));
            print!("{}", String::from_utf8_lossy(&output.stderr));
            let passed = output.status.success();
            println!("{name}: {}", if passed { "no error" } else { "errors" });
            Ok((!passed).then(|| format!("{name} finds errors")))
        }
    }
}

/// rpmlint, whose exit status depends on its version: its lines with E: are errors.
fn rpmlint(files: &[PathBuf], left_out: &mut Vec<String>) -> Outcome<Option<String>> {
    if files.is_empty() {
        return Ok(None);
    }
    let config = target_directory().join("dist/rpmlint.toml");
    let filters: Vec<String> = LEFT_TO_US
        .iter()
        .map(|(tag, _)| format!("{tag:?}"))
        .collect();
    let text = format!("Filters = [{}]\n", filters.join(", "));
    std::fs::write(&config, text).at("writing", &config)?;
    let mut command = Command::new("rpmlint");
    command.arg("--config").arg(&config).args(files);
    match command.stdin(Stdio::null()).output() {
        Err(error) => {
            left_out.push(format!("rpmlint: {error}"));
            Ok(None)
        }
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            print!("{text}");
            let errors = text.lines().filter(|line| line.contains(": E: ")).count();
            println!("rpmlint: {errors} errors");
            Ok((errors > 0).then(|| format!("rpmlint finds {errors} errors")))
        }
    }
}

/// PyPI's own checker, from PyPI, once.
fn twine() -> Outcome<PathBuf> {
    let place = target_directory().join("twine");
    let program = place.join("bin/twine");
    if !program.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&place))?;
        let mut pip = Command::new(place.join("bin/pip"));
        run(pip.args(["install", "--quiet", "--disable-pip-version-check", "twine"]))?;
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checker_that_is_not_there_is_left_out() {
        let mut left_out = Vec::new();
        let mut missing = Command::new("no-such-checker");
        let files = [PathBuf::from("x")];
        assert_eq!(said("it", &mut missing, &[], &mut left_out).unwrap(), None);
        assert!(left_out.is_empty(), "there was nothing to check");
        let fault = said("it", &mut missing, &files, &mut left_out).unwrap();
        assert_eq!((fault, left_out.len()), (None, 1));
        let mut fails = Command::new("false");
        let fault = said("it", &mut fails, &files, &mut left_out).unwrap();
        assert_eq!(fault.as_deref(), Some("it finds errors"));
    }

    /// With a program for aarch64 and nothing to compare it with, the comparison is left out, which
    /// is a fault if nothing may be.
    #[test]
    fn what_is_left_out_is_a_fault_if_strict() {
        let directory = tempfile::tempdir().unwrap();
        check(directory.path(), true).unwrap();
        let file = directory.path().join("midair-0-aarch64-linux.tar.gz");
        std::fs::write(file, "").unwrap();
        check(directory.path(), false).unwrap();
        let failure = check(directory.path(), true).unwrap_err();
        assert!(
            failure.0.contains("not one archive of each machine"),
            "{failure}"
        );
    }

    #[test]
    fn a_library_with_writers_in_it_is_not_sent() {
        let prefix = tempfile::tempdir().unwrap();
        assert!(sent(prefix.path()).is_err(), "it is not there");
        let file = prefix.path().join(SENT[0].0);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let library = std::fs::File::create(&file).unwrap();
        for (bytes, fits) in [(1_000_000, true), (1_500_000, true), (5_800_000, false)] {
            library.set_len(bytes).unwrap();
            assert_eq!(sent(prefix.path()).is_ok(), fits, "{bytes}");
        }
    }
}
