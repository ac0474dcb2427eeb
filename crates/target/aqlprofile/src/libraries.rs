//! The places where AMD's packet library may be.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The library's name, by which the loader finds it as well.
pub const SONAME: &str = "libhsa-amd-aqlprofile64.so.1";
/// Where ROCm is installed.
const OPT: &str = "/opt";
/// The most ROCm below `/opt` that are tried: their names become arguments of the helper.
const MOST: usize = 32;

/// Returns the files that the library may be, in the order in which they are tried: in the ROCm
/// that `ROCM_PATH` names, in `/opt/rocm`, in the newest other ROCm below `/opt`, and where the
/// loader finds it (Linux distributions have it among all libraries).
///
/// `look` reads a variable. It returns None for a variable that this process must not obey.
pub fn libraries(look: impl Fn(&str) -> Option<OsString>) -> Vec<OsString> {
    of(look, &installed(Path::new(OPT)))
}

/// Returns where ROCm may be, in the same order.
pub fn roots(look: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    roots_of(look, &installed(Path::new(OPT)))
}

/// Returns the same for a root whose `/opt` has entries of these names.
pub fn libraries_among(
    look: impl Fn(&str) -> Option<OsString>,
    names: impl IntoIterator<Item = OsString>,
) -> Vec<OsString> {
    of(look, &newest_first(Path::new(OPT), names))
}

fn of(look: impl Fn(&str) -> Option<OsString>, others: &[PathBuf]) -> Vec<OsString> {
    let roots = roots_of(look, others).into_iter();
    let mut found: Vec<OsString> = roots
        .map(|root| root.join("lib").join(SONAME).into_os_string())
        .collect();
    found.push(SONAME.into());
    found
}

fn roots_of(look: impl Fn(&str) -> Option<OsString>, others: &[PathBuf]) -> Vec<PathBuf> {
    let named = look("ROCM_PATH").map(PathBuf::from);
    // The helper would look for a relative path in another directory.
    let named = named.filter(|path| path.is_absolute());
    let rocm = Path::new(OPT).join("rocm");
    let mut found: Vec<PathBuf> = Vec::new();
    for root in named.iter().chain([&rocm]).chain(others) {
        if !found.contains(root) {
            found.push(root.clone());
        }
    }
    found
}

/// Returns `rocm-7.2.4` and the like, the newest first.
fn installed(below: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(below).into_iter().flatten().flatten();
    newest_first(below, entries.map(|entry| entry.file_name()))
}

fn newest_first(below: &Path, names: impl IntoIterator<Item = OsString>) -> Vec<PathBuf> {
    let versions = names.into_iter().filter_map(|name| {
        let version = name.to_str()?.strip_prefix("rocm-")?;
        let numbers: Option<Vec<u32>> = version.split('.').map(|n| n.parse().ok()).collect();
        Some((numbers?, below.join(&name)))
    });
    let mut found: Vec<(Vec<u32>, PathBuf)> = versions.collect();
    found.sort();
    let newest = found.into_iter().rev().take(MOST);
    newest.map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rocm_that_is_named_comes_first_and_the_loader_last() {
        let look = |name: &str| (name == "ROCM_PATH").then(|| "/usr/local/rocm".into());
        let others = [PathBuf::from("/opt/rocm-7.2.4"), PathBuf::from("/opt/rocm")];
        assert_eq!(
            of(look, &others),
            [
                "/usr/local/rocm/lib/libhsa-amd-aqlprofile64.so.1",
                "/opt/rocm/lib/libhsa-amd-aqlprofile64.so.1",
                "/opt/rocm-7.2.4/lib/libhsa-amd-aqlprofile64.so.1",
                SONAME
            ]
        );
        assert_eq!(of(|_| Some("rocm".into()), &[]).len(), 2);
    }

    #[test]
    fn the_newest_of_several_is_tried_first() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "rocm-6.4.1",
            "rocm-10.0.0",
            "rocm-7.2.4",
            "rocm",
            "rocm-old",
            "other",
        ] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let found = installed(dir.path());
        let names: Vec<_> = found
            .iter()
            .filter_map(|p| p.file_name()?.to_str())
            .collect();
        assert_eq!(names, ["rocm-10.0.0", "rocm-7.2.4", "rocm-6.4.1"]);
        assert!(installed(Path::new("/nowhere")).is_empty());
        let many = (0..1 << 16).map(|minor| format!("rocm-7.{minor}").into());
        let found = newest_first(dir.path(), many);
        assert_eq!(found.len(), MOST);
        assert!(found[0].ends_with("rocm-7.65535"), "{found:?}");
    }
}
