//! How the staged files are split into packages of a distribution, and where they lie there.
//!
//! The prefix is `/usr/lib/midair`, where no file of AMD's or of the distribution's has the same name: an
//! installed midair replaces no other package's `rocprofv3` or `librocprofiler-sdk.so.1`. Whoever wants
//! that puts its `bin` before others in `PATH`.

use std::os::unix::fs::symlink;
use std::path::Path;

use super::{Release, tree};
use midair_dev_kit::run::{At, Outcome, output};
use std::process::Command;

/// The prefix of an installed package, from the root.
pub const PREFIX: &str = "usr/lib/midair";

/// One package.
#[derive(Debug)]
pub struct Package {
    /// Its name.
    pub name: &'static str,
    /// One line, without a full stop.
    pub summary: &'static str,
    /// What it has, in sentences.
    pub description: &'static str,
    /// midair's packages that it needs, in the same version.
    pub needs: &'static [&'static str],
    /// Whether it has a file of the staged tree.
    pub has: fn(&str) -> bool,
    /// Links from elsewhere: from the root to a file of the staged tree.
    pub links: &'static [(&'static str, &'static str)],
}

/// As AMD splits them: programs, what is loaded, what one builds with.
pub const PACKAGES: [Package; 3] = [
    Package {
        name: "midair",
        summary: "attach a GPU profiler to a running process",
        description: "Profiles HIP, HSA and CUDA programs that are already running, without a restart and without preparation. This package has the programs midair, rocprofv3, rocprofv3-avail, rocprof-attach, rocprof-compute and rocpd, their manual pages and their completions.",
        needs: &["midair-libs"],
        has: |file| file.starts_with("bin/") || file.starts_with("share/"),
        links: &[("usr/bin/midair", "bin/midair")],
    },
    Package {
        name: "midair-libs",
        summary: "libraries of the GPU profiler midair",
        description: "What midair loads into the programs that it profiles, with the names and interfaces of AMD's ROCprofiler-SDK, and the C interface to attach from other programs.",
        needs: &[],
        has: |file| file.starts_with("lib/") && !is_for_building(file),
        links: &[],
    },
    Package {
        name: "midair-dev",
        summary: "headers of the GPU profiler midair",
        description: "Headers, CMake packages and pkg-config files to build tools for ROCprofiler-SDK with.",
        needs: &["midair-libs"],
        has: |file| file.starts_with("include/") || is_for_building(file),
        links: &[],
    },
];

fn is_for_building(file: &str) -> bool {
    ["lib/cmake/", "lib/pkgconfig/"]
        .iter()
        .any(|directory| file.starts_with(directory))
}

/// Where a staged file lies in an installed system, from the root.
fn place(file: &str) -> String {
    match file {
        // Files with AMD's names only where our `bin` is looked into.
        _ if file.starts_with("share/man/man1/midair")
            || file.starts_with("share/") && file.contains("midair") =>
        {
            format!("usr/{file}")
        }
        _ => format!("{PREFIX}/{file}"),
    }
}

/// Lays the package out below `root`.
pub fn lay_out(package: &Package, release: &Release, root: &Path) -> Outcome<()> {
    tree::anew(root)?;
    let mut files = Vec::new();
    tree::copy(&release.prefix, &release.work.join("none"), &mut |file| {
        if (package.has)(file) {
            files.push(file.to_owned());
        }
        false
    })?;
    for file in files {
        let (from, mut to) = (release.prefix.join(&file), root.join(place(&file)));
        tree::make_parent(&to)?;
        let kind = std::fs::symlink_metadata(&from).at("looking at", &from)?;
        if kind.is_symlink() {
            let target = std::fs::read_link(&from).at("reading", &from)?;
            symlink(target, &to).at("writing", &to)?;
        } else if file.starts_with("share/man/") {
            let zipped = output(Command::new("gzip").args(["-n", "-9", "-c"]).arg(&from))?;
            to.as_mut_os_string().push(".gz");
            write(&to, &zipped, 0o644)?;
        } else {
            let mut bytes = std::fs::read(&from).at("reading", &from)?;
            // Libraries are loaded, not run.
            let runs = tree::is_executable(&from)? && !file.contains(".so");
            // Distributions want their own Python, by its path.
            const ANY: &[u8] = b"#!/usr/bin/env python3\n";
            if bytes.starts_with(ANY) {
                let first: &[u8] = match runs {
                    true => b"#!/usr/bin/python3\n",
                    // A module is imported.
                    false => b"",
                };
                bytes.splice(..ANY.len(), first.iter().copied());
            }
            let mode = if runs { 0o755 } else { 0o644 };
            write(&to, &bytes, mode)?;
        }
    }
    for (link, file) in package.links {
        let (link, up) = (root.join(link), "../".repeat(link.matches('/').count()));
        tree::make_parent(&link)?;
        let target = format!("{up}{PREFIX}/{file}");
        // Debian's form: relative below the same top directory.
        let target = target.replacen("../../usr/", "../", 1);
        symlink(target, &link).at("writing", &link)?;
    }
    Ok(())
}

/// Writes a file with these rights, and its directory.
pub fn write(to: &Path, bytes: &[u8], mode: u32) -> Outcome<()> {
    use std::os::unix::fs::PermissionsExt;
    tree::make_parent(to)?;
    std::fs::write(to, bytes).at("writing", to)?;
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(mode)).at("writing", to)
}

/// Lines of at most so many bytes.
pub fn folded(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last().map_or(0, String::len);
        if last > 0 && last + 1 + word.len() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_fit_a_terminal() {
        for package in PACKAGES {
            let lines = folded(package.description, 76);
            assert!(
                lines
                    .iter()
                    .all(|line| line.len() <= 76 && !line.is_empty())
            );
            assert_eq!(lines.join(" "), package.description);
        }
    }
}
