//! Ways into a process: ours, and the others' on the same targets.

mod amd;
mod frida;
mod gdb;
mod midair;
mod remote;

pub use amd::{Amd, on_amds_register};
pub use frida::Frida;
pub use gdb::Gdb;
pub use midair::{Midair, in_and_out};
pub use remote::{Remote, one};

use crate::kit::Kit;
use crate::spec::Spec;
use crate::tally::Cycle;
use midair_tests::Result;
use std::path::PathBuf;
use std::time::Duration;

/// An attach method.
pub trait Method {
    /// Its name and version, for the table.
    fn name(&self) -> &'static str;
    /// Whether cells of this row are tried by it.
    fn takes(&self, _row: u8) -> bool {
        true
    }
    /// The target as this method needs it to be started.
    ///
    /// # Errors
    /// Why this one cannot be had so.
    fn dress(&self, _kit: &Kit, spec: Spec) -> std::result::Result<Spec, String> {
        Ok(spec)
    }
    /// In by a library that was not there before, and out again. What takes longer than `limit` is a hang.
    ///
    /// # Errors
    /// Only what is wrong on our own side.
    fn cycle(&mut self, kit: &Kit, pid: i32, limit: Duration) -> Result<Cycle>;
    /// The target took harm and is killed next: whatever of this method still holds it lets it go.
    fn let_go(&mut self, _pid: i32) {}
}

/// A copy of the probe library that no process has loaded yet.
fn fresh_probe(kit: &Kit) -> Result<PathBuf> {
    let path = kit.fresh("probe.so");
    std::fs::copy(kit.program("probe.so"), &path)?;
    Ok(path)
}

/// Whether a process has this file mapped: the proof that does not come from the attach method itself.
fn is_mapped(pid: i32, path: &std::path::Path) -> bool {
    let name = path.to_string_lossy();
    // A zombie leader's own file is empty; each live thread's tells the same.
    let mut files = vec![format!("/proc/{pid}/maps")];
    if let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) {
        files.extend(
            tasks
                .flatten()
                .take(2)
                .map(|task| format!("{}/maps", task.path().display())),
        );
    }
    files
        .iter()
        // Other names there need not be text.
        .filter_map(|file| std::fs::read(file).ok())
        .any(|maps| String::from_utf8_lossy(&maps).contains(&*name))
}
