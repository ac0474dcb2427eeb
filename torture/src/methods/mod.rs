//! Attach methods: ours, and others on the same targets.

mod amd;
mod frida;
mod gdb;
mod midair;
mod remote;
mod wprof;

pub use amd::{Amd, on_amds_register};
pub use frida::Frida;
pub use gdb::Gdb;
pub use midair::{Midair, in_and_out};
pub use remote::{Remote, one};
pub use wprof::WprofStandIn;

use crate::kit::Kit;
use crate::spec::Spec;
use crate::tally::Cycle;
use midair_tests::Result;
use std::path::PathBuf;
use std::time::Duration;

/// An attach method.
pub trait Method {
    /// Returns the method's name and version for the table.
    fn name(&self) -> &'static str;
    /// Returns whether cells of this row are tried by this method.
    fn takes(&self, _row: u8) -> bool {
        true
    }
    /// Returns the target as it must be started for this method.
    ///
    /// # Errors
    /// Returns why this target cannot be had in this way.
    fn dress(&self, _kit: &Kit, spec: Spec) -> std::result::Result<Spec, String> {
        Ok(spec)
    }
    /// Enters with a library that was not there before, and leaves again. A cycle that takes longer
    /// than `limit` is a hang.
    ///
    /// # Errors
    /// Fails only for a reason on our own side.
    fn cycle(&mut self, kit: &Kit, pid: i32, limit: Duration) -> Result<Cycle>;
    /// Lets go of a target that took harm and is killed next.
    fn release(&mut self, _pid: i32) {}
}

/// Makes a copy of the probe library that no process has loaded yet.
fn fresh_probe(kit: &Kit) -> Result<PathBuf> {
    let path = kit.fresh("probe.so");
    std::fs::copy(kit.program("probe.so"), &path)?;
    Ok(path)
}

/// Returns whether a process has this file mapped, which is a proof that does not come from the
/// attach method itself.
fn is_mapped(pid: i32, path: &std::path::Path) -> bool {
    let name = path.to_string_lossy();
    // The `maps` file of an ended first thread is empty. The files of the live threads all say the
    // same.
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
        // Other names in the file need not be valid UTF-8.
        .filter_map(|file| std::fs::read(file).ok())
        .any(|maps| String::from_utf8_lossy(&maps).contains(&*name))
}
