//! The lab: a root with AMD's real runtimes and libraries.

use std::path::PathBuf;

/// Its path. `MIDAIR_SKIP_LAB=1` is the only way past these tests.
pub fn find() -> Option<PathBuf> {
    if std::env::var_os("MIDAIR_SKIP_LAB").is_some_and(|v| v == "1") {
        eprintln!("MIDAIR_SKIP_LAB=1: not run");
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
