//! The inputs of the search: mapped files and environment of a process, and its file system.

#![expect(
    clippy::disallowed_methods,
    reason = "the calling process's own view; what a target names is looked up by `Files` of the attacher"
)]

use crate::search::Files;
use std::path::Path;

/// What the search needs to know about a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// Paths of mapped libraries, each once, in the order of their addresses.
    pub mapped: Vec<String>,
    /// Environment that the process was started with. Empty where it runs with more rights than its
    /// caller has.
    pub environment: Vec<(String, String)>,
}

impl Process {
    /// The calling process. `secure` is its `AT_SECURE`: with it, the environment is not used. The
    /// environment is the one that the process was started with: another thread may change the
    /// present one while it is read.
    pub fn own(secure: bool) -> Process {
        let maps = std::fs::read("/proc/thread-self/maps").unwrap_or_default();
        let environment = if secure {
            Vec::new()
        } else {
            std::fs::read("/proc/thread-self/environ").unwrap_or_default()
        };
        Process {
            mapped: mapped(&String::from_utf8_lossy(&maps)),
            environment: variables(&environment),
        }
    }
    /// A variable that is set and not empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        let found = self.environment.iter().find(|(it, _)| it == name)?;
        Some(found.1.as_str()).filter(|value| !value.is_empty())
    }
}

/// Paths of libraries in the text of a `maps` file.
fn mapped(maps: &str) -> Vec<String> {
    let mut paths: Vec<String> = Vec::new();
    for line in maps.lines() {
        let Some(at) = line.find('/') else { continue };
        let path = line.get(at..).unwrap_or_default();
        let is_library = path
            .rsplit('/')
            .next()
            .is_some_and(|name| name.starts_with("lib") && name.contains(".so"));
        if is_library && !path.ends_with(" (deleted)") && paths.last().is_none_or(|it| it != path) {
            paths.push(path.to_owned());
        }
    }
    let mut seen = std::collections::HashSet::new();
    paths.retain(|path| seen.insert(path.clone()));
    paths
}

/// Variables in the bytes of an `environ` file.
fn variables(bytes: &[u8]) -> Vec<(String, String)> {
    bytes
        .split(|byte| *byte == 0)
        .filter_map(|one| std::str::from_utf8(one).ok()?.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// The file system as this process sees it.
#[derive(Debug, Clone, Copy)]
pub struct Disk;

impl Files for Disk {
    fn is_file(&self, path: &str) -> bool {
        Path::new(path).is_file()
    }
    fn list(&self, directory: &str) -> Vec<String> {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_listed_once_and_deleted_ones_are_not() {
        let maps = "55d0-55d1 r-xp 00000000 fd:00 12 /usr/bin/libdemo\n\
                    7f00-7f01 r--p 00000000 fd:00 13 /opt/a b/libcudart.so.12\n\
                    7f01-7f02 r-xp 00001000 fd:00 13 /opt/a b/libcudart.so.12\n\
                    7f02-7f03 r-xp 00000000 00:01 14 /memfd:libx.so (deleted)\n\
                    7f03-7f04 rw-p 00000000 00:00 0 [heap]\n\
                    7f05-7f06 r-xp 00000000 fd:00 15 /lib/libc.so.6\n\
                    7f06-7f07 rw-p 00002000 fd:00 13 /opt/a b/libcudart.so.12\n";
        assert_eq!(mapped(maps), ["/opt/a b/libcudart.so.12", "/lib/libc.so.6"]);
    }

    #[test]
    fn variables_are_split_at_the_equals_sign() {
        let process = Process {
            environment: variables(b"A=1\0B=\0C\0CUDA_HOME=/x=y\0"),
            ..Process::default()
        };
        assert_eq!(process.variable("CUDA_HOME"), Some("/x=y"));
        assert_eq!((process.variable("B"), process.variable("C")), (None, None));
    }

    #[test]
    fn this_process_is_described() {
        let own = Process::own(false);
        assert!(
            own.mapped.iter().any(|path| path.contains("libc.so")),
            "{own:?}"
        );
        assert!(own.variable("PATH").is_some());
        assert!(Process::own(true).environment.is_empty());
    }
}
