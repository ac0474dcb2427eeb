//! A workload directory, read as the `analyze` of each of AMD's versions reads it (`schema.py`).

use super::common::{collector, compute};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

#[test]
fn amds_versions_find_the_blocks_that_were_chosen() {
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    collector(here, "cp $made $out/pmc_results.db");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schema.py");
    let mut command = Command::new(midair_tests::python::python().unwrap());
    command.arg(script);
    let mut expected = Vec::new();
    // Numbers of panels and of tables are numbers to YAML, which makes 18.1 of 18.10.
    let cases: [(&[&str], &[&str], &[u32]); 6] = [
        (&["-b", "5.1.1", "17.1.2"], &["5.1.1", "17.1.2"], &[5, 17]),
        (&["-b", "5", "17.1"], &["5", "17.1"], &[5, 17]),
        (&["-b", "18.10", "5.1"], &["18.10", "5.1"], &[5, 18]),
        (&["-b", "lds", "17"], &["12", "17"], &[12, 17]),
        (
            &["-b", "5", "--kernel-iteration-range", "1", "3-5"],
            &["5"],
            &[5],
        ),
        (&[], &[], &[]),
    ];
    for (place, (words, blocks, panels)) in cases.into_iter().enumerate() {
        let name = format!("w{place}");
        let profile = ["profile", "-n", "x", "--attach-pid", "7", "-d", &name];
        let csv = ["--format-rocprof-output", "csv"];
        compute(here, &[&profile[..], words, &csv].concat());
        command.arg(here.join(&name));
        expected.push(json!({"blocks": blocks, "panels": panels, "rows": 40}));
    }
    let said = command.output().unwrap();
    let errors = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.status.success(), "{errors}");
    let read: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(read, Value::Array(expected));
}
