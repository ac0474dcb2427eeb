//! A Python with the packages that tests use, below the target directory. The system's Python is
//! never changed, and no root is needed.
//!
//! `bin/python` and the packages' programs lie in one directory, however the packages got there.
//! That is a virtual environment. Where Python came without the module for it (Debian's
//! python3-venv), it is a plain directory with small scripts around it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use midair_dev_kit::run::{At, Failure, Outcome, failed, output, root, run, target_directory};

/// The list of packages, each with its version.
const REQUIREMENTS: &str = "tests/python/requirements.txt";
/// The list of packages that are installed without their dependencies. The dependencies that are
/// needed are in the other list.
const ALONE: &str = "tests/python/requirements-alone.txt";
/// The file that says what the directory was made from. It is written last, so a directory without
/// it is incomplete.
const STAMP: &str = "made-from";
/// A script that says which Python it is and whether it can make virtual environments.
const PROBE: &str = "import importlib.util as u, sys; \
    print(sys.executable, sys.version.split()[0], bool(u.find_spec('venv') and u.find_spec('ensurepip')), bool(u.find_spec('pip')))";

/// Runs `cargo xtask python`.
pub fn python_task(words: &[String]) -> Outcome<()> {
    if !words.is_empty() {
        return failed("takes no arguments");
    }
    println!("ready: {}", ready()?.join("bin/python").display());
    Ok(())
}

/// Returns the directory, whether it is ready or not.
pub fn directory() -> PathBuf {
    target_directory().join("python")
}

/// Returns the directory, and makes it if necessary.
pub fn ready() -> Outcome<PathBuf> {
    let requirements = root().join(REQUIREMENTS);
    let list = fs::read_to_string(&requirements).at("reading", &requirements)?;
    let interpreter = Interpreter::find()?;
    let alone = root().join(ALONE);
    let list = list + &fs::read_to_string(&alone).at("reading", &alone)?;
    let stamp = format!("{} {}\n{list}", interpreter.path, interpreter.version);
    let directory = directory();
    if is_ready(&directory, &stamp) {
        return Ok(directory);
    }
    println!(
        "making {} with the packages of {REQUIREMENTS}",
        directory.display()
    );
    if directory.exists() {
        fs::remove_dir_all(&directory).at("removing", &directory)?;
    }
    fs::create_dir_all(&directory).at("making", &directory)?;
    interpreter
        .install(&directory, &requirements, &alone)
        .map_err(|failure| {
            Failure(format!(
                "the tests' Python packages could not be installed: {failure}"
            ))
        })?;
    let mark = directory.join(STAMP);
    fs::write(&mark, stamp).at("writing", &mark)?;
    Ok(directory)
}

fn is_ready(directory: &Path, stamp: &str) -> bool {
    fs::read_to_string(directory.join(STAMP)).is_ok_and(|found| found == stamp)
        && directory.join("bin/python").exists()
}

/// The system's Python.
#[derive(Debug, PartialEq, Eq)]
struct Interpreter {
    path: String,
    version: String,
    has_venv: bool,
    has_pip: bool,
}

impl Interpreter {
    fn find() -> Outcome<Self> {
        let said = output(Command::new("python3").args(["-c", PROBE]))
            .or_else(|failure| failed(format!("python3 is needed (Debian: python3): {failure}")))?;
        Self::read(&String::from_utf8_lossy(&said))
    }

    fn read(said: &str) -> Outcome<Self> {
        // The words are taken from the end, because a path may contain spaces.
        let mut words = said.trim_end().rsplitn(4, ' ');
        let (Some(pip), Some(venv), Some(version), Some(path)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return failed(format!("python3 says {said:?} of itself"));
        };
        Ok(Self {
            path: path.to_owned(),
            version: version.to_owned(),
            has_venv: venv == "True",
            has_pip: pip == "True",
        })
    }

