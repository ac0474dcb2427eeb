//! Fetches packages of another suite or machine type with apt. apt gets a configuration of its own,
//! and this machine's is not touched.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use midair_dev_kit::run::{At, Outcome, failed, output, run};

use super::{cache, emptied, shell};

const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The source of packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suite {
    /// A name for it.
    pub name: &'static str,
    /// Mirror and suite, as in `sources.list`.
    pub sources: &'static [&'static str],
}

/// apt for one suite and machine type.
pub struct Apt {
    directory: PathBuf,
}

impl Apt {
    /// Prepares apt and fetches the current lists of packages. Lists that are there already are
    /// kept.
    pub fn ready(suite: Suite, arch: &str) -> Outcome<Apt> {
        let directory = cache().join("apt").join(format!("{}-{arch}", suite.name));
        let apt = Apt { directory };
        let mark = apt.directory.join("ready");
        if mark.exists() {
            return Ok(apt);
        }
        println!("lists of packages: {} {arch}", suite.name);
        let at = |path: &str| apt.directory.join(path);
        for path in [
            "etc/apt/apt.conf.d",
            "etc/apt/preferences.d",
            "var/lib/apt/lists/partial",
            "var/cache/apt/archives/partial",
            "var/lib/dpkg",
        ] {
            fs::create_dir_all(at(path)).at("making", &at(path))?;
        }
        let put = |path: &str, text: String| fs::write(at(path), text).at("writing", &at(path));
        let sources: String = suite
            .sources
            .iter()
            .map(|source| format!("deb [signed-by={KEYS}] {source} main\n"))
            .collect();
        put("etc/apt/sources.list", sources)?;
        put("var/lib/dpkg/status", String::new())?;
        put(
            "apt.conf",
            format!(
                "Dir \"{dir}\";\nDir::State::status \"{dir}/var/lib/dpkg/status\";\n\
                 APT::Architecture \"{arch}\";\nAPT::Architectures {{ \"{arch}\"; }};\n\
                 APT::Install-Recommends \"false\";\nAcquire::Languages \"none\";\n\
                 APT::Sandbox::User \"root\";\n",
                dir = apt.directory.display()
            ),
        )?;
        run(apt.command("apt-get").args(["--quiet", "update"]))?;
        fs::write(&mark, "").at("writing", &mark)?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", self.directory.join("apt.conf"));
        command
    }

    /// Returns the packages with these prefixes on which a package depends, directly or not. The
    /// package itself is left out.
    pub fn family(&self, package: &str, prefixes: &[&str]) -> Outcome<Vec<String>> {
        let mut found = vec![package.to_owned()];
        let mut next = 0;
        while let Some(name) = found.get(next).cloned() {
            next += 1;
            let words = ["depends", "--no-recommends", "--no-suggests", &name];
            let text = output(self.command("apt-cache").args(words))?;
            for line in String::from_utf8_lossy(&text).lines() {
                let name = line.trim().strip_prefix("Depends: ").unwrap_or("");
                let wanted = prefixes.iter().any(|prefix| name.starts_with(prefix));
                if wanted && !found.iter().any(|there| there == name) {
                    found.push(name.to_owned());
                }
            }
        }
        found.remove(0);
        Ok(found)
    }

    /// Fetches these packages into an empty directory and returns their files.
    pub fn download(&self, packages: &[String], to: PathBuf) -> Outcome<Vec<PathBuf>> {
        let to = emptied(to)?;
        let mut command = self.command("apt-get");
        command.args(["--quiet", "download"]).args(packages);
        run(command.current_dir(&to))?;
        files(&to)
    }

    /// Fetches these packages and all that they depend on, and returns their files.
    pub fn closure(&self, packages: &[&str]) -> Outcome<Vec<PathBuf>> {
        let mut command = self.command("apt-get");
        command.args(["--quiet", "--yes", "--download-only", "install"]);
        run(command.args(packages))?;
        files(&self.directory.join("var/cache/apt/archives"))
    }
}

fn files(directory: &Path) -> Outcome<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).at("reading", directory)? {
        found.push(entry.at("reading", directory)?.path());
    }
    found.retain(|path| path.extension().is_some_and(|it| it == "deb"));
    found.sort();
    match found.is_empty() {
        true => failed(format!("no package came to {}", directory.display())),
        false => Ok(found),
    }
}

/// Unpacks a package into a directory. Links to directories there (`/lib`) are kept, and the
/// package's scripts are not run.
pub fn unpack(package: &Path, to: &Path) -> Outcome<()> {
    let arguments: [&OsStr; 2] = [package.as_os_str(), to.as_os_str()];
    shell(
        r#"dpkg-deb --fsys-tarfile "$1" | tar --extract --keep-directory-symlink --directory "$2""#,
        &arguments,
    )
}
