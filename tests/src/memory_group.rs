//! A memory cgroup, to run a program at its limit. Only version 1 is supported, which is what our
//! machines have.

use crate::Result;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A cgroup below this process's cgroup. It is removed when this value is dropped.
#[derive(Debug)]
pub struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// Makes a cgroup whose name starts with `midair-NAME`.
    ///
    /// # Errors
    /// Returns why no cgroup can be made here. A test that needs one is then left out.
    pub fn make(name: &str) -> std::result::Result<MemoryGroup, String> {
        let cannot = |path: &Path, error: &dyn std::fmt::Display| {
            let path = path.display();
            format!("no memory cgroup (version 1) can be made here: {path}: {error}")
        };
        let base = directory("self").unwrap_or_else(|| PathBuf::from("/nowhere"));
        let own = format!("midair-{name}-{}", std::process::id());
        // One process may make several cgroups of one name, one after the other, and the one before
        // may still exist.
        for number in 0..1000 {
            let path = base.join(format!("{own}-{number}"));
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(MemoryGroup(path)),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(cannot(&path, &error)),
            }
        }
        Err(cannot(&base, &"all names are taken"))
    }

    /// Returns the number in one of its files.
    ///
    /// # Errors
    /// Fails when there is no such file.
    pub fn get(&self, file: &str) -> Result<u64> {
        Ok(std::fs::read_to_string(self.0.join(file))?.trim().parse()?)
    }

    /// Returns how many bytes its processes have.
    ///
    /// # Errors
    /// Fails when the cgroup is gone.
    pub fn usage(&self) -> Result<u64> {
        self.get("memory.usage_in_bytes")
    }

    /// Sets how many bytes its processes may have. -1 means no limit.
    ///
    /// # Errors
    /// Fails when the processes have more than that, or when the cgroup is gone.
    pub fn limit(&self, bytes: i64) -> Result<()> {
        let file = self.0.join("memory.limit_in_bytes");
        Ok(std::fs::write(file, bytes.to_string())?)
    }

    /// Returns the words before a command that run it in this cgroup.
    pub fn enter(&self) -> Vec<String> {
        let script = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.0.display());
        ["sh", "-c", &script, "sh"].map(str::to_owned).into()
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // A process that has just ended may still be counted.
        for _ in 0..200 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Sets the limit of a process's cgroup, which must be a [`MemoryGroup`], to its current use and
/// this many bytes more.
///
/// # Errors
/// Fails when the process is in no such cgroup.
pub fn leave(pid: i32, bytes: u64) -> Result<()> {
    let path = directory(&pid.to_string()).filter(|path| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with("midair-")
    });
    let path = path.ok_or("it is in no memory cgroup of ours")?;
    let usage = std::fs::read_to_string(path.join("memory.usage_in_bytes"))?;
    let limit = usage.trim().parse::<u64>()? + bytes;
    Ok(std::fs::write(
        path.join("memory.limit_in_bytes"),
        limit.to_string(),
    )?)
}

/// Returns the path of a process's memory cgroup.
fn directory(process: &str) -> Option<PathBuf> {
    let groups = std::fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
    let mut lines = groups.lines().filter(|line| line.contains(":memory:"));
    let path = lines.next()?.split(':').nth(2)?.to_owned();
    Some(PathBuf::from(format!("/sys/fs/cgroup/memory{path}")))
}