    fn install(&self, directory: &Path, requirements: &Path, alone: &Path) -> Outcome<()> {
        const INSTALL: &[&str] = &[
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ];
        if self.has_venv {
            run(Command::new(&self.path).args(["-m", "venv"]).arg(directory))?;
            let install = |list: &Path, more: &[&str]| {
                let mut pip = Command::new(directory.join("bin/python"));
                run(pip.args(INSTALL).args(more).arg("--requirement").arg(list))
            };
            install(requirements, &[])?;
            return install(alone, &["--no-deps"]);
        }
        if !self.has_pip {
            return failed(format!(
                "{} has neither venv nor pip (Debian: python3-venv)",
                self.path
            ));
        }
        let packages = directory.join("packages");
        run(Command::new(&self.path)
            .args(INSTALL)
            .arg("--target")
            .arg(&packages)
            .arg("--requirement")
            .arg(requirements))?;
        run(Command::new(&self.path)
            .args(INSTALL)
            .args(["--no-deps", "--target"])
            .arg(&packages)
            .arg("--requirement")
            .arg(alone))?;
        self.wrap(directory, &packages)
    }

    /// Makes the `bin` directory that a virtual environment has.
    fn wrap(&self, directory: &Path, packages: &Path) -> Outcome<()> {
        let bin = directory.join("bin");
        fs::create_dir_all(&bin).at("making", &bin)?;
        let mut scripts = vec![("python".to_owned(), String::new())];
        let programs = packages.join("bin");
        if programs.is_dir() {
            for entry in fs::read_dir(&programs)
                .at("listing", &programs)?
                .filter_map(Result::ok)
            {
                let program = entry.path();
                scripts.push((
                    entry.file_name().to_string_lossy().into_owned(),
                    format!("{} ", quoted(&program.to_string_lossy())),
                ));
            }
        }
        for (name, program) in scripts {
            let text = format!(
                "#!/bin/sh\nPYTHONPATH={}${{PYTHONPATH:+:$PYTHONPATH}} exec {} {program}\"$@\"\n",
                quoted(&packages.to_string_lossy()),
                quoted(&self.path),
            );
            let script = bin.join(name);
            fs::write(&script, text).at("writing", &script)?;
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755))
                .at("making executable", &script)?;
        }
        Ok(())
    }
}

/// Quotes a word for the shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_python_says_of_itself_is_read() {
        let found = Interpreter::read("/opt/my python/bin/python3 3.11.2 False True\n").unwrap();
        assert_eq!(
            found,
            Interpreter {
                path: "/opt/my python/bin/python3".to_owned(),
                version: "3.11.2".to_owned(),
                has_venv: false,
                has_pip: true,
            }
        );
        assert!(Interpreter::read("Python\n").is_err());
    }

    #[test]
    fn without_venv_scripts_find_packages_and_programs() {
        let directory = tempfile::tempdir().unwrap();
        let made = directory.path().join("it's here");
        let packages = made.join("packages");
        fs::create_dir_all(packages.join("bin")).unwrap();
        fs::write(packages.join("midair_probe.py"), "WORD = 'found'").unwrap();
        fs::write(
            packages.join("bin/say"),
            "import midair_probe, sys; print(midair_probe.WORD, *sys.argv[1:])",
        )
        .unwrap();
        let mut python = Interpreter::find().unwrap();
        python.has_venv = false;
        python.wrap(&made, &packages).unwrap();
        let said = output(Command::new(made.join("bin/say")).args(["two words", "more"])).unwrap();
        assert_eq!(String::from_utf8(said).unwrap(), "found two words more\n");
        let said = output(
            Command::new(made.join("bin/python"))
                .args(["-c", "import midair_probe; print(midair_probe.WORD)"]),
        )
        .unwrap();
        assert_eq!(String::from_utf8(said).unwrap(), "found\n");
    }

    #[test]
    fn an_incomplete_or_outdated_directory_is_not_ready() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        assert!(!is_ready(at, "a"));
        fs::create_dir_all(at.join("bin")).unwrap();
        fs::write(at.join("bin/python"), "").unwrap();
        assert!(!is_ready(at, "a"));
        fs::write(at.join(STAMP), "a").unwrap();
        assert!(is_ready(at, "a") && !is_ready(at, "b"));
    }
}
