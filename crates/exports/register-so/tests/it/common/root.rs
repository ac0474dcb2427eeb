//! The lab: a root with AMD's real runtimes and libraries.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The script that runs a program there, in a mount namespace of its own.
pub const ENTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../lab/enter.sh");

/// Returns the lab's path. Without root, or with `MIDAIR_SKIP_LAB=1`, the running test is left out,
/// and `cargo xtask test` lists it.
pub fn find() -> Option<PathBuf> {
    let skipped = std::env::var_os("MIDAIR_SKIP_LAB").is_some_and(|v| v == "1");
    if skipped {
        leave_out("MIDAIR_SKIP_LAB=1");
        return None;
    }
    if !is_root_for("AMD's runtimes in the lab") {
        return None;
    }
    let root =
        PathBuf::from(std::env::var_os("MIDAIR_LAB").unwrap_or_else(|| "/var/tmp/rocm-lab".into()));
    assert!(
        root.join("lab/vadd").is_file(),
        "no lab at {}: `cargo xtask lab` makes one, MIDAIR_SKIP_LAB=1 goes without",
        root.display()
    );
    Some(root)
}

/// Whether the running test is root's. It says that it is left out where it is not.
pub fn is_root_for(what: &str) -> bool {
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !root {
        leave_out(&format!("needs root, for {what}"));
    }
    root
}

fn leave_out(why: &str) {
    let thread = std::thread::current();
    let note = format!("{}: {why}\n", thread.name().unwrap_or("a test"));
    eprint!("LEFT OUT, NOT TESTED: {note}");
    if let Some(path) = std::env::var_os("MIDAIR_LEFT_OUT") {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.append(true).create(true).open(path).unwrap();
        file.write_all(note.as_bytes()).unwrap();
    }
}
