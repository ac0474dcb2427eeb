//! A memory cgroup, to run a program at its limit. Version 1 only: that is what the machines at hand have.

use crate::Result;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A group below this process's own, gone when dropped.
#[derive(Debug)]
pub struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// Makes one; its name begins with `midair-NAME`.
    ///
    /// # Errors
    /// Why none can be had here: what needs one is then left out.
    pub fn make(name: &str) -> std::result::Result<MemoryGroup, String> {
        let cannot = |path: &Path, error: &dyn std::fmt::Display| {
            let path = path.display();
            format!("no memory cgroup (version 1) can be made here: {path}: {error}")
        };
        let base = directory("self").unwrap_or_else(|| PathBuf::from("/nowhere"));
        let own = format!("midair-{name}-{}", std::process::id());
        // One process may have several of a name, one after the other: the one before may not be gone yet.
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

    /// A number of one of its files.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn get(&self, file: &str) -> Result<u64> {
        Ok(std::fs::read_to_string(self.0.join(file))?.trim().parse()?)
    }

    /// Bytes that its processes have.
    ///
    /// # Errors
    /// When the group is gone.
    pub fn usage(&self) -> Result<u64> {
        self.get("memory.usage_in_bytes")
    }

    /// Bytes that they may have; -1: no limit.
    ///
    /// # Errors
    /// When they have more, or the group is gone.
    pub fn limit(&self, bytes: i64) -> Result<()> {
        let file = self.0.join("memory.limit_in_bytes");
        Ok(std::fs::write(file, bytes.to_string())?)
    }

    /// Words before a command that is to run in it.
    pub fn enter(&self) -> Vec<String> {
        let script = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.0.display());
        ["sh", "-c", &script, "sh"].map(str::to_owned).into()
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // A process that has just ended may still count.
        for _ in 0..200 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Leaves a process's group, which must be one of [`MemoryGroup`], so many bytes more than it has now.
///
/// # Errors
/// When it is in no such group.
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

/// Where a process's memory cgroup is.
fn directory(process: &str) -> Option<PathBuf> {
    let groups = std::fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
    let mut lines = groups.lines().filter(|line| line.contains(":memory:"));
    let path = lines.next()?.split(':').nth(2)?.to_owned();
    Some(PathBuf::from(format!("/sys/fs/cgroup/memory{path}")))
}
