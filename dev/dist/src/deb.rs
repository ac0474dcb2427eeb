//! Packages of Debian's and Ubuntu's, by `dpkg-deb`, which every such system has: the staged tree is the one list
//! of what is shipped, so nothing else (cargo-deb, debhelper) gets a second one.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::package::{self, PACKAGES, Package};
use super::{Release, glibc};
use midair_dev_kit::run::{At, Outcome, failed, output, root, run};

/// Makes them.
pub fn make(release: &Release) -> Outcome<Vec<PathBuf>> {
    let machine = match release.machine {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => return failed(format!("Debian has no name for {other}")),
    };
    PACKAGES
        .iter()
        .map(|package| one(package, release, machine))
        .collect()
}

fn one(package: &Package, release: &Release, machine: &str) -> Outcome<PathBuf> {
    let top = release.work.join("deb").join(package.name);
    package::lay_out(package, release, &top)?;
    documents(package, release, &top)?;
    let mut control = String::new();
    let needs = needs(package, release, &top)?;
    // A string takes everything.
    let _ = write!(
        control,
        "Package: {}\nVersion: {}\nArchitecture: {machine}\nSection: devel\nPriority: optional\n\
         Maintainer: midair's maintainers <maintainers@midair.invalid>\nInstalled-Size: {}\n",
        package.name,
        release.version,
        kilobytes(&top)?
    );
    if !needs.is_empty() {
        let _ = writeln!(control, "Depends: {}", needs.join(", "));
    }
    if top
        .join(package::PREFIX)
        .join("bin/rocprof-attach")
        .exists()
    {
        // For one of four programs.
        control.push_str("Recommends: python3\n");
    }
    let _ = writeln!(control, "Description: {}", package.summary);
    for line in package::folded(package.description, 76) {
        let _ = writeln!(control, " {line}");
    }
    package::write(&top.join("DEBIAN/control"), control.as_bytes(), 0o644)?;
    md5sums(&top)?;
    directories(&top)?;
    let name = format!("{}_{}_{machine}.deb", package.name, release.version);
    let to = release.to.join(name);
    run(Command::new("dpkg-deb")
        .args(["--root-owner-group", "-Zxz", "-z3", "--build"])
        .arg(&top)
        .arg(&to)
        .env("SOURCE_DATE_EPOCH", release.time.to_string())
        .stdout(std::process::Stdio::null()))?;
    Ok(to)
}

/// What the package needs, with versions.
fn needs(package: &Package, release: &Release, top: &Path) -> Outcome<Vec<String>> {
    let mut needs: Vec<String> = package
        .needs
        .iter()
        .map(|name| format!("{name} (= {})", release.version))
        .collect();
    let (major, minor) = glibc::needed(top)?;
    if minor > 0 {
        needs.push(format!("libc6 (>= {major}.{minor})"));
        needs.push("libgcc-s1".to_owned());
    }
    Ok(needs)
}

/// The licence and the changes, where Debian's rules want them.
fn documents(package: &Package, release: &Release, top: &Path) -> Outcome<()> {
    let directory = top.join("usr/share/doc").join(package.name);
    let licence = root().join("LICENSE");
    let licence = std::fs::read_to_string(&licence).at("reading", &licence)?;
    let indented: Vec<String> = licence
        .lines()
        .map(|line| {
            if line.trim().is_empty() {
                " .".to_owned()
            } else {
                format!(" {line}")
            }
        })
        .collect();
    let copyright = format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: midair\n\nFiles: *\nCopyright: midair's authors\nLicense: Expat\n{}\n",
        indented.join("\n")
    );
    package::write(&directory.join("copyright"), copyright.as_bytes(), 0o644)?;
    let date = output(
        Command::new("date")
            .args(["--utc", "--rfc-email"])
            .arg(format!("--date=@{}", release.time)),
    )?;
    let changes = format!(
        "{} ({}) stable; urgency=medium\n\n  * See CHANGELOG.md of the project.\n\n \
         -- midair's maintainers <maintainers@midair.invalid>  {}\n",
        package.name,
        release.version,
        String::from_utf8_lossy(&date).trim()
    );
    let plain = release.work.join("changelog");
    package::write(&plain, changes.as_bytes(), 0o644)?;
    let zipped = output(Command::new("gzip").args(["-n", "-9", "-c"]).arg(&plain))?;
    package::write(&directory.join("changelog.gz"), &zipped, 0o644)
}

/// The sums of all files, by which `dpkg --verify` finds what was changed.
fn md5sums(top: &Path) -> Outcome<()> {
    let sums = output(Command::new("sh").current_dir(top).args([
        "-c",
        "find . -path ./DEBIAN -prune -o -type f -printf '%P\\0' | LC_ALL=C sort -z | xargs -0 md5sum",
    ]))?;
    package::write(&top.join("DEBIAN/md5sums"), &sums, 0o644)
}

/// Directories with the rights that they have in a system, whatever the umask was here.
fn directories(top: &Path) -> Outcome<()> {
    std::fs::set_permissions(top, std::fs::Permissions::from_mode(0o755)).at("writing", top)?;
    for entry in std::fs::read_dir(top)
        .at("listing", top)?
        .filter_map(Result::ok)
    {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            directories(&entry.path())?;
        }
    }
    Ok(())
}

/// The size of all files, each in whole kilobytes, as Debian counts it.
fn kilobytes(directory: &Path) -> Outcome<u64> {
    let mut all = 0;
    for entry in std::fs::read_dir(directory)
        .at("listing", directory)?
        .filter_map(Result::ok)
    {
        let found = entry.metadata().at("looking at", &entry.path())?;
        all += if found.is_dir() {
            1 + kilobytes(&entry.path())?
        } else {
            found.len().div_ceil(1024)
        };
    }
    Ok(all)
}
