//! Where to look for a CUPTI that this side can load.

use midair_cupti_file::{Disk, Files, Origin, Process, search};
use std::path::{Path, PathBuf};

/// Paths in a Python's packages, for CUDA 13 and for CUDA 12.
const WHEELS: [(&str, &str); 2] = [
    ("nvidia/cu13/lib", "libcupti.so.13"),
    ("nvidia/cuda_cupti/lib", "libcupti.so.12"),
];
/// Candidates that are tried, at most.
const MOST: usize = 12;

/// Returns the files that may be a CUPTI, in the order in which to try them. If one is named, no
/// other is tried. Otherwise: files next to the libraries in `mapped` (the libraries of a process
/// that is attached to), what the environment leads to, toolkits, Python packages, and last what
/// the loader finds itself.
///
/// `secure`: this process has more rights than its user, so the user's environment is ignored.
pub fn candidates(named: Option<&str>, mapped: &[String], secure: bool) -> Vec<String> {
    let mut process = Process::own(secure);
    process.mapped = mapped.to_vec();
    let found = search(named, &process, 0, &Disk);
    if named.is_some() {
        return found.candidates.into_iter().map(|it| it.path).collect();
    }
    let (loaders, files): (Vec<_>, Vec<_>) = found
        .candidates
        .into_iter()
        .partition(|it| it.origin == Origin::Loader);
    let wheels = if secure {
        Vec::new()
    } else {
        wheels(&process, &Disk)
    };
    let mut all: Vec<String> = Vec::new();
    for path in files
        .into_iter()
        .map(|it| it.path)
        .chain(wheels)
        .chain(loaders.into_iter().map(|it| it.path))
    {
        if !all.contains(&path) {
            all.push(path);
        }
    }
    all.truncate(MOST);
    all
}

/// Returns the CUPTIs from PyPI packages in the Pythons that the environment leads to.
fn wheels(process: &Process, disk: &dyn Files) -> Vec<String> {
    let mut roots: Vec<PathBuf> = Vec::new();
    let mut add = |root: PathBuf| {
        if root.is_absolute() && !roots.contains(&root) {
            roots.push(root);
        }
    };
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        process.variable(name).map(PathBuf::from).map(&mut add);
    }
    for folder in process.variable("PATH").unwrap_or_default().split(':') {
        if disk.is_file(&format!("{folder}/python3")) {
            Path::new(folder).parent().map(Path::to_owned).map(&mut add);
        }
    }
    if let Some(home) = process.variable("HOME") {
        add(Path::new(home).join(".local"));
    }
    add("/usr/local".into());
    add("/usr".into());
    let mut found = Vec::new();
    for root in roots {
        let lib = root.join("lib");
        let mut pythons = disk.list(&lib.to_string_lossy());
        pythons.retain(|name| name.starts_with("python3"));
        pythons.sort();
        for python in pythons {
            for packages in ["site-packages", "dist-packages"] {
                for (folder, file) in WHEELS {
                    let path = lib.join(&python).join(packages).join(folder).join(file);
                    let path = path.to_string_lossy().into_owned();
                    if disk.is_file(&path) {
                        found.push(path);
                    }
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wheel_of_the_python_in_use_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let lib = dir
            .path()
            .join("lib/python3.12/site-packages/nvidia/cu13/lib");
        std::fs::create_dir_all(&lib).unwrap();
        std::fs::write(lib.join("libcupti.so.13"), "").unwrap();
        std::fs::create_dir(dir.path().join("bin")).unwrap();
        std::fs::write(dir.path().join("bin/python3"), "").unwrap();
        let path = format!("/nowhere:{}", dir.path().join("bin").display());
        let process = Process {
            environment: vec![("PATH".into(), path)],
            ..Process::default()
        };
        let wanted = lib.join("libcupti.so.13").to_string_lossy().into_owned();
        assert!(wheels(&process, &Disk).contains(&wanted));
    }

    #[test]
    fn the_one_that_is_named_is_the_only_one() {
        assert_eq!(
            candidates(Some("/x/libcupti.so.13"), &[], false),
            ["/x/libcupti.so.13"]
        );
    }
}
