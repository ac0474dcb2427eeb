//! What the search looks at in this process: mapped files, environment, disk.

use super::find::Files;
use std::path::Path;

/// What is known of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// Paths of mapped libraries, each once, in the order of their addresses.
    pub mapped: Vec<String>,
    /// Variables that the process was started with. None where it runs with rights that its caller does not have.
    pub environment: Vec<(String, String)>,
}

impl Process {
    /// This one. Its environment is the one that it was started with: the present one may be changed by any thread while it is read.
    pub fn own() -> Process {
        let maps = std::fs::read("/proc/thread-self/maps").unwrap_or_default();
        // SAFETY: reads the auxiliary vector.
        let secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
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
    /// A variable that is not empty.
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

/// The disk as this process sees it.
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
    fn libraries_are_named_once_and_deleted_ones_not() {
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
    fn variables_are_pairs() {
        let process = Process {
            environment: variables(b"A=1\0B=\0C\0CUDA_HOME=/x=y\0"),
            ..Process::default()
        };
        assert_eq!(process.variable("CUDA_HOME"), Some("/x=y"));
        assert_eq!((process.variable("B"), process.variable("C")), (None, None));
    }

    #[test]
    fn this_process_is_seen() {
        let own = Process::own();
        assert!(
            own.mapped.iter().any(|path| path.contains("libc.so")),
            "{own:?}"
        );
        assert!(own.variable("PATH").is_some());
    }
}
