//! Packages of Fedora's, Red Hat's and SUSE's, by `rpmbuild` (Debian has it in its package `rpm`).

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::package::{self, PACKAGES, Package};
use super::{Release, tree};
use midair_dev_kit::run::{At, Outcome, output, run};

/// Whom to ask.
const MAINTAINERS: &str = "midair's maintainers <maintainers@midair.invalid>";

/// Makes them.
pub fn make(release: &Release) -> Outcome<Vec<PathBuf>> {
    let top = release.work.join("rpm");
    tree::anew(&top)?;
    let mut made = Vec::new();
    for package in &PACKAGES {
        let name = rpm_name(package.name);
        let root = top.join(package.name);
        package::lay_out(package, release, &root)?;
        let spec = top.join(format!("{name}.spec"));
        let text = spec_of(package, release, &root)?;
        package::write(&spec, text.as_bytes(), 0o644)?;
        run(Command::new("rpmbuild")
            .args(["-bb", "--quiet", "--noclean"])
            .arg("--define")
            .arg(format!("_topdir {}", top.join("build").display()))
            .arg("--define")
            .arg(format!("_rpmdir {}", release.to.display()))
            .args([
                "--define",
                "_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
            ])
            // As they are: stripped already, and without links by build id.
            .args(["--define", "_build_id_links none"])
            .args(["--define", "__os_install_post %{nil}"])
            // Nothing of this machine, and nothing of now.
            .args(["--define", "_buildhost midair"])
            .args(["--define", "use_source_date_epoch_as_buildtime 1"])
            .args(["--define", "clamp_mtime_to_source_date_epoch 1"])
            .arg("--target")
            .arg(format!("{}-linux", release.machine))
            .arg("--buildroot")
            .arg(&root)
            .arg(&spec)
            .env("SOURCE_DATE_EPOCH", release.time.to_string()))?;
        made.push(release.to.join(format!(
            "{name}-{}-1.{}.rpm",
            release.version, release.machine
        )));
    }
    Ok(made)
}

fn is_library(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or_default();
    name.ends_with(".so") || name.contains(".so.")
}

/// Fedora says -devel.
fn rpm_name(name: &str) -> String {
    name.replace("-dev", "-devel")
}

fn spec_of(package: &Package, release: &Release, root: &Path) -> Outcome<String> {
    let mut spec = format!(
        "Name: {}\nVersion: {}\nRelease: 1\nSummary: {}\nLicense: MIT\nURL: https://midair.invalid/\n\
         Group: Development/Tools\nPackager: {MAINTAINERS}\n\
         # Who has these in a directory of ours provides nothing to others.\nAutoProv: no\n",
        rpm_name(package.name),
        release.version,
        package.summary
    );
    for name in package.needs {
        // A string takes everything.
        let _ = writeln!(spec, "Requires: {} = {}", rpm_name(name), release.version);
    }
    let description = package::folded(package.description, 76).join("\n");
    let _ = write!(spec, "\n%description\n{description}\n\n%files\n");
    let mut files = Vec::new();
    list(root, root, &mut files)?;
    files.sort();
    for file in files {
        // Fedora's libraries may be run, Debian's not.
        let mode = if is_library(&file) && !root.join(&file).is_symlink() {
            "%attr(755,root,root) "
        } else {
            ""
        };
        let _ = writeln!(spec, "{mode}\"/{file}\"");
    }
    let mut date = Command::new("date");
    date.env("LC_ALL", "C").args(["--utc", "+%a %b %d %Y"]);
    let date = output(date.arg(format!("--date=@{}", release.time)))?;
    let date = String::from_utf8_lossy(&date);
    let _ = write!(
        spec,
        "\n%changelog\n* {} {MAINTAINERS} - {}-1\n- See CHANGELOG.md of the project.\n",
        date.trim(),
        release.version
    );
    Ok(spec)
}

fn list(top: &Path, directory: &Path, files: &mut Vec<String>) -> Outcome<()> {
    let entries = std::fs::read_dir(directory).at("listing", directory)?;
    for entry in entries.filter_map(Result::ok) {
        let path = entry.path();
        if entry.file_type().at("looking at", &path)?.is_dir() {
            list(top, &path, files)?;
        } else if let Ok(below) = path.strip_prefix(top) {
            files.push(below.to_string_lossy().into_owned());
        }
    }
    Ok(())
}
