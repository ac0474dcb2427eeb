//! Where a CUPTI may be found, in the order in which the candidates are tried. Nothing is loaded
//! here, and the file system is queried through [`Files`].

use crate::process::Process;

/// The queries that the search makes to a file system.
pub trait Files {
    /// Whether there is a regular file of this name; links are followed.
    fn is_file(&self, path: &str) -> bool;
    /// Names in a directory; none where there is no such directory.
    fn list(&self, directory: &str) -> Vec<String>;
}

/// How a candidate was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The user named it.
    Named,
    /// The process has it mapped.
    Mapped,
    /// In a directory relative to a CUDA library that the process has mapped.
    Beside,
    /// In a directory that an environment variable of the process names.
    Environment,
    /// In a usual directory of a CUDA toolkit.
    Toolkit,
    /// Left to the loader's own search.
    Loader,
}

/// A file that may be a usable CUPTI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its path, or the name that the loader is to search for.
    pub path: String,
    /// How it was found.
    pub origin: Origin,
}

/// Result of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Search {
    /// Candidates, in the order in which they are to be tried.
    pub candidates: Vec<Candidate>,
    /// Directories that were searched, for the message that none was found.
    pub directories: Vec<String>,
}

/// Prefixes of the names of CUDA libraries whose directory is a starting point.
const COMPANIONS: &[&str] = &[
    "libcudart.so",
    "libcublas.so",
    "libcublasLt.so",
    "libcudnn.so",
    "libcufft.so",
    "libcurand.so",
    "libcusparse.so",
    "libcusolver.so",
    "libnvrtc.so",
    "libnvJitLink.so",
    "libnccl.so",
    "libtorch_cuda.so",
];
/// Directories that may contain CUPTI, relative to such a library: the library directory of a
/// toolkit; the directories of NVIDIA's Python packages, from one of themselves and from PyTorch's;
/// the toolkit's own directory for CUPTI.
const BESIDE: &[&str] = &[
    "",
    "/../../cuda_cupti/lib",
    "/../../cu13/lib",
    "/../../nvidia/cuda_cupti/lib",
    "/../../nvidia/cu13/lib",
    "/../extras/CUPTI/lib64",
    "/../../../extras/CUPTI/lib64",
];
/// Directories below a toolkit's root.
#[cfg(target_arch = "x86_64")]
const IN_TOOLKIT: &[&str] = &[
    "/lib64",
    "/extras/CUPTI/lib64",
    "/targets/x86_64-linux/lib",
    "/lib",
];
/// Directories below a toolkit's root.
#[cfg(not(target_arch = "x86_64"))]
const IN_TOOLKIT: &[&str] = &[
    "/lib64",
    "/extras/CUPTI/lib64",
    "/targets/sbsa-linux/lib",
    "/lib",
];
/// The oldest CUDA major version whose records can be read.
pub const OLDEST: u32 = 12;
/// Maximum number of directories of one environment variable that are searched: the variable is the
/// process's own.
const MOST_DIRECTORIES: usize = 64;

/// Searches. The order is: the file that the user named, and then nothing else; what the process
/// has mapped; directories near its CUDA libraries; directories that its environment names; usual
/// directories of toolkits; the loader's search. Within a directory, the driver's own major version
/// comes first. `major` is 0 where the driver's version is unknown.
pub fn search(named: Option<&str>, process: &Process, major: u32, files: &dyn Files) -> Search {
    let mut search = Search::default();
    if let Some(path) = named {
        search.push(path.to_owned(), Origin::Named);
        return search;
    }
    for path in &process.mapped {
        if file_name(path).starts_with("libcupti.so") {
            search.push(path.clone(), Origin::Mapped);
        }
    }
    let names: Vec<String> = majors(major)
        .map(|major| format!("libcupti.so.{major}"))
        .collect();
    let try_directory = |search: &mut Search, directory: String, origin| {
        if search.directories.contains(&directory) {
            return;
        }
        for name in names.iter().map(String::as_str).chain(["libcupti.so"]) {
            let path = format!("{directory}/{name}");
            if files.is_file(&path) {
                search.push(path, origin);
            }
        }
        search.directories.push(directory);
    };
    for path in &process.mapped {
        let name = file_name(path);
        if COMPANIONS.iter().any(|start| name.starts_with(start)) {
            let directory = path.get(..path.len() - name.len() - 1).unwrap_or_default();
            for relative in BESIDE {
                try_directory(
                    &mut search,
                    without_parents(&format!("{directory}{relative}")),
                    Origin::Beside,
                );
            }
        }
    }
    for root in ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"] {
        if let Some(root) = process.variable(root).and_then(absolute) {
            for part in IN_TOOLKIT {
                try_directory(&mut search, format!("{root}{part}"), Origin::Environment);
            }
        }
    }
    if let Some(directories) = process.variable("LD_LIBRARY_PATH") {
        let directories = directories.split([':', ';']).filter_map(absolute);
        for directory in directories.take(MOST_DIRECTORIES) {
            try_directory(&mut search, directory.to_owned(), Origin::Environment);
        }
    }
    for root in toolkits(files) {
        for part in IN_TOOLKIT {
            try_directory(&mut search, format!("{root}{part}"), Origin::Toolkit);
        }
    }
    for name in names {
        search.push(name, Origin::Loader);
    }
    search
        .directories
        .push(String::from("the loader's own directories"));
    search
}

