//! The recipes in `examples/serve`, as far as programs of this machine read them.

use std::path::{Path, PathBuf};
use std::process::Command;

fn recipe(name: &str) -> PathBuf {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/serve");
    file.join(name)
}

/// Runs a program, if it is there.
fn said(program: &str, words: &[&str], file: &Path) -> Option<String> {
    let output = Command::new(program).args(words).arg(file).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {text}{errors}");
    Some(text)
}

#[test]
fn the_unit_exposes_little() {
    let words = ["security", "--offline=yes", "--threshold=40", "--no-pager"];
    let unit = recipe("midair-serve.service");
    let Some(said) = said("systemd-analyze", &words, &unit) else {
        eprintln!("left out: systemd-analyze is not there");
        return;
    };
    assert!(said.contains("Overall exposure level"), "{said}");
}

#[test]
fn prometheus_reads_the_alerts() {
    let words = ["check", "rules"];
    let Some(said) = said("promtool", &words, &recipe("alerts.yaml")) else {
        eprintln!("left out: promtool is not there");
        return;
    };
    assert!(said.contains("SUCCESS: 6 rules found"), "{said}");
}