impl Search {
    /// Adds a candidate, once: its first position in the order counts.
    fn push(&mut self, path: String, origin: Origin) {
        if !self.candidates.iter().any(|known| known.path == path) {
            self.candidates.push(Candidate { path, origin });
        }
    }
}

/// Major version in a file name: `libcupti.so.13` gives 13. The file `libcupti.so.2025.3.1` of a
/// toolkit carries its year, which is none.
pub fn major_of(path: &str) -> Option<u32> {
    let rest = file_name(path).strip_prefix("libcupti.so.")?;
    let major = rest.split('.').next()?.parse().ok()?;
    (major < 100).then_some(major)
}

/// From the driver's major version down; where it is unknown, all versions that can be read.
fn majors(driver: u32) -> impl Iterator<Item = u32> {
    let newest = midair_abi::cupti::LAYOUTS
        .last()
        .map_or(OLDEST, |known| known.cuda.0);
    let most = if driver == 0 {
        newest
    } else {
        driver.min(newest)
    };
    (OLDEST..=most).rev()
}

/// Roots of installed toolkits: `/usr/local/cuda` and the like, the one without a version first,
/// then the newest.
fn toolkits(files: &dyn Files) -> Vec<String> {
    let mut roots = Vec::new();
    for parent in ["/usr/local", "/opt"] {
        let mut names: Vec<String> = files
            .list(parent)
            .into_iter()
            .filter(|name| name.starts_with("cuda"))
            .collect();
        names.sort_by_key(|name| (name != "cuda", std::cmp::Reverse(numbers(name))));
        roots.extend(names.iter().map(|name| format!("{parent}/{name}")));
    }
    roots
}

/// `cuda-12.10` is newer than `cuda-12.9`.
fn numbers(name: &str) -> Vec<u32> {
    name.split(|c: char| !c.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect()
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn absolute(path: &str) -> Option<&str> {
    path.starts_with('/').then(|| path.trim_end_matches('/'))
}

/// Removes `directory/..`, so that each directory is searched once. The path is resolved by name
/// only: where a component is a link, the directory is missed here and left to the loader's search.
fn without_parents(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            ".." => {
                parts.pop();
            }
            "" | "." => {}
            other => parts.push(other),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Table(&'static [&'static str]);
    impl Files for Table {
        fn is_file(&self, path: &str) -> bool {
            self.0.contains(&path)
        }
        fn list(&self, directory: &str) -> Vec<String> {
            let inside = self
                .0
                .iter()
                .filter_map(|path| path.strip_prefix(directory));
            let mut names: Vec<String> = inside
                .filter_map(|rest| rest.strip_prefix('/')?.split('/').next())
                .map(str::to_owned)
                .collect();
            names.dedup();
            names
        }
    }

    fn found(
        named: Option<&str>,
        mapped: &[&str],
        environment: &[(&str, &str)],
        major: u32,
        disk: &'static [&'static str],
    ) -> Vec<(String, Origin)> {
        let process = Process {
            mapped: mapped.iter().map(|it| (*it).to_owned()).collect(),
            environment: environment
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        };
        let search = search(named, &process, major, &Table(disk));
        search
            .candidates
            .into_iter()
            .map(|it| (it.path, it.origin))
            .filter(|(_, origin)| *origin != Origin::Loader)
            .collect()
    }

    #[test]
    fn a_file_that_the_user_names_is_the_only_candidate() {
        let all = found(
            Some("/x/libcupti.so.13"),
            &["/y/libcupti.so.12"],
            &[],
            13,
            &["/usr/local/cuda/lib64/libcupti.so.13"],
        );
        assert_eq!(all, [("/x/libcupti.so.13".to_owned(), Origin::Named)]);
    }

    #[test]
    fn mapped_then_beside_then_environment_then_toolkit() {
        let all = found(
            None,
            &[
                "/v/nvidia/cuda_runtime/lib/libcudart.so.12",
                "/m/libcupti.so.2025.1.0",
                "/usr/lib/libcuda.so.1",
            ],
            &[("CUDA_HOME", "/h/"), ("LD_LIBRARY_PATH", "rel:/l")],
            13,
            &[
                "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so",
                "/v/nvidia/cuda_cupti/lib/libcupti.so.12",
                "/h/lib64/libcupti.so.12",
                "/h/lib64/libcupti.so.13",
                "/l/libcupti.so.11",
                "/l/libcupti.so.12",
                "/usr/lib/libcupti.so.12",
            ],
        );
        let expected = [
            ("/m/libcupti.so.2025.1.0", Origin::Mapped),
            ("/v/nvidia/cuda_cupti/lib/libcupti.so.12", Origin::Beside),
            ("/h/lib64/libcupti.so.13", Origin::Environment),
            ("/h/lib64/libcupti.so.12", Origin::Environment),
            ("/l/libcupti.so.12", Origin::Environment),
            (
                "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so",
                Origin::Toolkit,
            ),
        ];
        let expected = expected.map(|(path, origin)| (path.to_owned(), origin));
        assert_eq!(all, expected);
    }

    #[test]
    fn python_packages_are_found_from_each_other_and_from_pytorch() {
        for (mapped, cupti) in [
            (
                "/s/nvidia/cublas/lib/libcublasLt.so.12",
                "/s/nvidia/cuda_cupti/lib/libcupti.so.12",
            ),
            (
                "/s/nvidia/cudnn/lib/libcudnn.so.9",
                "/s/nvidia/cu13/lib/libcupti.so.13",
            ),
            (
                "/s/nvidia/cu13/lib/libcudart.so.13",
                "/s/nvidia/cu13/lib/libcupti.so.13",
            ),
            (
                "/s/torch/lib/libtorch_cuda.so",
                "/s/nvidia/cuda_cupti/lib/libcupti.so.12",
            ),
        ] {
            let disk: &'static [&'static str] = Box::leak(Box::new([cupti]));
            let all = found(None, &[mapped], &[], 13, disk);
            assert_eq!(all, [(cupti.to_owned(), Origin::Beside)], "{mapped}");
        }
    }

    #[test]
    fn the_newest_toolkit_first_and_none_newer_than_the_driver() {
        let disk: &'static [&'static str] = &[
            "/usr/local/cuda-12.9/lib64/libcupti.so.12",
            "/usr/local/cuda-12.10/lib64/libcupti.so.12",
            "/usr/local/cuda-13.0/lib64/libcupti.so.13",
            "/opt/cuda/lib64/libcupti.so.12",
        ];
        let paths = |major| -> Vec<String> {
            let all = found(None, &[], &[], major, disk);
            all.into_iter().map(|(path, _)| path).collect()
        };
        assert_eq!(paths(12), [disk[1], disk[0], disk[3]]);
        assert_eq!(paths(13), [disk[2], disk[1], disk[0], disk[3]]);
    }

    #[test]
    fn the_loader_is_asked_last_by_each_name() {
        let of = |major| -> Vec<String> {
            let search = search(None, &Process::default(), major, &Table(&[]));
            assert!(
                search
                    .candidates
                    .iter()
                    .all(|it| it.origin == Origin::Loader)
            );
            search.candidates.into_iter().map(|it| it.path).collect()
        };
        assert_eq!(of(12), ["libcupti.so.12"]);
        assert_eq!(of(13), ["libcupti.so.13", "libcupti.so.12"]);
        assert_eq!(of(0), of(13));
        assert_eq!(of(15), of(13));
        assert_eq!(of(11), [""; 0]);
    }

    #[test]
    fn the_major_version_is_read_from_the_name() {
        assert_eq!(major_of("/x/libcupti.so.12"), Some(12));
        assert_eq!(major_of("libcupti.so.11.8"), Some(11));
        assert_eq!(major_of("/x/libcupti.so.2025.3.1"), None);
        assert_eq!(major_of("/x/libcupti.so"), None);
        assert_eq!(major_of("/x/mine.so.12"), None);
    }
}
